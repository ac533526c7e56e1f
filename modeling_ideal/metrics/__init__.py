"""Exact, sort-based metrics for anomaly detection, independent of the model. NumPy and torch only."""

from .curves import image_roc_curve, pixel_roc_curve, pro_curve
from .image import image_metrics
from .pixel import pixel_metrics
from .released import released_pro
from .streaming import StreamingPixelMetrics

__all__ = [
    "StreamingPixelMetrics",
    "image_metrics",
    "image_roc_curve",
    "pixel_metrics",
    "pixel_roc_curve",
    "pro_curve",
    "released_pro",
]
