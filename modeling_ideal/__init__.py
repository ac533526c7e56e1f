"""IDEAL: few-shot anomaly detection from normal and abnormal reference photographs.

Importing this package registers IDEAL with the Auto classes of transformers and the pipeline "anomaly-detection".
"""

import importlib
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .version import __version__

if TYPE_CHECKING:
    from .calibration import calibrate, encode_calibrated
    from .configuration_ideal import IdealConfig
    from .image_processing_ideal import IdealImageProcessor
    from .modeling_ideal import IdealModel
    from .outputs import IdealOutput
    from .pipeline_ideal import AnomalyDetectionPipeline
    from .references import IdealReferences
    from .threshold import Calibration
    from .tiling import TiledDetector

IDEAL_TINY = str(Path(__file__).resolve().parent / "ideal_tiny")
"""The folder of ideal-tiny, the small trained model that is installed with the package."""

_MODULES = {
    "AnomalyDetectionPipeline": "pipeline_ideal",
    "Calibration": "threshold",
    "IdealConfig": "configuration_ideal",
    "IdealImageProcessor": "image_processing_ideal",
    "IdealModel": "modeling_ideal",
    "IdealOutput": "outputs",
    "IdealReferences": "references",
    "TiledDetector": "tiling",
    "calibrate": "calibration",
    "encode_calibrated": "calibration",
}

__all__ = [
    "IDEAL_TINY",
    "AnomalyDetectionPipeline",
    "Calibration",
    "IdealConfig",
    "IdealImageProcessor",
    "IdealModel",
    "IdealOutput",
    "IdealReferences",
    "TiledDetector",
    "__version__",
    "calibrate",
    "encode_calibrated",
    "register",
]


def model_folder(name: str) -> str:
    """Replace the name `"ideal-tiny"` with the folder of the installed model; return any other name unchanged."""
    return IDEAL_TINY if name == "ideal-tiny" else name


def model_name(folder: str) -> str:
    """The name of a model for records and tables, which do not say where its folder is."""
    return "ideal-tiny" if folder == IDEAL_TINY else Path(folder).name


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f".{_MODULES[name]}", __name__), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


def register() -> None:
    """Register IDEAL with transformers: no trust_remote_code is needed, and ideal-tiny is the pipeline's default."""
    from transformers import AutoConfig, AutoImageProcessor, AutoModel
    from transformers.pipelines import PIPELINE_REGISTRY

    from .configuration_ideal import IdealConfig
    from .image_processing_ideal import IdealImageProcessor
    from .modeling_ideal import IdealModel
    from .pipeline_ideal import TASK

    AutoConfig.register("ideal", IdealConfig, exist_ok=True)
    AutoModel.register(IdealConfig, IdealModel, exist_ok=True)
    AutoImageProcessor.register(IdealConfig, image_processor_classes={"pil": IdealImageProcessor}, exist_ok=True)
    # Saved models include their code, so that they load where the package is not installed.
    for part in (IdealConfig, IdealModel, IdealImageProcessor):
        part.register_for_auto_class()
    PIPELINE_REGISTRY.supported_tasks[TASK]["default"] = {"model": (IDEAL_TINY, "main")}


def _is_command_line() -> bool:
    """Whether this process is `ideal` or `python -m modeling_ideal`, where --help must not wait for torch."""
    return Path(sys.argv[0]).name in ("ideal", "ideal.exe") or sys.orig_argv[1:3] == ["-m", __name__]


if not _is_command_line():
    register()
