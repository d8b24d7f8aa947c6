"""Opens a worker's HTTP server on the socket it was given, keeps its limits those of the configuration, and reports its figures.

A worker that is one of several serves the same application to the others, on a Unix socket: a client may return to any of them.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from pathlib import Path

from tidegate.adapters.metrics.figures import figures
from tidegate.config.schema import Configuration
from tidegate.http.server import HttpServer, ServerLimits, tls_context
from tidegate.node.descriptors import allow_files, shortage, wanted_files
from tidegate.node.worker import Served

LEVELS = ("connections", "exchanges", "buffered_bytes")
"""Fields of `ServerStatistics` that tell of one moment; all others are counted since the start."""

_LOG = logging.getLogger("tidegate.node.worker")


class ApiServer:
    """A `node.worker.Listening` over `HttpServer`."""

    def __init__(self, server: HttpServer, private: HttpServer | None = None) -> None:
        self._server = server
        self._private = private
        """For the other workers; what it serves is counted where the client is."""

    def reconfigure(self, configuration: Configuration) -> None:
        """Take up the limits of a reloaded configuration, and room for the files that its connections need."""
        self._server.update_limits(_limits(configuration))
        if self._private is not None:
            self._private.update_limits(_limits(configuration))
        lacking = shortage(configuration, allow_files(wanted_files(configuration)))
        if lacking is not None:
            _LOG.warning("worker.few_files %s", lacking)

    def stop_accepting(self) -> None:
        self._server.stop_accepting()
        if self._private is not None:
            self._private.stop_accepting()

    async def wait_drained(self, deadline_s: float) -> bool:
        servers = [server for server in (self._server, self._private) if server is not None]
        return all(await asyncio.gather(*(server.wait_drained(deadline_s) for server in servers)))

    def abort_all(self) -> None:
        self._server.abort_all()
        if self._private is not None:
            self._private.abort_all()

    def figures(self) -> tuple[dict[str, float], dict[str, float]]:
        return figures("server", self._server.statistics(), levels=LEVELS)


async def listen(worker: Served, configuration: Configuration, listener: socket.socket) -> ApiServer:
    """Serve the worker's application; `ConfigurationError` when the certificate cannot be used."""
    section = configuration.server
    context = tls_context(Path(section.tls.certificate), Path(section.tls.key)) if section.tls is not None else None
    server = HttpServer(worker.application, _limits(configuration), worker.outbox)
    await server.start(sock=listener, ssl_context=context)
    if worker.peer_socket is None:
        return ApiServer(server)
    private = HttpServer(worker.application, _limits(configuration), worker.outbox)
    await private.start(path=worker.peer_socket)
    return ApiServer(server, private)


def _limits(configuration: Configuration) -> ServerLimits:
    return ServerLimits(**{name: getattr(configuration.server, name) for name in ServerLimits.__struct_fields__})
