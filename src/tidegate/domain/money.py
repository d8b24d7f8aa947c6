"""Prices and costs: what is charged for what, in whole numbers.

A *rate* is what a million tokens cost, in millionths of the currency: the price list's figure with six decimals and no point, so that
0.4 per million tokens is 400_000. An amount is in the same millionths (`*_micro`). Ratios that a price is multiplied by count in millionths
too (`*_ppm`). With those nothing is ever rounded but a line of a bill.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final

import msgspec

MICRO: Final = 1_000_000
"""Millionths of a whole unit."""
WHOLE_PPM: Final = 1_000_000
"""A ratio of one."""
EVERY_DAY: Final = frozenset(range(7))


class Charge(StrEnum):
    """What a line of a cost is for. Each token is in one line."""

    INPUT = "input"
    """Prompt tokens that no other line has."""
    CACHED = "cached"
    """Prompt tokens read from the provider's cache, where those have a price of their own."""
    CACHE_WRITE = "cache_write"
    """Prompt tokens put into that cache, where those have a price of their own."""
    OUTPUT = "output"
    REASONING = "reasoning"
    """Tokens of hidden thought, where those have a price of their own; otherwise they are output."""
    IMAGE = "image"
    REQUEST = "request"


class PriceTier(msgspec.Struct, frozen=True, gc=False):
    """Rates of calls whose input is longer than `above_tokens`. A rate that is None is the one of all input, or of all output.

    The tiers of a price have the same rates set: a class of tokens that has a line of its own in one has it in all.
    """

    input_rate: int
    output_rate: int
    cached_rate: int | None = None
    cache_write_rate: int | None = None
    reasoning_rate: int | None = None
    above_tokens: int = 0


class TimeWindow(msgspec.Struct, frozen=True):
    """Hours of the week, in UTC, in which everything costs `factor_ppm` of its price.

    Minutes count from midnight; a window whose end is not after its begin ends on the next day. `days` are those on which it begins,
    Monday is 0.
    """

    factor_ppm: int
    begin_minute: int = 0
    end_minute: int = 24 * 60
    days: frozenset[int] = EVERY_DAY


class Price(msgspec.Struct, frozen=True):
    """What one model costs at one upstream."""

    tiers: tuple[PriceTier, ...]
    """By length, the first for the shortest inputs."""
    image_micro: int = 0
    request_micro: int = 0
    windows: tuple[TimeWindow, ...] = ()
    """The first that holds counts."""
    batch_ppm: int = WHOLE_PPM


class PriceEntry(msgspec.Struct, frozen=True):
    """The price of models whose names match a shell-style pattern, at upstreams whose names do."""

    upstream: str
    model: str
    price: Price


class UnbilledColor(msgspec.Struct, frozen=True):
    """Traffic that nobody pays for: of this colour, and of tenants whose name matches."""

    color: str
    tenant: str


class HybridPlan(msgspec.Struct, frozen=True):
    """Terms of tenants who pay no price per token: a free quota each month, and what is used beyond it by the resources it takes."""

    tenant: str
    """Shell-style pattern."""
    free_tokens: int
    memory_hour_micro: int
    """For a gigabyte of GPU memory over an hour."""
    traffic_gb_micro: int
    """For a gigabyte sent and received."""
    memory_bytes_per_token: int
    """What a token holds of the GPU's memory while its call runs (its keys and values)."""


class PriceBook(msgspec.Struct, frozen=True):
    """All prices of a deployment, under one version."""

    version: str = ""
    currency: str = ""
    entries: tuple[PriceEntry, ...] = ()
    """The first that matches counts."""
    hybrid: tuple[HybridPlan, ...] = ()


class CostLine(msgspec.Struct, frozen=True, gc=False):
    """One part of a cost."""

    charge: Charge
    quantity: int
    amount_micro: int


class Cost(msgspec.Struct, frozen=True):
    """What one call costs: the sum of its lines, to the last millionth."""

    amount_micro: int = 0
    version: str = ""
    """Of the price book; empty when the model has no price."""
    lines: tuple[CostLine, ...] = ()


def money_text(amount_micro: int, *, grouped: bool = False) -> str:
    """Write an amount without its currency, exactly, with two to six decimals; `grouped` with commas, for people."""
    whole, rest = divmod(abs(amount_micro), MICRO)
    decimals = f"{rest:06}".rstrip("0")
    return f"{'-' if amount_micro < 0 else ''}{whole:{',' if grouped else ''}}.{decimals:0<2}"


def divided(amount: int, by: int) -> int:
    """Divide what is not negative, and round to the nearest whole number, a half upwards."""
    return (2 * amount + by) // (2 * by)
