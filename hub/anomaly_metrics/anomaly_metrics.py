# ruff: noqa: F401
"""Exact metrics for anomaly detection, as a module for `evaluate`."""

import datasets
import evaluate
import numpy as np

# evaluate fetches only the files that this one imports, so all five are imported here. It takes a comment after an
# import for an address, so there is none.
from .image import image_metrics
from .inputs import read_pixel_scores
from .pixel import pixel_metrics
from .ranking import rank
from .regions import pixel_shares

_DESCRIPTION = """
Exact, sort-based metrics for anomaly detection. Image scores: AUROC, average precision (AP) and F1-max. Anomaly maps:
pixel AUROC, per-region overlap (PRO) and F1-max.
"""

_KWARGS_DESCRIPTION = """
Configurations:
    "image" (default): one score and one label per image.
    "pixel": one anomaly map and one mask per image; images may differ in size.

Args:
    predictions: scores, or maps (H, W) of scores; finite, higher for more anomalous.
    references: labels, 0 for normal and 1 for anomalous; or masks (H, W), non-zero for anomalous.
    fpr_limit ("pixel" only): false positive rate up to which PRO is integrated (default: 0.3).

Returns:
    "image": {"auroc", "ap", "f1_max"}. "pixel": {"auroc", "pro", "f1_max"}. Each in 0..1, or NaN where it is not
    defined: AUROC and PRO if there is only one class, all of them if nothing is anomalous.

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
    """Image or pixel metrics, depending on the configuration."""

    def _info(self) -> evaluate.MetricInfo:
        if self.config_name not in CONFIGURATIONS:
            raise ValueError(f'configuration: expected "image" or "pixel", got "{self.config_name}"')
        # Float64 represents every score exactly, and passes any label or mask on to the checks unchanged.
        feature = datasets.Value("float64")
        if self.config_name == "pixel":
            feature = datasets.Sequence(datasets.Sequence(feature))
        info = evaluate.MetricInfo(
            description=_DESCRIPTION,
            citation=_CITATION,
            inputs_description=_KWARGS_DESCRIPTION,
            features=datasets.Features({"predictions": feature, "references": feature}),
        )
        # Python lists of millions of pixels would take gigabytes. The constructor allows this format only for plain
        # values, but it works for nested ones too.
        info.format = "numpy"
        return info

    def _compute(self, predictions: np.ndarray, references: np.ndarray, **options: float) -> dict[str, float]:
        # Images of different sizes arrive as an array of arrays.
        ragged = predictions.dtype == object or references.dtype == object
        inputs = (list(predictions), list(references)) if ragged else (predictions, references)
        return CONFIGURATIONS[self.config_name](*inputs, **options)
