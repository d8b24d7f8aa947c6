"""The language between a worker, or the supervisor, and the ledger process.

A frame is a length (`wire.length_prefix`) and a msgpack array: `(kind, number, payload)` asks, `(number, payload)` answers. Answers come in
the order in which they are ready.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import msgspec

from tidegate.wire.length_prefix import framed, take_bodies

LEASE: Final = "lease"
"""The kind of frames that bring a `LeaseBatch`; the answer is a `LeaseAnswer`."""
POST: Final = "post"
"""The kind of frames that bring entries of the books; the answer is the number of those that the books do not take."""
BEGIN: Final = "begin"
"""The kind of the frame that brings budgets which a reload adds, as JSON; the answer is empty, and says that what was spent is charged."""
STATUS: Final = "status"
"""The kind of the frame that asks how the process is; its payload is empty."""
MAX_FRAME_BYTES: Final = 16_777_216
"""The largest are some hundred kB: a full batch of claims, each with a whole minute's account, or a thousand entries."""

_encode = msgspec.msgpack.Encoder().encode
_decode_question = msgspec.msgpack.Decoder(tuple[str, int, bytes]).decode
_decode_answer = msgspec.msgpack.Decoder(tuple[int, bytes]).decode


def question(kind: str, number: int, payload: bytes) -> bytes:
    return framed(_encode((kind, number, payload)))


def answer(number: int, payload: bytes) -> bytes:
    return framed(_encode((number, payload)))


def take_questions(received: bytearray) -> Iterator[tuple[str, int, bytes]]:
    """Take the whole questions out of what was received, one by one. `ValueError` when something is none."""
    return map(_decode_question, take_bodies(received, max_bytes=MAX_FRAME_BYTES))


def take_answers(received: bytearray) -> Iterator[tuple[int, bytes]]:
    """Take the whole answers out of what was received, one by one. `ValueError` when something is none."""
    return map(_decode_answer, take_bodies(received, max_bytes=MAX_FRAME_BYTES))
