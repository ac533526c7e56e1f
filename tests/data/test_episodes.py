"""Episodes: no leak, one type, balanced, the same everywhere; errors with the counts."""

import json
import multiprocessing
from collections import Counter
from concurrent.futures import ProcessPoolExecutor

import numpy as np
import pytest
from hypothesis import given, reject, settings
from hypothesis import strategies as st

from modeling_ideal.data.catalogue import Catalogue
from modeling_ideal.data.episodes import TrainingEpisodes
from modeling_ideal.data.reference_sets import (
    applicable_settings,
    draw_references,
    inference_episodes,
    read_references,
    write_references,
)
from modeling_ideal.data.setups import Setup


def catalogue(rows):
    """A catalogue of (path, category, anomaly type, split, content) rows."""
    return Catalogue(*(list(column) for column in zip(*rows, strict=True)))


def factory(categories=("a", "b"), normals=12, tests=9, types=("cut", "dent", "hole"), each=7):
    """Categories with duplicates by content: within train, between train and test, and within a type."""
    rows = []
    for name in categories:
        rows += [(f"{name}/train/good/{i}", name, "good", "train", f"{name}n{i // 2}") for i in range(normals)]
        rows += [(f"{name}/test/good/{i}", name, "good", "test", f"{name}n{i}") for i in range(tests)]
        for kind in types:
            rows += [
                (f"{name}/test/{kind}/{i}", name, kind, "test", f"{name}{kind}{i % (each - 1)}") for i in range(each)
            ]
    return catalogue(rows)


def assert_free_of_leaks(table, episode):
    references = (*episode.normal, *episode.abnormal)
    assert table.paths[episode.query] not in {table.paths[index] for index in references}
    assert table.contents[episode.query] not in {table.contents[index] for index in references}
    assert len({table.contents[index] for index in references}) == len(references)
    assert {table.categories[index] for index in references} == {table.categories[episode.query]}
    assert {(table.anomaly_types[i], table.splits[i]) for i in episode.normal} <= {("good", "train")}
    assert len({table.anomaly_types[index] for index in episode.abnormal}) <= 1
    assert all(table.anomaly_types[i] != "good" and table.splits[i] == "test" for i in episode.abnormal)


def test_ten_thousand_training_episodes_keep_the_protocol():
    table = factory()
    episodes = TrainingEpisodes(table, ("N1A1", "N4A3"), seed=3, episodes_per_epoch=10_000).epoch(0)
    assert len(episodes) == 10_000
    for episode in episodes:
        assert_free_of_leaks(table, episode)
        assert table.splits[episode.query] == "test"
    anomalous = sum(table.anomaly_types[episode.query] != "good" for episode in episodes)
    assert abs(anomalous - 5_000) <= 100
    sizes = Counter((len(episode.normal), len(episode.abnormal)) for episode in episodes)
    assert set(sizes) == {(1, 1), (4, 3)}
    assert abs(sizes[1, 1] - 5_000) <= 200
    # Every test image is a query, every picture that may be a reference is one, and chances are even.
    assert {episode.query for episode in episodes} == {i for i in range(len(table)) if table.splits[i] == "test"}
    types = Counter(table.anomaly_types[episode.abnormal[0]] for episode in episodes)
    assert all(abs(count - 10_000 / 3) <= 250 for count in types.values())
    normals = Counter(table.contents[index] for episode in episodes for index in episode.normal)
    assert set(normals) == {
        content for content, split in zip(table.contents, table.splits, strict=True) if split == "train"
    }


def test_chances_of_normal_and_anomalous_queries_are_even_for_every_seed():
    table = factory()
    first = [TrainingEpisodes(table, seed=seed).episode(0, 0).query for seed in range(400)]
    share = np.mean([table.anomaly_types[query] != "good" for query in first])
    assert 0.42 < share < 0.58


def test_episodes_that_are_stacked_share_a_setup():
    sampler = TrainingEpisodes(factory(), ("N1A1", "N2A1", "N4A3"), episodes_per_epoch=64, episodes_per_setup=16)
    sizes = [(len(episode.normal), len(episode.abnormal)) for episode in sampler.epoch(0)]
    blocks = [set(sizes[start : start + 16]) for start in range(0, 64, 16)]
    assert all(len(block) == 1 for block in blocks)
    assert len(set.union(*blocks)) > 1


def test_seed_epoch_and_index_all_matter():
    table = factory()
    base = TrainingEpisodes(table, seed=1, episodes_per_epoch=50).epoch(0)
    assert base == TrainingEpisodes(table, seed=1, episodes_per_epoch=50).epoch(0)
    assert base != TrainingEpisodes(table, seed=2, episodes_per_epoch=50).epoch(0)
    assert base != TrainingEpisodes(table, seed=1, episodes_per_epoch=50).epoch(1)
    assert len(set(base)) > 40


def draw_part(part):
    """The episodes of every second index, and the reference sets, as one of two processes draws them."""
    table = factory()
    sampler = TrainingEpisodes(table, ("N1A1", "N4A3"), seed=5, episodes_per_epoch=200)
    episodes = {index: sampler.episode(2, index) for index in range(part, 200, 2)}
    return episodes, draw_references(table, "N2A1", seed=5)


def test_two_processes_draw_what_one_draws():
    # A spawned process hashes strings in another way than this one: no order may depend on it.
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        other = pool.submit(draw_part, 1)
        even, sets = draw_part(0)
        odd, other_sets = other.result()
    sampler = TrainingEpisodes(factory(), ("N1A1", "N4A3"), seed=5, episodes_per_epoch=200)
    together = {**even, **odd}
    assert [together[index] for index in range(200)] == sampler.epoch(2)
    assert sets == other_sets == draw_references(factory(), "N2A1", seed=5)


@pytest.mark.parametrize("setup", ["N1A1", "N2A1", "N4A1", "N4A3"])
@pytest.mark.parametrize("seed", range(8))
def test_inference_keeps_the_protocol(setup, seed):
    table = factory()
    for references in draw_references(table, setup, seed):
        used = {reference.content for reference in (*references.normal, *references.abnormal)}
        for setting in ("general", "hard"):
            episodes = inference_episodes(table, references, setting)
            for episode in episodes:
                assert_free_of_leaks(table, episode)
            assert len({(episode.normal, episode.abnormal) for episode in episodes}) == 1
            expected = {
                index
                for index in range(len(table))
                if table.splits[index] == "test"
                and table.categories[index] == references.category
                and table.contents[index] not in used
                and (setting == "general" or table.anomaly_types[index] != references.anomaly_type)
            }
            assert {episode.query for episode in episodes} == expected


def test_hard_does_not_apply_to_a_single_type_nor_without_abnormal_references():
    single = factory(types=("cut",))
    references = draw_references(single, "N1A1", 0)[0]
    assert applicable_settings(single, references) == ("general",)
    message = r"category 'a', N1A1, setting 'hard': expected normal and anomalous queries, got \d normal and 0"
    with pytest.raises(ValueError, match=message):
        inference_episodes(single, references, "hard")
    table = factory()
    assert applicable_settings(table, draw_references(table, "N1A1", 0)[0]) == ("general", "hard")
    normal_only = draw_references(table, "N4A0", 0)[0]
    assert normal_only.anomaly_type is None
    assert normal_only.abnormal == ()
    assert applicable_settings(table, normal_only) == ("general",)
    with pytest.raises(ValueError, match="expected a setting among general, hard, got 'easy'"):
        inference_episodes(table, references, "easy")


def test_references_of_a_category_do_not_depend_on_the_others_nor_on_the_order():
    table = factory()
    order = np.random.default_rng(0).permutation(len(table))
    columns = (table.paths, table.categories, table.anomaly_types, table.splits, table.contents)
    shuffled = Catalogue(*([column[index] for index in order] for column in columns))
    assert draw_references(shuffled, "N2A1", 1) == draw_references(table, "N2A1", 1)
    assert draw_references(factory(("b",)), "N2A1", 1) == draw_references(table, "N2A1", 1)[1:]


def test_larger_setups_contain_the_smaller_ones():
    table = factory()
    for small, large in zip(draw_references(table, "N1A1", 4), draw_references(table, "N4A3", 4), strict=True):
        assert large.normal[:1] == small.normal
        assert large.abnormal[:1] == small.abnormal


def test_reference_sets_are_read_back_and_found_again(tmp_path):
    table = factory()
    sets = draw_references(table, "N2A1", 7)
    file = tmp_path / "references.json"
    write_references(file, sets)
    assert read_references(file) == sets
    assert [path.name for path in tmp_path.iterdir()] == ["references.json"]
    assert json.loads(file.read_text())["reference_sets"][0]["normal"][0]["path"].startswith("a/train/good/")
    assert inference_episodes(table, read_references(file)[1]) == inference_episodes(table, sets[1])


def test_a_reference_that_is_gone_or_another_picture_is_named():
    table = factory()
    references = draw_references(table, "N1A1", 0)[0]
    path = references.normal[0].path
    index = list(table.paths).index(path)
    table.contents[index] = "edited"
    with pytest.raises(ValueError, match=rf"{path}: expected the content an\d, got edited: the image has changed"):
        inference_episodes(table, references)
    table.paths[index] = "renamed"
    with pytest.raises(ValueError, match=f"expected the reference {path} among the records, found no such path"):
        inference_episodes(table, references)


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"format": 2}', '{"format": 1, "reference_sets": [{"a": 1}]}'])
def test_a_file_that_is_no_reference_sets_is_named(tmp_path, content):
    (tmp_path / "other.json").write_text(content)
    with pytest.raises(ValueError, match=r"other\.json: expected reference sets in format 1, got"):
        read_references(tmp_path / "other.json")


@pytest.mark.parametrize(
    ("changes", "setup", "message"),
    [
        (
            {"each": 4},
            "N1A4",
            "category 'a': N1A4 asks for 4 abnormal references of one type, but its test "
            "split has 3 of 'cut', 3 of 'dent', 3 of 'hole'",
        ),
        (
            {"normals": 4},
            "N3A1",
            "category 'a': N3A1 asks for 3 normal references, but its train split has 2 different normal images",
        ),
        (
            {"types": ()},
            "N1A1",
            "category 'a': N1A1 asks for 1 abnormal references of one type, but its test split has none",
        ),
        ({"normals": 0}, "N1A1", "but its train split has 0 different normal images"),
    ],
)
def test_too_few_images_are_counted(changes, setup, message):
    with pytest.raises(ValueError, match=message):
        draw_references(factory(**changes), setup, 0)


def test_the_query_itself_is_not_counted_as_a_reference():
    table = factory(types=("cut",), each=4)
    draw_references(table, "N1A3", 0)
    with pytest.raises(ValueError, match="has 2 of 'cut' besides the query a/test/cut/0"):
        TrainingEpisodes(table, ("N1A3",))
    table = factory(normals=4)
    draw_references(table, "N2A1", 0)
    with pytest.raises(ValueError, match="has 1 different normal images besides the query a/test/good/0"):
        TrainingEpisodes(table, ("N2A1",))


@pytest.mark.parametrize(("changes", "kind"), [({"tests": 0}, "normal"), ({"types": ()}, "anomalous")])
def test_training_needs_queries_of_both_kinds(changes, kind):
    with pytest.raises(ValueError, match=f"expected {kind} test images to draw queries from, got 0"):
        TrainingEpisodes(factory(**changes))


def test_setups_are_written_as_in_the_paper():
    assert Setup.parse("N8A4") == Setup(8, 4)
    assert str(Setup(8, 4)) == "N8A4"
    for name in ("8A4", "n1a1", "N1", "N-1A1"):
        with pytest.raises(ValueError, match="expected a set-up such as 'N1A1' or 'N8A4', got"):
            Setup.parse(name)
    with pytest.raises(ValueError, match="expected at least one reference, got 0 normal, 0 abnormal"):
        Setup(0, 0)


def test_bad_arguments_are_named():
    sampler = TrainingEpisodes(factory(), episodes_per_epoch=10)
    for epoch, index in ((-1, 0), (0, 10), (0, -1)):
        with pytest.raises(ValueError, match=f"an index below 10, got {epoch}, {index}"):
            sampler.episode(epoch, index)
    with pytest.raises(ValueError, match="expected at least one episode per epoch"):
        TrainingEpisodes(factory(), setups=())
    with pytest.raises(ValueError, match="expected every path once, got 'p' several times"):
        catalogue([("p", "a", "good", "test", "1"), ("p", "a", "good", "test", "2")])
    with pytest.raises(ValueError, match=r"expected columns of one length, got \[1, 0, 0, 0, 0\]"):
        Catalogue(["p"], [], [], [], [])


@settings(max_examples=60, deadline=None)
@given(
    contents=st.lists(st.integers(0, 12), min_size=24, max_size=60),
    seed=st.integers(0, 2**32),
    num_normal=st.integers(0, 3),
    num_abnormal=st.integers(1, 3),
)
def test_whatever_is_duplicated_nothing_leaks(contents, seed, num_normal, num_abnormal):
    places = [("good", "train"), ("good", "test"), ("cut", "test"), ("dent", "test")]
    table = catalogue([(f"{i:02}", "a", *places[i % 4], str(content)) for i, content in enumerate(contents)])
    setup = Setup(num_normal, num_abnormal)
    try:
        episodes = TrainingEpisodes(table, (setup,), seed, episodes_per_epoch=20).epoch(0)
    except ValueError:  # too many duplicates for the references asked for
        reject()
    for episode in episodes:
        assert table.contents[episode.query] not in {
            table.contents[index] for index in (*episode.normal, *episode.abnormal)
        }
        assert (len(episode.normal), len(episode.abnormal)) == (num_normal, num_abnormal)
