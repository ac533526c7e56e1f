"""Normal references in other poses: encoded once for all methods and runs, and as the model itself turns them."""

import json

import pytest
import torch

from modeling_ideal import IdealConfig, IdealImageProcessor, IdealModel
from modeling_ideal.data import load_records
from modeling_ideal.data.reference_sets import read_references
from modeling_ideal.evaluation.protocol.evaluation import Evaluation


@pytest.fixture(scope="module")
def turning_folder(model_folder, tmp_path_factory):
    """The tiny model with normal references in eight poses."""
    folder = tmp_path_factory.mktemp("turning")
    config = IdealConfig.from_pretrained(model_folder, num_rotations=8)
    IdealModel.from_pretrained(model_folder, config=config).save_pretrained(folder)
    IdealImageProcessor.from_pretrained(model_folder).save_pretrained(folder)
    return folder


def evaluation(target, folder, out, methods):
    model, processor = IdealModel.from_pretrained(folder), IdealImageProcessor.from_pretrained(folder)
    settings = {"layout": "mvtec", "setups": ["N2A1"], "seeds": [0], "methods": methods}
    return Evaluation(model, processor, target, out, cache=out / "features", **settings)


def stored_scores(out):
    measurements = [json.loads(file.read_text()) for file in (out / "measurements").iterdir()]
    return {
        path: score
        for measurement in measurements
        for scores in measurement["scores"]["general"].values()
        for path, score in scores.items()
    }


def test_scores_are_those_of_the_model_itself(target, turning_folder, tmp_path, monkeypatch):
    evaluation(target, turning_folder, tmp_path, ["ideal"]).run()
    real = IdealModel.extract_features  # float16, as in the cache: otherwise other patches of the copies may be kept
    monkeypatch.setattr(
        IdealModel, "extract_features", lambda *arguments, **others: real(*arguments, **others).half().float()
    )
    model = IdealModel.from_pretrained(turning_folder)
    processor = IdealImageProcessor.from_pretrained(turning_folder)
    records = {record["path"]: record for record in load_records(target, "mvtec")}
    found = stored_scores(tmp_path)
    for references in read_references(tmp_path / "references.json"):
        abnormal = [records[reference.path] for reference in references.abnormal]
        inputs = processor(
            normal_refs=[records[reference.path]["image"] for reference in references.normal],
            abnormal_refs=[record["image"] for record in abnormal],
            masks=[record["mask"] for record in abnormal],
        )
        queries = [path for path in found if path.startswith(references.category)]
        with torch.no_grad():
            out = model(**processor(query=[records[path]["image"] for path in queries]), **inputs)
        assert [found[path] for path in queries] == pytest.approx(out.scores.tolist(), abs=1e-4)
    assert len(found) == 17 - 2  # test pictures less the abnormal references


def test_poses_are_encoded_once(target, turning_folder, tmp_path, monkeypatch):
    evaluation(target, turning_folder, tmp_path, ["ideal"]).run()
    again = evaluation(target, turning_folder, tmp_path, ["rotated_normal_matching"])
    monkeypatch.setattr(again.model, "extract_features", None)  # would be called to encode
    assert set(again.run()["methods"]) == {"rotated_normal_matching"}


def test_nothing_is_turned_where_no_method_asks_for_it(target, model_folder, tmp_path):
    evaluation(target, model_folder, tmp_path, ["ideal", "normal_matching"]).run()
    assert len(list((tmp_path / "features").iterdir())) == 1  # one encoder


def test_the_number_of_poses_is_part_of_a_measurement(target, model_folder, turning_folder, tmp_path):
    for folder in (model_folder, turning_folder):
        evaluation(target, folder, tmp_path, ["ideal"]).run()
    assert len(list((tmp_path / "measurements").iterdir())) == 2 * 2  # categories, and models
