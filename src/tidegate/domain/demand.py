"""What one request asks of its limits."""

from __future__ import annotations

import msgspec


class Demand(msgspec.Struct, frozen=True, gc=False):
    """What one request needs beyond its place and itself, or what it has used."""

    input_tokens: int = 0
    output_tokens: int = 0
    cost_micro: int = 0
    """Millionths of the price book's currency."""

    @property
    def tokens(self) -> int:
        return self.input_tokens + self.output_tokens
