"""The source: what is held out is not trained on, and pictures that are not fit are named."""

import shutil

import numpy as np
import pytest
from PIL import Image

from modeling_ideal.data.folder import NORMAL
from modeling_ideal.training.encoder import BackboneEncoder
from modeling_ideal.training.head.source import draw_episodes, load_source
from modeling_ideal.training.head.starting_point import load_start


def load(options):
    return load_source(options, BackboneEncoder(*load_start(options)))


@pytest.fixture
def own_folder(tmp_path):
    """Ten normal and three abnormal pictures with masks, as a user has them."""
    random = np.random.default_rng(1)
    for kind, count in (("normal", 10), ("abnormal", 3), ("masks", 3)):
        (tmp_path / "mine" / kind).mkdir(parents=True)
        for index in range(count):
            pixels = random.integers(90, 150, (32, 32, 3), dtype=np.uint8)
            if kind == "masks":
                pixels = np.zeros((32, 32), np.uint8)
                pixels[8:16, 8 : 12 + index] = 255
            elif kind == "abnormal":
                pixels[8:16, 8 : 12 + index] = 250
            Image.fromarray(pixels).save(tmp_path / "mine" / kind / f"{index}.png")
    return tmp_path / "mine"


def test_held_out_categories_are_apart(options):
    training, held_out = load(options(held_out=["bolt"]))
    assert (training.categories, held_out.categories) == (["nut"], ["bolt"])
    for part in (training, held_out):
        assert part.cache.paths == tuple(part.catalogue.paths)
        assert part.cache.contents == tuple(part.catalogue.contents)
        assert len(part.cache.features([0, len(part.catalogue) - 1])) == 2
    assert not {*training.catalogue.contents} & {*held_out.catalogue.contents}
    assert training.digest != held_out.digest


def test_chosen_categories_alone_are_encoded(options, tmp_path):
    training, held_out = load(options(categories=["bolt"], cache=str(tmp_path / "features")))
    assert (training.categories, held_out) == (["bolt"], None)
    assert len(list((tmp_path / "features").rglob("*.safetensors"))) == 9 + 3 + 3  # normal, anomalous, masks


def test_own_pictures_without_normal_test_ones(options, own_folder):
    chosen = options(source=str(own_folder), layout="folder")
    training, _ = load(chosen)
    episodes, [sentence] = draw_episodes(training, chosen)
    assert sentence == (
        "mine: no normal test pictures, so 2 of its 10 normal pictures "
        "serve as queries (normal/0.png, normal/5.png), the others as references"
    )
    drawn = [episode for epoch in range(4) for episode in episodes.epoch(epoch)]
    types = training.catalogue.anomaly_types
    assert {training.catalogue.paths[each.query] for each in drawn if types[each.query] == NORMAL} == {
        "normal/0.png",
        "normal/5.png",
    }
    assert {index for each in drawn for index in each.normal}.isdisjoint(each.query for each in drawn)
    assert len({each.query for each in drawn if types[each.query] != NORMAL}) == 3


def test_a_data_set_with_a_test_split_is_left_as_it_is(options):
    training, _ = load(options())
    assert draw_episodes(training, options())[1] == []


def test_anomalous_pictures_without_masks_are_references_alone(options, source, tmp_path):
    shutil.copytree(source, tmp_path / "parts")
    (tmp_path / "parts" / "bolt" / "ground_truth" / "scratch" / "001_mask.png").unlink()
    chosen = options(source=str(tmp_path / "parts"), categories=["bolt"])
    training, _ = load(chosen)
    episodes, [sentence] = draw_episodes(training, chosen)
    name = "bolt/test/scratch/001.png"
    assert sentence == f"1 of 3 anomalous pictures have no mask and serve as references only, never as queries: {name}"
    drawn = [episode for epoch in range(4) for episode in episodes.epoch(epoch)]
    place = training.catalogue.paths.index(name)
    assert place not in {episode.query for episode in drawn}
    assert place in {index for episode in drawn for index in episode.abnormal}


def test_no_masks_at_all_are_refused(options, own_folder):
    shutil.rmtree(own_folder / "masks")
    chosen = options(source=str(own_folder), layout="folder")
    training, _ = load(chosen)
    with pytest.raises(ValueError, match=r"got none for all 3 \(abnormal/0.png, abnormal/1.png, abnormal/2.png\)"):
        draw_episodes(training, chosen)


def test_held_out_pictures_need_masks(options, source, tmp_path):
    shutil.copytree(source, tmp_path / "parts")
    (tmp_path / "parts" / "bolt" / "ground_truth" / "scratch" / "001_mask.png").unlink()
    with pytest.raises(ValueError, match=r"held_out: expected a mask .* got none for bolt/test/scratch/001\.png"):
        load(options(source=str(tmp_path / "parts"), held_out=["bolt"]))


@pytest.mark.parametrize(("count", "words"), [(1, "1 of 3 masks"), (3, "all masks")])
def test_empty_masks_are_named(options, own_folder, count, words):
    for index in range(count):
        Image.fromarray(np.zeros((32, 32), np.uint8)).save(own_folder / "masks" / f"{index}.png")
    with pytest.raises(ValueError, match=rf"{words} of anomalous pictures are empty \(abnormal/0.png"):
        load(options(source=str(own_folder), layout="folder"))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"held_out": ["gear"]}, r"expected categories among \['bolt', 'nut'\], got \['gear'\]"),
        ({"held_out": ["nut", "bolt"]}, r"expected a category to train on, got all \['bolt', 'nut'\] held out"),
    ],
)
def test_categories_that_are_not_there(options, changes, message):
    with pytest.raises(ValueError, match=message):
        load(options(**changes))
