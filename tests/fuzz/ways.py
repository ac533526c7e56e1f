"""The ways in: each takes a sample; `FaultError` if neither a right result nor a clear refusal comes out."""

import base64
import contextlib
import csv
import io
import json
import math
import shutil
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from hub.handler import EndpointHandler
from modeling_ideal import AnomalyDetectionPipeline, IdealImageProcessor, IdealReferences
from modeling_ideal.app.detector import Detector
from modeling_ideal.app.session import Session
from modeling_ideal.cli import main
from modeling_ideal.writing.files import write_atomically

from .names import odd_name
from .samples import JUDGED, REFUSED, Sample, encoded, smooth

LONGEST_MESSAGE = 1000
CLOSE = 1e-4  # of a score, or of a value of the model's input; pictures of 16 bits and of floats differ by rounding


class FaultError(AssertionError):
    """What must not happen."""


class Ways:
    """A tiny model with references, behind each way in.

    Args:
        repository: a Hub repository of the model.
        folder: an empty folder to work in.
    """

    def __init__(self, repository: Path, folder: Path) -> None:
        self.folder, self.repository = folder, repository
        random = np.random.default_rng(0)
        self.normal, self.good = [smooth(random) for _ in range(2)], smooth(random)
        self.handler = EndpointHandler(str(repository))
        self.pipe: AnomalyDetectionPipeline = self.handler.pipe
        self.processor: IdealImageProcessor = self.pipe.image_processor
        self.detector = Detector(self.pipe)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of what so few references support
            self.references = self.pipe.set_references(normal=self.normal)
        self.file = folder / "references.safetensors"
        self.references.save(self.file)
        self.expected = self.score_of(self.good)
        self.uploads = {"normal": [base64.b64encode(encoded(pixels)).decode() for pixels in self.normal]}

    def score_of(self, pixels: np.ndarray) -> float:
        """The score of a picture that is given as an array."""
        return self.pipe(pixels)["score"]

    def through_processor(self, sample: Sample) -> str:
        """As a query, alone."""
        with refusals() as refused:
            query = self.processor(query=[sample.value])["query"].numpy()
            check(query.shape[1:] == (3, 32, 32) and np.isfinite(query).all(), f"a query of shape {query.shape}")
            if sample.shown is not None:
                expected = self.processor(query=sample.shown)["query"].numpy()
                check(np.abs(query - expected).max() < CLOSE, "the values of another picture")
        return outcome(sample, refused)

    def through_mask(self, sample: Sample) -> str:
        """As the mask of an abnormal reference."""
        with refusals() as refused:
            masks = self.processor(abnormal_refs=[self.good], masks=[sample.value])["masks"].numpy()
            check(masks.shape == (1, 32, 32) and masks.dtype == bool and masks.any(), f"a mask of shape {masks.shape}")
        return "refused" if refused else "judged"  # what is no picture may be a mask

    def through_references(self, sample: Sample) -> str:
        """As a normal reference beside a good one."""
        with refusals() as refused:
            references = self.pipe.encode_references(normal=[self.good, sample.value], false_alarm=0)
            references.check_values()
            if sample.shown is not None:
                expected = self.pipe.encode_references(normal=[self.good, sample.shown], false_alarm=0)
                difference = references.normal_features[0] - expected.normal_features[0]
                check(float(difference.abs().max()) < 100 * CLOSE, "the features of another picture")
        return outcome(sample, refused)

    def through_pipeline(self, sample: Sample) -> str:
        """As a query alone, and among others, which must not suffer."""
        with refusals() as refused:
            alone = self.pipe(sample.value, return_regions=True, return_overlay=True)
            if isinstance(alone, dict):  # a list of pictures gives a list
                self.check_result(alone, sample)
        among = self.pipe([self.good, sample.value, self.good])
        check(len(among) == 3, f"{len(among)} results for 3 pictures")
        check(among[0]["score"] == among[2]["score"] == self.expected, "another score for the picture beside it")
        check(bool(refused) == ("error" in among[1]), f"alone {refused or 'judged'}, among others {among[1]}")
        if refused:
            check_message(among[1]["error"])
        return outcome(sample, refused)

    def through_handler(self, sample: Sample) -> str:
        """As an upload, if it is a file."""
        content = sample.value if isinstance(sample.value, bytes) else b""
        with refusals() as refused:
            texts = [base64.b64encode(part).decode() for part in (content, encoded(self.good))]
            bad, good = self.handler({"inputs": texts, "references": {**self.uploads, "false_alarm": 0}})
            check(good["score"] == self.expected, "another score for the picture beside it")
            if "error" in bad:
                raise ValueError(bad["error"])
            json.dumps(bad, allow_nan=False)
            with Image.open(io.BytesIO(base64.b64decode(bad.pop("anomaly_map")))) as drawn:
                self.check_result({**bad, "anomaly_map": np.asarray(drawn) / 65535}, sample)
        if sample.fate == REFUSED and isinstance(sample.value, bytes):
            check(bool(refused), "judged what must be refused")
        return "refused" if refused else "judged"  # an endpoint has closer limits

    def through_app(self, sample: Sample) -> str:
        """As an upload of a visitor of the app, if it is a file, before a good one: to judge, then as a reference."""
        content = sample.value if isinstance(sample.value, bytes) else b""
        name = odd_name(np.random.default_rng(list(content[:8])))
        files = [self.folder / "uploads" / "0" / name, self.folder / "uploads" / "1" / name]
        shutil.rmtree(self.folder / "uploads", ignore_errors=True)
        for file, written in zip(files, (content, encoded(self.good)), strict=True):
            file.parent.mkdir(parents=True)
            file.write_bytes(written)
        session = Session(references=self.references)
        with refusals() as refused:
            if told := session.judge(self.detector, files):
                raise ValueError(told)
            bad = session.judged[0]
            check(np.isfinite(bad.anomaly_map).all(), "a map that is not finite")
            if sample.shown is not None:
                check(bad.picture.size == sample.shown.shape[:2], f"a picture of {bad.picture.size}")
                check(abs(bad.score - self.score_of(sample.shown)) < CLOSE, "the score of another picture")
        check(len(session.judged) == 2 - len(refused), f"{len(session.judged)} of 2 judged, told {refused}")
        check(session.judged[-1].score == self.expected, "another score for the picture beside it")
        told = session.add_references(files, defective=False)
        check(
            len(session.new) == len(session.judged), f"to judge {refused or 'taken'}, as a reference {told or 'taken'}"
        )
        if not refused:
            check(sample.fate != REFUSED and content != b"", "judged what must be refused")
            return "judged"
        usual = content.startswith((b"\x89PNG", b"\xff\xd8"))  # the app does not take every format
        check(not (usual and sample.fate == JUDGED), f"refused what must be judged: {refused[0]}")
        return "refused"

    def through_command_line(self, samples: list[Sample], random: np.random.Generator) -> str:
        """As files with odd names, in one run of `ideal detect`."""
        place = self.folder / "case"
        shutil.rmtree(place, ignore_errors=True)
        given: dict[str, Sample] = {}
        for number, sample in enumerate(samples):
            path = place / "in" / str(number) / odd_name(random)
            path.parent.mkdir(parents=True)
            path.write_bytes(sample.value if isinstance(sample.value, bytes) else encoded(self.good))
            given[str(path)] = sample
        out, told = io.StringIO(), io.StringIO()
        words = [
            "detect",
            "--model",
            str(self.repository),
            "--references",
            str(self.file),
            "--out",
            str(place / "out"),
        ]
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(told):
            code = main([*words, "--device", "cpu", str(place / "in")])
        check(code in (0, 1, 2), f"exit code {code}: {told.getvalue()[-500:]}")
        results = json.loads((place / "out" / "results.json").read_text("utf-8", "backslashreplace"))["images"]
        check(
            [entry["image"] for entry in results] == sorted(given, key=_folder_number), "other names than the files'"
        )
        for entry, sample in zip(results, given.values(), strict=True):
            self.check_entry(entry, sample)
        check(code == 2 if any("error" in entry for entry in results) else code < 2, f"exit code {code}")
        self.check_outputs(place / "out", len(results), out.getvalue())
        return "refused" if code == 2 else "judged"

    def check_entry(self, entry: dict[str, Any], sample: Sample) -> None:
        """Check an entry of results.json."""
        if not isinstance(sample.value, bytes):
            check("error" not in entry, f"refused a good picture: {entry}")
            return
        if "error" in entry:
            check_message(entry["error"].removeprefix(entry["image"]))
            check(sample.fate != JUDGED, f"refused what must be judged: {entry['error']}")
            return
        check(sample.fate != REFUSED, "judged what must be refused")
        if sample.shown is not None:
            check(abs(entry["score"] - self.score_of(sample.shown)) < CLOSE, "the score of another picture")

    def check_outputs(self, out: Path, count: int, printed: str) -> None:
        """Check what people and other programs read."""
        with open(out / "results.csv", encoding="utf-8", newline="") as stream:
            rows = list(csv.reader(stream))
        check(len(rows) == count + 1 and all(len(row) == len(rows[0]) for row in rows), "a torn table")
        check(len(printed.splitlines()) <= count + 6 and "\x1b" not in printed, "a torn table on the terminal")
        check("<script>" not in (out / "report.html").read_text("utf-8"), "a script in the report")

    def through_references_file(self, random: np.random.Generator) -> str:
        """A references file with damaged bytes: most of all in its header, the rest being numbers."""
        content = bytearray(self.file.read_bytes())
        header = int.from_bytes(content[:8], "little") + 8
        for place in random.integers(header, size=random.integers(1, 8)):
            content[place] = int(random.integers(256))
        if random.integers(3) == 0:
            content = content[: random.integers(len(content))]
        path = self.folder / "damaged.safetensors"
        write_atomically(path, bytes(content))
        with refusals() as refused:
            self.pipe.encode_references(IdealReferences.load(path))
            self.pipe(self.good, references=path)
        return "refused" if refused else "judged"

    def check_result(self, result: dict[str, Any], sample: Sample) -> None:
        """Check a result of the pipeline."""
        check(0 <= result["score"] <= 1 and math.isfinite(result["threshold"]), f"score {result['score']}")
        check(
            result["label"] == ("anomalous" if result["score"] >= result["threshold"] else "normal"), "a wrong label"
        )
        check(np.isfinite(result["anomaly_map"]).all(), "a map that is not finite")
        if sample.shown is not None:
            check(result["anomaly_map"].shape == sample.shown.shape[:2], f"a map {result['anomaly_map'].shape}")
            check(abs(result["score"] - self.score_of(sample.shown)) < CLOSE, "the score of another picture")


def _folder_number(path: str) -> int:
    return int(Path(path).parent.name) if Path(path).parent.name.isdigit() else -1


@contextlib.contextmanager
def refusals() -> Iterator[list[str]]:
    """Collect the message of a ValueError, which must be a clear one."""
    refused: list[str] = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            yield refused
        except FaultError:
            raise
        except ValueError as error:
            refused.append(str(error))
            check_message(str(error))


def check_message(message: str) -> None:
    """Check that an error says what was expected, in a line of a bearable length."""
    check("expected" in message and "got" in message, f"an unclear message: {message!r}")
    check(len(message) < LONGEST_MESSAGE, f"a message of {len(message)} letters: {message[:200]!r}...")
    check(" at 0x" not in message, f"a place in memory in a message: {message!r}")


def outcome(sample: Sample, refused: list[str]) -> str:
    """What became of a sample, if that is right."""
    if refused:
        check(sample.fate != JUDGED, f"refused what must be judged: {refused[0]}")
        return "refused"
    check(sample.fate != REFUSED, "judged what must be refused")
    return "judged"


def check(holds: bool, fault: str) -> None:
    """Raise `FaultError` unless a condition holds."""
    if not holds:
        raise FaultError(fault)


Single = Callable[[Ways, Sample], str]
SINGLE: dict[str, Single] = {
    "processor": Ways.through_processor,
    "mask": Ways.through_mask,
    "references": Ways.through_references,
    "pipeline": Ways.through_pipeline,
    "handler": Ways.through_handler,
    "app": Ways.through_app,
}
