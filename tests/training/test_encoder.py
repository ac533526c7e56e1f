"""The backbone as the feature cache sees it."""

import numpy as np
import pytest
import torch
from PIL import Image

from modeling_ideal import IdealImageProcessor, IdealModel
from modeling_ideal.data import load_records
from modeling_ideal.data.feature_cache import encode_records
from modeling_ideal.training.encoder import BackboneEncoder

from ..conftest import PATCH, tiny_model


@pytest.fixture
def processor():
    return IdealImageProcessor(size=32, patch_size=PATCH)


def test_cached_features_are_those_of_the_model(processor, picture, tmp_path, monkeypatch):
    monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", tmp_path / "datasets")
    for name in ("normal/a.png", "abnormal/b.png"):
        (tmp_path / "parts" / name).parent.mkdir(parents=True, exist_ok=True)
        picture.rotate(10 * len(name)).save(tmp_path / "parts" / name)
    mask = np.zeros((30, 40), np.uint8)
    mask[10, 20] = 255
    (tmp_path / "parts" / "masks").mkdir()
    Image.fromarray(mask).save(tmp_path / "parts" / "masks" / "b.png")
    records = load_records(tmp_path / "parts", "folder")
    model = tiny_model()
    cache = encode_records(records, BackboneEncoder(model, processor), tmp_path / "features", progress=False)
    images = processor(query=[record["image"] for record in records])["query"]
    fresh = model.extract_features(images)
    torch.testing.assert_close(cache.features([0, 1]).float(), fresh, atol=2e-3, rtol=1e-3)
    abnormal = records["label"].index(1)
    inputs = processor(abnormal_refs=[records[abnormal]["image"]], masks=[records[abnormal]["mask"]])
    assert torch.equal(cache.pixel_masks([abnormal]), inputs["masks"])
    assert cache.patch_masks([abnormal]).sum() >= 1


def test_features_of_a_picture_do_not_depend_on_those_encoded_with_it(processor, picture):
    encoder = BackboneEncoder(tiny_model(), processor)
    pictures = [picture.rotate(angle) for angle in range(0, 90, 10)]
    together = encoder(pictures)
    for place, each in enumerate(pictures):
        assert torch.equal(encoder([each])[0], together[place])


def test_the_fingerprint_is_of_backbone_stage_and_preprocessing(processor):
    model = tiny_model()
    fingerprint = BackboneEncoder(model, processor).fingerprint
    with torch.no_grad():
        model.deviation_encoder.vectors.weight.add_(1)  # the head has no part in it
    assert BackboneEncoder(model, processor).fingerprint == fingerprint
    others = [
        BackboneEncoder(tiny_model(seed=1), processor),
        BackboneEncoder(model, IdealImageProcessor(size=64, patch_size=PATCH)),
        BackboneEncoder(model, IdealImageProcessor(size=32, patch_size=PATCH, keep_aspect_ratio=True)),
    ]
    model.config.backbone_config.out_features = ["stage1"]
    others.append(BackboneEncoder(model, processor))
    fingerprints = [other.fingerprint for other in others]
    assert len({fingerprint, *fingerprints}) == 5


def test_a_saved_model_and_processor_find_the_features_of_those_they_were(processor, tmp_path):
    model = tiny_model()
    model.save_pretrained(tmp_path)
    processor.save_pretrained(tmp_path)
    loaded = BackboneEncoder(IdealModel.from_pretrained(tmp_path), IdealImageProcessor.from_pretrained(tmp_path))
    assert loaded.fingerprint == BackboneEncoder(model, processor).fingerprint
