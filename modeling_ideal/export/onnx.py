"""`ideal export`: the backbone as an ONNX file, with weights in float32 or int8."""

import argparse
import os
import tempfile
from pathlib import Path

import torch
from torch import Tensor, nn

from ..backbone import patch_features
from ..modeling_ideal import IdealModel
from ..onnx_backbone import FEATURES, PIXELS, OnnxBackbone
from ..writing.places import check_file

OPSET = 20


def export(arguments: argparse.Namespace) -> str:
    """Export the backbone that the arguments name, and return a line with its size and difference from torch."""
    from ..training.head.starting_point import model_on_backbone

    path = Path(arguments.out)
    check_file(path, "--out", replaces=lambda file: file.suffix == ".onnx", kind="an ONNX file")
    if arguments.model:
        model = IdealModel.from_pretrained(arguments.model, dtype=torch.float32)
    else:
        model = model_on_backbone(arguments.backbone, arguments.stage, arguments.no_norm)
    export_backbone(model, path, int8=arguments.int8)
    megabytes = path.stat().st_size / 1e6
    return f"{path}: {megabytes:.1f} MB, patch features {feature_difference(model, path):.1e} from torch's (relative)"


def export_backbone(model: IdealModel, path: str | os.PathLike, int8: bool = False) -> None:
    """Write the backbone of a model to an ONNX file, for any batch size and images of `config.image_size`.

    Args:
        model: a model with float32 weights on the CPU; it is not changed.
        path: the file to write.
        int8: whether to quantise matrix products: weights to 8 bits per channel, activations dynamically.
    """
    weights = {(parameter.dtype, parameter.device.type) for parameter in model.backbone.parameters()}
    if weights != {(torch.float32, "cpu")}:
        raise ValueError(f"export expected weights in float32 on the CPU, got {sorted(map(str, weights))}")
    path = Path(path)
    with tempfile.TemporaryDirectory(prefix=f".{path.name}.", dir=path.parent) as folder:
        made = Path(folder, "float32.onnx")
        torch.onnx.export(
            _FeatureMap(model).eval(),
            (_noise(model, 2),),  # a batch of one would become a constant
            made,
            input_names=[PIXELS],
            output_names=[FEATURES],
            dynamic_shapes=({0: torch.export.Dim("batch")},),
            opset_version=OPSET,
            dynamo=True,
            external_data=False,
            verbose=False,
        )
        if int8:
            made = _quantise(made)
        os.replace(made, path)


def feature_difference(model: IdealModel, path: str | os.PathLike) -> float:
    """Relative difference of the patch features of noise: mean length of the difference over mean length."""
    pixels = _noise(model, 1)
    expected = model.extract_features(pixels)
    found = patch_features(OnnxBackbone(path), pixels, model.config.patch_size)
    return ((found - expected).norm(dim=-1).mean() / expected.norm(dim=-1).mean()).item()


class _FeatureMap(nn.Module):
    """Returns the model's patch features as a feature map, whatever the kind of backbone."""

    def __init__(self, model: IdealModel) -> None:
        super().__init__()
        self.backbone = model.backbone
        self.patch_size = model.config.patch_size

    def forward(self, pixels: Tensor) -> Tensor:
        return patch_features(self.backbone, pixels, self.patch_size).permute(0, 3, 1, 2)


def _noise(model: IdealModel, count: int) -> Tensor:
    side = model.config.image_size
    return torch.randn(count, model.config.num_channels, side, side, generator=torch.Generator().manual_seed(0))


def _quantise(path: Path) -> Path:
    from onnxruntime.quantization import QuantType, quantize_dynamic
    from onnxruntime.quantization.shape_inference import quant_pre_process

    prepared, made = path.with_name("prepared.onnx"), path.with_name("int8.onnx")
    quant_pre_process(str(path), str(prepared), skip_symbolic_shape=True)
    quantize_dynamic(
        prepared, made, op_types_to_quantize=["MatMul", "Gemm"], per_channel=True, weight_type=QuantType.QInt8
    )
    return made
