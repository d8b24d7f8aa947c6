"""Retries that ask for less: the same again, then a shorter answer, then a smaller model, then the route's other targets.

A route has a ladder only where its operator asks for one: length and temperature are the client's choice, and an answer that was asked
for with less says so. One thing changes at a time: the smaller model and the other targets get what the client asked for.
"""

from __future__ import annotations

from enum import StrEnum

import msgspec

from tidegate.domain.request import BodyChanges
from tidegate.domain.upstream import Target


class Rung(StrEnum):
    """What an attempt was, beside the one before it."""

    FIRST = "first"
    SAME = "same"
    """The same target and request; another replica where there is one."""
    SHORTER = "shorter"
    SMALLER = "smaller"
    NEXT = "next"
    """Another target of the route."""


class Ladder(msgspec.Struct, frozen=True):
    """The steps of one route; a step without a target is left out."""

    output_ratio: float = 0.7
    temperature: float = 0.1
    smaller: Target | None = None
    smaller_precise: Target | None = None
    """For prompts with figures or formulas, which suffer most from coarse numbers."""

    def shorter(self, cap: int | None, changes: BodyChanges | None) -> BodyChanges:
        """Lower the cap, at least to 1, and the temperature; an answer without a cap keeps none. `changes` is what is in force already."""
        if changes is not None and changes.max_completion_tokens is not None:
            cap = changes.max_completion_tokens
        return BodyChanges(
            max_completion_tokens=None if cap is None else max(1, int(cap * self.output_ratio)),
            temperature=self.temperature,
        )

    def smaller_for(self, *, precise: bool) -> Target | None:
        """Choose the smaller model by what the prompt has in it; either serves when the other is not configured."""
        one, other = (self.smaller_precise, self.smaller) if precise else (self.smaller, self.smaller_precise)
        return one or other

    @property
    def asks_precision(self) -> bool:
        """Tell whether the choice depends on the prompt."""
        return self.smaller is not None and self.smaller_precise is not None
