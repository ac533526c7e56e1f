"""The pictures of each category: a montage, the curves of all methods, and a t-SNE of deviations."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

import datasets
from PIL import Image
from torch import Tensor

from ...data.folder import NORMAL
from ...data.reference_sets import ReferenceSet, applicable_settings, inference_episodes
from ...image_inputs import load_image, resize_image
from ...pipeline_results import Scale
from ...writing.files import write_figure
from ..protocol.measurement import Rankings
from ..protocol.scorer import Scorer
from .deviations import sample_deviations
from .montage import MontageRow, Tile, color_scale, draw_montage
from .plots import MethodCurves, draw_curves, draw_deviations

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FORMAT = 4  # of the pictures; a change in the drawing needs a new number, or old pictures would stay
NAMES = ("montage", "curves", "deviations")
SOURCE = "Evaluation"  # keyword of the PNG text that says what a picture shows
NORMAL_ROWS = 2
ANOMALOUS_ROWS = 5


class Album:
    """The pictures of an evaluation: those of the first reference set of every set-up and category.

    Args:
        records: of the target.
        sets: all reference sets of the evaluation.
        folder: pictures are `folder/SETUP/CATEGORY_*.png`.
        key: what a picture of a reference set depends on, in a word.
    """

    def __init__(
        self, records: datasets.Dataset, sets: Sequence[ReferenceSet], folder: Path, key: Callable[[ReferenceSet], str]
    ) -> None:
        first = {(references.setup, references.category): references for references in reversed(sets)}
        self._records, self._folder, self._key, self._pictured = records, folder, key, list(first.values())

    def missing(self, scorer: Scorer, references: ReferenceSet) -> "CategoryPictures | None":
        """What is to be drawn of a reference set; None if nothing is.

        A picture that exists is drawn again only if the key in the file is that of another evaluation.
        """
        settings = [each for each in applicable_settings(scorer.catalogue, references) if each in scorer.settings]
        if references not in self._pictured or not settings:
            return None
        place, source = self._folder / references.setup, f"{FORMAT} {self._key(references)}"
        files = {name: place / f"{references.category}_{name}.png" for name in NAMES}
        missing = {name: file for name, file in files.items() if not _shows(file, source)}
        return CategoryPictures(scorer, self._records, references, settings[0], missing, source) if missing else None


class CategoryPictures:
    """The pictures of a reference set, from what its measurement computes anyway.

    Args:
        scorer: of the evaluation.
        records: of the target.
        references: the reference set.
        setting: decides on the queries.
        files: where to write which pictures.
        source: what they show, kept in the files.
    """

    def __init__(
        self,
        scorer: Scorer,
        records: datasets.Dataset,
        references: ReferenceSet,
        setting: str,
        files: Mapping[str, Path],
        source: str,
    ) -> None:
        self._scorer, self._records, self._files, self._source = scorer, records, files, source
        self._setting = setting
        episodes = inference_episodes(scorer.catalogue, references, setting)
        self._queries = [episode.query for episode in episodes]
        self._references = (episodes[0].normal, episodes[0].abnormal)
        self._shown = _shown(scorer, self._queries)
        self._rows = [MontageRow(_tile(scorer, records, self._queries[place]), {}, {}) for place in self._shown]
        self._scales: dict[str, Scale] = {}
        self._curves: dict[str, MethodCurves] = {}
        self._title = f"{references.category}: {references.setup}, seed {references.seed}, {setting} setting"

    def add(
        self, name: str, queries: Sequence[int], scores: Tensor, maps: Tensor, rankings: Mapping[str, Rankings]
    ) -> None:
        """Take what a method says of n queries, those of the pictures among them: scores (n,), maps (n, H, W)."""
        if list(queries) != self._queries:
            chosen = [list(queries).index(query) for query in self._queries]
            scores, maps = scores[chosen], maps[chosen]
        self._curves[name] = MethodCurves.of(*rankings[self._setting])
        self._scales[name] = color_scale(maps.numpy())
        for row, place in zip(self._rows, self._shown, strict=True):
            # A copy, so that the maps that are not shown need not stay in memory.
            row.maps[name], row.scores[name] = maps[place].numpy().copy(), float(scores[place])

    def write(self) -> None:
        """Draw the pictures, and write them."""
        drawings: dict[str, Callable[[], Figure | Image.Image]] = {
            "montage": self._montage,
            "curves": self._draw_curves,
            "deviations": self._deviations,
        }
        for name, file in self._files.items():
            file.parent.mkdir(parents=True, exist_ok=True)
            write_figure(file, drawings[name](), {SOURCE: self._source})

    def _montage(self) -> Image.Image:
        normal, abnormal = self._references
        tiles = [_tile(self._scorer, self._records, index) for index in (*normal, *abnormal)]
        return draw_montage(self._title, tiles, self._rows, self._scales)

    def _draw_curves(self) -> "Figure":
        return draw_curves(self._title, self._curves)

    def _deviations(self) -> "Figure":
        context = self._scorer.context(*self._references)
        return draw_deviations(self._title, sample_deviations(self._scorer, context, self._queries))


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
