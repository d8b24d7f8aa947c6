"""The language between the parent and its clients."""

import pytest

from tidegate.bench.frames import (
    MAX_FRAME_BYTES,
    Begin,
    FromClient,
    Ready,
    Requests,
    Samples,
    Stop,
    ToClient,
    framed,
    take_from_client,
    take_to_client,
)
from tidegate.bench.plan import PlannedRequest
from tidegate.bench.sample import End, Sample


@pytest.mark.parametrize("size", [1, 3, 1_000])
def test_messages_come_whole_however_they_were_cut(size: int) -> None:
    """In order, both ways."""
    there: list[ToClient] = [Requests((PlannedRequest(0, 0.5, 0, "s", 1, 8),)), Requests(()), Begin(12.5), Stop()]
    received, heard = bytearray(), list[ToClient]()
    stream = b"".join(framed(message) for message in there)
    for start in range(0, len(stream), size):
        received += stream[start : start + size]
        heard += take_to_client(received)
    assert there == heard
    back: list[FromClient] = [Ready(), Samples((Sample(0, 0.0, 0.1, End.COMPLETE, 0.2),), 3)]
    assert back == [*take_from_client(bytearray(b"".join(framed(message) for message in back)))]


@pytest.mark.parametrize("received", [(MAX_FRAME_BYTES + 1).to_bytes(4, "big"), b"\0\0\0\1x", framed(Ready())])
def test_what_is_no_message_is_refused(received: bytes) -> None:
    """A length beyond the bound, no msgpack, and a message of the other direction."""
    with pytest.raises(ValueError, match=r"frame|Expected|Invalid"):
        [*take_to_client(bytearray(received))]
