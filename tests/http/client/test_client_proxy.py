"""Proxies: which one the environment asks for, and calls through a small one."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.http.client.raw_server import OK, Peer, RawServer, call, open_pool, post, raw_server, run

from tidegate.errors import ConfigurationError
from tidegate.http.client import PoolSettings, UpstreamPool, proxy_from_environment
from tidegate.http.proxy import MAX_CONNECT_HEAD_BYTES, ProxyServer, is_exempt, without_userinfo
from tidegate.ports import CallFailureKind

P, Q = "http://proxy.test:3128", "http://other.test:3128"

# ── the environment ───────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("base_url", "environ", "expected"),
    [
        ("http://model.test/v1", {}, None),
        ("http://model.test/v1", {"HTTP_PROXY": P}, P),
        ("http://model.test/v1", {"http_proxy": P, "HTTP_PROXY": Q}, P),
        ("http://model.test/v1", {"HTTPS_PROXY": P}, None),
        ("https://model.test/v1", {"HTTPS_PROXY": P, "HTTP_PROXY": Q}, P),
        ("https://model.test/v1", {"https_proxy": P}, P),
        ("https://model.test/v1", {"ALL_PROXY": P}, P),
        ("https://model.test/v1", {"all_proxy": P, "HTTPS_PROXY": Q}, Q),
        ("http://model.test/v1", {"HTTP_PROXY": P, "REQUEST_METHOD": "GET"}, None),
        ("http://model.test/v1", {"http_proxy": P, "REQUEST_METHOD": "GET"}, P),
        ("https://model.test/v1", {"HTTPS_PROXY": P, "REQUEST_METHOD": "GET"}, P),
        ("http://model.test/v1", {"HTTP_PROXY": "  "}, None),
        ("http://model.test/v1", {"HTTP_PROXY": P, "NO_PROXY": "model.test"}, None),
        ("http://model.test/v1", {"HTTP_PROXY": P, "no_proxy": "elsewhere.test"}, P),
        ("http://localhost:8000/v1", {"HTTP_PROXY": P}, None),
        ("http://127.0.0.1:8000/v1", {"HTTP_PROXY": P}, None),
        ("http://[::1]:8000/v1", {"ALL_PROXY": P}, None),
    ],
)
def test_the_environment_names_the_proxy(base_url: str, environ: Mapping[str, str], expected: str | None) -> None:
    """Expected the scheme's variable, lower case first, then all_proxy, minus exceptions and a CGI client's header."""
    assert expected == proxy_from_environment(base_url, environ)


@pytest.mark.parametrize(
    ("host", "port", "no_proxy", "expected"),
    [
        ("model.test", 80, "*", True),
        ("model.test", 80, "", False),
        ("model.test", 80, "model.test", True),
        ("MODEL.test.", 80, "Model.Test", True),
        ("a.model.test", 80, "model.test", True),
        ("a.model.test", 80, ".model.test", True),
        ("a.model.test", 80, "*.model.test", True),
        ("notmodel.test", 80, "model.test", False),
        ("model.test", 80, "a.model.test", False),
        ("model.test", 80, "x.test, model.test:80", True),
        ("model.test", 443, "model.test:80", False),
        ("model.test", 443, "x.test model.test", True),
        ("10.1.2.3", 80, "10.0.0.0/8", True),
        ("11.1.2.3", 80, "10.0.0.0/8", False),
        ("10.1.2.3", 80, "10.1.2.3", True),
        ("10.1.2.3", 80, "10.1.2.3:8000", False),
        ("10.1.2.3", 80, "2.3", False),
        ("model.test", 80, "10.0.0.0/8", False),
        ("2001:db8::1", 80, "2001:db8::/32", True),
        ("2001:db8::1", 80, "2001:DB8:0::1", True),
        ("2001:db8::1", 80, "[2001:db8::1]:80", True),
        ("2001:db8::1", 81, "[2001:db8::1]:80", False),
        ("10.1.2.3", 80, "10.0.0.0/99,nonsense/", False),
        ("model.test", 80, ".,,*.", False),
        ("api.localhost", 80, "", True),
    ],
)
def test_no_proxy_covers_names_suffixes_ports_and_networks(host: str, port: int, no_proxy: str, *, expected: bool) -> None:
    """Expected the entries to be read as curl and Go read them."""
    assert expected == is_exempt(host, port, no_proxy)


@given(no_proxy=st.text(alphabet="*.:/[]01ab,- ", max_size=40), host=st.sampled_from(["model.test", "10.1.2.3", "2001:db8::1"]))
def test_law_no_value_of_no_proxy_breaks_the_start(no_proxy: str, host: str) -> None:
    """Expected a verdict for any text an environment may hold."""
    assert is_exempt(host, 80, no_proxy) in {True, False}


@pytest.mark.parametrize(
    ("url", "advice"),
    [
        ("socks5://ann:hunter2@proxy.test:1080", "not http or https"),
        ("https://ann:hunter2@proxy.test:3128", "only http:// proxies"),
        ("http://ann:hunter2@proxy.test:0", "port 0"),
        ("http://ann:hunter2@", "neither a name nor an IP address"),
        ("http://ann: hunter2@proxy.test", "space"),
    ],
)
def test_a_bad_proxy_is_refused_without_showing_its_password(url: str, advice: str) -> None:
    """Expected ConfigurationError with advice, at the pool's construction."""
    with pytest.raises(ConfigurationError) as caught:
        UpstreamPool(PoolSettings(base_url="http://model.test", proxy=url))
    assert advice in caught.value.message
    assert "hunter2" not in caught.value.message


def test_a_proxy_may_be_written_without_scheme_and_its_userinfo_is_decoded() -> None:
    """Expected `host:port` to mean http, and percent-escapes in the password to be undone."""
    assert ProxyServer.parse("proxy.test:3128") == ProxyServer("proxy.test", 3128)
    proxy = ProxyServer.parse("http://ann:p%40ss@[::1]:3128")
    assert proxy.authorization is not None
    assert (proxy.authorization.reveal(), proxy.label) == ("Basic YW5uOnBAc3M=", "http://[::1]:3128")
    assert "p@ss" not in repr(proxy)
    assert without_userinfo("ann:x@proxy.test") == "****@proxy.test"


# ── a small proxy ─────────────────────────────────────────────────────────────


class SmallProxy:
    """Forwards CONNECT tunnels to one port, or answers with `answer`, and keeps what it was sent."""

    def __init__(self, target_port: int = 0, answer: bytes = b"HTTP/1.1 200 Connection established\r\n\r\n") -> None:
        self.target_port = target_port
        self.answer = answer
        self.heads: list[bytes] = []

    async def script(self, peer: Peer, _: int) -> None:
        head = await peer.request()
        self.heads.append(head)
        await peer.send(self.answer)
        if not self.target_port:
            await peer.client_closed()
            return
        reader, writer = await asyncio.open_connection("127.0.0.1", self.target_port)
        try:
            async with asyncio.TaskGroup() as both_ways:
                both_ways.create_task(_pump(peer.reader, writer))
                both_ways.create_task(_pump(reader, peer.writer))
        finally:
            writer.transport.abort()


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while piece := await reader.read(65_536):
            writer.write(piece)
            await writer.drain()
    except ConnectionError:
        pass
    finally:
        writer.transport.abort()


@asynccontextmanager
async def small_proxy(proxy: SmallProxy) -> AsyncIterator[RawServer]:
    async with raw_server(proxy.script) as server:
        yield server


def test_plain_http_goes_to_the_proxy_in_absolute_form_with_credentials() -> None:
    """Expected the whole URL in the request line, the upstream in host, and the connection kept."""

    async def main() -> None:
        heads: list[bytes] = []

        async def script(peer: Peer, _: int) -> None:
            while request := await peer.request():
                heads.append(request)
                await peer.send(OK)

        async with (
            raw_server(script) as server,
            open_pool("http://model.test:8000/v1", proxy=f"http://ann:secret@127.0.0.1:{server.port}") as pool,
        ):
            assert [(await call(pool)).body for _ in range(2)] == [b"ok", b"ok"]
            assert server.accepted == 1
            assert heads[0].startswith(
                b"POST http://model.test:8000/v1/chat/completions HTTP/1.1\r\n"
                b"host: model.test:8000\r\nproxy-authorization: Basic YW5uOnNlY3JldA==\r\n"
            )

    run(main())


def test_a_407_to_a_plain_request_is_the_proxys_and_not_the_upstreams() -> None:
    """Expected PROXY, with where to put the credentials."""

    async def main() -> None:
        async def script(peer: Peer, _: int) -> None:
            await peer.answer_all(b"HTTP/1.1 407 Proxy Authentication Required\r\ncontent-length: 0\r\n\r\n")

        async with raw_server(script) as server, open_pool("http://model.test/v1", proxy=f"127.0.0.1:{server.port}") as pool:
            recorder = await call(pool)
            assert (recorder.failure.kind, "user name and password" in recorder.failure.message) == (CallFailureKind.PROXY, True)
            assert 407 not in recorder.events

    run(main())


def test_https_goes_through_a_tunnel_and_the_certificate_is_the_upstreams(self_signed: tuple[ssl.SSLContext, ssl.SSLContext]) -> None:
    """Expected CONNECT with host and credentials, then TLS checked against the upstream's name, and the tunnel reused."""

    async def main() -> None:
        serving, trusting = self_signed
        heads: list[bytes] = []

        async def script(peer: Peer, _: int) -> None:
            while request := await peer.request():
                heads.append(request)
                await peer.send(OK)

        async with raw_server(script, tls=serving) as server:
            proxy = SmallProxy(server.port)
            async with (
                small_proxy(proxy) as reached,
                open_pool("https://model.test/v1", ssl_context=trusting, proxy=f"http://ann:secret@127.0.0.1:{reached.port}") as pool,
            ):
                assert [(await call(pool, post(b"x" * 100_000))).body for _ in range(2)] == [b"ok", b"ok"]
                assert proxy.heads == [
                    b"CONNECT model.test:443 HTTP/1.1\r\nhost: model.test:443\r\nproxy-authorization: Basic YW5uOnNlY3JldA==\r\n\r\n"
                ]
                assert heads[0].startswith(b"POST /v1/chat/completions HTTP/1.1\r\nhost: model.test\r\n")
                assert b"proxy-authorization" not in heads[0]

    run(main())


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (b"HTTP/1.1 407 Proxy Authentication Required\r\n\r\n", "user name and password"),
        (b"HTTP/1.1 403 Forbidden\r\n\r\n", "with 403"),
        (b"HTTP/1.1 200 OK\r\n\r\nsurplus", "before it was used"),
        (b"SSH-2.0-OpenSSH\r\n\r\n", "no HTTP/1.1 head"),
        (b"HTTP/1.1 200 OK\r\nx: " + b"v" * MAX_CONNECT_HEAD_BYTES, "no HTTP/1.1 head"),
    ],
)
def test_a_proxy_that_does_not_open_the_tunnel_is_named(answer: bytes, words: str) -> None:
    """Expected PROXY with the proxy's address, the upstream's and the reason, without credentials."""

    async def main() -> None:
        proxy = SmallProxy(answer=answer)
        async with (
            small_proxy(proxy) as reached,
            open_pool("https://model.test/v1", proxy=f"http://ann:hunter2@127.0.0.1:{reached.port}") as pool,
        ):
            failure = (await call(pool)).failure
            assert failure.kind is CallFailureKind.PROXY
            for expected in (words, f"http://127.0.0.1:{reached.port}", "https://model.test:443"):
                assert expected in failure.message
            assert "hunter2" not in failure.message

    run(main())


def test_a_proxy_that_closes_instead_of_answering_is_named() -> None:
    """Expected PROXY, not a reset and not a hang."""

    async def main() -> None:
        async def script(peer: Peer, _: int) -> None:
            await peer.request()

        async with raw_server(script) as server, open_pool("https://model.test/v1", proxy=f"127.0.0.1:{server.port}") as pool:
            failure = (await call(pool)).failure
            assert (failure.kind, "closed the connection" in failure.message) == (CallFailureKind.PROXY, True)

    run(main())


def test_a_proxy_that_never_answers_is_within_the_connect_clock() -> None:
    """Expected CONNECT that says the proxy kept silent."""

    async def main() -> None:
        proxy = SmallProxy(answer=b"")
        async with (
            small_proxy(proxy) as reached,
            open_pool("https://model.test/v1", proxy=f"127.0.0.1:{reached.port}", connect_timeout_s=0.1) as pool,
        ):
            failure = (await call(pool)).failure
            assert (failure.kind, "waiting for the proxy" in failure.message) == (CallFailureKind.CONNECT, True)

    run(main())


def test_a_proxy_that_is_not_there_or_has_no_address_is_a_proxy_failure() -> None:
    """Expected PROXY that points at the proxy variables, not at base_url."""

    async def main() -> None:
        async with raw_server(SmallProxy().script) as server:
            port = server.port
        async with open_pool("http://model.test/v1", proxy=f"127.0.0.1:{port}") as pool:
            failure = (await call(pool)).failure
            assert (failure.kind, "cannot be reached" in failure.message) == (CallFailureKind.PROXY, True)

        async def lookup(_host: str, _port: int) -> list[tuple[str, int]]:
            raise OSError(0, "no such name")

        async with open_pool("http://model.test/v1", proxy="http://proxy.test:3128", lookup=lookup) as pool:
            failure = (await call(pool)).failure
            assert (failure.kind, "proxy.test" in failure.message) == (CallFailureKind.PROXY, True)

    run(main())
