"""Published records come back equal where neither their folder nor this package is."""

import hashlib
import inspect
import json
import shutil

import datasets
import pytest

from modeling_ideal.data import embed_images, load_records
from modeling_ideal.data.records import record_features

from ..hub_server import READER
from .miniatures import MINIATURES, mvtec


def described(records):
    """Every value of the records, pictures by their size, mode and pixels; it also runs where records arrive."""

    def plain(value):
        if not hasattr(value, "tobytes"):
            return value
        return [value.mode, list(value.size), hashlib.sha256(value.tobytes()).hexdigest()]

    return [{name: plain(value) for name, value in record.items()} for record in records]


PUSH = """
import sys
from pathlib import Path
from modeling_ideal.data import load_records

for root in Path(sys.argv[1]).iterdir():
    load_records(root).push_to_hub(f"org/{root.name}")
try:
    load_records(root).push_to_hub("org/refused", token=sys.argv[2])
except Exception as error:
    print(error)
"""
READ = f"""
import hashlib, json, sys
from datasets import load_dataset
{inspect.getsource(described)}
found = {{}}
for name in sys.argv[1:]:
    loaded = load_dataset(f"org/{{name}}")
    stream = load_dataset(f"org/{{name}}", streaming=True)
    assert list(loaded) == list(stream) == ["records"]
    records = loaded["records"]
    assert described(stream["records"]) == described(records)
    files = [image["path"] for image in records.with_format("arrow")[:]["image"].to_pylist()]
    found[name] = [repr(records.features), described(records), files]
print(json.dumps(found))
"""
READ_PARQUET = f"""
import hashlib, json, sys
from datasets import load_dataset
{inspect.getsource(described)}
print(json.dumps(described(load_dataset("parquet", data_files=sys.argv[1], split="train"))))
"""


def last_line(result):
    """What a script printed last, read as JSON."""
    assert result.returncode == 0, result.stderr
    return json.loads(result.stdout.splitlines()[-1])


def test_pushed_records_come_back_equal_and_refused_ones_leave_nothing(hub, tmp_path):
    root = tmp_path / "data"
    expected = {}
    for name, make in MINIATURES.items():
        make(root / name)
        expected[name] = described(load_records(root / name))
    result = hub.run(PUSH, root, READER, home=tmp_path / "owner")
    assert result.returncode == 0, result.stderr
    assert "403 Forbidden: You don't have the rights to write here" in result.stdout
    assert hub.repositories.keys() == {("datasets", f"org/{name}") for name in MINIATURES}
    shutil.rmtree(root)
    shutil.rmtree(tmp_path / "owner")
    found = last_line(hub.run(READ, *MINIATURES, home=tmp_path / "reader", user=None, package=False))
    assert list(found) == list(MINIATURES)
    for name, (features, records, files) in found.items():
        assert records == expected[name]
        assert features == repr(record_features())
        assert not any("/" in file for file in files if file), "the owner's folders are nobody's business"
        card = hub.files(f"org/{name}", "dataset")["README.md"].decode()
        assert str(tmp_path) not in card


def test_embedded_records_outlive_their_folder(hub, tmp_path):
    root = tmp_path / "data"
    mvtec(root)
    records = load_records(root)
    expected = described(records)
    embed_images(records).to_parquet(tmp_path / "parts.parquet")
    shutil.rmtree(root)
    result = hub.run(READ_PARQUET, tmp_path / "parts.parquet", home=tmp_path / "reader", package=False)
    assert last_line(result) == expected
    assert not hub.log


def test_without_embedding_parquet_has_no_pictures(tmp_path):
    """Why `embed_images` is there; should `datasets` learn to embed by itself, it can go."""
    root = tmp_path / "data"
    mvtec(root)
    load_records(root).to_parquet(tmp_path / "parts.parquet")
    shutil.rmtree(root)
    read_back = datasets.Dataset.from_parquet(str(tmp_path / "parts.parquet"))
    with pytest.raises(FileNotFoundError, match=str(root)):
        described(read_back)


def test_embedding_keeps_everything_else(tmp_path):
    MINIATURES["aitex"](tmp_path / "strips")
    mvtec(tmp_path / "parts")
    both = datasets.concatenate_datasets([load_records(tmp_path / "strips"), load_records(tmp_path / "parts")])
    records = both.filter(lambda split: split == "test", input_columns="split")
    embedded = embed_images(records)
    assert described(embedded) == described(records)
    assert embedded.features == records.features
    assert embedded.split == records.split
    labels = records.with_format("numpy", columns=["label"])
    assert embed_images(labels).format == labels.format
    assert embed_images(labels).with_format(None).column_names == records.column_names


def test_what_cannot_be_embedded_is_named(tmp_path):
    mvtec(tmp_path)
    records = load_records(tmp_path)
    (tmp_path / "bottle/test/good/000.png").unlink()
    with pytest.raises(ValueError, match=r"bottle/test/good/000\.png: expected a readable image, got FileNotFound"):
        embed_images(records)
    with pytest.raises(ValueError, match=r"expected a datasets\.Dataset, got IterableDataset: load without streaming"):
        embed_images(load_records(tmp_path, streaming=True))
