"""The HTTP/1.1 server: a listener, its connections, one sweep for all their deadlines, and an orderly end.

There is no task and no timer per request or connection: one callback each `TICK_S` looks at the connections that are due. At the end:
`stop_accepting`, then `wait_drained`, then `abort_all` for what is left.
"""

from __future__ import annotations

import asyncio
import os
import socket
import ssl
from functools import partial
from pathlib import Path
from typing import Final

from tidegate.errors import ConfigurationError
from tidegate.http.deadlines import TICK_S
from tidegate.http.outbox import Outbox
from tidegate.http.server_connection import ServerConnection
from tidegate.http.server_limits import ServerLimits, ServerStatistics
from tidegate.http.server_state import ServerState
from tidegate.ports import Application

__all__ = ["HttpServer", "ServerLimits", "ServerStatistics", "tls_context"]

_BACKLOG: Final = 2048
"""Connections the kernel completes before they are accepted; a burst of clients larger than this waits one SYN retry."""

_LISTENERS: Final = 16
"""Duplicates of the listening socket in the loop. libuv accepts one connection of each in a turn: where turns are long, because many
streams flow, a burst of clients would wait for as many turns as it has clients."""

_DUE_AT_ONCE: Final = 500
"""Connections ended in one sweep (some 5 ms of work), so that ten thousand idle ones do not stall the streams beside them."""

_TLS_SHUTDOWN_S: Final = 5.0
_OWNER_ONLY: Final = 0o600


class HttpServer:
    """Serves `application` on one listening socket; two servers can live in one process."""

    def __init__(self, application: Application, limits: ServerLimits, outbox: Outbox | None = None) -> None:
        """`outbox` is the loop's (default: one of its own)."""
        self._application = application
        self._outbox = outbox
        self._limits = limits
        self._state: ServerState | None = None
        self._listeners: list[asyncio.AbstractServer] = []
        self._sweep: asyncio.TimerHandle | None = None
        self._port = 0
        self._path: Path | None = None

    async def start(
        self,
        *,
        sock: socket.socket | None = None,
        host: str | None = None,
        port: int = 0,
        path: Path | None = None,
        ssl_context: ssl.SSLContext | None = None,
    ) -> None:
        """Listen on `sock`, already bound (it is closed by `stop_accepting`), on the Unix socket `path`, which is made for this user alone,
        or else on `host` and `port` (0 takes a free one)."""
        if self._state is not None:
            raise AssertionError("start() was called before; make another HttpServer")
        loop = asyncio.get_running_loop()
        self._state = state = ServerState(self._application, self._limits, loop, self._outbox)
        handshake_s = self._limits.header_timeout_s if ssl_context is not None else None
        shutdown_s = _TLS_SHUTDOWN_S if ssl_context is not None else None
        if path is not None:
            self._listeners = [await loop.create_unix_server(lambda: ServerConnection(state), str(path), backlog=_BACKLOG)]
            path.chmod(_OWNER_ONLY)  # noqa: ASYNC240  one system call, at the start
            self._path = path
            self._sweep = loop.call_later(TICK_S, self._look_at_due, state)
            return
        listen = partial(
            loop.create_server,
            lambda: ServerConnection(state),
            ssl=ssl_context,
            backlog=_BACKLOG,
            ssl_handshake_timeout=handshake_s,
            ssl_shutdown_timeout=shutdown_s,
        )
        first = await (listen(sock=sock) if sock is not None else listen(host, port))
        self._listeners = [first]
        while len(self._listeners) < _LISTENERS:
            self._listeners.append(await listen(sock=socket.socket(fileno=os.dup(first.sockets[0].fileno()))))
        self._port = first.sockets[0].getsockname()[1]
        self._sweep = loop.call_later(TICK_S, self._look_at_due, state)

    @property
    def port(self) -> int:
        """The port listened on; 0 before `start`."""
        return self._port

    def update_limits(self, limits: ServerLimits) -> None:
        """Use other bounds from now on: connections and requests to come meet them, and deadlines that are running keep their time.

        A TLS handshake keeps the `header_timeout_s` of the start, which is built into the listener.
        """
        self._limits = limits
        if self._state is not None:
            self._state.take_limits(limits)

    def stop_accepting(self) -> None:
        """Close the listener and idle connections; running exchanges go on, and their responses carry `connection: close`."""
        state = self._state
        if state is None or not self._listeners:
            return
        for listener in self._listeners:
            listener.close()
        self._listeners.clear()
        if self._path is not None:
            self._path.unlink(missing_ok=True)
        state.draining = True
        now = state.loop.time()
        for connection in tuple(state.connections):
            connection.drain(now)
        if not state.connections:
            state.empty.set()

    async def wait_drained(self, deadline_s: float) -> bool:
        """Wait until every connection is closed, at most `deadline_s`; say whether every exchange ended. Call `stop_accepting` first."""
        state = self._state
        if state is None:
            return True
        try:
            async with asyncio.timeout(deadline_s):
                await state.empty.wait()
        except TimeoutError:
            return state.exchanges == 0
        return True

    def abort_all(self) -> None:
        """Close everything at once; exchanges still running hear `client_left`."""
        self.stop_accepting()
        state = self._state
        if state is None:
            return
        for connection in tuple(state.connections):
            connection.abort()
        if self._sweep is not None:
            self._sweep.cancel()

    def statistics(self) -> ServerStatistics:
        if self._state is None:
            raise AssertionError("statistics() before start()")
        return self._state.statistics()

    def __repr__(self) -> str:
        return f"<HttpServer port={self._port} {self._state.statistics() if self._state is not None else 'not started'}>"

    def _look_at_due(self, state: ServerState) -> None:
        now = state.loop.time()
        state.refresh_date()
        for connection in state.deadlines.due(now, at_most=_DUE_AT_ONCE):
            if connection.deadline <= now:  # ending one may have moved another's
                connection.expire(now)
        if not state.draining or state.connections:
            self._sweep = state.loop.call_later(TICK_S, self._look_at_due, state)


def tls_context(certificate: Path, key: Path) -> ssl.SSLContext:
    """Make the context of an HTTPS listener: TLS 1.2 or later, ALPN `http/1.1`. Raises `ConfigurationError`."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.options |= ssl.OP_NO_RENEGOTIATION
    context.set_alpn_protocols(["http/1.1"])
    try:
        context.load_cert_chain(certificate, key)
    except (OSError, ssl.SSLError) as error:
        raise ConfigurationError(
            f"The TLS certificate {certificate} with key {key} cannot be used: {error}. "
            "Both must be readable PEM files that belong together; see server.tls."
        ) from error
    return context
