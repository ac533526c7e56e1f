# ruff: noqa: F401
"""Exact metrics for anomaly detection, as a module for `evaluate`."""

import datasets
import evaluate
import numpy as np

# evaluate fetches the files this one names and looks no further, so all five are named here; it takes a comment
# behind an import for an address, so there is none.
from .image import image_metrics
from .inputs import read_pixels
from .pixel import pixel_metrics
from .ranking import rank
from .regions import pixel_shares

_DESCRIPTION = """
Exact, sort-based metrics for anomaly detection. Image scores: AUROC, average precision (AP) and F1-max. Anomaly maps:
pixel AUROC, per-region overlap (PRO) and F1-max.
"""

_KWARGS_DESCRIPTION = """
Configurations:
    "image" (default): one score and one label an image.
    "pixel": one anomaly map and one mask an image; images may differ in size.

Args:
    predictions: scores, or maps (H, W) of scores; finite, higher for more anomalous.
    references: labels, 0 for normal and 1 for anomalous; or masks (H, W), not zero for anomalous.
    fpr_limit ("pixel" only): false positive rate up to which PRO is integrated, 0.3 when not given.

Returns:
    "image": {"auroc", "ap", "f1_max"}. "pixel": {"auroc", "pro", "f1_max"}. Each in 0..1, or NaN where it is not
    defined: AUROC and PRO with one class only, all of them without anything anomalous.

Examples:
    >>> import evaluate
    >>> metrics = evaluate.load("hub/anomaly_metrics")
    >>> metrics.compute(predictions=[0.1, 0.4, 0.35, 0.8], references=[0, 0, 1, 1])
    {'auroc': 0.75, 'ap': 0.8333333333333333, 'f1_max': 0.8}

    >>> import numpy as np
    >>> metrics = evaluate.load("hub/anomaly_metrics", "pixel")
    >>> maps = np.array([[[0.9, 0.2, 0.1], [0.3, 0.1, 0.0]], [[0.1, 0.0, 0.2], [0.1, 0.6, 0.8]]])
    >>> masks = np.array([[[1, 1, 0], [0, 0, 0]], [[0, 0, 0], [0, 0, 1]]])
    >>> {name: round(value, 4) for name, value in metrics.compute(predictions=maps, references=masks).items()}
    {'auroc': 0.9074, 'pro': 0.7727, 'f1_max': 0.8}
"""

_CITATION = """
@article{ideal2026,
  title={Beyond Normal References: Discriminative Few-Shot Anomaly Detection},
  journal={arXiv preprint arXiv:2605.23231},
  year={2026}
}
"""

CONFIGURATIONS = {"default": image_metrics, "image": image_metrics, "pixel": pixel_metrics}


@evaluate.utils.file_utils.add_start_docstrings(_DESCRIPTION, _KWARGS_DESCRIPTION)
class AnomalyMetrics(evaluate.Metric):
    """One module for both levels; the configuration says which."""

    def _info(self) -> evaluate.MetricInfo:
        if self.config_name not in CONFIGURATIONS:
            raise ValueError(f'configuration: expected "image" or "pixel", got "{self.config_name}"')
        # Float64 holds every score exactly, and whatever a label or mask is made of reaches the checks as it is.
        feature = datasets.Value("float64")
        if self.config_name == "pixel":
            feature = datasets.Sequence(datasets.Sequence(feature))
        info = evaluate.MetricInfo(
            description=_DESCRIPTION,
            citation=_CITATION,
            inputs_description=_KWARGS_DESCRIPTION,
            features=datasets.Features({"predictions": feature, "references": feature}),
        )
        # Python lists of millions of pixels would take gigabytes. The constructor allows this format for plain values
        # only, though nested ones are read just as well.
        info.format = "numpy"
        return info

    def _compute(self, predictions: np.ndarray, references: np.ndarray, **options: float) -> dict[str, float]:
        # Images of different sizes come as an array of arrays.
        ragged = predictions.dtype == object or references.dtype == object
        inputs = (list(predictions), list(references)) if ragged else (predictions, references)
        return CONFIGURATIONS[self.config_name](*inputs, **options)
