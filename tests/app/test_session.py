"""What a user does in the app, without a browser."""

import copy

import numpy as np
import pytest

from modeling_ideal import IdealReferences
from modeling_ideal.app import session as session_module
from modeling_ideal.app.session import Session
from modeling_ideal.app.verdicts import verdict

from .conftest import SIZE

MASK = np.zeros(SIZE, bool)
MASK[40:70, 60:90] = True


@pytest.fixture
def taught(detector, files):
    """A session with three good references and one with a marked defect, which has judged two parts."""
    session = Session()
    session.add_references([files[f"good_{place}"] for place in range(3)], defective=False)
    session.add_references([files["bad_0"]], defective=True)
    session.mark(MASK, "spot")
    session.calibrate(detector)
    session.judge(detector, [files["part_0"], files["bad_1"]])
    return session


@pytest.fixture
def encoded(pipe):
    """The number of pictures that pass through the backbone, in a list of one."""
    count = [0]

    def add(module, arguments, output):
        count[0] += len(arguments[0])

    handle = pipe.model.backbone.register_forward_hook(add)
    yield count
    handle.remove()


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_references_and_verdicts_are_those_of_the_pipeline(taught, pipe, files):
    references = pipe.encode_references(
        normal=[files[f"good_{place}"] for place in range(3)], abnormal=[files["bad_0"]], masks=[MASK], types=["spot"]
    )
    assert taught.calibration == references.calibration
    assert taught.threshold == references.calibration.threshold
    for judged, name in zip(taught.judged, ("part_0", "bad_1"), strict=True):
        for threshold in (None, 0.0):
            expected = pipe(files[name], references=references, threshold=threshold, return_regions=True)
            asked = taught.threshold if threshold is None else threshold
            found = verdict(judged, taught.calibration, asked)
            assert np.array_equal(found.pop("anomaly_map"), expected.pop("anomaly_map"))
            found.pop("overlay")
            assert found == expected


def test_moving_the_threshold_needs_no_model(taught, encoded):
    for threshold, label in ((0.0, "anomalous"), (1.0, "normal")):
        taught.move(threshold)
        assert {verdict(each, taught.calibration, taught.threshold)["label"] for each in taught.judged} == {label}
    taught.reset_threshold()
    assert taught.threshold == taught.calibration.threshold
    assert encoded == [0]


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_a_false_alarm_becomes_a_good_reference_and_the_others_are_not_encoded_again(
    taught, detector, pipe, files, encoded
):
    taught.move(0.0)
    taught.choose("selected", 0)
    assert not taught.missed_defect()
    said = taught.correct(detector)
    assert "part_0.png is now a reference of a good part" in said
    assert encoded == [2]  # the new reference, and the other part, which is judged again
    assert [each.picture.name for each in taught.judged] == ["bad_1.png"]
    assert (taught.references.num_normal, taught.references.num_abnormal) == (4, 1)
    expected = pipe.encode_references(
        normal=[files["good_0"], files["good_1"], files["good_2"], files["part_0"]],
        abnormal=[files["bad_0"]],
        masks=[MASK],
        types=["spot"],
    )
    assert taught.threshold == pytest.approx(expected.calibration.threshold)


@pytest.mark.parametrize("marked", [True, False])
def test_a_missed_defect_becomes_a_reference_marked_or_not(taught, detector, marked):
    taught.move(1.0)
    taught.choose("selected", 1)
    assert taught.missed_defect()
    assert taught.begin_marking() == ""
    assert taught.marking_missed
    said = taught.correct(detector, MASK if marked else None)
    assert "bad_1.png is now a reference of a defective part" in said
    assert (taught.references.num_abnormal, taught.references.mask_source) == (2, "given")
    assert taught.references.types == ["spot", "unknown"]
    mask = taught.own[-1].mask
    assert mask.any()  # the most suspicious region, if it is not marked
    assert np.array_equal(mask, MASK) == marked
    assert not taught.marking_missed


def test_defects_are_marked_in_all_or_in_none(detector, files):
    session = Session()
    session.add_references([files["good_0"], files["good_1"]], defective=False)
    session.add_references([files["bad_0"], files["bad_1"]], defective=True)
    assert session.chosen == 2
    session.mark(MASK, "")
    assert session.chosen == 3  # the next one to mark
    with pytest.raises(ValueError, match=r"marked in every defective picture or in none, got bad_1.png unmarked"):
        session.calibrate(detector)
    assert len(session.new) == 4  # nothing is lost
    assert "nothing is painted or drawn" in session.mark(None, "")
    session.choose("chosen", 2)
    session.mark(None, "")
    session.calibrate(detector)
    assert session.references.mask_source == "estimated"
    session.add_references([files["bad_1"]], defective=True)
    session.mark(MASK, "")
    with pytest.raises(ValueError, match="got those of the references unmarked"):
        session.calibrate(detector)


def test_references_can_be_removed_changed_and_cleared(taught, detector, files):
    taught.add_references([files["good_0"]], defective=False)
    taught.choose("chosen", 0)
    taught.remove()
    assert taught.new == []
    with pytest.raises(ValueError, match="expected a chosen picture, got none"):
        taught.remove()
    threshold = taught.threshold
    taught.change(detector)
    assert [picture.name for picture in taught.new] == ["good_0.png", "good_1.png", "good_2.png", "bad_0.png"]
    assert (taught.references, len(taught.judged)) == (None, 2)
    with pytest.raises(ValueError, match="expected references and a selected picture, got no references"):
        taught.correct(detector)
    with pytest.raises(ValueError, match="expected references that were added on this page, got none"):
        taught.change(detector)
    taught.calibrate(detector)
    assert (taught.threshold, len(taught.judged)) == (threshold, 2)
    taught.clear()
    assert taught == Session(_folder=taught._folder)


def test_a_references_file_is_loaded_and_extended(taught, detector, files, tmp_path):
    taught.references.save(tmp_path / "part.safetensors")
    other = Session()
    assert other.load(detector, tmp_path / "part.safetensors") == "part.safetensors is loaded."
    assert other.threshold == taught.threshold
    other.add_references([files["part_1"]], defective=False)
    other.calibrate(detector)
    assert (other.references.num_normal, other.references.num_abnormal) == (4, 1)
    other.change(detector)
    assert other.references is other.loaded
    assert other.calibration == taught.calibration


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_a_smaller_bank_of_a_file_stays_small(pipe, detector, files, tmp_path):
    pipe.encode_references(normal=[files["good_0"], files["good_1"]], max_patches=21).save(
        tmp_path / "few.safetensors"
    )
    session = Session()
    session.load(detector, tmp_path / "few.safetensors")
    session.add_references([files["good_2"]], defective=False)
    session.calibrate(detector)
    assert (session.references.num_normal, len(session.references.normal_features[0])) == (3, 21)


def test_what_is_no_references_file_is_refused_and_changes_nothing(taught, detector, files, tmp_path, monkeypatch):
    before = taught.references
    with pytest.raises(ValueError, match=r"^text.png: expected a safetensors file of IDEAL references") as caught:
        taught.load(detector, files["text"])
    assert str(files["text"].parent) not in str(caught.value)
    monkeypatch.setattr(session_module, "MOST_REFERENCE_BYTES", 10)
    with pytest.raises(ValueError, match=r"text.png: expected at most 0 MB, got 0.0 MB"):
        taught.load(detector, files["text"])
    assert taught.references is before


def test_there_are_limits(taught, detector, files, monkeypatch):
    monkeypatch.setattr(session_module, "MOST_REFERENCES", 4)
    monkeypatch.setattr(session_module, "MOST_QUERIES", 2)
    assert taught.add_references([files["good_0"]], defective=False).endswith("pictures, got more")
    assert taught.judge(detector, [files["part_1"]]) == "part_1.png: expected at most 2 pictures, got more"
    with pytest.raises(ValueError, match="expected at most 4 references, got one more"):
        taught.correct(detector)


def test_references_that_change_meanwhile_are_noticed(taught, detector, files):
    def change(items, text):
        taught.references = None
        return items

    with pytest.raises(ValueError, match="expected the same references until all is judged, got others"):
        taught.judge(detector, [files["part_1"]], change)
    assert len(taught.judged) == 2


def test_what_is_missing_is_said(detector, files):
    session = Session()
    for action, message in (
        (lambda: session.calibrate(detector), "expected pictures of good or defective parts first"),
        (lambda: session.judge(detector, [files["part_0"]]), "expected references first"),
        (lambda: session.correct(detector), "expected references and a selected picture, got no references"),
        (lambda: session.mark(MASK, ""), "expected a chosen picture of a defective part, got none"),
    ):
        with pytest.raises(ValueError, match=message):
            action()


def test_sessions_share_nothing(taught, detector, files):
    other = copy.deepcopy(Session())  # as Gradio makes one
    other.add_references([files["part_2"]], defective=False)
    other.calibrate(detector)
    assert (taught.references.num_normal, other.references.num_normal) == (3, 1)
    assert taught.folder() != other.folder()
    assert isinstance(taught.references, IdealReferences)
    assert other.judged == []


def test_an_example_shows_all_at_once(detector):
    session = Session()
    told = []

    def progress(items, text):
        told.append(text)
        return items

    session.take_example(detector, "flange", progress)
    assert (session.references.num_normal, session.references.mask_source) == (4, "given")
    assert len(session.judged) == 4
    assert told == ["Rendering", "Judging"]
    assert {each.picture.name for each in session.judged} == {f"part_{place}.png" for place in range(1, 5)}
    with pytest.raises(ValueError, match="expected an example among flange, cloth, wood, got 'glass'"):
        session.take_example(detector, "glass")
