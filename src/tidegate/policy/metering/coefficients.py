"""What a request will use in all, before it is sent: input × α + output × β + overhead × γ, with coefficients that are learned.

* α: tokens that the upstream reports of a prompt, for one that we counted. At first 1.0 for plain text, 1.42 for HTML, 2.2 for noisy scans.
* β: tokens that it reports of an answer, for one that was expected (the client's cap, or a usual length). At first 1.05 for a directed
  task, 1.35 for a free one, 1.6 at a temperature of 0.8 or more.
* γ: what is added to both for what is in neither. At first 0.22 for an answer in JSON, 0.15 for tools, 0.08 for a stream; of several, the
  largest. Reported usage has no third figure: what γ stands for is in the two that α and β are learned from, so it fades as they are.

Learned per tenant, route and content type (β also per manner, and with a cap apart from without), as the ratio of what was reported to what
was counted, older requests forgotten. Invariants: the ratio of many equal requests is found, whatever it was taken for before; one request
moves a coefficient by less than a factor of two, however odd it is; memory is bounded; time says only which requests are learned from.
"""

from __future__ import annotations

from collections import OrderedDict
from enum import StrEnum
from typing import Final

import msgspec

from tidegate.domain.features import AnswerWishes, ContentType
from tidegate.domain.units import TenantId
from tidegate.policy.metering.estimate import DEFAULT_COMPLETION_TOKENS

MAX_COEFFICIENTS: Final = 8_192
"""About 2 MB. The one that was not observed for longest goes, and begins again at its default."""
MAX_SOURCES: Final = 4_096
"""Tenants' routes of which it is known how many requests were learned from. The one that was not asked for longest goes."""

_ALPHA: Final = {ContentType.HTML: 1.42, ContentType.SCAN: 2.2}
_HOT: Final = 0.8
_WARM: Final = 0.3
_JSON, _TOOLS, _STREAM = 0.22, 0.15, 0.08

_PRIOR_TOKENS: Final = 2_000.0
"""What a default weighs: two ordinary requests."""
_PRIOR_KEPT: Final = 0.9
"""Of that, at each request."""
_KEPT: Final = 0.995
"""Of what was seen, at each request: the last 200 count."""
_LARGEST_SHARE: Final = 8.0
"""One request weighs at most an eighth of what is known."""
_LARGEST_STEP: Final = 8.0
"""One request shows at most eight times what is believed."""
_SMALLEST: Final = 0.01
_DECIMALS: Final = 6
_FIRST: Final = 32
_FIRST_EVERY_S: Final = 0.5
_EVERY_S: Final = 4.0
"""A ratio then follows a change within minutes. Counting again holds a busy worker for a millisecond or two."""


class Manner(StrEnum):
    """How freely an answer is written, by the temperature that the client asks for."""

    DIRECTED = "directed"
    FREE = "free"
    RANDOM = "random"


_BETA: Final = {Manner.DIRECTED: 1.05, Manner.FREE: 1.35, Manner.RANDOM: 1.6}


class Expected(msgspec.Struct, frozen=True):
    """What one request is made of, as far as its total depends on it; the two figures are before any coefficient."""

    content_type: ContentType
    wishes: AnswerWishes
    input_tokens: int
    cap: int | None
    """The client's, for each choice."""
    choices: int = 1

    @property
    def output_tokens(self) -> int:
        return (DEFAULT_COMPLETION_TOKENS if self.cap is None else self.cap) * self.choices


class TokenEstimate(msgspec.Struct, frozen=True):
    """The arithmetic of one estimate; tokens are whole, and their sum is the total."""

    input_tokens: int
    output_tokens: int
    alpha: float
    beta: float
    gamma: float
    learned_from: int
    """Requests that α was learned from; 0: all three are defaults."""

    @property
    def weighted_input(self) -> int:
        return round(self.input_tokens * self.alpha)

    @property
    def weighted_output(self) -> int:
        return round(self.output_tokens * self.beta)

    @property
    def overhead_tokens(self) -> int:
        """What γ applies to."""
        return self.weighted_input + self.weighted_output

    @property
    def weighted_overhead(self) -> int:
        return round(self.overhead_tokens * self.gamma)

    @property
    def total_tokens(self) -> int:
        return self.overhead_tokens + self.weighted_overhead


def manner_of(wishes: AnswerWishes) -> Manner:
    if wishes.temperature is None or wishes.temperature <= _WARM:
        return Manner.DIRECTED
    return Manner.RANDOM if wishes.temperature >= _HOT else Manner.FREE


def default_gamma(wishes: AnswerWishes) -> float:
    if wishes.json:
        return _JSON
    if wishes.tools:
        return _TOOLS
    return _STREAM if wishes.stream else 0.0


class Ratio:
    """What is reported for each token that was expected, learned from requests of which the last weigh most."""

    __slots__ = ("_default", "_expected", "_prior", "_reported", "observed")

    def __init__(self, default: float) -> None:
        self._default = default
        self._prior = _PRIOR_TOKENS
        """Tokens of which nothing was seen, and the default is believed."""
        self._expected = 0.0
        self._reported = 0.0
        self.observed = 0

    def __repr__(self) -> str:
        return f"Ratio({self.value:.3f}, observed={self.observed})"

    @property
    def value(self) -> float:
        return (self._reported + self._default * self._prior) / (self._expected + self._prior)

    @property
    def default_share(self) -> float:
        """How much of the value is still the default, in 0..1."""
        return self._prior / (self._expected + self._prior)

    def observe(self, expected: int, reported: int) -> None:
        """Learn from one request; one of which nothing was expected teaches nothing."""
        if expected <= 0:
            return
        shown = min(reported / expected, _LARGEST_STEP * max(self.value, _SMALLEST))
        weight = min(float(expected), (self._expected + self._prior) / _LARGEST_SHARE)
        self._expected = self._expected * _KEPT + weight
        self._reported = self._reported * _KEPT + weight * shown
        self._prior *= _PRIOR_KEPT
        self.observed += 1


_Key = tuple[str, ...]


class _Source:
    """When to learn from a tenant's route again."""

    __slots__ = ("due_at", "learned")

    def __init__(self, now: float) -> None:
        self.due_at = now
        self.learned = 0


class Coefficients:
    """All coefficients of one process."""

    def __init__(self) -> None:
        self._ratios: OrderedDict[_Key, Ratio] = OrderedDict()
        self._sources: OrderedDict[tuple[str, str], _Source] = OrderedDict()

    def __repr__(self) -> str:
        return f"Coefficients({len(self._ratios)} ratios, {len(self._sources)} sources)"

    def __len__(self) -> int:
        return len(self._ratios)

    def is_due(self, tenant: TenantId, route: str, *, now: float) -> bool:
        """Tell whether to learn from a finished request: the first of a tenant and route in quick succession, then one every few."""
        key = (tenant, route)
        source = self._sources.get(key)
        if source is None:
            if len(self._sources) >= MAX_SOURCES:
                self._sources.popitem(last=False)
            source = self._sources[key] = _Source(now)
        else:
            self._sources.move_to_end(key)
        if now < source.due_at:
            return False
        source.learned += 1
        source.due_at = now + (_FIRST_EVERY_S if source.learned < _FIRST else _EVERY_S)
        return True

    def estimate(self, tenant: TenantId, route: str, expected: Expected) -> TokenEstimate:
        """Say what a request will use."""
        alpha_key, beta_key = _keys(tenant, route, expected)
        alpha, beta = self._ratios.get(alpha_key), self._ratios.get(beta_key)
        return TokenEstimate(
            input_tokens=expected.input_tokens,
            output_tokens=expected.output_tokens,
            alpha=_shown(alpha.value if alpha is not None else _default_alpha(expected)),
            beta=_shown(beta.value if beta is not None else _BETA[manner_of(expected.wishes)]),
            gamma=_shown(default_gamma(expected.wishes) * (alpha.default_share if alpha is not None else 1.0)),
            learned_from=alpha.observed if alpha is not None else 0,
        )

    def observe(self, tenant: TenantId, route: str, expected: Expected, *, prompt_tokens: int, completion_tokens: int) -> None:
        """Learn from a request whose usage the upstream has reported."""
        alpha_key, beta_key = _keys(tenant, route, expected)
        self._ratio(alpha_key, _default_alpha(expected)).observe(expected.input_tokens, prompt_tokens)
        self._ratio(beta_key, _BETA[manner_of(expected.wishes)]).observe(expected.output_tokens, completion_tokens)

    def _ratio(self, key: _Key, default: float) -> Ratio:
        ratio = self._ratios.get(key)
        if ratio is None:
            if len(self._ratios) >= MAX_COEFFICIENTS:
                self._ratios.popitem(last=False)
            ratio = self._ratios[key] = Ratio(default)
        else:
            self._ratios.move_to_end(key)
        return ratio


def _shown(coefficient: float) -> float:
    """Round to what is shown, so that whoever multiplies it himself gets the same."""
    return round(coefficient, _DECIMALS)


def _default_alpha(expected: Expected) -> float:
    return _ALPHA.get(expected.content_type, 1.0)


def _keys(tenant: TenantId, route: str, expected: Expected) -> tuple[_Key, _Key]:
    capped = "" if expected.cap is None else "capped"
    alpha = (tenant, route, expected.content_type)
    return alpha, (*alpha, manner_of(expected.wishes), capped)
