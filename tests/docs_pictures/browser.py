"""Screenshots of pages, as chromium shows them without a screen."""

import shutil
import subprocess
import tempfile
from io import BytesIO
from pathlib import Path

from PIL import Image

QUIET = [
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--hide-scrollbars"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
]
SECONDS = 120


def screenshot_of_example(address: str, width: int) -> Image.Image:
    """The verdicts of the app at an address on the first of its examples, in a window of `width`, whole."""
    from playwright.sync_api import expect, sync_playwright

    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=shutil.which("chromium"), args=QUIET)
        page = browser.new_page(viewport={"width": width, "height": 800})
        page.set_default_timeout(1000 * SECONDS)
        page.goto(address)
        page.get_by_role("button", name="example").first.click()
        expect(page.locator("#references figure").first).to_be_visible(timeout=1000 * SECONDS)
        page.get_by_role("tab", name="2. Inspect").click()
        page.get_by_role("button", name="close").click()
        expect(page.locator("#details img").first).to_be_visible()
        page.mouse.move(0, 0)
        shot = page.screenshot(full_page=True)
        browser.close()
    return Image.open(BytesIO(shot)).convert("RGB")


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
