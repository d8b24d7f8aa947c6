"""Send the request as it came. Truncation, injection and parameter rules will stand beside this file, chosen per route."""

from __future__ import annotations

from tidegate.domain.request import ParsedRequest


def shape(request: ParsedRequest) -> ParsedRequest:
    """Give the request that is reserved for and sent."""
    return request
