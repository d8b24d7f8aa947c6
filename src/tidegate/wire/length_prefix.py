"""Messages in a stream of bytes: each is four bytes of length (big-endian) and that many of its own.

Invariants: a length is checked before anything is kept for it; how the bytes were split changes nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

LENGTH_BYTES: Final = 4


def framed(body: bytes) -> bytes:
    """Put its length before a message."""
    return len(body).to_bytes(LENGTH_BYTES, "big") + body


def take_bodies(received: bytearray, *, max_bytes: int) -> Iterator[bytes]:
    """Take the whole messages out of what was received, one by one. `ValueError` when one is said to be longer than `max_bytes`."""
    at = 0
    try:
        while len(received) - at >= LENGTH_BYTES:
            start = at + LENGTH_BYTES
            length = int.from_bytes(received[at:start], "big")
            if length > max_bytes:
                raise ValueError(f"a frame of {length} bytes")
            if len(received) < start + length:
                return
            at = start + length
            yield bytes(memoryview(received)[start:at])
    finally:
        del received[:at]
