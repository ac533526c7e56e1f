"""A miniature of the published structure of each data set, with its quirks, and the records it must give."""

import csv
import hashlib
import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from PIL import Image

SIZE = (24, 16)


@dataclass(frozen=True)
class Expected:
    """A record; `anomalous` lists the (x, y) of the pixels that its mask marks, None for no mask."""

    path: str
    label: int
    category: str
    anomaly_type: str
    split: str
    anomalous: tuple[tuple[int, int], ...] | None = None
    size: tuple[int, int] = SIZE


def picture(path, size=SIZE, seed=None):
    """Save a picture of noise, which differs from path to path unless a seed is shared."""
    path.parent.mkdir(parents=True, exist_ok=True)
    seed = int.from_bytes(hashlib.sha256(str(path).encode()).digest()[:4], "big") if seed is None else seed
    pixels = np.random.default_rng(seed).integers(0, 256, (size[1], size[0], 3), dtype=np.uint8)
    Image.fromarray(pixels).save(path)


def mask(path, pixels, size=SIZE):
    """Save a mask; `pixels` maps (x, y) to values."""
    path.parent.mkdir(parents=True, exist_ok=True)
    values = np.zeros((size[1], size[0]), dtype=np.uint8)
    for (x, y), value in pixels.items():
        values[y, x] = value
    Image.fromarray(values).save(path)


def mvtec(root: Path) -> list[Expected]:
    """Folders and extensions in any letter case; one image with two masks; a readme beside the folders."""
    picture(root / "bottle/train/good/000.png")
    picture(root / "bottle/train/good/001.JPG")
    picture(root / "bottle/test/good/000.png")
    picture(root / "bottle/test/Broken/000.png")
    picture(root / "bottle/test/Broken/001.tif")
    mask(root / "bottle/ground_truth/broken/000_mask.png", {(3, 2): 255})
    mask(root / "bottle/ground_truth/broken/001_mask.png", {(0, 0): 255})
    mask(root / "bottle/ground_truth/broken/001_mask1.png", {(23, 15): 255})
    picture(root / "Cable/Train/Good/a.webp")
    picture(root / "Cable/TEST/cut/a.png")
    mask(root / "Cable/Ground_Truth/cut/a.PNG", {(5, 5): 255})
    (root / "readme.txt").write_text("a readme is no image")
    (root / ".DS_Store").write_text("neither is this")
    return [
        Expected("Cable/TEST/cut/a.png", 1, "Cable", "cut", "test", ((5, 5),)),
        Expected("Cable/Train/Good/a.webp", 0, "Cable", "good", "train"),
        Expected("bottle/test/Broken/000.png", 1, "bottle", "Broken", "test", ((3, 2),)),
        Expected("bottle/test/Broken/001.tif", 1, "bottle", "Broken", "test", ((0, 0), (23, 15))),
        Expected("bottle/test/good/000.png", 0, "bottle", "good", "test"),
        Expected("bottle/train/good/000.png", 0, "bottle", "good", "train"),
        Expected("bottle/train/good/001.JPG", 0, "bottle", "good", "train"),
    ]


def visa(root: Path) -> list[Expected]:
    """Masks of several values; the table writes .JPG where the disk has .jpg."""
    picture(root / "candle/Data/Images/Normal/0000.JPG")
    picture(root / "candle/Data/Images/Normal/0001.jpg")
    picture(root / "candle/Data/Images/Anomaly/000.JPG")
    mask(root / "candle/Data/Masks/Anomaly/000.png", {(1, 1): 1, (2, 1): 2, (9, 9): 7})
    table = root / "split_csv/1cls.csv"
    table.parent.mkdir(parents=True)
    with open(table, "w", newline="") as stream:
        rows = csv.writer(stream)
        rows.writerow(["object", "split", "label", "image", "mask"])
        rows.writerow(["candle", "train", "normal", "candle/Data/Images/Normal/0000.JPG", ""])
        rows.writerow(["candle", "test", "normal", "candle/Data/Images/Normal/0001.JPG", ""])
        anomaly = ["candle/Data/Images/Anomaly/000.JPG", "candle/Data/Masks/Anomaly/000.png"]
        rows.writerow(["candle", "test", "anomaly", *anomaly])
    return [
        Expected("candle/Data/Images/Anomaly/000.JPG", 1, "candle", "anomaly", "test", ((1, 1), (2, 1), (9, 9))),
        Expected("candle/Data/Images/Normal/0000.JPG", 0, "candle", "good", "train"),
        Expected("candle/Data/Images/Normal/0001.jpg", 0, "candle", "good", "test"),
    ]


def btad(root: Path) -> list[Expected]:
    """bmp and png mixed, between images and between an image and its mask."""
    picture(root / "01/train/ok/0000.bmp")
    picture(root / "01/test/ok/0001.bmp")
    picture(root / "01/test/ko/0002.bmp")
    mask(root / "01/ground_truth/ko/0002.png", {(4, 4): 255})
    picture(root / "03/train/ok/0000.png")
    picture(root / "03/test/ko/0001.png")
    mask(root / "03/ground_truth/ko/0001.bmp", {(6, 7): 255})
    return [
        Expected("01/test/ko/0002.bmp", 1, "01", "ko", "test", ((4, 4),)),
        Expected("01/test/ok/0001.bmp", 0, "01", "good", "test"),
        Expected("01/train/ok/0000.bmp", 0, "01", "good", "train"),
        Expected("03/test/ko/0001.png", 1, "03", "ko", "test", ((6, 7),)),
        Expected("03/train/ok/0000.png", 0, "03", "good", "train"),
    ]


def aitex(root: Path) -> list[Expected]:
    """Strips of three tiles: one with two mask files, one without any, folder names in other letter case."""
    strip = (3 * 256, 256)
    picture(root / "Defect_images/0001_002_00.png", strip)
    mask(root / "Mask_images/0001_002_00_mask1.png", {(10, 20): 255}, strip)
    mask(root / "Mask_images/0001_002_00_mask2.png", {(600, 5): 255}, strip)
    picture(root / "Defect_images/0100_025_08.png", strip)
    for number in range(1, 5):
        picture(root / f"NODefect_Images/2306881-210020u/{number:04}_000_00.png", strip)
    tile = (256, 256)

    def tiles(file, category, split, anomalies):
        return [
            Expected(
                f"{file}#xywh={left},0,256,256",
                int(left in anomalies),
                category,
                "002" if left in anomalies else "good",
                split,
                anomalies.get(left),
                tile,
            )
            for left in (0, 256, 512)
        ]

    expected = tiles("Defect_images/0001_002_00.png", "00", "test", {0: ((10, 20),), 512: ((88, 5),)})
    for number, split in ((1, "train"), (2, "train"), (3, "train"), (4, "test")):
        expected += tiles(f"NODefect_Images/2306881-210020u/{number:04}_000_00.png", "00", split, {})
    return expected


def bmad(root: Path) -> list[Expected]:
    """Two data sets side by side; validation images, which are left out; empty labels of good images."""
    picture(root / "Liver/train/good/img/1.png")
    picture(root / "Liver/valid/good/img/2.png")
    picture(root / "Liver/valid/Ungood/img/3.png")
    mask(root / "Liver/valid/Ungood/label/3.png", {(1, 1): 255})
    picture(root / "Liver/test/good/img/4.png")
    mask(root / "Liver/test/good/label/4.png", {})
    picture(root / "Liver/test/Ungood/img/5.png")
    mask(root / "Liver/test/Ungood/label/5.png", {(2, 2): 1})
    picture(root / "RESC/train/good/img/1.png")
    picture(root / "RESC/test/Ungood/img/1.png")
    mask(root / "RESC/test/Ungood/label/1.png", {(3, 3): 255})
    return [
        Expected("Liver/test/Ungood/img/5.png", 1, "Liver", "Ungood", "test", ((2, 2),)),
        Expected("Liver/test/good/img/4.png", 0, "Liver", "good", "test"),
        Expected("Liver/train/good/img/1.png", 0, "Liver", "good", "train"),
        Expected("RESC/test/Ungood/img/1.png", 1, "RESC", "Ungood", "test", ((3, 3),)),
        Expected("RESC/train/good/img/1.png", 0, "RESC", "good", "train"),
    ]


def folder(root: Path) -> list[Expected]:
    """Types as sub-folders and none; masks with and without the type's folder; a query that has no label."""
    picture(root / "normal/a.png")
    picture(root / "normal/monday/b.jpeg")
    picture(root / "abnormal/c.png")
    mask(root / "masks/c.png", {(7, 7): 255})
    picture(root / "abnormal/scratch/d.png")
    mask(root / "masks/scratch/d_mask.png", {(8, 8): 255})
    picture(root / "abnormal/scratch/e.png")
    mask(root / "masks/e.png", {(9, 9): 255})
    picture(root / "to_inspect/f.png")
    name = root.name
    return [
        Expected("abnormal/c.png", 1, name, "anomalous", "test", ((7, 7),)),
        Expected("abnormal/scratch/d.png", 1, name, "scratch", "test", ((8, 8),)),
        Expected("abnormal/scratch/e.png", 1, name, "scratch", "test", ((9, 9),)),
        Expected("normal/a.png", 0, name, "good", "train"),
        Expected("normal/monday/b.jpeg", 0, name, "good", "train"),
    ]


def metadata(root: Path) -> list[Expected]:
    """A user's own folder described by metadata.jsonl: defaults, everything given, two masks."""
    picture(root / "photos/1.png")
    picture(root / "photos/2.png")
    picture(root / "photos/3.png")
    mask(root / "marks/3a.png", {(0, 1): 255})
    mask(root / "marks/3b.png", {(1, 0): 255})
    rows = [
        {"image": "photos/1.png", "label": 0},
        {"path": "photos/2.png", "label": "0", "split": "test", "category": "lid", "mask": None},
        {
            "file_name": "photos/3.png",
            "label": 1,
            "anomaly_type": "dent",
            "category": "lid",
            "mask": ["marks/3a.png", "marks/3b.png"],
        },
    ]
    (root / "metadata.jsonl").write_text("\n".join(json.dumps(row) for row in rows) + "\n\n")
    return [
        Expected("photos/1.png", 0, root.name, "good", "train"),
        Expected("photos/2.png", 0, "lid", "good", "test"),
        Expected("photos/3.png", 1, "lid", "dent", "test", ((1, 0), (0, 1))),
    ]


MINIATURES = {
    "mvtec": mvtec,
    "visa": visa,
    "btad": btad,
    "aitex": aitex,
    "bmad": bmad,
    "folder": folder,
    "metadata": metadata,
}
