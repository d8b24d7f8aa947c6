"""The local engine as an upstream: one client for a worker's life, in every configuration, whichever process the engine is.

A call goes to the process that runs when it begins, with that one's key; so a request that began under an earlier configuration, or with
an earlier process, reaches the present one when it tries. Calls under way end with the process they went to.
"""

from __future__ import annotations

import asyncio
from typing import Final

from tidegate.adapters.engine.settings import EngineState
from tidegate.domain.header_lines import field_lines
from tidegate.domain.units import HeaderLines
from tidegate.gateway.owned_tasks import OwnedTasks
from tidegate.http.client import PoolSettings, UpstreamPool
from tidegate.http.client_request import OWNED
from tidegate.http.outbox import Outbox
from tidegate.ports import CallFailure, CallFailureKind, CallReceiver, UpstreamCall, UpstreamRequest
from tidegate.wiring.parts import bearer

LOOK_S: Final = 1.0
"""How often to look whether the calls to a former process have ended; they do so with it."""


class EngineClient:
    """Satisfies `ports.UpstreamClient`. Call `follow` at every change of the engine."""

    def __init__(self, outbox: Outbox | None = None) -> None:
        self._outbox = outbox
        self._tasks = OwnedTasks()
        self._place: EngineState | None = None
        self._lines: HeaderLines = b""
        self._former: set[UpstreamPool] = set()
        self.pool: UpstreamPool | None = None
        """To the present process; None before the first has an address."""

    def __repr__(self) -> str:
        return f"EngineClient({self.pool!r}, {len(self._former)} former)"

    def follow(self, state: EngineState) -> None:
        """Go to where the engine is now; a state without an address changes nothing."""
        place = self._place
        if state.base_url is None or (place is not None and (place.base_url, place.api_key) == (state.base_url, state.api_key)):
            return
        if self.pool is not None:
            self._former.add(self.pool)
            self._tasks.start(self._let_go(self.pool))
        self._place = state
        self._lines = field_lines(bearer(state.api_key), OWNED)
        self.pool = UpstreamPool(PoolSettings(base_url=state.base_url), self._outbox)

    def start(self, request: UpstreamRequest, receiver: CallReceiver) -> UpstreamCall:
        if self.pool is None:
            return _FailedCall(receiver)
        keyed = UpstreamRequest(request.method, request.path, request.headers, request.body, self._lines + request.lines)
        return self.pool.start(keyed, receiver)

    async def aclose(self) -> None:
        await self._tasks.aclose()
        pools = [*self._former, self.pool] if self.pool is not None else [*self._former]
        await asyncio.gather(*(pool.aclose() for pool in pools))

    async def _let_go(self, pool: UpstreamPool) -> None:
        while (counts := pool.statistics()).in_use or counts.waiting:  # noqa: ASYNC110  rare
            await asyncio.sleep(LOOK_S)
        await pool.aclose()
        self._former.discard(pool)


class _FailedCall:
    """A call that fails in the next turn of the loop, as every client promises."""

    def __init__(self, receiver: CallReceiver) -> None:
        failure = CallFailure(CallFailureKind.CONNECT, "the local engine has not started yet; look at its lines in the log")
        self._failing = asyncio.get_running_loop().call_soon(receiver.call_failed, failure)

    def cancel(self) -> None:
        self._failing.cancel()

    def pause(self) -> None: ...
    def resume(self) -> None: ...
