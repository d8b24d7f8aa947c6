"""How many tokens a picture becomes: by its width and height, read from the first bytes that a `data:` address brings along.

The picture is not decoded: PNG, JPEG, GIF and WebP say their size in their heads. Qwen's vision models resize a picture to whole patches of
32 × 32 pixels, each a token, within a smallest and a largest area, and put a mark before and after it. Source: the models' published
`preprocessor_config.json` and `smart_resize`. What has no size here (an address elsewhere, a file of another kind) is taken as a picture of
about a megapixel.
"""

from __future__ import annotations

import binascii
import struct
from math import ceil, floor, sqrt
from typing import Final

UNKNOWN_PICTURE_TOKENS: Final = 1_026
"""A picture of about one megapixel, and its two marks."""
LOW_DETAIL_TOKENS: Final = 258
"""The most of a picture that may be looked at coarsely: 512 × 512 pixels, and its two marks."""

_PATCH = 32
_SMALLEST_AREA = 65_536
_LARGEST_AREA = 16_777_216
_MARKS = 2
_HEAD_CHARS: Final = 87_384
"""Of base64: 64 KiB. A JPEG's size stands behind its metadata, which may hold a small picture of its own."""
_LONGEST_MEDIA_TYPE = 256
_NO_SIZE = frozenset({0xC4, 0xC8, 0xCC})
"""Of JPEG's markers from C0 to CF those that begin no frame."""


def picture_tokens(address: str, detail: str | None) -> int:
    """Give the tokens of one picture, its marks included."""
    size = picture_size(address)
    tokens = UNKNOWN_PICTURE_TOKENS if size is None else _patches(*size) + _MARKS
    return min(tokens, LOW_DETAIL_TOKENS) if detail == "low" else tokens


def _patches(width: int, height: int) -> int:
    across, down = max(1, round(width / _PATCH)), max(1, round(height / _PATCH))
    area = across * down * _PATCH * _PATCH
    if area > _LARGEST_AREA:
        scale = sqrt(width * height / _LARGEST_AREA)
        across, down = max(1, floor(width / scale / _PATCH)), max(1, floor(height / scale / _PATCH))
    elif area < _SMALLEST_AREA:
        scale = sqrt(_SMALLEST_AREA / (width * height))
        across, down = ceil(width * scale / _PATCH), ceil(height * scale / _PATCH)
    return min(across * down, _LARGEST_AREA // _PATCH**2)


def picture_size(address: str) -> tuple[int, int] | None:
    """Read width and height in pixels; None when they are not here to be read."""
    comma = address.find(",", 0, _LONGEST_MEDIA_TYPE)
    if comma < 0 or not address.startswith("data:") or not address.endswith(";base64", 0, comma):
        return None
    encoded = address[comma + 1 : comma + 1 + _HEAD_CHARS]
    try:
        head = binascii.a2b_base64(encoded[: len(encoded) & ~3])
        size = _size(head)
    except (ValueError, struct.error):  # no base64; a head that ends too early
        return None
    return size if size is not None and size[0] and size[1] else None


def _size(head: bytes) -> tuple[int, int] | None:
    if head.startswith(b"\x89PNG\r\n\x1a\n"):
        return _pair(">II", head, 16)
    if head.startswith((b"GIF87a", b"GIF89a")):
        return _pair("<HH", head, 6)
    if head.startswith(b"RIFF") and head[8:12] == b"WEBP":
        return _webp(head)
    if head.startswith(b"\xff\xd8"):
        return _jpeg(head)
    return None


def _pair(shape: str, head: bytes, position: int) -> tuple[int, int]:
    width, height = struct.unpack_from(shape, head, position)
    return int(width), int(height)


def _webp(head: bytes) -> tuple[int, int] | None:
    kind = head[12:16]
    if kind == b"VP8 ":
        width, height = _pair("<HH", head, 26)
        return width & 0x3FFF, height & 0x3FFF
    if kind == b"VP8L":
        [bits] = struct.unpack_from("<I", head, 21)
        return (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1
    if kind == b"VP8X" and len(head) >= 30:  # noqa: PLR2004  the end of the two sizes
        return int.from_bytes(head[24:27], "little") + 1, int.from_bytes(head[27:30], "little") + 1
    return None


def _jpeg(head: bytes) -> tuple[int, int] | None:
    """Go from segment to segment to the one that begins the frame."""
    position = 2
    while position + 4 <= len(head) and head[position] == 0xFF:  # noqa: PLR2004  each segment begins so
        marker = head[position + 1]
        if 0xC0 <= marker <= 0xCF and marker not in _NO_SIZE:  # noqa: PLR2004  those that begin a frame
            height, width = _pair(">HH", head, position + 5)
            return width, height
        [length] = struct.unpack_from(">H", head, position + 2)
        position += 1 if marker == 0xFF else 2 + length  # noqa: PLR2004  a filling byte, or a segment
    return None
