"""The backbone as an ONNX file, run by ONNX Runtime: `model.backbone = OnnxBackbone("backbone.onnx")`.

Only the backbone is exported: it is nearly all of the work, and the eigenvectors after it have no ONNX operator. The
file is made by `ideal export`, or by `ideal build --onnx`.
"""

import hashlib
import os
from pathlib import Path
from types import SimpleNamespace

import torch
from torch import Tensor, nn
from transformers.modeling_outputs import BackboneOutput

PIXELS, FEATURES = "pixels", "features"  # the names of the graph's input (B, 3, H, W) and output (B, C, h, w)


class OnnxBackbone(nn.Module):
    """Takes the place of an `IdealModel`'s backbone; on the CPU, for images of the size it was exported for.

    A set of references that the torch backbone encoded is refused by a model with this one, and the other way round:
    their features are equal to rounding, or to quantisation, but not the same.

    Args:
        path: an ONNX file of `export_backbone`.
        threads: of ONNX Runtime; by default as many as torch uses.
    """

    # Whatever was exported is read as a backbone of named stages is.
    config = SimpleNamespace(stage_names=(FEATURES,))

    def __init__(self, path: str | os.PathLike, threads: int | None = None) -> None:
        import onnxruntime  # not needed by anyone else who loads this package, and slow to import

        super().__init__()
        content = Path(path).read_bytes()
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads or torch.get_num_threads()
        self.session = onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
        [pixels] = self.session.get_inputs()
        self.size = tuple(pixels.shape[1:])  # (3, H, W)
        # The weights are inside the session. The fingerprint of a model is made of its parameters, so the file's
        # content is one of them.
        digest = bytearray(hashlib.sha256(content).digest())
        self.content = nn.Parameter(torch.frombuffer(digest, dtype=torch.uint8), requires_grad=False)

    def forward(self, pixels: Tensor) -> BackboneOutput:
        """Images (B, 3, H, W) to one feature map (B, C, h, w)."""
        if tuple(pixels.shape[1:]) != self.size:
            raise ValueError(
                f"expected images (B, {', '.join(map(str, self.size))}), for which this backbone was exported, "
                f"got {tuple(pixels.shape)}"
            )
        [features] = self.session.run([FEATURES], {PIXELS: pixels.detach().float().cpu().numpy()})
        return BackboneOutput(feature_maps=(torch.from_numpy(features),))
