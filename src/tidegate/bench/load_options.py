"""What load was asked for, and whether it makes sense."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path

import msgspec

from tidegate.bench.day_curve import LONGEST_S
from tidegate.bench.plan import Scenario
from tidegate.bench.traces import MAX_REQUESTS, MOST_TOKENS
from tidegate.errors import ConfigurationError

MAX_STEPS = 1_000
"""Each is a stage, which is reported by itself."""
MAX_CONCURRENCY = 65_536
"""As many connections as one address and port can have."""
_LEAST_SHAPE, _MOST_SHAPE = 0.01, 10_000.0  # beyond: one single burst; evenly for all that can be measured
_HIGHEST_RATE, _LEAST_RATE = 1e6, 1e-6


class Load(StrEnum):
    """How requests come."""

    CONSTANT = "constant"
    POISSON = "poisson"
    GAMMA = "gamma"
    RAMP = "ramp"
    STEPS = "steps"
    CONCURRENCY = "concurrency"
    """A closed loop: the next request when one has ended."""
    TRACE = "trace"
    DAY = "day"


class LoadOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What was asked for. Times and rates are those of the run, however much faster it is than the original."""

    load: Load = Load.POISSON
    rate_per_s: float = 10.0
    """The mean. Of a day too: its curve only says how the rate is spread."""
    to_rate_per_s: float | None = None
    """Where a ramp ends."""
    length_s: float | None = None
    """None: the whole trace or day; 60 s of any other load. A trace or day is cut there."""
    burstiness: float = 1.0
    """The shape of gamma: 1 is Poisson, less is burstier."""
    steps: tuple[tuple[float, float], ...] = ()
    """(rate per second, seconds)"""
    concurrency: int = 1
    requests: int | None = None
    """At most so many; the run ends with the last one."""
    trace: Path | None = None
    speedup: float = 1.0
    curve: Path | None = None
    """None: the day of three peaks."""
    compress: float = 1_440.0
    """How much faster than the curve's time the run goes: 1440 plays a day in a minute."""
    mix: tuple[tuple[Scenario, float], ...] = ()
    """With weights. Empty: all built-in scenarios alike."""
    prompt_tokens: tuple[int, int] | None = None
    """Least and most, over what scenario, trace or curve say."""
    completion_tokens: tuple[int, int] | None = None
    seed: int = 0


def check_load(options: LoadOptions) -> None:
    """Refuse what cannot be planned; `ConfigurationError` says what to do."""
    rates = [("rate", options.rate_per_s), *(("rate of a step", rate) for rate, _ in options.steps)]
    for name, rate in rates:
        if not _LEAST_RATE <= rate <= _HIGHEST_RATE:
            raise ConfigurationError(f"the {name} is {rate:g}/s; give one from {_LEAST_RATE:g} to {_HIGHEST_RATE:,.0f}")
    if options.to_rate_per_s is not None and not 0 <= options.to_rate_per_s <= _HIGHEST_RATE:
        raise ConfigurationError(f"the ramp ends at {options.to_rate_per_s:g}/s; give a rate from 0 to {_HIGHEST_RATE:,.0f}")
    lengths = [options.length_s, *(length_s for _, length_s in options.steps)]
    if not all(length_s is None or 0 < length_s <= LONGEST_S for length_s in lengths):
        raise ConfigurationError(f"a length is not above 0, or above {LONGEST_S:,.0f} s (a month); correct it")
    if options.load is Load.STEPS and not 0 < len(options.steps) <= MAX_STEPS:
        raise ConfigurationError(
            f"the load is steps and {len(options.steps)} are given; give from 1 to {MAX_STEPS:,}, each a rate and a length"
        )
    if not _LEAST_SHAPE <= options.burstiness <= _MOST_SHAPE:
        raise ConfigurationError(
            f"the burstiness is {options.burstiness:g}; give one from {_LEAST_SHAPE:g} (bursts) to {_MOST_SHAPE:g} (evenly)"
        )
    if not 1 <= options.concurrency <= MAX_CONCURRENCY:
        raise ConfigurationError(f"{options.concurrency} requests at once are asked for; give from 1 to {MAX_CONCURRENCY:,}")
    if options.requests is not None and not 1 <= options.requests <= MAX_REQUESTS:
        raise ConfigurationError(
            f"{options.requests} requests are asked for; give from 1 to {MAX_REQUESTS:,}, which take half a gigabyte of memory"
        )
    for name, factor in (("speed-up", options.speedup), ("compression", options.compress)):
        if not _LEAST_RATE <= factor <= _HIGHEST_RATE:
            raise ConfigurationError(f"the {name} is {factor:g}; give one from {_LEAST_RATE:g} to {_HIGHEST_RATE:,.0f}")
    _check_mix(options)


def _check_mix(options: LoadOptions) -> None:
    names = [scenario.name for scenario, _ in options.mix]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise ConfigurationError(f'the scenario "{twice}" is in the mix twice; name it once, with the sum of its weights')
    weights = [weight for _, weight in options.mix]
    if options.mix and not (all(0 <= weight <= _HIGHEST_RATE for weight in weights) and any(weights)):
        raise ConfigurationError(f"a weight of the mix is below 0 or above {_HIGHEST_RATE:,.0f}, or all are 0; correct it")
    ranges = [options.prompt_tokens, options.completion_tokens]
    ranges += (tokens for scenario, _ in options.mix for tokens in (scenario.prompt_tokens, scenario.completion_tokens))
    for tokens in ranges:
        if tokens is not None and not 1 <= tokens[0] <= tokens[1] <= MOST_TOKENS:
            raise ConfigurationError(f"{tokens[0]} to {tokens[1]} tokens are asked for; give least and most, from 1 to {MOST_TOKENS:,}")
