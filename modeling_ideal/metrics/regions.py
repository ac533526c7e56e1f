"""Connected regions, as the pipeline finds them.

The `evaluate` module on the Hub is a flat copy of this folder, in which `regions` is `connected_regions` itself.
"""

from ..connected_regions import label_pixels, pixel_shares

__all__ = ["label_pixels", "pixel_shares"]
