"""A backbone in an ONNX file, run by ONNX Runtime: `model.backbone = OnnxBackbone("backbone.onnx")`.

Only the backbone is exported: it does nearly all of the work, and ONNX has no operator for the eigenvectors after it.
The file is made by `ideal export` or by `ideal build --onnx`.
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
    """Replaces the backbone of an `IdealModel`, on the CPU, for images of the size it was exported for.

    References encoded with the torch backbone do not load into a model with this one, and vice versa: the features
    agree only up to rounding, or quantisation.

    Args:
        path: an ONNX file made by `export_backbone`.
        threads: number of threads for ONNX Runtime; by default as many as torch uses.
    """

    # Every exported backbone returns feature maps, like a backbone with named stages.
    config = SimpleNamespace(stage_names=(FEATURES,))

    def __init__(self, path: str | os.PathLike, threads: int | None = None) -> None:
        import onnxruntime  # optional, and slow to import

        super().__init__()
        content = Path(path).read_bytes()
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads or torch.get_num_threads()
        self.session = onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
        [pixels] = self.session.get_inputs()
        self.size = tuple(pixels.shape[1:])  # (3, H, W)
        # The weights are inside the session. A model's fingerprint depends on its parameters, so the hash of the
        # file is one of them.
        digest = bytearray(hashlib.sha256(content).digest())
        self.content = nn.Parameter(torch.frombuffer(digest, dtype=torch.uint8), requires_grad=False)

    def forward(self, pixels: Tensor) -> BackboneOutput:
        """Turn images (B, 3, H, W) into one feature map (B, C, h, w)."""
        if tuple(pixels.shape[1:]) != self.size:
            raise ValueError(
                f"expected images (B, {', '.join(map(str, self.size))}), for which this backbone was exported, "
                f"got {tuple(pixels.shape)}"
            )
        [features] = self.session.run([FEATURES], {PIXELS: pixels.detach().float().cpu().numpy()})
        return BackboneOutput(feature_maps=(torch.from_numpy(features).to(pixels.device),))
