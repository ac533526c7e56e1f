"""The connected regions of `modeling_ideal.connected_regions`, under the name that the `evaluate` module uses.

That module on the Hub is a flat copy of this folder, in which `regions.py` is `connected_regions.py`.
"""

from ..connected_regions import label_pixels, pixel_shares

__all__ = ["label_pixels", "pixel_shares"]
