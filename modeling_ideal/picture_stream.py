"""Many pictures, one after the other: one that cannot be read gives an error in its place, and the rest goes on."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from torch.utils.data import DataLoader, Dataset, IterableDataset

Prepared = dict[str, Any]
Prepare = Callable[[Any, str], Prepared]  # a picture and its name in error messages


def is_many(inputs: object) -> bool:
    """Whether this is a collection of pictures: a sequence, a stack, a generator, a data set."""
    if isinstance(inputs, (str, bytes, Mapping)):
        return False
    if hasattr(inputs, "ndim"):  # an array or a tensor
        return inputs.ndim == 4
    return isinstance(inputs, (Iterable, Dataset))


def read_batches(inputs: Any, prepare: Prepare, batch_size: int, num_workers: int) -> Iterator[list[Prepared]]:
    """What `prepare` makes of every picture, `batch_size` at a time, or `{"error": ...}`.

    Args:
        inputs: see `is_many`; what has a length is read by index, in `num_workers` processes, anything else in order,
            in one of them at most.
        prepare: raises ValueError for a picture that it cannot use.
        batch_size: at least 1.
        num_workers: 0 reads in this process.
    """
    for name, value, least in (("batch_size", batch_size, 1), ("num_workers", num_workers, 0)):
        if not isinstance(value, int) or value < least:
            raise ValueError(f"{name}: expected an integer >= {least}, got {value!r}")
    source: Dataset
    if isinstance(inputs, Iterable) and not isinstance(inputs, Sequence) and not hasattr(inputs, "ndim"):
        source, num_workers = _Ordered(inputs, prepare), min(num_workers, 1)
    else:
        source = _Indexed(inputs, prepare)
    return iter(DataLoader(source, batch_size, num_workers=num_workers, collate_fn=list))


class _Indexed(Dataset):
    def __init__(self, inputs: Any, prepare: Prepare) -> None:
        self.inputs, self.prepare = inputs, prepare

    def __len__(self) -> int:
        return len(self.inputs)

    def __getitem__(self, index: int) -> Prepared:
        name = f"images[{index}]"
        try:
            picture = self.inputs[index]
        except Exception as error:  # a data set that decodes its pictures raises whatever its decoder does
            return {"error": f"{name}: expected a picture, got {type(error).__name__}: {error}"}
        return _prepared(self.prepare, picture, name)


class _Ordered(IterableDataset):
    def __init__(self, inputs: Iterable, prepare: Prepare) -> None:
        self.inputs, self.prepare = inputs, prepare

    def __iter__(self) -> Iterator[Prepared]:
        for index, picture in enumerate(self.inputs):
            yield _prepared(self.prepare, picture, f"images[{index}]")


def _prepared(prepare: Prepare, picture: Any, name: str) -> Prepared:
    try:
        return prepare(picture, name)
    except ValueError as error:
        return {"error": str(error)}
