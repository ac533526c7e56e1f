"""Bad input to the metrics: a ValueError that names what was expected and what came."""

import numpy as np
import pytest
import torch

from modeling_ideal.metrics import image_metrics, pixel_metrics, released_pro

MAPS, MASKS = np.full((2, 4, 5), 0.5), np.zeros((2, 4, 5))


def spoilt(values, by):
    values = np.array(values, dtype=np.float32)
    values.flat[0] = by
    return values


BAD_IMAGES = {
    "NaN": ([0.1, float("nan")], [0, 1], "scores: expected finite values, got 1 that are NaN or infinite"),
    "infinity": ([float("-inf"), float("inf")], [0, 1], "scores: expected finite values, got 2 that"),
    "no images": ([], [], r"scores: expected shape \(n,\) with at least one image, got \(0,\)"),
    "two dimensions": ([[0.1]], [[1]], r"scores: expected shape \(n,\) .* got \(1, 1\)"),
    "a number": (0.1, 1, r"scores: expected shape \(n,\) .* got \(\)"),
    "lengths": ([0.1, 0.2], [0, 1, 1], r"labels: expected the shape of scores, \(2,\), got \(3,\)"),
    "labels of -1": ([0.1, 0.2], [-1, 1], r"labels: expected 0 \(normal\) or 1 \(anomalous\), got \[-1, 1\]"),
    "labels of NaN": ([0.1, 0.2], [0, float("nan")], r"labels: expected 0 .* got \[0.0, nan\]"),
    "strings": (["a", "b"], [0, 1], "scores: expected numbers, got <U1"),
    "nothing": (None, [0, 1], "scores: expected numbers, got object"),
    "complex": ([1j, 2j], [0, 1], "scores: expected numbers, got complex128"),
    "ragged": ([[0.1], [0.2, 0.3]], [0, 1], "scores: expected numbers in one array, got list"),
}

BAD_PIXELS = {
    "NaN": (spoilt(MAPS, np.nan), MASKS, "maps: expected finite values, got 1 that are NaN or infinite"),
    "infinity": (torch.from_numpy(spoilt(MAPS, np.inf)), MASKS, "maps: expected finite values, got 1"),
    "NaN in a mask": (MAPS, spoilt(MASKS, np.nan), "masks: expected finite values, got 1"),
    "one map": (MAPS[0], MASKS[0], r"maps: expected shape \(n, H, W\), or a list of maps \(H, W\), .* got \(4, 5\)"),
    "channels": (MAPS[:, None], MASKS, r"maps: expected shape \(n, H, W\), .* got \(2, 1, 4, 5\)"),
    "no maps": (MAPS[:0], MASKS[:0], r"maps: expected .* at least one pixel, got \(0, 4, 5\)"),
    "no pixels": (MAPS[:, :0], MASKS[:, :0], r"maps: expected .* at least one pixel, got \(2, 0, 5\)"),
    "turned masks": (
        MAPS,
        MASKS.transpose(0, 2, 1),
        r"masks: expected the shape of maps, \(2, 4, 5\), got \(2, 5, 4\)",
    ),
    "fewer masks": (MAPS, MASKS[:1], r"masks: expected the shape of maps, \(2, 4, 5\), got \(1, 4, 5\)"),
    "no maps listed": ([], [], "expected at least one map and a mask for each, got 0 maps and 0 masks"),
    "fewer masks listed": (list(MAPS), list(MASKS[:1]), "a mask for each, got 2 maps and 1 masks"),
    "no masks": (list(MAPS), None, r"masks: expected a list of masks \(H, W\), as for maps, got NoneType"),
    "listed stacks": ([MAPS], [MASKS], r"maps\[0\]: expected shape \(H, W\) .* got \(2, 4, 5\)"),
    "listed sizes": (
        [MAPS[0], MAPS[1]],
        [MASKS[0], MASKS[1].T],
        r"masks\[1\]: expected the shape of maps\[1\], \(4, 5\), got \(5, 4\)",
    ),
}


@pytest.mark.parametrize(("scores", "labels", "message"), BAD_IMAGES.values(), ids=BAD_IMAGES)
def test_images(scores, labels, message):
    with pytest.raises(ValueError, match=message):
        image_metrics(scores, labels)


@pytest.mark.parametrize("metric", [pixel_metrics, released_pro])
@pytest.mark.parametrize(("maps", "masks", "message"), BAD_PIXELS.values(), ids=BAD_PIXELS)
def test_pixels(metric, maps, masks, message):
    with pytest.raises(ValueError, match=message):
        metric(maps, masks)


@pytest.mark.parametrize("limit", [0, -0.3, 1.5, float("nan")])
def test_limits(limit):
    with pytest.raises(ValueError, match=r"fpr_limit: expected a number in \(0, 1\], got " + str(limit)):
        pixel_metrics(MAPS, MASKS, fpr_limit=limit)
