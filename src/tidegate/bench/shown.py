"""How figures are written for people: three digits that count, units chosen by size, a dash where nothing was measured."""

from __future__ import annotations

from typing import Final

NOTHING: Final = "–"
_MICROSECOND: Final = 1e-6
_MILLISECOND: Final = 1e-3
_LONG_S: Final = 600.0
_NEARLY_ALL: Final = 0.99995
_MANY: Final = 1000.0


def time_s(seconds: float | None) -> str:
    """Write a duration that is given in seconds."""
    if seconds is None:
        return NOTHING
    size = abs(seconds)
    if size >= _LONG_S:
        return f"{seconds / 60:.1f} min"
    if size >= 1:
        return f"{_digits(seconds)} s"
    if size >= _MILLISECOND:
        return f"{_digits(seconds / _MILLISECOND)} ms"
    return f"{seconds / _MICROSECOND:.0f} µs"


def per_s(rate: float | None) -> str:
    """Write a rate."""
    return NOTHING if rate is None else f"{_digits(rate)}/s"


def share(ratio: float | None) -> str:
    """Write a ratio as a percentage. What is not everything never reads 100 %."""
    if ratio is None:
        return NOTHING
    return "99.99 %" if _NEARLY_ALL <= ratio < 1 else f"{_digits(100 * ratio)} %"


def change(ratio: float | None) -> str:
    """Write by how much something grew or shrank."""
    return NOTHING if ratio is None else f"{100 * ratio:+.1f} %"


def count(number: int | None) -> str:
    """Write a number of things."""
    return NOTHING if number is None else f"{number:,}"


def money(amount: float | None, currency: str) -> str:
    """Write an amount in whole units of its currency; costs of single requests are small fractions of one."""
    if amount is None:
        return NOTHING
    return f"{amount:,.2f} {currency}".rstrip() if abs(amount) >= 100 else f"{amount:.4g} {currency}".rstrip()  # noqa: PLR2004


def _digits(value: float) -> str:
    """Write three digits that count, and all of a larger number's."""
    size = abs(value)
    if size >= _MANY:
        return f"{value:,.0f}"
    if size >= 100:  # noqa: PLR2004
        return f"{value:.0f}"
    return f"{value:.3g}"
