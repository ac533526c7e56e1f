"""Records are lazy, never stale, and at home among the tools of `datasets`."""

import os
import shutil

import datasets
import numpy as np
import pytest
import torch
from PIL import Image

from modeling_ideal.data import load_records

from .miniatures import MINIATURES, mask, mvtec, picture


def snapshot(root):
    """Every file below a folder with its content and time."""
    return {path: (path.stat().st_mtime_ns, path.is_file() and path.read_bytes()) for path in root.rglob("*")}


def comparable(record):
    """A record in values that can be compared."""
    pixels = {name: record[name] and np.asarray(record[name]).tolist() for name in ("image", "mask")}
    return {**record, **pixels}


@pytest.mark.parametrize("name", MINIATURES)
def test_a_stream_gives_the_same_records(tmp_path, name):
    MINIATURES[name](tmp_path)
    stream = load_records(tmp_path, streaming=True)
    assert isinstance(stream, datasets.IterableDataset)
    records = load_records(tmp_path)
    assert [comparable(record) for record in stream] == [comparable(record) for record in records]


def test_the_workers_of_a_loader_share_a_stream(tmp_path):
    expected = mvtec(tmp_path)
    stream = load_records(tmp_path, streaming=True).select_columns(["path"])
    loader = torch.utils.data.DataLoader(stream, batch_size=None, num_workers=2)
    assert sorted(record["path"] for record in loader) == sorted(record.path for record in expected)


def test_nothing_is_written_into_the_folder(tmp_path):
    root = tmp_path / "data"
    mvtec(root)
    before = snapshot(root)
    records = load_records(root)
    records.map(lambda record: {"width": record["image"].width})
    list(load_records(root, streaming=True))
    assert snapshot(root) == before


def test_images_are_decoded_when_they_are_asked_for_and_errors_name_the_file(tmp_path):
    mvtec(tmp_path)
    broken = tmp_path / "bottle/train/good/000.png"
    broken.write_bytes(broken.read_bytes()[:200])
    records = load_records(tmp_path)
    index = list(records["path"]).index("bottle/train/good/000.png")
    with pytest.raises(ValueError, match=r"bottle/train/good/000\.png: expected a readable image"):
        records[index]
    with pytest.raises(ValueError, match=r"bottle/train/good/000\.png: expected a readable image"):
        list(load_records(tmp_path, streaming=True))


def test_a_corrupt_mask_is_named(tmp_path):
    mvtec(tmp_path)
    (tmp_path / "bottle/ground_truth/broken/000_mask.png").write_bytes(b"")
    with pytest.raises(ValueError, match=r"000_mask\.png: expected a readable image"):
        load_records(tmp_path)


def test_unchanged_records_are_not_prepared_again(tmp_path):
    mvtec(tmp_path)
    first, second = load_records(tmp_path), load_records(tmp_path)
    assert first.cache_files == second.cache_files
    assert first._fingerprint == second._fingerprint


def test_a_new_and_a_removed_file_are_seen(tmp_path):
    mvtec(tmp_path)
    before = set(load_records(tmp_path)["path"])
    picture(tmp_path / "bottle/test/good/007.png")
    assert set(load_records(tmp_path)["path"]) - before == {"bottle/test/good/007.png"}
    (tmp_path / "bottle/test/good/007.png").unlink()
    assert set(load_records(tmp_path)["path"]) == before


def test_an_edited_mask_is_seen_even_with_its_old_size_and_time(tmp_path):
    mvtec(tmp_path)
    file = tmp_path / "bottle/ground_truth/broken/000_mask.png"
    mask(file, {(3, 2): 255})
    state = file.stat()
    index = list(load_records(tmp_path)["path"]).index("bottle/test/Broken/000.png")
    mask(file, {(2, 3): 255})
    content = file.read_bytes().ljust(state.st_size, b"\0")
    assert len(content) == state.st_size, "the case is only interesting with the same size"
    file.write_bytes(content)
    os.utime(file, ns=(state.st_atime_ns, state.st_mtime_ns))
    marked = np.argwhere(np.asarray(load_records(tmp_path)[index]["mask"]))
    assert marked.tolist() == [[3, 2]]


def test_an_edited_tile_is_seen(tmp_path):
    MINIATURES["aitex"](tmp_path)
    file = tmp_path / "Defect_images/0001_002_00.png"
    before = np.asarray(load_records(tmp_path)[0]["image"])
    picture(file, (768, 256), seed=1)
    after = np.asarray(load_records(tmp_path)[0]["image"])
    np.testing.assert_array_equal(after, np.asarray(Image.open(file))[:, :256])
    assert (before != after).any()


def test_another_label_in_the_metadata_is_seen(tmp_path):
    MINIATURES["metadata"](tmp_path)
    assert load_records(tmp_path)["label"] == [0, 0, 1]
    table = tmp_path / "metadata.jsonl"
    table.write_text(table.read_text().replace('"label": "0"', '"label": "1"'))
    assert load_records(tmp_path, allow_missing_masks=True)["label"] == [0, 1, 1]


def test_the_usual_tools_work(tmp_path):
    root = tmp_path / "data"
    expected = mvtec(root)
    records = load_records(root)
    bottles = records.filter(lambda category: category == "bottle", input_columns="category")
    assert len(bottles) == sum(record.category == "bottle" for record in expected)
    widths = records.map(lambda record: {"width": record["image"].width})
    assert set(widths["width"]) == {24}
    records.to_parquet(tmp_path / "records.parquet")
    read_back = datasets.Dataset.from_parquet(str(tmp_path / "records.parquet"))
    assert [comparable(record) for record in read_back] == [comparable(record) for record in records]
    both = datasets.concatenate_datasets([records, records])
    assert len(both) == 2 * len(records)


def test_saved_records_carry_their_images(tmp_path):
    """`push_to_hub` embeds the image files by the same means."""
    root = tmp_path / "data"
    mvtec(root)
    records = load_records(root)
    expected = [comparable(record) for record in records]
    records.save_to_disk(tmp_path / "saved")
    shutil.rmtree(root)
    saved = datasets.load_from_disk(tmp_path / "saved")
    assert [comparable(record) for record in saved] == expected
