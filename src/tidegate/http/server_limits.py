"""The bounds of a server, and what it says of itself."""

from __future__ import annotations

import msgspec


class ServerLimits(msgspec.Struct, frozen=True, kw_only=True):
    """The bounds of one server; names and meanings are those of the configuration's `server` section."""

    max_connections: int = 20_000
    max_header_bytes: int = 65_536
    max_body_bytes: int = 33_554_432
    max_buffered_bytes: int = 1_073_741_824
    header_timeout_s: float = 10.0
    body_timeout_s: float = 30.0
    idle_timeout_s: float = 120.0
    send_timeout_s: float = 60.0
    half_close_keeps_going: bool = False


class ServerStatistics(msgspec.Struct, frozen=True, kw_only=True):
    """A snapshot. The first three are of this moment, the others totals since the start."""

    connections: int
    exchanges: int
    """Requests whose response is not complete."""
    buffered_bytes: int
    """Request bytes held: bodies until their exchange ends, heads and pipelined requests still to be read."""
    accepted_connections: int
    rejected_connections: int
    """Closed at once with a 503: over `max_connections`."""
    requests: int
    malformed: int
    """Requests answered by the server itself: not HTTP/1.1, ambiguous, or with a head too large or too slow."""
    refused_bodies: int
    """Bodies too large, malformed, or over `max_buffered_bytes`."""
    timed_out: int
    """Heads and bodies that came too slowly."""
    slow_readers: int
    """Connections dropped because the client stopped reading."""
    clients_left: int
    """Exchanges whose client went before the response was complete; slow readers are among them."""
