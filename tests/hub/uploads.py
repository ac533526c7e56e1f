"""Pictures as requests to the endpoint's handler carry them."""

import base64
import io

import numpy as np
from PIL import Image


def picture(seed):
    """A picture of noise, 40 x 30."""
    return Image.fromarray(np.random.default_rng(seed).integers(0, 256, (30, 40, 3), dtype=np.uint8))


def file_of(image, form="PNG", **options):
    """The bytes of an image file."""
    file = io.BytesIO()
    image.save(file, form, **options)
    return file.getvalue()


def base64_of(image, form="PNG", **options):
    """An image file as text."""
    return base64.b64encode(file_of(image, form, **options)).decode()


def image_of(text):
    """The values of an image in an answer."""
    return np.asarray(Image.open(io.BytesIO(base64.b64decode(text))))
