"""A model server that does what a script says, on a real loopback socket: the peer for tests and demonstrations.

It shares no code with `tidegate.http`, so that a mistake there cannot hide behind the same mistake here. It keeps every request it
received, with what the client did afterwards, in `requests`. Zero delays cost no timer; nothing here sleeps or polls.
"""

from __future__ import annotations

import asyncio
import itertools
from collections import deque
from collections.abc import Callable
from types import TracebackType
from typing import Self

import msgspec

from tidegate.testing import answers
from tidegate.testing.answers import Ending
from tidegate.testing.script import Fault, FaultKind, Script, Split
from tidegate.testing.upstream_connection import Connection, Piece, Playback, ReceivedRequest

_BEFORE_HEADERS = {
    FaultKind.RESET_BEFORE_HEADERS: Ending.RESET,
    FaultKind.CLOSE_BEFORE_HEADERS: Ending.CLOSE,
    FaultKind.HANG_BEFORE_HEADERS: Ending.HANG,
    FaultKind.GARBAGE: Ending.CLOSE,
}
_OPERATIONS = ("/chat/completions", "/completions", "/embeddings")


class ScriptedUpstream:
    """An OpenAI-compatible server on `base_url`. Use as an async context manager.

    The script of a call is, in this order: named by its `x-script` header (a name in `scripts`, or a script as JSON), the next of
    the queue filled by `script()`, `scripts[model]`, `default`. Other paths use `scripts[path]` if there is one.
    """

    def __init__(
        self,
        default: Script | None = None,
        *,
        models: tuple[str, ...] = ("scripted",),
        api_key: str | None = None,
        port: int = 0,
        keep_requests: int = 20_000,
    ) -> None:
        self.default = default or Script()
        self.scripts: dict[str, Script] = {}
        self.models = models
        self.requests: deque[ReceivedRequest] = deque(maxlen=keep_requests)  # the oldest are forgotten in an endless run
        self.connections: set[Connection] = set()
        self.connections_opened = 0
        self._queue: deque[Script] = deque()
        self._api_key = api_key
        self._port = port
        self._server: asyncio.Server | None = None
        self._waiters: list[tuple[Callable[[], bool], asyncio.Future[None]]] = []

    @property
    def base_url(self) -> str:
        return f"http://127.0.0.1:{self._port}/v1"

    def script(self, *scripts: Script) -> None:
        """Queue scripts for the next calls, one each."""
        self._queue.extend(scripts)

    def reset(self) -> None:
        """Forget queued and named scripts and the requests received; `default` stays."""
        self._queue.clear()
        self.scripts.clear()
        self.requests.clear()

    async def __aenter__(self) -> Self:
        await self.accept()
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.refuse()
        for connection in tuple(self.connections):
            connection.close(reset=True)
        await self.wait_for(lambda: not self.connections, 5.0)

    async def accept(self) -> None:
        """Listen; after `refuse()`, on the same port again."""
        if self._server is None:
            loop = asyncio.get_running_loop()
            self._server = await loop.create_server(lambda: Connection(self), "127.0.0.1", self._port, backlog=4096)
            self._port = self._server.sockets[0].getsockname()[1]

    def refuse(self) -> None:
        """Stop listening, so that connecting fails, and close the connections that have nothing to do."""
        if self._server is not None:
            self._server.close()
            self._server = None
        for connection in tuple(self.connections):
            if connection.idle:
                connection.close()

    async def wait_for(self, condition: Callable[[], bool], deadline_s: float) -> None:
        """Wait until `condition()` holds; it is asked again whenever a request or connection changes."""
        if condition():
            return
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        waiter = (condition, done)
        self._waiters.append(waiter)
        try:
            async with asyncio.timeout(deadline_s):
                await done
        except TimeoutError:
            raise TimeoutError(
                f"the condition did not hold within {deadline_s} s; {len(self.connections)} connections open, "
                f"last requests: {list(self.requests)[-5:]}"
            ) from None
        finally:
            self._waiters.remove(waiter)

    # ── called by connections ──

    def changed(self) -> None:
        for condition, done in self._waiters:
            if not done.done() and condition():
                done.set_result(None)

    def opened(self, connection: Connection) -> int:
        self.connections.add(connection)
        self.connections_opened += 1
        return self.connections_opened

    def closed(self, connection: Connection) -> None:
        self.connections.discard(connection)
        self.changed()

    def answer(self, request: ReceivedRequest) -> Playback:
        """Decide what to play for a request."""
        self.requests.append(request)
        self.changed()
        path = request.path
        if self._api_key is not None and request.header("authorization") != f"Bearer {self._api_key}":
            return _error(Script(), 401)
        if request.method == "POST" and path.startswith("/v1/") and path.endswith(_OPERATIONS):
            return self._answer_call(request)
        if (script := self.scripts.get(path)) is not None and (early := _refusal(script)) is not None:
            return early
        return self._answer_question(request)

    def _answer_question(self, request: ReceivedRequest) -> Playback:
        """Answer what needs no generation."""
        path = request.path
        answer: dict[str, object] | None = None
        if path == "/health":
            answer = {"status": "ok"}
        elif path == "/v1/models":
            answer = {"object": "list", "data": [answers.model_entry(model) for model in self.models]}
        elif path.startswith("/v1/models/") and (model := path.removeprefix("/v1/models/")) in self.models:
            answer = answers.model_entry(model)
        elif path == "/tokenize" and request.method == "POST":
            asked = request.json
            text = asked.get("prompt") or asked.get("content") or msgspec.json.encode(asked.get("messages", [])).decode()
            tokens = list(text.encode())
            answer = {"count": len(tokens), "max_model_len": 4096, "tokens": tokens}
        if answer is None:
            missing: dict[str, object] = {"message": f"no such path: {path}", "type": "invalid_request_error", "param": None, "code": None}
            return _error(Script(error=missing), 404)
        return Playback(pieces=(Piece(0.0, msgspec.json.encode(answer)),), status=200)

    def _answer_call(self, request: ReceivedRequest) -> Playback:
        try:
            body = request.json
        except msgspec.DecodeError:
            return _error(Script(), 400)
        script = self._choose(request, str(body.get("model", "")))
        if script.reject_stream_options and "stream_options" in body:
            problem: dict[str, object] = {
                "message": "Unrecognized request argument supplied: stream_options",
                "type": "invalid_request_error",
                "param": "stream_options",
                "code": "unsupported_parameter",
            }
            return _error(Script(error=problem), 400)
        if (early := _refusal(script)) is not None:
            return early
        asked = answers.read_asked(request.path, body)
        if request.path.endswith("/embeddings"):
            return _whole(script, answers.embeddings(script, asked, as_base64=body.get("encoding_format") == "base64"), outputs=0)
        if not asked.stream:
            return _whole(script, answers.whole(script, asked), outputs=len(script.pieces or ()))
        return _stream(script, asked)

    def _choose(self, request: ReceivedRequest, model: str) -> Script:
        named = request.header("x-script")
        if named is not None:
            return msgspec.json.decode(named, type=Script) if named.startswith("{") else self.scripts[named]
        if self._queue:
            return self._queue.popleft()
        return self.scripts.get(model, self.default)


def _error(script: Script, status: int) -> Playback:
    return Playback(pieces=(Piece(0.0, answers.error_body(script, status=status)),), status=status, headers=script.headers)


def _refusal(script: Script) -> Playback | None:
    """What replaces the answer: a failure before the headers, an error status, or a body given verbatim."""
    kind = script.fault.kind if script.fault is not None else None
    if kind in _BEFORE_HEADERS:
        raw = b"\x15\x03\x01 this is not HTTP\r\n\r\n" if kind is FaultKind.GARBAGE else b""
        return Playback(pieces=(), status=0, ending=_BEFORE_HEADERS[kind], raw=raw)
    if script.body is None and script.status < 400:  # noqa: PLR2004  HTTP's own classes
        return None
    body = script.body.encode() if script.body is not None else answers.error_body(script, status=script.status)
    return Playback(
        pieces=(Piece(0.0, body),), status=script.status, headers=script.headers, headers_s=script.headers_s + script.first_token_s
    )


def _whole(script: Script, body: bytes, *, outputs: int) -> Playback:
    """A whole answer; a stream's fault becomes the like fault of a body with a length."""
    delay_s = script.headers_s + script.first_token_s + script.per_token_s * outputs
    half: tuple[Piece, ...] = (Piece(0.0, body[: len(body) // 2]),)
    pieces: tuple[Piece, ...] = (Piece(0.0, body),)
    ending, length = Ending.CLEAN, len(body)
    match script.fault:
        case Fault(kind=FaultKind.STALL):
            pieces, ending = half, Ending.HANG
        case Fault(kind=FaultKind.HANG_BEFORE_FIRST_TOKEN):
            pieces, ending = (), Ending.HANG
        case Fault(kind=FaultKind.CUT):
            pieces, ending = half, Ending.CLOSE
        case Fault(kind=FaultKind.RESET):
            pieces, ending = half, Ending.RESET
        case Fault(kind=FaultKind.END | FaultKind.MALFORMED_EVENT):
            pieces, length = half, len(half[0].payload)
        case Fault(kind=FaultKind.ERROR_EVENT):
            failure = answers.error_body(script, status=500)
            pieces, length = (Piece(0.0, failure),), len(failure)
        case _:
            pass
    return Playback(pieces=pieces, status=script.status, headers=script.headers, headers_s=delay_s, ending=ending, length=length)


def _stream(script: Script, asked: answers.Asked) -> Playback:
    events, ending = answers.stream(script, asked)
    pieces = [Piece(event.delay_s, event.block) for event in events]
    if script.split is not None:
        pieces = _cut(pieces, script.split)
    return Playback(
        pieces=tuple(pieces),
        status=script.status,
        headers=script.headers,
        headers_s=script.headers_s,
        ending=ending,
        content_type="text/event-stream",
        chunked=True,
    )


def _cut(pieces: list[Piece], split: Split) -> list[Piece]:
    """Join what has no wait between it, then cut at the script's offsets, which count from the start of the body."""
    groups: list[tuple[float, list[bytes]]] = []
    for piece in pieces:
        if groups and not piece.delay_s:
            groups[-1][1].append(piece.payload)
        else:
            groups.append((piece.delay_s, [piece.payload]))
    cut: list[Piece] = []
    offset = 0
    for delay_s, blocks in groups:
        body = b"".join(blocks)
        points = {point - offset for point in split.at}
        if split.every is not None:
            points.update(range(-offset % split.every, len(body), split.every))
        edges = [0, *sorted(point for point in points if 0 < point < len(body)), len(body)]
        for number, (start, end) in enumerate(itertools.pairwise(edges)):
            cut.append(Piece(delay_s if number == 0 else split.pause_s, body[start:end]))
        offset += len(body)
    return cut
