"""What the settings of prices stand for: exact amounts, hours of the day, and the rates of every tier."""

from __future__ import annotations

import re
from decimal import Decimal

from tidegate.config.schema_prices import ModelPriceSection

DAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
RATES = ("input", "output", "cached", "cache_write", "reasoning")
_WHOLE = {"cached": "input", "cache_write": "input", "reasoning": "output"}
"""Tokens that are a part of others, and cost as much as those where they have no rate of their own."""
_HOURS = re.compile(r"([01]\d|2[0-3]):([0-5]\d)-(24:00|([01]\d|2[0-3]):([0-5]\d))")
DECIMALS = 6


def hours_of(text: str) -> tuple[int, int] | None:
    """Read `16:30-00:30` as minutes from midnight; None when it is nothing of the kind."""
    found = _HOURS.fullmatch(text)
    if found is None:
        return None
    begin, end = (int(hour) * 60 + int(minute) for hour, minute in (part.split(":") for part in text.split("-")))
    return begin, end


def rates_of(section: ModelPriceSection) -> list[dict[str, float | None]]:
    """Give the rates of each tier, the base first. What a tier leaves out is as below it.

    None: no tier names it, so that these tokens cost what the whole does that they are a part of.
    """
    rows: list[dict[str, float | None]] = [{name: getattr(section, name) for name in RATES}]
    for tier in section.tiers:
        given = {name: getattr(tier, name) for name in RATES}
        rows.append({name: rows[-1][name] if rate is None else rate for name, rate in given.items()})
    for name, whole in _WHOLE.items():
        if any(row[name] is not None for row in rows):
            for row in rows:
                row[name] = row[whole] if row[name] is None else row[name]
    return rows


def micro_of(amount: float) -> int | None:
    """Give an amount in millionths, exactly as it was written; None when it has more decimals than that."""
    scaled = Decimal(repr(amount)).scaleb(DECIMALS)
    return int(scaled) if scaled == scaled.to_integral_value() else None
