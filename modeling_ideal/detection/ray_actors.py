"""`ideal detect --ray`: actors of Ray Data judge the pictures, on this machine or on a cluster.

    OUT.shares/KEY-DIGEST.parquet    what an actor has judged: a shard of some pictures, complete or not there
    OUT.shares/overlays/             the overlays

Only names of pictures go through Ray. Pictures, references, model and shards are on disks that all machines see.
"""

import argparse
import hashlib
import logging
import math
import os
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .. import register
from .judging import load_judge
from .results import encoded
from .shares import Place, Shares, keep, write_shard

if TYPE_CHECKING:
    import pyarrow

LARGEST_SHARD = 32  # pictures: what the death of an actor can lose
OBJECT_STORE = 100 * 2**20  # bytes: names need little
SETTINGS = {  # of a Ray that the command starts; read when ray is imported
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",  # on Linux too, this makes Ray keep to the loopback
    "RAY_worker_niceness": "0",  # as without Ray; otherwise 15
    "RAY_BACKEND_LOG_LEVEL": "fatal",  # otherwise each run prints an error that is none
}


def check_ray(arguments: argparse.Namespace, place: Place) -> None:
    """Refuse what does not go with --ray, or needs it."""
    if not arguments.ray:
        for name in ("address", "actors"):
            if getattr(arguments, name) is not None:
                raise ValueError(f"--{name}: expected --ray with it, got none")
        return
    if find_spec("ray") is None:
        raise ValueError("--ray: expected Ray, which is not installed: pip install 'modeling-ideal[ray]'")
    if place.processes > 1:
        raise ValueError(f"--ray: expected no launcher beside it, got {place.processes} processes")
    if arguments.device not in (None, "cpu"):
        raise ValueError(f"--ray: expected --device cpu, got {arguments.device!r}; for GPUs: accelerate launch")
    if arguments.actors is not None and arguments.actors < 1:
        raise ValueError(f"--actors: expected a number >= 1, got {arguments.actors}")


def judged_by_ray(shares: Shares, arguments: argparse.Namespace) -> Iterator[Any]:
    """Judge what is missing of the pictures; yields something for each picture as soon as its shard is written."""
    names = [(str(image), shares.overlays[str(image)]) for image in shares.missing(Place(0, 1))]
    if not names:
        return
    shares.prepare()
    os.environ.update(SETTINGS if arguments.address is None else {})
    import ray

    started = {"num_cpus": arguments.actors, "object_store_memory": OBJECT_STORE, "include_dashboard": False}
    where = {"address": "local", **started} if arguments.address is None else {"address": arguments.address}
    try:
        ray.init(**where, log_to_driver=False, logging_level=logging.ERROR)
    except Exception as error:  # Ray has no class for it
        raise ValueError(f"--ray: expected Ray at {where['address']!r}, got {error}") from error
    try:
        yield from _run(names, shares, arguments)
    except ray.exceptions.RayError as error:
        *_, reason = str(error).strip().splitlines()  # the end of a traceback
        raise ValueError(f"--ray: expected actors that judge, got {reason}; the same command goes on") from error
    finally:
        ray.shutdown()


def _run(names: list[tuple[str, str]], shares: Shares, arguments: argparse.Namespace) -> Iterator[Any]:
    import ray
    import ray.data

    logging.getLogger("ray.data").setLevel(logging.ERROR)
    ray.data.DataContext.get_current().enable_progress_bars = False
    actors = min(arguments.actors or int(ray.cluster_resources()["CPU"]), len(names))
    shards = max(actors, math.ceil(len(names) / LARGEST_SHARD))
    rows = [{"image": os.fsencode(name), "overlay": os.fsencode(overlay)} for name, overlay in names]
    judged = ray.data.from_items(rows, override_num_blocks=shards).map_batches(
        Actor,
        fn_constructor_args=(arguments, os.getcwd(), shares.folder, shares.key),
        batch_size=None,  # a block, which becomes a shard
        batch_format="pyarrow",
        num_cpus=1,  # and so a single thread
        compute=ray.data.ActorPoolStrategy(size=actors),
    )
    yield from judged.iter_rows()


class Actor:
    """Loads model and references once, then takes the names of pictures, and writes a shard of their results.

    Args:
        arguments: of the command line.
        start: the folder in which the command was started, to which names are relative.
        folder: that of the shares.
        key: that of the shares.
    """

    def __init__(self, arguments: argparse.Namespace, start: str, folder: Path, key: str) -> None:
        os.chdir(start)
        register()
        self.judge, _, _ = load_judge(argparse.Namespace(**{**vars(arguments), "device": "cpu"}))
        self.folder, self.key = folder, key

    def __call__(self, batch: "pyarrow.Table") -> "pyarrow.Table":
        """Judge the pictures of a table of names, `image` and `overlay`, unless their shard is there; returns it."""
        names, overlays = ([*map(os.fsdecode, batch.column(name).to_pylist())] for name in ("image", "overlay"))
        digest = hashlib.blake2b("\0".join(names).encode("utf-8", "surrogateescape"), digest_size=16).hexdigest()
        shard = self.folder / f"{self.key}-{digest}.parquet"
        if not shard.exists():  # it is when Ray repeats a task whose end it has not seen
            images = [Path(name) for name in names]
            results = zip(names, overlays, self.judge(images, names, encoded), strict=True)
            write_shard(shard, [keep(self.folder, name, result, overlay) for name, overlay, result in results])
        return batch
