"""The pictures of an evaluation: of every category a montage, the curves of all methods, a t-SNE of deviations."""

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
from ...scoring import image_scores
from ...writing.files import write_figure
from ..protocol.reference_set_scores import Workbench, anomaly_maps, query_scores, reference_context
from .deviations import sample_deviations
from .montage import Row, Tile, color_scale, draw_montage
from .plots import MethodCurves, draw_curves, draw_deviations

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FORMAT = 2  # of the pictures; another way of drawing needs another number, or old ones would stay
SOURCE = "Evaluation"  # text of a PNG that says what it shows
NORMAL_ROWS = 2
ANOMALOUS_ROWS = 5


def draw_pictures(
    bench: Workbench,
    records: datasets.Dataset,
    sets: Sequence[ReferenceSet],
    folder: Path,
    key: Callable[[ReferenceSet], str],
) -> None:
    """Pictures of the first reference set of every set-up and category, as `folder/SETUP/CATEGORY_*.png`.

    One that is there already is not drawn again, unless its key, which is kept in the file, says that it shows
    another evaluation.
    """
    first = {(references.setup, references.category): references for references in reversed(sets)}
    for references in tqdm(list(first.values())[::-1], desc="Drawing", unit="category"):
        place = folder / references.setup
        source = f"{FORMAT} {key(references)}"
        files = {name: place / f"{references.category}_{name}.png" for name in ("montage", "curves", "deviations")}
        missing = {name: file for name, file in files.items() if not _shows(file, source)}
        settings = [each for each in applicable_settings(bench.catalogue, references) if each in bench.settings]
        if missing and settings:
            place.mkdir(parents=True, exist_ok=True)
            drawings = _drawings(bench, records, references, settings[0])
            for name, file in missing.items():
                write_figure(file, drawings[name](), {SOURCE: source})


def spread_out(groups: Sequence[Sequence[int]], count: int) -> list[int]:
    """At most `count` of all, alike from every group and evenly through each: a choice that knows no scores."""
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
    bench: Workbench, records: datasets.Dataset, references: ReferenceSet, setting: str
) -> dict[str, Callable[[], "Figure"]]:
    """What draws each picture of a reference set; the scores they share are computed here."""
    episodes = inference_episodes(bench.catalogue, references, setting)
    queries, normal, abnormal = [episode.query for episode in episodes], episodes[0].normal, episodes[0].abnormal
    context = reference_context(bench, normal, abnormal)
    masks = bench.cache.pixel_masks(queries)
    labels = torch.tensor([bench.cache.labels[query] for query in queries])
    shown = _shown(bench, queries)
    rows = [Row(_tile(bench, records, queries[place]), {}, {}) for place in shown]
    scales: dict[str, Scale] = {}
    curves: dict[str, MethodCurves] = {}
    for name, patches in query_scores(bench, context, queries).items():  # one at a time: its maps are large
        maps = anomaly_maps(bench, patches, (masks.shape[1], masks.shape[2]))
        scores = image_scores(patches, bench.model.config.top_fraction)
        curves[name] = MethodCurves.of(scores, labels, maps, masks)
        scales[name] = color_scale(maps.numpy())
        for row, place in zip(rows, shown, strict=True):
            # A copy, so that the maps that are not shown need not stay in memory.
            row.maps[name], row.scores[name] = maps[place].numpy().copy(), float(scores[place])
    title = f"{references.category}: {references.setup}, seed {references.seed}, {setting} setting"
    tiles = [_tile(bench, records, index) for index in (*normal, *abnormal)]
    return {
        "montage": lambda: draw_montage(title, tiles, rows, scales),
        "curves": lambda: draw_curves(title, curves),
        "deviations": lambda: draw_deviations(title, sample_deviations(bench, context, queries)),
    }


def _shown(bench: Workbench, queries: Sequence[int]) -> list[int]:
    """Places among the queries: some normal ones, then some of every type of anomaly."""
    types = [bench.catalogue.anomaly_types[query] for query in queries]
    groups = {
        kind: [place for place, other in enumerate(types) if other == kind] for kind in (NORMAL, *sorted(set(types)))
    }
    return spread_out([groups.pop(NORMAL)], NORMAL_ROWS) + spread_out(list(groups.values()), ANOMALOUS_ROWS)


def _tile(bench: Workbench, records: datasets.Dataset, index: int) -> Tile:
    path, kind = bench.catalogue.paths[index], bench.catalogue.anomaly_types[index]
    height, width = bench.cache.sizes(index)["pixel_mask"]
    return Tile(
        photograph=resize_image(load_image(records[index]["image"], path), (height, width)),
        mask=bench.cache.pixel_masks([index])[0].numpy() if bench.cache.has_mask(index) else None,
        caption=f"{'normal' if kind == NORMAL else kind} {PurePosixPath(path).stem}",
    )


def _shows(file: Path, source: str) -> bool:
    """Whether a picture is there and says that it shows this."""
    if not file.exists():
        return False
    with Image.open(file) as picture:
        return picture.info.get(SOURCE) == source
