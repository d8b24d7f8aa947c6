"""The playground's way to the gateway: a request goes in at the API like any client's, and its answer comes back piece by piece.

The browser cannot ask the API itself, which is another origin. The key is a person's own, sent in a header and kept nowhere, or the
development key, which is read here and never shown. Invariants: what the browser does not take is not read on; a call that the browser
leaves is cancelled.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Final

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import BaseRoute, Route

from tidegate.admin.access import Door
from tidegate.admin.exchange import read_body
from tidegate.admin.view import NodeDesk
from tidegate.domain.units import Headers
from tidegate.errors import InvalidParameter, UpstreamTimeout, UpstreamUnavailable
from tidegate.http.client import PoolSettings, UpstreamPool
from tidegate.ports import CallFailure, UpstreamCall, UpstreamRequest

KEY_HEADER: Final = "x-tidegate-key"
MAX_BODY_BYTES: Final = 1_048_576
"""What a person types or pastes; larger prompts are for programs, which can ask the API."""
HEAD_S: Final = 120.0
"""Until the head of an answer: the gateway's own clocks are shorter, unless it is told otherwise."""
STALL_S: Final = 120.0
MOST_AT_ONCE: Final = 16
_READ_AHEAD: Final = 64
"""Pieces kept for a browser that reads slowly; beyond them the socket is not read."""
_DEVELOPMENT_KEY_FILE: Final = "dev-key"
_MOST_KEY_BYTES: Final = 1024
_SENT_ON: Final = (b"x-tidegate-color", b"x-business-context")
_SHOWN: Final = ("x-", "retry-after", "traceparent", "ratelimit", "content-type")


class Playground:
    """Serves `POST /admin/playground`. `aclose` when the node ends."""

    def __init__(self, desk: NodeDesk, door: Door, *, state_directory: Path) -> None:
        self._desk = desk
        self._door = door
        self._key_file = state_directory / _DEVELOPMENT_KEY_FILE
        self._pool: UpstreamPool | None = None

    def routes(self) -> list[BaseRoute]:
        return [Route("/admin/playground", self.ask, methods=["POST"])]

    def has_development_key(self) -> bool:
        return self._key_file.exists()

    async def ask(self, request: Request) -> Response:
        own_key = request.headers.get(KEY_HEADER, "").strip()
        await self._door.admit(request, changes=not own_key)  # the development key spends somebody's money
        key = own_key or await asyncio.to_thread(self._development_key)
        body = await read_body(request, limit=MAX_BODY_BYTES)
        on = tuple((name, request.headers[name.decode()].encode()) for name in _SENT_ON if name.decode() in request.headers)
        headers: Headers = ((b"authorization", f"Bearer {key}".encode()), (b"content-type", b"application/json"), *on)
        receiver = _Answer()
        call = self._opened().start(UpstreamRequest("POST", "/v1/chat/completions", headers, body), receiver)
        receiver.call = call
        try:
            async with asyncio.timeout(HEAD_S):
                await receiver.head
        except TimeoutError:
            call.cancel()
            raise UpstreamTimeout(f"The gateway had no answer within {HEAD_S:g} s.") from None
        except BaseException:
            call.cancel()
            raise
        status, answered = receiver.head.result()
        shown = {name.decode(): value.decode("latin-1") for name, value in answered if name.decode().startswith(_SHOWN)}
        return StreamingResponse(_pieces(receiver, call), status, headers={**shown, "cache-control": "no-store", "x-accel-buffering": "no"})

    async def aclose(self) -> None:
        if self._pool is not None:
            await self._pool.aclose()

    def _opened(self) -> UpstreamPool:
        if not self._desk.api_url:
            raise UpstreamUnavailable("The gateway does not serve yet. Try again in a moment.")
        if self._pool is None:
            settings = PoolSettings(self._desk.api_url, max_connections=MOST_AT_ONCE, max_waiting=MOST_AT_ONCE, verify_tls=False)
            self._pool = UpstreamPool(settings)  # this machine's own address: its certificate names another
        return self._pool

    def _development_key(self) -> str:
        try:
            with self._key_file.open("rb") as file:
                return file.read(_MOST_KEY_BYTES).decode("ascii", "replace").strip()
        except OSError:
            raise InvalidParameter(
                "This gateway has no development key: `tidegate up` makes one. Give a key of your own.", param="key"
            ) from None


class _Answer:
    """Receives one call, and keeps what the browser has not taken yet."""

    def __init__(self) -> None:
        self.head: asyncio.Future[tuple[int, Headers]] = asyncio.get_running_loop().create_future()
        self.call: UpstreamCall | None = None
        self.pieces: asyncio.Queue[bytes] = asyncio.Queue()  # bounded by the pauses; an empty piece ends it

    def call_connected(self) -> None: ...

    def response_started(self, status: int, headers: Headers) -> None:
        if not self.head.done():
            self.head.set_result((status, headers))

    def response_chunk(self, chunk: bytes) -> None:
        self.pieces.put_nowait(chunk)
        if self.pieces.qsize() >= _READ_AHEAD and self.call is not None:
            self.call.pause()

    def response_ended(self) -> None:
        self.pieces.put_nowait(b"")

    def call_failed(self, failure: CallFailure) -> None:
        if not self.head.done():
            self.head.set_exception(UpstreamUnavailable(f"The gateway could not be asked: {failure.message}"))
        self.pieces.put_nowait(b"")


async def _pieces(answer: _Answer, call: UpstreamCall) -> AsyncIterator[bytes]:
    try:
        while True:
            async with asyncio.timeout(STALL_S):
                piece = await answer.pieces.get()
            if not piece:
                return
            if answer.pieces.qsize() < _READ_AHEAD // 2:
                call.resume()
            yield piece
    except TimeoutError:
        return  # the browser sees an answer without its end
    finally:
        call.cancel()
