"""Collect the useful pictures of unpacked packages of Debian, for a backbone that anyone may use.

    apt-get download mate-backgrounds torcs-data tuxpaint-stamps-default
    for package in *.deb; do dpkg-deb --extract "$package" packages; done
    python -m hub.free_pictures packages free_pictures

Pictures that are neither tiny nor huge are kept once each, named by what is in them.
"""

import hashlib
import shutil
import sys
import tempfile
from pathlib import Path

from PIL import Image, UnidentifiedImageError

SUFFIXES = (".jpeg", ".jpg", ".png")
LEAST_SIDE, MOST_SIDE = 224, 4096


def collect(folder: Path, out: Path) -> int:
    """Copy the useful pictures anywhere in a folder to the new folder `out`; returns their number."""
    if not folder.is_dir():
        raise ValueError(f"expected a folder of unpacked packages, got {str(folder)!r}")
    if out.exists():
        raise ValueError(f"expected a new folder, got {str(out)!r}, which is there")
    files = [file for file in sorted(folder.rglob("*")) if is_useful(file)]
    with tempfile.TemporaryDirectory(dir=out.absolute().parent) as temporary:
        chosen = Path(temporary, "chosen")
        chosen.mkdir()
        for file in files:
            digest = hashlib.blake2b(file.read_bytes(), digest_size=8).hexdigest()
            shutil.copyfile(file, chosen / f"{digest}{file.suffix.lower()}")
        number = len(list(chosen.iterdir()))
        chosen.rename(out)
    return number


def is_useful(file: Path) -> bool:
    """Whether a file is a picture that is neither tiny nor huge."""
    if file.suffix.lower() not in SUFFIXES or file.is_symlink() or not file.is_file():
        return False
    try:
        with Image.open(file) as picture:
            return min(picture.size) >= LEAST_SIDE and max(picture.size) <= MOST_SIDE
    except UnidentifiedImageError:
        return False


if __name__ == "__main__":
    print(f"{collect(Path(sys.argv[1]), Path(sys.argv[2]))} pictures")
