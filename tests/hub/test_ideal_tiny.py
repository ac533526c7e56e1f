"""The embedded model: small, loaded in every way, licensed as its data demand, and of use."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from huggingface_hub import ModelCard
from PIL import Image, ImageFilter
from safetensors import safe_open
from transformers import AutoImageProcessor, AutoModel, pipeline

from hub.embed import embed
from modeling_ideal import IDEAL_TINY
from modeling_ideal.demo.rendering import SIZE, render_part

from ..test_remote_code import LOAD, run

TINY = Path(IDEAL_TINY)
MOST_BYTES = 40 * 10**6


def test_it_is_the_default_and_small():
    assert pipeline("anomaly-detection").model.name_or_path == IDEAL_TINY
    assert sum(path.stat().st_size for path in TINY.iterdir()) <= MOST_BYTES
    with safe_open(TINY / "model.safetensors", "pt") as file:
        assert {file.get_tensor(name).dtype for name in file.keys()} == {torch.float16}  # noqa: SIM118


def test_it_is_data_alone():
    assert {path.name for path in TINY.iterdir()} == {
        "README.md", "config.json", "model.safetensors", "preprocessor_config.json"
    }  # fmt: skip
    for name in ("config.json", "preprocessor_config.json"):
        assert not {"auto_map", "custom_pipelines"} & json.loads((TINY / name).read_text()).keys()


@pytest.mark.parametrize("trust", [False, True])
def test_it_loads_by_its_path(trust):
    assert pipeline("anomaly-detection", model=IDEAL_TINY, trust_remote_code=trust).model.dtype == torch.float32


def test_saved_again_it_loads_without_the_package_and_scores_the_same(tmp_path):
    model = AutoModel.from_pretrained(TINY)
    processor = AutoImageProcessor.from_pretrained(TINY)
    assert model.dtype == torch.float32  # from float16 on disk, exactly
    pictures = torch.rand(3, 3, 64, 64, generator=torch.Generator().manual_seed(0))
    inputs = dict(processor(query=[pictures[0]], normal_refs=[pictures[1]], abnormal_refs=[pictures[2]]))
    torch.save(inputs, tmp_path / "inputs.pt")
    with torch.no_grad():
        expected = model(**inputs).scores.tolist()
    for part in (model, processor):
        part.save_pretrained(tmp_path / "saved")
    found = run(LOAD, tmp_path / "saved", tmp_path / "inputs.pt", folder=tmp_path)
    assert found == pytest.approx(expected, abs=1e-5)


def test_its_card_says_what_the_weights_are():
    card = ModelCard.load(TINY / "README.md")
    assert card.data.license == "apache-2.0"
    assert card.data.datasets == ["BrachioLab/visa"]  # CC BY 4.0, which asks to be named
    assert "CC BY 4.0" in card.text
    assert card.data.eval_results  # measured, from the results file


def mosaic(*defects: str, seed: int) -> tuple[Image.Image, Image.Image]:
    """Four parts on one large picture, and where their defects are."""
    picture, mask = Image.new("RGB", (2 * SIZE, 2 * SIZE)), Image.new("L", (2 * SIZE, 2 * SIZE))
    for place, defect in enumerate(defects):
        part, corner = render_part(seed + place, defect), (place % 2 * SIZE, place // 2 * SIZE)
        picture.paste(part.image, corner)
        if part.mask is not None:
            mask.paste(part.mask, corner)
    return picture, mask


def test_in_tiles_it_finds_the_bad_part_among_good_ones():
    pipe = pipeline("anomaly-detection", model=str(TINY))
    bad, marked = mosaic("good", "scratch", "good", "good", seed=200)
    pipe.set_references(
        normal=mosaic(*["good"] * 4, seed=100)[0], abnormal=[bad], masks=[np.asarray(marked)], tiling=True
    )
    query, defect = mosaic("good", "good", "good", "scratch", seed=300)
    good, _ = mosaic(*["good"] * 4, seed=400)
    found, nothing = pipe([query, good])
    assert found["score"] > nothing["score"]
    highest = np.unravel_index(found["anomaly_map"].argmax(), found["anomaly_map"].shape)
    assert np.asarray(defect.filter(ImageFilter.MaxFilter(41)))[highest]


def test_embedding_wants_a_built_folder(tmp_path):
    shutil.copyfile(TINY / "config.json", tmp_path / "config.json")
    with pytest.raises(ValueError, match=r"expected a folder made by `ideal build`, got one without \['preproc.*'\]"):
        embed(tmp_path, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_what_is_embedded_names_no_code(repository, tmp_path):
    embed(repository, tmp_path / "out")
    assert {path.name for path in (tmp_path / "out").iterdir()} == {path.name for path in TINY.iterdir()}
    config = json.loads((tmp_path / "out" / "config.json").read_text())
    assert config["model_type"] == "ideal"
    assert "auto_map" not in config


def test_embedding_replaces_an_embedded_model_and_nothing_else(repository, tmp_path):
    for _ in range(2):
        embed(repository, tmp_path / "out")
    (tmp_path / "out" / "notes.txt").write_text("mine")
    with pytest.raises(ValueError, match=r"expected an embedded model to replace, got a folder with \['notes.txt'\]"):
        embed(repository, tmp_path / "out")
    shutil.copytree(repository, tmp_path / "changed")
    (tmp_path / "changed" / "README.md").write_text("changed")
    with pytest.raises(ValueError, match=r"expected the files as they were built, got others: \['README.md'\]"):
        embed(tmp_path / "changed", tmp_path / "new")
    assert [path.name for path in sorted(tmp_path.iterdir())] == ["changed", "out"]
