"""Handler of a Hugging Face Inference Endpoint for IDEAL, with JSON requests and responses.

    {"inputs": IMAGE or [IMAGE, ...],
     "references": {"name": "bottle"}                    stored in the repository as references/bottle.safetensors
                or {"file": BASE64}                      the bytes of such a file
                or {"normal": [IMAGE, ...], "abnormal": [IMAGE, ...], "masks": [IMAGE, box or polygon, ...],
                    "types": [NAME, ...], "false_alarm": 0.05, "max_patches": 2048},
     "parameters": {"threshold": 0.4, "return_map": true, ...}}

An IMAGE is a base64-encoded image file (BMP, GIF, JPEG, PNG, TIFF or WebP) or a data: URL; with the environment
variable IDEAL_FETCH_ADDRESSES=1 also an http(s) address, if it and whatever it redirects to are public. The parameters
are arguments of `AnomalyDetectionPipeline` (PARAMETERS in handler_requests.py), and `return_map` (default: true). The
response is the pipeline's result, or a list of results for a list of images; maps, masks and overlays are
base64-encoded PNG files (maps with 16 bits: score * 65535); `"warnings"` says what to beware of with the references.
An invalid request raises ValueError, which an endpoint answers with status 400 and {"error": ...}; in a list, the
result of an image that cannot be used is {"error": ...}.

    a request       64 images, 64 references, 100 MB and 100 million pixels in all; 20 s to fetch addresses
    a picture       20 MB, 25 million pixels, sides of at most 20 to 1, one frame; with tiled references 100 tiles
    a mask          100 boxes and polygons, 1000 points
    references      a file of 64 MB, in tiles of at most 1024 x 1024 pixels; names of types of 100 characters
    parameters      smoothing at most 32, batch_size at most 16, false_alarm below 0.5
"""

import hashlib
import json
import os
import re
import tempfile
from collections import OrderedDict
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from PIL import Image
from torch import Tensor
from torch.utils.data import Dataset
from transformers import pipeline

if __package__ == "hub":
    from .handler_fetch import fetch
    from .handler_pictures import FETCH, MOST_REFERENCE_BYTES, PictureReader, plain
    from .handler_requests import SETTINGS, Request, check_request, shown
else:  # in a Hub repository, where a server loads this file by its path and puts its folder on sys.path
    from handler_fetch import fetch  # type: ignore[import-not-found, no-redef]
    from handler_pictures import (  # type: ignore[import-not-found, no-redef]
        FETCH,
        MOST_REFERENCE_BYTES,
        PictureReader,
        plain,
    )
    from handler_requests import SETTINGS, Request, check_request, shown  # type: ignore[import-not-found, no-redef]

KEPT_REFERENCES = 32  # most recently used reference sets in memory
KEPT_BYTES = 500_000_000  # of all of them
MOST_TILES = 100  # of a picture
LARGEST_TILE_SIDE = 1024  # pixels, in a file that comes with a request
NAME = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9_.-]*")  # no path separators: only files in the folder of references


class EndpointHandler:
    """Answers the requests to an endpoint; they may come from several threads.

    Args:
        path: the folder of the repository.
    """

    def __init__(self, path: str = "") -> None:
        self.folder = Path(path)
        self.pipe = pipeline("anomaly-detection", model=str(path), trust_remote_code=True)
        self.fetch = fetch if os.environ.get(FETCH) == "1" else None
        self._known: OrderedDict[str, Any] = OrderedDict()
        # One request at a time computes; the next ones wait, and share what it encoded. All do so in one thread: what
        # torch and the C library keep for a thread, they would keep for the thread of every request.
        self._computing = ThreadPoolExecutor(1, thread_name_prefix="ideal")

    def __call__(self, data: dict[str, Any]) -> dict[str, Any] | list[dict[str, Any]]:
        """Detect anomalies in the images of one request."""
        request = check_request(data)
        reader = PictureReader(self.fetch)
        # All that may have to be fetched is fetched here, where nobody waits for it.
        given = self._contents(request.references, reader)
        parameters = dict(request.parameters)
        with_map = parameters.pop("return_map", True)
        if isinstance(ignored := parameters.get("ignore_mask"), str):
            parameters["ignore_mask"] = reader.content(ignored, "parameters.ignore_mask")
        images = _Uploaded(request, reader)
        return self._computing.submit(self._answer, images, given, parameters, with_map, reader).result()

    def _answer(
        self,
        images: "_Uploaded",
        given: dict[str, Any],
        parameters: dict[str, Any],
        with_map: bool,
        reader: PictureReader,
    ) -> dict[str, Any] | list[dict[str, Any]]:
        """Encode the references unless they are known, and judge the images."""
        if isinstance(ignored := parameters.get("ignore_mask"), bytes):
            parameters["ignore_mask"] = reader.picture(ignored, "parameters.ignore_mask")
        parameters["references"] = references = self._references(given, reader)
        images.tile_size = references.tile_size
        if images.single:
            return _as_json(self.pipe(images[0], **parameters), with_map, references.warnings)
        # A data set, unlike a list, is read and answered one batch after another.
        results = self.pipe(images, **parameters)
        return [_as_json(result, with_map, references.warnings) for result in results]

    def _contents(self, given: dict[str, Any], reader: PictureReader) -> dict[str, Any]:
        """The references of a request, with bytes in place of text, and a stored file with its present state."""
        if "name" in given:
            path = self._stored(given["name"])
            status = path.stat()
            return {"path": str(path), "state": [status.st_mtime_ns, status.st_size, status.st_ino]}
        if "file" in given:
            return {"file": reader.content(given["file"], "references.file", MOST_REFERENCE_BYTES)}
        contents = dict(given)
        for group in ("normal", "abnormal", "masks"):
            if group in given:
                contents[group] = [
                    reader.content(entry, f"references.{group}[{index}]") if isinstance(entry, str) else entry
                    for index, entry in enumerate(given[group])
                ]
        return contents

    def _references(self, given: dict[str, Any], reader: PictureReader) -> Any:
        """The encoded references of a request; the most recently used ones are kept."""
        described = json.dumps(given, sort_keys=True, default=lambda content: hashlib.sha256(content).hexdigest())
        key = hashlib.sha256(described.encode()).hexdigest()
        if key not in self._known:
            self._known[key] = self._encode(given, reader)
        self._known.move_to_end(key)
        references = self._known[key]
        while len(self._known) > KEPT_REFERENCES or sum(map(_num_bytes, self._known.values())) > KEPT_BYTES:
            self._known.popitem(last=False)
        return references

    def _encode(self, given: dict[str, Any], reader: PictureReader) -> Any:
        if "path" in given:
            return self.pipe.encode_references(given["path"])
        if "file" in given:
            with tempfile.NamedTemporaryFile(suffix=".safetensors") as file:
                file.write(given["file"])
                file.flush()
                try:
                    return _checked(self.pipe.encode_references(file.name))
                except ValueError as error:
                    message = str(error).replace(file.name, f"{len(given['file'])} bytes")
                    raise ValueError(f"references.file: {message}") from error
        pictures = {
            group: [
                reader.picture(entry, f"references.{group}[{index}]") if isinstance(entry, bytes) else entry
                for index, entry in enumerate(given[group])
            ]
            for group in ("normal", "abnormal", "masks")
            if group in given
        }
        rest = {name: given[name] for name in ("types", *SETTINGS) if name in given}
        return self.pipe.encode_references(**pictures, **rest)

    def _stored(self, name: str) -> Path:
        folder = self.folder / "references"
        path = folder / f"{name}.safetensors"
        if not NAME.fullmatch(name) or not path.is_file():
            stored = sorted(file.stem for file in folder.glob("*.safetensors"))
            raise ValueError(f"references.name: expected one of {stored}, got {shown(name)}")
        return path


class _Uploaded(Dataset):
    """The images of a request: their files all at once, then decoded one at a time.

    Args:
        request: the request.
        reader: reads its pictures.
    """

    def __init__(self, request: Request, reader: PictureReader) -> None:
        self.reader = reader
        self.tile_size: tuple[int, int] | None = None  # height and width of the tiles into which pictures are cut
        self.single = isinstance(request.inputs, str)
        texts = [request.inputs] if isinstance(request.inputs, str) else request.inputs
        self.files = [self._file(text, index) for index, text in enumerate(texts)]

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, index: int) -> Image.Image:
        file = self.files[index]
        if isinstance(file, ValueError):
            raise file
        picture = self.reader.picture(file, self._name(index))
        if self.tile_size and picture.width * picture.height > MOST_TILES * self.tile_size[0] * self.tile_size[1]:
            raise ValueError(
                f"{self._name(index)}: expected at most {MOST_TILES} tiles of {self.tile_size} pixels, "
                f"got {picture.width} x {picture.height}"
            )
        return picture

    def _file(self, text: str, index: int) -> bytes | ValueError:
        try:
            return self.reader.content(text, self._name(index))
        except ValueError as error:  # concerns this image alone
            return error

    def _name(self, index: int) -> str:
        return "inputs" if self.single else f"inputs[{index}]"


def _checked(references: Any) -> Any:
    """References from a file of unknown origin; ValueError if every picture would be padded to a huge tile."""
    if max(references.tile_size or (0,)) > LARGEST_TILE_SIDE:
        raise ValueError(f"expected tiles with sides of at most {LARGEST_TILE_SIDE}, got {references.tile_size}")
    return references


def _num_bytes(value: Any) -> int:
    """The memory of all tensors in encoded references, or in a part of them."""
    if isinstance(value, Tensor):
        return value.nbytes
    parts = value if isinstance(value, (list, tuple)) else getattr(value, "__dict__", {}).values()
    return sum(map(_num_bytes, parts))


def _as_json(result: dict[str, Any], with_map: bool, warnings: list[str]) -> dict[str, Any]:
    if warnings and "error" not in result:
        result = {**result, "warnings": warnings}
    return plain({name: value for name, value in result.items() if with_map or name != "anomaly_map"}, "result")
