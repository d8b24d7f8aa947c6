"""The figures of the console as JSON, for pages and for `curl` alike, and the few changes that the console makes.

| path | what |
|---|---|
| `GET /admin/overview` | the latest beat, and those of the last minutes |
| `GET /admin/events` | a beat a second, as server-sent events |
| `GET /admin/traffic` | requests, tokens and money `by` tenant, feature, model, …, `since` 1h |
| `GET /admin/requests` | the latest requests, by `tenant`, `outcome`, … and `slower_than` |
| `GET /admin/requests/{id}` | one request: its attempts, and what was measured while it ran |
| `GET /admin/limits` | how full limits and budgets are |
| `GET /admin/upstreams` | upstreams, their replicas and breakers |
| `PUT, DELETE /admin/drained/{name}` | take an upstream or a replica out of service, or back into it |
| `POST /admin/explain` | where a request would go, and why |

`asking` adds `/admin/query` and `/admin/questions`, `relay` adds `/admin/playground`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Sequence
from datetime import UTC, datetime
from typing import Final

import msgspec
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import BaseRoute, Route

from tidegate.admin.access import Door
from tidegate.admin.console import records
from tidegate.admin.console.asking import NO_TABLES, put
from tidegate.admin.console.feed import Beat, ConsoleFeed
from tidegate.admin.console.flow import Flow
from tidegate.admin.exchange import json_answer, read_body
from tidegate.admin.keys import decode
from tidegate.admin.view import NodeDesk
from tidegate.analytics.asking import QueryRequest, Value
from tidegate.domain.statistics import LimitLevel
from tidegate.domain.upstream import BreakerPhase, ReplicaStatus
from tidegate.errors import InvalidParameter, Overloaded, RecordNotFound, StoreError, TidegateError
from tidegate.wiring.explain import Caller, look

_LARGEST: Final = 1e12
CHECK_EVERY: Final = 10
"""Beats after which a watcher's right to watch is looked at again."""
_LOG = logging.getLogger("tidegate.admin")


class Overview(msgspec.Struct, frozen=True):
    """The body of `/admin/overview`."""

    version: str
    started_at: float
    currency: str
    latest: Beat
    history: tuple[Flow, ...]


class ReplicaReport(msgspec.Struct, frozen=True):
    """One replica over all workers."""

    replica: str
    is_drained: bool
    in_flight: int
    workers: int
    available_in: int
    """Workers that may choose it."""
    breakers: dict[str, int]
    """How many workers have its breaker in which phase."""
    trips: int
    why: str
    last_error: str | None


class UpstreamReport(msgspec.Struct, frozen=True):
    name: str
    ready: bool
    detail: str
    is_drained: bool
    levels: dict[str, float]
    counters: dict[str, float]
    replicas: tuple[ReplicaReport, ...]


class ExplainRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The body of `POST /admin/explain`."""

    request: msgspec.Raw
    """As a client would send it."""
    tier: str = "default"
    feature: str = ""
    models: tuple[str, ...] = ("*",)


class Api:
    """The endpoints over one node."""

    def __init__(self, desk: NodeDesk, door: Door, feed: ConsoleFeed, *, wall_clock: Callable[[], float]) -> None:
        self._desk = desk
        self._door = door
        self._feed = feed
        self._wall_clock = wall_clock

    def routes(self) -> list[BaseRoute]:
        return [
            Route("/admin/overview", self.overview, methods=["GET"]),
            Route("/admin/events", self.events, methods=["GET"]),
            Route("/admin/traffic", self.traffic, methods=["GET"]),
            Route("/admin/requests", self.requests, methods=["GET"]),
            Route("/admin/requests/{request_id}", self.one_request, methods=["GET"]),
            Route("/admin/limits", self.limits, methods=["GET"]),
            Route("/admin/upstreams", self.upstreams, methods=["GET"]),
            Route("/admin/drained/{name:path}", self.drain, methods=["PUT", "DELETE"]),
            Route("/admin/explain", self.explain, methods=["POST"]),
        ]

    # ── now ───────────────────────────────────────────────────────────────────

    async def overview(self, request: Request) -> Response:
        await self._door.admit(request)
        latest = await self._feed.latest()
        node = await self._desk.snapshot()
        currency = self._desk.configuration.prices.currency
        return json_answer(Overview(node.version, node.started_at, currency, latest, self._feed.history))

    async def events(self, request: Request) -> Response:
        await self._door.admit(request)
        if not self._feed.has_room():
            raise Overloaded("As many watch already as may. Close a console elsewhere, or ask GET /admin/overview now and again.")
        headers = {"cache-control": "no-store", "x-accel-buffering": "no"}
        return StreamingResponse(self._watch(request), media_type="text/event-stream", headers=headers)

    async def _watch(self, request: Request) -> AsyncIterator[bytes]:
        """Send beats until the caller may no longer see them."""
        number = 0
        async for event in self._feed.watch():
            number += 1
            if number % CHECK_EVERY == 0:
                try:
                    await self._door.admit(request)
                except TidegateError:
                    return
            yield event

    async def limits(self, request: Request) -> Response:
        await self._door.admit(request)
        levels: tuple[LimitLevel, ...] = await self._desk.limit_levels()
        return json_answer({"currency": self._desk.configuration.prices.currency, "limits": levels})

    async def upstreams(self, request: Request) -> Response:
        await self._door.admit(request)
        node = await self._desk.snapshot()
        reports = [
            UpstreamReport(
                name=each.name,
                ready=each.ready,
                detail=each.detail,
                is_drained=each.name in node.drained,
                levels=each.levels,
                counters=each.counters,
                replicas=replica_reports(each.replicas, drained=node.drained),
            )
            for each in node.statistics.upstreams
        ]
        return json_answer({"drained": node.drained, "upstreams": reports})

    async def drain(self, request: Request) -> Response:
        caller = await self._door.admit(request, changes=True)
        name = request.path_params["name"]
        drained = request.method == "PUT"
        await self._desk.drain(name, drained=drained)
        _LOG.info("upstream.%s name=%s by=%s", "drained" if drained else "enabled", name, caller.key_id)
        return json_answer({"name": name, "drained": drained})

    # ── what was ──────────────────────────────────────────────────────────────

    async def traffic(self, request: Request) -> Response:
        await self._door.admit(request)
        by, since_s = request.query_params.get("by", "tenant"), records.span_s(request.query_params.get("since", ""))
        wanted = _wanted(request)
        groups, over_time, whole = await asyncio.gather(
            self._ask(records.traffic(by, since_s, wanted)),
            self._ask(records.traffic_over_time(by, since_s, wanted)),
            self._ask(records.whole_traffic(since_s, wanted)),
        )
        currency = self._desk.configuration.prices.currency
        step_s = max(1, since_s // records.POINTS)
        return json_answer(
            {
                "by": by,
                "until": self._wall_clock(),
                "since_s": since_s,
                "step_s": step_s,
                "currency": currency,
                "groups": groups,
                "whole": whole[0] if whole else None,
                "tokens_over_time": over_time,
            }
        )

    async def requests(self, request: Request) -> Response:
        await self._door.admit(request)
        asked = request.query_params
        found = await self._ask(
            records.latest(
                records.span_s(asked.get("since", ""), default="15m"),
                _wanted(request),
                slower_than_s=_number(asked.get("slower_than", "0"), "slower_than"),
                limit=int(_number(asked.get("limit", "100"), "limit")),
            )
        )
        return json_answer({"currency": self._desk.configuration.prices.currency, "requests": found})

    async def one_request(self, request: Request) -> Response:
        await self._door.admit(request)
        name, at_text = request.path_params["request_id"], request.query_params.get("at")
        found = await self._ask(records.one_request(name, _number(at_text, "at") if at_text else None))
        if not found:
            raise RecordNotFound(
                f"No request {name[:64]!r} is in the tables. It comes there about a second after it ends, and goes with its day."
            )
        [one] = found
        at, duration_s = _unix(one["started_at"]), _float(one["duration_s"])
        attempts, samples = await asyncio.gather(
            self._ask(records.attempts_of(name, at)), self._ask(records.samples_around(at, duration_s))
        )
        replicas = {"", *(each["replica"] for each in attempts)}
        currency = self._desk.configuration.prices.currency
        return json_answer(
            {
                "currency": currency,
                "request": one,
                "attempts": attempts,
                "samples": [each for each in samples if each["replica"] in replicas],
            }
        )

    async def _ask(self, question: QueryRequest) -> list[dict[str, Value]]:
        asker = self._desk.asker
        if asker is None:
            raise StoreError(NO_TABLES)
        return records.rows_of(await put(asker, question))

    # ── what would be ─────────────────────────────────────────────────────────

    async def explain(self, request: Request) -> Response:
        await self._door.admit(request)
        configuration = self._desk.configuration
        wanted = decode(await read_body(request, limit=configuration.server.max_body_bytes), ExplainRequest)
        report = await asyncio.to_thread(
            look, configuration, bytes(wanted.request), Caller(tier=wanted.tier, feature=wanted.feature, models=wanted.models)
        )
        return json_answer(report)


def replica_reports(statuses: Sequence[ReplicaStatus], *, drained: Sequence[str]) -> tuple[ReplicaReport, ...]:
    """Join what each worker knows of each replica."""
    by_name: dict[str, list[ReplicaStatus]] = {}
    for status in statuses:
        by_name.setdefault(status.replica, []).append(status)
    return tuple(
        ReplicaReport(
            replica=name,
            is_drained=name in drained or views[0].upstream in drained,
            in_flight=sum(view.in_flight for view in views),
            workers=len(views),
            available_in=sum(view.available for view in views),
            breakers={str(phase): count for phase in BreakerPhase if (count := sum(view.breaker is phase for view in views))},
            trips=sum(view.trips for view in views),
            why=next((view.why for view in views if view.why), ""),
            last_error=next((view.last_error for view in views if view.last_error), None),
        )
        for name, views in by_name.items()
    )


def _wanted(request: Request) -> dict[str, str]:
    """Give the values that requests must have, as the address asks for them."""
    return {name: request.query_params[name] for name in records.FILTERS if name in request.query_params}


def _number(text: str, name: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = -1.0
    if not 0 <= number < _LARGEST:
        raise InvalidParameter(f"`{name}` is a number from 0, not {text[:20]!r}.", param=name)
    return number


def _unix(text: Value) -> float:
    """Give the seconds since the epoch of a time in UTC as the tables write it."""
    return datetime.fromisoformat(str(text)).replace(tzinfo=UTC).timestamp()


def _float(value: Value) -> float:
    return float(value) if isinstance(value, int | float) else 0.0
