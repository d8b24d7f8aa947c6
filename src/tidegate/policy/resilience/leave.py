"""What becomes of a call whose client left: ended at once unless its upstream has a policy that keeps it."""

from __future__ import annotations

import msgspec


class LeavePolicy(msgspec.Struct, frozen=True, gc=False):
    """Keep the call so that its usage is known, for providers that bill the rest anyway."""

    keep_for_s: float | None
    """Longest time after the client left; None: until it ends by itself, or by its own clocks."""
