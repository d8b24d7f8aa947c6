"""Opening connections: base URLs, names, addresses in turn, the connect clock, TLS."""

from __future__ import annotations

import asyncio
import gc
import socket
import sys
from collections.abc import Iterator
from contextlib import ExitStack

import pytest
import uvloop
from tests.http.client.raw_server import OK, Peer, call, open_pool, raw_server, run

from tidegate.errors import ConfigurationError
from tidegate.http.client import PoolSettings, UpstreamPool
from tidegate.http.origin import Origin
from tidegate.http.resolve import MAX_ADDRESSES, AddressBook, Unresolved, interleaved
from tidegate.ports import CallFailureKind


async def answer_all(peer: Peer, _: int) -> None:
    await peer.answer_all()


# ── base URLs ─────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("url", "origin", "host_field"),
    [
        ("http://10.0.0.5:8000/v1", Origin("http", "10.0.0.5", 8000, "/v1"), "10.0.0.5:8000"),
        ("https://API.Example.com/v1/", Origin("https", "api.example.com", 443, "/v1"), "api.example.com"),
        ("http://[::1]:8000", Origin("http", "::1", 8000, ""), "[::1]:8000"),
        ("https://[2001:db8::1]/a/b", Origin("https", "2001:db8::1", 443, "/a/b"), "[2001:db8::1]"),
        ("http://model_server.internal:80/", Origin("http", "model_server.internal", 80, ""), "model_server.internal"),
    ],
)
def test_a_base_url_is_taken_apart(url: str, origin: Origin, host_field: str) -> None:
    """Expected scheme, host, port and prefix, and the port in `host` only where it is not the scheme's."""
    assert origin == Origin.parse(url)
    assert host_field == Origin.parse(url).host_field


@pytest.mark.parametrize(
    ("url", "advice"),
    [
        ("10.0.0.5:8000", "not http or https"),
        ("ftp://model.test", "not http or https"),
        ("http://", "not http or https"),
        ("http:///v1", "not http or https"),
        ("http://ann:hunter2@model.test/v1", "remove the part before the @"),
        ("http://model.test:99999/v1", "not a number from 1 to 65535"),
        ("http://model.test:http/v1", "not a number from 1 to 65535"),
        ("http://model.test:0/v1", "port 0"),
        ("http://model.test/v1?key=1", "query or fragment"),
        ("http://model.test/v1#x", "query or fragment"),
        ("http://model.test/v 1", "space"),
        ("http://model.test/v1\r\nx: y", "control character"),
        ("http://m\u00f6del.test/v1", "xn--"),
        ("http://[::1/v1", "not a URL"),
        ("http://-bad-.test%/v1", "neither a name nor an IP address"),
        ('http://model.test/a"b', "percent-encode"),
    ],
)
def test_a_bad_base_url_is_refused_with_advice_and_without_its_secret(url: str, advice: str) -> None:
    """Expected ConfigurationError that says what to write, and no password in it."""
    with pytest.raises(ConfigurationError) as caught:
        UpstreamPool(PoolSettings(base_url=url))
    assert advice in caught.value.message
    assert "hunter2" not in caught.value.message


# ── names and addresses ───────────────────────────────────────────────────────


def test_an_unresolvable_name_is_a_dns_failure_that_names_the_host() -> None:
    """Expected DNS with the name, the resolver's words and what to check."""

    async def main() -> None:
        async def lookup(_host: str, _port: int) -> list[tuple[str, int]]:
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

        async with open_pool("http://typo.test:8000/v1", lookup=lookup) as pool:
            failure = (await call(pool)).failure
            assert failure.kind is CallFailureKind.DNS
            for words in ("typo.test", "Name or service not known", "check the address"):
                assert words in failure.message

    run(main())


def test_the_system_resolver_knows_localhost() -> None:
    """Expected a call to `localhost` to arrive without a lookup of our own."""

    async def main() -> None:
        async with raw_server(answer_all) as server, open_pool(server.base_url(host="localhost")) as pool:
            assert (await call(pool)).body == b"ok"

    run(main())


def test_many_connections_share_one_lookup_and_its_answer_is_kept_for_a_while() -> None:
    """Expected one look-up for 50 connections at once and none for the next, until the time is over."""

    async def main() -> None:
        lookups = 0

        async def lookup(_host: str, port: int) -> list[tuple[str, int]]:
            nonlocal lookups
            lookups += 1
            await asyncio.sleep(0)
            return [("127.0.0.1", port)]

        async def close_each(peer: Peer, _: int) -> None:
            await peer.request()
            await peer.send(OK)

        async with raw_server(close_each) as server, open_pool(server.base_url(host="model.test"), lookup=lookup) as pool:
            await asyncio.gather(*(call(pool) for _ in range(50)))
            await call(pool)
            assert lookups == 1
            pool._book._expires_at = 0.0
            await asyncio.gather(*(call(pool) for _ in range(50)))
            assert lookups == 2

    run(main())


def test_a_lookup_outlives_the_call_that_began_it_and_serves_the_next() -> None:
    """Expected a second caller to join the running look-up instead of starting another."""

    async def main() -> None:
        lookups = 0
        answer = asyncio.Event()

        async def lookup(_host: str, port: int) -> list[tuple[str, int]]:
            nonlocal lookups
            lookups += 1
            await answer.wait()
            return [("127.0.0.1", port)]

        book = AddressBook("model.test", 80, lookup=lookup)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(book.addresses(), 0.01)
        waiting = asyncio.ensure_future(book.addresses())
        await asyncio.sleep(0)
        answer.set()
        assert await waiting == (("127.0.0.1", 80),)
        assert lookups == 1
        await book.aclose()

    run(main())


def test_an_empty_answer_is_unresolved_and_a_long_one_is_cut() -> None:
    """Expected a reason for no address, and at most eight to try."""

    async def main() -> None:
        found: list[tuple[str, int]] = []

        async def lookup(_host: str, _port: int) -> list[tuple[str, int]]:
            return found

        book = AddressBook("model.test", 80, lookup=lookup)
        assert isinstance(await book.addresses(), Unresolved)
        found.extend((f"10.0.0.{number}", 80) for number in range(100))
        addresses = await book.addresses()
        assert not isinstance(addresses, Unresolved)
        assert len(addresses) == MAX_ADDRESSES

    run(main())


def test_families_alternate_beginning_with_the_resolvers_choice() -> None:
    """Expected v6, v4, v6, v6 from three of one and one of the other, duplicates gone."""
    addresses = [("::1", 1), ("::2", 1), ("::2", 1), ("::3", 1), ("10.0.0.1", 1)]
    assert interleaved(addresses) == (("::1", 1), ("10.0.0.1", 1), ("::2", 1), ("::3", 1))
    assert interleaved([]) == ()


@pytest.fixture
def hole() -> Iterator[tuple[str, int]]:
    """Give an address that takes no more connections: its backlog is full, so that the next SYN gets no answer."""
    with ExitStack() as stack:
        listener = stack.enter_context(socket.socket())
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        for _ in range(8):
            filler = stack.enter_context(socket.socket())
            filler.setblocking(False)
            filler.connect_ex(listener.getsockname())
        probe = stack.enter_context(socket.socket())
        probe.settimeout(0.05)
        try:
            probe.connect(listener.getsockname())
        except TimeoutError:
            yield listener.getsockname()
        else:
            pytest.skip("this kernel accepts connections beyond the backlog")


def test_the_connect_clock_is_the_pools_and_says_where_the_time_went(hole: tuple[str, int]) -> None:
    """Expected CONNECT after connect_timeout_s, naming the address and the step."""

    async def main() -> None:
        async with open_pool(f"http://127.0.0.1:{hole[1]}/v1", connect_timeout_s=0.2) as pool:
            failure = (await call(pool)).failure
            assert failure.kind is CallFailureKind.CONNECT
            for words in ("within 0.2 s", f"connecting to 127.0.0.1:{hole[1]}"):
                assert words in failure.message

    run(main())


def test_a_dead_first_address_leaves_time_for_the_second_and_is_avoided_from_then_on(hole: tuple[str, int]) -> None:
    """Expected an answer by way of the second address, and no second wait for the first."""

    async def main() -> None:
        async with raw_server(answer_all) as server:

            async def lookup(_host: str, port: int) -> list[tuple[str, int]]:
                return [hole, ("127.0.0.1", port)]

            async with open_pool(server.base_url(host="model.test"), lookup=lookup, connect_timeout_s=2.0) as pool:
                assert (await call(pool)).body == b"ok"
                pool._idle[0].close()
                began_at = asyncio.get_running_loop().time()
                assert (await call(pool)).body == b"ok"
                assert asyncio.get_running_loop().time() - began_at < 0.9

    run(main())


def test_a_refusing_first_address_is_followed_by_the_second() -> None:
    """Expected the answer of the second address, and both reasons when neither takes a connection."""

    async def main() -> None:
        async with raw_server(answer_all) as server:
            with socket.socket() as unused:
                unused.bind(("127.0.0.2", 0))
                dead = unused.getsockname()
            second = "127.0.0.1"

            async def lookup(_host: str, port: int) -> list[tuple[str, int]]:
                return [dead, (second, port)]

            async with open_pool(server.base_url(host="model.test"), lookup=lookup) as pool:
                assert (await call(pool)).body == b"ok"
            second = "127.0.0.3"
            async with open_pool(server.base_url(host="model.test"), lookup=lookup) as pool:
                message = (await call(pool)).failure.message
                assert (
                    f"127.0.0.2:{dead[1]}: Connection refused" in message,
                    f"127.0.0.3:{server.port}: Connection refused" in message,
                ) == (
                    True,
                    True,
                )

    run(main())


def test_a_lookup_that_hangs_is_within_the_connect_clock() -> None:
    """Expected CONNECT that says the name was being looked up."""

    async def main() -> None:
        async def lookup(_host: str, _port: int) -> list[tuple[str, int]]:
            await asyncio.Event().wait()
            return []

        async with open_pool("http://slow.test/v1", lookup=lookup, connect_timeout_s=0.05) as pool:
            failure = (await call(pool)).failure
            assert (failure.kind, "looking up slow.test" in failure.message) == (CallFailureKind.CONNECT, True)

    run(main())


def test_an_unforeseen_fault_of_a_dial_fails_its_call_and_is_reported() -> None:
    """Expected a CONNECT failure without the fault's text, and the fault at the loop's exception hook."""

    async def main() -> None:
        async def lookup(_host: str, _port: int) -> list[tuple[str, int]]:
            raise ZeroDivisionError("a fault of ours")

        reported: list[object] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, context: reported.append(context.get("exception")))
        async with open_pool("http://model.test/v1", lookup=lookup) as pool:
            failure = (await call(pool)).failure
            assert (failure.kind, "a fault of ours" in failure.message) == (CallFailureKind.CONNECT, False)
            assert [type(problem) for problem in reported] == [ZeroDivisionError]

    run(main())


def test_ipv6_literals_are_reached() -> None:
    """Expected a call to [::1] to arrive, with the brackets in its host field."""

    async def main() -> None:
        seen: list[bytes] = []

        async def script(peer: Peer, _: int) -> None:
            seen.append(await peer.request())
            await peer.send(OK)

        async with raw_server(script, host="::1") as server, open_pool(server.base_url(host="[::1]")) as pool:
            assert (await call(pool)).body == b"ok"
            assert b"\r\nhost: [::1]:%d\r\n" % server.port in seen[0]

    if not _has_ipv6():
        pytest.skip("no IPv6 loopback here")
    run(main())


def _has_ipv6() -> bool:
    with socket.socket(socket.AF_INET6) as probe:
        try:
            probe.bind(("::1", 0))
        except OSError:
            return False
        return True


def test_the_other_event_loop_works_too() -> None:
    """Expected a call and a reuse on asyncio's own loop, which development on other systems needs."""

    async def main() -> None:
        async with raw_server(answer_all) as server, open_pool(server.base_url()) as pool:
            assert [(await call(pool)).body for _ in range(3)] == [b"ok"] * 3
            assert server.accepted == 1

    asyncio.run(main())


def test_a_connection_is_not_kept_alive_by_its_own_parser() -> None:
    """Expected a closed connection to be freed without the cycle collector."""

    async def main() -> None:
        gc_was_on = gc.isenabled()
        gc.disable()
        try:
            async with raw_server(answer_all) as server, open_pool(server.base_url()) as pool:
                await call(pool)
                (connection,) = pool._idle
                lost = connection.lost
                connection.close()
                await asyncio.wait_for(lost, 5)
                for _ in range(3):
                    await asyncio.sleep(0)
                # The name here and getrefcount's own argument are what is left.
                assert sys.getrefcount(connection) <= 3
        finally:
            if gc_was_on:
                gc.enable()

    uvloop.run(main())
