"""The connection pool of one upstream.

A call takes the idle connection used last; without one it waits, first come first served, while a connection is opened for it if the limit
allows. Whichever connection is free first, opened or given back, goes to the call that waits longest; so a call never waits for a slow
connect while others finish.

Invariants:
* `start` never calls its receiver: everything, refusals included, comes in a later turn of the loop. Each receiver gets exactly one final
  call, and none after `cancel`.
* Connections open or being opened are at most `max_connections`; calls waiting beyond those for which one is being opened are at most
  `max_waiting`. A call waits only if no connection is idle.
* The pool owns every task and socket that it opened: after `aclose` none is left.

Sending again: when a connection that served before ends ahead of the first byte of the answer, the request is sent once more, on a fresh
connection, and nobody is told. Servers close idle connections, and one that does so while a request is on its way has not read it
(RFC 9112, 9.3.1; every HTTP client that reuses connections has this race). The connection alone cannot tell this from a server that read
the request and died at once; then the model may be asked twice. That is safe enough here: the calls of a model API change nothing at the
server, and the first answer is lost with its connection. What can be wasted is one prompt's computing, once; for it is never done twice for
one call (the second connection is fresh), and never after a byte of the answer. `call_connected` is told once; if the second connection
cannot be opened, the failure to connect comes after it.

Of the five clocks only connecting is the pool's (`connect_timeout_s`: name, TCP, proxy and TLS together). The others are the caller's, who
calls `cancel`; that closes the socket at once, so that the server stops working.
"""

from __future__ import annotations

import asyncio
import ssl
from collections import deque
from typing import Any

import msgspec

from tidegate.http.answer_memory import MAX_HEAD_BYTES, AnswerMemory
from tidegate.http.client_call import Call
from tidegate.http.client_connect import Dialer
from tidegate.http.client_connection import ClientConnection
from tidegate.http.client_fetch import Response, fetch
from tidegate.http.client_request import RequestEncoder
from tidegate.http.client_tls import upstream_context
from tidegate.http.origin import Origin
from tidegate.http.outbox import Outbox
from tidegate.http.proxy import ProxyServer, proxy_from_environment, without_userinfo
from tidegate.http.resolve import AddressBook, Lookup
from tidegate.ports import CallFailure, CallFailureKind, CallReceiver, UpstreamRequest

__all__ = ["PoolSettings", "PoolStatistics", "Response", "UpstreamPool", "fetch", "proxy_from_environment"]

CLOSING_S = 5.0
"""Longest wait of `aclose` for the loop to let go of aborted sockets, which takes it one turn."""


class PoolSettings(msgspec.Struct, frozen=True):
    """Where the upstream is and how many connections it gets. Durations in seconds."""

    base_url: str
    max_connections: int = 1000
    max_waiting: int = 1000
    """Calls that may wait for a connection: one whole turn of the default pool. A call further back would only wait out its connect clock,
    holding its body all the while."""
    idle_timeout_s: float = 30.0
    connect_timeout_s: float = 5.0
    verify_tls: bool = True
    max_head_bytes: int = 65_536
    proxy: str | None = None

    def __repr__(self) -> str:
        proxy = without_userinfo(self.proxy) if self.proxy else None
        return f"PoolSettings({self.base_url!r}, max_connections={self.max_connections}, max_waiting={self.max_waiting}, proxy={proxy!r})"

    def __rich_repr__(self) -> list[tuple[str, Any]]:
        """Give the same to pretty printers, which would read the fields themselves."""
        return [("base_url", self.base_url), ("proxy", without_userinfo(self.proxy) if self.proxy else None)]


class PoolStatistics(msgspec.Struct, frozen=True):
    """One pool at one instant; from `connects` on, totals since it was made."""

    open: int
    idle: int
    in_use: int
    connecting: int
    waiting: int
    connects: int
    connect_failures: int
    reused: int
    """Calls that began on a connection used before."""
    retried_unused: int
    """Calls sent again because their connection had died unused."""
    refused_full: int
    expired: int
    """Connections closed after `idle_timeout_s`."""
    lost_idle: int
    """Connections that the server closed, or spoke on, while they were idle."""


class Dial(msgspec.Struct, frozen=True):
    """A connection being opened: for one call, or (None) for whichever waits longest by then."""

    connection: ClientConnection
    call: Call | None


class UpstreamPool:
    """Connections to one upstream; satisfies `ports.UpstreamClient`. Belongs to the event loop in which it is first used."""

    def __init__(
        self,
        settings: PoolSettings,
        outbox: Outbox | None = None,
        *,
        ssl_context: ssl.SSLContext | None = None,
        lookup: Lookup | None = None,
    ) -> None:
        """Check the settings. `outbox` is the loop's (default: one of its own); `ssl_context` replaces the one made from `verify_tls`;
        `lookup` replaces the system's resolver."""
        origin = Origin.parse(settings.base_url)
        proxy = ProxyServer.parse(settings.proxy) if settings.proxy else None
        tls = origin.scheme == "https"
        if tls and ssl_context is None:
            ssl_context = upstream_context(verify=settings.verify_tls)
        self.settings = settings
        self.label = origin.label
        self.via_proxy = proxy is not None and not tls
        self.max_head_bytes = settings.max_head_bytes
        self._encoder = RequestEncoder(origin, proxy if self.via_proxy else None)
        reached = proxy or origin
        self._book = AddressBook(reached.host, reached.port, lookup=lookup)
        self._dialer = Dialer(
            origin, proxy, ssl_context=ssl_context if tls else None, book=self._book, timeout_s=settings.connect_timeout_s
        )
        # A head of theirs is too short to be over the bound, whatever else is counted to it.
        self._answers = AnswerMemory() if self.max_head_bytes >= 2 * MAX_HEAD_BYTES else None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._outbox = outbox
        self._connections: set[ClientConnection] = set()
        self._idle: list[ClientConnection] = []
        """Used last at the end; so the longest idle is first."""
        self._waiting: deque[Call] = deque()
        self._dials: dict[asyncio.Task[CallFailure | None], Dial] = {}
        self._leaving: set[asyncio.Task[CallFailure | None]] = set()
        """Cancelled dials that have not ended yet."""
        self._queue_dials = 0
        """Dials for whoever waits, not for a certain call."""
        self._sweeper: asyncio.TimerHandle | None = None
        self._closed = False
        self._connects = self._connect_failures = self._reused = self._retried = self._refused = self._expired = self._lost_idle = 0

    # ── calls ────────────────────────────────────────────────────────────────

    def start(self, request: UpstreamRequest, receiver: CallReceiver) -> Call:
        """Begin a call. The receiver hears nothing before this returns."""
        head, body = self._encoder.encode(request)
        call = Call(self, receiver, head, body, is_head=request.method == "HEAD")
        idle = self._idle
        while idle:
            connection = idle.pop()
            if connection.is_quiet():
                self._reused += 1
                connection.begin(call)
                return call
            self._lost_idle += 1
            connection.close()
        self._queue(call)
        return call

    def withdraw(self, call: Call) -> None:
        """Forget a cancelled call that has no connection, and stop the dial that it no longer needs."""
        if call.dial is not None:
            self._stop_dial(call.dial)
        elif call in self._waiting:
            index = self._waiting.index(call)
            del self._waiting[index]
            if self._queue_dials > len(self._waiting):
                for_queue = [task for task, dial in self._dials.items() if dial.call is None]
                self._stop_dial(for_queue[min(index, len(for_queue) - 1)])

    def _queue(self, call: Call) -> None:
        loop = self._loop
        if loop is None:
            loop = self._loop = asyncio.get_running_loop()
            self._outbox = self._outbox or Outbox(loop)
        if self._closed:
            loop.call_soon(call.fail, self._closed_failure())
        elif not self._has_room() and len(self._waiting) - self._queue_dials >= self.settings.max_waiting:
            self._refused += 1
            message = (
                f"all {self.settings.max_connections} connections to {self.label} are busy and {self.settings.max_waiting} calls wait "
                "already; raise max_connections if that server can do more, or send it less"
            )
            loop.call_soon(call.fail, CallFailure(CallFailureKind.POOL_FULL, message))
        else:
            self._waiting.append(call)
            self._replenish()

    # ── connections ──────────────────────────────────────────────────────────

    def connection_freed(self, connection: ClientConnection) -> None:
        """Give a usable connection to the call that waits longest, or keep it."""
        connection.used = True
        if self._waiting:
            self._reused += 1
            connection.begin(self._waiting.popleft())
            return
        loop = self._running_loop()
        connection.idle_since = loop.time()
        self._idle.append(connection)
        if self._sweeper is None:
            self._sweeper = loop.call_later(self.settings.idle_timeout_s, self._sweep)

    def connection_ended(self, connection: ClientConnection, again: Call | None) -> None:
        """Forget a closed connection. The call `again`, if any, gets a fresh one in its place; then the queue is looked after."""
        self._connections.discard(connection)
        if connection in self._idle:
            self._idle.remove(connection)
            self._lost_idle += 1
        if again is not None:
            self._retried += 1
            again.dial = self._dial(again)
        if not self._closed:
            self._replenish()

    def _sweep(self) -> None:
        """Close what has been idle for too long, and come back when the next one is due."""
        loop = self._running_loop()
        self._sweeper = None
        idle = self._idle
        overdue_since = loop.time() - self.settings.idle_timeout_s
        expired = [connection for connection in idle if connection.idle_since <= overdue_since]
        del idle[: len(expired)]
        self._expired += len(expired)
        for connection in expired:
            connection.close()
        if idle:
            self._sweeper = loop.call_at(idle[0].idle_since + self.settings.idle_timeout_s, self._sweep)

    # ── opening ──────────────────────────────────────────────────────────────

    def _has_room(self) -> bool:
        return len(self._connections) + len(self._dials) < self.settings.max_connections

    def _replenish(self) -> None:
        """Open a connection for each call that waits without one being opened, as far as the limit allows."""
        while len(self._waiting) > self._queue_dials and self._has_room():
            self._queue_dials += 1
            self._dial(None)

    def _dial(self, call: Call | None) -> asyncio.Task[CallFailure | None]:
        loop = self._running_loop()
        connection = ClientConnection(self, loop, self._outbox, self._answers)
        task = loop.create_task(self._dialer.dial(connection), name=f"connect {self.label}")
        self._dials[task] = Dial(connection, call)
        task.add_done_callback(self._dial_ended)
        return task

    def _stop_dial(self, task: asyncio.Task[CallFailure | None]) -> None:
        """Cancel a dial; from now on it counts as gone, for its socket closes within this turn or the next."""
        dial = self._dials.pop(task)
        self._leaving.add(task)
        if dial.call is None:
            self._queue_dials -= 1
        task.cancel()
        dial.connection.close()

    def _dial_ended(self, task: asyncio.Task[CallFailure | None]) -> None:
        dial = self._dials.pop(task, None)
        if dial is None:
            self._leaving.discard(task)
            return
        if dial.call is None:
            self._queue_dials -= 1
        failure = self._failure_of(task, dial.connection)
        if failure is None:
            self._connects += 1
            self._connections.add(dial.connection)
            if dial.call is not None:
                dial.call.dial = None
                dial.connection.begin(dial.call)
            elif self._waiting:
                dial.connection.begin(self._waiting.popleft())
            else:
                self.connection_freed(dial.connection)
            return
        self._connect_failures += 1
        call = dial.call
        if call is None and len(self._waiting) > self._queue_dials:
            call = self._waiting.popleft()
        dial.connection.close()
        self._replenish()
        if call is not None:
            call.fail(failure)

    def _failure_of(self, task: asyncio.Task[CallFailure | None], connection: ClientConnection) -> CallFailure | None:
        problem = task.exception()
        if problem is not None:
            self._running_loop().call_exception_handler(
                {"message": f"connecting to {self.label} failed unforeseen", "exception": problem, "task": task}
            )
            return CallFailure(CallFailureKind.CONNECT, f"connecting to {self.label} hit a fault of the gateway; its log has the details")
        failure = task.result()
        if failure is None and connection.closed:
            message = f"{self.label} accepted a connection and closed it at once; look at that server's log"
            return connection.refusal or CallFailure(CallFailureKind.CONNECT, message)
        return failure

    def _running_loop(self) -> asyncio.AbstractEventLoop:
        loop = self._loop
        assert loop is not None
        return loop

    # ── the whole ────────────────────────────────────────────────────────────

    def statistics(self) -> PoolStatistics:
        """Count, for metrics and tests."""
        return PoolStatistics(
            open=len(self._connections),
            idle=len(self._idle),
            in_use=len(self._connections) - len(self._idle),
            connecting=len(self._dials),
            waiting=len(self._waiting),
            connects=self._connects,
            connect_failures=self._connect_failures,
            reused=self._reused,
            retried_unused=self._retried,
            refused_full=self._refused,
            expired=self._expired,
            lost_idle=self._lost_idle,
        )

    async def aclose(self) -> None:
        """Fail every call that is not over, close every socket, end every task. Safe to repeat."""
        self._closed = True
        if self._sweeper is not None:
            self._sweeper.cancel()
            self._sweeper = None
        failure = self._closed_failure()
        calls = [*self._waiting, *(dial.call for dial in self._dials.values() if dial.call is not None)]
        self._waiting.clear()
        for task in [*self._dials]:
            self._stop_dial(task)
        self._idle.clear()
        connections = [*self._connections]
        for connection in connections:
            connection.fail(failure)
        for call in calls:
            call.fail(failure)
        await asyncio.gather(*self._leaving, return_exceptions=True)
        await self._book.aclose()
        if connections:
            await asyncio.wait([connection.lost for connection in connections], timeout=CLOSING_S)

    def _closed_failure(self) -> CallFailure:
        return CallFailure(
            CallFailureKind.CONNECT, f"the pool of {self.label} is closed, because the gateway is stopping; send the request again"
        )

    def __repr__(self) -> str:
        counts = self.statistics()
        held = f"{counts.in_use} in use, {counts.idle} idle, {counts.connecting} connecting"
        return f"<UpstreamPool {self.label}: {held}, {counts.waiting} calls waiting>"
