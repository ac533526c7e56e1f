"""The model without trained weights: against plain NumPy, as a user meets it, and where training must refuse it."""

import numpy as np
import pytest
import torch
from transformers import AutoModel, pipeline

from modeling_ideal import IdealConfig, IdealImageProcessor, IdealModel, IdealReferences
from modeling_ideal.masks import patch_masks
from modeling_ideal.training.head.options import HeadTrainingOptions
from modeling_ideal.training.head.starting_point import load_start

from . import plain
from .conftest import PATCH, random_images, random_masks, tiny_config, tiny_model
from .test_against_plain import TOLERANCE, far_from_marks


@pytest.fixture
def backbone_folder(tmp_path):
    tiny_model().backbone.save_pretrained(tmp_path / "backbone")
    return tmp_path / "backbone"


@pytest.fixture
def free(backbone_folder):
    return IdealModel.from_backbone(backbone_folder, image_size=8 * PATCH)


def plain_score(patch, normals, anomalous, known, settings, form):
    denoised = plain.denoise(patch, normals, *settings)[1]
    nearest = plain.neighbors_of(patch, normals, 1)[0][0]
    matched = max(0.0, *(plain.cosine(denoised, deviation) for deviation in known))
    aligned = (1 + matched) / 2
    if form == "euclidean":
        aligned = 1 - np.sqrt((1 - matched) / 2)
    if form == "contrast":
        return plain.contrast_patch_score(patch, denoised, nearest, None, anomalous, known)
    return (aligned + plain.cosine_distance(patch, nearest)) / 2


@pytest.mark.parametrize("form", ["contrast", "cosine", "euclidean"])
def test_scores_are_those_of_the_plain_form(backbone_folder, episode, form):
    settings = {"alignment": form, "patch_smoothing": 0, "num_rotations": 1}
    model = IdealModel.from_backbone(backbone_folder, image_size=8 * PATCH, **settings)
    config = model.config
    settings = (config.num_neighbors, config.num_components, config.erase_strength, config.residual_anchor)
    query, normals, patches = (
        model.extract_features(episode[name]).double().numpy() for name in ("query", "normal_refs", "abnormal_refs")
    )
    channels = query.shape[-1]
    marked = patch_masks(episode["masks"], config.patch_size).numpy()
    normals = np.concatenate([normals.reshape(-1, channels), far_from_marks(patches, marked)])
    known = [plain.denoise(patch, normals, *settings)[1] for patch in patches[marked]]
    parts = (normals, patches[marked], known, settings, form)
    expected = [plain_score(patch, *parts) for patch in query[0].reshape(-1, channels)]
    out = model(**episode)
    np.testing.assert_allclose(out.patch_scores[0].flatten().numpy(), expected, atol=TOLERANCE)
    assert out.deviation_vectors is None


def test_a_backbone_alone_is_a_model_at_once(free):
    assert free.config.deviation_encoder is None
    assert free.deviation_encoder is None
    assert not [name for name, weight in free.named_parameters() if weight.requires_grad]
    assert {name.split(".")[0] for name in free.state_dict()} == {"backbone"}


def test_a_new_encoder_comes_with_the_papers_settings(backbone_folder):
    model = IdealModel.from_backbone(
        backbone_folder, image_size=8 * PATCH, num_attention_heads=4, deviation_encoder="attention"
    )
    assert model.deviation_encoder is not None
    default = IdealConfig()
    for name in ("alignment", "share_normals", "patch_smoothing", "top_fraction"):
        assert getattr(model.config, name) == getattr(default, name)


def test_any_number_of_heads_suits_a_model_without_attention(backbone_folder):
    assert IdealModel.from_backbone(backbone_folder, image_size=8 * PATCH, num_attention_heads=5) is not None


def test_saved_and_loaded_as_model_references_and_pipeline(free, episode, tmp_path, picture):
    free.save_pretrained(tmp_path / "model")
    IdealImageProcessor(size=8 * PATCH, patch_size=PATCH).save_pretrained(tmp_path / "model")
    loaded = AutoModel.from_pretrained(tmp_path / "model")
    assert torch.equal(loaded(**episode).scores, free(**episode).scores)
    references = free.encode_references(episode["normal_refs"], episode["abnormal_refs"], episode["masks"])
    references.save(tmp_path / "product.safetensors")
    known = IdealReferences.load(tmp_path / "product.safetensors")
    torch.testing.assert_close(loaded(episode["query"], references=known).scores, free(**episode).scores)
    pipe = pipeline("anomaly-detection", model=str(tmp_path / "model"))
    given = {"normal": [picture, picture.rotate(3)], "abnormal": [picture.rotate(180)], "masks": [(5, 5, 20, 25)]}
    with pytest.warns(UserWarning, match="good pictures? alone can support"):
        result = pipe(picture.rotate(180), **given, types=["turned"], return_regions=True)
    assert result["type"] == "turned" or result["label"] == "normal"
    assert 0 <= result["confidence"] <= 1


def test_normal_references_alone_and_unmarked_defects(free, episode):
    alone = free(episode["query"], episode["normal_refs"])
    assert alone.scores.shape == (3,)
    assert free(episode["query"], episode["normal_refs"], episode["abnormal_refs"]).scores.shape == (3,)
    assert free(episode["query"], None, episode["abnormal_refs"], episode["masks"]).scores.shape == (3,)


def test_a_defect_like_a_reference_stands_out_more_than_without_the_reference(free):
    """An abnormal reference is used: the patches it marks, met again, stand out more from the others than before."""
    normal, defect = random_images(2, seed=2), random_images(1, seed=3)
    masks = random_masks(1)
    marked = patch_masks(masks, free.config.patch_size)[0]
    without = free(defect, normal).patch_scores[0]
    known = free(defect, normal, defect, masks).patch_scores[0]
    assert known[marked].min() / known[~marked].mean() > 1.2 * without[marked].min() / without[~marked].mean()


def test_training_gives_a_model_without_an_encoder_a_new_one(backbone_folder, tmp_path, episode):
    free = IdealModel.from_backbone(backbone_folder, image_size=8 * PATCH, num_attention_heads=4)
    free.save_pretrained(tmp_path / "model")
    IdealImageProcessor(size=8 * PATCH, patch_size=PATCH).save_pretrained(tmp_path / "model")
    options = HeadTrainingOptions(source="source", output_dir="out", model=str(tmp_path / "model"), seed=3)
    model, again = load_start(options)[0], load_start(options)[0]
    assert model.deviation_encoder is not None
    assert model.config.alignment == free.config.alignment
    features = [each.extract_features(episode["query"]) for each in (model, free)]
    torch.testing.assert_close(*features)
    for name, weight in model.deviation_encoder.state_dict().items():
        assert weight.isfinite().all()
        assert torch.equal(weight, again.deviation_encoder.state_dict()[name])


def test_references_of_a_trained_model_need_their_vectors(model, episode):
    references = model.encode_references(episode["normal_refs"], episode["abnormal_refs"], episode["masks"])
    references.deviation_vectors = None
    with pytest.raises(ValueError, match="expected deviation vectors with abnormal references of a trained model"):
        model(episode["query"], references=references)


def test_the_fingerprint_tells_it_from_a_trained_model(free):
    attention = IdealModel(tiny_config(deviation_encoder="attention", alignment="contrast"))
    assert free.fingerprint != attention.fingerprint
