"""What the connections of one server share: the application, limits, counters, deadlines and the date line."""

from __future__ import annotations

import asyncio
from email.utils import formatdate
from typing import TYPE_CHECKING

from tidegate.domain.error_object import encode_error
from tidegate.errors import Overloaded
from tidegate.http.deadlines import Deadlines
from tidegate.http.head_memory import HeadMemory
from tidegate.http.outbox import Outbox
from tidegate.http.response_head import CLOSE, status_line
from tidegate.http.server_limits import ServerLimits, ServerStatistics
from tidegate.ports import Application

if TYPE_CHECKING:
    from tidegate.http.server_connection import ServerConnection
    from tidegate.http.server_socket import ServerSocket


class ServerState:
    """Mutable on purpose and owned by one `HttpServer`; its connections count themselves in it."""

    __slots__ = (
        "accepted",
        "application",
        "buffered_bytes",
        "clients_left",
        "connections",
        "date_line",
        "deadlines",
        "draining",
        "empty",
        "exchanges",
        "head_memory",
        "limits",
        "loop",
        "malformed",
        "outbox",
        "overloaded_response",
        "refused_bodies",
        "rejected",
        "requests",
        "slow_readers",
        "timed_out",
    )

    def __init__(
        self, application: Application, limits: ServerLimits, loop: asyncio.AbstractEventLoop, outbox: Outbox | None = None
    ) -> None:
        self.application = application
        self.take_limits(limits)
        self.loop = loop
        self.head_memory = HeadMemory()
        self.outbox = outbox or Outbox(loop)
        self.deadlines: Deadlines[ServerSocket] = Deadlines(loop.time())
        self.connections: set[ServerConnection] = set()
        self.draining = False
        self.empty = asyncio.Event()
        self.date_line = b""
        self.refresh_date()
        self.exchanges = 0
        self.buffered_bytes = 0
        self.accepted = 0
        self.rejected = 0
        self.requests = 0
        self.malformed = 0
        self.refused_bodies = 0
        self.timed_out = 0
        self.slow_readers = 0
        self.clients_left = 0

    def take_limits(self, limits: ServerLimits) -> None:
        """Use these bounds from now on; a deadline that is running keeps its time."""
        self.limits = limits
        self.overloaded_response = _overloaded_response(limits.max_connections)

    def refresh_date(self) -> None:
        """Take the wall clock's second; called by the sweep, so that no response formats a date."""
        self.date_line = b"date: %b\r\n" % formatdate(usegmt=True).encode()

    def statistics(self) -> ServerStatistics:
        return ServerStatistics(
            connections=len(self.connections),
            exchanges=self.exchanges,
            buffered_bytes=self.buffered_bytes,
            accepted_connections=self.accepted,
            rejected_connections=self.rejected,
            requests=self.requests,
            malformed=self.malformed,
            refused_bodies=self.refused_bodies,
            timed_out=self.timed_out,
            slow_readers=self.slow_readers,
            clients_left=self.clients_left,
        )


def _overloaded_response(max_connections: int) -> bytes:
    body = encode_error(
        Overloaded(
            f"This gateway has its {max_connections} connections open already. Retry in a moment, "
            "or ask the operator to raise server.max_connections."
        )
    )
    return b"".join(
        (
            status_line(503),
            b"content-type: application/json\r\nretry-after: 1\r\n",
            b"content-length: %d\r\n" % len(body),
            CLOSE,
            b"\r\n",
            body,
        )
    )
