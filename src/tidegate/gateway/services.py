"""Everything a request driver works with, for one configuration. Replaced as a whole at a reload."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import msgspec

from tidegate.domain.units import HeaderLines, ReplicaId
from tidegate.domain.upstream import ReplicaStatus
from tidegate.flow.facts import Policies
from tidegate.gateway.calibration import Calibration
from tidegate.ports import Auditor, Authenticator, CostKeeper, LeaseKeeper, Recorder, TokenCounter, UpstreamClient
from tidegate.wire.dialects import Dialect
from tidegate.wire.trace_context import NO_SHARE


class UpstreamEndpoint(msgspec.Struct, frozen=True):
    """How to reach one replica: its pool and the header fields that every call carries (the key among them)."""

    client: UpstreamClient
    dialect: Dialect
    lines: HeaderLines
    continues_trace: bool = False
    """Send `traceparent`: only to servers of our own, never to a vendor."""


class StreamSettings(msgspec.Struct, frozen=True):
    """The `streams` section, as far as the driver performs it."""

    heartbeat_s: float | None = 15.0
    resumable: bool = True
    resume_window_s: float = 30.0
    resume_buffer_bytes: int = 1_048_576
    resume_total_bytes: int = 67_108_864


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
    streams: StreamSettings = StreamSettings()
    leases: LeaseKeeper | None = None
    """Where limits are shared with other processes; None: no limit of this process is."""
    costs: CostKeeper | None = None
    """None: no books are kept."""
    calibration: Calibration | None = None
    """Learns from finished requests; None: nothing is learned."""
    auditor: Auditor | None = None
    """None: no bodies are kept."""
    trace_threshold: str = NO_SHARE
    """Traces that begin here and come up to it are sent on as sampled."""


class Readiness(msgspec.Struct, frozen=True):
    """The body of `/readyz`: ready when this process accepts work and some replica may answer it."""

    status: str
    upstreams: dict[str, list[ReplicaStatus]]
    """The replicas of each, in the order of the configuration."""

    @property
    def ready(self) -> bool:
        return self.status == "ready"

    def without_causes(self) -> Readiness:
        """Leave out what went wrong: anybody may ask the API port, and causes name addresses. The admin port has them."""
        upstreams = {
            name: [msgspec.structs.replace(status, last_error=None) for status in statuses] for name, statuses in self.upstreams.items()
        }
        return Readiness(self.status, upstreams)


class StreamStatistics(msgspec.Struct, frozen=True):
    """The first two are levels, the others are counted since the start."""

    resumable: int
    """Streams that a client could resume at this moment, the finished ones included."""
    resume_buffer_bytes: int
    resumed: int
    """Clients that came back and got the rest."""
    resume_missed: int
    """Clients that came back in vain: the stream is unknown, over, another's, or its tail is lost."""
    heartbeats: int


class GatewayStatistics(msgspec.Struct, frozen=True):
    running: int
    tasks: int
    streams: StreamStatistics
