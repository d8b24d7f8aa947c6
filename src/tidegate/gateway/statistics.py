"""What a gateway says of itself: to health checks, and for metrics."""

from __future__ import annotations

import msgspec

from tidegate.domain.upstream import ReplicaStatus


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
