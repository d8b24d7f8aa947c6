"""Laws of messages with a length before them, for any messages and any cut."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.wire.length_prefix import framed, take_bodies

MAX_BYTES = 40


@given(st.lists(st.binary(max_size=MAX_BYTES)), st.integers(1, 60))
def test_how_a_stream_is_split_changes_nothing(bodies: list[bytes], size: int) -> None:
    """Every message comes once, in order, and nothing is left over."""
    stream = b"".join(map(framed, bodies))
    received, taken = bytearray(), list[bytes]()
    for start in range(0, len(stream), size):
        received += stream[start : start + size]
        taken += take_bodies(received, max_bytes=MAX_BYTES)
    assert bodies == taken
    assert not received


@given(st.binary(max_size=MAX_BYTES), st.integers(MAX_BYTES + 1, 2**32 - 1))
def test_a_length_beyond_the_bound_is_refused_before_anything_is_kept_for_it(body: bytes, length: int) -> None:
    """What was whole before it is given."""
    received = bytearray(framed(body) + length.to_bytes(4, "big"))
    bodies = take_bodies(received, max_bytes=MAX_BYTES)
    assert body == next(bodies)
    with pytest.raises(ValueError, match=f"a frame of {length} bytes"):
        next(bodies)
    assert length.to_bytes(4, "big") == received


def test_what_nobody_asks_for_stays() -> None:
    """Only what was taken is gone."""
    received = bytearray(framed(b"first") + framed(b"second"))
    bodies = take_bodies(received, max_bytes=MAX_BYTES)
    assert b"first" == next(bodies)
    bodies.close()  # type: ignore[attr-defined]  # it is a generator
    assert framed(b"second") == received
