"""Normal references in other poses: the copies themselves, what is kept of them, and that all ways to encode agree."""

import numpy as np
import pytest
import torch
from transformers import pipeline

from modeling_ideal import IdealImageProcessor, IdealReferences
from modeling_ideal.turned_copies import least_like, turned_copies, turned_patches

from . import plain
from .conftest import PATCH, random_images, tiny_model

POSES = 4


@pytest.fixture
def turning():
    return tiny_model(deviation_encoder=None, alignment="contrast", share_normals=True, num_rotations=POSES)


def test_quarter_turns_of_a_square_are_exact():
    images = random_images(2)
    copies = turned_copies(images, POSES)
    assert copies.shape == (2, POSES - 1, *images.shape[1:])
    for turns in (1, 2, 3):
        torch.testing.assert_close(copies[:, turns - 1], torch.rot90(images, turns, (2, 3)), atol=1e-4, rtol=0)


def test_an_oblong_image_turned_by_half_is_upside_down():
    images = random_images(1, size=(4 * PATCH, 6 * PATCH))
    torch.testing.assert_close(turned_copies(images, 2)[:, 0], images.flip(2, 3), atol=1e-4, rtol=0)


def test_corners_are_filled_from_the_image():
    copies = turned_copies(1 + random_images(1).abs(), 8)
    assert copies.min() >= 1 - 1e-4


def test_the_patches_that_are_kept_are_least_like_the_image():
    generator = torch.Generator().manual_seed(0)
    patches, own = torch.randn(30, 6, generator=generator), torch.randn(8, 6, generator=generator)
    likeness = [max(plain.cosine(patch, other) for other in own.numpy()) for patch in patches.numpy()]
    expected = patches[np.argsort(likeness)[:8].copy()]
    torch.testing.assert_close(least_like(patches, own), expected)


def test_one_pose_is_the_image_itself(model):
    images = random_images(1)
    assert turned_patches(images, model.extract_features(images), 1, model.extract_features) is None


def test_a_turned_good_part_is_normal_and_a_strange_one_is_not(turning):
    """With other poses among the references, an image turned by a quarter is more normal than without."""
    normal = random_images(1, seed=2)
    turned = torch.rot90(normal, 1, (2, 3))
    fixed = tiny_model(deviation_encoder=None, alignment="contrast", share_normals=True)
    with_poses, without = (model(turned, normal).patch_scores.mean().item() for model in (turning, fixed))
    assert with_poses < 0.7 * without
    strange = turning(random_images(1, seed=5), normal).patch_scores.mean().item()
    assert strange > 1.3 * with_poses


def test_images_features_and_pictures_give_the_same_references(turning, episode, tmp_path):
    """The model called with images, and the pipeline, whose references also go through a file."""
    images = [episode[name] for name in ("normal_refs", "abnormal_refs", "masks")]
    encoded = turning.encode_references(*images)
    patches = 8 * 8
    assert len(encoded.normal_features[0]) >= 2 * 2 * patches
    torch.testing.assert_close(turning(**episode).scores, turning(episode["query"], references=encoded).scores)
    batch = turning(episode["query"], *(part.expand(3, *part.shape) for part in images)).scores
    torch.testing.assert_close(batch, turning(**episode).scores)


def test_the_pipeline_extends_references_in_other_poses(turning, picture, tmp_path):
    processor = IdealImageProcessor(size=8 * PATCH, patch_size=PATCH)
    pipe = pipeline("anomaly-detection", model=turning, image_processor=processor)
    good, bad = [picture, picture.rotate(5), picture.rotate(9)], [picture.rotate(180)]
    given = {"abnormal": bad, "masks": [(5, 5, 20, 25)]}
    with pytest.warns(UserWarning, match="good pictures? alone can support"):
        whole = pipe.encode_references(normal=good, **given)
    with pytest.warns(UserWarning, match="good pictures? alone can support"):
        pipe.set_references(normal=good[:2], **given)
    with pytest.warns(UserWarning, match="good pictures? alone can support"):
        pipe.extend_references(normal=good[2:]).save(tmp_path / "product.safetensors")
    extended = IdealReferences.load(tmp_path / "product.safetensors")
    torch.testing.assert_close(extended.normal_features, whole.normal_features)
    assert extended.calibration.threshold == pytest.approx(whole.calibration.threshold, abs=1e-5)
    turning.check_encoded(extended)


def test_references_without_what_the_contrast_needs_are_refused(turning, episode):
    references = turning.encode_references(*(episode[name] for name in ("normal_refs", "abnormal_refs", "masks")))
    references.abnormal_features = []
    with pytest.raises(ValueError, match="expected features of anomalous patches for a model with the alignment"):
        turning(episode["query"], references=references)
