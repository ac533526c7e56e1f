"""The catalogue of a set of records: the columns that sampling and caching need, without the images."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

import datasets

from .folder import NORMAL, file_state
from .images import content_hash


@dataclass(frozen=True)
class Catalogue:
    """Columns of n records, in the order of the records."""

    paths: Sequence[str]
    categories: Sequence[str]
    anomaly_types: Sequence[str]
    splits: Sequence[str]
    contents: Sequence[str]
    """A hash of each image: equal for records that show the same picture."""

    def __post_init__(self) -> None:
        columns = (self.paths, self.categories, self.anomaly_types, self.splits, self.contents)
        if len({len(column) for column in columns}) != 1:
            raise ValueError(f"expected columns of one length, got {[len(column) for column in columns]}")
        if len(set(self.paths)) != len(self.paths):
            repeated = next(path for path in self.paths if list(self.paths).count(path) > 1)
            raise ValueError(f"expected every path once, got {repeated!r} several times")

    def __len__(self) -> int:
        return len(self.paths)

    @classmethod
    def from_records(cls, records: datasets.Dataset) -> "Catalogue":
        """Make the catalogue of `load_records(...)`; every image is decoded once to hash its content."""
        return cls(
            paths=list(records["path"]),
            categories=list(records["category"]),
            anomaly_types=list(records["anomaly_type"]),
            splits=list(records["split"]),
            contents=content_hashes(records),
        )

    def rows(self, indices: Sequence[int]) -> "Catalogue":
        """The catalogue of some of the records."""
        columns = (self.paths, self.categories, self.anomaly_types, self.splits, self.contents)
        return Catalogue(*([column[index] for index in indices] for column in columns))

    def select(self, category: str, split: str, normal: bool) -> list[int]:
        """The indices of the normal or anomalous records of a category and split, sorted by path."""
        chosen = (
            index
            for index in range(len(self))
            if self.categories[index] == category
            and self.splits[index] == split
            and (self.anomaly_types[index] == NORMAL) == normal
        )
        return sorted(chosen, key=self.paths.__getitem__)


def content_hashes(records: datasets.Dataset) -> list[str]:
    """Hash the content of every record's image.

    `datasets` caches the result under the state of the image files: another run over an unchanged folder decodes
    nothing, and a changed image is never mistaken for the old one.
    """
    images = records.select_columns(["image"])
    state = hashlib.blake2b(digest_size=16)
    for row in images.cast_column("image", datasets.Image(decode=False)):
        path, embedded = row["image"]["path"], row["image"]["bytes"]
        if embedded is None:
            state.update(f"{path} {file_state(path)}".encode())
        else:
            state.update(hashlib.blake2b(embedded).digest())
    hashed = images.map(
        lambda row: {"content": content_hash(row["image"])},
        remove_columns=["image"],
        new_fingerprint=state.hexdigest(),
        desc="Hashing images",
    )
    return list(hashed["content"])
