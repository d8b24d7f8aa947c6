"""How spans get to the collector, in figures: what the recorder process says of it, and what the node shows."""

from __future__ import annotations

from typing import Final

import msgspec

SPANS: Final = "spans"
"""The kind of frame that asks the recorder process for them."""


class SpanStatistics(msgspec.Struct, frozen=True):
    """Counts are since the start of the process, but for `lost_bytes`."""

    trouble: str = ""
    """Why nothing is taken; empty while all is well."""
    sent: int = 0
    """Spans that the collector took."""
    refused: int = 0
    """Spans that it will never take; they are not sent again."""
    kept: int = 0
    """Requests that were sent as spans, or are about to be."""
    passed_over: int = 0
    """Requests that are not kept."""
    unreadable: int = 0
    backlog_bytes: int = 0
    lost_bytes: int = 0
    """Of files that were deleted before they were read."""
