"""Types of defects: by the direction in which patches deviate, and unknown where none is near."""

import pytest
import torch
import torch.nn.functional as F
from transformers import pipeline

from modeling_ideal import IdealImageProcessor
from modeling_ideal.pipeline_results import nearest_type, type_similarities

from .conftest import PATCH, tiny_model
from .pictures import photograph

CHANNELS = 24


def patches(direction, count, seed, noise=0.05, length=1.0):
    """Deviations (count, C) about a direction (C,)."""
    random = torch.Generator().manual_seed(seed)
    return length * (direction + noise * torch.randn(count, CHANNELS, generator=random))


@pytest.fixture
def directions():
    """Four directions at right angles."""
    return torch.linalg.qr(torch.randn(CHANNELS, 4, generator=torch.Generator().manual_seed(0)))[0].T


def test_the_type_is_that_of_the_nearest_deviations_whatever_their_length(directions):
    scratch = torch.cat([patches(directions[0], 5, 1), patches(directions[1], 3, 2)])  # a rim and a middle
    dent = patches(directions[2], 9, 3, length=7.0)
    references, types = torch.cat([dent, scratch]), ["dent"] * 9 + ["scratch"] * 8
    for seed, (direction, expected) in enumerate([(0, "scratch"), (1, "scratch"), (2, "dent"), (3, "unknown")]):
        assert nearest_type(patches(directions[direction], 6, 10 + seed, length=3.0), references, types) == expected


def test_similarities_are_means_of_nearest_cosines(directions):
    query, references = torch.randn(10, CHANNELS, generator=torch.Generator().manual_seed(1)).split([4, 6])
    types = ["b", "a", "b", "a", "a", "b"]
    expected = {
        name: sum(
            max(F.cosine_similarity(patch, references[index], dim=0) for index in range(6) if types[index] == name)
            for patch in query
        ).item()
        / 4
        for name in "ab"
    }
    assert type_similarities(query, references, types) == pytest.approx(expected, abs=1e-6)
    assert type_similarities(-directions[:1], directions[:1], ["a"]) == {"a": pytest.approx(-1)}


def test_the_pipeline_says_the_type_of_an_anomaly_alone():
    processor = IdealImageProcessor(size=8 * PATCH, patch_size=PATCH)
    pipe = pipeline("anomaly-detection", model=tiny_model(), image_processor=processor)
    scratched, dented = photograph(2), photograph(3)
    pipe.set_references(
        normal=photograph(1),
        abnormal=[scratched, dented],
        masks=[(0, 0, 40, 30)] * 2,  # every patch of both
        types=["scratch", "dent"],
    )
    # Each reference is nearest to itself: all its patches are among those of its type.
    results = pipe([scratched, dented], threshold=0.0)
    assert [result["type"] for result in results] == ["scratch", "dent"]
    assert [result["type"] for result in pipe([scratched, dented], threshold=1.0)] == [None, None]
    assert "type" not in pipe(scratched, normal=photograph(1), abnormal=dented)
    assert pipe(dented, normal=photograph(1), abnormal=dented, types="dent", threshold=0.0)["type"] is not None
