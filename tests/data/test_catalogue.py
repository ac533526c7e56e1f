"""The catalogue: what sampling knows of the records."""

from modeling_ideal.data import load_records
from modeling_ideal.data.catalogue import Catalogue

from .miniatures import mask, picture


def test_the_catalogue_of_records_knows_pictures_under_two_names(tmp_path):
    for name, seed in (
        ("train/good/1.png", 1),
        ("train/good/2.png", 2),
        ("test/good/3.bmp", 1),
        ("test/cut/4.png", 4),
    ):
        picture(tmp_path / name, seed=seed)
    mask(tmp_path / "ground_truth/cut/4_mask.png", {(0, 0): 255})
    records = load_records(tmp_path)
    table = Catalogue.from_records(records)
    assert list(table.paths) == ["test/cut/4.png", "test/good/3.bmp", "train/good/1.png", "train/good/2.png"]
    assert table.contents[1] == table.contents[2]
    assert len(set(table.contents)) == 3
    picture(tmp_path / "train/good/1.png", seed=9)
    assert Catalogue.from_records(records).contents[2] not in table.contents, "an edited file has its new content"
