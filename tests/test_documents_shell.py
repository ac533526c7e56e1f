"""Blocks of the documents that need a shell run in one, and no command or snippet of a document is left out."""

import os
import pkgutil
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from transformers import AutoConfig

from modeling_ideal.backbone import build_backbone
from modeling_ideal.cli import main
from modeling_ideal.evaluation.results_file import read_results

from .test_documents import PRESENT, ROOT, read, snippets
from .test_documents_run import run_snippets, workshop  # noqa: F401 - a fixture
from .test_documents_work import laboratory  # noqa: F401 - a fixture

BLOCK = re.compile(r"```bash\n(.*?)```", re.DOTALL)
TESTS = "tests.test_documents"
FIRST = f"{TESTS}_run:test_what_the_readme_shows_first_runs_as_it_stands"
DAILY = f"{TESTS}_run:test_what_the_pages_of_daily_work_show_runs"
README = f"{TESTS}_work:test_the_readme_measures_a_backbone"
TRAINING = f"{TESTS}_work:test_training_and_its_evaluation_run_as_documented"
RIVALS = f"{TESTS}_work:test_rivals_are_trained_and_compared_as_documented"
PUBLISHED = f"{TESTS}_work:test_a_model_is_built_pushed_and_exported_as_documented"
INT8 = f"{TESTS}_shell:test_an_int8_backbone_is_measured_as_documented"
SPACE = f"{TESTS}_shell:test_a_space_is_put_together_and_uploaded_as_documented"
BY_HAND = "by hand: "
MADE_ANEW = f"{BY_HAND}it writes files of the repository anew"

# What runs each kind of command: a test that takes it from the document, or does what it says; a target of .ci/run; or
# why neither does.
RUN_BY = {
    "CONTRIBUTING.md": {
        **{f"make {target}": f"make {target}" for target in ("test", "check", "docs")},
        "make pictures": MADE_ANEW,
        "make style": MADE_ANEW,
        "make fuzz": "tests.test_fuzz",  # fewer cases
        "make faults": "tests.test_faults",  # fewer kills
        ".venv/bin/python -m": "make test",
    },
    "README.md": {
        "pip install": "make installed",
        **dict.fromkeys(("demo", "references", "detect", "explain", "watch", "python"), FIRST),
        **dict.fromkeys(("evaluate", "cost"), README),
    },
    "docs/app.md": {
        "pip install": "make test",
        "app": "tests.app.test_space:test_the_space_starts_serves_and_stops",
        **dict.fromkeys(("mkdir", "git archive", "hf upload"), SPACE),
    },
    "docs/calibration.md": dict.fromkeys(("references", "detect", "python"), DAILY),
    "docs/data.md": dict.fromkeys(("data", "python"), f"{TESTS}_run:test_data_snippets_run"),
    "docs/deployment.md": {
        **dict.fromkeys(("build", "push", "export"), PUBLISHED),
        **dict.fromkeys(("BACKBONE", "for", "evaluate", "done"), INT8),
        "python": f"{TESTS}_run:test_snippets_around_the_hub_run",
    },
    "docs/distillation.md": {"python": f"{TESTS}_run:test_the_snippet_of_the_distillation_runs"},
    "docs/line.md": {
        "watch": DAILY,
        "accelerate launch detect": "tests.test_shares:test_two_processes_of_a_launcher_give_the_results_of_one",
        "pip install": "make test",
        "detect --ray": "tests.test_ray:test_two_actors_give_the_results_of_one_process_and_judge_what_is_missing",
        "ray start": f"{BY_HAND}it takes several machines",
    },
    "docs/method.md": {"python": f"{TESTS}_run:test_the_snippets_of_the_method_run"},
    "docs/quick_start.md": {
        "git clone": f"{BY_HAND}each run of the tests begins with it",
        "python3 -m": "make installed",
        "pip install": "make installed",
        "demo": FIRST,
        **dict.fromkeys(("references", "detect", "python"), DAILY),
    },
    "docs/references.md": dict.fromkeys(("references", "explain", "python"), DAILY),
    "docs/rivals.md": {
        **dict.fromkeys(("train", "evaluate"), RIVALS),
        "python": f"{TESTS}_shell:test_the_snippet_of_the_rivals_runs",
    },
    "docs/training.md": {
        "train": f"{TESTS}_run:test_the_fine_tuning_command_runs_on_ten_normal_and_three_abnormal_pictures",
        **dict.fromkeys(("accelerate launch train", "evaluate"), TRAINING),
        "python": f"{TESTS}_run:test_the_snippets_of_training_run",
    },
    "hub/anomaly_metrics/README.md": {"python": "tests.metrics.test_documents"},
    "model_card.md": {"python": f"{TESTS}_run:test_snippets_around_the_hub_run"},
    "modeling_ideal/ideal_tiny/README.md": {"python": "tests.hub.test_ideal_tiny"},
}


def kinds(name):
    """The kinds of commands in the bash blocks of a document, and `python` if there are snippets.

    A command of ours is known by its own name; also under a launcher, which is named too, and with --ray.
    """
    found = {"python"} if snippets(name) else set()
    for line in "\n".join(BLOCK.findall(read(name))).replace("\\\n", " ").splitlines():
        for command in re.split(r"&&|\|", line):
            words = shlex.split(command, comments=True)
            while words and re.match(r"[A-Z_]+=", words[0]) and len(words) > 1:
                del words[0]  # a variable for this command alone
            if words:
                found.add(_kind(words))
    return found - {"cd ideal", ". .venv/bin/activate", "tar -x"}


def _kind(words):
    if words[0] == "ideal":
        return f"{words[1]} --ray" if "--ray" in words else words[1]
    if words[:2] == ["accelerate", "launch"]:
        module = words.index("-m") + 1
        return f"accelerate launch {words[module].rpartition('.')[2].replace('modeling_ideal', words[module + 1])}"
    if words[0] in ("mkdir", "for", "done"):
        return words[0]
    return words[0].partition("=")[0] if "=" in words[0] else " ".join(words[:2])


def test_no_command_of_the_documents_is_left_out():
    written = {name: kinds(name) for name in PRESENT}
    assert {name: found for name, found in written.items() if found} == {
        name: set(commands) for name, commands in RUN_BY.items()
    }


def test_what_runs_the_commands_exists():
    ci = (ROOT / ".ci" / "run").read_text().splitlines()
    for ways in RUN_BY.values():
        for way in ways.values():
            if way.startswith("make "):
                assert way in ci, way
            elif not way.startswith(BY_HAND):
                pkgutil.resolve_name(way)  # raises if it is not there


def shell(block, folder, environment=None):
    """Run a block of a document in a folder, as a person would in an environment with the package: what it prints."""
    programs = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    settings = {**(environment or os.environ), "PATH": programs}
    command = [shutil.which("bash"), "-euc", block]
    result = subprocess.run(
        command, cwd=folder, env=settings, capture_output=True, text=True, check=False, timeout=300
    )
    assert result.returncode == 0, result.stderr
    return result.stdout


def expanded(block, folder):
    """Our commands in a block with variables and loops, as a shell gives them to `ideal`."""
    return [
        shlex.split(line) for line in shell(f'ideal() {{ printf "%q " "$@"; echo; }}\n{block}', folder).splitlines()
    ]


def test_an_int8_backbone_is_measured_as_documented(laboratory):  # noqa: F811
    [block] = [block for block in BLOCK.findall(read("docs/deployment.md")) if "BACKBONE=" in block]
    config = AutoConfig.for_model(
        "dinov2", hidden_size=32, num_hidden_layers=9, num_attention_heads=2, patch_size=14, image_size=56
    )
    build_backbone(config).save_pretrained(laboratory / "path" / "to" / "dinov2-vits14")
    (laboratory / "path" / "to" / "mpdd" / "metal_plate").symlink_to(laboratory / "path" / "to" / "mpdd" / "nut")
    ours = expanded(block, laboratory)
    assert [words[0] for words in ours] == ["export", "evaluate"] * 2
    for words in ours:
        assert main(words) == 0, words
    for kind in ("onnx", "onnx--int8"):
        results = read_results(laboratory / "results" / kind / "results.json")
        assert set(results["methods"]) == {"normal_matching", "nve_matching"}


def test_a_space_is_put_together_and_uploaded_as_documented(hub, tmp_path):
    if not (ROOT / ".git").exists():
        pytest.skip("not a clone")
    [block] = [block for block in BLOCK.findall(read("docs/app.md")) if "git archive" in block]
    environment = {**hub.environment(tmp_path), "GIT_DIR": str(ROOT / ".git")}
    shell(block, tmp_path, environment)
    published = hub.files("org/ideal-app", "space")
    assert {"README.md", "app.py", "requirements.txt", "modeling_ideal/__init__.py"} <= set(published)
    assert {name for name in published if "/" not in name} == {"README.md", "app.py", "requirements.txt"}


def test_the_snippet_of_the_rivals_runs(capsys):
    run_snippets("docs/rivals.md", {})
    assert len(capsys.readouterr().out.splitlines()) == 3
