"""Everything a request driver works with, for one configuration. Replaced as a whole at a reload."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from tidegate.domain.units import HeaderLines, ReplicaId
from tidegate.flow.facts import Policies
from tidegate.gateway.calibration import Calibration
from tidegate.gateway.stream_settings import StreamSettings
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


class Services(msgspec.Struct, frozen=True):
    policies: Policies
    endpoints: dict[ReplicaId, UpstreamEndpoint]
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
