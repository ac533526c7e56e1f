"""Screenshots of pages, as chromium shows them without a screen."""

import shutil
import subprocess
import tempfile
from pathlib import Path

from PIL import Image

QUIET = [
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--hide-scrollbars"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
]
SECONDS = 120


def screenshot(page: Path, size: tuple[int, int], scale: float = 1.0) -> Image.Image:
    """The top of a page of the disk, in a window of `size` (width, height), in `scale` pixels for each of its own."""
    chromium = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if chromium is None:
        raise FileNotFoundError("expected chromium, got none: on Debian, apt-get install chromium")
    with tempfile.TemporaryDirectory() as folder:
        shot = Path(folder) / "shot.png"
        window = [f"--window-size={size[0]},{size[1]}", f"--force-device-scale-factor={scale}"]
        command = [chromium, *QUIET, f"--user-data-dir={folder}/profile", *window, f"--screenshot={shot}"]
        subprocess.run([*command, page.resolve().as_uri()], check=True, capture_output=True, timeout=SECONDS)
        with Image.open(shot) as picture:
            return picture.convert("RGB")
