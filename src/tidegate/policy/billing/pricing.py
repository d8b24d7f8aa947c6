"""What a call costs: find its price, then count in whole numbers.

* The first entry of the book whose upstream and model match is the price; a model without one costs nothing.
* The input's length picks one tier for the whole call, as DashScope bills ("by the input length of the single request") and OpenRouter's
  `min_prompt_tokens` say; there are no marginal tiers.
* A time window and the batch discount multiply every line. The window is the one that holds at the instant given.
* Each line is rounded once, to the nearest millionth, a half upwards; the cost is the sum of its lines.

Laws, each a property test: more tokens never cost less (tiers do not fall: the configuration refuses others); the sum of the lines is the
cost; what is held by `cost_micro` covers what `settled` makes of the same tokens, whichever of them were cached or thought.
"""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import Final

from tidegate.domain.money import WHOLE_PPM, Charge, Cost, CostLine, Price, PriceBook, PriceTier, TimeWindow, divided
from tidegate.domain.usage import Usage

_PER_RATE: Final = 1_000_000 * WHOLE_PPM * WHOLE_PPM
"""A rate is for a million tokens, and two ratios in millionths multiply it."""
_DAY_S: Final = 86_400
_DAYS_BEFORE_MONDAY: Final = 3
"""1970 began on a Thursday."""
_REMEMBERED: Final = 4096
"""Pairs of upstream and model whose price is known at once. Clients can invent model names, so that it begins anew when it is full."""


class Pricing:
    """Answers what calls cost by one price book. Instants (`at`) are seconds since the epoch."""

    def __init__(self, book: PriceBook | None = None) -> None:
        self.book = PriceBook() if book is None else book
        self.prices_images = any(entry.price.image_micro for entry in self.book.entries)
        """Whether it matters how many pictures a request has."""
        self._found: dict[tuple[str, str], Price | None] = {}

    def __repr__(self) -> str:
        return f"Pricing(version={self.book.version!r}, prices={len(self.book.entries)})"

    def price_of(self, upstream: str, model: str) -> Price | None:
        """Find the price of a model at an upstream."""
        key = (upstream, model)
        try:
            return self._found[key]
        except KeyError:
            pass
        if len(self._found) >= _REMEMBERED:
            self._found.clear()
        matches = (entry.price for entry in self.book.entries if fnmatchcase(upstream, entry.upstream) and fnmatchcase(model, entry.model))
        price = self._found[key] = next(matches, None)
        return price

    def cost_micro(
        self, upstream: str, model: str, *, input_tokens: int, output_tokens: int, at: float, images: int = 0, batch: bool = False
    ) -> int:
        """Give the most that these tokens can cost, to be held before it is known which of them are cached or thought."""
        price = self.price_of(upstream, model)
        if price is None:
            return 0
        tier = tier_of(price, input_tokens)
        scale = _scale(price, at, batch=batch)
        return (
            _dearest(input_tokens, tier.input_rate, (tier.cached_rate, tier.cache_write_rate), scale)
            + _dearest(output_tokens, tier.output_rate, (tier.reasoning_rate,), scale)
            + _piece(images * price.image_micro, scale)
            + _piece(price.request_micro, scale)
        )

    def settled(self, upstream: str, model: str, usage: Usage, *, at: float, images: int = 0, batch: bool = False) -> Cost:
        """Give what a call did cost. What an upstream reports of cached or thought tokens beyond the whole is not believed."""
        price = self.price_of(upstream, model)
        if price is None:
            return Cost()
        tier = tier_of(price, usage.prompt_tokens)
        scale = _scale(price, at, batch=batch)
        plain, cached = _apart(usage.prompt_tokens, usage.cached_tokens, tier.cached_rate)
        plain, written = _apart(plain, usage.cache_write_tokens, tier.cache_write_rate)
        said, thought = _apart(usage.completion_tokens, usage.reasoning_tokens, tier.reasoning_rate)
        lines: list[CostLine] = []
        total = 0
        for charge, quantity, amount in (
            (Charge.INPUT, plain, _tokens(plain, tier.input_rate, scale)),
            (Charge.CACHED, cached, _tokens(cached, tier.cached_rate or 0, scale)),
            (Charge.CACHE_WRITE, written, _tokens(written, tier.cache_write_rate or 0, scale)),
            (Charge.OUTPUT, said, _tokens(said, tier.output_rate, scale)),
            (Charge.REASONING, thought, _tokens(thought, tier.reasoning_rate or 0, scale)),
            (Charge.IMAGE, images, _piece(images * price.image_micro, scale)),
            (Charge.REQUEST, 1, _piece(price.request_micro, scale)),
        ):
            if amount:
                lines.append(CostLine(charge, quantity, amount))
                total += amount
        return Cost(total, self.book.version, tuple(lines))


def tier_of(price: Price, input_tokens: int) -> PriceTier:
    """Pick the one tier that an input of this length is billed by."""
    picked = price.tiers[0]
    for tier in price.tiers:
        if input_tokens > tier.above_tokens:
            picked = tier
    return picked


def holds(window: TimeWindow, at: float) -> bool:
    """Tell whether a window is open at an instant."""
    day, second = divmod(int(at), _DAY_S)
    minute, weekday = second // 60, (day + _DAYS_BEFORE_MONDAY) % 7
    if window.begin_minute < window.end_minute:
        return weekday in window.days and window.begin_minute <= minute < window.end_minute
    if minute >= window.begin_minute:
        return weekday in window.days
    return minute < window.end_minute and (weekday - 1) % 7 in window.days


def _scale(price: Price, at: float, *, batch: bool) -> int:
    """Multiply what applies to every line: two ratios in millionths."""
    factor = WHOLE_PPM
    for window in price.windows:
        if holds(window, at):
            factor = window.factor_ppm
            break
    return factor * (price.batch_ppm if batch else WHOLE_PPM)


def _apart(whole: int, part: int, rate: int | None) -> tuple[int, int]:
    """Take tokens of a class out of the whole, where the class has a rate of its own."""
    if rate is None or not part:
        return whole, 0
    part = min(part, whole)
    return whole - part, part


def _tokens(tokens: int, rate: int, scale: int) -> int:
    return divided(tokens * rate * scale, _PER_RATE) if tokens else 0


def _piece(micro: int, scale: int) -> int:
    return divided(micro * scale, WHOLE_PPM * WHOLE_PPM) if micro else 0


def _dearest(tokens: int, rate: int, others: tuple[int | None, ...], scale: int) -> int:
    """Cost tokens at the highest of the rates that they may fall under; each of the others may round up a line of its own."""
    surplus = 0
    for other in others:
        if other is not None:
            surplus += 1
            rate = max(rate, other)
    return _tokens(tokens, rate, scale) + (surplus if tokens else 0)
