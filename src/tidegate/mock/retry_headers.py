"""The headers by which servers say when to come back, in each of their dialects."""

from __future__ import annotations

import math
from email.utils import formatdate

from tidegate.mock.script import RetryAfter, RetryDialect

_LIMIT = "60"
"""The limit that is claimed to be used up."""


def retry_headers(when: RetryAfter, wall_s: float) -> tuple[tuple[str, str], ...]:
    """Say it; `wall_s` is the time now, in seconds since 1970."""
    after_s = when.after_s
    seconds = str(math.ceil(after_s))
    exhausted = (("x-ratelimit-limit", _LIMIT), ("x-ratelimit-remaining", "0"))
    match when.dialect:
        case RetryDialect.SECONDS:
            return (("retry-after", seconds),)
        case RetryDialect.FLOAT:
            return (("retry-after", f"{after_s:g}"),)
        case RetryDialect.DATE:
            return (("retry-after", formatdate(math.ceil(wall_s + after_s), usegmt=True)),)
        case RetryDialect.MS:
            return (("retry-after-ms", str(round(after_s * 1e3))),)
        case RetryDialect.BOTH:
            return (("retry-after-ms", str(round(after_s * 1e3))), ("retry-after", seconds))
        case RetryDialect.OPENAI:
            return tuple(
                (f"x-ratelimit-{what}-{unit}", value)
                for unit in ("requests", "tokens")
                for what, value in (("limit", _LIMIT), ("remaining", "0"), ("reset", go_duration(after_s)))
            )
        case RetryDialect.RESET_SECONDS:
            return (*exhausted, ("x-ratelimit-reset", seconds))
        case RetryDialect.RESET_EPOCH:
            return (*exhausted, ("x-ratelimit-reset", str(math.ceil(wall_s + after_s))))
        case RetryDialect.RESET_EPOCH_MS:
            return (*exhausted, ("x-ratelimit-reset", str(round((wall_s + after_s) * 1e3))))
        case RetryDialect.IETF:
            return (("ratelimit-policy", f'"default";q={_LIMIT};w=60'), ("ratelimit", f'"default";r=0;t={seconds}'))
        case RetryDialect.GARBAGE:
            return (("retry-after", "soon"),)
        case RetryDialect.NONE:
            return ()


def go_duration(seconds: float) -> str:
    """Write a duration as Go does: `12ms`, `1.5s`, `6m0s`."""
    if seconds < 1:
        return f"{seconds * 1e3:g}ms"
    minutes, rest = divmod(seconds, 60)
    hours, minutes = divmod(minutes, 60)
    text = f"{rest:g}s"
    if hours or minutes:
        text = f"{minutes:g}m{text}"
    return f"{hours:g}h{text}" if hours else text
