"""Upstreams as decisions see them: routes, replicas, clocks, and how a call can fail."""

from __future__ import annotations

from enum import StrEnum
from typing import assert_never

import msgspec

from tidegate.domain.units import ModelName, ReplicaId, UpstreamName


class Clock(StrEnum):
    """Which of the five ran out."""

    CONNECT = "connect"
    FIRST_BYTE = "first_byte"
    FIRST_TOKEN = "first_token"  # noqa: S105  a clock, not a password
    STALL = "stall"
    TOTAL = "total"


class Timeouts(msgspec.Struct, frozen=True, gc=False):
    """The five clocks of one attempt, in seconds, all measured from its start except `stall_s`.

    `first_byte_s` and `first_token_s` apply to streams: a non-streaming server sends its first byte when all is generated.
    """

    connect_s: float = 5.0
    first_byte_s: float = 30.0
    first_token_s: float = 60.0
    stall_s: float = 30.0
    """Longest gap between two pieces of a stream."""
    total_s: float = 600.0

    def of(self, clock: Clock) -> float:
        """Give one of them by its name."""
        match clock:
            case Clock.CONNECT:
                return self.connect_s
            case Clock.FIRST_BYTE:
                return self.first_byte_s
            case Clock.FIRST_TOKEN:
                return self.first_token_s
            case Clock.STALL:
                return self.stall_s
            case Clock.TOTAL:
                return self.total_s
            case _:
                assert_never(clock)


class Target(msgspec.Struct, frozen=True):
    """One upstream as a route names it; `model` None keeps the client's model name."""

    upstream: UpstreamName
    model: ModelName | None = None


class Route(msgspec.Struct, frozen=True):
    """Models matching `pattern` (shell style) are served by the first target that can; the rest stand by."""

    pattern: str
    targets: tuple[Target, ...]


class ReplicaPhase(StrEnum):
    """What readiness says of a replica."""

    UNUSED = "unused"
    WARMING = "warming"
    READY = "ready"
    SET_ASIDE = "set_aside"
    FAILING = "failing"
    AWAY = "away"


class Replica(msgspec.Struct, frozen=True):
    """What the flow needs to know of a replica; addresses and keys stay with the driver."""

    replica: ReplicaId
    upstream: UpstreamName
    dialect: str
    timeouts: Timeouts = Timeouts()


class Choice(msgspec.Struct, frozen=True, gc=False):
    """A replica, the model name to send it, and which of the route's targets it is (0 is the preferred one)."""

    replica: Replica
    model: ModelName
    rank: int


class ReplicaStatus(msgspec.Struct, frozen=True):
    """One line of readiness."""

    replica: ReplicaId
    upstream: UpstreamName
    phase: ReplicaPhase
    in_flight: int
    last_error: str | None


class FailureScope(StrEnum):
    """What a failure says something about: only `REPLICA` and `KEY` count against a replica's health."""

    REQUEST = "request"
    KEY = "key"
    MODEL = "model"
    REPLICA = "replica"


class UpstreamFailure(msgspec.Struct, frozen=True):
    """Why an attempt failed, already in Tidegate's terms (see `wire.dialects.classify`).

    `clock` is set when one of our five clocks ended it. `retry_after_s` is the upstream's own wish, in seconds.
    """

    scope: FailureScope
    retryable: bool
    message: str
    status: int | None = None
    """The HTTP status the upstream sent; None when no answer came."""
    code: str | None = None
    """The upstream's own error code, if it sent one."""
    param: str | None = None
    retry_after_s: float | None = None
    clock: Clock | None = None
    rate_limited: bool = False
    credentials: bool = False
    """The upstream refused Tidegate's own key: never shown to the client as a 401."""
    content_filter: bool = False
    in_band: bool = False
    """The failure came inside an answer with status 200."""
