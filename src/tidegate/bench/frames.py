"""What the parent of a run and its client processes say to each other, through the client's standard input and output.

A frame is a length (`wire.length_prefix`) and a msgpack message.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import msgspec

from tidegate.bench.plan import PlannedRequest, Scenario, Stage, Target
from tidegate.bench.sample import ClientReport, Sample
from tidegate.wire import length_prefix

MAX_FRAME_BYTES: Final = 268_435_456
"""The largest brings a user's own texts."""


class Setup(msgspec.Struct, frozen=True, tag=True):
    """First, to the client: everything but the requests."""

    client: int
    target: Target
    scenarios: tuple[Scenario, ...]
    stages: tuple[Stage, ...]
    length_s: float
    places: dict[int, int] | None
    """In a closed loop, how many requests may be under way at once, by stage."""


class Requests(msgspec.Struct, frozen=True, tag=True):
    """To the client: a part of its requests. One without any ends them."""

    requests: tuple[PlannedRequest, ...]


class Ready(msgspec.Struct, frozen=True, tag=True):
    """From the client: it can begin."""


class Begin(msgspec.Struct, frozen=True, tag=True):
    """To the client: the run's origin, on the machine's monotonic clock."""

    origin: float


class Stop(msgspec.Struct, frozen=True, tag=True):
    """To the client: end what is under way, and report."""


class Samples(msgspec.Struct, frozen=True, tag=True):
    """From the client, several times a second, also with none: it is alive."""

    samples: tuple[Sample, ...]
    in_flight: int


class Over(msgspec.Struct, frozen=True, tag=True):
    """From the client, last."""

    report: ClientReport


class Unusable(msgspec.Struct, frozen=True, tag=True):
    """From the client instead of `Ready`: nothing can be sent, and why."""

    reason: str


ToClient = Setup | Requests | Begin | Stop
FromClient = Ready | Samples | Over | Unusable

_encode = msgspec.msgpack.Encoder().encode
_decode_to_client = msgspec.msgpack.Decoder(ToClient).decode
_decode_from_client = msgspec.msgpack.Decoder(FromClient).decode


def framed(message: ToClient | FromClient) -> bytes:
    return length_prefix.framed(_encode(message))


def take_to_client(received: bytearray) -> Iterator[ToClient]:
    """Take the whole messages out of what was received. `ValueError` when something is none."""
    return map(_decode_to_client, length_prefix.take_bodies(received, max_bytes=MAX_FRAME_BYTES))


def take_from_client(received: bytearray) -> Iterator[FromClient]:
    """Take the whole messages out of what was received. `ValueError` when something is none."""
    return map(_decode_from_client, length_prefix.take_bodies(received, max_bytes=MAX_FRAME_BYTES))
