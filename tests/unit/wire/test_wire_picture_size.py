"""A picture's tokens follow from the size that its first bytes tell."""

from __future__ import annotations

import base64
import struct

import pytest

from tidegate.wire.picture_size import LOW_DETAIL_TOKENS, UNKNOWN_PICTURE_TOKENS, picture_size, picture_tokens

PNG = b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR" + struct.pack(">II", 640, 480)
GIF = b"GIF89a" + struct.pack("<HH", 640, 480)
LOSSY = b"RIFF\x00\x00\x00\x00WEBPVP8 \x00\x00\x00\x00\x00\x00\x00\x9d\x01\x2a" + struct.pack("<HH", 640 | 0x4000, 480)
LOSSLESS = b"RIFF\x00\x00\x00\x00WEBPVP8L\x00\x00\x00\x00\x2f" + struct.pack("<I", 639 | 479 << 14)
EXTENDED = b"RIFF\x00\x00\x00\x00WEBPVP8X\x0a\x00\x00\x00\x00\x00\x00\x00" + (639).to_bytes(3, "little") + (479).to_bytes(3, "little")
FRAME = b"\xff\xc2\x00\x11\x08" + struct.pack(">HH", 480, 640)
TABLES = b"\xff\xc4\x00\x05\x00\x00\x00"
METADATA = b"\xff\xe1" + struct.pack(">H", 60_002) + b"\xff\xc0" * 30_000
JPEG = b"\xff\xd8" + METADATA + TABLES + b"\xff" + FRAME


def address(head: bytes, kind: str = "image/png") -> str:
    return f"data:{kind};base64,{base64.b64encode(head).decode()}"


@pytest.mark.parametrize("head", [PNG, GIF, LOSSY, LOSSLESS, EXTENDED, JPEG])
def test_each_format_tells_its_size(head: bytes) -> None:
    """Width and height stand at each format's own place; whatever follows them is not needed."""
    assert picture_size(address(head + b"\x00" * 7)) == (640, 480)


@pytest.mark.parametrize(
    "given",
    [
        "https://h/p.png",
        "data:image/png,plain",
        "data:image/png;base64",
        "data:image/png;base64,",
        "data:image/png;base64,\u00fcber",
        address(b"BM" + b"\x00" * 40),
        address(PNG[:18]),
        address(PNG[:16] + b"\x00" * 8),
        address(EXTENDED[:26]),
        address(LOSSY[:12] + b"VP9 " + LOSSY[16:]),
        address(b"\xff\xd8" + TABLES),
        address(b"\xff\xd8" + TABLES + b"\x00\x00\x00\x00\x00"),
        "x" * 300 + ",",
    ],
)
def test_what_tells_no_size_is_a_megapixel(given: str) -> None:
    """An address elsewhere, an unknown format and a head that ends early are taken for an ordinary picture."""
    assert picture_size(given) is None
    assert picture_tokens(given, None) == UNKNOWN_PICTURE_TOKENS


@pytest.mark.parametrize(
    ("width", "height", "tokens"),
    [
        (640, 480, 20 * 15 + 2),
        (1, 1, 64 + 2),
        (100, 100, 64 + 2),
        (8192, 8192, 128 * 128 + 2),
        (20_000, 1, 625 + 2),
        (4_000_000_000, 1, 16_384 + 2),
        (4_000_000_000, 4_000_000_000, 16_384 + 2),
    ],
)
def test_tokens_are_patches_within_bounds(width: int, height: int, tokens: int) -> None:
    """A token for each 32 × 32 pixels after resizing, two marks, and never more than the largest picture has."""
    assert picture_tokens(address(PNG[:16] + struct.pack(">II", width, height)), "auto") == tokens


def test_low_detail_is_looked_at_coarsely() -> None:
    """A large picture of low detail costs no more than 512 × 512 pixels; a small one keeps its size."""
    large, small = PNG[:16] + struct.pack(">II", 4096, 4096), PNG[:16] + struct.pack(">II", 256, 256)
    assert picture_tokens(address(large), "low") == LOW_DETAIL_TOKENS
    assert picture_tokens(address(small), "low") == 66
