"""Pictures of a request: read within limits, whatever is in the file."""

import base64
import io
import struct
import zlib

import numpy as np
import pytest
from PIL import Image, ImageCms, PngImagePlugin

from hub import handler_pictures
from hub.handler_pictures import PictureReader, plain

from .uploads import base64_of, file_of, image_of, picture


def read(content):
    return PictureReader().picture(content, "inputs")


def chunk(kind, content):
    return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))


def png(width, height, *chunks):
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + b"".join(chunks)


def tiff_of_one_tile(side):
    """A picture of 16 x 16 in a tile of `side` x `side`."""
    tags = [(256, 16), (257, 16), (258, 8), (259, 8), (262, 1), (277, 1), (322, side), (323, side), (324, 8), (325, 4)]
    entries = b"".join(struct.pack("<HHII", tag, 4, 1, value) for tag, value in tags)
    return b"II*\0" + struct.pack("<I", 12) + b"\0" * 4 + struct.pack("<H", len(tags)) + entries + b"\0" * 4


DATA = chunk(b"IDAT", b"x")
WHOLE = file_of(picture(1))
BROKEN = {
    "empty": b"",
    "text": b"no picture",
    "truncated": WHOLE[:-200],
    "header alone": WHOLE[:40],
    "broken checksum": WHOLE[:50] + bytes([WHOLE[50] ^ 1]) + WHOLE[51:],
    "broken chunk": png(4, 4, chunk(b"IDAT", b"x"), b"\0\0\0\x05\0\0\0\0zzzz"),  # SyntaxError in Pillow
    "bad length of a chunk": png(4, 4, struct.pack(">I", 2**31) + b"IDAT"),
    "text that unpacks to much": png(4, 4, chunk(b"zTXt", b"a\0\0" + zlib.compress(bytes(10**8)))),
    "no pixels": png(0, 4, chunk(b"IDAT", zlib.compress(b"")), chunk(b"IEND", b"")),
    "truncated JPEG": file_of(picture(1), "JPEG")[:-100],
    "EPS": b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 4 4\n",
}


@pytest.mark.parametrize("kind", BROKEN)
def test_a_broken_file_is_refused(kind):
    message = rf"inputs: expected an image file \(BMP, GIF, .*\), got {len(BROKEN[kind])} bytes: \w+$"
    with pytest.raises(ValueError, match=message):
        read(BROKEN[kind])


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (png(60_000, 60_000, DATA), "expected an image file .*: DecompressionBombError"),
        (png(5001, 5000, DATA), "expected at most 25,000,000 pixels, .* got 5001 x 5000"),
        (png(2**31 - 1, 1, DATA), "expected an image file|expected at most 25,000,000 pixels"),
        (png(1000, 49, DATA), "sides of at most 20 to 1, got 1000 x 49"),
        (tiff_of_one_tile(40_000), "expected at most 25,000,000 pixels"),
    ],
    ids=["bomb", "large", "wide", "strip", "tile"],
)
def test_large_pictures_are_refused_by_their_header(content, message, monkeypatch):
    monkeypatch.setattr(Image.Image, "load", lambda _: pytest.fail("decoded"))
    with pytest.raises(ValueError, match=f"inputs: .*({message})"):
        read(content)


def test_all_pictures_together_have_a_limit(monkeypatch):
    monkeypatch.setattr(handler_pictures, "MOST_PIXELS_IN_ALL", 3000)
    reader = PictureReader()
    for _ in range(2):
        assert reader.picture(WHOLE, "one").size == (40, 30)
    with pytest.raises(ValueError, match="three: expected at most 3,000 pixels in all pictures, got more"):
        reader.picture(WHOLE, "three")


def test_bytes_have_limits(monkeypatch):
    text = base64.b64encode(WHOLE).decode()
    monkeypatch.setattr(handler_pictures, "MOST_BYTES_IN_ALL", 2 * len(WHOLE) + 10)
    reader = PictureReader()
    assert reader.content(text, "one", len(WHOLE)) == WHOLE
    with pytest.raises(ValueError, match="two: expected at most 100 bytes, got about"):
        reader.content(text, "two", 100)
    reader.content(f"data:image/png;base64,{text}", "two")
    with pytest.raises(ValueError, match="three: expected at most 10 bytes, got about"):
        reader.content(text, "three")


@pytest.mark.parametrize("text", ["part.png", "/etc/passwd", "file:///etc/passwd", "é", "data:", "ab=c", "FTP://a"])
def test_other_text_is_refused(text):
    reader = PictureReader()
    with pytest.raises(ValueError, match=r"inputs: expected (base64, a data: URL|an image file)"):
        reader.picture(reader.content(text, "inputs"), "inputs")


def test_an_error_repeats_little_of_the_request():
    with pytest.raises(ValueError, match="inputs: expected base64") as raised:
        PictureReader().content("secret! " * 1000, "inputs")
    assert str(raised.value).count("secret") <= 5


def test_addresses_are_refused_unless_switched_on():
    with pytest.raises(ValueError, match=r"got an address, which .* with the environment variable IDEAL_FETCH_ADDR"):
        PictureReader().content("http://127.0.0.1/", "inputs")
    asked = []
    reader = PictureReader(lambda *given: asked.append(given) or WHOLE)
    assert reader.content("https://example.org/", "inputs", 99) == WHOLE
    assert asked == [("https://example.org/", "inputs", 99, reader.deadline)]
    assert reader.num_bytes == len(WHOLE)


def animation(form, frames=3):
    return file_of(picture(1), form, save_all=True, append_images=[picture(seed) for seed in range(2, frames + 1)])


@pytest.mark.parametrize("form", ["GIF", "PNG", "TIFF", "WEBP"])
def test_several_pictures_in_one_file_are_refused(form):
    with pytest.raises(ValueError, match=f"inputs: expected one picture, got several in a {form} file"):
        read(animation(form))


def test_a_jpeg_with_previews_is_its_first_picture():
    found = read(animation("MPO"))
    assert np.abs(np.asarray(found, dtype=float) - np.asarray(picture(1))).mean() < 60
    assert found.size == (40, 30)


def test_a_picture_stands_upright_and_keeps_its_format():
    exif = Image.Exif()
    exif[0x0112] = 6  # turned by 90 degrees
    found = read(file_of(picture(1), "JPEG", exif=exif))
    assert found.size == (30, 40)
    assert found.format == "JPEG", "its zeros are approximate, if it is a mask"


@pytest.mark.parametrize("mode", ["1", "L", "LA", "P", "RGBA"])
def test_pictures_of_other_modes(mode):
    image = picture(1).convert(mode)
    assert np.array_equal(np.asarray(read(file_of(image))), np.asarray(image))


def test_sixteen_bits_stay():
    values = np.arange(1200, dtype=np.uint16).reshape(30, 40) * 50
    assert np.array_equal(np.asarray(read(file_of(Image.fromarray(values)))), values)


def test_cmyk_and_a_colour_profile():
    assert read(file_of(picture(1).convert("CMYK"), "JPEG")).mode == "CMYK"
    profile = ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes()
    assert read(file_of(picture(1), icc_profile=profile)).size == (40, 30)


def test_notes_in_a_picture_are_no_matter():
    notes = PngImagePlugin.PngInfo()
    notes.add_text("Comment", "a" * 10_000, zip=True)
    assert read(file_of(picture(1), pnginfo=notes)).size == (40, 30)


@pytest.mark.parametrize(
    "value", [float("nan"), float("inf"), np.float32("nan"), np.array([[0, np.nan]]), {"box": [1, float("nan")]}]
)
def test_nan_never_leaves(value):
    with pytest.raises(ValueError, match=r"expected (a )?finite"):
        plain({"score": value}, "result")


def test_what_leaves_is_json():
    values = {"score": np.float32(0.5), "box": (np.int64(1), 2), "mask": np.eye(3, dtype=bool), "type": None}
    found = plain(values, "result")
    assert (found["score"], found["box"], found["type"]) == (0.5, [1, 2], None)
    assert np.array_equal(image_of(found["mask"]), np.eye(3, dtype=bool))
    assert np.array_equal(image_of(plain(np.array([[0, 1.2]]), "map")), [[0, 65535]])
    assert Image.open(io.BytesIO(base64.b64decode(base64_of(picture(1))))).size == (40, 30)


def test_a_png_file_with_a_changed_pixel_is_refused():
    content = bytearray(file_of(picture(1)))
    content[len(content) // 2] ^= 1
    with pytest.raises(ValueError, match=r"inputs: expected an image file .*: SyntaxError"):
        PictureReader().picture(bytes(content), "inputs")
