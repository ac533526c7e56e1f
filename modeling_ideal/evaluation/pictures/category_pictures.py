"""The pictures of each category: a montage, the curves of all methods, and a t-SNE of deviations."""

from collections.abc import Callable, Sequence
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

import datasets
import torch
from PIL import Image
from tqdm import tqdm

from ...data.folder import NORMAL
from ...data.reference_sets import ReferenceSet, applicable_settings, inference_episodes
from ...image_inputs import load_image, resize_image
from ...pipeline_results import Scale
from ...writing.files import write_figure
from ..protocol.scorer import Scorer
from .deviations import sample_deviations
from .montage import MontageRow, Tile, color_scale, draw_montage
from .plots import MethodCurves, draw_curves, draw_deviations

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FORMAT = 2  # of the pictures; a change in the drawing needs a new number, or old pictures would stay
SOURCE = "Evaluation"  # keyword of the PNG text that says what a picture shows
NORMAL_ROWS = 2
ANOMALOUS_ROWS = 5


def draw_pictures(
    scorer: Scorer,
    records: datasets.Dataset,
    sets: Sequence[ReferenceSet],
    folder: Path,
    key: Callable[[ReferenceSet], str],
) -> None:
    """Draw the first reference set of every set-up and category, as `folder/SETUP/CATEGORY_*.png`.

    A picture that exists is drawn again only if the key in the file is that of another evaluation.
    """
    first = {(references.setup, references.category): references for references in reversed(sets)}
    for references in tqdm(list(first.values())[::-1], desc="Drawing", unit="category"):
        place = folder / references.setup
        source = f"{FORMAT} {key(references)}"
        files = {name: place / f"{references.category}_{name}.png" for name in ("montage", "curves", "deviations")}
        missing = {name: file for name, file in files.items() if not _shows(file, source)}
        settings = [each for each in applicable_settings(scorer.catalogue, references) if each in scorer.settings]
        if missing and settings:
            place.mkdir(parents=True, exist_ok=True)
            drawings = _drawings(scorer, records, references, settings[0])
            for name, file in missing.items():
                write_figure(file, drawings[name](), {SOURCE: source})


def spread_out(groups: Sequence[Sequence[int]], count: int) -> list[int]:
    """At most `count` members, evenly from every group and within each; scores have no influence."""
    shares = [0] * len(groups)
    for _ in range(min(count, sum(map(len, groups)))):
        open_groups = [place for place, group in enumerate(groups) if shares[place] < len(group)]
        shares[min(open_groups, key=shares.__getitem__)] += 1
    return [
        group[int((step + 0.5) * len(group) / share)]
        for group, share in zip(groups, shares, strict=True)
        for step in range(share)
    ]


@torch.inference_mode()
def _drawings(
    scorer: Scorer, records: datasets.Dataset, references: ReferenceSet, setting: str
) -> dict[str, Callable[[], "Figure"]]:
    """Functions that draw the pictures of a reference set; the scores that they share are computed here."""
    episodes = inference_episodes(scorer.catalogue, references, setting)
    queries, normal, abnormal = [episode.query for episode in episodes], episodes[0].normal, episodes[0].abnormal
    context = scorer.context(normal, abnormal)
    masks = scorer.cache.pixel_masks(queries)
    labels = torch.tensor([scorer.cache.labels[query] for query in queries])
    shown = _shown(scorer, queries)
    rows = [MontageRow(_tile(scorer, records, queries[place]), {}, {}) for place in shown]
    scales: dict[str, Scale] = {}
    curves: dict[str, MethodCurves] = {}
    for name, patches in scorer.patch_scores(context, queries).items():  # one at a time: its maps are large
        maps = scorer.anomaly_maps(patches, (masks.shape[1], masks.shape[2]))
        scores = scorer.image_scores(name, patches)
        curves[name] = MethodCurves.of(scores, labels, maps, masks)
        scales[name] = color_scale(maps.numpy())
        for row, place in zip(rows, shown, strict=True):
            # A copy, so that the maps that are not shown need not stay in memory.
            row.maps[name], row.scores[name] = maps[place].numpy().copy(), float(scores[place])
    title = f"{references.category}: {references.setup}, seed {references.seed}, {setting} setting"
    tiles = [_tile(scorer, records, index) for index in (*normal, *abnormal)]
    return {
        "montage": lambda: draw_montage(title, tiles, rows, scales),
        "curves": lambda: draw_curves(title, curves),
        "deviations": lambda: draw_deviations(title, sample_deviations(scorer, context, queries)),
    }


def _shown(scorer: Scorer, queries: Sequence[int]) -> list[int]:
    """Which queries to show, by their places: some normal ones, then some of every type of anomaly."""
    types = [scorer.catalogue.anomaly_types[query] for query in queries]
    groups = {
        kind: [place for place, other in enumerate(types) if other == kind] for kind in (NORMAL, *sorted(set(types)))
    }
    return spread_out([groups.pop(NORMAL)], NORMAL_ROWS) + spread_out(list(groups.values()), ANOMALOUS_ROWS)


def _tile(scorer: Scorer, records: datasets.Dataset, index: int) -> Tile:
    path, kind = scorer.catalogue.paths[index], scorer.catalogue.anomaly_types[index]
    height, width = scorer.cache.sizes(index)["pixel_mask"]
    return Tile(
        photograph=resize_image(load_image(records[index]["image"], path), (height, width)),
        mask=scorer.cache.pixel_masks([index])[0].numpy() if scorer.cache.has_mask(index) else None,
        caption=f"{'normal' if kind == NORMAL else kind} {PurePosixPath(path).stem}",
    )


def _shows(file: Path, source: str) -> bool:
    """Whether a picture exists, can be opened and says that it shows this."""
    try:
        with Image.open(file) as picture:
            return picture.info.get(SOURCE) == source
    except OSError:
        return False
