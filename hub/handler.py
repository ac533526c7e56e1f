"""Handler of a Hugging Face Inference Endpoint for IDEAL, with JSON requests and responses.

    {"inputs": IMAGE or [IMAGE, ...],
     "references": {"name": "bottle"}                    stored in the repository as references/bottle.safetensors
                or {"file": BASE64}                      the bytes of such a file
                or {"normal": [IMAGE, ...], "abnormal": [IMAGE, ...], "masks": [IMAGE or box, ...],
                    "types": [NAME, ...], "false_alarm": 0.05},
     "parameters": {"threshold": 0.4, "return_map": true, ...}}

An IMAGE is a base64-encoded image file, a data: URL, or an http(s) address. The parameters are arguments of
`AnomalyDetectionPipeline` (see PARAMETERS), and `return_map` (default: true). The response is the pipeline's result,
or a list of results for a list of images; maps, masks and overlays are base64-encoded PNG files (maps with 16 bits:
score * 65535). An invalid request raises ValueError, which an endpoint answers with status 400 and {"error": ...};
in a list, the result of an image that cannot be read is {"error": ...}.
"""

import base64
import binascii
import hashlib
import io
import json
import re
import tempfile
from collections import OrderedDict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image
from transformers import pipeline

KEPT_REFERENCES = 32  # most recently used reference sets in memory
ADDRESSES = ("http://", "https://")
NAME = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9_.-]*")  # no path separators: only files in the folder of references
PARTS = ("normal", "abnormal", "masks", "types", "false_alarm")
# The pipeline's arguments that cannot name a file: a request must not read files on the server.
PARAMETERS = {"batch_size", "ignore_mask", "smoothing", "threshold", "top_fraction"}
PARAMETERS |= {"return_map", "return_mask", "return_overlay", "return_regions"}


class EndpointHandler:
    """Answers the requests to an endpoint.

    Args:
        path: the folder of the repository.
    """

    def __init__(self, path: str = "") -> None:
        self.folder = Path(path)
        self.pipe = pipeline("anomaly-detection", model=str(path), trust_remote_code=True)
        self._known: OrderedDict[str, Any] = OrderedDict()

    def __call__(self, data: dict[str, Any]) -> dict[str, Any] | list[dict[str, Any]]:
        """Detect anomalies in the images of one request."""
        if set(data) - {"inputs", "references", "parameters"} or not data.get("inputs"):
            raise ValueError(f"expected 'inputs', 'references' and 'parameters', got {sorted(data)}")
        parameters = dict(data.get("parameters") or {})
        if unknown := sorted(set(parameters) - PARAMETERS):
            raise ValueError(f"parameters: expected some of {sorted(PARAMETERS)}, got unknown {unknown}")
        with_map = parameters.pop("return_map", True)
        if "ignore_mask" in parameters:
            parameters["ignore_mask"] = _read_mask(parameters["ignore_mask"], "ignore_mask")
        parameters["references"] = self._references(data.get("references"))
        inputs = data["inputs"]
        if isinstance(inputs, list):
            return [_as_json(result, with_map) for result in self.pipe(_Uploaded(inputs), **parameters)]
        return _as_json(self.pipe(_read_image(inputs, "inputs"), **parameters), with_map)

    def _references(self, given: Any) -> Any:
        """The encoded references of a request; the most recently used ones are kept."""
        names = set(given) if isinstance(given, dict) else set()
        if names not in ({"name"}, {"file"}) and (not names or not names <= set(PARTS)):
            got = sorted(names) if isinstance(given, dict) else type(given).__name__
            raise ValueError(f"references: expected {{'name': ...}}, {{'file': ...}} or some of {PARTS}, got {got}")
        key = hashlib.sha256(json.dumps(given, sort_keys=True).encode()).hexdigest()
        if key not in self._known:
            self._known[key] = self._encode(given)
        self._known.move_to_end(key)
        while len(self._known) > KEPT_REFERENCES:
            self._known.popitem(last=False)
        return self._known[key]

    def _encode(self, given: dict[str, Any]) -> Any:
        if "name" in given:
            return self.pipe.set_references(self._stored(given["name"]))
        if "file" in given:
            with tempfile.NamedTemporaryFile(suffix=".safetensors") as file:
                file.write(_decode(given["file"], "references.file"))
                file.flush()
                return self.pipe.set_references(file.name)
        images = {
            group: [_read_image(image, f"references.{group}[{index}]") for index, image in enumerate(given[group])]
            for group in ("normal", "abnormal")
            if given.get(group)
        }
        masks = [_read_mask(mask, f"references.masks[{index}]") for index, mask in enumerate(given.get("masks") or [])]
        rest = {name: given.get(name) for name in ("types", "false_alarm")}
        return self.pipe.set_references(**images, masks=masks or None, **rest)

    def _stored(self, name: Any) -> Path:
        folder = self.folder / "references"
        path = folder / f"{name}.safetensors"
        if not isinstance(name, str) or not NAME.fullmatch(name) or not path.is_file():
            stored = sorted(file.stem for file in folder.glob("*.safetensors"))
            raise ValueError(f"references.name: expected one of {stored}, got {name!r}")
        return path


class _Uploaded(Sequence):
    """The images of a request, decoded one at a time, so that the pipeline can report errors for each."""

    def __init__(self, images: list) -> None:
        self.images = images

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, index: Any) -> Any:
        return _read_image(self.images[index], f"inputs[{index}]")


def _read_image(image: Any, name: str) -> Any:
    """Decode an image for the pipeline; never a path, which could name a file on the server."""
    if isinstance(image, str) and image.startswith(ADDRESSES):
        return image
    content = _decode(image, name)
    try:
        picture = Image.open(io.BytesIO(content))
        picture.load()
    except (OSError, Image.DecompressionBombError) as error:
        raise ValueError(f"{name}: expected an image file, got {len(content)} bytes: {error}") from error
    return picture


def _read_mask(mask: Any, name: str) -> Any:
    """Decode a mask given as an image; return boxes and polygons unchanged."""
    return _read_image(mask, name) if isinstance(mask, str) else mask


def _decode(text: Any, name: str) -> bytes:
    if not isinstance(text, str):
        raise ValueError(f"{name}: expected base64, a data: URL or an http(s) address, got {type(text).__name__}")
    if text.startswith("data:"):
        text = text.partition(",")[2]
    try:
        return base64.b64decode(text, validate=True)
    except binascii.Error as error:
        raise ValueError(f"{name}: expected base64, a data: URL or an http(s) address, got {text[:40]!r}") from error


def _as_json(result: dict[str, Any], with_map: bool) -> dict[str, Any]:
    return {name: _plain(value) for name, value in result.items() if with_map or name != "anomaly_map"}


def _plain(value: Any) -> Any:
    """Convert a value for JSON, with arrays and images as base64-encoded PNG files."""
    if isinstance(value, np.ndarray):
        if value.dtype != bool:
            value = (value.clip(0, 1) * 65535).round().astype(np.uint16)
        value = Image.fromarray(value)
    if isinstance(value, Image.Image):
        file = io.BytesIO()
        value.save(file, format="PNG")
        return base64.b64encode(file.getvalue()).decode()
    if isinstance(value, dict):
        return {name: _plain(entry) for name, entry in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(entry) for entry in value]
    return value.item() if isinstance(value, np.generic) else value
