"""Weights: frozen backbone, initial values, saving and loading, precision, pre-trained backbones."""

import copy
from functools import partial

import pytest
import torch

from modeling_ideal import IdealConfig, IdealImageProcessor, IdealModel, IdealReferences, encode_calibrated

from .conftest import PATCH, random_images, random_masks, tiny_model
from .test_model import assert_same


def test_the_backbone_stays_frozen_and_in_evaluation(model, tmp_path):
    model.save_pretrained(tmp_path)
    for each in (model, IdealModel.from_pretrained(tmp_path), copy.deepcopy(model)):
        each.train()
        assert not each.backbone.training
        assert each.deviation_encoder.training
        assert not any(parameter.requires_grad for parameter in each.backbone.parameters())
        assert all(parameter.requires_grad for parameter in each.deviation_encoder.parameters())


def test_a_new_model_scores_without_dropout(model, episode):
    assert not model.training
    assert_same(model(**episode), model(**episode), tolerance=0)
    references = model.encode_references(episode["normal_refs"], episode["abnormal_refs"], episode["masks"])
    model.train()
    assert not torch.equal(model(**episode).scores, model(**episode).scores)
    again = model.encode_references(episode["normal_refs"], episode["abnormal_refs"], episode["masks"])
    assert torch.equal(references.deviation_vectors, again.deviation_vectors)
    assert model.training


def test_save_and_load_change_nothing(model, episode, tmp_path):
    model.save_pretrained(tmp_path)
    loaded, info = IdealModel.from_pretrained(tmp_path, output_loading_info=True)
    assert not any(info.values()), info
    assert_same(model(**episode), loaded(**episode), tolerance=0)
    assert loaded.fingerprint == model.fingerprint
    state, other = model.state_dict(), loaded.state_dict()
    assert state.keys() == other.keys()
    assert all(torch.equal(state[name], other[name]) for name in state)
    assert [path.name for path in tmp_path.glob("*.safetensors")] == ["model.safetensors"]


def test_the_same_seed_gives_the_same_model():
    assert tiny_model(seed=3).fingerprint == tiny_model(seed=3).fingerprint
    assert tiny_model(seed=3).fingerprint != tiny_model(seed=4).fingerprint


def test_initial_weights():
    torch.manual_seed(0)
    encoder = IdealModel(IdealConfig()).deviation_encoder
    for name, parameter in encoder.named_parameters():
        if "norm.weight" in name:
            assert (parameter == 1).all(), name
        elif name.endswith("bias"):
            assert (parameter == 0).all(), name
        elif name == "vectors.weight":
            assert parameter.std().item() == pytest.approx(1, abs=0.03)
        else:
            assert parameter.std().item() == pytest.approx(0.00987, rel=0.02), name  # normal(0.01) cut at 3 sigma
            assert parameter.abs().max() <= 0.03, name


def test_size_of_the_papers_model():
    model = IdealModel(IdealConfig())
    trained = sum(parameter.numel() for parameter in model.parameters() if parameter.requires_grad)
    total = sum(parameter.numel() for parameter in model.parameters())
    assert round(trained / 1e6, 2) == 1.79
    assert total / 1e6 == pytest.approx(23.83, abs=0.05)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_under_autocast(model, episode, dtype):
    exact = model(**episode)
    with torch.autocast("cpu", dtype=dtype):
        half = model(**episode, query_masks=random_masks(3), labels=torch.tensor([0, 1, 1]))
    assert half.scores.dtype == half.loss.dtype == torch.float32
    torch.testing.assert_close(half.scores, exact.scores, atol=0.02, rtol=0)


def test_half_precision_weights(model, episode):
    half = copy.deepcopy(model).to(torch.bfloat16)
    out = half(**{name: value.bfloat16() for name, value in episode.items()})
    assert out.scores.dtype == torch.float32
    torch.testing.assert_close(out.scores, model(**episode).scores, atol=0.05, rtol=0)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_references_are_calibrated_and_saved(model, episode, dtype, tmp_path):
    half = copy.deepcopy(model).to(dtype)
    images = {name: value.to(dtype) for name, value in episode.items()}
    query = images.pop("query")
    encode_calibrated(half, **images).save(tmp_path / "part.safetensors")
    references = IdealReferences.load(tmp_path / "part.safetensors")
    assert_same(half(query, references=references), half(query, **images), tolerance=1e-5)
    assert references.calibration.threshold == pytest.approx(
        encode_calibrated(model, **{name: episode[name] for name in images}).calibration.threshold, abs=0.05
    )


OVERFLOW = {
    "float16": (torch.float16, 1e5, "torch.float16 may be too narrow, try float32"),
    "damaged": (torch.float32, float("nan"), "its weights may be damaged"),
}


@pytest.mark.parametrize("case", OVERFLOW)
def test_features_that_are_not_finite_are_refused(model, episode, case):
    dtype, factor, message = OVERFLOW[case]
    with torch.no_grad():
        model.backbone.layernorm.weight.mul_(factor)
    images = {name: value.to(dtype) for name, value in episode.items()}
    query = images.pop("query")
    model.to(dtype)
    for call in (partial(model, query), model.encode_references, partial(encode_calibrated, model)):
        with pytest.raises(ValueError, match=f"features of the backbone: expected finite values, got .*{message}"):
            call(**images)


def test_overflow_under_autocast_is_refused(model, episode):
    with torch.no_grad():
        model.backbone.encoder.layer[0].mlp.fc1.weight.mul_(1e7)
    with (
        torch.autocast("cpu", dtype=torch.float16),
        pytest.raises(ValueError, match=r"torch.float16 may be too narrow"),
    ):
        model(**episode)


@pytest.mark.parametrize("alignment", ["cosine", "euclidean", "contrast"])
@pytest.mark.parametrize("name", ["normal_features", "deviation_vectors", "abnormal_deviations"])
def test_damaged_references_are_refused(episode, alignment, name):
    model = tiny_model(alignment=alignment)
    query = episode.pop("query")
    references = model.encode_references(**episode)
    damaged = getattr(references, name)[0].view(-1)
    damaged[5] = torch.nan
    with pytest.raises(ValueError, match=rf"references, {name}(\.0)?: expected finite values, got 1 that are NaN"):
        model(query, references=references)


def test_a_damaged_head_is_refused(model, episode):
    with torch.no_grad():
        model.deviation_encoder.vectors.weight[0, 0] = torch.nan
    with pytest.raises(ValueError, match=r"patch scores: expected finite values, got .* NaN"):
        model(**episode)
    del episode["query"]
    with pytest.raises(ValueError, match="references, deviation_vectors: expected finite values"):
        model.encode_references(**episode)


def test_inference_mode(model, episode):
    with torch.inference_mode():
        born_inside = tiny_model()
        references = born_inside.encode_references(episode["normal_refs"])
        assert born_inside(episode["query"], references=references).scores.shape == (3,)
        references = model.encode_references(episode["normal_refs"], episode["abnormal_refs"], episode["masks"])
        inside = model(episode["query"], references=references)
    assert_same(inside, model(**episode))


def test_from_backbone_loads_pretrained_weights(model, tmp_path):
    model.backbone.save_pretrained(tmp_path)
    built = IdealModel.from_backbone(
        tmp_path, image_size=32, num_attention_heads=4, out_features=["stage1"], apply_layernorm=False
    )
    assert built.config.backbone_config.out_features == ["stage1"]
    state, loaded = model.backbone.state_dict(), built.backbone.state_dict()
    assert {name for name in state if "layer.1." not in name} == set(loaded)  # nothing behind the stage
    assert all(torch.equal(value, state[name]) for name, value in loaded.items())
    same = IdealModel.from_backbone(
        tmp_path,
        image_size=32,
        num_attention_heads=4,
        backbone_config={"out_features": ["stage1"], "apply_layernorm": False},
    )
    images = random_images(2)
    assert torch.equal(built.extract_features(images), same.extract_features(images))
    assert not built.training
    assert not any(parameter.requires_grad for parameter in built.backbone.parameters())


def test_from_backbone_takes_the_last_stage_by_default(model, tmp_path):
    backbone = copy.deepcopy(model.backbone)
    backbone.config.out_features = ["stage1"]
    backbone.save_pretrained(tmp_path)
    built = IdealModel.from_backbone(tmp_path, image_size=32, num_attention_heads=4)
    assert built.config.backbone_config.out_features == ["stage2"]


def test_processor_and_model_work_together(model, picture):
    processor = IdealImageProcessor(size=32, patch_size=PATCH)
    inputs = processor(
        query=[picture, picture.rotate(90)], normal_refs=[picture], abnormal_refs=[picture], masks=[(5, 5, 20, 25)]
    )
    out = model(**inputs)
    maps = processor.post_process_anomaly_detection(out, target_sizes=[(30, 40), (40, 30)])
    assert [tuple(part.shape) for part in maps] == [(30, 40), (40, 30)]


@pytest.mark.real
def test_the_real_backbone_sees_a_defect(real_backbone, real_data):
    model = IdealModel.from_backbone(real_backbone, out_features=["stage9"], apply_layernorm=False)
    processor = IdealImageProcessor()
    bottle = real_data / "mvtec_ad_448" / "bottle"
    good = sorted((bottle / "train" / "good").iterdir())
    broken = sorted((bottle / "test" / "broken_large").iterdir())
    truth = bottle / "ground_truth" / "broken_large" / f"{broken[1].stem}_mask.png"
    inputs = processor(query=[good[1], broken[1]], normal_refs=[good[0]])
    out = model(**inputs)
    assert out.scores[1] > out.scores[0]
    mask = processor(abnormal_refs=[broken[1]], masks=[truth])["masks"][0]
    scores = out.anomaly_maps[1]
    assert scores[mask].mean() > scores[~mask].mean() + 0.05


@pytest.mark.real
def test_real_scores_depend_neither_on_the_batch_nor_on_the_order_of_references(real_backbone, real_data):
    model = IdealModel.from_backbone(real_backbone, out_features=["stage9"], apply_layernorm=False)
    bottle = real_data / "mvtec_ad_448" / "bottle"
    good = sorted((bottle / "train" / "good").iterdir())
    broken = sorted((bottle / "test" / "broken_large").iterdir())[:3]
    masks = [bottle / "ground_truth" / "broken_large" / f"{path.stem}_mask.png" for path in broken[:2]]
    inputs = IdealImageProcessor()(
        query=[broken[2], good[2]], normal_refs=good[:2], abnormal_refs=broken[:2], masks=masks
    )
    together = model(**inputs)
    alone = model(**{**inputs, "query": inputs["query"][:1]})
    turned = model(**{name: value if name == "query" else value.flip(0) for name, value in inputs.items()})
    torch.testing.assert_close(alone.patch_scores[0], together.patch_scores[0], atol=1e-5, rtol=0)
    torch.testing.assert_close(turned.patch_scores, together.patch_scores, atol=1e-5, rtol=0)
