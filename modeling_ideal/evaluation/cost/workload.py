"""What the cost is measured on: one query of noise with its references, scored here or in a separate process.

It imports little, because everything that a process imports counts in its memory.
"""

import json
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from ...modeling_ideal import IdealModel
from ...references import IdealReferences
from .memory import CLEAR_REFS, peak_mebibytes, reset_peak


class Workload(NamedTuple):
    """A query (1, 3, H, W) and its references (L1, 3, H, W), (L2, 3, H, W) with masks (L2, H, W); None for none."""

    query: Tensor
    normal_refs: Tensor | None
    abnormal_refs: Tensor | None
    masks: Tensor | None


def noise(model: IdealModel, num_normal: int, num_abnormal: int) -> Workload:
    """Noise of the model's image size, with the masks of a defect in the middle of each abnormal reference."""
    side, generator = model.config.image_size, torch.Generator().manual_seed(0)

    def pictures(count: int) -> Tensor:
        return torch.randn(count, model.config.num_channels, side, side, generator=generator).to(model.device)

    masks = torch.zeros(num_abnormal, side, side, device=model.device)
    masks[:, side * 3 // 8 : side * 5 // 8, side * 3 // 8 : side * 5 // 8] = 1
    return Workload(
        pictures(1),
        pictures(num_normal) if num_normal else None,
        *((pictures(num_abnormal), masks) if num_abnormal else (None, None)),
    )


def peak_memory(folder: Path, num_normal: int, num_abnormal: int, references: Path | None) -> float | None:
    """Peak memory in MiB of a process that has loaded a model on the CPU and scores one query.

    Args:
        folder: of the model.
        num_normal, num_abnormal: numbers of references.
        references: a file with the encoded references; None to encode them for the query.

    Returns:
        None where the system does not report it: anywhere but on Linux.
    """
    if not CLEAR_REFS.exists():
        return None
    command = [sys.executable, "-m", __name__, str(folder), str(num_normal), str(num_abnormal)]
    command += [] if references is None else [str(references)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603 - this very file
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["no message"])[-1]
        raise RuntimeError(f"measuring memory: expected exit code 0, got {done.returncode}: {last}")
    return json.loads(done.stdout.splitlines()[-1])


@torch.no_grad()
def _measure_peak(folder: str, num_normal: str, num_abnormal: str, references: str | None = None) -> float | None:
    """Runs in the process that is measured."""
    model = IdealModel.from_pretrained(folder)
    workload = noise(model, int(num_normal), int(num_abnormal))
    encoded = None if references is None else IdealReferences.load(references)
    try:
        reset_peak()
    except OSError:  # a container may forbid it
        return None
    if encoded is None:
        model(*workload)
    else:
        model(workload.query, references=encoded)
    return peak_mebibytes()


if __name__ == "__main__":
    print(json.dumps(_measure_peak(*sys.argv[1:])))
