"""Eight users at once of the endpoint's handler, then of the app, each with references of its own: ideal-tiny.

Every answer must equal the one that the same user gets alone, and memory must not grow: otherwise it fails.
"""

import json
import re
import tempfile
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image
from transformers import pipeline

from hub.handler import EndpointHandler
from modeling_ideal import IDEAL_TINY
from modeling_ideal.app.detector import Detector
from modeling_ideal.app.session import Session
from modeling_ideal.app.verdicts import verdict

from ..hub.uploads import base64_of
from ..pictures import texture, with_defect

USERS = 8
# The different things that a user does, over and over.
HANDLER_STEPS = 5  # with other references each: more than a handler keeps
APP_STEPS = 2
SECONDS = 300.0  # for the handler, and again for the app
SIZE = (240, 320)
GROWTH = "memory at the end, by that at half time"
MOST_GROWTH = 1.03

Step = Callable[[int], Any]  # does one of its steps, and returns what the user is told


def measure(seconds: float = SECONDS) -> dict[str, float]:
    return named("handler", drive_handler(IDEAL_TINY, seconds)) | named("app", drive_app(IDEAL_TINY, seconds))


def check(figures: dict[str, float]) -> None:
    """Raise RuntimeError if memory grew from half time to the end."""
    grown = {name: value for name, value in figures.items() if name.endswith(GROWTH) and value > MOST_GROWTH}
    if grown:
        raise RuntimeError(f"expected memory to grow by at most {MOST_GROWTH}, got {grown}")


def named(part: str, figures: dict[str, float]) -> dict[str, float]:
    return {f"{part}: {name}": figure for name, figure in figures.items()}


def drive_handler(folder: Path, seconds: float) -> dict[str, float]:
    """Eight users of an endpoint with the model in `folder`."""
    with serving(EndpointHandler(str(folder))) as address:
        return drive([handler_user(address, user) for user in range(USERS)], HANDLER_STEPS, seconds)


def drive_app(folder: Path, seconds: float) -> dict[str, float]:
    """Eight users of the app with the model in `folder`."""
    detector = Detector(pipeline("anomaly-detection", model=str(folder)))
    with tempfile.TemporaryDirectory() as name:
        return drive([app_user(detector, Path(name), user) for user in range(USERS)], APP_STEPS, seconds)


def drive(users: Sequence[Step], steps: int, seconds: float) -> dict[str, float]:
    """Let users act at once for some seconds, each in `steps` steps, over and over.

    An error of one of them, or another answer than the one that it got alone, is raised.
    """
    alone = [[user(step) for step in range(steps)] for user in users]
    for step in range(steps):
        answers = {json.dumps(answer[step]) for answer in alone}
        if len(answers) < len(users):
            raise RuntimeError(f"step {step}: expected {len(users)} different answers, got {len(answers)}")
    latencies: list[float] = []
    end = time.monotonic() + seconds

    def act(user: int) -> None:
        step = user  # not all begin with the same
        while (began := time.monotonic()) < end:
            answer = users[user](step % steps)
            latencies.append(time.monotonic() - began)
            if answer != alone[user][step % steps]:
                raise RuntimeError(f"user {user}: expected {alone[user][step % steps]} as alone, got {answer}")
            step += 1

    with ThreadPoolExecutor(len(users)) as pool:
        acting = [pool.submit(act, user) for user in range(len(users))]
        time.sleep(seconds / 2)
        half = resident_mebibytes()
        for each in acting:
            each.result()
    percentiles = dict(zip((50, 95, 99), np.percentile(latencies, (50, 95, 99)), strict=True))
    return {
        "answers": len(latencies),
        **{f"latency, {percent}th percentile, s": float(value) for percent, value in percentiles.items()},
        "memory at half time, MB": half,
        GROWTH: resident_mebibytes() / half,
    }


def resident_mebibytes() -> float:
    """Present memory of this process; on Linux only."""
    found = re.search(r"VmRSS:\s+(\d+) kB", Path("/proc/self/status").read_text())
    return int(found[1]) / 1024 if found else 0.0


@contextmanager
def serving(handler: EndpointHandler) -> Iterator[str]:
    """The address of a server that answers requests as an endpoint does, each in a thread of its own."""

    class Answering(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            try:
                status, answer = 200, handler(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            except ValueError as error:
                status, answer = 400, {"error": str(error)}
            body = json.dumps(answer).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            """Say nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Answering) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()


def parts_of(user: int) -> tuple[list[Image.Image], Image.Image, tuple[int, int, int, int]]:
    """References of a user: two good parts, and one with a defect in a box."""
    good = [texture(*SIZE, seed=100 * user + place) for place in range(2)]
    top, left, side = 20 + 15 * user, 30 + 20 * user, 24 + 4 * user
    bad, _ = with_defect(texture(*SIZE, seed=100 * user + 2), top, left, side)
    return [Image.fromarray(each) for each in good], Image.fromarray(bad), (left, top, left + side, top + side)


def queries() -> list[Image.Image]:
    """What all users judge: if references were mixed, answers would be."""
    return [Image.fromarray(with_defect(texture(*SIZE, seed=7 + place), 90, 120, 30 * place)[0]) for place in range(3)]


def handler_user(address: str, user: int) -> Step:
    """Asks for verdicts with references of its own, which it changes from step to step."""
    good, bad, box = parts_of(user)
    normal, abnormal = [base64_of(each) for each in good], [base64_of(bad)]
    images = [base64_of(each) for each in queries()]

    def act(step: int) -> Any:
        references = {
            "normal": normal[: 1 + step % 2],
            "abnormal": abnormal,
            "masks": [[box[0], box[1], box[2] + step, box[3]]],
            "false_alarm": 0,  # no threshold, which would take the longest
        }
        inputs = images if step == HANDLER_STEPS - 1 else images[step % len(images)]
        body = json.dumps({"inputs": inputs, "references": references}).encode()
        with urllib.request.urlopen(urllib.request.Request(address, body)) as answer:  # noqa: S310 - our own
            return json.load(answer)

    return act


def app_user(detector: Detector, folder: Path, user: int) -> Step:
    """Visits the page: adds references, has parts judged, and corrects a verdict."""
    good, bad, (left, top, right, bottom) = parts_of(user)
    mine = folder / str(user)
    mine.mkdir()
    mask = np.zeros(SIZE, bool)
    mask[top:bottom, left:right] = True

    def save(pictures: Sequence[Image.Image], name: str) -> list[Path]:
        files = [mine / f"{name}_{place}.png" for place in range(len(pictures))]
        for file, picture in zip(files, pictures, strict=True):
            picture.save(file)
        return files

    good_files, [bad_file], query_files = save(good, "good"), save([bad], "bad"), save(queries(), "query")

    def act(step: int) -> Any:
        session = Session()
        session.add_references(good_files[: 1 + step % 2], defective=False)
        session.add_references([bad_file], defective=True)
        session.mark(mask, f"spot of {user}")
        session.calibrate(detector)
        session.judge(detector, query_files[: 1 + step % len(query_files)])
        if step == APP_STEPS - 1:
            session.correct(detector)
        verdicts = [verdict(each, session.calibration, session.threshold) for each in session.judged]
        told = [
            [each["score"], each["label"], each.get("type"), float(each["anomaly_map"].sum())] for each in verdicts
        ]
        return [session.threshold, *told]

    return act
