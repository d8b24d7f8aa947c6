"""What a client gets when every target of its route has failed: a sentence that asks for patience, or an answer by fixed rules.

An outage of a route begins with its first failed request and ends with its next answered one. From its beginning the holding answer of the
request's business feature is given (level 2); after `hold_for_s` the rules answer (level 3), and what they do not know is handed over to
people. Without a holding answer for the feature, nor one for `default`, the rules answer at once; without rules the holding answer stays.

Invariants: the same calls give the same answers, whatever the clock's zero; an answer is one of the texts prepared at construction, or the
rules'.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import msgspec

from tidegate.ports import RuleBook

DEFAULT_FEATURE = "default"
"""The holding answer of features that have none of their own."""


class HeldAnswer(msgspec.Struct, frozen=True):
    """A sentence and links, as written by the operator. `links` are pairs of title and address."""

    sentence: str
    links: tuple[tuple[str, str], ...] = ()

    @property
    def text(self) -> str:
        """The whole answer: the sentence, an empty line, and the links as a Markdown list in their order."""
        if not self.links:
            return self.sentence
        return "\n".join((self.sentence, "", *(f"- [{title}]({url})" for title, url in self.links)))


class PreparedAnswer(msgspec.Struct, frozen=True):
    """What to say in the model's place; `reason` is one word for headers and records: `holding`, `rules` or `hand_over`."""

    text: str
    level: Literal["L2", "L3"]
    reason: str


class Degradation:
    """All prepared answers of one configuration, and since when its routes have been failing."""

    def __init__(
        self,
        holding: Mapping[str, HeldAnswer],
        hold_for_s: float,
        rules: RuleBook | None,
        hand_over: str,
        *,
        before: Degradation | None = None,
    ) -> None:
        self._holding = {feature: PreparedAnswer(held.text, "L2", "holding") for feature, held in holding.items()}
        self._default = self._holding.get(DEFAULT_FEATURE)
        self._hold_for_s = hold_for_s
        self._rules = rules
        self._handed_over = PreparedAnswer(hand_over, "L3", "hand_over")
        self._failing_since: dict[str, float] = dict(before._failing_since) if before is not None else {}  # noqa: SLF001  the same class
        """Keyed by route patterns, of which a configuration has a fixed number. An outage goes on through a reload."""

    def __repr__(self) -> str:
        return f"Degradation(holding={sorted(self._holding)}, rules={self._rules is not None}, failing={sorted(self._failing_since)})"

    def answer(self, request_text: str, feature: str, route_pattern: str, *, now: float) -> PreparedAnswer | None:
        """Give the answer for a request that no target could answer; None when nothing is prepared for it, so that it gets its error."""
        held = self._holding.get(feature, self._default)
        rules = self._rules
        if rules is None or (held is not None and self._is_held(route_pattern, now)):
            return held
        known = rules.decide(request_text, feature)
        return PreparedAnswer(known, "L3", "rules") if known else self._handed_over

    def route_failed(self, route_pattern: str, *, now: float) -> None:
        """Take note that a request found no target that could answer."""
        self._failing_since.setdefault(route_pattern, now)

    def route_answered(self, route_pattern: str, *, now: float) -> None:  # noqa: ARG002  a fact comes with its time
        """Take note that a model answered: an outage, if there was one, is over."""
        if self._failing_since:
            self._failing_since.pop(route_pattern, None)

    def _is_held(self, route_pattern: str, now: float) -> bool:
        since = self._failing_since.get(route_pattern)
        return since is None or now - since < self._hold_for_s
