"""Asks for what `why` needs to say why the 99th percentile rose: how many requests took how long, and a sample of both windows.

The first statement counts durations in narrow bins, which gives the percentiles and the exact size of each stratum in one pass. The second
draws rows: in pieces of time drawn evenly, so that most of a large table need not be read, and of each stratum about as many as wanted.
Which rows are drawn is a matter of hashes, so that the same question has the same answer.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from struct import pack, unpack
from typing import Final

import msgspec

from tidegate.analytics.asking import QueryAnswer, Value
from tidegate.analytics.rows import timestamp
from tidegate.analytics.scope import Plan, Scope, Section
from tidegate.analytics.why import Finding, Stratum, Window, why

DIMENSIONS: Final = {
    "replica": "replica",
    "feature": "feature",
    "tenant": "tenant",
    "tier": "tier",
    "model": "model",
    "route": "route",
    "upstream": "upstream",
    "node": "node",
    "prompt": "multiIf(prompt_tokens < 500, 'below 500', prompt_tokens < 2000, '500 to 2,000', prompt_tokens < 8000, '2,000 to 8,000', "
    "'8,000 and more')",
    "answer": "multiIf(completion_tokens < 100, 'below 100', completion_tokens < 500, '100 to 500', completion_tokens < 2000, "
    "'500 to 2,000', '2,000 and more')",
    "stream": "if(stream, 'yes', 'no')",
    "finish_reason": "finish_reason",
    "attempts": "if(attempts > 1, 'several', 'one')",
    "cached": "multiIf(cached_tokens = 0, 'nothing', cached_tokens * 2 < prompt_tokens, 'less than half', 'half and more')",
    "rule": "rule",
}
"""Traits of a request by which a rise is shared out, and how they are read."""
_EXAMINED: Final = 1_000_000
"""Rows of a sample are looked for among about so many, in pieces of time drawn evenly."""
_DRAWN: Final = (3000, 3000, 4000)
"""Rows wanted of each stratum and window: durations up to the 90th percentile of before, up to the 99th, and above."""
_PIECES: Final = 1000
_BIN: Final = "toUInt16(bitShiftRight(reinterpretAsUInt32(toFloat32(duration_s)), 15))"
"""Durations in bins less than half a per cent wide: of positive floating-point numbers, the first bits are in their order."""
_BINS: Final = 65_536


def why_p99(scope: Scope) -> Plan:
    """Ask why the span has a higher P99 than as long a time before it."""
    length = scope.until - scope.since
    twice = msgspec.structs.replace(scope, since=scope.since - length)
    where, parameters = twice.where("attempts > 0")
    parameters["middle"] = timestamp(scope.since)
    after = "started_at >= {middle:DateTime64(3, 'UTC')}"
    counted = yield scope.request(
        f"SELECT {_BIN} AS bin, countIf(NOT ({after})), countIf({after}) FROM requests WHERE {where} "  # noqa: S608  our own words
        "GROUP BY bin ORDER BY bin",
        parameters,
        max_rows=_BINS,
    )
    bins = [[cell for cell in row if isinstance(cell, int)] for row in counted.rows]
    p90, p99, later_p99 = _bin_of(bins, 1, 0.9), _bin_of(bins, 1, 0.99), _bin_of(bins, 2, 0.99)
    parameters |= {"p90": p90, "p99": p99}
    stratum = f"({_BIN} > {{p90:UInt16}}) + ({_BIN} > {{p99:UInt16}})"
    sizes = {(late, place): 0.0 for late in (False, True) for place in range(3)}
    for number, *counts in bins:
        for late in (False, True):
            sizes[late, (number > p90) + (number > p99)] += counts[late]
    share = min(1.0, _EXAMINED / max(sum(sizes.values()), 1.0))
    chances = {f"c{int(late)}{place}": min(1.0, _DRAWN[place] / (size * share)) if size else 0.0 for (late, place), size in sizes.items()}
    parameters |= chances | {"piece": max(1, round(2 * length * 1000 / _PIECES)), "share": round(share * 1_000_000)}
    traits = ", ".join(f"{sql} AS d{number}" for number, sql in enumerate(DIMENSIONS.values()))
    chance = (
        f"if({after}, multiIf({stratum} = 0, {{c10:Float64}}, {stratum} = 1, {{c11:Float64}}, {{c12:Float64}}), "
        f"multiIf({stratum} = 0, {{c00:Float64}}, {stratum} = 1, {{c01:Float64}}, {{c02:Float64}}))"
    )
    drawn = yield scope.request(
        f"SELECT {after} AS is_after, {stratum} AS stratum, duration_s, {traits} FROM requests "  # noqa: S608  our own words
        "PREWHERE intHash64(intDiv(toUnixTimestamp64Milli(started_at), {piece:UInt64})) % 1000000 < {share:UInt32} "
        f"WHERE {where} AND intHash64(toUnixTimestamp64Milli(started_at) * 1000003 + offset) % 1000000 < 1000000 * {chance}",
        parameters,
        max_rows=4 * sum(_DRAWN),
    )
    before = _window(drawn.rows, sizes, _middle_of(p99), late=False)
    later = _window(drawn.rows, sizes, _middle_of(later_p99), late=True)
    return (_told(why(before, later, tuple(DIMENSIONS))),)


def _bin_of(bins: Sequence[Sequence[int]], column: int, level: float) -> int:
    """Give the bin that a quantile falls into."""
    wanted = level * sum(row[column] for row in bins)
    reached = 0
    for row in bins:
        reached += row[column]
        if reached >= wanted:
            return row[0]
    return 0


def _middle_of(number: int) -> float:
    """Give the duration in the middle of a bin."""
    value: float = unpack("<f", pack("<I", (number << 15) + (1 << 14)))[0]
    return value


def _window(rows: Sequence[Sequence[Value]], sizes: Mapping[tuple[bool, int], float], p99_s: float, *, late: bool) -> Window:
    strata = []
    for place in range(3):
        chosen = [row for row in rows if bool(row[0]) is late and row[1] == place]
        columns = list(zip(*chosen, strict=True)) or [()] * (3 + len(DIMENSIONS))
        traits = [[str(value) for value in column] for column in columns[3:]]
        strata.append(Stratum(sizes.get((late, place), 0.0), [float(each) for each in columns[2]], traits))
    return Window(p99_s, strata)


def _told(finding: Finding) -> Section:
    columns = (
        "group", "rise_ratio", "expected_ratio", "traffic_before_ratio", "traffic_after_ratio", "slow_before_ratio", "slow_after_ratio",
    )  # fmt: skip
    rows = tuple((g.name, g.share, g.expected, g.traffic_before, g.traffic_after, g.slow_before, g.slow_after) for g in finding.groups)
    types = ("String", *("Float64",) * (len(columns) - 1))
    title = f"why P99: {finding.verdict.replace('_', ' ')}, {finding.sureness}"
    return Section(title, QueryAnswer(columns, types, rows), finding.sentence)
