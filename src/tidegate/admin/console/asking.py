"""Questions of people to the records: their own SQL, and the questions that have names. `POST /admin/query`, `GET /admin/questions`."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Annotated

import msgspec
from msgspec import Meta
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from tidegate.admin.access import Door
from tidegate.admin.console import records
from tidegate.admin.exchange import json_answer, read_body
from tidegate.admin.keys import decode
from tidegate.admin.view import NodeDesk
from tidegate.analytics.answers import advice
from tidegate.analytics.asking import Asker, QueryAnswer, QueryRequest
from tidegate.analytics.questions import BY_NAME, QUESTIONS, asked
from tidegate.analytics.scope import Plan, Scope, Section
from tidegate.errors import InvalidParameter, StoreError

NO_TABLES = (
    "This gateway keeps no tables of past requests. Install the extra `analytics`, leave `analytics.enabled` out of the configuration or "
    "set it to true, and restart."
)


class Question(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The body of `POST /admin/query`: either `sql`, or the name of a `question` with its span and group."""

    sql: str = ""
    question: str = ""
    since: str = "1h"
    by: str = ""
    request_id: str = ""
    filters: dict[str, str] = {}
    limit: Annotated[int, Meta(ge=1, le=1000)] = 20
    max_rows: Annotated[int, Meta(ge=1, le=10_000)] = 1000


class Questions:
    """The endpoints over one node's tables."""

    def __init__(self, desk: NodeDesk, door: Door, *, wall_clock: Callable[[], float]) -> None:
        self._desk = desk
        self._door = door
        self._wall_clock = wall_clock

    def routes(self) -> list[BaseRoute]:
        return [Route("/admin/query", self.ask, methods=["POST"]), Route("/admin/questions", self.names, methods=["GET"])]

    async def names(self, request: Request) -> Response:
        await self._door.admit(request)
        shown = [{"name": each.name, "sentence": each.sentence, "by": each.by, "filters": each.filters} for each in QUESTIONS]
        return json_answer({"questions": shown})

    async def ask(self, request: Request) -> Response:
        caller = await self._door.admit(request)
        wanted = decode(await read_body(request), Question)
        asker = self._desk.asker
        if asker is None:
            raise StoreError(NO_TABLES)
        if wanted.sql:
            statement = await asyncio.to_thread(_checked, wanted.sql, may_read_bodies=not caller.read_only)
            sections: tuple[Section, ...] = (Section("", await put(asker, QueryRequest(statement, max_rows=wanted.max_rows))),)
        else:
            sections = await answer_plan(asker, self._plan(wanted))
        return json_answer({"sections": sections})

    def _plan(self, wanted: Question) -> Plan:
        if wanted.question not in BY_NAME:
            raise InvalidParameter(f"Give `sql`, or a `question` of: {', '.join(BY_NAME)}.", param="question")
        now = self._wall_clock()
        scope = Scope(
            since=now - records.span_s(wanted.since),
            until=now,
            by=wanted.by,
            limit=wanted.limit,
            request_id=wanted.request_id,
            filters=wanted.filters,
        )
        return asked(wanted.question, scope)


async def answer_plan(asker: Asker, plan: Plan) -> tuple[Section, ...]:
    """Put one question of a plan after the other, until it has its answer."""
    request = next(plan)
    while True:
        answer = await put(asker, request)
        try:
            request = plan.send(answer)
        except StopIteration as end:
            sections: tuple[Section, ...] = end.value
            return sections


async def put(asker: Asker, request: QueryRequest) -> QueryAnswer:
    """Ask; `StoreError` when there is no answer, `InvalidParameter` when the question is at fault."""
    try:
        answer = await asker.ask(request)
    except OSError as error:
        raise StoreError(f"The recorder process cannot be asked ({error}); it is started again by itself.") from error
    if answer.error:
        raise InvalidParameter(f"The tables gave no answer: {advice(answer.error)}", param="sql")
    return answer


def _checked(sql: str, *, may_read_bodies: bool) -> str:
    try:
        from tidegate.analytics.safe_sql import checked
    except ImportError as error:
        raise StoreError(f"SQL is checked with a library that is not installed ({error.name}). Install the extra `analytics`.") from error
    return checked(sql, bodies=may_read_bodies)
