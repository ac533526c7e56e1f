"""IDEAL: few-shot anomaly detection from normal and abnormal reference photographs."""

from transformers import AutoConfig, AutoImageProcessor, AutoModel

from .calibration import calibrate, encode_calibrated
from .configuration_ideal import IdealConfig
from .image_processing_ideal import IdealImageProcessor
from .modeling_ideal import IdealModel, IdealOutput
from .references import IdealReferences
from .threshold import Calibration
from .tiling import TiledDetector
from .version import __version__

# With the package installed, the Auto classes know IDEAL without trust_remote_code.
AutoConfig.register("ideal", IdealConfig, exist_ok=True)
AutoModel.register(IdealConfig, IdealModel, exist_ok=True)
AutoImageProcessor.register(IdealConfig, image_processor_classes={"pil": IdealImageProcessor}, exist_ok=True)

__all__ = [
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
]
