"""What a question is about, and what its answer is made of.

A plan is a generator that gives one `QueryRequest` after another, is sent the answers, and returns sections. It does no I/O, so that the
command line, the console and tests drive the same plans. What people say reaches the SQL only as parameters.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from typing import Final

import msgspec

from tidegate.analytics.asking import Parameter, QueryAnswer, QueryRequest
from tidegate.analytics.rows import timestamp

FILTERS: Final = ("tenant", "user", "tier", "feature", "model", "route")
"""Columns of requests that any question about many of them may be held to."""
_TIMES: Final = "{column} >= {{since:DateTime64(3, 'UTC')}} AND {column} < {{until:DateTime64(3, 'UTC')}}"


class Scope(msgspec.Struct, frozen=True, kw_only=True):
    """What a question is about. Instants are seconds since the epoch."""

    since: float
    until: float
    by: str = ""
    limit: int = 20
    request_id: str = ""
    filters: Mapping[str, str] = {}
    slow_s: float = 0.5
    saturated_ratio: float = 0.9
    max_rows: int = 10_000
    deadline_s: float = 10.0

    def request(self, sql: str, parameters: Mapping[str, Parameter] | None = None, *, max_rows: int | None = None) -> QueryRequest:
        return QueryRequest(sql, dict(parameters or {}), max_rows or self.max_rows, self.deadline_s)

    def where(self, *conditions: str, filters: bool = True) -> tuple[str, dict[str, Parameter]]:
        """Give the WHERE of the span and the filters, and its parameters."""
        chosen = self.filters if filters else {}
        terms = [_TIMES.format(column="started_at"), *conditions, *(f"{name} = {{{name}:String}}" for name in chosen)]
        return " AND ".join(terms), {"since": timestamp(self.since), "until": timestamp(self.until), **chosen}


class Section(msgspec.Struct, frozen=True):
    """A part of an answer: a table, a sentence, or both."""

    title: str
    answer: QueryAnswer = QueryAnswer()
    sentence: str = ""


Plan = Generator[QueryRequest, QueryAnswer, tuple[Section, ...]]
