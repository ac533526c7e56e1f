"""Image and pixel metrics together, in percent, as results are reported."""

from .image import image_metrics
from .inputs import Images, Values
from .pixel import pixel_metrics


def percent_metrics(scores: Values, labels: Values, maps: Images, masks: Images) -> dict[str, float]:
    """`image_metrics` and `pixel_metrics` under the names `"image_..."` and `"pixel_..."`, in percent; NaN stays NaN.

    Args:
        scores: (n,) of the images.
        labels: (n,) 0 or 1.
        maps: (n, H, W).
        masks: (n, H, W), not zero = anomalous.
    """
    return {
        **{f"image_{name}": 100 * value for name, value in image_metrics(scores, labels).items()},
        **{f"pixel_{name}": 100 * value for name, value in pixel_metrics(maps, masks).items()},
    }
