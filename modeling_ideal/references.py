"""Encoded reference sets: made once per product, saved and loaded as safetensors."""

import json
import os
import secrets
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from safetensors import SafetensorError
from safetensors.torch import save_file
from torch import Tensor

from .input_checks import check_finite
from .reference_pictures import ReferencePictures
from .reference_previews import Previews
from .reference_scores import ReferenceScores
from .reference_warnings import reference_warnings
from .references_file import FORMAT, SCORE_TENSORS, SET_TENSORS, read_references
from .threshold import DEFAULT_PRIOR, Calibration, ScorePrior

CALIBRATIONS_KEPT = 16  # calibrations for other settings that a reference set remembers


@dataclass
class IdealReferences:
    """R encoded reference sets: one for each query of a batch, or a single one shared by any batch.

    Args:
        normal_features: R tensors (Q_r, C), patch features of the normal references.
        deviation_vectors: (R, M, C) intrinsic deviation vectors; None without abnormal references, or in a
            training-free model.
        abnormal_features: R tensors (A_r, C), features of the anomalous patches; may be empty.
        abnormal_deviations: R tensors (A_r, C), denoised deviations of the anomalous patches; may be empty.
        abnormal_sources: R tensors (A_r,), index of the abnormal reference of each anomalous patch; may be empty.
        num_normal: number of normal references per set.
        num_abnormal: number of abnormal references per set.
        mask_source: `"given"` for masks from the user, `"estimated"` for masks found by the model, `"none"` without
            abnormal references.
        types: the type of the defect in each abnormal reference; may be empty.
        fingerprint: of the model that encoded the references; empty within a call of the model.
        calibration: the threshold for these references and `top_fraction`, if they are calibrated; for scores that
            are made in another way, `calibrated_for` gives another one.
        top_fraction: the share of the highest patch scores whose mean `calibration` is for; None if it is not known,
            in a file of an earlier release.
        scores: what the calibration is made from.
        processing: settings of the processor that made the model's inputs, see `processing_of`; None if they are not
            known, because the references were encoded from tensors.
        pictures: what encoding and calibration need of each picture, so that others can join them (`extend`); None if
            it was not kept. Always on the CPU.
        previews: small pictures of the references, for people; None if they were not kept.
        tile_size: height and width of the tiles that the references were cut into; None for whole images.
        file_format: the format of the file that the references were loaded from.
    """

    normal_features: list[Tensor]
    deviation_vectors: Tensor | None = None
    abnormal_features: list[Tensor] = field(default_factory=list)
    abnormal_deviations: list[Tensor] = field(default_factory=list)
    abnormal_sources: list[Tensor] = field(default_factory=list)
    num_normal: int = 0
    num_abnormal: int = 0
    mask_source: str = "none"
    types: list[str] = field(default_factory=list)
    fingerprint: str = ""
    calibration: Calibration | None = None
    top_fraction: float | None = None
    scores: ReferenceScores | None = None
    processing: dict[str, Any] | None = None
    pictures: ReferencePictures | None = None
    previews: Previews | None = None
    tile_size: tuple[int, int] | None = None
    file_format: str = FORMAT
    _calibrations: dict[tuple, Calibration] = field(init=False, repr=False, default_factory=dict)

    def __post_init__(self) -> None:
        if self.types and len(self.types) != self.num_abnormal:
            raise ValueError(
                f"types: expected one for each of {self.num_abnormal} abnormal references, got {self.types}"
            )

    @cached_property
    def normal_directions(self) -> list[Tensor]:
        """R tensors (Q_r, C), the normal features at length 1; made when they are first needed."""
        return [F.normalize(features, dim=-1) for features in self.normal_features]

    def __len__(self) -> int:
        """The number R of reference sets."""
        return len(self.normal_features)

    def normals(self, index: int) -> tuple[Tensor, Tensor]:
        """Normal patches (Q, C) for query `index`, from its own or the shared set, and the same at length 1."""
        index = index if len(self) > 1 else 0
        return self.normal_features[index], self.normal_directions[index]

    def calibrated_for(self, top_fraction: float, counted: Tensor | None = None) -> Calibration | None:
        """The calibration for image scores that are made in a certain way; None if these references have none.

        Args:
            top_fraction: share of the highest patch scores whose mean is the image score.
            counted: (h, w), or (rows, columns, h, w) in tiles, bool: the patches that affect the image score; None
                for all.

        Warns:
            UserWarning: when another threshold is found, of what the references do not support with it.
        """
        if self.calibration is None:
            return None
        if counted is not None and bool(counted.all()):
            counted = None
        # A file that does not say what its threshold is for was made with the model's own setting, if by the model.
        if counted is None and self.top_fraction in (top_fraction, None):
            return self.calibration
        if self.scores is None:
            raise ValueError(
                "references: expected patch scores with them, to find the threshold for "
                + (f"top_fraction={top_fraction}" if counted is None else "the patches that are not ignored")
                + f", got a threshold for top_fraction={self.top_fraction} alone; encode the references again"
            )
        key = (top_fraction, None if counted is None else (tuple(counted.shape), counted.cpu().numpy().tobytes()))
        found = self._calibrations.get(key)  # other threads may clear them at any moment
        if found is None:
            if len(self._calibrations) >= CALIBRATIONS_KEPT:
                self._calibrations.clear()
            found = self.scores.calibrate(top_fraction, self.calibration.false_alarm, self.calibration.prior, counted)
            self._calibrations[key] = found
            if found.warning not in (None, self.calibration.warning):
                warnings.warn(found.warning, stacklevel=2)
        return found

    def check_values(self) -> None:
        """Raise ValueError if any value is NaN or infinite; scores would be too, or would mean nothing."""
        for name, tensor in self._tensors().items():
            if tensor.is_floating_point():
                check_finite(f"references, {name}", tensor)

    def check_parts(self, trained: bool, contrast: bool) -> None:
        """Raise ValueError if abnormal references lack what a model needs, or have what it does not use.

        Args:
            trained: whether the model has a deviation encoder.
            contrast: whether it compares patches with the features of anomalous ones.
        """
        if not self.abnormal_deviations:
            return
        if (self.deviation_vectors is not None) != trained:
            raise ValueError(
                "references: expected deviation vectors with abnormal references of a trained model alone"
            )
        if bool(self.abnormal_features) != contrast:
            raise ValueError(
                "references: expected features of anomalous patches for a model with the alignment 'contrast' alone"
            )

    def check_processing(self, processor: Any) -> None:
        """Raise ValueError if the references were made by a processor with other settings than this one's."""
        current = processing_of(processor)
        for name, value in (self.processing or {}).items():
            if current.get(name) != value:
                raise ValueError(
                    f"references: expected a processor with {name} {value}, as when they were encoded, "
                    f"got {current.get(name)}; encode the references again"
                )

    @property
    def warnings(self) -> list[str]:
        """What a user should know of the verdicts with these references, one sentence each."""
        return reference_warnings(self)

    def __repr__(self) -> str:
        marks = {"given": ", defects marked", "estimated": ", defects estimated", "none": ""}[self.mask_source]
        types = f", types {sorted(set(self.types))}" if self.types else ""
        return (
            f"IdealReferences({len(self)} set(s) of {self.num_normal} normal and {self.num_abnormal} abnormal"
            f"{marks}{types}; {sum(map(len, self.normal_features))} normal patches; model {self.fingerprint[:12]})"
        )

    def to(self, device: torch.device | str) -> "IdealReferences":
        """Copy the references to a device; `scores` stay on the CPU, where thresholds are found."""
        return replace(
            self,
            normal_features=[features.to(device) for features in self.normal_features],
            deviation_vectors=None if self.deviation_vectors is None else self.deviation_vectors.to(device),
            abnormal_features=[features.to(device) for features in self.abnormal_features],
            abnormal_deviations=[deviations.to(device) for deviations in self.abnormal_deviations],
            abnormal_sources=[sources.to(device) for sources in self.abnormal_sources],
        )

    def extend(self, pipe: Any, **pictures: Any) -> "IdealReferences":
        """These references with further pictures, as `pipe.extend_references` makes them; they do not change."""
        return pipe.extend_references(self, **pictures)

    def save(self, path: str | os.PathLike) -> None:
        """Write the references to a safetensors file, which is either complete or not there."""
        path = Path(path)
        header = {
            "num_sets": len(self),
            "num_normal": self.num_normal,
            "num_abnormal": self.num_abnormal,
            "mask_source": self.mask_source,
            "types": self.types,
            "fingerprint": self.fingerprint,
            "calibration": self.calibration and {**self.calibration.to_dict(), "top_fraction": self.top_fraction},
            "tile_size": self.tile_size,
            "processing": self.processing,
            "scored_pictures": 0 if self.scores is None else self.scores.num_normal,
            "pictures": None if self.pictures is None else self.pictures.header(),
            "previews": None if self.previews is None else self.previews.header(),
            "scored_grid": None if self.scores is None else self.scores.grid,
            "diversity": None if self.scores is None else self.scores.diversity,
            "scored_smoothing": None if self.scores is None else self.scores.smoothing,
        }
        tensors = self._tensors()
        tensors |= {} if self.pictures is None else self.pictures.tensors(self.normal_features[0])
        tensors |= {} if self.previews is None else self.previews.tensors()
        temporary = path.with_name(f".{secrets.token_hex(8)}.partial")  # short, since names have a limit
        try:
            save_file(
                {name: value.detach().cpu().contiguous().clone() for name, value in tensors.items()},
                temporary,
                metadata={"format": self.file_format, "header": json.dumps(header)},
            )
            with open(temporary, "rb") as stream:
                os.fsync(stream.fileno())  # otherwise a power cut could leave an empty file under the new name
            os.replace(temporary, path)
        except SafetensorError as error:  # of the folder or the disk
            raise OSError(f"expected a place to write references to, got {str(path)!r}: {error}") from error
        finally:
            temporary.unlink(missing_ok=True)

    def _tensors(self) -> dict[str, Tensor]:
        """All tensors but those of the pictures, by their names in a file."""
        tensors = {f"{name}.{index}": value for name in SET_TENSORS for index, value in enumerate(getattr(self, name))}
        if self.deviation_vectors is not None:
            tensors["deviation_vectors"] = self.deviation_vectors
        if self.scores is not None:
            parts = (self.scores.normal, self.scores.abnormal, self.scores.marked)
            tensors |= {name: part for name, part in zip(SCORE_TENSORS, parts, strict=True) if part is not None}
        return tensors

    @classmethod
    def load(cls, path: str | os.PathLike) -> "IdealReferences":
        """Read a file written by `save`; the model checks on use that it encoded the references."""
        file_format, header, tensors = read_references(path)
        sets, pictures, calibration = (header.pop(name) for name in ("num_sets", "scored_pictures", "calibration"))
        grid, *known = (header.pop(name) for name in ("scored_grid", "diversity", "scored_smoothing"))
        normal, abnormal, marked = (tensors.pop(name, None) for name in SCORE_TENSORS)
        scores = None
        if normal is not None and abnormal is not None:
            scores = ReferenceScores(normal, abnormal, marked, pictures, grid and tuple(grid), *known)
        header["tile_size"] = header["tile_size"] and tuple(header["tile_size"])
        header["pictures"] = header["pictures"] and ReferencePictures.from_file(header["pictures"], tensors)
        header["previews"] = header["previews"] and Previews.from_file(header["previews"], tensors)
        kinds = [name for name in SET_TENSORS if f"{name}.0" in tensors]
        groups: dict[str, Any] = {name: [tensors[f"{name}.{index}"] for index in range(sets)] for name in kinds}
        references = cls(
            **groups,
            **header,
            deviation_vectors=tensors.get("deviation_vectors"),
            scores=scores,
            file_format=file_format,
        )
        if calibration is None:
            return references
        try:
            return replace(references, **_calibration(calibration, scores))
        except ValueError as error:
            raise ValueError(f"expected a file of IDEAL references, got {str(path)!r}: {error}") from error


def processing_of(processor: Any) -> dict[str, Any]:
    """The settings of an `IdealImageProcessor` that change scores, as JSON would give them back."""
    return {
        "size": [processor.size["height"], processor.size["width"]],
        "patch_size": processor.patch_size,
        "keep_aspect_ratio": processor.keep_aspect_ratio,
        "image_mean": [float(value) for value in processor.image_mean],
        "image_std": [float(value) for value in processor.image_std],
    }


def _calibration(values: Mapping[str, Any], scores: ReferenceScores | None) -> dict[str, Any]:
    """The threshold by the rule of this release, from what a file has, and the setting that it is for."""
    fraction, false_alarm, known = values.get("top_fraction"), values["false_alarm"], vars(DEFAULT_PRIOR)
    given, first = values.get("prior") or known, list(known)[:5]  # later releases have added others
    if not isinstance(given, dict) or not given.keys() >= set(first):
        raise ValueError(f"prior: expected {', '.join(first)}, got {given!r:.200}")
    prior = ScorePrior(**{name: given[name] for name in known if name in given})
    if scores is not None and fraction is not None:
        calibration = scores.calibrate(fraction, false_alarm, prior)
    else:
        count = round(1 / values["supported_false_alarm"]) - 1
        groups = (values["normal_scores"], values["abnormal_scores"])
        calibration = Calibration.from_scores(*groups, false_alarm, count, prior)
    return {"calibration": calibration, "top_fraction": fraction}
