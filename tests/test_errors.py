"""Bad input to the model: a ValueError that names what was expected and what came."""

import pytest
import torch

from modeling_ideal import IdealModel

from .conftest import random_images, random_masks, tiny_model


def call(model, **changes):
    arguments = {
        "query": random_images(2),
        "normal_refs": random_images(1, seed=1),
        "abnormal_refs": random_images(1, seed=2),
        "masks": random_masks(1),
        **changes,
    }
    return model(**arguments)


def spoilt(*shape):
    images = random_images(*shape)
    images[..., 0, 0, 0] = float("nan")
    return images


BAD_INPUT = {
    "no references": (
        {"normal_refs": None, "abnormal_refs": None, "masks": None},
        "expected normal_refs, abnormal_refs or references, got none",
    ),
    "empty normals": ({"normal_refs": random_images(0)}, r"normal_refs: expected at least one image, got .*\(0, 3, "),
    "empty abnormals": (
        {"abnormal_refs": random_images(0), "masks": random_masks(0)},
        r"abnormal_refs: expected at least one image, got .*\(0, 3, ",
    ),
    "empty batch": ({"query": random_images(0)}, "query: expected at least one image"),
    "one channel": ({"query": torch.zeros(2, 1, 32, 32)}, r"query: expected 3 channels .* got 1 in \(2, 1, 32, 32\)"),
    "four channels": ({"normal_refs": torch.zeros(1, 4, 32, 32)}, "normal_refs: expected 3 channels .* got 4"),
    "no batch": ({"query": torch.zeros(3, 32, 32)}, r"query: expected shape \(n, 3, H, W\), got \(3, 32, 32\)"),
    "too many dimensions": (
        {"normal_refs": torch.zeros(1, 1, 1, 3, 32, 32)},
        r"normal_refs: expected shape \(n, 3, H, W\) or \(batch, n, 3, H, W\), got \(1, 1, 1, 3, 32, 32\)",
    ),
    "bytes": ({"query": torch.zeros(2, 3, 32, 32, dtype=torch.uint8)}, "query: expected a float tensor .*uint8"),
    "a list": ({"query": [1, 2]}, "query: expected a float tensor .* got list"),
    "NaN in the query": ({"query": spoilt(2)}, "query: expected finite values, got 2 that are NaN or infinite"),
    "NaN in a reference": ({"normal_refs": spoilt(1)}, "normal_refs: expected finite values, got 1"),
    "infinity": ({"abnormal_refs": random_images(1) / 0}, "abnormal_refs: expected finite values, got 3072"),
    "less than a patch": (
        {"query": torch.zeros(2, 3, 3, 32)},
        r"query: expected at least one patch of \(4, 4\) pixels, got \(3, 32\)",
    ),
    "no whole patches": (
        {"query": torch.zeros(2, 3, 32, 33)},
        r"multiples of the patch size \(4, 4\), got \(32, 33\)",
    ),
    "masks alone": ({"abnormal_refs": None}, "masks: expected abnormal_refs with them, got none"),
    "a mask too few": (
        {"abnormal_refs": random_images(2)},
        r"masks: expected a mask for each abnormal reference, of its size, \(2, 32, 32\), got \(1, 32, 32\)",
    ),
    "masks of another size": ({"masks": random_masks(1, size=(16, 16))}, r"\(1, 32, 32\), got \(1, 16, 16\)"),
    "masks as a list": ({"masks": [1]}, r"masks: expected .* \(1, 32, 32\), got list"),
    "NaN in a mask": ({"masks": random_masks(1) * float("nan")}, "masks: expected finite values"),
    "an empty mask": (
        {"abnormal_refs": random_images(2), "masks": torch.stack([random_masks(1)[0], torch.zeros(32, 32)])},
        r"masks: expected at least one anomalous \(non-zero\) pixel in each, got none in mask\(s\) \[1\]",
    ),
    "an empty mask of an episode": (
        {"abnormal_refs": random_images(2, 1), "masks": torch.stack([torch.zeros(1, 32, 32), random_masks(1)])},
        r"got none in mask\(s\) \[\(0, 0\)\]",
    ),
    "other batches": ({"normal_refs": random_images(3, 1)}, "one set for each query, got .*'queries': 2"),
    "batches that disagree": (
        {"normal_refs": random_images(2, 1), "abnormal_refs": random_images(3, 1), "masks": random_masks(3, 1)},
        "got {'normal': 2, 'abnormal': 3}",
    ),
    "nothing left as normal": (
        {"normal_refs": None, "masks": torch.ones(1, 32, 32)},
        "expected some patch outside them .* got masks over all 64 patches",
    ),
    "labels alone": ({"labels": torch.tensor([0, 1])}, "expected both query_masks and labels.*got no query_masks"),
    "query masks alone": ({"query_masks": random_masks(2)}, "expected both query_masks and labels.*got no labels"),
    "wrong labels": (
        {"query_masks": random_masks(2), "labels": torch.tensor([0, 2])},
        r"labels: expected 0 \(normal\) or 1 \(anomalous\), got \[0, 2\]",
    ),
    "too many labels": (
        {"query_masks": random_masks(2), "labels": torch.tensor([0, 1, 1])},
        r"labels: expected shape \(2,\), got \(3,\)",
    ),
    "labels as a list": (
        {"query_masks": random_masks(2), "labels": [0, 1]},
        r"labels: expected shape \(2,\), got list",
    ),
    "query masks as an array": (
        {"query_masks": random_masks(2).numpy(), "labels": torch.tensor([0, 1])},
        r"query_masks: expected shape \(2, 32, 32\), got ndarray",
    ),
    "NaN in a query mask": (
        {"query_masks": random_masks(2) * float("nan"), "labels": torch.tensor([0, 1])},
        "query_masks: expected finite values",
    ),
    "several sets for one query": (
        {"query": random_images(1), "normal_refs": random_images(2, 1)},
        "one set for each query, got .*'queries': 1, 'references': 2",
    ),
    "small query masks": (
        {"query_masks": random_masks(2, size=(16, 16)), "labels": torch.tensor([0, 1])},
        r"query_masks: expected shape \(2, 32, 32\), got \(2, 16, 16\)",
    ),
}


@pytest.mark.parametrize("case", BAD_INPUT)
def test_bad_input_is_refused(model, case):
    changes, message = BAD_INPUT[case]
    with pytest.raises(ValueError, match=message):
        call(model, **changes)


def test_references_of_another_model_are_refused(model):
    query, normal = random_images(1), random_images(1, seed=1)
    references = model.encode_references(normal)
    for other in (tiny_model(seed=9), tiny_model(num_neighbors=6), tiny_model(erase_strength=0.5)):
        with pytest.raises(ValueError, match=r"expected a set encoded by this model .* encode it again"):
            other(query, references=references)


def test_references_from_before_training_are_refused(model):
    references = model.encode_references(random_images(1))
    with torch.no_grad():
        model.deviation_encoder.vectors.weight.add_(1e-3)
    with pytest.raises(ValueError, match="expected a set encoded by this model"):
        model(random_images(1), references=references)


def test_references_do_not_mix_with_images(model):
    references = model.encode_references(random_images(1))
    with pytest.raises(ValueError, match="expected encoded references or reference images, got both"):
        model(random_images(1), random_images(1), references=references)


def test_references_that_are_none_are_refused(model):
    with pytest.raises(ValueError, match=r"references: expected encoded whole pictures, got 'nut.safetensors'"):
        model(random_images(1), references="nut.safetensors")


def test_unknown_settings_of_a_backbone_are_refused(model, tmp_path):
    model.backbone.save_pretrained(tmp_path)
    with pytest.raises(ValueError, match=r"fields of IdealConfig or of Dinov2Config, got unknown \['stage'\]"):
        IdealModel.from_backbone(tmp_path, stage=9)


def test_settings_of_a_backbone_that_are_no_dictionary_are_refused(model, tmp_path):
    model.backbone.save_pretrained(tmp_path)
    with pytest.raises(ValueError, match=r"backbone_config: expected a dictionary of fields .* Dinov2Config"):
        IdealModel.from_backbone(tmp_path, backbone_config=model.config.backbone_config)


def test_a_backbone_with_missing_weights_is_refused(model, tmp_path):
    model.backbone.save_pretrained(tmp_path)
    with pytest.raises(ValueError, match=r"expected all weights of Dinov2Backbone .* got none for"):
        IdealModel.from_backbone(tmp_path, num_hidden_layers=3, image_size=32, num_attention_heads=4)
