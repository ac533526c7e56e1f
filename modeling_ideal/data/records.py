"""Records: a folder of pictures as a `datasets.Dataset`, decoded lazily, never stale."""

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

_NAMED_AT_MOST = 5
_EMBEDDED_AT_ONCE = 100  # whole photographs, so far fewer than the 1,000 rows that `datasets` takes by default


class NamedImage(datasets.Image):
    """`datasets.Image` whose errors name the file; on disk and on the Hub it is a plain `Image`."""

    def decode_example(self, value: dict[str, Any], token_per_repo_id: dict | None = None) -> Image.Image:
        """The decoded picture; ValueError naming the file where it is corrupt."""
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
    """Builds the records of a scanned folder; its cache key holds the state of every file it read."""

    # Raise it whenever the same folder should give other records than before.
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
        # A list is what a stream divides among the workers of a data loader.
        return [datasets.SplitGenerator("records", gen_kwargs={"entries": list(self.scanned.entries)})]

    def _generate_examples(self, entries: list[Entry]) -> Iterator[tuple[str, dict[str, Any]]]:
        root = self.scanned.root.resolve()
        opened: tuple[str, Image.Image] | None = None
        for entry in entries:
            file = root / entry.file
            if entry.box is None:
                image: dict[str, Any] = {"path": str(file), "bytes": None}
            else:
                if opened is None or opened[0] != entry.file:  # the tiles of a strip follow one another
                    opened = (entry.file, open_image(file))
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
    """The union of an anomalous entry's masks, 0 and 255 in mode "L", of its image's own size."""
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
    """The records of a folder of pictures.

    Columns: `image`, `mask` (mode "L", 255 where anomalous, of the image's size; None for normal images and
    in one's own folder without masks), `label` (0 normal, 1 anomalous), `category`, `anomaly_type` ("good" for
    normal), `split` ("train" or "test") and `path` (below `root`, with forward slashes, unique).

    The images stay in their files. `push_to_hub` and `save_to_disk` take them along; `to_parquet` writes down where
    they are on this machine, so pass the records through `embed_images` before it.

    Args:
        root: the folder; nothing is ever written into it.
        layout: a key of `modeling_ideal.data.layouts.LAYOUTS`, or "auto" to recognise it (logged).
        streaming: give a `datasets.IterableDataset`, without preparing anything.
        valid_as: the split, "train" or "test", that the images of a `valid` folder (BMAD) join; by default
            they are left out, and the log says so.
        allow_missing_masks: let an anomalous image without a mask file have the mask None; by default that is
            an error, except in one's own folder where a whole category has none.
        cache_dir: where `datasets` keeps the prepared records (not the images); its own cache by default.
            The records of a folder that has changed are always prepared anew.
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
            if isinstance(error.__cause__, ValueError):  # ours, naming the file
                raise error.__cause__ from None
            raise
        records = builder.as_dataset(split="records")
    return records.cast_column("image", NamedImage())


def embed_images(records: datasets.Dataset) -> datasets.Dataset:
    """The records with their image files inside, which then need neither the folder nor this machine.

    For `to_parquet` and its like: `embed_images(records).to_parquet("parts.parquet")`. The copy is kept in the
    cache of `datasets`, as that of `map` is; format and columns stay.

    Args:
        records: the records of `load_records`, mapped or filtered at will; a stream cannot be embedded.
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
    """Raise for the errors of a scan, log its warnings and notes: nothing is left out silently."""
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
            hint = " (allow_missing_masks=True reads them without)" if missing_mask else hint
    for messages in warnings.values():
        logger.warning("%s: %s", scanned.root, _enumerate(messages))
    if errors:
        raise ValueError(f"{scanned.root}: {_enumerate(errors)}{hint}")


def _enumerate(messages: list[str]) -> str:
    """The first of the messages in one line, and how many there are."""
    if len(messages) <= _NAMED_AT_MOST:
        return "; ".join(messages)
    shown = "; ".join(messages[:_NAMED_AT_MOST])
    return f"{shown}; and {len(messages) - _NAMED_AT_MOST} more, which `ideal data check` lists"
