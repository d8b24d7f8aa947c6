"""The console's own questions to the records, in SQL, and how answers become JSON.

Names of columns come from fixed lists; whatever a person typed goes as a parameter.
"""

# ruff: noqa: S608  names of columns are ours; what people type goes as parameters
from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from tidegate.admin.console.flow import REFUSED_FOR_US
from tidegate.analytics.asking import Parameter, QueryAnswer, QueryRequest, Value
from tidegate.errors import InvalidParameter

GROUPS: Final = {
    "tenant": "tenant",
    "feature": "feature",
    "model": "model",
    "user": "user",
    "key": "key_id",
    "tier": "tier",
    "route": "route",
    "upstream": "upstream",
    "replica": "replica",
    "outcome": "outcome",
    "color": "color",
}
FILTERS: Final = ("tenant", "feature", "model", "user", "key", "route", "upstream", "replica", "outcome", "color")
LONGEST_S: Final = 31 * 86_400
MOST_REQUESTS: Final = 500
MOST_GROUPS: Final = 100
DRAWN: Final = 6
"""Groups with a line of their own in the chart."""
POINTS: Final = 60
MOST_SAMPLES: Final = 2_000
AROUND_S: Final = 10.0
"""Samples are shown from this long before a request until this long after it."""
DEADLINE_S: Final = 8.0

_UNITS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86_400}
_SPAN: Final = re.compile(r"(\d{1,6})([smhd])")
_SINCE: Final = "started_at >= now64(3) - toIntervalSecond({since:UInt32})"
_FAILED: Final = "startsWith(outcome, 'failed_') OR outcome IN (" + ", ".join(f"'{each}'" for each in REFUSED_FOR_US) + ")"
_REFUSED: Final = f"startsWith(outcome, 'rejected_') AND NOT ({_FAILED})"
_SERVED: Final = f"NOT (startsWith(outcome, 'rejected_') OR {_FAILED})"
_SUMS: Final = (
    f"count() AS requests, countIf({_FAILED}) AS errors, countIf({_REFUSED}) AS refused, countIf({_SERVED}) AS served, "
    "sum(prompt_tokens) AS tokens_in, sum(cached_tokens) AS tokens_cached, sum(completion_tokens) AS tokens_out, "
    "sum(cost_micro) AS cost_micro, "
    + ", ".join(
        f"if(served > 0, quantileIf({share})({column}_s, {_SERVED}), NULL) AS {column}_{name}_s"
        for column in ("duration", "ttft")
        for share, name in ((0.5, "p50"), (0.95, "p95"))
    )
)
_LISTED: Final = (
    "request_id, started_at, operation, outcome, status, error_code, duration_s, ttft_s, tpot_s, queue_s, prefill_s, decode_s, gateway_s, "
    "tenant, user, key_id, feature, model, route, upstream, upstream_model, replica, stream, prompt_tokens, cached_tokens, "
    "completion_tokens, cost_micro, attempts, degraded, rule, trace_id"
)


def span_s(text: str, *, default: str = "1h") -> int:
    """Read a span like `15m`, `1h` or `7d`."""
    match = _SPAN.fullmatch(text or default)
    found = int(match[1]) * _UNITS[match[2]] if match else 0
    if not 1 <= found <= LONGEST_S:
        raise InvalidParameter(f"`since` is a span like 15m, 1h or 7d, up to 31d; not {text[:20]!r}.", param="since")
    return found


def traffic(by: str, since_s: int, wanted: Mapping[str, str]) -> QueryRequest:
    """Sum requests, tokens and money of each group, the group with the most tokens first. Latencies are those of served requests."""
    conditions, parameters = _only(since_s, wanted)
    sql = (
        f"SELECT {_column(by)} AS name, {_SUMS} FROM requests WHERE {conditions} GROUP BY name "
        f"ORDER BY tokens_in + tokens_out DESC, requests DESC, name LIMIT {MOST_GROUPS}"
    )
    return QueryRequest(sql, parameters, max_rows=MOST_GROUPS, deadline_s=DEADLINE_S)


def whole_traffic(since_s: int, wanted: Mapping[str, str]) -> QueryRequest:
    """Sum over all groups, those that are not listed too."""
    conditions, parameters = _only(since_s, wanted)
    return QueryRequest(f"SELECT {_SUMS} FROM requests WHERE {conditions}", parameters, max_rows=1, deadline_s=DEADLINE_S)


def traffic_over_time(by: str, since_s: int, wanted: Mapping[str, str]) -> QueryRequest:
    """Give the tokens a second of the groups with the most, and of all others together (`is_drawn` is 0), by steps of time."""
    column = _column(by)
    conditions, parameters = _only(since_s, wanted)
    step = max(1, since_s // POINTS)
    lasted = f"least({step}, greatest(1, toUnixTimestamp(now()) - at))"  # of the step that is running, what has passed
    sql = (
        f"SELECT intDiv(toUnixTimestamp(started_at), {step}) * {step} AS at, {column} IN "
        f"(SELECT {column} FROM requests WHERE {conditions} GROUP BY {column} ORDER BY sum(prompt_tokens) + sum(completion_tokens) DESC "
        f"LIMIT {DRAWN}) AS is_drawn, if(is_drawn, toString({column}), '') AS name, "
        f"(sum(prompt_tokens) + sum(completion_tokens)) / {lasted} AS tokens_per_s FROM requests WHERE {conditions} "
        "GROUP BY at, is_drawn, name ORDER BY at"
    )
    return QueryRequest(sql, parameters, max_rows=(POINTS + 2) * (DRAWN + 1), deadline_s=DEADLINE_S)


def latest(since_s: int, wanted: Mapping[str, str], *, slower_than_s: float, limit: int) -> QueryRequest:
    """List requests, the latest first. `wanted` are values of `FILTERS` that must be met."""
    conditions, parameters = _only(since_s, wanted)
    limit = min(max(1, limit), MOST_REQUESTS)
    sql = f"SELECT {_LISTED} FROM requests WHERE {conditions} AND duration_s >= {{slower:Float64}} ORDER BY started_at DESC LIMIT {limit}"
    return QueryRequest(sql, {**parameters, "slower": slower_than_s}, max_rows=limit, deadline_s=DEADLINE_S)


def one_request(request_id: str, at: float | None) -> QueryRequest:
    """Find a request; `at` (seconds since the epoch) is about when it began, and spares looking through all days."""
    return QueryRequest(f"SELECT * FROM requests WHERE {_about(at)} LIMIT 1", _named(request_id, at), max_rows=1, deadline_s=DEADLINE_S)


def attempts_of(request_id: str, at: float) -> QueryRequest:
    sql = f"SELECT * FROM attempts WHERE {_about(at)} ORDER BY attempt LIMIT 100"
    return QueryRequest(sql, _named(request_id, at), max_rows=100, deadline_s=DEADLINE_S)


def samples_around(at: float, duration_s: float) -> QueryRequest:
    """Give what machines and model servers measured while a request ran; the page shows those of its replicas and of the machine."""
    sql = (
        "SELECT at, replica, source, metric, device, value FROM samples WHERE at BETWEEN toDateTime64({begin:Float64}, 3, 'UTC') "
        f"AND toDateTime64({{end:Float64}}, 3, 'UTC') ORDER BY at LIMIT {MOST_SAMPLES}"
    )
    parameters: dict[str, Parameter] = {"begin": at - AROUND_S, "end": at + duration_s + AROUND_S}
    return QueryRequest(sql, parameters, max_rows=MOST_SAMPLES, deadline_s=DEADLINE_S)


def rows_of(answer: QueryAnswer) -> list[dict[str, Value]]:
    """Give the rows with their columns' names."""
    return [dict(zip(answer.columns, row, strict=True)) for row in answer.rows]


def _column(by: str) -> str:
    if by not in GROUPS:
        raise InvalidParameter(f"`by` is one of {', '.join(GROUPS)}; not {by[:20]!r}.", param="by")
    return GROUPS[by]


def _only(since_s: int, wanted: Mapping[str, str]) -> tuple[str, dict[str, Parameter]]:
    """Give the condition that a span and values of `FILTERS` make, and its parameters."""
    conditions = [_SINCE, *(f"{GROUPS[name]} = {{{name}:String}}" for name in wanted)]
    return " AND ".join(conditions), {"since": since_s, **wanted}


def _about(at: float | None) -> str:
    found = "request_id = {id:String}"
    if at is None:
        return found
    return f"started_at BETWEEN toDateTime64({{at:Float64}} - 1, 3, 'UTC') AND toDateTime64({{at:Float64}} + 1, 3, 'UTC') AND {found}"


def _named(request_id: str, at: float | None) -> dict[str, Parameter]:
    return {"id": request_id} if at is None else {"id": request_id, "at": at}
