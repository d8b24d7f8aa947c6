"""Calls to another process of this machine, over its Unix socket: one connection per call, closed with it.

For what is rare and near: a worker asks another for a stream. It needs no pool, no names and no TLS.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Final

from tidegate.http.client_call import Call
from tidegate.http.client_connection import ClientConnection
from tidegate.http.client_request import RequestEncoder
from tidegate.http.origin import Origin
from tidegate.ports import CallFailure, CallFailureKind, CallReceiver, UpstreamRequest

CONNECT_S: Final = 2.0
"""A process of this machine accepts at once, unless it is stuck."""
MAX_CALLS: Final = 1000
"""At one time, each with a socket of its own; as many as a pool has connections."""


class LocalClient:
    """Satisfies `ports.UpstreamClient`."""

    max_head_bytes = 65_536
    via_proxy = False

    def __init__(self, path: Path) -> None:
        self.label = path.name
        self._path = path
        self._encoder = RequestEncoder(Origin.parse("http://localhost"), None)
        self._calls: set[asyncio.Task[CallFailure | None]] = set()
        """Dials under way."""
        self._connections: set[ClientConnection] = set()

    def __repr__(self) -> str:
        return f"LocalClient({self.label}, {len(self._connections)} open)"

    def start(self, request: UpstreamRequest, receiver: CallReceiver) -> Call:
        """Begin a call. The receiver hears nothing before this returns."""
        head, body = self._encoder.encode(request)
        call = Call(self, receiver, head, body, is_head=False)
        call.dial = asyncio.get_running_loop().create_task(self._dial(call))
        self._calls.add(call.dial)
        call.dial.add_done_callback(self._calls.discard)
        return call

    async def aclose(self) -> None:
        for connection in tuple(self._connections):
            connection.close()
        for dial in self._calls:
            dial.cancel()
        await asyncio.gather(*self._calls, return_exceptions=True)

    async def _dial(self, call: Call) -> CallFailure | None:
        loop = asyncio.get_running_loop()
        connection = ClientConnection(self, loop)
        failure: CallFailure | None = None
        if len(self._connections) + len(self._calls) > MAX_CALLS:
            failure = CallFailure(CallFailureKind.POOL_FULL, f"{MAX_CALLS} calls to {self.label} run already")
        else:
            failure = await self._connect(connection, loop)
        if failure is not None:
            call.fail(failure)
        else:
            self._connections.add(connection)
            connection.begin(call)
        return failure

    async def _connect(self, connection: ClientConnection, loop: asyncio.AbstractEventLoop) -> CallFailure | None:
        try:
            async with asyncio.timeout(CONNECT_S):
                await loop.create_unix_connection(lambda: connection, str(self._path))
        except TimeoutError:
            return CallFailure(CallFailureKind.CONNECT, f"{self.label} did not accept a connection within {CONNECT_S:g} s; is it stuck?")
        except OSError as problem:
            return CallFailure(CallFailureKind.CONNECT, f"{self.label} cannot be reached ({problem.strerror}); has that process ended?")
        return None

    # ── for the calls and their connections ───────────────────────────────────

    def withdraw(self, call: Call) -> None:
        """Forget a cancelled call that has no connection yet."""
        if call.dial is not None:
            call.dial.cancel()

    def connection_freed(self, connection: ClientConnection) -> None:
        connection.close()

    def connection_ended(self, connection: ClientConnection, again: Call | None) -> None:
        del again  # only a connection that served before asks for it
        self._connections.discard(connection)
