"""A model server that does what a script says, on a real socket: the peer for tests, drills, load tests and demonstrations.

It shares no code with `tidegate.http`, so that a mistake there cannot hide behind the same mistake here. It keeps the requests it
received, with what the client did afterwards, in `requests`. Zero delays cost no timer; nothing here sleeps or polls.
"""

from __future__ import annotations

import asyncio
import random
import time
import zlib
from collections import deque
from collections.abc import Callable
from datetime import UTC, datetime
from types import TracebackType
from typing import Any, Literal, Self

import msgspec

from tidegate.domain.units import Secret
from tidegate.mock import answers, control, questions, staging
from tidegate.mock.answers import Asked
from tidegate.mock.chooser import Call, Chooser
from tidegate.mock.connection import Connection
from tidegate.mock.distribution import Distribution
from tidegate.mock.engine import EngineStatistics
from tidegate.mock.engine_driver import EngineDriver, Ticket
from tidegate.mock.listener import Listener
from tidegate.mock.marker import OPENING, marked_text
from tidegate.mock.playback import Piece, Playback, Work
from tidegate.mock.presets import PRESETS
from tidegate.mock.received import ReceivedRequest
from tidegate.mock.script import MAX_OUTPUT_TOKENS, Script, Scripts
from tidegate.mock.scripting import Misfit, script_over
from tidegate.mock.settings import MockSettings, refuses
from tidegate.mock.vllm_metrics import VllmMetrics

_OPERATIONS = ("/chat/completions", "/completions", "/embeddings")
_MARKER = OPENING.encode()
_KV_TOKENS = 200_000
"""What `kv_cache_usage_perc` is a share of when there is no engine."""


class ScriptedUpstream:
    """An OpenAI-compatible server on `base_url`. Use as an async context manager.

    The script of a call is, in this order: named by its `x-script` header or by a marker in the last user message (a name in
    `scripts`, a fault, a status, or fields as JSON), the next of the queue filled by `script()`, `scripts[model]`, `default`. Other
    paths use `scripts[path]` if there is one. `settings` says all of it at once; `default`, `models` and `api_key` win over it.
    """

    def __init__(
        self,
        default: Script | None = None,
        *,
        models: tuple[str, ...] | None = None,
        api_key: str | None = None,
        host: str = "127.0.0.1",
        port: int = 0,
        keep_requests: int = 20_000,
        settings: MockSettings | None = None,
        control: Literal["loopback", "anyone", "nobody"] = "loopback",
        on_departure: Callable[[ReceivedRequest], None] | None = None,
    ) -> None:
        settings = settings or MockSettings()
        if default is not None:
            settings = msgspec.structs.replace(settings, default=default)
        if models is not None:
            settings = msgspec.structs.replace(settings, models=models)
        if api_key is not None:
            settings = msgspec.structs.replace(settings, api_key=Secret(api_key))
        self.requests: deque[ReceivedRequest] = deque(maxlen=keep_requests)  # the oldest are forgotten in an endless run
        self.connections: set[Connection] = set()
        self.connections_opened = 0
        self.requests_received = 0
        self.departures = 0
        self.started_at = time.monotonic()
        """When the time of `failures` and `cold_start` began."""
        self._host = host
        self._control = control
        self._on_departure = on_departure
        self._waiters: list[tuple[Callable[[], bool], asyncio.Future[None]]] = []
        self._listener = Listener(host, port, lambda: Connection(self))
        self._plans: list[asyncio.TimerHandle] = []
        self._chooser = Chooser(settings.seed)
        self._engine: EngineDriver | None = None
        self._metrics = VllmMetrics()
        self._take(settings)

    @property
    def base_url(self) -> str:
        host = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}.get(self._host, f"[{self._host}]" if ":" in self._host else self._host)  # noqa: S104  where clients find it
        return f"http://{host}:{self._listener.port}/v1"

    def script(self, *scripts: Script) -> None:
        """Queue scripts for the next calls, one each."""
        self._chooser.push(*scripts)

    def reset(self) -> None:
        """Forget queued and named scripts and the requests received; `default` stays."""
        self._chooser.reset()
        self.scripts.clear()
        self.requests.clear()

    def settings(self) -> MockSettings:
        """Give everything it has been told, as a script file would say it."""
        return msgspec.structs.replace(self._settings, default=self.default, scripts=dict(self.scripts), models=self.models)

    def load(self, settings: MockSettings) -> None:
        """Do from now on what these say; the queue and the turns are forgotten, the time of `failures` begins."""
        self._chooser.reset()
        self._take(settings)
        self._chooser.seed(settings.seed)
        self.restart()

    def restart(self) -> None:
        """Begin the time of `failures` and `cold_start` again."""
        self.started_at = time.monotonic()
        self._plan()

    def statistics(self) -> dict[str, object]:
        """Give what `GET /mock/statistics` shows."""
        return {
            "elapsed_s": round(time.monotonic() - self.started_at, 3),
            "accepting": self._listener.accepting,
            "connections": len(self.connections),
            "connections_opened": self.connections_opened,
            "requests": self.requests_received,
            "answering": sum(not connection.idle for connection in self.connections),
            "departures": self.departures,
        }

    async def __aenter__(self) -> Self:
        await self.accept()
        self.restart()
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._forget_plans()
        self.refuse()
        if self._engine is not None:
            self._engine.close()
        for connection in tuple(self.connections):
            connection.close(reset=True)
        await self.wait_for(lambda: not self.connections, 5.0)

    async def accept(self) -> None:
        """Listen; after `refuse()`, on the same port again."""
        await self._listener.open()

    def refuse(self) -> None:
        """Stop listening, so that connecting fails, and close the connections that have nothing to do."""
        self._listener.close()
        self._close_idle()

    def refuse_for(self, seconds: float, *, backlog: bool = False, reset: bool = False, spare: int = 0) -> None:
        """Refuse for a time; with `backlog` connecting works but nobody answers, with `reset` open connections break too.

        The connection with the number `spare` stays as it is.
        """
        self._listener.close_for(seconds, backlog=backlog)
        if reset:
            for connection in tuple(self.connections):
                if connection.number != spare:
                    connection.close(reset=True)
        else:
            self._close_idle(spare)

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

    def ended(self, request: ReceivedRequest, work: Work | None) -> None:
        """Take note that an answer has been sent, or that its client has left."""
        if work is not None:
            self._metrics.count(request, work)
        if request.client_left_at is not None:
            self.departures += 1
            if self._on_departure is not None:
                self._on_departure(request)
        self.changed()

    def begin_work(self, work: Work, connection: Connection) -> Ticket | None:
        if self._engine is None:
            return None
        return self._engine.submit(work.prompt_tokens, work.output_tokens, connection.grant)

    def answer(self, request: ReceivedRequest) -> Playback:
        """Decide what to play for a request."""
        if request.path.startswith(control.PREFIX) and request.path[5:6] in {"", "/"}:
            return self._answer_control(request)
        self.requests_received += 1
        request.number = self.requests_received
        self.requests.append(request)
        playback = self._answer(request)
        request.status = playback.status
        request.pieces = len(playback.pieces)
        if playback.refuse_s > 0:
            self.refuse_for(playback.refuse_s, spare=request.connection)
        self.changed()
        return playback

    def _answer(self, request: ReceivedRequest) -> Playback:
        path, cold = request.path, self._settings.cold_start
        if cold is not None and cold.how == "loading" and self._elapsed_s() < cold.for_s:
            return staging.error(script_over(Script(), PRESETS["loading"]), 503)
        if self._bearer is not None and request.header("authorization") != self._bearer:
            return staging.error(Script(), 401)
        if request.method == "POST" and path.startswith("/v1/") and path.endswith(_OPERATIONS):
            try:
                return self._answer_call(request)
            except Misfit as misfit:
                return _misfit(misfit)
        if (script := self.scripts.get(path)) is not None:
            script = script[-1] if isinstance(script, tuple) else script
            if (early := staging.refusal(script, self._chooser.rng, _wall_clock)) is not None:
                return early
        if path == "/metrics":
            page = self._metrics.render(self.models[0] if self.models else "", self._engine_statistics())
            return Playback(pieces=(Piece(0.0, page.encode()),), status=200, content_type="text/plain; version=0.0.4; charset=utf-8")
        settings = self._settings
        return questions.question(
            path, request, self.models, bytes_per_token=settings.bytes_per_token, context_tokens=settings.context_tokens
        )

    def _answer_call(self, request: ReceivedRequest) -> Playback:
        try:
            body = request.json
        except msgspec.DecodeError:
            return staging.error(Script(), 400)
        asked = answers.read_asked(request.path, body)
        request.model = asked.model
        marked = marked_text(request.path, body) if _MARKER in request.body else None
        chosen = self._chooser.choose(
            Call(asked.model, asked.text, request.header("x-script"), marked),
            self.scripts,
            self.default,
            failures=self._settings.failures,
            cold_start=self._settings.cold_start,
            elapsed_s=self._elapsed_s(),
        )
        script = chosen.script
        request.script = chosen.name
        if script.fault is not None:
            request.fault = script.fault.kind
        if script.reject_stream_options and "stream_options" in body:
            return staging.error(script_over(script, _NO_STREAM_OPTIONS), 400)
        if (early := staging.refusal(script, self._chooser.rng, _wall_clock)) is not None:
            return early
        if self._engine is not None and self._engine.full:
            return staging.error(script_over(Script(), PRESETS["overloaded"]), 503)
        if chosen.text is not None and script.echo:
            asked = msgspec.structs.replace(asked, text=chosen.text.strip())
        script = self._resolved(script, request.path, body, asked)
        if request.path.endswith("/embeddings"):
            return staging.embedded(script, asked, self._chooser.rng, as_base64=body.get("encoding_format") == "base64")
        if not asked.stream:
            return staging.whole(script, asked, self._chooser.rng)
        return staging.stream(script, asked, self._chooser.rng, engine=self._engine is not None)

    def _resolved(self, script: Script, path: str, body: dict[str, Any], asked: Asked) -> Script:
        """Replace what depends on the request: counted prompts and made-up words."""
        settings = self._settings
        if script.prompt_tokens is None:
            size = questions.prompt_bytes(path, body) // asked.prompts
            script = msgspec.structs.replace(script, prompt_tokens=questions.tokens_of(size, settings.bytes_per_token))
        if (wanted := script.output_tokens) is not None:
            if isinstance(wanted, Distribution):
                mark = zlib.crc32(f"{settings.seed}\n{asked.model}\n{asked.text}".encode())
                wanted = round(wanted.sample(random.Random(mark)))  # noqa: S311  the same request gets the same length
            if body.get("ignore_eos") and asked.cap is not None:
                wanted = asked.cap + 1
            least = body.get("min_tokens")
            count = min(max(wanted, least if isinstance(least, int) else 0), MAX_OUTPUT_TOKENS)
            if script.honour_max_tokens and asked.cap is not None:
                count = min(count, asked.cap + 1)  # one more is enough to end with `length`
            script = msgspec.structs.replace(
                script, pieces=questions.made_up(count, model=asked.model, text=asked.text, seed=settings.seed), echo=False
            )
        return script

    def _answer_control(self, request: ReceivedRequest) -> Playback:
        if self._control == "nobody" or (self._control == "loopback" and not request.local):
            return staging.json_answer({"error": {"message": "the control endpoints are for clients on the same machine"}}, status=403)
        return control.answer(self, request)

    # ── its own time ──

    def _take(self, settings: MockSettings) -> None:
        self._settings = settings
        self.default = settings.default
        self.scripts: Scripts = dict(settings.scripts)
        self.models = settings.models
        self._bearer = None if settings.api_key is None else f"Bearer {settings.api_key.reveal()}"
        if self._engine is None or settings.engine != self._engine.settings:
            self._engine = None if settings.engine is None else EngineDriver(settings.engine)

    def _elapsed_s(self) -> float:
        return time.monotonic() - self.started_at

    def _plan(self) -> None:
        """Set timers for the windows in which the port is closed."""
        self._forget_plans()
        loop = asyncio.get_running_loop()
        times = [(window.from_s, window.to_s) for window in self._settings.failures if refuses(window)]
        if (cold := self._settings.cold_start) is not None and cold.how == "refuse":
            times.append((0.0, cold.for_s))
        for from_s, to_s in times:
            if to_s is None:
                self._plans.append(loop.call_later(from_s, self.refuse))
            elif from_s > 0:
                self._plans.append(loop.call_later(from_s, self.refuse_for, to_s - from_s))
            else:
                self.refuse_for(to_s)

    def _forget_plans(self) -> None:
        for plan in self._plans:
            plan.cancel()
        self._plans.clear()

    def _close_idle(self, spare: int = 0) -> None:
        for connection in tuple(self.connections):
            if connection.idle and connection.number != spare:
                connection.close()

    def _engine_statistics(self) -> EngineStatistics:
        if self._engine is not None:
            return self._engine.statistics()
        running = sum(not connection.idle for connection in self.connections)  # the one that asks is not playing yet
        sent = sum(request.tokens_sent for request in self.requests if request.answered_at is None and request.client_left_at is None)
        return EngineStatistics(running=running, waiting=0, kv_usage_ratio=min(1.0, sent / _KV_TOKENS))


_NO_STREAM_OPTIONS: dict[str, object] = {
    "error": {
        "message": "Unrecognized request argument supplied: stream_options",
        "type": "invalid_request_error",
        "param": "stream_options",
        "code": "unsupported_parameter",
    }
}


def _misfit(misfit: Misfit) -> Playback:
    message: dict[str, object] = {"message": f"the mock was told something it does not know: {misfit}", "type": "invalid_request_error"}
    return staging.error(Script(error=message | {"param": None, "code": "mock_script"}), 400)


def _wall_clock() -> float:
    return datetime.now(UTC).timestamp()
