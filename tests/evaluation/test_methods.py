"""Each baseline against a plain loop."""

import numpy as np
import pytest
import torch
from sklearn.decomposition import PCA

from modeling_ideal.evaluation.methods import IN_POSES, METHODS, method
from modeling_ideal.evaluation.methods.context import Context, Query
from modeling_ideal.evaluation.methods.coreset import CORESET_SHARE, select_coreset

from .. import plain

GRID = (4, 5)


@pytest.fixture
def features():
    generator = torch.Generator().manual_seed(0)

    def draw(*shape):
        return torch.randn(*shape, *GRID, 8, generator=generator) + 0.5

    return {"query": draw()[None][0], "normal": draw(2), "abnormal": draw(1), "turned": draw(2, 3)}


@pytest.fixture
def context(features):
    marked = torch.zeros(1, *GRID, dtype=torch.bool)
    marked[0, 1:3, 1:3] = True
    return Context(features["normal"], features["abnormal"], marked, lambda: features["turned"])


def plain_parts(features, marked, normals):
    """The same as plain float64 arrays, with the denoised and residual deviations of the anomalous patches."""
    anomalous = features["abnormal"][marked].double().numpy()
    pairs = [plain.denoise(patch, normals, 12, 4, 0.8) for patch in anomalous]
    return {
        "query": features["query"].double().numpy().reshape(-1, 8),
        "normals": normals,
        "anomalous": anomalous,
        "poses": np.concatenate([features[name].double().numpy().reshape(-1, 8) for name in ("normal", "turned")]),
        "residual": np.array([pair[0] for pair in pairs]),
        "denoised": np.array([pair[1] for pair in pairs]),
    }


@pytest.fixture
def plainly(features, context):
    return plain_parts(features, context.marked, features["normal"].double().numpy().reshape(-1, 8))


@pytest.fixture
def plainly_shared(features, context, plainly):
    """With the patches of the abnormal reference that do not touch the marked square: its last column."""
    unmarked = features["abnormal"][0, :, 4].double().numpy()
    return plain_parts(features, context.marked, np.concatenate([plainly["normals"], unmarked]))


def nearest(vector, others):
    return min(plain.cosine_distance(vector, other) for other in others)


def expected(name, patch, parts):
    """What each method's definition says of one patch."""
    normal = nearest(patch, parts["normals"])
    residual, denoised = plain.denoise(patch, parts["normals"], 12, 4, 0.8)
    return {
        "abnormal_matching": lambda: 1 - nearest(patch, parts["anomalous"]),
        "normal_matching": lambda: normal,
        "rotated_normal_matching": lambda: nearest(patch, parts["poses"]),
        "both_matching": lambda: (normal + 1 - nearest(patch, parts["anomalous"])) / 2,
        "residual_matching": lambda: (normal + 1 - nearest(residual, parts["residual"])) / 2,
        "nve_matching": lambda: (normal + 1 - nearest(denoised, parts["denoised"])) / 2,
        "residual_length": lambda: np.linalg.norm(residual) / np.linalg.norm(patch),
        "nve_length": lambda: np.linalg.norm(denoised) / np.linalg.norm(patch),
    }[name]()


@pytest.mark.parametrize("name", sorted(set(METHODS) - {"anomaly_dino", "subspace", "coreset"}))
def test_a_method_is_what_it_says(name, features, context, plainly, plainly_shared):
    scores = METHODS[name](Query(features["query"].flatten(0, 1), context, GRID))
    assert scores.shape == (20,)
    parts = plainly_shared if name.startswith("shared_") else plainly
    values = [expected(name.removeprefix("shared_"), patch, parts) for patch in plainly["query"]]
    np.testing.assert_allclose(scores, values, atol=1e-5)


def test_subspace_is_what_pca_does_not_reconstruct(features, context, plainly):
    pca = PCA(n_components=0.99).fit(plainly["normals"])
    rest = plainly["query"] - pca.inverse_transform(pca.transform(plainly["query"]))
    scores = METHODS["subspace"](Query(features["query"].flatten(0, 1), context, GRID))
    np.testing.assert_allclose(scores, np.linalg.norm(rest, axis=1), atol=1e-5)


def test_coreset_distance(features, context, plainly):
    kept = select_coreset(context.normals).double().numpy()
    assert len(kept) == int(40 * CORESET_SHARE)
    assert all(any(np.allclose(patch, normal) for normal in plainly["normals"]) for patch in kept)
    values = [min(np.linalg.norm(patch - other) for other in kept) for patch in plainly["query"]]
    np.testing.assert_allclose(
        METHODS["coreset"](Query(features["query"].flatten(0, 1), context, GRID)), values, atol=1e-5
    )


def test_a_coreset_is_chosen_greedily():
    line = torch.tensor([[0.0], [1.0], [2.0], [9.0], [4.0]] * 4)
    assert select_coreset(line).flatten().tolist() == [4.0, 9.0]  # nearest the mean, then the farthest from it


def test_references_that_are_missing_are_named(features):
    patches = features["query"].flatten(0, 1)
    with pytest.raises(ValueError, match="expected abnormal references for this method, got none"):
        METHODS["abnormal_matching"](Query(patches, Context(features["normal"], None, None), GRID))
    with pytest.raises(ValueError, match="expected features of normal references in other poses"):
        METHODS["rotated_normal_matching"](Query(patches, Context(features["normal"], None, None), GRID))


def test_without_normal_references_unmarked_patches_serve(features, context):
    alone = Context(None, features["abnormal"], context.marked)
    scores = METHODS["normal_matching"](Query(features["abnormal"][0].flatten(0, 1), alone, GRID))
    assert torch.allclose(scores.view(GRID)[~context.marked[0]], torch.zeros(16), atol=1e-6)


def test_every_file_of_the_folder_adds_its_methods_in_the_order_of_their_names():
    assert list(METHODS) == sorted(METHODS)
    assert {name: function.__name__ for name, function in METHODS.items()} == {name: name for name in METHODS}
    assert set(METHODS) == {
        *("abnormal_matching", "both_matching", "normal_matching", "rotated_normal_matching"),
        *("residual_matching", "nve_matching", "shared_normal_matching", "shared_nve_matching"),
        *("residual_length", "nve_length", "subspace", "coreset", "anomaly_dino"),
    }
    assert {"anomaly_dino", "rotated_normal_matching"} == IN_POSES


def test_a_name_is_given_once():
    def coreset(query):
        return query.patches

    with pytest.raises(ValueError, match=r"expected a new name for a method, got 'coreset', which .*methods\.coreset"):
        method()(coreset)


def test_what_belongs_to_the_references_is_computed_once(features, context):
    calls = []

    def count(given):
        calls.append(given)
        return len(calls)

    assert [context.once(count), context.once(count), context.shared.once(count)] == [1, 1, 2]
    assert calls == [context, context.shared]
