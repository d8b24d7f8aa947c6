"""The wall clock, for what is dated or ends at a date: records, keys, tokens. Everything that measures a time takes `now` from its loop."""

from __future__ import annotations

import time


def wall_clock() -> float:
    """Give the seconds since the epoch."""
    return time.time()  # noqa: TID251  the one place that reads it; everybody else is given this function, or a `now`
