"""What a run must keep: `ttft.p99<500ms`, `success>=99.9%`, `support_chat:e2e.p95<=3s`, `valid`.

    assertion = "valid" | [group ":"] metric operator number [unit]
    operator  = "<" | "<=" | ">" | ">=" | "=="

Times have a unit (s, ms, us), since 500 of what is the question; ratios are numbers up to 1 or per cent; rates may say /s. A figure that
was not measured keeps nothing: no news is not good news.
"""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable, Collection
from fractions import Fraction
from typing import Final, assert_never

import msgspec

from tidegate.bench.measures import Kind, Measure, find, group_of
from tidegate.bench.run_report import Report
from tidegate.config.problem import did_you_mean
from tidegate.errors import ConfigurationError

_FORM = re.compile(
    r"(?:(?P<group>[^<>=:]{1,100}):)?\s*(?P<metric>[A-Za-z0-9_.]{1,64})\s*(?P<operator><=|>=|==|<|>)"
    r"\s*(?P<number>[+-]?[0-9]{1,12}(?:\.[0-9]{1,12})?)\s*(?P<unit>[^\s0-9]{0,4})"
)
_ONE: Final = Fraction(1)
_MILLIONTH: Final = Fraction(1, 1_000_000)
_VALID: Final = frozenset({"valid", "validity"})
_OPERATORS: Final[dict[str, Callable[[float, float], bool]]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "==": lambda value, limit: math.isclose(value, limit, rel_tol=1e-9),
}
_UNITS: Final[dict[Kind, dict[str, Fraction]]] = {
    Kind.TIME: {"s": _ONE, "ms": Fraction(1, 1000), "us": _MILLIONTH, "µs": _MILLIONTH, "μs": _MILLIONTH},
    Kind.RATIO: {"%": Fraction(1, 100), "": _ONE},
    Kind.PER_SECOND: {"/s": _ONE, "": _ONE},
    Kind.MONEY: {"": _ONE},
    Kind.COUNT: {"": _ONE},
}
"""Fractions, so that 99.9 % is the same number as 999 of 1000."""


class Assertion(msgspec.Struct, frozen=True):
    """One, parsed. Without a measure it is that the run be valid."""

    text: str
    measure: Measure | None = None
    group: str | None = None
    operator: str = "=="
    limit: float = 0.0


class Verdict(msgspec.Struct, frozen=True):
    """What became of one."""

    assertion: str
    holds: bool
    explanation: str


def parse_assertion(text: str, *, groups: Collection[str] | None = None) -> Assertion:
    """Read an assertion; `groups` are the scenarios and stages that there will be, where they are known.

    ConfigurationError says what is wrong, with the nearest name.
    """
    stripped = text.strip()
    if stripped in _VALID:
        return Assertion(stripped)
    form = _FORM.fullmatch(stripped)
    if form is None:
        raise ConfigurationError(f'the assertion "{text}" cannot be read; write it like ttft.p99<500ms, success>=99.9% or valid')
    measure = find(form["metric"])
    group = form["group"]
    if group is not None and groups is not None and group not in groups:
        hint = did_you_mean(group, groups) or f"there are {', '.join(sorted(groups))}"
        raise ConfigurationError(f'the assertion "{text}" is about "{group}", and no scenario or stage is called so; {hint}')
    units = _UNITS[measure.kind]
    unit = form["unit"]
    if unit not in units:
        allowed = " or ".join(f'"{each}"' if each else "no unit" for each in units if each != "μs")
        raise ConfigurationError(f'the assertion "{text}" has {_named(unit)}, but {measure.path} counts in {allowed}')
    return Assertion(stripped, measure, group, form["operator"], float(Fraction(form["number"]) * units[unit]))


def judge_assertion(assertion: Assertion, report: Report) -> Verdict:
    """Hold a report to an assertion, and say what was found."""
    measure = assertion.measure
    if measure is None:
        found = "the run is valid" if report.valid else f"the run is invalid: {'; '.join(report.invalid)}"
        return Verdict(assertion.text, report.valid, found)
    group = group_of(report, assertion.group)
    if group is None:
        return Verdict(assertion.text, holds=False, explanation=f'no scenario or stage is called "{assertion.group}"')
    value = measure.of(group)
    if value is None:
        return Verdict(assertion.text, holds=False, explanation=f"{measure.path} was not measured: nothing in this run shows it")
    holds = _OPERATORS[assertion.operator](value, assertion.limit)
    return Verdict(assertion.text, holds, f"{measure.path} is {figure_text(value, measure.kind)}")


def figure_text(value: float, kind: Kind) -> str:
    """Write a figure for people, in the unit that its kind is asserted in."""
    match kind:
        case Kind.TIME:
            return f"{value:.3f} s" if abs(value) >= 1.0 else f"{1000 * value:.3g} ms"
        case Kind.RATIO:
            return f"{100 * value:.4g} %"
        case Kind.PER_SECOND:
            return f"{value:.5g}/s"
        case Kind.MONEY:
            return f"{value:.6g}"
        case Kind.COUNT:
            return f"{value:.0f}"
        case _ as never:
            assert_never(never)


def _named(unit: str) -> str:
    return f'the unit "{unit}"' if unit else "no unit"
