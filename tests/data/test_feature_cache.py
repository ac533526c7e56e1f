"""The feature cache: exact, never stale, never half-written, whoever is killed or writes at the same time."""

import os
import pickle
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import torch

from modeling_ideal.data import load_records
from modeling_ideal.data.feature_cache import encode_records
from modeling_ideal.image_inputs import open_image
from modeling_ideal.masks import patch_masks
from modeling_ideal.writing.files import remove_abandoned, write_atomically

from .miniatures import mask, picture
from .toy_encoder import ToyEncoder

REPOSITORY = Path(__file__).resolve().parents[2]


@pytest.fixture
def root(tmp_path):
    """Twelve normal images, three anomalous ones, and a picture under two names: 15 pictures in 16 files."""
    folder = tmp_path / "data"
    for number in range(11):
        picture(folder / f"train/good/{number:02}.png", seed=number)
    picture(folder / "test/good/again.bmp", seed=0)
    for number in range(4):
        picture(folder / f"test/cut/{number}.png", seed=100 + number)
        mask(folder / f"ground_truth/cut/{number}_mask.png", {(number, 0): 255, (23, 15): 255})
    return folder


def encode(root, cache, encoder=None, **settings):
    """(cache, encoder) of a folder, encoded in this process."""
    encoder = encoder or ToyEncoder()
    return encode_records(load_records(root), encoder, cache, progress=False, **settings), encoder


def fill_elsewhere(root, cache, *settings):
    """Start a process that fills the cache."""
    environment = {**os.environ, "HF_HOME": str(cache.parent / "home"), "PYTHONPATH": str(REPOSITORY)}
    command = [sys.executable, "-m", "tests.data.toy_encoder", str(root), str(cache), *map(str, settings)]
    return subprocess.Popen(
        command, cwd=REPOSITORY, env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )


def finish(process, code=0):
    """Wait for a process that must end with that code."""
    _, errors = process.communicate(timeout=120)
    assert process.returncode == code, errors


def assert_exact(cache, root):
    """Every feature is what the encoder says, to float16."""
    for index, path in enumerate(cache.paths):
        fresh = ToyEncoder()([open_image(root / path)])
        read = cache.features([index])
        assert read.dtype == torch.float16
        torch.testing.assert_close(read.float(), fresh, rtol=2**-11, atol=1e-6)


def stored(cache):
    """The hashes of the images whose features are in a cache directory."""
    return {path.stem for path in cache.rglob("*.safetensors") if "-" not in path.stem}


def test_cached_features_equal_fresh_ones(root, tmp_path):
    cache, encoder = encode(root, tmp_path / "cache", batch_size=4)
    assert len(cache) == 16
    assert cache.features(range(16)).shape == (16, 4, 6, 5)
    assert_exact(cache, root)
    assert len(encoder.encoded) == len(set(encoder.encoded)) == 15, "a picture under two names is encoded once"


def test_features_are_read_into_a_given_tensor(root, tmp_path):
    cache, _ = encode(root, tmp_path / "cache")
    out = torch.empty(2, 4, 6, 5, dtype=torch.float16)
    assert cache.features([3, 5], out=out) is out
    torch.testing.assert_close(out, cache.features([3, 5]))


def test_masks_lie_beside_the_features(root, tmp_path):
    cache, _ = encode(root, tmp_path / "cache")
    anomalous = [index for index, label in enumerate(cache.labels) if label]
    pixels, patches = cache.pixel_masks(anomalous), cache.patch_masks(anomalous)
    assert (pixels.dtype, pixels.shape) == (torch.bool, (4, 16, 24))
    assert (patches.dtype, patches.shape) == (torch.bool, (4, 4, 6))
    for number in range(4):
        assert sorted(map(tuple, pixels[number].nonzero().tolist())) == [(0, number), (15, 23)]
        assert patches[number].nonzero().tolist() == [[0, 0], [3, 5]]
    normal = cache.labels.index(0)
    assert cache.pixel_masks([normal]).shape == (1, 16, 24)
    assert not cache.pixel_masks([normal]).any()
    assert cache.patch_masks([normal]).shape == (1, 4, 6)
    assert not cache.patch_masks([normal]).any()


@pytest.mark.parametrize("grid", [(4, 6), (1, 1), (16, 24), (2, 3)])
def test_a_patch_is_anomalous_when_any_of_its_pixels_is(grid):
    pixels = torch.from_numpy(np.random.default_rng(0).random((16, 24)) > 0.95)
    height, width = 16 // grid[0], 24 // grid[1]
    expected = [
        [bool(pixels[y * height : (y + 1) * height, x * width : (x + 1) * width].any()) for x in range(grid[1])]
        for y in range(grid[0])
    ]
    assert patch_masks(pixels, (height, width)).tolist() == expected
    assert patch_masks(pixels.expand(2, 3, 16, 24), (height, width)).tolist() == [[expected] * 3] * 2
    with pytest.raises(ValueError, match=r"expected sides that are multiples of \(5, 6\), got \(16, 24\)"):
        patch_masks(pixels, (5, 6))


def test_what_is_cached_is_not_encoded_again(root, tmp_path):
    encode(root, tmp_path / "cache")
    cache, encoder = encode(root, tmp_path / "cache")
    assert encoder.encoded == []
    assert_exact(cache, root)


def test_another_fingerprint_is_another_cache(root, tmp_path):
    encode(root, tmp_path / "cache")
    _, encoder = encode(root, tmp_path / "cache", ToyEncoder(fingerprint="toy/with other weights"))
    assert len(encoder.encoded) == 15


def test_an_edited_image_is_encoded_anew_and_alone(root, tmp_path):
    encode(root, tmp_path / "cache")
    picture(root / "train/good/05.png", seed=1234)
    cache, encoder = encode(root, tmp_path / "cache")
    assert len(encoder.encoded) == 1
    assert_exact(cache, root)


def test_an_edited_mask_is_prepared_anew_without_encoding(root, tmp_path):
    encode(root, tmp_path / "cache")
    mask(root / "ground_truth/cut/2_mask.png", {(9, 9): 255})
    cache, encoder = encode(root, tmp_path / "cache")
    assert encoder.encoded == []
    index = cache.paths.index("test/cut/2.png")
    assert cache.pixel_masks([index])[0].nonzero().tolist() == [[9, 9]]
    assert cache.patch_masks([index])[0].nonzero().tolist() == [[2, 2]]


def test_an_image_that_changes_under_way_is_refused(root, tmp_path):
    class Meddler(ToyEncoder):
        def __call__(self, images):
            picture(root / "train/good/10.png", seed=4321)
            return super().__call__(images)

    with pytest.raises(ValueError, match=r"train/good/10\.png: the image has changed since the records were loaded"):
        encode(root, tmp_path / "cache", Meddler(), batch_size=1)


def test_a_cache_travels_to_workers(root, tmp_path):
    cache, _ = encode(root, tmp_path / "cache")
    copy = pickle.loads(pickle.dumps(cache))  # noqa: S301
    torch.testing.assert_close(copy.features([0, 1]), cache.features([0, 1]))


def test_missing_damaged_and_unmasked_entries_are_named(root, tmp_path):
    (root / "ground_truth/cut/3_mask.png").unlink()
    records = load_records(root, allow_missing_masks=True)
    cache = encode_records(records, ToyEncoder(), tmp_path / "cache", progress=False)
    unmasked, first = cache.paths.index("test/cut/3.png"), cache.paths.index("train/good/03.png")
    assert [cache.has_mask(index) for index in (unmasked, first, 0)] == [False, True, True]
    with pytest.raises(ValueError, match=r"test/cut/3\.png: expected a mask, but this anomalous record has none"):
        cache.patch_masks([unmasked])
    file = cache.features_file(first)
    file.write_bytes(file.read_bytes()[:100])
    with pytest.raises(ValueError, match=r"expected the cached features of train/good/03\.png, got .*delete the file"):
        cache.features([first])
    file.unlink()
    with pytest.raises(ValueError, match=r"train/good/03\.png: not in the cache .*; run encode_records"):
        cache.features([first])


def test_images_of_two_sizes_are_not_stacked(root, tmp_path):
    picture(root / "train/good/wide.png", (40, 16))
    cache, _ = encode(root, tmp_path / "cache", batch_size=1)
    with pytest.raises(ValueError, match=r"all of one size, to stack; got shapes \[\(4, 6, 5\), \(4, 10, 5\)\]"):
        cache.features(range(len(cache)))
    with pytest.raises(ValueError, match=r"expected at least one image"):
        cache.features([])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda features: features * 1e6, r"expected features within the range of float16, got infinity or NaN"),
        (lambda features: features[:, 0], r"expected an encoder that returns \(8, h, w, C\), got \(8, 6, 5\)"),
        (lambda features: features[:3], r"expected an encoder that returns \(8, h, w, C\), got \(3, 4, 6, 5\)"),
    ],
)
def test_an_encoder_that_misbehaves_is_refused(root, tmp_path, change, message):
    class Broken(ToyEncoder):
        def __call__(self, images):
            return change(super().__call__(images))

    with pytest.raises(ValueError, match=message):
        encode(root, tmp_path / "cache", Broken())
    assert stored(tmp_path / "cache") == set()


def test_a_mask_of_other_pixels_than_its_image_is_refused(root, tmp_path):
    class Broken(ToyEncoder):
        @staticmethod
        def prepare_mask(mask):
            return torch.from_numpy(np.array(mask))[: 8 if np.any(mask) else None]

    with pytest.raises(ValueError, match=r"expected a mask of \(16, 24\) pixels, as its image has, got \(8, 24\)"):
        encode(root, tmp_path / "cache", Broken())


def test_a_batch_holds_at_least_one_image(root, tmp_path):
    with pytest.raises(ValueError, match="expected a batch size of at least 1, got 0"):
        encode(root, tmp_path / "cache", batch_size=0)


def test_a_run_killed_while_encoding_goes_on_where_it_was(root, tmp_path):
    log = tmp_path / "log"
    killed = fill_elsewhere(root, tmp_path / "cache", "--kill-encoding", 6, "--log", log)
    finish(killed, -signal.SIGKILL)
    before = log.with_suffix(".0").read_text().split()
    assert len(before) == 6
    assert stored(tmp_path / "cache") == set(before)
    cache, encoder = encode(root, tmp_path / "cache")
    assert len(encoder.encoded) == 9
    assert not set(encoder.encoded) & set(before), "nothing is encoded twice"
    assert_exact(cache, root)


def test_a_feature_is_never_half_written(root, tmp_path):
    killed = fill_elsewhere(root, tmp_path / "cache", "--kill-writing", 4)
    finish(killed, -signal.SIGKILL)
    partial = list((tmp_path / "cache").rglob("*.partial"))
    assert [path.stat().st_size for path in partial] == [40]
    assert len(stored(tmp_path / "cache")) == 4
    cache, encoder = encode(root, tmp_path / "cache")
    assert len(encoder.encoded) == 11
    assert_exact(cache, root)


def test_two_processes_fill_one_cache(root, tmp_path):
    logs = [tmp_path / "one", tmp_path / "two"]
    settings = ("--together", 2, "--seconds", 0.05)
    running = [fill_elsewhere(root, tmp_path / "cache", "--log", log, *settings) for log in logs]
    for process in running:
        finish(process)
    encoded = [log.with_suffix(".0").read_text().split() for log in logs]
    assert all(encoded), "both have encoded something"
    assert len({*encoded[0], *encoded[1]}) == 15
    assert list((tmp_path / "cache").rglob("*.partial")) == []
    cache, encoder = encode(root, tmp_path / "cache")
    assert encoder.encoded == []
    assert_exact(cache, root)


def test_processes_of_accelerate_share_the_work(root, tmp_path):
    finish(fill_elsewhere(root, tmp_path / "cache", "--processes", 2, "--log", tmp_path / "log"))
    shares = [(tmp_path / f"log.{number}").read_text().split() for number in range(2)]
    assert [len(share) for share in shares] == [8, 7]
    assert len({*shares[0], *shares[1]}) == 15
    cache, encoder = encode(root, tmp_path / "cache")
    assert encoder.encoded == []
    assert_exact(cache, root)


def test_a_file_is_whole_or_not_there(tmp_path, monkeypatch):
    file = tmp_path / "file"
    write_atomically(file, b"old")

    def fail(descriptor):
        raise OSError("disk full")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(OSError, match="disk full"):
        write_atomically(file, b"new and longer")
    assert file.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [file]


def test_only_old_temporary_files_are_cleared_away(tmp_path):
    old, young = tmp_path / "a/old.partial", tmp_path / "a/young.partial"
    old.parent.mkdir()
    for path in (old, young):
        path.write_bytes(b"")
    two_days_ago = time.time() - 2 * 24 * 3600
    os.utime(old, (two_days_ago, two_days_ago))
    remove_abandoned(tmp_path)
    assert list(old.parent.iterdir()) == [young]
