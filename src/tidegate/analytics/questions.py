"""The questions that have names: what each asks of the store, and how its answer is made.

What people say reaches the SQL only as parameters; what it is grouped by is looked up among the names that a question declares.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

import msgspec

from tidegate.analytics.asking import Parameter, QueryAnswer, Value
from tidegate.analytics.groupings import GROUPINGS, Grouping
from tidegate.analytics.rise import why_p99
from tidegate.analytics.rows import instant, timestamp
from tidegate.analytics.samples import MEMORY_BANDWIDTH
from tidegate.analytics.scope import FILTERS, Plan, Scope, Section
from tidegate.errors import InvalidParameter

_LONGEST_S: Final = 600
"""Seconds after the span in which samples are looked for: requests of its end ran on."""
_AROUND_S: Final = 2.0


class Question(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    sentence: str
    plan: Callable[[Scope], Plan]
    by: tuple[str, ...] = ()
    grouping: Grouping | None = None
    """Declared where a plain reader of records can answer, too."""
    filters: tuple[str, ...] = FILTERS
    defaults: Mapping[str, str] = {}
    """Filters that hold unless others are given."""


def asked(name: str, scope: Scope) -> Plan:
    """Give the plan of a question; `InvalidParameter` for what it cannot be asked by."""
    question = BY_NAME[name]
    if scope.by and scope.by not in question.by:
        choices = f"by one of: {', '.join(question.by)}" if question.by else "as a whole only"
        raise InvalidParameter(f'"{name}" is not answered by {scope.by!r}; it is {choices}.', param="by")
    wrong = sorted(set(scope.filters) - set(question.filters))
    if wrong:
        raise InvalidParameter(f'"{name}" cannot be held to one {wrong[0]}. Leave out --{wrong[0]}.', param=wrong[0])
    return question.plan(msgspec.structs.replace(scope, filters={**question.defaults, **scope.filters}))


SLOWEST_COLUMNS: Final = (
    *("request_id", "started_at", "duration_s", "ttft_s", "queue_s", "prefill_s", "decode_s", "outcome", "tenant", "feature", "model"),
    *("replica", "prompt_tokens", "cached_tokens", "completion_tokens", "attempts"),
)


def _slowest(scope: Scope) -> Plan:
    where, parameters = scope.where()
    sql = f"SELECT {', '.join(SLOWEST_COLUMNS)} FROM requests WHERE {where} ORDER BY duration_s DESC LIMIT {{top:UInt32}}"  # noqa: S608
    return (Section("slowest", (yield scope.request(sql, {**parameters, "top": scope.limit}))),)


_INFERENCE: Final = (
    "if(isNull(prefill_s) AND isNull(decode_s), upstream_s - ifNull(queue_s, 0), ifNull(prefill_s, 0) + ifNull(decode_s, 0))"
)
"""As the model server says; else the time in which an attempt ran, without its queue as far as that is known."""


def _slow_while_saturated(scope: Scope) -> Plan:
    where, parameters = scope.where()
    sampled = (
        "SELECT replica, toUnixTimestamp(at) AS second FROM samples WHERE at >= {since:DateTime64(3, 'UTC')} "
        "AND at < {until:DateTime64(3, 'UTC')} + toIntervalSecond({longest:UInt32}) AND metric = {metric:String}"
    )
    sql = f"""
        SELECT count() AS requests, countIf(slow) AS slow_requests,
          countIf(slow AND full.second BETWEEN spent.first AND spent.last) AS slow_while_saturated,
          if(requests = 0, NULL, slow_while_saturated / requests) AS share,
          countIf(slow AND seen.second BETWEEN spent.first AND spent.last) AS slow_with_samples
        FROM (
          SELECT replica, {_INFERENCE} > {{slow:Float64}} AS slow, toUnixTimestamp(started_at) AS first,
            toUnixTimestamp(addMilliseconds(started_at, toInt64(duration_s * 1000))) AS last
          FROM requests WHERE {where}
        ) AS spent
        ASOF LEFT JOIN ({sampled} AND value >= {{saturated:Float64}}) AS full ON spent.replica = full.replica AND full.second >= spent.first
        ASOF LEFT JOIN ({sampled}) AS seen ON spent.replica = seen.replica AND seen.second >= spent.first"""  # noqa: S608  our own words
    figures: dict[str, Parameter] = {
        "slow": scope.slow_s,
        "saturated": scope.saturated_ratio,
        "longest": _LONGEST_S,
        "metric": MEMORY_BANDWIDTH,
    }
    answer = yield scope.request(sql, {**parameters, **figures})
    return (Section("slow while memory bandwidth was saturated", answer, _saturation_sentence(scope, answer)),)


def _saturation_sentence(scope: Scope, answer: QueryAnswer) -> str:
    [(requests, slow, during, share, seen)] = answer.rows
    who = " and ".join(f"{name} {value}" for name, value in scope.filters.items())
    if not isinstance(share, float):
        return f"There were no requests of {who}."
    sentence = (
        f"{share * 100:.2f} % of {requests:,} requests of {who} took more than {scope.slow_s * 1000:g} ms of inference while memory "
        f"bandwidth was at {scope.saturated_ratio * 100:g} % or more ({during:,} of {slow:,} slow ones)."
    )
    return sentence if seen == slow else f"{sentence} There are samples for {seen:,} of the slow ones only, so it may be more."


def _request(scope: Scope) -> Plan:
    """One request with its attempts, and what was sampled while it ran."""
    found = yield scope.request("SELECT * FROM requests WHERE request_id = {id:String} LIMIT 1", {"id": scope.request_id})
    if not found.rows:
        sentence = f"No request {scope.request_id!r} is recorded. It may not have ended, or is older than what is kept."
        raise InvalidParameter(sentence, param="id")
    row = dict(zip(found.columns, found.rows[0], strict=True))
    attempts = yield scope.request(
        "SELECT * EXCEPT (request_id, started_at, source, offset) FROM attempts WHERE started_at = {at:DateTime64(3, 'UTC')} "
        "AND request_id = {id:String} ORDER BY attempt",
        {"id": scope.request_id, "at": str(row["started_at"])},
    )
    began = instant(str(row["started_at"]))
    ended = began + (duration if isinstance(duration := row["duration_s"], float) else 0.0)
    samples = yield scope.request(
        "SELECT replica, metric, device, min(value) AS least, avg(value) AS mean, max(value) AS most, count() AS samples FROM samples "
        "WHERE at >= {since:DateTime64(3, 'UTC')} AND at <= {until:DateTime64(3, 'UTC')} AND (replica = '' OR replica IN (SELECT replica "
        "FROM attempts WHERE started_at = {at:DateTime64(3, 'UTC')} AND request_id = {id:String})) "
        "GROUP BY replica, metric, device ORDER BY replica, metric, device",
        {
            "since": timestamp(began - _AROUND_S),
            "until": timestamp(ended + _AROUND_S),
            "at": str(row["started_at"]),
            "id": scope.request_id,
        },
    )
    known = tuple((name, _shown(value)) for name, value in row.items() if value not in (None, "", 0, {}, False))
    return (
        Section("request", QueryAnswer(("field", "value"), ("String", "String"), known)),
        Section("attempts", attempts),
        Section(f"samples from {_AROUND_S:g} s before to {_AROUND_S:g} s after", samples),
    )


def _shown(value: Value) -> Value:
    return ", ".join(f"{name}={each}" for name, each in value.items()) if isinstance(value, dict) else value


def _grouped(name: str, sentence: str, grouping: Grouping) -> Question:
    filters = FILTERS if grouping.table == "requests" else ()
    return Question(
        name=name,
        sentence=sentence,
        plan=lambda scope: grouping.plan(scope, name),
        by=tuple(grouping.by),
        grouping=grouping,
        filters=filters,
    )


QUESTIONS: Final = (
    Question(
        name="slow-vip-code",
        sentence="Share of VIP code completion whose inference took more than 500 ms while the memory bandwidth of its GPU was saturated.",
        plan=_slow_while_saturated,
        defaults={"tier": "vip", "feature": "code_completion"},
    ),
    Question(name="why-p99", sentence="Why P99 rose, compared with as long a time before: mix, all of it, or which group.", plan=why_p99),
    *(_grouped(name, sentence, grouping) for name, (sentence, grouping) in GROUPINGS.items()),
    Question(name="slowest", sentence="The slowest requests, with their phases.", plan=_slowest),
    Question(
        name="request",
        sentence="One request (`tidegate query request ID`), its attempts and the samples around it.",
        plan=_request,
        filters=(),
    ),
)
BY_NAME: Final = {question.name: question for question in QUESTIONS}
