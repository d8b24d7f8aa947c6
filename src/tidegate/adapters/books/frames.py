"""How a worker and the ledger process speak about entries: the process's frames, with entries as their payload."""

from __future__ import annotations

from typing import Final

import msgspec

POST: Final = "post"
"""The kind of the frames that bring entries; the answer is the number of those that the books do not take."""
MAX_ANSWER_BYTES: Final = 65_536
"""An answer has some ten bytes."""

_LENGTH_BYTES: Final = 4
_encode = msgspec.msgpack.Encoder().encode
_decode_answer = msgspec.msgpack.Decoder(tuple[int, bytes]).decode
_decode_refused = msgspec.msgpack.Decoder(int).decode


def post_frame(number: int, payload: bytes) -> bytes:
    body = _encode((POST, number, payload))
    return len(body).to_bytes(_LENGTH_BYTES, "big") + body


def take_answers(received: bytearray) -> list[tuple[int, int]]:
    """Take the whole answers out of what was received: the number of the frame, and how many of its entries were refused.

    `ValueError` (`msgspec.MsgspecError` is one) when that is no answer.
    """
    answers: list[tuple[int, int]] = []
    at = 0
    while len(received) - at >= _LENGTH_BYTES:
        start = at + _LENGTH_BYTES
        length = int.from_bytes(received[at:start], "big")
        if length > MAX_ANSWER_BYTES:
            raise ValueError(f"an answer of {length} bytes")
        if len(received) < start + length:
            break
        number, payload = _decode_answer(received[start : start + length])
        answers.append((number, _decode_refused(payload)))
        at = start + length
    del received[:at]
    return answers
