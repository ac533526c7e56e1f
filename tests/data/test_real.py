"""The real photographs: exact counts, masks that fit, episodes without leaks."""

from collections import Counter

import numpy as np
import pytest

from modeling_ideal.data import load_records
from modeling_ideal.data.catalogue import Catalogue
from modeling_ideal.data.episodes import TrainingEpisodes
from modeling_ideal.data.reference_sets import applicable_settings, draw_references, inference_episodes

pytestmark = pytest.mark.real

# (train normal, test normal, test anomalous) of each category
MVTEC = {
    "bottle": (32, 20, 63),
    "cable": (32, 58, 92),
    "capsule": (32, 23, 109),
    "carpet": (32, 28, 89),
    "grid": (32, 21, 46),
    "hazelnut": (32, 40, 70),
    "leather": (32, 32, 92),
    "pill": (32, 26, 141),
    "screw": (32, 41, 119),
    "tile": (32, 33, 84),
    "toothbrush": (32, 12, 30),
    "transistor": (32, 60, 40),
}
MPDD = {
    "bracket_black": (24, 32, 47),
    "bracket_brown": (24, 26, 51),
    "bracket_white": (24, 30, 30),
    "connector": (24, 30, 14),
    "metal_plate": (24, 26, 71),
    "tubes": (24, 32, 69),
}


@pytest.mark.parametrize(("name", "expected"), [("mvtec_ad_448", MVTEC), ("mpdd_448", MPDD)])
def test_counts_are_exact_and_every_anomalous_image_has_a_mask_of_its_size(real_data, name, expected):
    records = load_records(real_data / name)
    columns = (records["category"], records["split"], records["label"])
    counts = Counter(zip(*columns, strict=True))
    assert set(records["category"]) == set(expected)
    for category, (train, normal, anomalous) in expected.items():
        assert (counts[category, "train", 0], counts[category, "test", 0]) == (train, normal)
        assert (counts[category, "test", 1], counts[category, "train", 1]) == (anomalous, 0)
    for record in records.remove_columns("image"):
        assert (record["mask"] is not None) == (record["label"] == 1) == (record["anomaly_type"] != "good")
        if record["label"]:
            assert record["mask"].size == (448, 448)
            assert np.asarray(record["mask"]).any(), record["path"]
    assert {records[index]["image"].size for index in range(0, len(records), 50)} == {(448, 448)}


def test_episodes_of_the_photographs(real_data):
    records = load_records(real_data / "mpdd_448")
    table = Catalogue.from_records(records)
    for episode in TrainingEpisodes(table, ("N1A1", "N8A4"), episodes_per_epoch=500).epoch(0):
        used = {table.contents[index] for index in (*episode.normal, *episode.abnormal)}
        assert table.contents[episode.query] not in used
    for references in draw_references(table, "N1A1", seed=0):
        single = references.category in ("connector", "tubes")
        assert applicable_settings(table, references) == (("general",) if single else ("general", "hard"))
        _, normal, anomalous = MPDD[references.category]
        assert len(inference_episodes(table, references)) == normal + anomalous - 1
