"""What must hold of the model whatever its weights: through the public API, with tiny random models."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from modeling_ideal import IdealReferences

from . import plain
from .conftest import PATCH, random_images, random_masks, tiny_model


def assert_same(a, b, tolerance=1e-5):
    for name in ("scores", "patch_scores", "anomaly_maps", "deviation_vectors"):
        torch.testing.assert_close(a[name], b[name], atol=tolerance, rtol=0)


def test_shapes_and_ranges(model, episode):
    out = model(**episode)
    assert out.scores.shape == (3,)
    assert out.patch_scores.shape == (3, 8, 8)
    assert out.anomaly_maps.shape == (3, 8 * PATCH, 8 * PATCH)
    assert out.deviation_vectors.shape == (3, 5, 16)
    assert out.loss is None
    assert out.losses is None
    for values in (out.scores, out.patch_scores, out.anomaly_maps):
        assert values.min() >= 0
        assert values.max() <= 1


def test_arguments_by_position_and_by_name(model, episode):
    assert_same(model(*episode.values()), model(**episode), tolerance=0)


def test_a_score_does_not_depend_on_its_batch(model, episode):
    out = model(**episode)
    for index in range(3):
        alone = model(**{**episode, "query": episode["query"][index : index + 1]})
        torch.testing.assert_close(alone.patch_scores[0], out.patch_scores[index], atol=1e-5, rtol=0)
        torch.testing.assert_close(alone.scores[0], out.scores[index], atol=1e-5, rtol=0)


def test_a_score_does_not_depend_on_the_order_of_references(model, episode):
    turned = {name: value.flip(0) if name != "query" else value for name, value in episode.items()}
    assert_same(model(**episode), model(**turned))


def test_a_score_does_not_depend_on_labels(model, episode):
    targets = {"query_masks": random_masks(3), "labels": torch.tensor([1, 0, 1])}
    assert_same(model(**episode), model(**episode, **targets), tolerance=0)


def test_shared_references_equal_one_set_an_episode(model, episode):
    own = {name: value if name == "query" else value.expand(3, *value.shape) for name, value in episode.items()}
    assert_same(model(**episode), model(**own))
    mixed = {**episode, "normal_refs": own["normal_refs"]}
    assert_same(model(**episode), model(**mixed))


def test_each_query_has_its_own_references(model, episode):
    normal, abnormal = random_images(3, 2, seed=4), random_images(3, 1, seed=5)
    masks = torch.zeros(3, 1, 32, 32)
    for index in range(3):  # sets of different sizes in one batch
        masks[index, :, : 8 * (index + 1), :8] = 1
    out = model(episode["query"], normal, abnormal, masks)
    for index in range(3):
        alone = model(episode["query"][index : index + 1], normal[index], abnormal[index], masks[index])
        torch.testing.assert_close(alone.scores[0], out.scores[index], atol=1e-5, rtol=0)
        torch.testing.assert_close(alone.deviation_vectors[0], out.deviation_vectors[index], atol=1e-5, rtol=0)


def test_encoded_references_equal_reference_images(model, episode):
    references = model.encode_references(episode["normal_refs"], episode["abnormal_refs"], episode["masks"])
    assert isinstance(references, IdealReferences)
    assert_same(model(**episode), model(episode["query"], references=references))


def test_duplicated_references_change_nothing_of_the_matching(model, episode):
    out = model(episode["query"], episode["normal_refs"])
    twice = model(episode["query"], episode["normal_refs"].repeat(2, 1, 1, 1))
    torch.testing.assert_close(out.patch_scores, twice.patch_scores, atol=1e-5, rtol=0)


def test_a_query_that_is_a_reference_is_not_scored_by_rounding(model, episode):
    query = torch.cat([episode["normal_refs"], episode["query"]])
    together = model(**{**episode, "query": query})
    torch.testing.assert_close(together.patch_scores[:2], torch.full((2, 8, 8), 0.25), atol=1e-3, rtol=0)
    alone = model(**{**episode, "query": query[:1]})
    torch.testing.assert_close(alone.scores[0], together.scores[0], atol=1e-3, rtol=0)


def test_normal_references_alone_are_nearest_neighbour_matching(model, episode):
    out = model(episode["query"], episode["normal_refs"])
    features = model.extract_features(episode["query"]).double().numpy()
    normals = model.extract_features(episode["normal_refs"]).double().numpy().reshape(-1, 16)
    expected = [
        [min(plain.cosine_distance(patch, normal) for normal in normals) for patch in image.reshape(-1, 16)]
        for image in features[:1]
    ]
    np.testing.assert_allclose(out.patch_scores[:1].flatten(1), expected, atol=1e-5)
    assert out.deviation_vectors is None


def test_abnormal_references_alone_lend_their_unmarked_patches(model, episode):
    out = model(episode["query"], None, episode["abnormal_refs"], episode["masks"])
    features = model.extract_features(episode["abnormal_refs"])
    marked = F.max_pool2d(episode["masks"][None], PATCH)[0] > 0
    by_hand = model.encode_features(features[~marked][None, None, None], features[None], marked[None])
    expected = model.score_features(model.extract_features(episode["query"]), by_hand, (32, 32))
    assert_same(out, expected)


def test_without_masks_the_patches_that_deviate_most_are_marked(model):
    normal = random_images(2, seed=2)
    abnormal = normal[:1].clone()
    abnormal[..., 8:12, 16:20] += 4.0  # one patch of a good part spoilt
    deviant = torch.zeros(1, 32, 32)
    deviant[:, 8:12, 16:20] = 1
    found = model.encode_references(normal, abnormal)
    assert found.mask_source == "estimated"
    given = model.encode_references(normal, abnormal, deviant)
    assert given.mask_source == "given"
    torch.testing.assert_close(found.deviation_vectors, given.deviation_vectors, atol=1e-5, rtol=0)


def test_abnormal_references_alone_and_without_masks(model):
    features = torch.ones(1, 1, 8, 8, 16) + 0.1 * torch.randn(1, 1, 8, 8, 16)
    features[0, 0, 2, 4] = -features[0, 0, 2, 4]
    references = model.encode_features(None, features, None)
    others = torch.ones(8, 8, dtype=torch.bool)
    others[2, 4] = False
    assert torch.equal(references.normal_features[0], features[0, 0][others])
    assert references.mask_source == "estimated"
    out = model(random_images(1), None, random_images(1, seed=1))
    assert out.scores.isfinite().all()


@pytest.mark.parametrize(("num_normal", "num_abnormal"), [(1, 1), (64, 1), (1, 64), (64, 64)])
def test_many_references(model, num_normal, num_abnormal):
    references = model.encode_references(
        random_images(num_normal), random_images(num_abnormal, seed=1), random_masks(num_abnormal)
    )
    assert references.num_normal == num_normal
    assert references.num_abnormal == num_abnormal
    assert model(random_images(2, seed=2), references=references).scores.isfinite().all()


def test_gradients_reach_the_encoder_and_nothing_else(model, episode):
    model.train()
    model(**episode, query_masks=random_masks(3), labels=torch.tensor([1, 0, 1])).loss.backward()
    with_gradient = {name for name, parameter in model.named_parameters() if parameter.grad is not None}
    encoder = {f"deviation_encoder.{name}" for name, _ in model.deviation_encoder.named_parameters()}
    assert with_gradient == encoder
    key_bias = "deviation_encoder.key.bias"  # shifts all logits alike, which softmax ignores
    parameters = dict(model.named_parameters())
    assert all(parameters[name].grad.abs().sum() > 0 for name in encoder - {key_bias})


def test_labels_and_masks_can_be_learned(model, episode):
    query_masks = random_masks(3)
    query_masks[0] = 0
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-2)
    losses = []
    for _ in range(20):
        loss = model(**episode, query_masks=query_masks, labels=torch.tensor([0, 1, 1])).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < losses[0] - 0.1


def test_the_loss_can_be_had_for_normal_references_alone(model, episode):
    out = model(episode["query"], episode["normal_refs"], query_masks=random_masks(3), labels=torch.tensor([0, 1, 1]))
    assert out.losses.keys() == {"focal", "dice", "image"}
    assert out.loss.item() == pytest.approx(sum(value.item() for value in out.losses.values()))


def test_two_channel_losses(episode):
    model = tiny_model(loss_form="two_channel")
    query_masks, labels = random_masks(3), torch.tensor([0, 1, 1])
    out = model(**episode, query_masks=query_masks, labels=labels)
    single = tiny_model()(**episode, query_masks=query_masks, labels=labels)
    assert_same(out, single, tolerance=0)

    matching = model(episode["query"], episode["normal_refs"]).patch_scores  # d_cos to the nearest normal
    similarities = torch.stack([1 - matching, 2 * out.patch_scores - matching], 1)
    maps = F.interpolate(similarities, size=(32, 32), mode="bilinear").detach().double().numpy()
    targets = np.stack([query_masks == 0, query_masks != 0], 1)
    shares = np.exp(maps) / np.exp(maps).sum(1, keepdims=True)
    scores = out.scores.detach().double().numpy()
    expected = {
        "focal": plain.focal(1 / (1 + np.exp(-maps)), targets),
        "dice": np.mean([plain.dice(shares[b, c], targets[b, c]) for b in range(3) for c in range(2)]),
        "image": np.mean(
            [
                plain.binary_cross_entropy(np.exp(s) / (np.exp(s) + np.exp(1 - s)), label)
                for s, label in zip(scores, labels, strict=True)
            ]
        ),
    }
    for name, value in expected.items():
        assert out.losses[name].item() == pytest.approx(value, abs=1e-5), name
