"""Videos and cameras as input of `ideal detect`; a stand-in for OpenCV, and OpenCV itself where it is installed."""

import json
import sys
from types import SimpleNamespace

import numpy as np
import pytest

from modeling_ideal.cli import main
from modeling_ideal.detection.video import is_video, read_frames

from .pictures import photograph
from .test_line import DETECT, at_line, line  # noqa: F401 - fixtures


class Capture:
    """A video of five frames, or of none if its name says so."""

    opened: list = []  # noqa: RUF012 - of all captures

    def __init__(self, source):
        self.left = 0 if "empty" in str(source) else 5
        self.released = False
        Capture.opened.append((source, self))

    def grab(self):
        self.left -= 1
        return self.left >= 0

    def retrieve(self):
        return True, photograph(self.left)[..., ::-1]

    def release(self):
        self.released = True


@pytest.fixture
def opencv(monkeypatch):
    Capture.opened.clear()
    monkeypatch.setitem(sys.modules, "cv2", SimpleNamespace(VideoCapture=Capture, __spec__=SimpleNamespace()))
    return Capture.opened


def test_what_is_a_video():
    assert all(map(is_video, ["a.mp4", "b/c.AVI", "camera:0", "camera:12"]))
    assert not any(map(is_video, ["a.png", "camera", "camera:x", "camera:0.png", "mp4"]))


def test_frames_are_read_one_by_one_as_rgb(opencv):
    frames = read_frames("camera:3", every=2)
    first = next(frames)
    [(source, capture)] = opencv
    assert source == 3
    assert capture.left == 4  # the others are still to come
    assert first.name == "camera:3#000000"
    assert np.array_equal(first.picture, photograph(4))
    assert [frame.name for frame in frames] == ["camera:3#000002", "camera:3#000004"]
    assert capture.released
    with pytest.raises(
        ValueError, match=r"empty\.avi: expected a video or a camera that OpenCV can read, got no frame"
    ):
        list(read_frames("empty.avi", every=1))


def test_pictures_and_videos_together(at_line, opencv, capsys):  # noqa: F811
    for name in ("belt.mp4", "empty.mp4"):
        (at_line / name).write_bytes(b"")
    words = [*DETECT, "parts/000.png", "belt.mp4", "empty.mp4", "camera:0", "--every", "2", "--threshold", "1"]
    assert main(words) == 2
    entries = json.loads((at_line / "found" / "results.json").read_text())["images"]
    assert [entry["image"] for entry in entries] == [
        "parts/000.png",
        *(f"belt.mp4#{number:06}" for number in (0, 2, 4)),
        "empty.mp4",
        *(f"camera:0#{number:06}" for number in (0, 2, 4)),
    ]
    assert "got no frame" in entries[4]["error"]
    assert entries[1]["overlay"] == "overlays/belt_000000.png"
    assert entries[5]["overlay"] == "overlays/camera_0_000000.png"
    assert all((at_line / "found" / entry["overlay"]).is_file() for entry in entries if "overlay" in entry)
    page = (at_line / "found" / "report.html").read_text()
    assert page.count("data:image/jpeg") == 2 * 7
    capsys.readouterr()
    assert main([*words[:-4], "--every", "3", "--threshold", "1"]) == 2  # in the place of the first
    assert len(list((at_line / "found" / "overlays").iterdir())) == 1 + 2 * 2


def test_wrong_use_is_said_before_anything_is_loaded(at_line, opencv, monkeypatch, capsys):  # noqa: F811
    monkeypatch.setattr("modeling_ideal.detection.judging.load_pipeline", lambda _: pytest.fail("looked too late"))
    assert main([*DETECT, "none.mp4"]) == 3
    assert "IMAGES: expected a video file, got 'none.mp4'" in capsys.readouterr().err
    assert main([*DETECT, "camera:0", "--every", "0"]) == 3
    assert "--every: expected a number of frames >= 1, got 0" in capsys.readouterr().err
    monkeypatch.setattr("modeling_ideal.detection.video.find_spec", lambda _: None)
    assert main([*DETECT, "camera:0"]) == 3
    assert "camera:0: expected OpenCV to read a video or a camera, which is not installed" in capsys.readouterr().err


def test_a_real_video(tmp_path):
    cv2 = pytest.importorskip("cv2")
    path = str(tmp_path / "belt.avi")
    writer = cv2.VideoWriter(path, cv2.VideoWriter_fourcc(*"MJPG"), 10, (64, 48))
    for shade in (0, 60, 120, 180):
        writer.write(np.full((48, 64, 3), (0, 0, shade), np.uint8))  # red, in BGR
    writer.release()
    frames = list(read_frames(path, every=2))
    assert [frame.name for frame in frames] == [f"{path}#000000", f"{path}#000002"]
    assert frames[1].picture[..., 0].mean() == pytest.approx(120, abs=8)
    assert frames[1].picture[..., 2].mean() < 15
