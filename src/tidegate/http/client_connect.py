"""Open one connection to an upstream: name, TCP, proxy tunnel, TLS, all within one budget of time.

A failure is a value that says which step failed, at which address and why. Whatever ends a dial early (time, cancellation, a failed step),
its socket is closed before `dial` returns.
"""

from __future__ import annotations

import asyncio
import os
import socket
import ssl
from typing import Protocol, cast

from tidegate.http.client_tls import explain
from tidegate.http.origin import Origin
from tidegate.http.proxy import ProxyServer, TunnelOpening
from tidegate.http.resolve import AddressBook, SocketAddress, Unresolved
from tidegate.ports import CallFailure, CallFailureKind


class Attachable(Protocol):
    """A protocol that can take over an open transport."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None: ...

    def data_received(self, data: bytes) -> None: ...

    def eof_received(self) -> bool | None: ...

    def connection_lost(self, exc: Exception | None) -> None: ...


class DialProgress:
    """Which step a dial is in, for the message when its time is up."""

    __slots__ = ("step",)

    def __init__(self) -> None:
        self.step = "starting"


class Opening(asyncio.Protocol):
    """Hold a TCP connection until its user takes over. A server that speaks or closes in that moment is noted."""

    __slots__ = ("ended", "spoke")

    def __init__(self) -> None:
        self.spoke = False
        self.ended = False

    def data_received(self, data: bytes) -> None:  # noqa: ARG002  the Protocol's signature
        self.spoke = True

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002  as above
        self.ended = True


class Dialer:
    """Opens connections of one pool."""

    __slots__ = ("_book", "_origin", "_proxy", "_ssl_context", "_timeout_s")

    def __init__(
        self, origin: Origin, proxy: ProxyServer | None, *, ssl_context: ssl.SSLContext | None, book: AddressBook, timeout_s: float
    ) -> None:
        self._origin = origin
        self._proxy = proxy
        self._ssl_context = ssl_context
        self._book = book
        self._timeout_s = timeout_s

    async def dial(self, connection: Attachable) -> CallFailure | None:
        """Attach an open connection to `connection` (its `connection_made` is called), or say why there is none."""
        progress = DialProgress()
        try:
            async with asyncio.timeout(self._timeout_s):
                return await self._open(connection, progress)
        except TimeoutError:
            self._book.failed()
            return CallFailure(
                CallFailureKind.CONNECT,
                f"no connection to {self._origin.label} within {self._timeout_s:g} s: time ran out while {progress.step}; "
                "check that the address is right and that nothing between drops the packets",
            )

    async def _open(self, connection: Attachable, progress: DialProgress) -> CallFailure | None:
        addresses = await self._resolve(progress)
        if isinstance(addresses, CallFailure):
            return addresses
        opened = await self._connect(addresses, progress)
        if isinstance(opened, CallFailure):
            return opened
        transport, opening = opened
        attached = False
        try:
            failure = await self._attach(transport, opening, connection, progress)
            attached = failure is None
        finally:
            if not attached:
                transport.abort()
        return failure

    async def _attach(
        self, transport: asyncio.Transport, opening: Opening | TunnelOpening, connection: Attachable, progress: DialProgress
    ) -> CallFailure | None:
        """Go from an open TCP connection to one that carries requests."""
        label = self._origin.label
        if isinstance(opening, TunnelOpening):
            failure = await self._await_tunnel(opening, progress)
            if failure is not None:
                return failure
        elif opening.ended:
            return CallFailure(CallFailureKind.CONNECT, f"{label} accepted a connection and closed it at once; look at that server's log")
        elif opening.spoke:
            return CallFailure(CallFailureKind.PROTOCOL, f"{label} spoke before it was asked, so it is no HTTP server; check base_url")
        if self._ssl_context is not None:
            return await self._start_tls(transport, connection, self._ssl_context, progress)
        transport.set_protocol(cast("asyncio.Protocol", connection))
        connection.connection_made(transport)
        return None

    async def _resolve(self, progress: DialProgress) -> tuple[SocketAddress, ...] | CallFailure:
        host = self._proxy.host if self._proxy else self._origin.host
        progress.step = f"looking up {host}"
        addresses = await self._book.addresses()
        if not isinstance(addresses, Unresolved):
            return addresses
        if self._proxy:
            return CallFailure(
                CallFailureKind.PROXY,
                f"the proxy's name {host} cannot be resolved ({addresses.reason}); check the proxy variables of the environment",
            )
        return CallFailure(
            CallFailureKind.DNS,
            f"the host name {host} cannot be resolved ({addresses.reason}); check the address for a typo, and this machine's DNS",
        )

    def _opening(self) -> Opening | TunnelOpening:
        if self._proxy is not None and self._ssl_context is not None:
            return TunnelOpening(self._origin, self._proxy)
        return Opening()

    async def _connect(
        self, addresses: tuple[SocketAddress, ...], progress: DialProgress
    ) -> tuple[asyncio.Transport, Opening | TunnelOpening] | CallFailure:
        """Try the addresses in turn, each with a fair share of the time that is left; the last may use it up."""
        loop = asyncio.get_running_loop()
        ends_at = loop.time() + self._timeout_s
        reasons: list[str] = []
        for index, (host, port) in enumerate(addresses):
            where = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
            progress.step = f"connecting to {'the proxy ' if self._proxy else ''}{'; '.join([where, *reasons])}"
            left = len(addresses) - index
            try:
                async with asyncio.timeout((ends_at - loop.time()) / left if left > 1 else None):
                    transport, opening = await loop.create_connection(self._opening, host, port)
            except TimeoutError:
                reasons.append(f"{where} did not answer")
            except OSError as problem:
                reasons.append(f"{where}: {_reason(problem)}")
            else:
                self._book.worked((host, port))
                transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
                return transport, opening
        self._book.failed()
        tried = "; ".join(reasons)
        if self._proxy:
            return CallFailure(
                CallFailureKind.PROXY,
                f"the proxy {self._proxy.label} for {self._origin.label} cannot be reached ({tried}); "
                "check that it runs, and the proxy variables of the environment",
            )
        return CallFailure(
            CallFailureKind.CONNECT,
            f"{self._origin.label} cannot be reached ({tried}); check that the server runs and listens on this port",
        )

    async def _await_tunnel(self, tunnel: TunnelOpening, progress: DialProgress) -> CallFailure | None:
        label = self._proxy.label if self._proxy else ""
        progress.step = f"waiting for the proxy {label} to answer CONNECT"
        reason = await tunnel.opened
        return CallFailure(CallFailureKind.PROXY, f"the proxy {label} for {self._origin.label} {reason}") if reason else None

    async def _start_tls(
        self, tcp: asyncio.Transport, connection: Attachable, context: ssl.SSLContext, progress: DialProgress
    ) -> CallFailure | None:
        host = self._origin.host
        progress.step = f"shaking hands by TLS with {self._origin.label}"
        try:
            # The dial's own timeout ends first; the loop's must only not come before it.
            transport = await asyncio.get_running_loop().start_tls(
                tcp, cast("asyncio.Protocol", connection), context, server_hostname=host, ssl_handshake_timeout=self._timeout_s + 1.0
            )
        except OSError as problem:
            return CallFailure(CallFailureKind.TLS, f"no TLS with {self._origin.label} (host name {host}): {explain(problem)}")
        if transport is None or transport.is_closing():
            return CallFailure(CallFailureKind.TLS, f"no TLS with {self._origin.label}: the server closed during the handshake")
        connection.connection_made(transport)
        return None


def _reason(problem: OSError) -> str:
    """Give the system's words for an error number; the loops wrap them differently."""
    return os.strerror(problem.errno) if problem.errno else str(problem)
