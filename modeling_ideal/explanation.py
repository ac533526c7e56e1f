"""Why a picture was judged so: the good part nearest to its most suspicious region, and the most similar defect."""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from .anomalous_patches import estimate_mask
from .connected_regions import label_pixels
from .explanation_picture import LEAST_SHARE, Box, Panel, draw_explanation, window_around
from .normal_variation_eraser import nearest_normals, unit
from .outlines import DEFECT, NORMAL, UNUSUAL
from .pipeline_results import LEAST_SIMILARITY, anomalous_pixels, type_similarities
from .reference_previews import Preview
from .references import IdealReferences
from .scoring import highest_patches

COMPARED = 5  # patches of the picture whose nearest normal patches are told

Size = tuple[int, int]  # height and width


@dataclass(frozen=True)
class JudgedPicture:
    """A picture, and what was made of it: h x w patches with C channels.

    Args:
        picture: (H, W, 3), uint8 or float in 0..1.
        features: (h, w, C).
        patch_scores: (h, w).
        counted: (h, w) bool, the patches that affect the score; None for all.
        anomaly_map: (H, W) in 0..1.
        ignored: (H, W) bool, pixels that are never anomalous; None for none.
        top_fraction: share of the highest patch scores whose mean is the score.
    """

    picture: np.ndarray
    features: Tensor
    patch_scores: Tensor
    counted: Tensor | None
    anomaly_map: np.ndarray
    ignored: np.ndarray | None
    top_fraction: float

    @classmethod
    def from_output(
        cls, output: dict[str, Any], anomaly_map: np.ndarray, ignored: np.ndarray | None
    ) -> "JudgedPicture":
        """Take what the pipeline knows of a picture."""
        kept: dict[str, Any] = {
            name: output.get(name) for name in ("picture", "features", "patch_scores", "counted", "top_fraction")
        }
        return cls(**kept, anomaly_map=anomaly_map, ignored=ignored)

    @property
    def size(self) -> Size:
        """Height and width of the picture."""
        return self.picture.shape[0], self.picture.shape[1]

    def highest(self) -> Tensor:
        """Row and column (P, 2) of the patches whose mean is the score, highest first."""
        counted = torch.ones_like(self.patch_scores, dtype=torch.bool) if self.counted is None else self.counted
        places = counted.to(self.patch_scores.device).nonzero()  # (n, 2)
        scores = self.patch_scores[places[:, 0], places[:, 1]]
        return places[highest_patches(scores[None], self.top_fraction)[0]]

    def region(self) -> np.ndarray:
        """The pixels (H, W) of the most suspicious region, bool: around the highest point of the map, down to half.

        Whatever the threshold: with a low one, most of a picture may be above it, which would explain nothing.
        """
        mask = anomalous_pixels(self.anomaly_map, math.inf, self.ignored)
        regions = label_pixels(mask[None])
        mask[mask] = regions == regions[self.anomaly_map[mask].argmax()]
        return mask


def check_explainable(references: IdealReferences) -> None:
    """Raise ValueError if verdicts with these references cannot be explained."""
    if references.tile_size is not None:
        raise ValueError("return_explanation: expected references of whole pictures, got references in tiles")
    if references.pictures is None:
        raise ValueError(
            "return_explanation: expected references that keep the features of their pictures, got some of an earlier "
            "release or made from tensors, which do not"
        )


def explain(model: Any, references: IdealReferences, judged: JudgedPicture, result: dict[str, Any]) -> dict[str, Any]:
    """Explain the result of a picture.

    Returns:
        - `"region"`: `{"box", "score"}` of the most suspicious region;
        - `"normal"`: for up to five patches, highest score first, the nearest normal patch: `{"patch": box in the
          picture, "kind" and "reference": its picture, by its index among the "normal" references, or among the
          "abnormal" ones if there are no others, "box": there, "similarity": cosine of the features}`;
        - `"defect"`: the most similar one, None without any: `{"reference": index of the abnormal reference, "box":
          there, "similarity": cosine of the deviations, "type": its type or None}`;
        - `"text"`: all this in words; `"picture"`: a PIL image of it.

        A box is (x0, y0, x1, y1) in pixels of the picture or reference as it was given; of references without small
        pictures, as the model saw it.
    """
    highest = judged.highest()
    region = judged.region()
    compared = _compared(model, references, judged, highest[:COMPARED])
    defect, defect_patches = _defect(model, references, judged, highest)
    text = _text(result, references, compared[0], defect)
    panels = _panels(judged, region, result["label"], references, compared[0], defect, defect_patches)
    return {
        "region": {"box": _bounds(region), "score": float(judged.anomaly_map[region].max())},
        "normal": compared,
        "defect": defect,
        "text": text,
        "picture": draw_explanation(text, panels, result["label"] == "anomalous"),
    }


def _compared(model: Any, references: IdealReferences, judged: JudgedPicture, places: Tensor) -> list[dict[str, Any]]:
    """The nearest normal patches of those at `places` (P, 2), in the references as they were given, not turned."""
    pictures = references.pictures
    kind = "abnormal" if pictures is None or pictures.normal is None else "normal"
    group = getattr(pictures, kind)
    usable = torch.ones(group.features.shape[:3], dtype=torch.bool)
    if kind == "abnormal":
        usable = ~_marked(model, references)
    owners = usable.nonzero()  # (Q, 3): picture, row, column
    patches = judged.features[places[:, 0], places[:, 1]].cpu()
    cosines, nearest = nearest_normals(unit(patches), unit(group.features[usable]), 1)
    grid, found = judged.features.shape[:2], []
    for place, cosine, index in zip(places.tolist(), cosines[:, 0].tolist(), nearest[:, 0].tolist(), strict=True):
        reference, *where = owners[index].tolist()
        size = _size(model, references, kind, reference)
        found.append(
            {
                "patch": _patch_box(place, grid, judged.size),
                "kind": kind,
                "reference": reference,
                "box": _patch_box(where, group.features.shape[1:3], size),
                "similarity": cosine,
            }
        )
    return found


def _defect(
    model: Any, references: IdealReferences, judged: JudgedPicture, places: Tensor
) -> tuple[dict[str, Any] | None, Tensor | None]:
    """The most similar defect of the patches at `places` (P, 2), and its patches (h, w), bool; None without any."""
    if not references.abnormal_deviations or not len(references.abnormal_deviations[0]):
        return None, None
    deviations = model.deviations(judged.features[places[:, 0], places[:, 1]], *references.normals(0)).denoised
    sources = [str(source) for source in references.abnormal_sources[0].tolist()]
    similarities = type_similarities(deviations, references.abnormal_deviations[0], sources)
    nearest = max(similarities, key=similarities.__getitem__)
    patches = _marked(model, references)[int(nearest)]
    size = _size(model, references, "abnormal", int(nearest))
    rows, columns = patches.nonzero().T.tolist()
    corners = [_patch_box(place, patches.shape, size) for place in zip(rows, columns, strict=True)]
    ends = np.array(corners)
    box = (*ends[:, :2].min(0).tolist(), *ends[:, 2:].max(0).tolist())
    defect = {
        "reference": int(nearest),
        "box": box,
        "similarity": similarities[nearest],
        "type": references.types[int(nearest)] if references.types else None,
    }
    return defect, patches


def _marked(model: Any, references: IdealReferences) -> Tensor:
    """The anomalous patches (L2, h, w) of the abnormal references, bool: marked by the user, or found by the model."""
    pictures = references.pictures
    if pictures is None or pictures.abnormal is None:
        raise RuntimeError("expected abnormal references")
    if pictures.abnormal.marked is not None:
        return pictures.abnormal.marked
    normals = None if pictures.normal is None else references.normals(0)[0]
    abnormal = pictures.abnormal.features.to(references.normals(0)[0].device)
    return estimate_mask(normals, abnormal, model.deviations).cpu()


def _text(
    result: dict[str, Any], references: IdealReferences, compared: dict[str, Any], defect: dict[str, Any] | None
) -> str:
    scores = f"score {result['score']:.3g}, threshold {result['threshold']:.3g}"
    where = {"anomalous": "It differs most here", "normal": "This is its most unusual place"}[result["label"]]
    sentences = [f"{result['label'].capitalize()} ({scores})."]
    good = f"the closest good part is in {_called(references, compared['kind'], compared['reference'])}"
    if defect is None:
        return f"{sentences[0]} {where}; {good}. There is no known defect to compare it with."
    known = f"the {defect['type'] or 'defect'} of {_called(references, 'abnormal', defect['reference'])}"
    if defect["similarity"] < LEAST_SIMILARITY:
        alike = f"it looks like no known defect, and the nearest one is {known}"
    else:
        alike = f"it looks most like {known}"
    return f"{sentences[0]} {where}; {good}; {alike} (similarity {defect['similarity']:.2f})."


def _called(references: IdealReferences, kind: str, index: int) -> str:
    preview = _preview(references, kind, index)
    return f"{kind} reference {index + 1}{f' ({preview.name})' if preview and preview.name else ''}"


def _panels(
    judged: JudgedPicture,
    region: np.ndarray,
    label: str,
    references: IdealReferences,
    compared: dict[str, Any],
    defect: dict[str, Any] | None,
    patches: Tensor | None,
) -> list[Panel]:
    """The picture, its suspicious region, the closest good part, and the most similar defect."""
    picture = judged.picture
    picture = picture if picture.dtype == np.uint8 else np.rint(picture * 255).astype(np.uint8)
    window = window_around(_bounds(region), judged.size)
    share = max(LEAST_SHARE, (window[2] - window[0]) / max(judged.size), (window[3] - window[1]) / max(judged.size))
    caption, color = ("differs most here", DEFECT) if label == "anomalous" else ("most unusual place", UNUSUAL)
    patch = np.zeros(judged.size, bool)
    x0, y0, x1, y1 = compared["patch"]
    patch[y0:y1, x0:x1] = True
    panels = [
        Panel("the picture", picture, region, color),
        Panel(f"{caption}; green: the patch that was compared", picture, region, color, window, patch),
        _reference_panel("the closest good part (green)", references, compared["kind"], compared, share, None),
    ]
    if defect is None:
        return panels
    similar = f"most similar defect: {defect['type']}" if defect["type"] else "most similar defect"
    return [*panels, _reference_panel(similar, references, "abnormal", defect, share, patches)]


def _reference_panel(
    title: str, references: IdealReferences, kind: str, found: dict[str, Any], share: float, patches: Tensor | None
) -> Panel:
    """A crop of a reference around what was found in it: the `patches` (h, w) of a defect, or a normal patch."""
    caption = f"{title}, {_called(references, kind, found['reference'])}"
    preview = _preview(references, kind, found["reference"])
    if preview is None:
        return Panel(caption, None)
    picture = preview.picture()
    size = height, width = picture.shape[:2]
    scales = np.array([width / preview.size[1], height / preview.size[0]] * 2)
    box = x0, y0, x1, y1 = tuple(np.rint(np.array(found["box"]) * scales).astype(int).tolist())
    if patches is None:
        mask = np.zeros(size, bool)
        mask[y0:y1, x0:x1] = True
    else:
        marked = preview.marked()
        mask = _pixels(patches, size) if marked is None else marked
    color = NORMAL if patches is None else DEFECT
    return Panel(caption, picture, mask, color, window_around(box, size, share))


def _pixels(patches: Tensor, size: Size) -> np.ndarray:
    """The pixels of patches (h, w), bool, in a picture of `size`: bool (H, W)."""
    return np.asarray(Image.fromarray(patches.cpu().numpy()).resize(size[::-1], Image.Resampling.NEAREST))


def _preview(references: IdealReferences, kind: str, index: int) -> Preview | None:
    return None if references.previews is None else getattr(references.previews, kind)[index]


def _size(model: Any, references: IdealReferences, kind: str, index: int) -> Size:
    """The size of a reference as it was given; as the model saw it if that is not known."""
    preview = _preview(references, kind, index)
    if preview is not None:
        return preview.size
    rows, columns = getattr(references.pictures, kind).features.shape[1:3]
    height, width = model.config.patch_size
    return rows * height, columns * width


def _patch_box(place: Any, grid: Any, size: Size) -> Box:
    """The box of the patch at `place` (row, column), of a grid of patches (h, w), in a picture of `size`."""
    (row, column), (rows, columns), (height, width) = place, grid, size
    return (
        column * width // columns,
        row * height // rows,
        -(-(column + 1) * width // columns),
        -(-(row + 1) * height // rows),
    )


def _bounds(mask: np.ndarray) -> Box:
    """The smallest box around the pixels of a mask (H, W), which is not empty."""
    rows, columns = (np.flatnonzero(mask.any(axis)) for axis in (1, 0))
    return int(columns[0]), int(rows[0]), int(columns[-1]) + 1, int(rows[-1]) + 1
