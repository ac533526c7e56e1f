"""AnomalyDINO: masks like the authors' on pictures with an object, none on pictures without."""

import numpy as np
import pytest
import torch
from scipy.ndimage import binary_closing, binary_dilation
from sklearn.decomposition import PCA

from modeling_ideal.evaluation.methods import METHODS
from modeling_ideal.evaluation.methods.anomaly_dino import object_mask, shows_object
from modeling_ideal.evaluation.methods.context import Context, Query

GRID = (12, 15)


def picture(seed, boxed=True, channels=8):
    """Features (h, w, C) of an object in the middle of a background, or of a texture."""
    generator = torch.Generator().manual_seed(seed)
    features = torch.randn(*GRID, channels, generator=generator)
    features[..., 0] += 3 * torch.randn(GRID, generator=generator)
    if boxed:
        features[2:10, 3:12, 1] += 30
        features[5, 6, 1] -= 30  # a hole, which is closed
    return features


def authors_mask(features):
    """By the authors' description, with the sign of the component that covers the object."""
    component = PCA(n_components=1).fit_transform(features.double().numpy().reshape(-1, features.shape[2]))
    sign = np.sign(component.reshape(GRID)[6, 8])
    line = np.ones(3, bool)  # they widen the list of patches, which has one dimension
    return binary_closing(np.pad(binary_dilation(sign * component[:, 0] > 10, line), 3, mode="edge"), line)[
        3:-3
    ].reshape(GRID)


@pytest.mark.parametrize("seed", range(3))
def test_the_object_is_masked_as_the_authors_do(seed):
    mask = object_mask(picture(seed)).numpy()
    assert np.array_equal(mask, authors_mask(picture(seed)))
    assert mask[6, 8]
    assert mask[5, 6]  # the hole
    assert not mask[0].any()


def test_background_scores_nothing_and_the_object_as_with_rotations():
    normal, turned = torch.stack([picture(0), picture(1)]), torch.stack([picture(2), picture(3)])[:, None]
    context = Context(normal, None, None, lambda: turned)
    assert shows_object(context)
    query = Query(picture(4).flatten(0, 1), context, GRID)
    scores, rotated = METHODS["anomaly_dino"](query), METHODS["rotated_normal_matching"](query)
    inside = object_mask(picture(4)).flatten()
    assert torch.equal(scores[inside], rotated[inside])
    assert not scores[~inside].any()
    assert rotated[~inside].any()


def test_a_texture_is_not_masked():
    normal = torch.stack([picture(0), picture(1, boxed=False)])
    context = Context(normal, None, None, lambda: normal[:, None])
    assert not shows_object(context)
    query = Query(picture(4).flatten(0, 1), context, GRID)
    assert torch.equal(METHODS["anomaly_dino"](query), METHODS["rotated_normal_matching"](query))


def test_without_normal_references_there_is_nothing_to_turn():
    marked = torch.zeros(1, *GRID, dtype=torch.bool)
    marked[0, 0, 0] = True
    alone = Context(None, picture(0)[None], marked)
    assert not shows_object(alone)
    with pytest.raises(ValueError, match="expected features of normal references in other poses"):
        METHODS["anomaly_dino"](Query(picture(4).flatten(0, 1), alone, GRID))
