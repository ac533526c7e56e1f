"""Records: a folder of images as a `datasets.Dataset`, decoded lazily and never stale."""

import logging
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal, overload

import datasets
from datasets.table import embed_table_storage
from PIL import Image

from ..image_inputs import open_image, unreadable
from .folder import Entry, Scan
from .images import image_size, png_bytes, read_masks
from .layouts import scan

logger = logging.getLogger(__name__)

MISSING_MASK_HINT = "; draw the missing masks, or, in Python, accept this with load_records(allow_missing_masks=True)"
_NAMED_AT_MOST = 5
_EMBEDDED_AT_ONCE = 100  # whole images are large, so fewer than the 1,000 rows that `datasets` takes by default


class NamedImage(datasets.Image):
    """`datasets.Image` with errors that name the file; saved to disk or the Hub it is a plain `Image`."""

    def decode_example(self, value: dict[str, Any], token_per_repo_id: dict | None = None) -> Image.Image:
        """Decode a picture; ValueError naming the file if it is corrupt."""
        try:
            return super().decode_example(value, token_per_repo_id)
        except Exception as error:
            raise unreadable(value["path"], error) from error


def record_features() -> datasets.Features:
    """The columns of the records, in order."""
    return datasets.Features(
        {
            "image": datasets.Image(),
            "mask": datasets.Image(),
            "label": datasets.ClassLabel(names=["normal", "anomalous"]),
            "category": datasets.Value("string"),
            "anomaly_type": datasets.Value("string"),
            "split": datasets.Value("string"),
            "path": datasets.Value("string"),
        }
    )


class RecordsBuilder(datasets.GeneratorBasedBuilder):
    """Builds the records of a scanned folder; the cache key depends on the state of every file."""

    # To be raised whenever the same folder should give different records than before.
    VERSION = datasets.Version("1.0.0")

    def __init__(self, scanned: Scan, cache_dir: str | Path | None = None) -> None:
        self.scanned = scanned
        super().__init__(
            cache_dir=None if cache_dir is None else str(cache_dir),
            dataset_name="ideal_records",
            hash=scanned.fingerprint(),
            data_dir=str(scanned.root.resolve()),
        )

    def _info(self) -> datasets.DatasetInfo:
        return datasets.DatasetInfo(description=f"layout {self.scanned.layout}", features=record_features())

    def _split_generators(self, dl_manager: datasets.DownloadManager) -> list[datasets.SplitGenerator]:
        # A list, because `datasets` divides lists among the workers of a data loader when streaming.
        return [datasets.SplitGenerator("records", gen_kwargs={"entries": list(self.scanned.entries)})]

    def _generate_examples(self, entries: list[Entry]) -> Iterator[tuple[str, dict[str, Any]]]:
        root = self.scanned.root.resolve()
        opened: tuple[str, Image.Image] | None = None
        for entry in entries:
            file = root / entry.file
            if entry.box is None:
                image: dict[str, Any] = {"path": str(file), "bytes": None}
            else:
                if opened is None or opened[0] != entry.file:  # the tiles of a strip are consecutive entries
                    opened = (entry.file, open_image(file, one_frame=True))
                image = {"path": None, "bytes": png_bytes(opened[1].crop(entry.box))}
            yield (
                entry.path,
                {
                    "image": image,
                    "mask": _mask_image(root, entry),
                    "label": entry.label,
                    "category": entry.category,
                    "anomaly_type": entry.anomaly_type,
                    "split": entry.split,
                    "path": entry.path,
                },
            )


def _mask_image(root: Path, entry: Entry) -> dict[str, Any] | None:
    """The union of an anomalous entry's masks as an image feature: mode "L", 0 or 255, of the image's size."""
    if not entry.label or not entry.masks:
        return None
    union = read_masks([root / mask for mask in entry.masks], image_size(root / entry.file))
    mask = Image.fromarray(union).convert("L")
    return {"path": None, "bytes": png_bytes(mask if entry.box is None else mask.crop(entry.box))}


@overload
def load_records(
    root: str | Path,
    layout: str = "auto",
    streaming: Literal[False] = False,
    *,
    valid_as: str | None = None,
    allow_missing_masks: bool = False,
    cache_dir: str | Path | None = None,
) -> datasets.Dataset: ...


@overload
def load_records(
    root: str | Path,
    layout: str = "auto",
    *,
    streaming: Literal[True],
    valid_as: str | None = None,
    allow_missing_masks: bool = False,
    cache_dir: str | Path | None = None,
) -> datasets.IterableDataset: ...


def load_records(
    root: str | Path,
    layout: str = "auto",
    streaming: bool = False,
    *,
    valid_as: str | None = None,
    allow_missing_masks: bool = False,
    cache_dir: str | Path | None = None,
) -> datasets.Dataset | datasets.IterableDataset:
    """Load the images of a folder as records.

    Columns: `image`, `mask` (mode "L", 255 where anomalous, of the image's size; None for normal images and
    for images without a mask file), `label` (0 normal, 1 anomalous), `category`, `anomaly_type` ("good" for
    normal), `split` ("train" or "test") and `path` (unique, relative to `root`, with forward slashes).

    The images stay in their files. `push_to_hub` and `save_to_disk` include them; `to_parquet` only writes their
    paths on this machine, so pass the records through `embed_images` first.

    Args:
        root: the folder; nothing is written to it.
        layout: a key of `modeling_ideal.data.layouts.LAYOUTS`, or "auto" to recognise the layout and log it.
        streaming: return a `datasets.IterableDataset` without preparing anything.
        valid_as: the split, "train" or "test", that the images of a `valid` folder (BMAD) join; by default
            they are left out, and the log says so.
        allow_missing_masks: accept anomalous images without a mask file, with the mask None; by default they are
            an error, except in your own folder if a whole category has no masks.
        cache_dir: where `datasets` keeps the prepared records (not the images); its own cache by default.
            The records of a folder that has changed are always prepared again.
    """
    scanned = scan(root, layout, valid_as)
    _report(scanned, allow_missing_masks)
    builder = RecordsBuilder(scanned, cache_dir)
    if streaming:
        records = builder.as_streaming_dataset(split="records")
    else:
        try:
            builder.download_and_prepare()
        except datasets.exceptions.DatasetGenerationError as error:
            if isinstance(error.__cause__, ValueError):  # one of ours, which names the file
                raise error.__cause__ from None
            raise
        records = builder.as_dataset(split="records")
    return records.cast_column("image", NamedImage())


def embed_images(records: datasets.Dataset) -> datasets.Dataset:
    """Copy the image files into the records, which then no longer need the folder.

    For example `embed_images(records).to_parquet("parts.parquet")`. The copy is cached by `datasets`, as with `map`;
    format and columns are kept.

    Args:
        records: from `load_records`, possibly mapped or filtered, but not streamed.
    """
    if not isinstance(records, datasets.Dataset):
        raise ValueError(f"expected a datasets.Dataset, got {type(records).__name__}: load without streaming=True")
    try:
        embedded = records.with_format("arrow").map(
            embed_table_storage,
            batched=True,
            batch_size=_EMBEDDED_AT_ONCE,
            writer_batch_size=_EMBEDDED_AT_ONCE,
            features=records.features,
            desc="Embedding images",
        )
    except FileNotFoundError as error:
        raise unreadable(error.filename, error) from error
    return embedded.with_format(**records.format)


def _report(scanned: Scan, allow_missing_masks: bool) -> None:
    """Raise for the errors of a scan and log its warnings and notes, so that nothing is left out silently."""
    errors: list[str] = []
    warnings: dict[str, list[str]] = defaultdict(list)
    hint = ""
    for problem in scanned.problems:
        missing_mask = problem.kind == "missing mask"
        if problem.severity == "note":
            logger.info("%s: %s", scanned.root, problem.message)
        elif problem.severity == "warning" or (missing_mask and allow_missing_masks):
            warnings[problem.kind].append(problem.message)
        else:
            errors.append(problem.message)
            hint = MISSING_MASK_HINT if missing_mask else hint
    for messages in warnings.values():
        logger.warning("%s: %s", scanned.root, _enumerate(messages))
    if errors:
        raise ValueError(f"{scanned.root}: {_enumerate(errors)}{hint}")


def _enumerate(messages: list[str]) -> str:
    """Join the first messages in one line, and count the others."""
    if len(messages) <= _NAMED_AT_MOST:
        return "; ".join(messages)
    shown = "; ".join(messages[:_NAMED_AT_MOST])
    return f"{shown}; and {len(messages) - _NAMED_AT_MOST} more, which `ideal data check` lists"
