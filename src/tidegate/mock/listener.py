"""The listening socket: opened, closed for a time, or left open while nobody accepts."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable

_BACKLOG = 4096
_RETRY_S = 0.1
"""Until the port is tried again when somebody else has taken it meanwhile."""


class Listener:
    """Listens on one address. After `close` and `open` the port is the same."""

    def __init__(self, host: str, port: int, connect: Callable[[], asyncio.Protocol]) -> None:
        self.port = port
        """0 until the first `open`, when any may be taken."""
        self._host = host
        self._connect = connect
        self._socket: socket.socket | None = None
        self._server: asyncio.Server | None = None
        self._due: asyncio.TimerHandle | None = None
        self._opening: asyncio.Task[None] | None = None

    @property
    def accepting(self) -> bool:
        return self._server is not None

    async def open(self) -> None:
        """Listen and accept; raises `OSError` when the address cannot be taken."""
        self._forget_plans()
        if self._server is not None:
            return
        if self._socket is None:
            family = socket.AF_INET6 if ":" in self._host else socket.AF_INET
            self._socket = socket.create_server((self._host, self.port), family=family, backlog=_BACKLOG)
            self._socket.setblocking(False)
            self.port = self._socket.getsockname()[1]
        held = self._socket
        server = await asyncio.get_running_loop().create_server(self._connect, sock=held.dup(), backlog=_BACKLOG)
        if self._socket is not held or self._server is not None:
            server.close()  # closed or opened by somebody else while we waited
            return
        self._server = server

    def close(self, *, backlog: bool = False) -> None:
        """Stop. Connecting fails from now on; with `backlog` the system still connects clients, whom nobody answers."""
        self._forget_plans()
        if self._server is not None:
            self._server.close()
            self._server = None
        if self._socket is not None and not backlog:
            self._socket.close()
            self._socket = None

    def close_for(self, seconds: float, *, backlog: bool = False) -> None:
        """Stop, and listen again after a time."""
        self.close(backlog=backlog)
        self._due = asyncio.get_running_loop().call_later(seconds, self._reopen)

    def _reopen(self) -> None:
        self._due = None
        self._opening = asyncio.get_running_loop().create_task(self._try_to_open())

    async def _try_to_open(self) -> None:
        self._opening = None
        try:
            await self.open()
        except OSError:
            self._due = asyncio.get_running_loop().call_later(_RETRY_S, self._reopen)

    def _forget_plans(self) -> None:
        if self._due is not None:
            self._due.cancel()
            self._due = None
        if self._opening is not None:
            self._opening.cancel()
            self._opening = None
