"""Judge pictures, as many at a time as there are cores, so that no picture can take the others down with it."""

import argparse
import re
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import cached_property
from typing import Any

import torch
from torch.utils.data import Dataset

from ..image_inputs import ImageInput, load_image
from ..pipeline_ideal import AnomalyDetectionPipeline
from ..references import IdealReferences
from ..threads import lone_threads
from .commands import load_pipeline, set_references
from .drift import DriftWatch

_PLACE = re.compile(r"^images?(\[\d+\])?: (\d+ bytes: )?")  # what the pipeline calls a picture in its errors

Finish = Callable[[ImageInput, dict[str, Any]], dict[str, Any]]  # takes a picture and its result


class Judge:
    """A pipeline with its references and options, for pictures that have names.

    On a CPU, each core takes a picture of its own from the file to the end, in a thread without further threads: while
    one reads or draws, the others compute, and no core waits for another after each operation of the backbone. One
    thread per picture also gives the same digits however pictures are shared out. A picture that comes alone has all
    cores.

    Args:
        pipe: the pipeline, with references.
        batch_size: number of pictures at a time.
        num_workers: number of processes that read pictures; with any, pictures are judged one by one.
        tiled: whether the references are, so that one picture is work enough for all cores.
        debug: raise an unexpected error, instead of making it the result of its picture.
        options: further arguments of the pipeline.
    """

    def __init__(
        self,
        pipe: AnomalyDetectionPipeline,
        batch_size: int,
        num_workers: int,
        debug: bool,
        tiled: bool = False,
        **options: Any,
    ) -> None:
        self.pipe: Any = pipe  # whose results depend on its inputs
        self.debug = debug
        self.options = {**options, "return_regions": True, "return_overlay": True}
        self.reading = {"batch_size": batch_size, "num_workers": num_workers}
        one_by_one = pipe.model.device.type != "cpu" or num_workers or tiled
        self.at_once = 1 if one_by_one else torch.get_num_threads()

    def __call__(
        self, pictures: Sequence[ImageInput], names: Sequence[str], finish: Finish = lambda _, result: result
    ) -> Iterator[dict[str, Any]]:
        """Yield a result of the pipeline for each picture, or `{"error": ...}` that begins with its name, in order.

        What is wrong with the options raises ValueError at once.

        Args:
            pictures: the pictures.
            names: what to call them.
            finish: applied to each picture and its result, in any thread.
        """
        started = self._start(pictures)  # nothing but the check of the options
        if self.at_once > 1 and len(pictures) > 1:
            return self._in_threads(pictures, names, finish)
        results = zip(pictures, self._results(started, pictures, names), strict=True)
        return (finish(picture, result) for picture, result in results)

    @cached_property
    def _threads(self) -> ThreadPoolExecutor:
        return lone_threads(self.at_once)

    def _in_threads(
        self, pictures: Sequence[ImageInput], names: Sequence[str], finish: Finish
    ) -> Iterator[dict[str, Any]]:
        """Judge a picture per thread, up to twice as many ahead of the one that is yielded."""
        ahead: deque[tuple[ImageInput, str, Future]] = deque()
        steps = self.pipe.steps(**self.options)  # once: the check of the references takes a while
        try:
            for picture, name in zip(pictures, names, strict=True):
                ahead.append((picture, name, self._threads.submit(self._finished, picture, name, steps, finish)))
                if len(ahead) == 2 * self.at_once:
                    yield self._next(ahead, finish)
            while ahead:
                yield self._next(ahead, finish)
        finally:
            for _, _, future in ahead:
                future.cancel()

    def _finished(
        self, picture: ImageInput, name: str, steps: tuple[dict, dict, dict], finish: Finish
    ) -> dict[str, Any] | None:
        """The finished result of a picture, in one of the threads; None after an unexpected error, such as memory."""
        pixels = picture
        try:
            pixels = load_image(picture, "image")  # once, for the pipeline and for `finish`
            result = self.pipe.run_single(pixels, *steps)
        except ValueError as error:
            result = _named({"error": str(error)}, name)
        except Exception:
            if self.debug:
                raise
            return None
        return finish(pixels, result)

    def _next(self, ahead: deque[tuple[ImageInput, str, Future]], finish: Finish) -> dict[str, Any]:
        picture, name, future = ahead.popleft()
        result = future.result()
        return finish(picture, self._alone(picture, name)) if result is None else result

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
    tiled = references.tile_size is not None
    judge = Judge(pipe, debug=getattr(arguments, "debug", False), tiled=tiled, **options)
    return judge, facts, DriftWatch(references)
