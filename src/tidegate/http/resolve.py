"""The addresses of one host: one look-up at a time, remembered for a short while, handed out in a sensible order.

Each pool has one host (the upstream's, or its proxy's), so the cache is one entry and at most one look-up is in flight however many
connections are being opened: both bounds hold by construction. A look-up runs in a thread that cannot be interrupted; a caller that
gives up leaves it running, and the next caller joins it instead of starting another.

Families alternate (RFC 8305, section 4), so that a host with many dead IPv6 addresses reaches IPv4 on the second try, and the address that
worked last comes first.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable, Sequence
from itertools import chain, zip_longest

import msgspec

from tidegate.http.origin import is_ip_literal

CACHE_TTL_S = 10.0
"""Short, because names of model servers move on failover and the TTL of the record is not available here; long enough that a
pool opening a thousand connections in a burst asks once."""

MAX_ADDRESSES = 8
"""Addresses tried per connection. More would leave each too little of the connect timeout to be a real try."""

SocketAddress = tuple[str, int]
Lookup = Callable[[str, int], Awaitable[Sequence[SocketAddress]]]
"""Gives the addresses of a host in order of preference, or raises `OSError`."""


class Unresolved(msgspec.Struct, frozen=True):
    """The host has no address; `reason` is the resolver's own words."""

    reason: str


class AddressBook:
    """Addresses of one host and port."""

    __slots__ = ("_addresses", "_expires_at", "_host", "_lookup", "_preferred", "_running", "_ttl_s", "port")

    def __init__(self, host: str, port: int, *, lookup: Lookup | None = None, ttl_s: float = CACHE_TTL_S) -> None:
        self._host = host
        self.port = port
        self._lookup = lookup or look_up
        self._ttl_s = ttl_s
        self._addresses: tuple[SocketAddress, ...] = ((host, port),) if is_ip_literal(host) else ()
        self._expires_at = float("inf") if self._addresses else 0.0
        self._preferred: SocketAddress | None = None
        self._running: asyncio.Task[tuple[SocketAddress, ...] | Unresolved] | None = None

    async def addresses(self) -> tuple[SocketAddress, ...] | Unresolved:
        """Give the addresses to try, in order. The caller brings the deadline."""
        loop = asyncio.get_running_loop()
        if loop.time() < self._expires_at:
            return self._in_order(self._addresses)
        if self._running is None:
            self._running = loop.create_task(self._look_up())
        found = await asyncio.shield(self._running)
        return found if isinstance(found, Unresolved) else self._in_order(found)

    def worked(self, address: SocketAddress) -> None:
        """Remember an address that took a connection, to begin with it next time."""
        self._preferred = address

    def failed(self) -> None:
        """Forget a name's addresses: none of them took a connection."""
        self._preferred = None
        if not is_ip_literal(self._host):
            self._expires_at = 0.0

    async def aclose(self) -> None:
        """Give up a running look-up."""
        if self._running is not None:
            self._running.cancel()
            await asyncio.gather(self._running, return_exceptions=True)

    async def _look_up(self) -> tuple[SocketAddress, ...] | Unresolved:
        try:
            found = interleaved(await self._lookup(self._host, self.port))[:MAX_ADDRESSES]
        except OSError as problem:
            return Unresolved(problem.strerror or str(problem))
        finally:
            self._running = None
        if not found:
            return Unresolved("the name exists but has no address")
        self._addresses = found
        self._expires_at = asyncio.get_running_loop().time() + self._ttl_s
        return found

    def _in_order(self, addresses: tuple[SocketAddress, ...]) -> tuple[SocketAddress, ...]:
        preferred = self._preferred
        if preferred is None or preferred not in addresses:
            return addresses
        return (preferred, *(address for address in addresses if address != preferred))


def interleaved(addresses: Sequence[SocketAddress]) -> tuple[SocketAddress, ...]:
    """Alternate between IPv6 and IPv4, beginning with the family that the resolver put first; duplicates are dropped."""
    unique = tuple(dict.fromkeys(addresses))
    if not unique:
        return ()
    first_is_v6 = ":" in unique[0][0]
    first = [address for address in unique if (":" in address[0]) is first_is_v6]
    second = [address for address in unique if (":" in address[0]) is not first_is_v6]
    return tuple(address for address in chain.from_iterable(zip_longest(first, second)) if address is not None)


async def look_up(host: str, port: int) -> Sequence[SocketAddress]:
    """Ask the system's resolver."""
    found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return [(str(address[4][0]), int(address[4][1])) for address in found]
