"""What a run must not fall behind: a baseline in a file, and how much worse each figure may be.

A figure has regressed when it is worse by more than its tolerance *and* by more than noise: a tolerance alone cries wolf on short runs, and
noise alone finds changes that nobody minds. What the baseline has and the run has not (usage no longer reported, say) is a regression too.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from fractions import Fraction
from typing import Final

import msgspec

from tidegate import __version__
from tidegate.bench.compare import HEADLINES, Change, Likeness, Measured, Row, likeness, measured, obstacles, row
from tidegate.bench.measures import Kind, find
from tidegate.bench.run_report import Report
from tidegate.errors import ConfigurationError

VERSION: Final = 1
TOLERANCES: Final[dict[str, float]] = {
    "success": 0.002,
    "outcome.semantic": 0.002,
    "goodput": 0.05,
    "tokens_out": 0.05,
    "ttft.p50": 0.10,
    "ttft.p99": 0.20,
    "itl.p50": 0.10,
    "itl.p99": 0.20,
    "tpot.mean": 0.10,
    "e2e.p50": 0.10,
    "e2e.p99": 0.20,
    "cost.mean": 0.05,
}
"""What is watched unless told otherwise. Of ratios the absolute difference (0.002 is 0.2 points), of others the share of the baseline.

Tails are wider than middles: the same server gives another p99 each day.
"""
_FORM = re.compile(r"(?P<metric>[A-Za-z0-9_.]{1,64})=(?P<number>[0-9]{1,6}(?:\.[0-9]{1,6})?)%")


class Baseline(msgspec.Struct, frozen=True):
    """What a run was like that others are held to."""

    version: int
    tidegate: str
    began_at: float
    """Of the run, in seconds since the epoch."""
    base_url: str
    """Of the target; only to be shown."""
    model: str
    likeness: Likeness
    figures: dict[str, Measured]


class Held(msgspec.Struct, frozen=True):
    """A figure held to the baseline."""

    row: Row
    tolerance: float
    regressed: bool


class Regressions(msgspec.Struct, frozen=True):
    """What came of it. With `obstacles` nothing was compared."""

    obstacles: tuple[str, ...]
    held: tuple[Held, ...]

    @property
    def regressed(self) -> tuple[Held, ...]:
        return tuple(one for one in self.held if one.regressed)


def baseline_of(report: Report) -> Baseline:
    """Keep of a valid, whole run what later ones are compared with; ConfigurationError of any other."""
    if not report.valid:
        raise ConfigurationError(f"an invalid run is no baseline: {'; '.join(report.invalid)}")
    if report.interrupted_s is not None:
        raise ConfigurationError("an interrupted run is no baseline; let it run to its end")
    paths = tuple(dict.fromkeys((*HEADLINES, *TOLERANCES)))
    return Baseline(
        version=VERSION,
        tidegate=__version__,
        began_at=report.began_at,
        base_url=report.target.base_url,
        model=report.target.model,
        likeness=likeness(report),
        figures=measured(report, paths),
    )


def baseline_json(baseline: Baseline) -> bytes:
    """Write a baseline, indented, with a line break at its end."""
    return msgspec.json.format(msgspec.json.encode(baseline), indent=1) + b"\n"


def read_baseline(text: bytes, source: str) -> Baseline:
    """Read a baseline back; `source` names it in the error."""
    try:
        baseline = msgspec.json.decode(text, type=Baseline)
    except (msgspec.DecodeError, RecursionError) as error:
        raise ConfigurationError(f"{source} is no baseline of `tidegate bench regress`: {error}; keep a fresh one") from error
    if baseline.version != VERSION:
        raise ConfigurationError(f"{source} is a baseline of version {baseline.version}, this Tidegate reads {VERSION}; keep a fresh one")
    return baseline


def parse_tolerance(text: str) -> tuple[str, float]:
    """Read `ttft.p99=15%`: per cent of the baseline, of ratios percentage points."""
    form = _FORM.fullmatch(text.strip())
    if form is None:
        raise ConfigurationError(f'the tolerance "{text}" cannot be read; write it like ttft.p99=15%')
    return find(form["metric"]).path, float(Fraction(form["number"]) / 100)


def regressions(baseline: Baseline, report: Report, tolerances: Mapping[str, float] | None = None) -> Regressions:
    """Hold a run to a baseline; `tolerances` go over those of `TOLERANCES`, and may name further figures."""
    found = list(obstacles(baseline.likeness, likeness(report)))
    if not report.valid:
        found.append(f"the run is invalid: {'; '.join(report.invalid)}")
    if report.interrupted_s is not None:
        found.append("the run was interrupted")
    if found:
        return Regressions(tuple(found), ())
    watched = {**TOLERANCES, **(tolerances or {})}
    now = measured(report, tuple(watched))
    held = [
        _hold(row(find(path), baseline.figures.get(path), now.get(path)), tolerance)
        for path, tolerance in watched.items()
        if path in baseline.figures or path in now
    ]
    return Regressions((), tuple(held))


def _hold(compared: Row, tolerance: float) -> Held:
    if compared.before is None:
        return Held(compared, tolerance, regressed=False)
    if compared.after is None:
        return Held(compared, tolerance, regressed=True)
    allowed = tolerance if compared.kind is Kind.RATIO else tolerance * abs(compared.before)
    change = abs(compared.after - compared.before)
    return Held(compared, tolerance, regressed=compared.change is Change.WORSE and change > allowed)
