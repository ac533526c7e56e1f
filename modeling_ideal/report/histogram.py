"""A histogram of scores with the threshold in it, as an SVG drawing inside a page."""

import math
from collections.abc import Sequence

BINS_BELOW = 12  # the threshold
MOST_BINS = 48
WIDTH, HEIGHT, MARGIN = 640, 150, 24  # units of the drawing; the margin is for the figures below
LEAST_WIDTH = 1e-3  # of a bin


def score_bins(scores: Sequence[float], threshold: float) -> tuple[float, int, list[int]]:
    """Count scores in 0..1 in bins from 0 on: the width of a bin, the number of bins below the threshold, the counts.

    The threshold lies between two bins, so that each is on one side of it. Bins are as fine as their number allows;
    if the threshold is very low, scores above the last bin are in it.
    """
    highest = max([*scores, 1.5 * threshold, LEAST_WIDTH])
    below = min(max(int(MOST_BINS * threshold / highest), 1), BINS_BELOW) if threshold > 0 else 0
    width = max(threshold / below if below else highest / BINS_BELOW, LEAST_WIDTH)
    above = min(max(math.floor((highest - threshold) / width) + 1, 1), MOST_BINS)
    counts = [0] * (below + above)
    for score in scores:
        place = min(int(score / width), below - 1) if score < threshold else below + int((score - threshold) / width)
        counts[min(max(place, 0), len(counts) - 1)] += 1
    return width, below, counts


def draw_histogram(scores: Sequence[float], threshold: float) -> str:
    """Draw the SVG; bars at or above the threshold have the class "anomalous", the others "normal"."""
    width, below, counts = score_bins(scores, threshold)
    most = max([*counts, 1])
    step = WIDTH / len(counts)
    line = step * below
    anomalous = sum(score >= threshold for score in scores)
    text = (
        f"Histogram of {len(scores)} scores: {len(scores) - anomalous} below the threshold of {threshold:.3g}, "
        f"{anomalous} at or above it"
    )
    bars = []
    for place, count in enumerate(counts):
        if not count:
            continue
        height = max(2.0, (HEIGHT - 20) * count / most)
        low, high = place * width, (place + 1) * width
        kind = "anomalous" if place >= below else "normal"
        bars.append(
            f'<rect class="{kind}" x="{place * step + 0.75:.2f}" y="{HEIGHT - height:.2f}" width="{step - 1.5:.2f}" '
            f'height="{height:.2f}"><title>{count} at {low:.3g} to {high:.3g}</title></rect>'
        )
    last = len(counts) * width
    end = f"{last:.2f}" if max(scores) <= last else f"{last:.2f} or more"
    anchor = "start" if line < WIDTH / 2 else "end"
    shift = 5 if anchor == "start" else -5
    return (
        f'<svg class="histogram" viewBox="0 0 {WIDTH} {HEIGHT + MARGIN}" role="img" aria-label="{text}">'
        f"{''.join(bars)}"
        f'<line class="axis" x1="0" x2="{WIDTH}" y1="{HEIGHT}" y2="{HEIGHT}"/>'
        f'<line class="threshold" x1="{line:.2f}" x2="{line:.2f}" y1="0" y2="{HEIGHT + 6}"/>'
        f'<text x="{line + shift:.2f}" y="14" text-anchor="{anchor}">threshold {threshold:.3g}</text>'
        f'<text x="0" y="{HEIGHT + 18}">score 0</text>'
        f'<text x="{WIDTH}" y="{HEIGHT + 18}" text-anchor="end">{end}</text></svg>'
    )
