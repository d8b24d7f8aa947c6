"""The questions that group rows, declared by what is told of each group.

Each measure stands here twice: in SQL, and as what a plain reader of record files computes out of rows. So these questions are answered
without a store, too.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import ceil
from typing import Final

import msgspec

from tidegate.analytics.asking import Value
from tidegate.analytics.rows import Row
from tidegate.analytics.scope import Plan, Scope, Section
from tidegate.domain.money import MICRO


class Measure(msgspec.Struct, frozen=True):
    """One figure of a group: in SQL, and out of rows. `needs` are the columns that it reads."""

    name: str
    sql: str
    take: Callable[[Sequence[Row]], Value]
    needs: tuple[str, ...] = ()


class Grouping(msgspec.Struct, frozen=True, kw_only=True):
    """A question that groups the rows of a table. The first name of `by` is what it is grouped by unless told otherwise."""

    by: Mapping[str, tuple[str, ...]]
    measures: tuple[Measure, ...]
    order: str
    table: str = "requests"
    condition: str = ""
    keeps: Callable[[Row], bool] = lambda _: True
    """The same condition, for rows."""

    def columns(self, by: str) -> tuple[str, ...]:
        return self.by[by or next(iter(self.by))]

    def plan(self, scope: Scope, title: str) -> Plan:
        keys = ", ".join(self.columns(scope.by))
        measures = ", ".join(f"{measure.sql} AS {measure.name}" for measure in self.measures)
        where, parameters = scope.where(*([self.condition] if self.condition else []), filters=self.table == "requests")
        sql = (
            f"SELECT {keys}, {measures} FROM {self.table} WHERE {where} GROUP BY {keys} "  # noqa: S608  all of it our own words
            f"ORDER BY {self.order} DESC, {keys} LIMIT {{top:UInt32}}"
        )
        answer = yield scope.request(sql, {**parameters, "top": scope.limit})
        return (Section(title, answer),)


def _total(name: str, column: str, *, per: int = 1) -> Measure:
    sql = f"sum({column})" if per == 1 else f"sum({column}) / {per}"
    return Measure(name, sql, lambda rows: _sum(rows, column) if per == 1 else _sum(rows, column) / per, (column,))


def _share(name: str, column: str, *values: str | int, starts: bool = False) -> Measure:
    """Give the share of rows whose column is one of some values, or (`starts`) starts like one."""
    listed = ", ".join(f"'{value}'" for value in values)
    test = " OR ".join(f"startsWith({column}, '{value}')" for value in values) if starts else f"{column} IN ({listed})"
    prefixes = tuple(str(value) for value in values)

    def holds(row: Row) -> bool:
        value = row.get(column, "")
        return str(value).startswith(prefixes) if starts else value in values

    return Measure(name, f"countIf({test}) / count()", lambda rows: sum(map(holds, rows)) / len(rows), (column,))


def _quantile(name: str, column: str, level: float) -> Measure:
    """Give a quantile, to about half a per cent in SQL; null where there is no figure."""
    sql = f"if(isNaN(quantileBFloat16({level})({column}) AS q_{name}), NULL, q_{name})"

    def take(rows: Sequence[Row]) -> Value:
        values = sorted(value for row in rows if isinstance(value := row.get(column), float))
        return values[min(len(values) - 1, ceil(level * len(values)) - 1)] if values else None

    return Measure(name, sql, take, (column,))


def _ratio(name: str, part: str, whole: str) -> Measure:
    sql = f"if(sum({whole}) = 0, NULL, sum({part}) / sum({whole}))"
    return Measure(name, sql, lambda rows: _sum(rows, part) / total if (total := _sum(rows, whole)) else None, (part, whole))


def _first(name: str, expression: str, column: str, choose: Callable[[Sequence[str]], str]) -> Measure:
    return Measure(name, expression, lambda rows: choose([str(row.get(column, "")) for row in rows]), (column,))


def _sum(rows: Sequence[Row], column: str) -> int:
    return sum(value for row in rows if isinstance(value := row.get(column), int))


def _single(*names: str) -> dict[str, tuple[str, ...]]:
    return {name: (name,) for name in names}


_COUNT: Final = Measure("requests", "count()", len)
_COST: Final = _total("cost", "cost_micro", per=MICRO)
_FAILED: Final = _share("failed_ratio", "outcome", "failed_", "model_error", starts=True)
GROUPINGS: Final = {
    "top-users": (
        "Who used most: requests, tokens and cost by user.",
        Grouping(
            by=_single("user", "tenant", "key_id", "feature"),
            measures=(_COUNT, _total("prompt_tokens_sum", "prompt_tokens"), _total("completion_tokens_sum", "completion_tokens"), _COST),
            order="cost DESC, requests",
        ),
    ),
    "cost": (
        "What it cost, in the price list's currency, by tenant, feature or model.",
        Grouping(
            by=_single("tenant", "feature", "model", "route", "upstream", "user", "price_version"),
            measures=(
                _COUNT,
                _COST,
                _total("prompt_tokens_sum", "prompt_tokens"),
                _total("cached_tokens_sum", "cached_tokens"),
                _total("completion_tokens_sum", "completion_tokens"),
            ),
            order="cost",
        ),
    ),
    "content-filter": (
        "Share of answers that the provider withheld, by feature.",
        Grouping(
            by=_single("feature", "tenant", "model", "route", "upstream"),
            measures=(_share("content_filter_ratio", "outcome", "content_filter"), _COUNT),
            order="content_filter_ratio",
        ),
    ),
    "cache": (
        "Share of prompt tokens that upstreams had in their cache, and of requests that the gateway's own cache answered, by route.",
        Grouping(
            by=_single("route", "feature", "tenant", "model", "upstream", "replica"),
            measures=(
                _COUNT,
                _total("prompt_tokens_sum", "prompt_tokens"),
                _total("cached_tokens_sum", "cached_tokens"),
                _ratio("cached_ratio", "cached_tokens", "prompt_tokens"),
                _share("own_cache_ratio", "outcome", "served_from_cache"),
            ),
            order="prompt_tokens_sum",
        ),
    ),
    "replicas": (
        "Replicas compared: attempts, failures, first output, time in the queue, duration.",
        Grouping(
            table="attempts",
            by=_single("replica", "upstream", "model"),
            measures=(
                Measure("attempt_count", "count()", len),
                Measure(
                    "failed_ratio",
                    "countIf(result NOT IN ('ok', 'cancelled')) / count()",
                    lambda rows: sum(row.get("result") not in {"ok", "cancelled"} for row in rows) / len(rows),
                    ("result",),
                ),
                _quantile("first_token_p50_s", "first_token_s", 0.5),
                _quantile("first_token_p99_s", "first_token_s", 0.99),
                _quantile("queue_p99_s", "queue_s", 0.99),
                _quantile("duration_p50_s", "duration_s", 0.5),
                _quantile("duration_p99_s", "duration_s", 0.99),
            ),
            order="attempt_count",
        ),
    ),
    "errors": (
        "What failed or was refused, by outcome, code and cause.",
        Grouping(
            by={"cause": ("outcome", "error_code", "cause")}
            | {name: (name, "outcome") for name in ("replica", "upstream", "model", "route", "tenant", "feature", "user")},
            measures=(
                _COUNT,
                _first("latest", "max(toString(started_at))", "started_at", max),
                _first("example", "anyLast(request_id)", "request_id", lambda ids: ids[-1]),
            ),
            order="requests",
            condition="(startsWith(outcome, 'failed_') OR startsWith(outcome, 'rejected_') OR outcome = 'model_error')",
            keeps=lambda row: str(row.get("outcome", "")).startswith(("failed_", "rejected_", "model_error")),
        ),
    ),
}
