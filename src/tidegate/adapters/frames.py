"""The language between a worker and the ledger process.

A frame is four bytes of length (big-endian) and a msgpack array: `(kind, number, payload)` asks, `(number, payload)` answers. Answers
come in the order in which they are ready. Invariant: a length is checked before anything is kept for it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final, TypeVar

import msgspec

LEASE: Final = "lease"
"""The kind of frames that bring a `LeaseBatch`; the answer is a `LeaseAnswer`."""
POST: Final = "post"
"""The kind of frames that bring entries of the books; the answer is the number of those that the books do not take."""
MAX_FRAME_BYTES: Final = 16_777_216
"""The largest are some hundred kB: a full batch of claims, each with a whole minute's account, or a thousand entries."""

_LENGTH_BYTES: Final = 4
Message = TypeVar("Message")

_encode = msgspec.msgpack.Encoder().encode
_decode_question = msgspec.msgpack.Decoder(tuple[str, int, bytes]).decode
_decode_answer = msgspec.msgpack.Decoder(tuple[int, bytes]).decode


def question(kind: str, number: int, payload: bytes) -> bytes:
    return _framed((kind, number, payload))


def answer(number: int, payload: bytes) -> bytes:
    return _framed((number, payload))


def take_questions(received: bytearray) -> Iterator[tuple[str, int, bytes]]:
    """Take the whole questions out of what was received, one by one. `ValueError` when something is none."""
    return _taken(received, _decode_question)


def take_answers(received: bytearray) -> Iterator[tuple[int, bytes]]:
    """Take the whole answers out of what was received, one by one. `ValueError` when something is none."""
    return _taken(received, _decode_answer)


def _framed(message: tuple[str, int, bytes] | tuple[int, bytes]) -> bytes:
    body = _encode(message)
    return len(body).to_bytes(_LENGTH_BYTES, "big") + body


def _taken(received: bytearray, decode: Callable[[memoryview], Message]) -> Iterator[Message]:
    at = 0
    try:
        while len(received) - at >= _LENGTH_BYTES:
            start = at + _LENGTH_BYTES
            length = int.from_bytes(received[at:start], "big")
            if length > MAX_FRAME_BYTES:
                raise ValueError(f"a frame of {length} bytes")
            if len(received) < start + length:
                return
            at = start + length
            yield decode(memoryview(received)[start:at])
    finally:
        del received[:at]
