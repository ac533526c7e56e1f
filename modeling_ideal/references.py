"""Encoded reference sets: made once per product, saved and loaded as safetensors."""

import hashlib
import json
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from .aligned_memory import aligned
from .threshold import Calibration

FORMAT = "ideal-references-1"
SET_TENSORS = ("normal_features", "abnormal_deviations", "abnormal_sources")  # lists with one tensor per set
# Fields of a configuration that say where the model came from, and do not change what it computes.
INCIDENTAL = ("_name_or_path", "architectures", "dtype", "transformers_version")


@dataclass
class IdealReferences:
    """R encoded reference sets: one for each query of a batch, or a single one shared by any batch.

    Args:
        normal_features: R tensors (Q_r, C), patch features of the normal references.
        deviation_vectors: (R, M, C) intrinsic deviation vectors; None without abnormal references.
        abnormal_deviations: R tensors (A_r, C), denoised deviations of the anomalous patches; may be empty.
        abnormal_sources: R tensors (A_r,), index of the abnormal reference of each anomalous patch; may be empty.
        num_normal: number of normal references per set.
        num_abnormal: number of abnormal references per set.
        mask_source: `"given"` for masks from the user, `"estimated"` for masks found by the model, `"none"` without
            abnormal references.
        types: the type of the defect in each abnormal reference; may be empty.
        fingerprint: of the model that encoded the references; empty within a call of the model.
        calibration: the threshold for these references, if they are calibrated.
        tile_size: height and width of the tiles that the references were cut into; None for whole images.
    """

    normal_features: list[Tensor]
    deviation_vectors: Tensor | None = None
    abnormal_deviations: list[Tensor] = field(default_factory=list)
    abnormal_sources: list[Tensor] = field(default_factory=list)
    num_normal: int = 0
    num_abnormal: int = 0
    mask_source: str = "none"
    types: list[str] = field(default_factory=list)
    fingerprint: str = ""
    calibration: Calibration | None = None
    tile_size: tuple[int, int] | None = None
    normal_directions: list[Tensor] = field(init=False, repr=False)  # R tensors (Q_r, C) at length 1

    def __post_init__(self) -> None:
        if self.types and len(self.types) != self.num_abnormal:
            raise ValueError(
                f"types: expected one for each of {self.num_abnormal} abnormal references, got {self.types}"
            )
        self.normal_directions = [F.normalize(features, dim=-1) for features in self.normal_features]

    def __len__(self) -> int:
        """The number R of reference sets."""
        return len(self.normal_features)

    def normals(self, index: int) -> tuple[Tensor, Tensor]:
        """Normal patches (Q, C) for query `index`, from its own or the shared set, and the same at length 1."""
        index = index if len(self) > 1 else 0
        return self.normal_features[index], self.normal_directions[index]

    def __repr__(self) -> str:
        marks = {"given": ", defects marked", "estimated": ", defects estimated", "none": ""}[self.mask_source]
        types = f", types {sorted(set(self.types))}" if self.types else ""
        return (
            f"IdealReferences({len(self)} set(s) of {self.num_normal} normal and {self.num_abnormal} abnormal"
            f"{marks}{types}; {sum(map(len, self.normal_features))} normal patches; model {self.fingerprint[:12]})"
        )

    def to(self, device: torch.device | str) -> "IdealReferences":
        """Copy the references to a device."""
        return replace(
            self,
            normal_features=[features.to(device) for features in self.normal_features],
            deviation_vectors=None if self.deviation_vectors is None else self.deviation_vectors.to(device),
            abnormal_deviations=[deviations.to(device) for deviations in self.abnormal_deviations],
            abnormal_sources=[sources.to(device) for sources in self.abnormal_sources],
        )

    def save(self, path: str | os.PathLike) -> None:
        """Write the references to a safetensors file, which is either complete or not there."""
        path = Path(path)
        tensors = {f"{name}.{index}": value for name in SET_TENSORS for index, value in enumerate(getattr(self, name))}
        if self.deviation_vectors is not None:
            tensors["deviation_vectors"] = self.deviation_vectors
        header = {
            "num_sets": len(self),
            "num_normal": self.num_normal,
            "num_abnormal": self.num_abnormal,
            "mask_source": self.mask_source,
            "types": self.types,
            "fingerprint": self.fingerprint,
            "calibration": None if self.calibration is None else self.calibration.to_dict(),
            "tile_size": self.tile_size,
        }
        temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
        try:
            save_file(
                {name: value.detach().cpu().contiguous().clone() for name, value in tensors.items()},
                temporary,
                metadata={"format": FORMAT, "header": json.dumps(header)},
            )
            os.replace(temporary, path)
        finally:
            temporary.unlink(missing_ok=True)

    @classmethod
    def load(cls, path: str | os.PathLike) -> "IdealReferences":
        """Read a file written by `save`; the model checks on use that it encoded the references."""
        try:
            with safe_open(path, framework="pt") as file:
                metadata = file.metadata() or {}
                tensors = {name: aligned(file.get_tensor(name)) for name in file.keys()}  # noqa: SIM118
        except SafetensorError as error:
            raise ValueError(f"expected a safetensors file of IDEAL references, got {str(path)!r}: {error}") from error
        if metadata.get("format") != FORMAT:
            raise ValueError(
                f"expected a file of IDEAL references ({FORMAT}), "
                f"got {str(path)!r} of format {metadata.get('format')!r}"
            )
        header = json.loads(metadata["header"])
        sets = range(header.pop("num_sets"))
        calibration, tile_size = header.pop("calibration", None), header.pop("tile_size", None)  # not in older files
        groups: dict[str, Any] = {
            name: [tensors[f"{name}.{index}"] for index in sets] for name in SET_TENSORS if f"{name}.0" in tensors
        }
        return cls(
            deviation_vectors=tensors.get("deviation_vectors"),
            calibration=None if calibration is None else Calibration.from_dict(calibration),
            tile_size=None if tile_size is None else (tile_size[0], tile_size[1]),
            **groups,
            **header,
        )


def model_fingerprint(
    settings: Sequence, backbone_config: Mapping, named_parameters: Iterable[tuple[str, Tensor]]
) -> str:
    """SHA-256 of the weights and settings of a model: models with the same hash encode references identically."""
    backbone = {name: value for name, value in backbone_config.items() if name not in INCIDENTAL}
    digest = hashlib.sha256(json.dumps([list(settings), backbone], sort_keys=True, default=str).encode())
    for name, tensor in named_parameters:
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        digest.update(tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()
