"""`ideal build`: a folder with all that the Hub needs, verified, whole or not there."""

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModel
from transformers.dynamic_module_utils import get_relative_import_files

from hub import build, files, fresh_load, verify
from hub.files import ROOT, check_imports, digests
from modeling_ideal import AnomalyDetectionPipeline, IdealImageProcessor, IdealModel
from modeling_ideal.cli import main
from modeling_ideal.saving import shipped_files

from ..conftest import COMMIT, random_images, tiny_model


@pytest.fixture
def unverified(monkeypatch):
    """Without the fresh process, where a test is about something else."""
    monkeypatch.setattr(build, "verify", lambda *_: None)


def test_the_folder_is_complete_and_its_code_is_the_source_byte_for_byte(repository):
    sources = shipped_files()
    assert {path.name for path in repository.iterdir()} == files.REQUIRED | {path.name for path in sources}
    for source in [*sources, ROOT / "hub" / "handler.py", ROOT / "hub" / "requirements.txt"]:
        assert (repository / source.name).read_bytes() == source.read_bytes()
    record = json.loads((repository / "build.json").read_text())
    assert record["commit"] == COMMIT
    assert record["sha256"] == digests(repository)


def test_a_file_in_the_root_of_the_package_ships_and_a_folder_does_not():
    names = {path.stem for path in shipped_files()}
    assert names == {path.stem for path in (ROOT / "modeling_ideal").glob("*.py")} - {
        "__init__",
        "__main__",
        "version",
    }
    for entry in ("configuration_ideal", "image_processing_ideal", "modeling_ideal", "pipeline_ideal"):
        needed = get_relative_import_files(ROOT / "modeling_ideal" / f"{entry}.py")
        assert {Path(file).stem for file in needed} <= names


def test_the_onnx_backbone_comes_with_the_code_that_runs_it(tiny_folder, tmp_path, unverified, monkeypatch):
    def export(model, path):
        assert {parameter.dtype for parameter in model.parameters()} == {torch.float32}
        path.write_bytes(b"graph")

    monkeypatch.setattr("modeling_ideal.export.onnx.export_backbone", export)
    arguments = [
        "build",
        "--model",
        str(tiny_folder),
        "--out",
        str(tmp_path / "built"),
        "--dtype",
        "float16",
        "--onnx",
    ]
    assert main(arguments) == 0
    record = json.loads((tmp_path / "built" / "build.json").read_text())
    assert {"backbone.onnx", "onnx_backbone.py"} <= set(record["sha256"])
    assert not any("/" in file for file in record["sha256"])  # no folder ships


def test_half_precision_is_in_the_file_alone(repository):
    assert {tensor.dtype for tensor in load_file(repository / "model.safetensors").values()} == {torch.float16}
    model = AutoModel.from_pretrained(repository)
    assert {parameter.dtype for parameter in model.parameters()} == {torch.float32}
    rounded = tiny_model().half().float()
    query, normal = random_images(2), random_images(1, seed=1)
    assert torch.equal(model(query, normal).scores, rounded(query, normal).scores)


def test_transformers_finds_our_classes(repository):
    config = json.loads((repository / "config.json").read_text())
    assert config["auto_map"] == {
        "AutoConfig": "configuration_ideal.IdealConfig",
        "AutoModel": "modeling_ideal.IdealModel",
    }
    pipelines = {"impl": "pipeline_ideal.AnomalyDetectionPipeline", "pt": ["AutoModel"], "type": "image"}
    assert config["custom_pipelines"] == {"anomaly-detection": pipelines}
    processor = json.loads((repository / "preprocessor_config.json").read_text())
    assert processor["auto_map"] == {"AutoImageProcessor": "image_processing_ideal.IdealImageProcessor"}


def test_nobody_learns_where_the_model_was_trained(tmp_path, unverified):
    model = tiny_model()
    model.config.backbone_config._name_or_path = "private/folder"
    model.save_pretrained(tmp_path / "trained")
    IdealImageProcessor(size=32, patch_size=4).save_pretrained(tmp_path / "trained")
    built = build.build(tmp_path / "trained", tmp_path / "built")
    for path in built.iterdir():
        assert b"private/folder" not in path.read_bytes(), path.name
        assert str(tmp_path).encode() not in path.read_bytes(), path.name


@pytest.mark.parametrize("difference", [1e-6, 1e-4])
@pytest.mark.parametrize("way", ["model", "pipeline by task"])
def test_what_scores_otherwise_than_the_source_is_not_built(tiny_folder, tmp_path, monkeypatch, way, difference):
    def changed(folder, pictures):
        model, processor = IdealModel.from_pretrained(folder), IdealImageProcessor.from_pretrained(folder)
        pipe = AnomalyDetectionPipeline(model=model, image_processor=processor)
        scores = {
            "model": fresh_load.model_scores(model, processor, pictures),
            "pipeline by task": fresh_load.pipeline_scores(pipe, pictures),
        }
        scores[way][-1] += difference
        return scores

    monkeypatch.setattr(verify, "_in_a_fresh_process", changed)
    if difference < verify.TOLERANCE:  # another processor rounds differently
        assert build.build(tiny_folder, tmp_path / "built").is_dir()
        return
    with pytest.raises(ValueError, match=f"expected the scores of the source, got others through {way}"):
        build.build(tiny_folder, tmp_path / "built")
    assert list(tmp_path.iterdir()) == []


def test_what_does_not_load_is_named(tiny_folder, tmp_path, monkeypatch):
    (tmp_path / "load.py").write_text("from .scoring import nothing")
    monkeypatch.setattr(fresh_load, "__file__", str(tmp_path / "load.py"))
    with pytest.raises(ValueError, match=r"expected to load in a fresh process, got(.|\n)*ImportError"):
        build.build(tiny_folder, tmp_path / "built")
    assert not (tmp_path / "built").exists()


def test_only_an_earlier_build_is_replaced_and_only_if_asked(tiny_folder, tmp_path, unverified):
    out = tmp_path / "out"
    build.build(tiny_folder, out)
    (out / "references").mkdir()
    (out / "references" / "bottle.safetensors").write_bytes(b"mine")
    with pytest.raises(ValueError, match="expected a new or empty folder, got one with files; --overwrite"):
        build.build(tiny_folder, out)
    build.build(tiny_folder, out, dtype="float16", overwrite=True)
    assert json.loads((out / "build.json").read_text())["dtype"] == "float16"
    assert (out / "references" / "bottle.safetensors").read_bytes() == b"mine"
    for name in ("notes.txt", "README.md"):
        before = (out / name).read_bytes() if (out / name).exists() else None
        (out / name).write_text("mine")
        with pytest.raises(ValueError, match=rf"expected the files as they were built, got others: \['{name}'\]"):
            build.build(tiny_folder, out, overwrite=True)
        assert (out / name).read_text() == "mine"
        (out / name).unlink() if before is None else (out / name).write_bytes(before)
    assert list(tmp_path.iterdir()) == [out]


def test_a_folder_that_is_no_build_is_never_replaced(tiny_folder, tmp_path, unverified):
    (tmp_path / "photographs").mkdir()
    (tmp_path / "photographs" / "part.png").write_bytes(b"mine")
    with pytest.raises(ValueError, match=r"expected a folder made by `ideal build`, got one without build.json"):
        build.build(tiny_folder, tmp_path / "photographs", overwrite=True)
    assert (tmp_path / "photographs" / "part.png").read_bytes() == b"mine"


def test_a_build_that_cannot_take_its_place_leaves_the_earlier_one(tiny_folder, tmp_path, unverified, monkeypatch):
    out = build.build(tiny_folder, tmp_path / "out")
    rename = build.os.rename
    monkeypatch.setattr(
        build.os, "rename", lambda old, new: _fail() if Path(old).name == "repository" else rename(old, new)
    )
    with pytest.raises(OSError, match="disk"):
        build.build(tiny_folder, out, overwrite=True)
    assert digests(out) == json.loads((out / "build.json").read_text())["sha256"]


def _fail():
    raise OSError("disk")


def test_figures_of_another_model_are_refused(tiny_folder, tmp_path, unverified):
    model, rounded = tiny_model(), tiny_model().half().float()
    results, cost = tmp_path / "results.json", tmp_path / "cost.json"
    content = {"target": "parts", "command": "", "encoder": "", "seeds": [], "smoothing": 4, "difficulty": {}}
    for fingerprint in (model.fingerprint, rounded.fingerprint, None):
        results.write_text(json.dumps({**content, "methods": {}, "model": fingerprint}))
        build.build(tiny_folder, tmp_path / str(fingerprint), dtype="float16", results=[results])
    results.write_text(json.dumps({**content, "methods": {}, "model": tiny_model(seed=1).fingerprint}))
    with pytest.raises(
        ValueError, match=r"results.json: expected the results of this model \(.*\), got those of \w{12}"
    ):
        build.build(tiny_folder, tmp_path / "other", results=[results])
    cost.write_text(json.dumps({"models": {"large": {"parameters": 10**9}}}))
    with pytest.raises(ValueError, match=r"cost.json: expected the cost of this model, .* got {'large': 1000000000}"):
        build.build(tiny_folder, tmp_path / "other", cost=cost)
    assert not (tmp_path / "other").exists()


def test_a_build_from_uncommitted_changes_says_so(tiny_folder, tmp_path, unverified, monkeypatch, capsys):
    monkeypatch.setattr(build, "source_commit", lambda: f"{COMMIT}-dirty")
    assert main(["build", "--model", str(tiny_folder), "--out", str(tmp_path / "built")]) == 0
    assert "built from uncommitted changes, so `ideal push` will refuse it" in capsys.readouterr().out


def test_weights_that_half_precision_cannot_hold(tmp_path, unverified):
    model = tiny_model()
    with torch.no_grad():
        next(model.deviation_encoder.parameters()).fill_(1e6)
    model.save_pretrained(tmp_path / "model")
    IdealImageProcessor(size=32, patch_size=4).save_pretrained(tmp_path / "model")
    with pytest.raises(
        ValueError, match=r"deviation_encoder.*expected weights that fit into torch.float16, got larger"
    ):
        build.build(tmp_path / "model", tmp_path / "built", dtype="float16")
    with pytest.raises(ValueError, match=r"dtype: expected one of .*, got 'int4'"):
        build.build(tmp_path / "model", tmp_path / "built", dtype="int4")


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("import sklearn.metrics", r"tool.py: expected imports of .* only, got \['sklearn'\]"),
        ("def later():\n    import datasets", r"got \['datasets'\]"),
        ("from modeling_ideal.scoring import upsample", r"got \['modeling_ideal'\]"),
        (
            "from . import scoring",
            r"relative imports `from .name import X` of files that ship, got `from . import ...` in line 1",
        ),
        ("from .writing.files import write_json", r"got `from .writing.files import"),
        ("from .data import load_records", r"got `from .data import"),
    ],
)
def test_a_source_that_must_not_ship(tmp_path, line, message):
    (tmp_path / "tool.py").write_text(f"{line}\n")
    with pytest.raises(ValueError, match=message):
        check_imports([tmp_path / "tool.py"])


def test_the_sources_may_ship_and_the_requirements_are_the_packages_own():
    check_imports(shipped_files())
    dependencies = (ROOT / "pyproject.toml").read_text().partition("dependencies = [")[2].partition("]")[0]
    required = (ROOT / "hub" / "requirements.txt").read_text().split()
    assert required == [line.strip(' ",') for line in dependencies.strip().splitlines()]


def test_without_the_folder_hub_the_command_says_what_it_needs(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("modeling_ideal.cli.hub.__file__", str(tmp_path / "site-packages" / "modeling_ideal" / "x.py"))
    assert main(["build", "--model", "a", "--out", "b"]) == 3
    assert "`ideal build` needs the folder hub/ of the source repository" in capsys.readouterr().err
