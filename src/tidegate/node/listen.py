"""Opens a worker's HTTP server on the socket it was given, and reports its figures."""

from __future__ import annotations

import socket
from pathlib import Path

from tidegate.adapters.metrics.figures import figures
from tidegate.config.schema import Configuration
from tidegate.http.server import HttpServer, ServerLimits, tls_context
from tidegate.node.worker import Worker

LEVELS = ("connections", "exchanges", "buffered_bytes")
"""Fields of `ServerStatistics` that tell of one moment; all others are counted since the start."""


class ApiServer:
    """A `node.worker.Listening` over `HttpServer`."""

    def __init__(self, server: HttpServer) -> None:
        self._server = server

    def stop_accepting(self) -> None:
        self._server.stop_accepting()

    async def wait_drained(self, deadline_s: float) -> bool:
        return await self._server.wait_drained(deadline_s)

    def abort_all(self) -> None:
        self._server.abort_all()

    def figures(self) -> tuple[dict[str, float], dict[str, float]]:
        return figures("server", self._server.statistics(), levels=LEVELS)


async def listen(worker: Worker, configuration: Configuration, listener: socket.socket) -> ApiServer:
    """Serve the worker's application; `ConfigurationError` when the certificate cannot be used."""
    section = configuration.server
    limits = ServerLimits(**{name: getattr(section, name) for name in ServerLimits.__struct_fields__})
    context = tls_context(Path(section.tls.certificate), Path(section.tls.key)) if section.tls is not None else None
    server = HttpServer(worker.application, limits)
    await server.start(sock=listener, ssl_context=context)
    return ApiServer(server)
