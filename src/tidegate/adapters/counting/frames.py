"""The language between a worker and the counting process.

A frame is two big-endian 32-bit lengths, then a head (msgpack) and raw bytes: a request body to parse over there, or token ids on the
way back, neither of which is worth encoding. Invariant: both lengths are checked before anything is allocated for them.
"""

from __future__ import annotations

import asyncio
import struct
from array import array

import msgspec

from tidegate.domain.request import Operation

MAX_HEAD_BYTES = 1_048_576
"""Texts of one small request body (64 KiB before JSON escapes are undone) and their framing, with room to spare."""
MAX_IDS = 131_072
"""Token ids sent back for one request: more than any prompt a person looks at; the worker unpacks them on its loop in under 2 ms."""
MAX_SOCKET_PATH_BYTES = 100
"""Of the path on which the counting process listens; the kernel's limit is 107."""
_LENGTHS = struct.Struct(">II")


class CountTexts(msgspec.Struct, frozen=True, tag="t", array_like=True):
    """Count each of these texts, special tokens honoured."""

    request_id: int
    vocabulary: str
    texts: tuple[str, ...]
    want_ids: bool = False


class CountBody(msgspec.Struct, frozen=True, tag="b", array_like=True):
    """Parse the request body that follows, render its prompt, count it."""

    request_id: int
    vocabulary: str
    operation: Operation
    want_ids: bool = False


class Counted(msgspec.Struct, frozen=True, tag="c", array_like=True):
    """`counts` has one figure per text (one in all for a body); ids follow as raw native 32-bit words if asked for and not too many."""

    request_id: int
    counts: tuple[int, ...]
    exact: bool
    has_ids: bool = False


class Uncountable(msgspec.Struct, frozen=True, tag="r", array_like=True):
    """This request cannot be counted; the connection is fine."""

    request_id: int
    reason: str


Question = CountTexts | CountBody
Answer = Counted | Uncountable

decode_question = msgspec.msgpack.Decoder(Question).decode
decode_answer = msgspec.msgpack.Decoder(Answer).decode
_encode = msgspec.msgpack.Encoder().encode


class FrameTooLargeError(ValueError):
    """The peer announced more than it may send."""


def frame_start(head: Question | Answer, raw_bytes: int = 0) -> bytes:
    """Give all of a frame but its raw part, which the caller sends after it."""
    encoded = _encode(head)
    return _LENGTHS.pack(len(encoded), raw_bytes) + encoded


async def read_lengths(reader: asyncio.StreamReader, *, max_raw_bytes: int) -> tuple[int, int] | None:
    """Read the lengths of the next frame; None at the end of the stream."""
    try:
        head_bytes, raw_bytes = _LENGTHS.unpack(await reader.readexactly(_LENGTHS.size))
    except asyncio.IncompleteReadError as error:
        if error.partial:
            raise
        return None
    if head_bytes > MAX_HEAD_BYTES or raw_bytes > max_raw_bytes:
        raise FrameTooLargeError(f"A frame of {head_bytes} + {raw_bytes} bytes is over {MAX_HEAD_BYTES} + {max_raw_bytes}.")
    return head_bytes, raw_bytes


def pack_ids(ids: list[int]) -> bytes:
    return array("I", ids).tobytes()


def unpack_ids(raw: bytes) -> tuple[int, ...]:
    words = array("I")
    words.frombytes(raw)
    return tuple(words)
