"""Opens the listening addresses in the supervisor, so that they outlive any worker.

Each worker has its own socket on the API's address (`SO_REUSEPORT`, the kernel spreads connections). That option would also let a second
gateway, or any other program of the same user, share the port unnoticed; so the address is first tried without it, and a port in use is
an error.
"""

from __future__ import annotations

import errno
import socket
from collections.abc import Sequence

import msgspec

from tidegate.errors import ConfigurationError

BACKLOG = 1024
"""Connections the kernel holds while a worker is busy or restarting; the kernel caps it at `net.core.somaxconn`."""


class Address(msgspec.Struct, frozen=True):
    """A host and port together with the names of the settings they came from, for errors."""

    host: str
    port: int
    section: str

    def url(self, port: int, *, scheme: str = "http") -> str:
        """Give the address a client on this machine would use."""
        host = {"": "127.0.0.1", "*": "127.0.0.1", "0.0.0.0": "127.0.0.1", "::": "[::1]"}.get(self.host, self.host)  # noqa: S104  compared, not bound
        return f"{scheme}://{f'[{host}]' if ':' in host and not host.startswith('[') else host}:{port}"


def open_shared(address: Address, count: int) -> list[socket.socket]:
    """Open one socket per worker on one address; port 0 takes a free port for all of them. `ConfigurationError` says what to change."""
    probe = _bind(address, address.port, shared=False)
    port = int(probe.getsockname()[1])
    probe.close()
    sockets: list[socket.socket] = []
    try:
        for _ in range(count):
            sockets.append(_bind(address, port, shared=True))  # noqa: PERF401  a comprehension would leak the first ones when a later fails
    except ConfigurationError:
        close_all(sockets)
        raise
    return sockets


def open_single(address: Address) -> socket.socket:
    """Open one listening socket on an address."""
    listener = _bind(address, address.port, shared=False)
    listener.listen(BACKLOG)
    return listener


def close_all(sockets: Sequence[socket.socket]) -> None:
    for each in sockets:
        each.close()


def port_of(listener: socket.socket) -> int:
    return int(listener.getsockname()[1])


def _bind(address: Address, port: int, *, shared: bool) -> socket.socket:
    family, resolved = _resolve(address, port)
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.setblocking(False)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if shared:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        if family == socket.AF_INET6:
            listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        listener.bind(resolved)
    except OSError as error:
        listener.close()
        raise ConfigurationError(_explain(error, address, port), param=f"{address.section}.port") from error
    return listener


def _resolve(address: Address, port: int) -> tuple[int, tuple[str, int] | tuple[str, int, int, int]]:
    host = None if address.host in {"", "*"} else address.host
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except OSError as error:
        raise ConfigurationError(
            f"The address {address.host!r} cannot be resolved ({error.strerror}). "
            f"Set {address.section}.host to an address of this machine, for example 127.0.0.1.",
            param=f"{address.section}.host",
        ) from error
    family, _, _, _, resolved = found[0]
    if len(resolved) == 2:  # noqa: PLR2004  IPv4: host and port
        return family, (str(resolved[0]), int(resolved[1]))
    return family, (str(resolved[0]), int(resolved[1]), int(resolved[2]), int(resolved[3]))


def _explain(error: OSError, address: Address, port: int) -> str:
    where = f"{address.host or '*'}:{port}"
    if error.errno == errno.EADDRINUSE:
        return (
            f"Port {port} on {address.host or '*'} is in use by another process, perhaps an earlier Tidegate. "
            f"Stop it (`ss -ltnp 'sport = :{port}'` shows it), or choose another port with "
            f"{'--admin-port' if address.section == 'admin' else '--port'} or {address.section}.port (0 takes a free one)."
        )
    if error.errno == errno.EACCES:
        return f"{where} may not be opened by this user: ports below 1024 need a privilege. Set {address.section}.port to 1024 or higher."
    if error.errno == errno.EADDRNOTAVAIL:
        return f"{address.host} is no address of this machine. Set {address.section}.host to one that is, or to 0.0.0.0 for all."
    return f"{where} cannot be opened ({error.strerror}). Check {address.section}.host and {address.section}.port."
