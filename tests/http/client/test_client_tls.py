"""TLS towards upstreams: what is trusted, what is refused, and how that is told."""

from __future__ import annotations

import asyncio
import ssl
from pathlib import Path

import pytest
from tests.http.client.certificates import Authority
from tests.http.client.raw_server import Peer, Recorder, call, get, open_pool, post, raw_server, run

from tidegate.http.client_tls import upstream_context
from tidegate.ports import CallFailureKind


async def answer_all(peer: Peer, _: int) -> None:
    await peer.answer_all()


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1"])
def test_a_trusted_server_is_called_by_tls_with_its_name_and_alpn(authority: Authority, host: str) -> None:
    """Expected answers over one connection, SNI for a name (never for an address) and `http/1.1` agreed on."""

    async def main() -> None:
        agreed: list[str | None] = []
        asked: list[str | None] = []
        authority.server_context.sni_callback = lambda _, name, __: asked.append(name)

        async def script(peer: Peer, _: int) -> None:
            agreed.append(peer.writer.get_extra_info("ssl_object").selected_alpn_protocol())
            await peer.answer_all()

        async with (
            raw_server(script, tls=authority.server_context) as server,
            open_pool(server.base_url("https", host), ssl_context=authority.trusting()) as pool,
        ):
            assert [(await call(pool, post(b"x" * 200_000))).body for _ in range(3)] == [b"ok"] * 3
            assert (server.accepted, agreed) == (1, ["http/1.1"])
            assert asked == (["localhost"] if host == "localhost" else [None])

    run(main())


def test_an_untrusted_server_is_a_tls_failure_that_says_which_and_why(authority: Authority) -> None:
    """Expected TLS with host, the verifier's words and what to do; nothing sent."""

    async def main() -> None:
        seen: list[bytes] = []

        async def script(peer: Peer, _: int) -> None:
            seen.append(await peer.request())

        async with raw_server(script, tls=authority.server_context) as server, open_pool(server.base_url("https", "localhost")) as pool:
            failure = (await call(pool)).failure
            assert failure.kind is CallFailureKind.TLS
            for words in ("localhost", "certificate is not accepted", "unable to get local issuer certificate", "SSL_CERT_FILE"):
                assert words in failure.message
            assert [request for request in seen if request] == []

    run(main())


def test_a_certificate_for_another_name_is_refused(authority: Authority) -> None:
    """Expected TLS although the CA is trusted, naming the host that was wanted."""

    async def main() -> None:
        async def lookup(_host: str, port: int) -> list[tuple[str, int]]:
            return [("127.0.0.1", port)]

        async with (
            raw_server(answer_all, tls=authority.server_context) as server,
            open_pool(server.base_url("https", "other.test"), ssl_context=authority.trusting(), lookup=lookup) as pool,
        ):
            failure = (await call(pool)).failure
            assert (failure.kind, "other.test" in failure.message, "mismatch" in failure.message) == (CallFailureKind.TLS, True, True)

    run(main())


def test_verification_can_be_turned_off(authority: Authority) -> None:
    """Expected the untrusted server to be called with verify_tls false."""

    async def main() -> None:
        async with (
            raw_server(answer_all, tls=authority.server_context) as server,
            open_pool(server.base_url("https", "localhost"), verify_tls=False) as pool,
        ):
            assert (await call(pool)).body == b"ok"

    run(main())


def test_https_to_a_plain_server_says_so() -> None:
    """Expected TLS with the hint that the port does not speak it."""

    async def main() -> None:
        async def script(peer: Peer, _: int) -> None:
            await peer.send(b"HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n\r\n")
            await peer.client_closed()

        async with raw_server(script) as server, open_pool(server.base_url("https")) as pool:
            failure = (await call(pool)).failure
            assert (failure.kind, "does not speak TLS" in failure.message) == (CallFailureKind.TLS, True)

    run(main())


def test_a_server_that_closes_during_the_handshake_is_a_tls_failure() -> None:
    """Expected TLS, not a hang and not a reset of a call that never began."""

    async def main() -> None:
        async def script(peer: Peer, _: int) -> None:
            await peer.reader.read(1)

        async with raw_server(script) as server, open_pool(server.base_url("https")) as pool:
            failure = (await call(pool)).failure
            assert (failure.kind, "during the handshake" in failure.message) == (CallFailureKind.TLS, True)

    run(main())


def test_a_handshake_that_hangs_is_within_the_connect_clock() -> None:
    """Expected CONNECT that says TLS was being set up, and the server to see the close."""

    async def main() -> None:
        closed = asyncio.Event()

        async def script(peer: Peer, _: int) -> None:
            await peer.client_closed()
            closed.set()

        async with raw_server(script) as server, open_pool(server.base_url("https"), connect_timeout_s=0.1) as pool:
            failure = (await call(pool)).failure
            assert (failure.kind, "TLS" in failure.message) == (CallFailureKind.CONNECT, True)
            await asyncio.wait_for(closed.wait(), 5)

    run(main())


def test_tls_connections_notice_the_servers_close_and_serve_until_close_bodies(authority: Authority) -> None:
    """Expected the end of the connection to end the body, and a cut one to be a reset."""

    async def main() -> None:
        async def script(peer: Peer, number: int) -> None:
            await peer.request()
            await peer.send(b"HTTP/1.1 200 OK\r\n\r\nto the end" if number == 0 else b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\ncut")

        async with (
            raw_server(script, tls=authority.server_context) as server,
            open_pool(server.base_url("https"), ssl_context=authority.trusting()) as pool,
        ):
            whole = await call(pool)
            assert (whole.events, whole.body) == (["connected", 200, "ended"], b"to the end")
            assert (await call(pool)).failure.kind is CallFailureKind.RESET

    run(main())


def test_cancelling_a_tls_call_closes_the_socket_at_once(authority: Authority) -> None:
    """Expected the server to see the end without a farewell that waits for it."""

    async def main() -> None:
        closed = asyncio.Event()

        async def script(peer: Peer, _: int) -> None:
            await peer.request()
            await peer.client_closed()
            closed.set()

        async with (
            raw_server(script, tls=authority.server_context) as server,
            open_pool(server.base_url("https"), ssl_context=authority.trusting()) as pool,
        ):
            recorder = Recorder()
            handle = pool.start(get(), recorder)
            await asyncio.wait_for(recorder.connected.wait(), 5)
            handle.cancel()
            await asyncio.wait_for(closed.wait(), 5)

    run(main())


def test_trust_falls_back_to_certifi_where_the_system_has_none(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Expected certificates in the context of a machine without any store."""
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "missing.pem"))
    monkeypatch.setenv("SSL_CERT_DIR", str(tmp_path))
    context = upstream_context(verify=True)
    assert context.cert_store_stats()["x509_ca"] > 50
    assert (context.verify_mode, context.check_hostname) == (ssl.CERT_REQUIRED, True)
