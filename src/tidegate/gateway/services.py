"""Everything a request driver works with, for one configuration. Replaced as a whole at a reload."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import msgspec

from tidegate.domain.units import Headers, ReplicaId
from tidegate.domain.upstream import ReplicaStatus
from tidegate.flow.facts import Policies
from tidegate.ports import Authenticator, Recorder, TokenCounter, UpstreamClient
from tidegate.wire.dialects import Dialect


class UpstreamEndpoint(msgspec.Struct, frozen=True):
    """How to reach one replica: its pool and the headers every call carries (the key among them)."""

    client: UpstreamClient
    dialect: Dialect
    headers: Headers
    continues_trace: bool = False
    """Send `traceparent`: only to servers of our own, never to a vendor."""


class Services(msgspec.Struct, frozen=True):
    policies: Policies
    endpoints: Mapping[ReplicaId, UpstreamEndpoint]
    authenticator: Authenticator
    counter: TokenCounter
    recorder: Recorder
    wall_clock: Callable[[], float]
    """Seconds since the epoch, for records and for dates in upstreams' headers; decisions use the flow's `now`."""
    largest_answer_bytes: int = 67_108_864
    """A non-streaming answer is held until it is whole; beyond this size the call fails."""
    held_stream_bytes: int = 1_048_576
    """What a stream may send before its first output and is held back so that the call can still be retried unseen."""


class Readiness(msgspec.Struct, frozen=True):
    """The body of `/readyz`: ready when this process accepts work and some replica may answer it."""

    status: str
    upstreams: dict[str, ReplicaStatus]

    @property
    def ready(self) -> bool:
        return self.status == "ready"

    def without_causes(self) -> Readiness:
        """Leave out what went wrong: anybody may ask the API port, and causes name addresses. The admin port has them."""
        upstreams = {name: msgspec.structs.replace(status, last_error=None) for name, status in self.upstreams.items()}
        return Readiness(self.status, upstreams)


class GatewayStatistics(msgspec.Struct, frozen=True):
    running: int
    tasks: int
