"""The trained rivals: each against a plain version, what it learns, what is saved, and bad input."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from sklearn.metrics import roc_auc_score

from modeling_ideal.data.reference_sets import draw_references, inference_episodes
from modeling_ideal.training.head.learner import load_learner
from modeling_ideal.training.head.objective import EpisodeTensors
from modeling_ideal.training.head.options import HeadTrainingOptions
from modeling_ideal.training.head.report import summary
from modeling_ideal.training.head.run import train_head
from modeling_ideal.training.head.source import load_source
from modeling_ideal.training.rivals.foundad import SPOILT_SHARE, spoil
from modeling_ideal.training.rivals.names import LEARNING_RATES
from modeling_ideal.training.rivals.reference_set import gather_references
from modeling_ideal.training.rivals.registry import RIVALS, is_rival, load_rival, make_rival
from modeling_ideal.training.rivals.resad import boundary_loss, density_loss, hypersphere_loss

from .. import plain
from . import plain_rivals
from .conftest import SIDE

CHANNELS, GRID = 8, (4, 5)
SMALL = {
    "nagl": {"num_proxies": 3, "num_heads": 2},
    "resad": {"num_couplings": 3},
    "foundad": {"depth": 2, "width": 12, "num_heads": 3},
}


def draw(*shape, seed=0):
    return torch.randn(*shape, *GRID, CHANNELS, generator=torch.Generator().manual_seed(seed)) + 0.5


def rival(name, **changes):
    """A small one with weights far from their start, so that every part of it shows."""
    torch.manual_seed(0)
    made = make_rival(name, CHANNELS, {**SMALL[name], **changes}).eval()
    with torch.no_grad():
        for parameter in made.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    return made


def arrays(module):
    return {name: value.double().numpy() for name, value in module.state_dict().items()}


@pytest.fixture
def references():
    marked = torch.zeros(1, *GRID, dtype=torch.bool)
    marked[0, 1:3, 1:4] = True
    return gather_references(draw(2, seed=1), draw(1, seed=2), marked)


def scores_of(made, references, query):
    with torch.no_grad():
        return made.score(query, made.encode(references)).numpy()


@pytest.mark.parametrize("denoise", [False, True])
def test_nagl_is_what_the_plain_version_says(references, denoise):
    made, query = rival("nagl", denoise=denoise), draw()
    parts = [part.double().numpy() for part in (query, references.normals, references.abnormal[0])]
    expected = plain_rivals.nagl(arrays(made), *parts, references.marked[0].numpy(), 2, denoise)
    np.testing.assert_allclose(scores_of(made, references, query), expected, atol=1e-5)


@pytest.mark.parametrize("denoise", [False, True])
def test_resad_is_what_the_plain_version_says(references, denoise):
    made, query = rival("resad", denoise=denoise), draw()
    expected = plain_rivals.resad(
        arrays(made), query.double().numpy(), references.normals.double().numpy(), 3, denoise
    )
    np.testing.assert_allclose(scores_of(made, references, query), expected, rtol=1e-4)


def test_foundad_is_what_the_plain_version_says(references):
    made, query = rival("foundad"), draw()
    expected = plain_rivals.foundad(arrays(made), query.double().numpy(), 2, 3)
    np.testing.assert_allclose(scores_of(made, references, query), expected, rtol=1e-4)


def test_a_new_flow_keeps_lengths():
    made = make_rival("resad", CHANNELS, {})
    vectors = torch.randn(5, CHANNELS)
    with torch.no_grad():
        for coupling in made.flow.couplings:
            coupling.subnet[2].weight.zero_()
            coupling.subnet[2].bias.zero_()
    expected = -0.5 * (vectors.square().mean(1) + np.log(2 * np.pi))
    torch.testing.assert_close(made.flow(vectors), expected, atol=1e-4, rtol=1e-4)


def test_nagl_with_one_kind_of_reference(references):
    made, query = rival("nagl"), draw()
    normal_alone = scores_of(made, gather_references(draw(2, seed=1), None, None), query)
    normals = references.normals.double().numpy()
    nearest = [
        min(plain.cosine_distance(patch, normal) for normal in normals)
        for patch in query.double().numpy().reshape(-1, CHANNELS)
    ]
    np.testing.assert_allclose(normal_alone.ravel(), nearest, atol=1e-5)
    abnormal = draw(1, seed=2)
    alone = gather_references(None, abnormal, references.marked)
    assert torch.equal(alone.normals, abnormal[~references.marked])
    with torch.no_grad():
        _, similar = made.similarities(query, made.encode(alone))
    np.testing.assert_allclose(scores_of(made, alone, query), similar.numpy(), atol=1e-6)


def test_references_that_do_not_do_are_refused():
    with pytest.raises(ValueError, match="expected normal or abnormal references, got neither"):
        gather_references(None, None, None)
    with pytest.raises(
        ValueError, match="expected some patch outside the masks to serve as normal, got masks over all"
    ):
        gather_references(None, draw(1), torch.ones(1, *GRID, dtype=torch.bool))
    unmarked = gather_references(draw(1), draw(1, seed=3), None)
    assert unmarked.marked.sum() == 1  # of 20 patches, the one that deviates most


def test_the_losses_of_resad():
    generator = torch.Generator().manual_seed(0)
    constrained, given = torch.randn(2, 40, CHANNELS, generator=generator)
    likelihood, marked = torch.randn(40, generator=generator), torch.arange(40) % 4 == 0
    short = np.mean([np.sqrt(np.linalg.norm(vector) + 1) - 1 for vector in constrained[~marked].numpy()])
    kept = np.mean((constrained[marked] - given[marked]).numpy() ** 2)
    assert hypersphere_loss(constrained, given, marked).item() == pytest.approx(short + kept, abs=1e-5)
    normal, anomalous = sorted(likelihood[~marked].tolist()), likelihood[marked].tolist()

    def penalty(excess):
        return np.log1p(np.exp(excess))

    assert density_loss(likelihood, marked).item() == pytest.approx(np.mean([penalty(-p) for p in normal]), abs=1e-5)
    boundary = normal[1]  # 5 % of 30
    pulled = np.mean([penalty(boundary - p) for p in normal if p <= boundary])
    pushed = np.mean([penalty(p - boundary + 0.1) for p in anomalous if p >= boundary - 0.1])
    assert boundary_loss(likelihood, marked).item() == pytest.approx(pulled + pushed, abs=1e-5)
    assert boundary_loss(likelihood, torch.ones(40, dtype=torch.bool)).item() == 0


def test_a_spoilt_picture_differs_in_a_rectangle():
    torch.manual_seed(0)
    picture = torch.randn(20, 20, CHANNELS)
    for _ in range(20):
        places = (spoil(picture) != picture).any(-1).nonzero()
        (top, left), (bottom, right) = places.amin(0).tolist(), places.amax(0).tolist()
        assert len(places) == (bottom - top + 1) * (right - left + 1)
        assert SPOILT_SHARE[0] / 2 < len(places) / 400 < SPOILT_SHARE[1] * 1.5


@pytest.mark.parametrize("name", sorted(RIVALS))
def test_the_loss_of_a_batch_is_that_of_its_episodes(name):
    marked = torch.zeros(1, *GRID, dtype=torch.bool)
    marked[0, 0, 0] = True
    mask = torch.zeros(8, 10, dtype=torch.bool)
    mask[2:4, 2:6] = True
    episodes = [
        EpisodeTensors(draw(seed=seed), draw(1, seed=seed + 9), draw(1, seed=seed + 5), marked, mask, 1, seed)
        for seed in range(2)
    ]
    made = rival(name)
    alone = [made([episode])["loss"].item() for episode in episodes]
    if name != "resad":  # whose boundary is that of the batch
        assert made(episodes)["loss"].item() == pytest.approx(np.mean(alone), abs=1e-5)
    assert alone == [made([episode])["loss"].item() for episode in episodes]


@pytest.fixture(scope="module", params=sorted(RIVALS))
def trained(request, options_in, tmp_path_factory):
    """Options and record of a short run of each rival."""
    config = [f"image_size={SIDE}", *(f"{key}={value}" for key, value in SMALL[request.param].items())]
    folder = tmp_path_factory.mktemp(request.param)
    chosen = options_in(folder, method=request.param, config=config, epochs=4, learning_rate=1e-2)
    return chosen, train_head(chosen)


def test_a_run_learns_and_leaves_a_rival(trained):
    chosen, record = trained
    assert record["epochs"][-1]["loss"] < record["epochs"][0]["loss"]
    folder = chosen.output / "model"
    assert is_rival(folder)
    loaded = load_rival(folder)
    assert loaded.fingerprint == record["model"]
    assert loaded.settings.items() >= SMALL[chosen.method].items()
    assert (folder / "preprocessor_config.json").is_file()
    text = summary(chosen, record)
    assert f"Trained {chosen.method} on parts (2 categories" in text
    assert f"--compare {chosen.method}={folder} --target DIR" in text


def test_saving_and_loading_changes_nothing(trained, tmp_path):
    loaded = load_rival(trained[0].output / "model")
    loaded.save_pretrained(tmp_path)
    again = load_rival(tmp_path)
    generator = torch.Generator().manual_seed(0)
    query, normal, abnormal = torch.randn(3, 8, 8, loaded.channels, generator=generator)
    references = gather_references(normal[None], abnormal[None], None)
    assert np.array_equal(scores_of(again, references, query), scores_of(loaded, references, query))
    assert (again.encoder, again.fingerprint) == (loaded.encoder, loaded.fingerprint)
    assert json.loads((tmp_path / "config.json").read_text())["encoder"] == loaded.encoder


def test_a_stopped_run_ends_with_the_same_weights(trained, tmp_path):
    chosen, record = trained
    again = replace(chosen, output_dir=str(tmp_path / "again"), keep_checkpoints=9)
    train_head(again)
    for name in ("training.json", "checkpoints/step_00000016.pt", "checkpoints/step_00000012.pt"):
        (again.output / name).unlink()
    assert train_head(again)["steps"] == record["steps"]
    first, second = (load_file(each.output / "model" / "model.safetensors") for each in (chosen, again))
    assert all(torch.equal(first[name], second[name]) for name in first)


@pytest.mark.parametrize("name", sorted(RIVALS))
def test_validation_ranks_pictures_by_the_scores_of_the_rival(name, options):
    config = [f"image_size={SIDE}", *(f"{key}={value}" for key, value in SMALL[name].items())]
    chosen = options(method=name, config=config, held_out=["bolt"], epochs=1)
    [validation] = train_head(chosen)["validation"]
    made, learner = load_rival(chosen.output / "model"), load_learner(chosen, torch.device("cpu"))
    _, held_out = load_source(chosen, learner.encoder)
    [references] = draw_references(held_out.catalogue, "N1A1", 0)
    episodes = inference_episodes(held_out.catalogue, references)
    cache = held_out.cache
    normal, abnormal = (cache.features(part).float() for part in (episodes[0].normal, episodes[0].abnormal))
    known = gather_references(normal, abnormal, cache.patch_masks(episodes[0].abnormal))
    queries = [episode.query for episode in episodes]
    scores = [
        scores_of(made, known, cache.features([query])[0].float()).max() for query in queries
    ]  # 1 % of 64 patches
    expected = roc_auc_score([cache.labels[query] for query in queries], scores)
    assert validation["setups"]["N1A1"]["mean"]["image_auroc"] == pytest.approx(100 * expected)


def test_each_rival_has_a_name_and_a_learning_rate(options):
    assert set(RIVALS) == set(LEARNING_RATES)
    assert {options(method=name, config=[]).learning_rate for name in RIVALS} == {1e-5, 1e-3}
    assert options(method="nagl", config=[], learning_rate=0.1).learning_rate == 0.1
    assert options().learning_rate == 1e-3


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"method": "winclip"}, r"method: expected one of \['foundad', 'nagl', 'resad'\], got 'winclip'"),
        (
            {"method": "nagl", "model": "m", "backbone": None},
            "expected --backbone with --method, which is trained from scratch, got",
        ),
    ],
)
def test_options_that_do_not_go_together_are_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        HeadTrainingOptions(**{"source": "s", "output_dir": "o", "backbone": "b", **changes})


@pytest.mark.parametrize(
    ("name", "settings", "message"),
    [
        ("winclip", {}, r"method: expected one of \['foundad', 'nagl', 'resad'\], got 'winclip'"),
        ("nagl", {"heads": 4}, r"expected some of \['num_proxies', 'num_heads', 'denoise'\] for nagl, got 'heads'"),
        ("nagl", {"num_proxies": 2.5}, r"config: expected int for num_proxies, got 2\.5"),
        ("nagl", {"num_heads": 3}, "heads that divide the 8 channels, got 25 proxies and 3 heads"),
        ("resad", {"num_couplings": 0}, "expected at least one coupling and two channels, got 0 and 8"),
        ("foundad", {"width": 10}, "heads that divide the width, got depth 6, width 10 and 12 heads"),
    ],
)
def test_bad_settings_are_refused(name, settings, message):
    with pytest.raises(ValueError, match=message):
        make_rival(name, CHANNELS, settings)


def test_foundad_needs_normal_references():
    mask = torch.zeros(8, 10, dtype=torch.bool)
    episode = EpisodeTensors(draw(), None, draw(1), None, mask, 0, 0)
    with pytest.raises(
        ValueError, match="setups: expected normal references, which this method learns from, got none"
    ):
        rival("foundad")([episode])


def test_what_is_no_rival_is_refused(tmp_path, model_folder):
    assert not is_rival(tmp_path)
    assert not is_rival(model_folder)
    with pytest.raises(ValueError, match="expected a folder that `ideal train --method` has written, got none"):
        load_rival(model_folder)
    rival("nagl").save_pretrained(tmp_path)
    save_file({"other": torch.zeros(1)}, tmp_path / "model.safetensors")
    with pytest.raises(ValueError, match=r"model\.safetensors: expected the weights of nagl, got"):
        load_rival(tmp_path)
