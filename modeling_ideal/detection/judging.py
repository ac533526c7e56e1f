"""Judge pictures one after another, so that no picture can take the others down with it."""

import argparse
import re
from collections.abc import Iterator, Sequence
from typing import Any

from torch.utils.data import Dataset

from ..image_inputs import ImageInput
from ..pipeline_ideal import AnomalyDetectionPipeline
from ..references import IdealReferences
from .commands import load_pipeline, set_references
from .drift import DriftWatch

_PLACE = re.compile(r"^images?(\[\d+\])?: (\d+ bytes: )?")  # what the pipeline calls a picture in its errors


class Judge:
    """A pipeline with its references and options, for pictures that have names.

    Args:
        pipe: the pipeline, with references.
        batch_size: number of pictures at a time.
        num_workers: number of processes that read pictures.
        debug: raise an unexpected error, instead of making it the result of its picture.
        options: further arguments of the pipeline.
    """

    def __init__(
        self, pipe: AnomalyDetectionPipeline, batch_size: int, num_workers: int, debug: bool, **options: Any
    ) -> None:
        self.pipe: Any = pipe  # whose results depend on its inputs
        self.debug = debug
        self.options = {**options, "return_regions": True, "return_overlay": True}
        self.reading = {"batch_size": batch_size, "num_workers": num_workers}

    def __call__(self, pictures: Sequence[ImageInput], names: Sequence[str]) -> Iterator[dict[str, Any]]:
        """Yield a result of the pipeline for each picture, or `{"error": ...}` that begins with its name.

        What is wrong with the options raises ValueError at once.
        """
        return self._results(self._start(pictures), pictures, names)

    def _start(self, pictures: Sequence[ImageInput]) -> Iterator[dict[str, Any]]:
        return self.pipe(_Pictures(pictures), **self.reading, **self.options)

    def _results(
        self, results: Iterator[dict[str, Any]], pictures: Sequence[ImageInput], names: Sequence[str]
    ) -> Iterator[dict[str, Any]]:
        done = 0
        while done < len(pictures):
            try:
                for result in results:
                    done += 1
                    yield _named(result, names[done - 1])
            except Exception:  # not a matter of reading, such as memory: the batch again, picture by picture
                if self.debug:
                    raise
                for _ in range(min(self.reading["batch_size"], len(pictures) - done)):
                    done += 1
                    yield self._alone(pictures[done - 1], names[done - 1])
                results = self._start(pictures[done:])

    def _alone(self, picture: ImageInput, name: str) -> dict[str, Any]:
        try:
            return self.pipe(picture, **self.options)
        except ValueError as error:
            return _named({"error": str(error)}, name)
        except Exception as error:
            first = next(iter(str(error).splitlines()), "")
            return {"error": f"{name}: expected a picture that can be judged, got {type(error).__name__}: {first}"}


class _Pictures(Dataset):
    """Pictures as a data set with an index, which the pipeline reads in several processes, on demand."""

    def __init__(self, pictures: Sequence[ImageInput]) -> None:
        self.pictures = pictures

    def __len__(self) -> int:
        return len(self.pictures)

    def __getitem__(self, index: int) -> ImageInput:
        return self.pictures[index]


def _named(result: dict[str, Any], name: str) -> dict[str, Any]:
    """A result, with the name of its picture at the beginning of an error."""
    if "error" not in result:
        return result
    message = _PLACE.sub("", result["error"])
    return {"error": message if message.startswith(name) else f"{name}: {message}"}


def load_judge(arguments: argparse.Namespace) -> tuple[Judge, dict[str, Any], DriftWatch]:
    """Load references and model; returns the judge, what results say of them, and what notices drift."""
    loaded = IdealReferences.load(arguments.references)  # before the model: a damaged file is noticed at once
    pipe = load_pipeline(arguments)
    references = set_references(pipe, references=loaded)
    beware = references.warnings if arguments.threshold is None else []  # they are about the other threshold
    options = {name: getattr(arguments, name) for name in ("threshold", "smoothing", "batch_size", "num_workers")}
    facts = {
        "model": str(pipe.model.name_or_path),
        "references": str(arguments.references),
        "warnings": beware,
    }
    return Judge(pipe, debug=getattr(arguments, "debug", False), **options), facts, DriftWatch(references)
