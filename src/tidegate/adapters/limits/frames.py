"""The language between a worker and the ledger process.

A frame is four bytes of length (big-endian) and a msgpack array: `(kind, number, payload)` asks, `(number, payload)` answers. Answers
come in the order they are ready. Invariant: a length is checked before anything is read for it.
"""

from __future__ import annotations

import asyncio
from typing import Final

import msgspec

LEASE: Final = "lease"
"""The kind of frames that bring a `LeaseBatch`; the answer is a `LeaseAnswer`."""
MAX_FRAME_BYTES: Final = 4_194_304
"""A full batch of claims, each with a whole minute's account, is some 400 KB; entries of the books some 200 KB."""

_LENGTH_BYTES: Final = 4
encode = msgspec.msgpack.Encoder().encode
decode_answer = msgspec.msgpack.Decoder(tuple[int, bytes]).decode


class FrameTooLargeError(ValueError):
    """The peer announced more than it may send."""


def frame(message: tuple[str, int, bytes] | tuple[int, bytes]) -> bytes:
    body = encode(message)
    return len(body).to_bytes(_LENGTH_BYTES, "big") + body


async def read_frame(reader: asyncio.StreamReader) -> bytes | None:
    """Read the body of the next frame; None when the peer is gone, in the middle of a frame too."""
    try:
        length = int.from_bytes(await reader.readexactly(_LENGTH_BYTES), "big")
        if length > MAX_FRAME_BYTES:
            raise FrameTooLargeError(f"a frame of {length} bytes is over {MAX_FRAME_BYTES}")
        return await reader.readexactly(length)
    except (asyncio.IncompleteReadError, OSError):
        return None
