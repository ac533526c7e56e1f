"""Image and pixel metrics together, in percent, as results are reported."""

from .image import rank_images, ranked_image_metrics
from .inputs import Images, Values
from .pixel import rank_pixels, ranked_pixel_metrics
from .ranking import Ranking


def percent_metrics(scores: Values, labels: Values, maps: Images, masks: Images) -> dict[str, float]:
    """`image_metrics` and `pixel_metrics` under the names `"image_..."` and `"pixel_..."`, in percent; NaN stays NaN.

    Args:
        scores: (n,) of the images.
        labels: (n,) 0 or 1.
        maps: (n, H, W).
        masks: (n, H, W), not zero = anomalous.
    """
    return ranked_percent_metrics(rank_images(scores, labels), rank_pixels(maps, masks))


def ranked_percent_metrics(images: Ranking, pixels: Ranking) -> dict[str, float]:
    """`percent_metrics` from the rankings of `rank_images` and `rank_pixels`."""
    return {
        **{f"image_{name}": 100 * value for name, value in ranked_image_metrics(images).items()},
        **{f"pixel_{name}": 100 * value for name, value in ranked_pixel_metrics(pixels).items()},
    }
