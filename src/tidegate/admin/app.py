"""The paths of the admin port.

| path | who | what |
|---|---|---|
| `GET /livez` | anyone | 200 while the supervisor's loop turns |
| `GET /readyz` | anyone | 200 or 503, with workers, engine and upstreams |
| `GET /metrics` | anyone | all metrics of the node |
| `GET /admin/status` | admin key | everything the supervisor knows |
| `GET, POST /admin/keys` | admin key | list keys, make one |
| `DELETE /admin/keys/{id}` | admin key | revoke |
| `POST /admin/keys/{id}/rotate` | admin key | another token for the same key |

`admin.console` adds its pages under `/console` and the figures on them under `/admin`; `docs/console.md` lists them.

The first three tell whoever can reach the port about load and upstreams, so the port belongs on a private address. Errors have the shape
of the API's.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence

import msgspec
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from tidegate.adapters.keys.store import KeyStore
from tidegate.admin.access import Door
from tidegate.admin.exchange import error_answer, json_answer, read_body
from tidegate.admin.keys import KeyRequest, RotationRequest, create_key, decode, list_keys, revoke_key, rotate_key
from tidegate.admin.metrics import METRICS, NodeCollector
from tidegate.admin.view import NodeSnapshot, NodeView
from tidegate.domain.statistics import UpstreamStatistics
from tidegate.errors import ConfigurationError, InternalError, MethodNotAllowed, PathNotFound, TidegateError

_LOG = logging.getLogger("tidegate.admin")

Endpoint = Callable[[Request], Awaitable[Response]]


class NodeReadiness(msgspec.Struct, frozen=True, omit_defaults=True):
    """The body of `/readyz`."""

    status: str
    workers: dict[str, str]
    """By index: the phase, or `unresponsive`, or `no_upstream`."""
    upstreams: dict[str, str]
    """By name: `ready`, or why not."""
    engine: str | None = None
    shared: str | None = None
    """Whether the store shared with other nodes is there; without it each node finds out by itself, so it never decides."""
    drained: tuple[str, ...] = ()
    """Upstreams and replicas that an operator has taken out of service."""
    limits: str | None = None
    """Whether the store that processes share their limits through is there; without it `on_store_down` decides on requests."""


class AdminApp:
    """The endpoints over one node and one key store, and `more` of them. The store is used in threads: it waits for the disk and for locks.

    `door` None: there are no sessions, and every caller sends an admin key.
    """

    def __init__(
        self, node: NodeView, store: KeyStore, *, wall_clock: Callable[[], float], door: Door | None = None, more: Sequence[BaseRoute] = ()
    ) -> None:
        self._node = node
        self._store = store
        self._wall_clock = wall_clock
        self._door = door or Door(store, wall_clock=wall_clock)
        self._more = more

    def build(self) -> Starlette:
        routes = [
            Route("/livez", self.livez, methods=["GET"]),
            Route("/readyz", self.readyz, methods=["GET"]),
            Route("/metrics", self.metrics, methods=["GET"]),
            Route("/admin/status", self.status, methods=["GET"]),
            Route("/admin/keys", self.keys, methods=["GET", "POST"]),
            Route("/admin/keys/{key_id}", self.revoke_key, methods=["DELETE"]),
            Route("/admin/keys/{key_id}/rotate", self.rotate_key, methods=["POST"]),
            *self._more,
        ]
        handlers = {TidegateError: _answer_error, HTTPException: _answer_http_error, Exception: _answer_fault}
        return Starlette(routes=routes, exception_handlers=handlers)

    # ── open to whoever reaches the port ──────────────────────────────────────

    async def livez(self, _: Request) -> Response:
        return json_answer({"status": "alive"})

    async def readyz(self, _: Request) -> Response:
        node = await self._node.snapshot()
        return json_answer(readiness(node), status=200 if node.ready else 503)

    async def metrics(self, request: Request) -> Response:
        node = await self._node.snapshot()
        registry = CollectorRegistry()
        registry.register(NodeCollector(node, METRICS))
        encode, content_type = choose_encoder(request.headers.get("accept", ""))
        return Response(await asyncio.to_thread(encode, registry), media_type=content_type)

    # ── with an admin key ─────────────────────────────────────────────────────

    async def status(self, request: Request) -> Response:
        await self._door.admit(request)
        return json_answer(await self._node.snapshot())

    async def keys(self, request: Request) -> Response:
        return await (self.create_key(request) if request.method == "POST" else self.list_keys(request))

    async def list_keys(self, request: Request) -> Response:
        await self._door.admit(request)
        return json_answer({"keys": await asyncio.to_thread(list_keys, self._store, now=self._wall_clock())})

    async def create_key(self, request: Request) -> Response:
        caller = await self._door.admit(request, changes=True)
        wanted = decode(await read_body(request), KeyRequest)
        created = await asyncio.to_thread(create_key, self._store, wanted, now=self._wall_clock())
        _LOG.info("key.created key=%s by=%s", created.key_id, caller.key_id)
        return json_answer(created, status=201)

    async def revoke_key(self, request: Request) -> Response:
        caller = await self._door.admit(request, changes=True)
        key_id = await asyncio.to_thread(revoke_key, self._store, request.path_params["key_id"], now=self._wall_clock())
        _LOG.info("key.revoked key=%s by=%s", key_id, caller.key_id)
        return json_answer({"revoked": key_id})

    async def rotate_key(self, request: Request) -> Response:
        caller = await self._door.admit(request, changes=True)
        wanted = decode(await read_body(request), RotationRequest)
        rotated = await asyncio.to_thread(rotate_key, self._store, request.path_params["key_id"], wanted, now=self._wall_clock())
        _LOG.info("key.rotated key=%s by=%s grace_s=%g", rotated.key_id, caller.key_id, wanted.grace_s)
        return json_answer(rotated)


def readiness(node: NodeSnapshot) -> NodeReadiness:
    """Say in a few words whether the node can serve, and what is not as it should be."""
    workers = {}
    for worker in node.workers:
        state = worker.phase
        if worker.phase == "ready" and not worker.serving:
            state = "no_upstream" if worker.responsive else "unresponsive"
        workers[str(worker.index)] = state
    return NodeReadiness(
        status="ready" if node.ready else "not_ready" if node.phase == "running" else node.phase,
        workers=workers,
        upstreams={upstream.name: _upstream_words(upstream) for upstream in node.statistics.upstreams},
        engine=_engine_words(node),
        shared=_shared_words(node.statistics.levels),
        drained=node.drained,
        limits=_limits_words(node.statistics.levels),
    )


def _upstream_words(upstream: UpstreamStatistics) -> str:
    return "ready" if upstream.ready else upstream.detail or "not ready"


def _engine_words(node: NodeSnapshot) -> str | None:
    if node.engine is None:
        return None
    return node.engine.phase if node.engine.last_error is None else f"{node.engine.phase}: {node.engine.last_error}"


def _shared_words(levels: Mapping[str, float]) -> str | None:
    workers, connected = levels.get("shared.workers", 0.0), levels.get("shared.connected", 0.0)
    if not workers:
        return None
    return "connected" if connected >= workers else f"lost by {workers - connected:g} of {workers:g} workers"


def _limits_words(levels: Mapping[str, float]) -> str | None:
    away, settling = levels.get("limits.store_away"), levels.get("limits.store_settling", 0.0)
    if away is None:
        return None
    if away:
        return f"store lost by {away:g} workers: on_store_down decides"
    return "store came up empty: on_store_down decides for a moment" if settling else "shared"


async def _answer_error(_: Request, error: Exception) -> Response:
    assert isinstance(error, TidegateError)
    if isinstance(error, ConfigurationError):
        _LOG.error("admin.unavailable %s", error.message)
        return error_answer(InternalError("The key database cannot be used at this moment; the gateway's log says why."))
    return error_answer(error)


async def _answer_http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    if error.status_code == 405:  # noqa: PLR2004  Method Not Allowed
        allowed = ", ".join(sorted((error.headers or {}).get("Allow", "").split(", ")))
        response = error_answer(MethodNotAllowed(f"{request.method} is not possible on {request.url.path}; allowed: {allowed}."))
        response.headers["allow"] = allowed
        return response
    return error_answer(
        PathNotFound(
            f"There is no {request.url.path} on the admin port. It has /livez, /readyz, /metrics, /console and paths under /admin."
        )
    )


async def _answer_fault(request: Request, error: Exception) -> Response:
    _LOG.error("admin.failed %s %s", request.method, request.url.path, exc_info=error)
    return error_answer(InternalError("The admin API failed; the gateway's log has the details."))
