"""Serves the admin app with uvicorn on a socket of the supervisor's, in the supervisor's own loop and without touching its signals."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Iterator
from pathlib import Path

import uvicorn

from tidegate.adapters.keys.store import KeyStore
from tidegate.adapters.wall_clock import wall_clock
from tidegate.admin.app import AdminApp
from tidegate.admin.console.console import Console
from tidegate.admin.view import NodeDesk

CONNECTIONS = 100
"""A few scrapers and people; more are answered with 503."""
GRACE_S = 2
"""For requests running at the end."""
IDLE_S = 15
HEAD_BYTES = 16_384
TICK_S = 1.0
"""Until the `date` of the answers is written anew."""


class AdminServer:
    """`serve` runs until `stop`; the key database is made if it is missing, so that workers find one."""

    def __init__(self, node: NodeDesk, listener: socket.socket, keys: Path) -> None:
        self._listener = listener
        self._store = KeyStore(keys)
        self._console = Console(node, self._store, state_directory=keys.parent, wall_clock=wall_clock)
        app = AdminApp(node, self._store, wall_clock=wall_clock, door=self._console.door, more=self._console.routes())
        config = uvicorn.Config(
            app.build(),
            http="h11",
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
            proxy_headers=False,
            limit_concurrency=CONNECTIONS,
            timeout_keep_alive=IDLE_S,
            timeout_graceful_shutdown=GRACE_S,
            h11_max_incomplete_event_size=HEAD_BYTES,
        )
        self._server = _QuietServer(config)

    async def serve(self) -> None:
        try:
            async with asyncio.TaskGroup() as tasks:
                console = tasks.create_task(self._console.run(), name="console")
                await self._server.serve(sockets=[self._listener])
                console.cancel()
        finally:
            self._store.close()

    def stop(self) -> None:
        """Have `serve` return soon."""
        self._console.close()
        self._server.stop()


class _QuietServer(uvicorn.Server):
    """Leaves the process's signals to the supervisor, and looks up once a second, not ten times: a gateway at rest should rest."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self._stopping = asyncio.Event()

    def stop(self) -> None:
        self.should_exit = True
        self._stopping.set()

    async def main_loop(self) -> None:
        while not await self.on_tick(0):
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._stopping.wait(), TICK_S)

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield
