"""A small encoder for the tests of the cache, and a process that fills a cache with it and may be killed."""

import argparse
import os
import signal
import time
from pathlib import Path

import datasets
import numpy as np
import torch

from modeling_ideal.data import load_records
from modeling_ideal.data.feature_cache import encode_records
from modeling_ideal.data.images import content_hash

PATCH = 4


class ToyEncoder:
    """Five fixed channels of every 4 x 4 patch; `log`, a file, gets a line for every image that was encoded."""

    def __init__(self, fingerprint="toy", log=None, kill_after=None, seconds=0.0):
        self.fingerprint = fingerprint
        self.encoded = []
        self._log = log
        self._kill_after = kill_after
        self._seconds = seconds

    def __call__(self, images):
        if self._kill_after is not None and len(self.encoded) >= self._kill_after:
            os.kill(os.getpid(), signal.SIGKILL)
        time.sleep(self._seconds)
        self.encoded += [content_hash(image) for image in images]
        if self._log is not None:
            with open(self._log, "a") as stream:
                stream.writelines(f"{content_hash(image)}\n" for image in images)
        return torch.stack([self._features(image) for image in images])

    @staticmethod
    def _features(image):
        pixels = torch.from_numpy(np.asarray(image.convert("RGB"), dtype=np.float32))
        height, width, _ = pixels.shape
        patches = pixels.reshape(height // PATCH, PATCH, width // PATCH, PATCH, 3).permute(0, 2, 1, 3, 4)
        mixing = torch.randn(PATCH * PATCH * 3, 5, generator=torch.Generator().manual_seed(0))
        return patches.flatten(2) @ mixing / 100

    @staticmethod
    def prepare_mask(mask):
        return torch.from_numpy(np.array(mask))


def main():
    """Fill the cache of a folder: alone, shared by two processes, killed while encoding or while writing."""
    parser = argparse.ArgumentParser()
    parser.add_argument("root")
    parser.add_argument("cache")
    parser.add_argument("--log", type=Path)
    parser.add_argument("--seconds", type=float, default=0.0)
    parser.add_argument("--kill-encoding", type=int)
    parser.add_argument("--kill-writing", type=int)
    parser.add_argument("--processes", type=int, default=1, help="processes of Accelerate that share the work")
    parser.add_argument("--together", type=int, default=1, help="independent processes that start at once")
    arguments = parser.parse_args()

    if arguments.kill_writing is not None:
        written = []
        fsync = os.fsync

        def fsync_or_die(descriptor):
            written.append(descriptor)
            if len(written) > arguments.kill_writing:
                os.truncate(descriptor, 40)  # as if the kernel had got no further
                os.kill(os.getpid(), signal.SIGKILL)
            fsync(descriptor)

        os.fsync = fsync_or_die

    if arguments.processes == 1:
        fill(arguments)
    else:
        from accelerate import debug_launcher

        debug_launcher(fill, (arguments,), num_processes=arguments.processes)


def fill(arguments):
    """Fill the cache in this process, or in its share of several."""
    from accelerate import PartialState

    datasets.disable_progress_bars()
    # A log for each process: lines of several on one stream may mingle.
    rank = torch.distributed.get_rank() if torch.distributed.is_initialized() else 0
    log = arguments.log and arguments.log.with_suffix(f".{rank}")
    encoder = ToyEncoder(log=log, seconds=arguments.seconds, kill_after=arguments.kill_encoding)
    records = load_records(arguments.root)
    wait_for_others(Path(arguments.cache).parent, arguments.together)
    cache = encode_records(records, encoder, arguments.cache, batch_size=1, progress=False)
    assert PartialState().num_processes == arguments.processes
    assert all(cache.features_file(index).exists() for index in range(len(cache)))


def wait_for_others(meeting_point, number):
    """Go on when that many processes have come here."""
    (meeting_point / f"ready-{os.getpid()}").touch()
    while len(list(meeting_point.glob("ready-*"))) < number:
        time.sleep(0.01)


if __name__ == "__main__":
    main()
