"""How streams are kept alive and resumed."""

from __future__ import annotations

import msgspec


class StreamSettings(msgspec.Struct, frozen=True):
    """The `streams` section, as far as the driver performs it."""

    heartbeat_s: float | None = 15.0
    resumable: bool = True
    resume_window_s: float = 30.0
    resume_buffer_bytes: int = 1_048_576
    resume_total_bytes: int = 67_108_864
    peer_silence_s: float = 60.0
    """Longest silence that heartbeats and the clocks of upstreams allow a stream: see `gateway.peer_relay`."""
