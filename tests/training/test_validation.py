"""Validation: the figures of an independent computation from the pictures."""

import numpy as np
import pytest
import torch
from scipy.ndimage import gaussian_filter
from sklearn.metrics import average_precision_score, roc_auc_score

from modeling_ideal.data import load_records
from modeling_ideal.data.reference_sets import draw_references
from modeling_ideal.training.encoder import BackboneEncoder
from modeling_ideal.training.head.run import train_head
from modeling_ideal.training.head.source import load_source
from modeling_ideal.training.head.starting_point import load_start
from modeling_ideal.training.head.validation import validate, validation_sets


def by_hand(model, processor, records, references):
    """Image AUROC, average precision and pixel AUROC of one reference set."""
    by_path = {record["path"]: record for record in records}
    normal, abnormal = ([by_path[each.path] for each in part] for part in (references.normal, references.abnormal))
    used = {record["path"] for record in (*normal, *abnormal)}
    queries = [
        record
        for record in records
        if record["category"] == references.category and record["split"] == "test" and record["path"] not in used
    ]
    inputs = processor(
        query=[record["image"] for record in queries],
        normal_refs=[record["image"] for record in normal],
        abnormal_refs=[record["image"] for record in abnormal],
        masks=[record["mask"] for record in abnormal],
    )
    with torch.no_grad():
        out = model(**inputs)
    maps = [gaussian_filter(part, 4.0, mode="nearest") for part in out.anomaly_maps.double().numpy()]
    masks = [
        np.zeros(part.shape) if record["mask"] is None else np.asarray(record["mask"]) > 0
        for record, part in zip(queries, maps, strict=True)
    ]
    labels = [record["label"] for record in queries]
    return (
        roc_auc_score(labels, out.scores),
        average_precision_score(labels, out.scores),
        roc_auc_score(np.ravel(masks), np.ravel(maps)),
    )


def test_figures_are_those_of_an_independent_computation(options, model_folder, source):
    chosen = options(model=str(model_folder), held_out=["bolt"])
    model, processor = load_start(chosen)
    _, held_out = load_source(chosen, BackboneEncoder(model, processor))
    model.train()
    result = validate(model, held_out, validation_sets(held_out, ["N1A1", "N2A1"], [0, 1]))
    assert model.training  # as before
    model.eval()
    records = list(load_records(source, "mvtec"))
    for setup in ("N1A1", "N2A1"):
        expected = np.mean(
            [
                by_hand(model, processor, records, references)
                for seed in (0, 1)
                for references in draw_references(held_out.catalogue, setup, seed)
            ],
            axis=0,
        )
        assert set(result[setup]["categories"]) == {"bolt"}
        mean = result[setup]["mean"]
        got = [mean["image_auroc"], mean["image_ap"], mean["pixel_auroc"]]
        assert got == pytest.approx(100 * expected, abs=0.5)  # features are float16 here


def test_too_few_pictures_are_said_before_training(options, model_folder):
    chosen = options(model=str(model_folder), held_out=["bolt"], setups=["N1A3"])  # all three are references
    with pytest.raises(ValueError, match=r"category 'bolt', N1A3, .* got 4 normal and 0 anomalous besides the refer"):
        train_head(chosen)
    assert not (chosen.output / "checkpoints").exists()
