"""Many pictures at a time, one a core: results, order and errors are those of one after another."""

import threading

import numpy as np
import pytest

from modeling_ideal import AnomalyDetectionPipeline, IdealImageProcessor
from modeling_ideal.detection.judging import Judge

from .conftest import PATCH, threads, tiny_model
from .pictures import photograph

NAMES = [f"{place}.png" for place in range(11)]


@pytest.fixture
def pipe():
    pipe = AnomalyDetectionPipeline(
        model=tiny_model(), image_processor=IdealImageProcessor(size=8 * PATCH, patch_size=PATCH)
    )
    with pytest.warns(UserWarning, match="not calibrated"):
        pipe.set_references(normal=[photograph(0)], false_alarm=0)
    return pipe


def judge(pipe, at_once, **changes):
    with threads(at_once):
        return Judge(pipe, **{"batch_size": 4, "num_workers": 0, "debug": False, "smoothing": 4.0, **changes})


def pictures(folder):
    """Eleven pictures of two sizes, some of which cannot be read."""
    made = [photograph(place, (30, 40) if place % 3 else (50, 20)) for place in range(len(NAMES))]
    made[2] = folder / "none.png"
    made[9] = np.full((4, 4), np.nan)
    return made


def test_results_and_errors_are_those_of_one_after_another(pipe, tmp_path):
    expected = list(judge(pipe, 1)(pictures(tmp_path), NAMES))
    assert ["error" in result for result in expected] == [place in (2, 9) for place in range(len(NAMES))]
    for got, wanted in zip(judge(pipe, 3)(pictures(tmp_path), NAMES), expected, strict=True):
        assert got.keys() == wanted.keys()
        if "error" in wanted:
            assert got == wanted
            continue
        assert got["score"] == pytest.approx(wanted["score"], abs=1e-6)
        np.testing.assert_allclose(got["anomaly_map"], wanted["anomaly_map"], atol=1e-6)


def test_each_is_finished_where_it_was_judged_and_only_some_are_ahead(pipe, monkeypatch):
    places, begun, judging, predict = [], [], judge(pipe, 3), pipe.run_single

    def finish(picture, result):
        places.append(threading.current_thread().name)
        return {**result, "pixels": picture.shape}

    def noted(picture, *steps):
        begun.append(picture)
        return predict(picture, *steps)

    monkeypatch.setattr(pipe, "run_single", noted)
    names = [str(place) for place in range(30)]
    results = judging._in_threads([photograph(place) for place in range(30)], names, finish)
    for done in range(1, 31):
        assert next(results)["pixels"] == (30, 40, 3)
        assert len(begun) <= done - 1 + 2 * 3
    assert threading.current_thread().name not in places


def test_an_unexpected_error_is_tried_again_and_then_stays_with_its_picture(pipe, monkeypatch):
    made = [photograph(place) for place in range(6)]
    judging, predict, failed = judge(pipe, 2), pipe.run_single, []

    def unlucky(picture, *steps):
        place = next(place for place in range(6) if np.array_equal(picture, made[place]))
        if place == 1 or (place == 4 and 4 not in failed):
            failed.append(place)
            raise MemoryError("too little")
        return predict(picture, *steps)

    monkeypatch.setattr(pipe, "run_single", unlucky)
    results = list(judging._in_threads(made, NAMES[:6], lambda _, result: result))
    assert results[1] == {"error": "1.png: expected a picture that can be judged, got MemoryError: too little"}
    assert ["error" in result for result in results] == [False, True, False, False, False, False]
    assert failed.count(4) == 1
    judging.debug = True
    with pytest.raises(MemoryError, match="too little"):
        list(judging._in_threads(made, NAMES[:6], lambda _, result: result))


@pytest.mark.parametrize("changes", [{"num_workers": 1}, {"tiled": True}])
def test_pictures_go_one_by_one_where_that_is_better(pipe, changes):
    assert judge(pipe, 4).at_once == 4
    assert judge(pipe, 4, **changes).at_once == 1


def test_wrong_options_are_refused_at_once(pipe):
    with pytest.raises(ValueError, match="batch_size: expected an integer >= 1, got 0"):
        judge(pipe, 2, batch_size=0)([photograph(0)] * 4, NAMES[:4])
    with pytest.raises(ValueError, match=r"threshold: expected a number in 0\.\.1"):
        judge(pipe, 2, threshold=2.0)([photograph(0)] * 4, NAMES[:4])
