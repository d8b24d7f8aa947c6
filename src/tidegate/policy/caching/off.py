"""No answer is kept: every look-up is a miss."""

from __future__ import annotations

from tidegate.domain.request import ParsedRequest


def look_up(request: ParsedRequest) -> bytes | None:  # noqa: ARG001  the signature every caching variant shares
    """Give the stored answer, or None for a miss."""
    return None
