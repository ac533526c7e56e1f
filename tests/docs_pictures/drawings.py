"""Drawings: parts with their anomaly maps, scores with their threshold, the method stage by stage."""

from collections.abc import Sequence
from io import BytesIO
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from PIL import Image

from modeling_ideal import AnomalyDetectionPipeline, Calibration
from modeling_ideal.demo.rendering import Part
from modeling_ideal.student_t import t_quantile

GREEN, RED, BLUE = "#1d6b3a", "#b3261e", "#5b9bc8"  # of the report
SHARES = np.linspace(0.001, 0.999, 400)


def picture_of(figure: Figure) -> Image.Image:
    """The pixels of a figure."""
    buffer = BytesIO()
    FigureCanvasAgg(figure).print_png(buffer)
    return Image.open(buffer).convert("RGB")


def parts_and_maps(parts: Sequence[tuple[Image.Image, Image.Image, str, dict[str, Any]]]) -> Image.Image:
    """Each part (picture, overlay, what it is, result) over its anomaly map, with the verdict."""
    figure = Figure(figsize=(1.75 * len(parts), 4.1), dpi=100, layout="constrained")
    above, below = figure.subplots(2, len(parts))
    for top, bottom, (picture, overlay, truth, result) in zip(above, below, parts, strict=True):
        top.imshow(picture)
        top.set_title(truth, fontsize=11)
        bottom.imshow(overlay)
        bottom.set_title(result["label"], fontsize=11, color=RED if result["label"] == "anomalous" else GREEN)
    for axes in (*above, *below):
        axes.set_axis_off()
    return picture_of(figure)


def scores_and_threshold(calibration: Calibration) -> Image.Image:
    """The scores of references, what they suggest for the next good part, and the thresholds of two rates."""
    figure = Figure(figsize=(8.4, 3.4), dpi=100, layout="constrained")
    axes = figure.subplots()
    quantiles = np.array([t_quantile(share, calibration.degrees) for share in SHARES])
    next_scores = np.exp(calibration.location + calibration.scale * quantiles)
    density = np.gradient(SHARES, next_scores)
    inside = next_scores < 2.2 * calibration.threshold
    axes.fill_between(next_scores[inside], density[inside], color=BLUE, alpha=0.3, linewidth=0)
    axes.plot(next_scores[inside], density[inside], color=BLUE, label="the next good part, as expected")
    level = -0.08 * density.max()
    for scores, color, label in (
        (calibration.normal_scores, GREEN, "normal references, each as if it were new"),
        (calibration.abnormal_scores, RED, "abnormal references"),
    ):
        shown = [min(score, 2.15 * calibration.threshold) for score in scores]
        axes.scatter(shown, [level] * len(shown), color=color, s=34, label=label, clip_on=False, zorder=3)
    for rate, style in ((calibration.false_alarm, "-"), (0.01, "--")):
        known = {"prior": calibration.prior, "diversity": calibration.diversity}
        again = Calibration.from_scores(calibration.normal_scores, (), rate, **known)
        label = f"threshold {again.threshold:.4f}: {rate:.0%} of good parts reach it"
        axes.axvline(again.threshold, color="0.15", linestyle=style, linewidth=1.4, label=label)
    axes.set(xlabel="score; one that is further to the right is at the edge", yticks=[], ylim=(2 * level, None))
    axes.set_xlim(0, 2.2 * calibration.threshold)
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.legend(framealpha=1, edgecolor="none", loc="upper right", fontsize=10)
    return picture_of(figure)


def stages(pipe: AnomalyDetectionPipeline, normal: Sequence[Part], abnormal: Part, part: Part) -> Image.Image:
    """One picture, stage by stage: distance to normal, before and after erasing, like the known defect, score."""
    model: Any = pipe.model
    process: Any = pipe.image_processor
    pictures = {"normal_refs": [each.image for each in normal], "abnormal_refs": [abnormal.image]}
    references = model.encode_references(**process(**pictures, masks=[abnormal.mask]))
    query = process(query=[part.image])["query"]
    with torch.no_grad():
        patches = model.extract_features(query)[0]  # (h, w, C)
        scores = model(query, references=references).patch_scores[0]  # (h, w)
    found = model.deviations(patches.flatten(0, 1), *references.normals(0))
    known = F.normalize(references.abnormal_deviations[0], dim=-1)
    alike = (F.normalize(found.denoised, dim=-1) @ known.T).amax(-1).clamp_min(0)
    longest = float(found.residual.norm(dim=-1).max())
    panels = [
        ("1. distance to normal", 1 - found.nearest_cosine, None),
        ("2. residual", found.residual.norm(dim=-1), longest),
        ("after erasing", found.denoised.norm(dim=-1), longest),
        ("3. like a known defect", alike, 1.0),
        ("4. score", scores.flatten(), None),
    ]
    figure = Figure(figsize=(11.6, 2.12), dpi=100, layout="constrained")
    first, *others = figure.subplots(1, 1 + len(panels))
    first.imshow(part.image)
    first.contour(np.asarray(part.mask) > 0, levels=[0.5], colors="cyan", linewidths=1)
    first.set_title(f"a new part: {part.defect}", fontsize=11)
    for axes, (title, values, highest) in zip(others, panels, strict=True):
        axes.imshow(values.view(scores.shape), cmap="inferno", vmin=0, vmax=highest)
        axes.set_title(title, fontsize=11)
    for axes in (first, *others):
        axes.set_axis_off()
    return picture_of(figure)
