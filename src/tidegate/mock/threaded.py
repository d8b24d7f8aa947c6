"""A `ScriptedUpstream` on a thread of its own, for code that is not a coroutine or that talks to other processes.

Methods may be called from any thread but the upstream's; `requests` may be read at any time and grows while one looks.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from types import TracebackType
from typing import Any, Self, TypeVar

from tidegate.domain.units import Secret
from tidegate.mock.endpoint import Endpoint
from tidegate.mock.received import ReceivedRequest
from tidegate.mock.script import Script, Scripts
from tidegate.mock.server import ScriptedUpstream
from tidegate.mock.settings import MockSettings

T = TypeVar("T")
_START_S = 10.0  # a loopback listener opens in a millisecond; this is for a machine in trouble
_CALL_S = 5.0


class ThreadedUpstream:
    """Use as a context manager; takes the arguments of `ScriptedUpstream`."""

    def __init__(
        self,
        default: Script | None = None,
        *,
        models: tuple[str, ...] | None = None,
        api_key: str | None = None,
        keep_requests: int = 20_000,
        settings: MockSettings | None = None,
        on_departure: Callable[[ReceivedRequest], None] | None = None,
    ) -> None:
        self._inner = ScriptedUpstream(
            default, models=models, api_key=api_key, keep_requests=keep_requests, settings=settings, on_departure=on_departure
        )
        self._api_key = api_key
        self._first_settings = self._inner.settings()
        self._started: Future[asyncio.AbstractEventLoop] = Future()
        self._stop = asyncio.Event()
        self._thread = threading.Thread(target=self._run, name="scripted-upstream", daemon=True)

    @property
    def base_url(self) -> str:
        return self._inner.base_url

    @property
    def endpoint(self) -> Endpoint:
        """For a client that calls it directly."""
        return Endpoint(self.base_url, Secret(self._api_key or "none"))

    @property
    def requests(self) -> tuple[ReceivedRequest, ...]:
        return tuple(self._inner.requests)

    @property
    def open_connections(self) -> int:
        return len(self._inner.connections)

    @property
    def connections_opened(self) -> int:
        return self._inner.connections_opened

    @property
    def scripts(self) -> Scripts:
        return self._inner.scripts

    def script(self, *scripts: Script) -> None:
        """Queue scripts for the next calls, one each."""
        self._inner.script(*scripts)

    def set_default(self, script: Script) -> None:
        """Play this when nothing else is asked for, until `reset`."""
        self._inner.default = script

    def load(self, settings: MockSettings) -> None:
        """Do from now on what these say."""

        async def load() -> None:
            self._inner.load(settings)

        self._call(load(), _CALL_S)

    def reset(self) -> None:
        """Listen, forget what was scripted, loaded and received: the state right after the start, but for open connections."""

        async def reset() -> None:
            self._inner.reset()
            await self._inner.accept()
            self._inner.load(self._first_settings)

        self._call(reset(), _CALL_S)

    def refuse(self) -> None:
        """Stop listening until `accept` or `reset`."""

        async def refuse() -> None:
            self._inner.refuse()

        self._call(refuse(), _CALL_S)

    def refuse_for(self, seconds: float, *, backlog: bool = False, reset: bool = False) -> None:
        """See `ScriptedUpstream.refuse_for`."""

        async def refuse() -> None:
            self._inner.refuse_for(seconds, backlog=backlog, reset=reset)

        self._call(refuse(), _CALL_S)

    def accept(self) -> None:
        self._call(self._inner.accept(), _CALL_S)

    def wait_for(self, condition: Callable[[], bool], deadline_s: float) -> None:
        """Wait until `condition()`, called on the upstream's thread whenever a request or connection changes, holds."""
        self._call(self._inner.wait_for(condition, deadline_s), deadline_s + _CALL_S)

    def __enter__(self) -> Self:
        self._thread.start()
        self._started.result(_START_S)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._started.result().call_soon_threadsafe(self._stop.set)
        self._thread.join(_START_S)
        if self._thread.is_alive():
            raise AssertionError("the scripted upstream's thread did not end")

    def _call(self, work: Coroutine[Any, Any, T], deadline_s: float) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._started.result()).result(deadline_s)

    def _run(self) -> None:
        try:
            asyncio.run(self._serve())
        except BaseException as error:
            if self._started.done():
                raise
            self._started.set_exception(error)

    async def _serve(self) -> None:
        async with self._inner:
            self._started.set_result(asyncio.get_running_loop())
            await self._stop.wait()
