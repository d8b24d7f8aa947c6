"""What an exit status says: of a command, of the gateway, and of a worker to its supervisor."""

from __future__ import annotations

from enum import IntEnum


class Exit(IntEnum):
    OK = 0
    FAILED = 1
    """It ran, and the answer is bad: a worker that keeps dying, an engine that does not answer, warnings under `check --strict`."""
    USAGE = 2
    """A person must change something first: an option, the configuration, a port in use."""
    INVALID = 3
    """It ran, and what it measured does not count: a load test whose client was the bottleneck."""
    INTERRUPTED = 130
    """Ctrl-C during a command that is not the gateway (which ends with 0)."""
