"""IDEAL: few-shot anomaly detection from normal and abnormal reference photographs."""

from transformers import AutoConfig, AutoImageProcessor, AutoModel

from .calibration import calibrate, encode_calibrated
from .configuration_ideal import IdealConfig
from .image_processing_ideal import IdealImageProcessor
from .modeling_ideal import IdealModel
from .outputs import IdealOutput
from .pipeline_ideal import AnomalyDetectionPipeline
from .references import IdealReferences
from .threshold import Calibration
from .tiling import TiledDetector
from .version import __version__

# With the package installed, the Auto classes know IDEAL without trust_remote_code.
AutoConfig.register("ideal", IdealConfig, exist_ok=True)
AutoModel.register(IdealConfig, IdealModel, exist_ok=True)
AutoImageProcessor.register(IdealConfig, image_processor_classes={"pil": IdealImageProcessor}, exist_ok=True)

# What is saved carries its code along, so that it loads where the package is not installed.
for part in (IdealConfig, IdealModel, IdealImageProcessor):
    part.register_for_auto_class()

__all__ = [
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
]
