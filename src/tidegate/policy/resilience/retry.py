"""Whether a failed attempt is followed by another, and how long to wait before it.

Another replica is tried at once; the same one only after a pause with full jitter, so that callers who failed together
do not return together.
"""

from __future__ import annotations

from random import Random

import msgspec

from tidegate.domain.upstream import FailureScope, UpstreamFailure


class RetryPolicy(msgspec.Struct, frozen=True):
    """Bounds of a request's attempts. `tries_per_replica` counts the first one."""

    max_attempts: int = 4
    tries_per_replica: int = 2
    base_delay_s: float = 0.1
    max_delay_s: float = 2.0
    max_retry_after_s: float = 2.0
    """A 429 whose wait is at most this is waited for, once per request, when there is no other replica or target."""

    def may_retry(self, failure: UpstreamFailure, attempt: int) -> bool:
        """Tell whether any further attempt makes sense after `attempt` (from 1) failed so.

        A refusal of our key or a missing model is about one upstream: another may do. A refusal of the request is final.
        """
        return attempt < self.max_attempts and failure.scope is not FailureScope.REQUEST and not failure.content_filter

    def may_repeat(self, failure: UpstreamFailure, tries: int) -> bool:
        """Tell whether the same replica may be tried again after `tries` there."""
        return failure.retryable and not failure.rate_limited and failure.clock is None and tries < self.tries_per_replica

    def delay_s(self, attempt: int, rng: Random) -> float:
        """Pause before the same replica is tried again after `attempt`: uniform in [0, base * 2^(attempt-1)], capped."""
        return rng.uniform(0.0, min(self.max_delay_s, self.base_delay_s * 2.0 ** (attempt - 1)))
