"""The protocol runner: right figures, resumable, the same in one process and in two."""

import json
import os
import subprocess
import sys

import numpy as np
import pytest
import torch
from scipy.ndimage import gaussian_filter
from sklearn.metrics import average_precision_score, roc_auc_score

from modeling_ideal import IdealImageProcessor, IdealModel
from modeling_ideal.cli import main
from modeling_ideal.data import load_records
from modeling_ideal.data.reference_sets import read_references
from modeling_ideal.evaluation.methods import METHODS
from modeling_ideal.evaluation.protocol import evaluation as protocol
from modeling_ideal.evaluation.protocol.evaluation import Evaluation
from modeling_ideal.evaluation.protocol.summary import summarise
from modeling_ideal.evaluation.report.document import results_document
from modeling_ideal.evaluation.results_file import read_results

from .. import plain
from ..conftest import random_images, random_masks, threads

MEANS = {"image_auroc", "image_ap", "image_f1_max", "pixel_auroc", "pixel_pro", "pixel_f1_max"}


def evaluation(target, model_folder, out, **changes):
    return Evaluation(
        model=IdealModel.from_pretrained(model_folder),
        processor=IdealImageProcessor.from_pretrained(model_folder),
        **{
            "target": target,
            "out": out,
            "cache": out / "features",
            "layout": "mvtec",
            "setups": ["N1A1"],
            "seeds": [0, 1],
            "methods": ["ideal", "normal_matching"],
            **changes,
        },
    )


@pytest.fixture(scope="module")
def finished(target, model_folder, tmp_path_factory):
    out = tmp_path_factory.mktemp("finished")
    return out, evaluation(target, model_folder, out).run()


def test_the_result_has_the_published_shape(finished):
    out, results = finished
    assert json.loads((out / "results.json").read_text()) == json.loads(json.dumps(results))
    assert (out / "tables.md").read_text() == results_document([results])
    general = results["setups"]["N1A1"]["general"]
    assert set(general["mean"]) >= MEANS
    assert set(general["categories"]) == {"nut", "bolt"}
    assert set(results["setups"]["N1A1"]["hard"]["categories"]) == {"nut"}  # bolt has one type of defect
    assert results["setups"] == results["methods"]["ideal"]["setups"]
    assert all(0 <= value <= 100 for value in general["mean"].values())


def by_hand(target, model_folder, references, method):
    """Scores and smoothed maps of one reference set, computed from the pictures without the package's runner."""
    model = IdealModel.from_pretrained(model_folder)
    processor = IdealImageProcessor.from_pretrained(model_folder)
    records = {record["path"]: record for record in load_records(target, "mvtec")}
    normal = [records[reference.path]["image"] for reference in references.normal]
    abnormal = [records[reference.path] for reference in references.abnormal]
    inputs = processor(normal_refs=normal)
    if method == "ideal":
        inputs |= processor(
            abnormal_refs=[record["image"] for record in abnormal], masks=[record["mask"] for record in abnormal]
        )
    used = {reference.path for reference in (*references.normal, *references.abnormal)}
    queries = [
        record
        for path, record in records.items()
        if record["category"] == references.category and record["split"] == "test" and path not in used
    ]
    out = model(**processor(query=[record["image"] for record in queries]), **inputs)
    maps = [gaussian_filter(part, 4.0, mode="nearest") for part in out.anomaly_maps.detach().double().numpy()]
    return queries, out.scores.detach().numpy(), maps


@pytest.mark.parametrize("method", ["ideal", "normal_matching"])
def test_figures_are_those_of_an_independent_computation(finished, target, model_folder, method):
    out, results = finished
    for category in ("nut", "bolt"):
        aurocs, precisions, pixels = [], [], []
        for references in read_references(out / "references.json"):
            if references.category == category:
                queries, scores, maps = by_hand(target, model_folder, references, method)
                labels = [record["label"] for record in queries]
                masks = [
                    np.zeros(a.shape) if record["mask"] is None else np.asarray(record["mask"]) > 0
                    for record, a in zip(queries, maps, strict=True)
                ]
                aurocs.append(roc_auc_score(labels, scores))
                precisions.append(average_precision_score(labels, scores))
                pixels.append(roc_auc_score(np.ravel(masks), np.ravel(maps)))
        figures = results["methods"][method]["setups"]["N1A1"]["general"]["categories"][category]
        assert figures["image_auroc"] == pytest.approx(100 * np.mean(aurocs), abs=0.5)  # features are float16 here
        assert figures["image_ap"] == pytest.approx(100 * np.mean(precisions), abs=0.5)
        assert figures["pixel_auroc"] == pytest.approx(100 * np.mean(pixels), abs=0.5)


def test_difficulty_is_the_mean_cosine_of_deviations(finished, target, model_folder):
    out, results = finished
    model = IdealModel.from_pretrained(model_folder)
    processor = IdealImageProcessor.from_pretrained(model_folder)
    records = {record["path"]: record for record in load_records(target, "mvtec")}

    def deviation(record, centre):
        inputs = processor(abnormal_refs=[record["image"]], masks=[record["mask"]])
        features = model.extract_features(inputs["abnormal_refs"])[0]
        marked = torch.nn.functional.max_pool2d(inputs["masks"][None].float(), 4)[0, 0] > 0
        return features[marked].mean(0).numpy() - centre

    cosines = []
    for references in read_references(out / "references.json"):
        if references.category == "nut":
            pixels = processor(query=[records[reference.path]["image"] for reference in references.normal])["query"]
            centre = model.extract_features(pixels).mean((0, 1, 2)).numpy()
            known = deviation(records[references.abnormal[0].path], centre)
            others = [
                record
                for record in records.values()
                if record["category"] == "nut" and record["anomaly_type"] not in ("good", references.anomaly_type)
            ]
            cosines.append(np.mean([plain.cosine(deviation(record, centre), known) for record in others]))
    assert results["difficulty"]["N1A1"] == {"nut": pytest.approx(np.mean(cosines), abs=1e-3)}


def test_all_methods_run_with_and_without_abnormal_references(target, model_folder, tmp_path):
    results = evaluation(target, model_folder, tmp_path, methods=["ideal", *METHODS], seeds=[0], setups=["N2A2"]).run()
    assert set(results["methods"]) == {"ideal", *METHODS}
    normal_only = evaluation(
        target, model_folder, tmp_path / "normal", methods=["ideal", "normal_matching"], seeds=[0], setups=["N2A0"]
    ).run()
    general = {name: value["setups"]["N2A0"]["general"] for name, value in normal_only["methods"].items()}
    assert general["ideal"] == general["normal_matching"]  # IDEAL without abnormal references is normal matching


def test_a_stopped_run_goes_on_where_it_was(finished, target, model_folder, tmp_path, monkeypatch):
    real, calls = protocol.measure, []

    def limited(scorer, references, observer):
        calls.append(references)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return real(scorer, references, observer)

    monkeypatch.setattr(protocol, "measure", limited)
    with pytest.raises(KeyboardInterrupt):
        evaluation(target, model_folder, tmp_path).run()
    assert not (tmp_path / "results.json").exists()
    assert evaluation(target, model_folder, tmp_path).run() == finished[1]
    assert len(calls) == 3 + 2  # two sets were done, one was stopped and is done again
    assert evaluation(target, model_folder, tmp_path).run() == finished[1]
    assert len(calls) == 3 + 2


def test_a_method_that_joins_leaves_the_others_alone(finished, target, model_folder, tmp_path, monkeypatch):
    first = evaluation(target, model_folder, tmp_path, methods=["normal_matching"]).run()
    real, asked = protocol.measure, []
    monkeypatch.setattr(
        protocol, "measure", lambda scorer, *others: asked.append(scorer.methods) or real(scorer, *others)
    )
    both = evaluation(target, model_folder, tmp_path).run()
    assert asked == [["ideal"]] * 4  # two categories, two seeds
    assert both == finished[1]
    assert both["methods"]["normal_matching"] == first["methods"]["normal_matching"]


def test_a_method_named_twice_is_measured_once(target, model_folder, tmp_path):
    once = evaluation(target, model_folder, tmp_path / "once", methods=["normal_matching"]).run()
    twice = evaluation(target, model_folder, tmp_path / "twice", methods=["normal_matching"] * 2).run()
    assert twice["methods"] == once["methods"]


def test_training_free_methods_do_not_depend_on_the_head(target, model_folder, tmp_path, monkeypatch):
    first = evaluation(target, model_folder, tmp_path, methods=["normal_matching"], seeds=[0])
    results = first.run()
    assert results["model"] is None
    monkeypatch.setattr(protocol, "measure", None)  # nothing is to be measured again
    other = evaluation(target, model_folder, tmp_path, methods=["normal_matching"], seeds=[0])
    with torch.no_grad():
        other.model.deviation_encoder.vectors.weight.add_(1)
    assert other.run() == results


def test_published_references_repeat_a_result(finished, target, model_folder, tmp_path):
    out, results = finished
    again = evaluation(target, model_folder, tmp_path, references=out / "references.json").run()
    assert again["methods"] == results["methods"]


def means(results):
    return {
        (method, setting): summary["mean"]
        for method, content in results["methods"].items()
        for setting, summary in content["setups"]["N1A1"].items()
    }


def test_two_processes_give_the_same_as_one(finished, target, model_folder, tmp_path):
    """Promised: the same digits for the same number of threads, and 1e-3 percentage points for any number.

    The sums of a matrix product may be split between threads, so the last digit of a score may differ, and a pixel
    change places with another.
    """
    command = [sys.executable, "-m", "accelerate.commands.launch", "--multi_gpu", "--num_processes", "2"]
    command += ["--main_process_port", "0", "-m", "modeling_ideal", "evaluate", "--model", str(model_folder)]
    command += ["--target", str(target), "--layout", "mvtec", "--setups", "N1A1", "--seeds", "0", "1"]
    command += ["--methods", "ideal", "normal_matching", "--out", str(tmp_path / "two")]
    environment = {**os.environ, "ACCELERATE_USE_CPU": "true", "HF_HOME": str(tmp_path), "OMP_NUM_THREADS": "1"}
    result = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    assert result.stdout.count("General\n\n") == 1, result.stdout  # the first process alone speaks
    assert "2/2" in result.stderr  # of four reference sets, so there really were two processes
    assert "4/4" not in result.stderr
    with threads(1):
        one = evaluation(target, model_folder, tmp_path / "one").run()
    two = json.loads((tmp_path / "two" / "results.json").read_text())
    assert two["methods"] == one["methods"]
    features = [
        {file.name: file.read_bytes() for file in (tmp_path / name / "features").rglob("*.safetensors")}
        for name in ("one", "two")
    ]
    assert len(features[0]) > 23  # pictures and masks
    assert features[0] == features[1]
    for name, values in means(finished[1]).items():
        assert values == pytest.approx(means(two)[name], abs=1e-3)


def test_scores_hardly_depend_on_the_number_of_threads(model_folder):
    inputs = {"query": random_images(2), "normal_refs": random_images(2, seed=1), "abnormal_refs": random_images(1)}
    scores = []
    for count in (1, 2, 3):
        with threads(count), torch.no_grad():
            scores.append(IdealModel.from_pretrained(model_folder)(**inputs, masks=random_masks(1)))
    for other in scores[1:]:
        torch.testing.assert_close(other.scores, scores[0].scores, atol=1e-5, rtol=0)
        torch.testing.assert_close(other.anomaly_maps, scores[0].anomaly_maps, atol=1e-5, rtol=0)


def test_summaries():
    figures = [
        (0, "nut", {"auroc": 80.0}),
        (0, "bolt", {"auroc": 60.0}),
        (1, "nut", {"auroc": 90.0}),
        (1, "bolt", {"auroc": 70.0}),
    ]
    assert summarise(figures) == {
        "mean": {"auroc": 75.0},
        "spread": {"auroc": pytest.approx(np.std([70, 80], ddof=1))},
        "categories": {"bolt": {"auroc": 65.0}, "nut": {"auroc": 85.0}},
    }
    assert summarise(figures[:2])["spread"] == {"auroc": None}
    assert summarise([(0, "nut", {"auroc": None})])["mean"] == {"auroc": None}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"methods": ["ideal", "magic"]}, r"methods: expected some of \['ideal', .* got \['magic'\]"),
        ({"methods": []}, r"methods: expected some of .* got none"),
        ({"setups": ["1N1A"]}, r"expected a set-up such as 'N1A1' or 'N8A4', got '1N1A'"),
        ({"seeds": []}, "expected at least one seed"),
        ({"settings": []}, r"one set-up and one setting, got \[0, 1\], \['N1A1'\] and \[\]"),
        ({"smoothing": -1.0}, r"smoothing: expected pixels from 0 to the image size \d+, got -1.0"),
        ({"smoothing": float("nan")}, r"smoothing: expected pixels from 0 to the image size \d+, got nan"),
        ({"settings": ["easy"]}, r"settings: expected some of \['general', 'hard'\], got \['easy'\]"),
    ],
)
def test_bad_arguments_are_refused(target, model_folder, tmp_path, changes, message):
    with pytest.raises(ValueError, match=message):
        evaluation(target, model_folder, tmp_path, **changes)


def test_references_of_other_setups_are_refused(finished, target, model_folder, tmp_path):
    other = evaluation(target, model_folder, tmp_path, references=finished[0] / "references.json", setups=["N4A1"])
    with pytest.raises(ValueError, match=r"references.json: expected reference sets of \['N4A1'\] .* got none"):
        other.run()


def test_the_command_evaluates_a_bare_backbone(target, model_folder, tmp_path, capsys):
    IdealModel.from_pretrained(model_folder).backbone.save_pretrained(tmp_path / "backbone")
    arguments = ["evaluate", "--backbone", str(tmp_path / "backbone"), "--stage", "stage1", "--no-norm"]
    arguments += ["--target", str(target), "--out", str(tmp_path / "out"), "--setups", "N1A1", "--seeds", "0"]
    with pytest.raises(SystemExit):
        main([*arguments, "--model", str(model_folder)])
    assert main([*arguments, "--methods", "ideal", "normal_matching"]) == 0  # IDEAL without trained weights
    capsys.readouterr()
    assert set(read_results(tmp_path / "out" / "results.json")["methods"]) == {"ideal", "normal_matching"}
