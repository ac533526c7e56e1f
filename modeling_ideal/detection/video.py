"""Video files and cameras as sources of pictures, where OpenCV is installed."""

import re
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

VIDEOS = (".mp4", ".avi", ".mov", ".mkv", ".webm", ".m4v", ".mpg", ".mpeg", ".wmv")
_CAMERA = re.compile(r"camera:(\d+)")


class Frame(NamedTuple):
    """A picture of a video."""

    name: str  # the source, # and the number of the frame
    picture: np.ndarray  # (H, W, 3) uint8


def is_video(word: str) -> bool:
    """Whether an argument of the command line is a video file, by its extension, or a camera, such as `camera:0`."""
    return _CAMERA.fullmatch(word) is not None or word.lower().endswith(VIDEOS)


def check_videos(words: list[str], every: int) -> None:
    """Refuse videos that cannot be read, before anything is loaded."""
    if every < 1:
        raise ValueError(f"--every: expected a number of frames >= 1, got {every}")
    if words and find_spec("cv2") is None:
        raise ValueError(
            f"{words[0]}: expected OpenCV to read a video or a camera, which is not installed: "
            "pip install 'modeling-ideal[video]'"
        )
    for word in words:
        if not _CAMERA.fullmatch(word) and not Path(word).expanduser().is_file():
            raise ValueError(f"IMAGES: expected a video file, got {word!r}")


def read_frames(word: str, every: int) -> Iterator[Frame]:
    """Yield each `every`-th frame of a video file or camera, beginning with the first; one after another, not all.

    Raises ValueError if there is none.
    """
    import cv2

    camera = _CAMERA.fullmatch(word)
    capture: Any = cv2.VideoCapture(int(camera[1]) if camera else str(Path(word).expanduser()))
    number = 0
    try:
        while capture.grab():
            if number % every == 0:
                decoded, picture = capture.retrieve()
                if not decoded:
                    break
                yield Frame(f"{word}#{number:06}", np.ascontiguousarray(picture[..., ::-1]))  # BGR to RGB
            number += 1
    finally:
        capture.release()
    if not number:
        raise ValueError(f"{word}: expected a video or a camera that OpenCV can read, got no frame")


def frame_file(name: str) -> Path:
    """A file name for a frame, from the name of the frame."""
    source, number = name.rsplit("#", 1)
    return Path(f"{Path(source).stem.replace(':', '_')}_{number}.png")
