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
    """The five clocks of one attempt, in seconds; each but `stall_s` runs from its start until what it waits for has come.

    An answer that does not stream has two, `connect_s` and `total_s`: its server sends the first byte when all is generated.
    """

    connect_s: float = 5.0
    first_byte_s: float = 30.0
    first_token_s: float = 60.0
    stall_s: float = 30.0
    """Longest gap between two pieces of a stream's body. Until the first of them `first_token_s` bounds the wait."""
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
    """It answered 429 and is left alone until its `Retry-After`."""
    FAILING = "failing"
    """Its breaker refuses calls, or the last call failed a moment ago."""
    AWAY = "away"
    """Its process, or its answers to health checks, are missing."""
    DRAINED = "drained"
    """An operator took it out of service: what runs there ends, and nothing begins."""


class BreakerPhase(StrEnum):
    """Where a breaker stands; `policy.resilience.breaker` draws the ways between them."""

    CLOSED = "closed"
    SOFT_OPEN = "soft_open"
    """Others go first; with no other it is used."""
    SOFT_HALF_OPEN = "soft_half_open"
    """As `SOFT_OPEN`, but some calls go there as if it were closed, to find out."""
    OPEN = "open"
    """Not used at all, until its pause is over."""
    HALF_OPEN = "half_open"
    """Some calls go there, to find out; no others."""


class BreakerSettings(msgspec.Struct, frozen=True, gc=False):
    """When a breaker trips and how it comes back; as in the configuration's `breaker`."""

    enabled: bool = True
    consecutive_failures: int = 5
    connect_failures: int = 2
    failure_ratio: float = 0.5
    window_s: float = 10.0
    min_calls: int = 10
    slow_ratio: float = 0.015
    slow_window_s: float = 60.0
    slow_min_calls: int = 50
    ttft_s: float | None = 3.0
    cooldown_s: float = 1.0
    max_cooldown_s: float = 30.0
    probes: int = 2
    slow_start_s: float = 10.0


class Pick(StrEnum):
    """How one of several available replicas is picked; see `policy.routing.pick`."""

    LEAST_IN_FLIGHT = "least_in_flight"
    PEAK_EWMA = "peak_ewma"
    TWO_CHOICES = "two_choices"
    WEIGHTED = "weighted"


class Replica(msgspec.Struct, frozen=True):
    """What decisions need to know of a replica; how it is reached, and with which key, stays with the driver."""

    replica: ReplicaId
    upstream: UpstreamName
    dialect: str
    timeouts: Timeouts = Timeouts()
    weight: float = 1.0
    """Its share of the pool's requests, beside the others' weights."""
    priority: int = 0
    """Replicas with a higher number are used only when none below is available."""
    address: str = ""
    """Where it is, only to be compared: another address under the same name is another server."""


class Pool(msgspec.Struct, frozen=True):
    """The interchangeable replicas of one upstream."""

    upstream: UpstreamName
    replicas: tuple[Replica, ...]
    pick: Pick = Pick.LEAST_IN_FLIGHT
    keeps_sessions: bool = False
    """Requests of one session go to one replica while it is available and not overloaded."""
    breaker: BreakerSettings = BreakerSettings()
    last_resort: bool = False
    """As a stand-by it serves only when nothing else can at all: a small model is no better than a good one that is slow."""


class Choice(msgspec.Struct, frozen=True, gc=False):
    """A replica, the model name to send it, and which of the route's targets it is (0 is the preferred one)."""

    replica: Replica
    model: ModelName
    rank: int


class ReplicaStatus(msgspec.Struct, frozen=True):
    """One replica at one instant, as readiness, metrics and `explain` show it."""

    replica: ReplicaId
    upstream: UpstreamName
    phase: ReplicaPhase
    in_flight: int
    last_error: str | None
    """May name addresses: for operators."""
    breaker: BreakerPhase = BreakerPhase.CLOSED
    available: bool = True
    """It may be chosen, if need be after all others."""
    why: str = ""
    """Why it is not available, or why others go first; names no address."""
    back_in_s: float | None = None
    """When it may be chosen again, if that is known."""
    trips: int = 0
    """How often its breaker opened since it is known."""


class PoolStatus(msgspec.Struct, frozen=True):
    """One upstream's own breaker: what all of its replicas together have shown."""

    upstream: UpstreamName
    breaker: BreakerPhase
    why: str = ""
    back_in_s: float | None = None
    trips: int = 0


class TargetView(msgspec.Struct, frozen=True):
    """One target of a route at one instant, for `tidegate explain` and for the cause in a record."""

    rank: int
    upstream: UpstreamName
    model: ModelName
    available: bool
    why: str
    """Why the whole target is not available or not preferred; empty when only its replicas differ."""
    replicas: tuple[ReplicaStatus, ...]


class FailureScope(StrEnum):
    """What a failure says something about: only `REPLICA` and `KEY` count against a replica's health."""

    GATEWAY = "gateway"
    """A bound of ours was reached: it says nothing of the upstream."""
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
    connect: bool = False
    """No connection could be had: no byte of the request was accepted."""
