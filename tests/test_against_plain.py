"""The model against the plain NumPy form of the paper's equations, through the public API."""

import numpy as np
import pytest
import torch

from modeling_ideal.masks import patch_masks
from modeling_ideal.normal_variation_eraser import (
    erase_normal_variation,
    nearest_normals,
    top_similarities,
    unit,
)
from modeling_ideal.scoring import upsample

from . import plain
from .conftest import PATCH, random_images, random_masks, threads, tiny_model

TOLERANCE = 1e-4


def expected_output(model, query, normal, abnormal, masks):
    """Patch scores, image scores, deviation vectors and losses' ingredients of the plain form."""
    config = model.config
    settings = (config.num_neighbors, config.num_components, config.erase_strength, config.residual_anchor)
    features, normals, patches = (
        model.extract_features(images).double().numpy() for images in (query, normal, abnormal)
    )
    grid, channels = patches.shape[1:3], patches.shape[-1]
    normals = normals.reshape(-1, channels)
    marked = patch_masks(masks[None], config.patch_size)[0].numpy()
    if config.share_normals:
        normals = np.concatenate([normals, far_from_marks(patches, marked)])
    places = np.broadcast_to(plain.positions(*grid, channels), patches.shape)[marked]
    deviations = [plain.denoise(patch, normals, *settings)[1] for patch in patches[marked]]
    weights = {name: value.double().numpy() for name, value in model.deviation_encoder.state_dict().items()}
    vectors = plain.deviation_vectors(weights, patches[marked], places, deviations, config.num_attention_heads)

    def score(patch):
        denoised = plain.denoise(patch, normals, *settings)[1]
        nearest = plain.neighbors_of(patch, normals, 1)[0][0]
        if config.alignment == "contrast":
            return plain.contrast_patch_score(patch, denoised, nearest, vectors, patches[marked], deviations)
        return plain.patch_score(patch, denoised, nearest, vectors, config.alignment)

    scores = np.array([[score(patch) for patch in image.reshape(-1, channels)] for image in features])
    if config.patch_smoothing:
        grids = (plain.smooth(image.reshape(grid), config.patch_smoothing) for image in scores)
        scores = np.array([image.ravel() for image in grids])
    images = [plain.image_score(image, config.top_fraction) for image in scores]
    return scores, images, vectors, deviations


def far_from_marks(patches, marked):
    """Patches that neither are marked nor touch a marked one, not even at a corner."""
    far = []
    for image, mask in zip(patches, marked, strict=True):
        for row, column in np.ndindex(mask.shape):
            around = mask[max(row - 1, 0) : row + 2, max(column - 1, 0) : column + 2]
            if not around.any():
                far.append(image[row, column])
    return np.array(far).reshape(-1, patches.shape[-1])


SIZES = {"square": (6, 6), "wide": (3, 7), "single": (1, 1)}


@pytest.mark.parametrize("anchor", ["nearest", "centroid"])
@pytest.mark.parametrize("alignment", ["cosine", "euclidean", "contrast"])
@pytest.mark.parametrize(
    ("grid", "num_normal", "num_abnormal"), [("square", 1, 1), ("wide", 2, 3), ("single", 8, 4), ("square", 8, 4)]
)
def test_scores_and_losses_follow_the_equations(anchor, alignment, grid, num_normal, num_abnormal):
    size = tuple(side * PATCH for side in SIZES[grid])
    model = tiny_model(residual_anchor=anchor, alignment=alignment)
    query, normal, abnormal = (
        random_images(count, seed=seed, size=size) for seed, count in enumerate((2, num_normal, num_abnormal))
    )
    masks = random_masks(num_abnormal, size=size) if grid != "single" else torch.ones(num_abnormal, *size)
    query_masks, labels = random_masks(2, size=size), torch.tensor([0, 1])
    query_masks[0] = 0

    out = model(query, normal, abnormal, masks, query_masks=query_masks, labels=labels)
    scores, images, vectors, deviations = expected_output(model, query, normal, abnormal, masks)

    np.testing.assert_allclose(out.patch_scores.flatten(1).detach(), scores, atol=TOLERANCE)
    np.testing.assert_allclose(out.scores.detach(), images, atol=TOLERANCE)
    np.testing.assert_allclose(out.deviation_vectors[0].detach(), vectors, atol=TOLERANCE)
    maps, targets = out.anomaly_maps.detach().double().numpy(), (query_masks != 0).numpy()
    expected = {
        "focal": plain.focal(maps, targets),
        "dice": np.mean([plain.dice(a, b) for a, b in zip(maps, targets, strict=True)]),
        "image": np.mean([plain.binary_cross_entropy(a, b) for a, b in zip(images, labels, strict=True)]),
        "discriminability": plain.discriminability(deviations, vectors),
        "orthogonality": plain.orthogonality(vectors),
    }
    assert out.losses.keys() == expected.keys()
    for name, value in expected.items():
        assert out.losses[name].item() == pytest.approx(value, abs=TOLERANCE), name
    total = sum(expected.values()) - 0.2 * expected["orthogonality"]  # weights 1 and 0.8
    assert out.loss.item() == pytest.approx(total, abs=TOLERANCE)


def test_smoothed_patch_scores_follow_a_plain_gaussian():
    model = tiny_model(patch_smoothing=0.7, alignment="contrast")
    size = (6 * PATCH, 4 * PATCH)
    pictures = [random_images(count, seed=seed, size=size) for seed, count in enumerate((2, 2, 1))]
    masks = random_masks(1, size=size)
    out = model(*pictures, masks)
    scores, images, *_ = expected_output(model, *pictures, masks)
    np.testing.assert_allclose(out.patch_scores.flatten(1).detach(), scores, atol=TOLERANCE)
    np.testing.assert_allclose(out.scores.detach(), images, atol=TOLERANCE)


def small_marks(count, size):
    """Masks with one marked pixel each, so that most patches are far from it."""
    masks = torch.zeros(count, *size)
    for index, mask in enumerate(masks):
        mask[index, 2 * index] = 1
    return masks


@pytest.mark.parametrize("num_abnormal", [1, 3])
def test_unmarked_patches_can_join_the_normal_ones(num_abnormal):
    size = (4 * PATCH, 6 * PATCH)
    model = tiny_model(share_normals=True)
    query, normal, abnormal = (
        random_images(count, seed=seed, size=size) for seed, count in ((0, 2), (1, 1), (2, num_abnormal))
    )
    masks = small_marks(num_abnormal, size)
    out = model(query, normal, abnormal, masks)
    scores, _, vectors, _ = expected_output(model, query, normal, abnormal, masks)
    np.testing.assert_allclose(out.patch_scores.flatten(1).detach(), scores, atol=TOLERANCE)
    np.testing.assert_allclose(out.deviation_vectors[0].detach(), vectors, atol=TOLERANCE)
    assert len(model.encode_references(normal, abnormal, masks).normal_features[0]) > 24 + 10 * num_abnormal


def test_patches_join_the_normal_ones_only_where_marks_are_given():
    size = (4 * PATCH, 6 * PATCH)
    normal, abnormal = random_images(1, seed=1, size=size), random_images(1, seed=2, size=size)
    shared, alone = tiny_model(share_normals=True), tiny_model()
    for arguments in ((normal,), (normal, abnormal), (None, abnormal, small_marks(1, size))):
        one, other = (model.encode_references(*arguments) for model in (shared, alone))
        assert torch.equal(one.normal_features[0], other.normal_features[0])
    everywhere = shared.encode_references(normal, abnormal, torch.ones(1, *size))
    assert len(everywhere.normal_features[0]) == 24  # nothing is unmarked
    with pytest.raises(ValueError, match="encoded by"):  # the setting is part of what encodes a set
        alone(normal, references=shared.encode_references(normal, abnormal, small_marks(1, size)))


@pytest.mark.parametrize(
    ("grid", "size"), [((3, 5), (42, 70)), ((1, 1), (14, 14)), ((4, 7), (9, 30)), ((6, 2), (4, 1))]
)
def test_upsampling_is_bilinear_forward_and_backward(grid, size):
    maps = torch.randn(2, *grid)
    with torch.inference_mode():  # whoever asks first, training works afterwards
        upsample(maps, size)
    ours, theirs = (maps.clone().requires_grad_() for _ in range(2))
    weights = torch.randn(2, *size)
    upsampled = upsample(ours, size)
    expected = torch.nn.functional.interpolate(theirs[:, None], size=size, mode="bilinear", align_corners=False)[:, 0]
    torch.testing.assert_close(upsampled, expected, atol=1e-5, rtol=0)
    (upsampled * weights).sum().backward()
    (expected * weights).sum().backward()
    torch.testing.assert_close(ours.grad, theirs.grad, atol=1e-4, rtol=0)


def test_a_constant_image_follows_the_equations():
    model = tiny_model()
    size = (6 * PATCH, 6 * PATCH)
    flat = torch.full((1, 3, *size), 0.3)
    abnormal, masks = random_images(1, seed=1, size=size), random_masks(1, size=size)
    out = model(random_images(1, size=size), flat, abnormal, masks)
    scores, *_ = expected_output(model, random_images(1, size=size), flat, abnormal, masks)
    np.testing.assert_allclose(out.patch_scores.flatten(1).detach(), scores, atol=TOLERANCE)


def erase_both(targets, normals, k=12, r=4, alpha=0.8, anchor="nearest"):
    normals = torch.as_tensor(normals, dtype=torch.float32)
    targets = torch.as_tensor(targets, dtype=torch.float32)
    ours = erase_normal_variation(targets, normals, unit(normals), k, r, alpha, anchor)
    expected = [
        plain.denoise(target, normals.double().numpy(), k, r, alpha, anchor) for target in targets.double().numpy()
    ]
    return ours, np.array([pair[0] for pair in expected]), np.array([pair[1] for pair in expected])


@pytest.mark.parametrize("anchor", ["nearest", "centroid"])
@pytest.mark.parametrize(
    "normals",
    [
        pytest.param(lambda rng: rng.normal(size=(300, 24)), id="random"),
        pytest.param(lambda rng: rng.normal(size=(300, 24)) + 20, id="far from zero"),
        pytest.param(lambda rng: np.repeat(rng.normal(size=(60, 24)), 5, axis=0), id="duplicated references"),
        pytest.param(lambda rng: np.repeat(rng.normal(size=(1, 24)), 300, axis=0), id="one feature everywhere"),
        pytest.param(lambda rng: rng.normal(size=(5, 24)), id="fewer patches than neighbours"),
        pytest.param(lambda rng: rng.normal(size=(1, 24)), id="a single patch"),
        pytest.param(lambda rng: np.vstack([np.zeros((3, 24)), rng.normal(size=(40, 24))]), id="zero features"),
        pytest.param(lambda rng: rng.normal(size=(300, 2)) @ rng.normal(size=(2, 24)), id="two directions"),
    ],
)
def test_erasing_follows_the_equations(normals, anchor):
    rng = np.random.default_rng(0)
    bank = normals(rng)
    targets = bank.mean(0) + rng.normal(size=(40, 24))
    targets[0] = bank[-1]  # a patch that is a reference
    ours, residual, denoised = erase_both(targets, bank, anchor=anchor)
    scale = np.abs(bank).max()
    np.testing.assert_allclose(ours.residual, residual, atol=2e-6 * scale)
    np.testing.assert_allclose(ours.denoised, denoised, atol=TOLERANCE)


@pytest.mark.parametrize(("k", "r", "alpha"), [(2, 1, 1.0), (12, 11, 0.8), (40, 3, 0.5)])
def test_erasing_with_other_settings(k, r, alpha):
    rng = np.random.default_rng(1)
    ours, _, denoised = erase_both(rng.normal(size=(30, 16)), rng.normal(size=(200, 16)), k, r, alpha)
    np.testing.assert_allclose(ours.denoised, denoised, atol=TOLERANCE)


def test_full_strength_leaves_nothing_in_the_normal_subspace():
    rng = np.random.default_rng(2)
    plane = rng.normal(size=(2, 16))
    normals = torch.tensor(rng.normal(size=(100, 2)) @ plane, dtype=torch.float32)
    ours, *_ = erase_both(rng.normal(size=(20, 16)), normals, r=2, alpha=1.0)
    leftover = ours.denoised.double().numpy() @ plane.T
    assert np.abs(leftover).max() < 1e-4


def test_chunks_change_nothing(monkeypatch):
    rng = np.random.default_rng(3)
    targets, normals = rng.normal(size=(50, 16)), rng.normal(size=(64, 16))
    whole, *_ = erase_both(targets, normals)
    monkeypatch.setattr("modeling_ideal.normal_variation_eraser.MAX_SIMILARITIES", 7 * 64)
    monkeypatch.setattr("modeling_ideal.normal_variation_eraser.MAX_NEIGHBORS", 36)
    chunked, *_ = erase_both(targets, normals)
    for a, b in zip(whole, chunked, strict=True):
        torch.testing.assert_close(a, b)


@pytest.mark.parametrize("columns", [8, 40, 96, 97, 104])
def test_top_similarities_are_the_largest(columns):
    generator = torch.Generator().manual_seed(columns)
    values = torch.randint(0, 50, (30, columns), generator=generator).float()  # many ties
    count = min(12, columns)
    top, places = top_similarities(values, count)
    assert torch.equal(top, values.sort(descending=True).values[:, :count])
    assert torch.equal(values.gather(1, places), top)
    assert all(len(set(row.tolist())) == count for row in places)


def test_nearest_normals_are_clamped_to_those_there_are():
    cosines, places = nearest_normals(unit(torch.randn(4, 8)), unit(torch.randn(3, 8)), 12)
    assert cosines.shape == places.shape == (4, 3)


def test_threads_change_nothing():
    rng = np.random.default_rng(4)
    arguments = [torch.from_numpy(rng.normal(size=(size, 16))).float() for size in (300, 200)]
    with threads(1):
        alone = erase_normal_variation(*arguments, unit(arguments[1]), 12, 4, 0.8, "nearest")
    with threads(3):
        shared = erase_normal_variation(*arguments, unit(arguments[1]), 12, 4, 0.8, "nearest")
    for a, b in zip(alone, shared, strict=True):
        torch.testing.assert_close(a, b, atol=1e-6, rtol=0)
