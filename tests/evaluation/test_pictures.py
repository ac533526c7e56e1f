"""The pictures of an evaluation: there, not blank, the same twice, and true to the figures."""

from functools import partial

import numpy as np
import pytest
import torch
from PIL import Image, ImageDraw

from modeling_ideal import IdealImageProcessor, IdealModel
from modeling_ideal.cli import main
from modeling_ideal.data.reference_sets import draw_references, inference_episodes
from modeling_ideal.evaluation.pictures import category_pictures, montage, plots
from modeling_ideal.evaluation.pictures.category_pictures import NAMES, spread_out
from modeling_ideal.evaluation.pictures.deviations import neighbor_agreement, project, sample_deviations
from modeling_ideal.evaluation.pictures.montage import MontageRow, Tile, color_scale, draw_montage
from modeling_ideal.evaluation.pictures.plots import draw_curves
from modeling_ideal.evaluation.protocol import evaluation
from modeling_ideal.evaluation.protocol.evaluation import Evaluation
from modeling_ideal.evaluation.protocol.scorer import Scorer
from modeling_ideal.metrics import pixel
from modeling_ideal.pipeline_results import OPACITY, Scale, heat

METHODS = ["ideal", "normal_matching"]


def evaluate(target, model_folder, out, **changes):
    return Evaluation(
        model=IdealModel.from_pretrained(model_folder),
        processor=IdealImageProcessor.from_pretrained(model_folder),
        target=target,
        out=out,
        cache=out / "features",
        layout="mvtec",
        **{"setups": ["N1A1"], "seeds": [0, 1], "methods": METHODS, "pictures": True, **changes},
    ).run()


@pytest.fixture(scope="module", autouse=True)
def few_patches():
    """t-SNE of a few patches, not of hundreds, which would take most of the time."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(category_pictures, "sample_deviations", partial(sample_deviations, max_patches=40))
        yield


@pytest.fixture(scope="module")
def drawn(target, model_folder, tmp_path_factory):
    out = tmp_path_factory.mktemp("drawn")
    return out, evaluate(target, model_folder, out)


@pytest.fixture
def quick(monkeypatch):
    """Without t-SNE, which takes most of the time."""
    monkeypatch.setattr(plots, "embed", lambda vectors: vectors[:, :2])


@pytest.fixture
def scored(target, model_folder, tmp_path, monkeypatch):
    """The scorer that an evaluation gives to its pictures, and one of its reference sets."""
    given, measure = [], evaluation.measure
    monkeypatch.setattr(evaluation, "measure", lambda *parts: given.append(parts) or measure(*parts))
    evaluate(target, model_folder, tmp_path, pictures=False)
    scorer, references, _ = given[0]
    return scorer, references


def files(out, setup="N1A1"):
    folder = out / "pictures" / setup
    return {path.name: path for path in folder.iterdir()} if folder.exists() else {}


def tile(value=0.5, mask=None, size=(8, 12)):
    return Tile(np.full((*size, 3), value), np.zeros(size, bool) if mask is None else mask, "a part")


def test_every_category_has_its_pictures_and_they_show_something(drawn):
    found = files(drawn[0])
    assert set(found) == {f"{category}_{name}.png" for category in ("nut", "bolt") for name in NAMES}
    for path in found.values():
        picture = Image.open(path).convert("RGB")
        assert min(picture.size) > 300
        assert len(picture.getcolors(picture.width * picture.height)) > 100  # not blank


def test_a_second_run_draws_the_same_bytes(drawn, target, model_folder, tmp_path):
    evaluate(target, model_folder, tmp_path)
    again = files(tmp_path)
    for name, path in files(drawn[0]).items():
        assert again[name].read_bytes() == path.read_bytes(), name


def test_files_hold_neither_date_nor_version(drawn):
    for path in files(drawn[0]).values():
        assert set(Image.open(path).info) - {"dpi"} == {"Evaluation"}


def test_only_missing_and_outdated_pictures_are_drawn(quick, target, model_folder, tmp_path, monkeypatch):
    evaluate(target, model_folder, tmp_path)
    written, real = [], category_pictures.write_figure
    monkeypatch.setattr(
        category_pictures, "write_figure", lambda path, *rest: (written.append(path.name), real(path, *rest))
    )
    evaluate(target, model_folder, tmp_path)
    assert written == []
    files(tmp_path)["nut_curves.png"].unlink()
    evaluate(target, model_folder, tmp_path)
    assert written == ["nut_curves.png"]
    evaluate(target, model_folder, tmp_path, methods=["normal_matching"])  # other methods, other pictures
    assert len(written) == 1 + 2 * len(NAMES)


def test_pictures_cost_no_second_scoring_or_ranking(quick, target, model_folder, tmp_path, monkeypatch):
    scored, real = [], Scorer.patch_scores
    ranked, rank = [], pixel.rank
    monkeypatch.setattr(Scorer, "patch_scores", lambda self, *rest: scored.append(self.methods) or real(self, *rest))
    monkeypatch.setattr(pixel, "rank", lambda *parts: ranked.append(len(parts)) or rank(*parts))
    evaluate(target, model_folder, tmp_path)
    assert scored == [METHODS] * 4  # two categories, two seeds
    assert len(ranked) == len(METHODS) * 2 * (2 + 1)  # nut has both settings, bolt one
    assert len(files(tmp_path)) == 2 * len(NAMES)


def test_pictures_are_asked_for(quick, target, model_folder, tmp_path):
    arguments = ["evaluate", "--model", str(model_folder), "--target", str(target), "--setups", "N1A1"]
    arguments += ["--seeds", "0", "--out", str(tmp_path / "out")]
    assert main(arguments) == 0
    assert not (tmp_path / "out" / "pictures").exists()
    assert main([*arguments, "--pictures"]) == 0
    assert len(files(tmp_path / "out")) == 2 * len(NAMES)


def test_a_category_without_the_setting_is_left_out(quick, target, model_folder, tmp_path):
    evaluate(target, model_folder, tmp_path, settings=["hard"], methods=["normal_matching"])
    assert set(files(tmp_path)) == {f"nut_{name}.png" for name in NAMES}  # bolt has one type of defect


def test_good_parts_stay_cold_on_a_scale_fixed_for_all():
    random = np.random.default_rng(0)
    good, bad = random.uniform(0.1, 0.2, (2, 50, 50))
    bad[20:25, 20:25] = 0.9
    scale = color_scale(np.stack([good, bad]))
    assert scale == Scale(pytest.approx(np.median([good, bad])), 0.9)
    colors = heat(good, scale)
    assert colors.shape == (50, 50, 4)
    assert colors[..., 3].max() < 0.1  # the photograph shows through
    assert (colors[..., 0] < colors[..., 2] + 0.1).all()  # and nothing is red
    assert heat(bad, scale)[22, 22, 3] == OPACITY
    together = heat(np.stack([good, bad]), scale)  # a score has its colour, whatever lies beside it
    np.testing.assert_array_equal(together[0], colors)
    assert not heat(np.full((3, 3), 0.7), color_scale(np.full((3, 3), 0.7)))[..., 3].any()  # nothing stands out


def test_a_montage_draws_all_maps_of_a_method_on_one_scale(monkeypatch):
    used, real = [], montage.heat
    monkeypatch.setattr(montage, "heat", lambda scores, scale: (used.append(scale), real(scores, scale))[1])
    queries = [
        MontageRow(tile(), {"a": np.full((8, 12), value), "b": np.zeros((8, 12))}, {"a": 1, "b": 2})
        for value in (0, 9)
    ]
    scales = {"a": Scale(1, 2), "b": Scale(0, 7)}
    words, write = [], ImageDraw.ImageDraw.text
    monkeypatch.setattr(
        ImageDraw.ImageDraw,
        "text",
        lambda pen, place, text, **rest: words.append(text) or write(pen, place, text, **rest),
    )
    picture = draw_montage("title", [tile()], queries, scales)
    assert used == [scales["a"], scales["b"]] * 2 + list(scales.values())  # rows, then the colour bars
    assert picture.width > 4 * montage.CELL * montage.DOTS_PER_INCH
    assert {"title", "a", "b", "score 1", "score 2", "no defect", "1.5", "7"} <= set(words)
    shown = np.asarray(picture)
    edges = np.concatenate([shown[0], shown[-1], shown[:, 0], shown[:, -1]])
    assert (edges == 255).all()  # nothing hangs over the edge


def test_outlines_surround_the_mask():
    mask = np.zeros((8, 12), bool)
    mask[2:4, 5:9] = True

    def extent(marked):
        """Width and height of what is outlined, in pixels of the mask."""
        drawn = np.asarray(draw_montage("", [tile(mask=marked)], [], {}))
        places = (drawn == montage.OUTLINE).all(-1).nonzero()
        return [np.ptp(place) * 12 / montage.THUMBNAIL / montage.DOTS_PER_INCH for place in places if len(place)][::-1]

    assert extent(mask) == pytest.approx([4, 2], abs=1.5)
    assert extent(np.zeros_like(mask)) == []


def test_a_montage_of_pictures_that_differ_in_size_is_refused():
    with pytest.raises(ValueError, match=r"all of one size, got shapes \[\(8, 12, 3\), \(9, 9, 3\)\]"):
        draw_montage("", [tile(), tile(size=(9, 9))], [], {})


def test_queries_are_chosen_alike_from_every_type():
    assert spread_out([list(range(10))], 2) == [2, 7]
    assert spread_out([[0, 1, 2, 3], [4], [5, 6, 7]], 5) == [1, 3, 4, 5, 7]
    assert spread_out([[0, 1], [2]], 9) == [0, 1, 2]
    assert spread_out([[], [3]], 4) == [3]


def test_areas_in_the_legend_are_those_of_the_results(quick, target, model_folder, tmp_path, monkeypatch):
    seen = {}
    monkeypatch.setattr(
        category_pictures,
        "draw_curves",
        lambda title, curves: seen.update({title: curves}) or draw_curves(title, curves),
    )
    results = evaluate(target, model_folder, tmp_path, seeds=[0])
    general = results["methods"]["ideal"]["setups"]["N1A1"]["general"]["categories"]
    for title, curves in seen.items():
        category = title.split(":")[0]
        assert 100 * curves["ideal"].auroc == pytest.approx(general[category]["image_auroc"])
        assert 100 * curves["ideal"].pro == pytest.approx(general[category]["pixel_pro"])
    assert len(seen) == 2


def test_projection_is_equation_8():
    random = np.random.default_rng(0)
    deviations, vectors = random.normal(size=(7, 5)), 3 * random.normal(size=(4, 5))
    expected = np.zeros((7, 5))
    for place, deviation in enumerate(deviations):
        for vector in vectors:
            expected[place] += np.dot(deviation, vector) / np.dot(vector, vector) * vector
    found = project(torch.from_numpy(deviations), torch.from_numpy(vectors))
    np.testing.assert_allclose(found.numpy(), expected, atol=1e-12)


def test_deviations_are_those_of_the_patches_they_are_called_after(scored):
    scorer, references = scored
    episodes = inference_episodes(scorer.catalogue, references)
    queries = [episode.query for episode in episodes]
    context = scorer.context(episodes[0].normal, episodes[0].abnormal)
    sample = sample_deviations(scorer, context, queries, max_patches=8)
    assert (len(sample.anomalous), sample.anomalous.sum()) == (16, 8)
    assert set(sample.kinds) == {"residual", "denoised", "projected"}
    everything = scorer.cache.features(queries).float().flatten(1, 2)  # (n, N, C)
    marked = scorer.cache.patch_masks(queries).flatten(1)
    normals = context.normals
    for residual, anomalous, picture in zip(sample.kinds["residual"], sample.anomalous, sample.pictures, strict=True):
        patches = everything[picture][marked[picture] == bool(anomalous)]
        nearest = torch.cosine_similarity(patches[:, None], normals[None], dim=-1).argmax(1)
        candidates = patches - normals[nearest]
        assert (candidates - torch.from_numpy(residual)).abs().amax(1).min() < 1e-5
    without_head = Scorer(scorer.cache, scorer.catalogue, ["normal_matching"], scorer.model)
    assert set(sample_deviations(without_head, context, queries, 5).kinds) == {"residual", "denoised"}


def test_normal_references_alone_have_no_projected_deviations(scored):
    scorer, _ = scored
    references = draw_references(scorer.catalogue, "N2A0", 0)[0]
    episodes = inference_episodes(scorer.catalogue, references)
    context = scorer.context(episodes[0].normal, episodes[0].abnormal)
    sample = sample_deviations(scorer, context, [episode.query for episode in episodes], 5)
    assert set(sample.kinds) == {"residual", "denoised"}


def test_agreement_of_neighbors_leaves_the_own_picture_out():
    vectors = np.array([[0.0], [0.1], [5.0], [5.1], [0.2], [5.2]])
    anomalous = np.array([False, False, True, True, False, True])
    pictures = np.array([0, 0, 0, 0, 1, 1])
    assert neighbor_agreement(vectors, anomalous, pictures) == 1.0
    assert neighbor_agreement(vectors, np.array([False, False, True, True, True, False]), pictures) == 0.0
    assert np.isnan(neighbor_agreement(vectors, np.zeros(6, bool), pictures))
    assert np.isnan(neighbor_agreement(vectors, anomalous, np.zeros(6, int)))
