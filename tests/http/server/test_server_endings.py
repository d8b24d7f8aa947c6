"""Clients that leave, servers that stop, and TLS."""

from __future__ import annotations

import asyncio
import datetime as dt
import socket
import ssl
from pathlib import Path

import pytest
import uvloop
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from tidegate.errors import ConfigurationError
from tidegate.http.server import HttpServer, ServerLimits, tls_context
from tidegate.testing.raw_http import RecordingApplication, do_nothing, raw_client, serving, until

GET = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"
HALF_POST = b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\nhalf"
KEEPS_GOING = ServerLimits(half_close_keeps_going=True)


def fin_seen(server: HttpServer) -> bool:
    """Tell whether the server has read the client's FIN on its one connection."""
    assert server._state is not None
    return [connection._client_finished for connection in server._state.connections] == [True]


@pytest.mark.parametrize("way", ["fin", "reset"])
@pytest.mark.parametrize("begun", [False, True], ids=["before the response", "during the response"])
def test_a_client_that_goes_during_a_request_has_left(way: str, *, begun: bool) -> None:
    """FIN and reset both mean `client_left`, once and last; the exchange's methods do nothing afterwards."""

    async def main() -> None:
        application = RecordingApplication(on_body=do_nothing)
        async with serving(application) as server, raw_client(server.port) as client:
            client.send(GET)
            recorded = await application.exchange(0)
            if begun:
                recorded.exchange.start(200, ())
                recorded.exchange.send(b"part")
                await client.reader.readuntil(b"part")
            if way == "fin":
                client.finish_sending()
            else:
                client.reset()
            await recorded.wait_for("client_left")
            recorded.exchange.read_body()
            recorded.exchange.respond(200, (), b"late")
            recorded.exchange.start(200, ())
            recorded.exchange.send(b"late")
            recorded.exchange.finish()
            recorded.exchange.abort()
            assert recorded.events == ["body_received", "client_left"]
            await until(lambda: server.statistics().connections == 0)
            assert server.statistics().clients_left == 1

    uvloop.run(main())


@pytest.mark.parametrize("limits", [ServerLimits(), KEEPS_GOING], ids=["default", "half close keeps going"])
def test_a_client_that_goes_within_its_body_has_left(limits: ServerLimits) -> None:
    """A body that can never be complete ends the exchange, whatever a half close means otherwise."""

    async def main() -> None:
        application = RecordingApplication()
        async with serving(application, limits) as server, raw_client(server.port) as client:
            client.send(HALF_POST)
            recorded = await application.exchange(0)
            client.finish_sending()
            await recorded.wait_for("client_left")
            assert recorded.events == ["client_left"]
            assert await client.read_to_end() == b""

    uvloop.run(main())


def test_a_fin_behind_pipelined_requests_is_noticed() -> None:
    """Requests that wait do not hide that the client has gone."""

    async def main() -> None:
        application = RecordingApplication(on_head=do_nothing)
        async with serving(application) as server, raw_client(server.port) as client:
            client.send(GET * 10)
            recorded = await application.exchange(0)
            client.finish_sending()
            await recorded.wait_for("client_left")
            await until(lambda: server.statistics().connections == 0)
            assert len(application.exchanges) == 1

    uvloop.run(main())


def test_a_half_close_can_be_allowed() -> None:
    """With `half_close_keeps_going`, all requests sent before the FIN are answered, then the connection closes."""

    async def main() -> None:
        application = RecordingApplication(on_head=do_nothing)
        async with serving(application, KEEPS_GOING) as server, raw_client(server.port) as client:
            client.send(GET * 3)
            client.finish_sending()
            await until(lambda: fin_seen(server))
            for number in range(3):
                recorded = await application.exchange(number)
                recorded.exchange.start(200, ())
                recorded.exchange.send(b"%d" % number)
                recorded.exchange.finish()
            assert [(await client.read_response()).body for _ in range(3)] == [b"0", b"1", b"2"]
            assert await client.read_to_end() == b""
            assert all("client_left" not in recorded.events for recorded in application.exchanges)

    uvloop.run(main())


def test_a_fin_between_requests_just_closes() -> None:
    """A client may close an idle connection, or one with a complete response still under way, without anyone hearing of it."""

    async def main() -> None:
        application = RecordingApplication(on_head=lambda recorded: recorded.exchange.respond(200, (), b"z" * 5_000_000))
        async with serving(application) as server, raw_client(server.port) as client:
            client.send(GET)
            await application.exchange(0)
            client.finish_sending()
            received = await client.read_to_end()
            assert len(received.partition(b"\r\n\r\n")[2]) == 5_000_000
            assert application.exchanges[0].events == []
            await until(lambda: server.statistics().connections == 0)

    uvloop.run(main())


def test_a_drain_ends_idle_connections_and_waits_for_the_others() -> None:
    """New connections are refused, idle ones closed, and a running request is answered with `connection: close`."""

    async def main() -> None:
        application = RecordingApplication(on_head=do_nothing)
        async with serving(application) as server, raw_client(server.port) as idle, raw_client(server.port) as busy:
            idle.send(GET)
            (await application.exchange(0)).exchange.respond(200, (), b"")
            await idle.read_response()
            busy.send(GET)
            running = await application.exchange(1)
            port = server.port
            server.stop_accepting()
            assert await idle.read_to_end() == b""
            with pytest.raises(ConnectionRefusedError):
                await asyncio.open_connection("127.0.0.1", port)
            assert not await server.wait_drained(0.05)
            running.exchange.start(200, ())
            running.exchange.send(b"done")
            running.exchange.finish()
            response = await busy.read_response()
            assert response.body == b"done"
            assert response.headers[b"connection"] == b"close"
            assert await server.wait_drained(5.0)

    uvloop.run(main())


def test_a_drain_lets_a_stream_that_has_begun_end() -> None:
    """A response whose head went out before the drain is completed, and the connection closed after it."""

    async def main() -> None:
        application = RecordingApplication(on_head=do_nothing)
        async with serving(application) as server, raw_client(server.port) as client:
            client.send(GET)
            exchange = (await application.exchange(0)).exchange
            exchange.start(200, ())
            await client.reader.readuntil(b"\r\n\r\n")
            server.stop_accepting()
            exchange.send(b"end")
            exchange.finish()
            assert await client.read_to_end() == b"3\r\nend\r\n0\r\n\r\n"
            assert await server.wait_drained(5.0)

    uvloop.run(main())


def test_a_drain_serves_a_request_that_is_on_its_way() -> None:
    """A connection opened just before the drain gets its first request answered."""

    async def main() -> None:
        async with serving(RecordingApplication()) as server, raw_client(server.port) as half, raw_client(server.port) as fresh:
            half.send(GET[:10])
            await until(lambda: server.statistics().connections == 2 and server.statistics().buffered_bytes == 10)
            server.stop_accepting()
            half.send(GET[10:])
            fresh.send(GET)
            for client in (half, fresh):
                response = await client.read_response()
                assert response.status == 200
                assert response.headers[b"connection"] == b"close"
            assert await server.wait_drained(5.0)

    uvloop.run(main())


def test_a_drain_does_not_wait_long_for_a_silent_connection() -> None:
    """A connection that never sent anything is closed soon, long before its idle time."""

    async def main() -> None:
        async with serving(RecordingApplication()) as server, raw_client(server.port) as silent:
            await until(lambda: server.statistics().connections == 1)
            server.stop_accepting()
            assert await silent.read_to_end() == b""
            assert await server.wait_drained(5.0)

    uvloop.run(main())


def test_abort_all_breaks_what_is_left() -> None:
    """The last step of a shutdown: running exchanges hear `client_left`, the clients see a broken response."""

    async def main() -> None:
        application = RecordingApplication(on_head=do_nothing)
        async with serving(application) as server, raw_client(server.port) as client:
            client.send(GET)
            recorded = await application.exchange(0)
            recorded.exchange.start(200, ())
            server.abort_all()
            assert recorded.events == ["client_left"]
            assert await server.wait_drained(5.0)
            assert not (await client.read_to_end()).endswith(b"0\r\n\r\n")

    uvloop.run(main())


def test_an_inherited_socket_is_served() -> None:
    """A socket that a supervisor has bound, shared by `SO_REUSEPORT`, is taken over."""

    async def main() -> None:
        bound = socket.socket()
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        bound.bind(("127.0.0.1", 0))
        server = HttpServer(RecordingApplication(), ServerLimits())
        await server.start(sock=bound)
        async with raw_client(server.port) as client:
            client.send(GET)
            assert (await client.read_response()).status == 200
        server.abort_all()
        assert await server.wait_drained(5.0)

    uvloop.run(main())


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A self-signed certificate for localhost, and its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localhost")])
    now = dt.datetime.now(dt.UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - dt.timedelta(minutes=5))
        .not_valid_after(now + dt.timedelta(hours=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
        .sign(key, hashes.SHA256())
    )
    folder = tmp_path_factory.mktemp("tls")
    (folder / "certificate.pem").write_bytes(made.public_bytes(serialization.Encoding.PEM))
    (folder / "key.pem").write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    return folder / "certificate.pem", folder / "key.pem"


def client_context(certificate: Path) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=str(certificate))
    context.check_hostname = False
    context.set_alpn_protocols(["h2", "http/1.1"])
    return context


def test_https_serves_like_http(certificate: tuple[Path, Path]) -> None:
    """With a certificate: TLS 1.2 or later, ALPN http/1.1, keep-alive, streams, and bodies larger than a TLS record."""

    async def main() -> None:
        async with (
            serving(RecordingApplication(), ssl_context=tls_context(*certificate)) as server,
            raw_client(server.port, ssl_context=client_context(certificate[0])) as client,
        ):
            body = bytes(range(256)) * 2000
            for _ in range(2):
                client.send(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
                assert (await client.read_response()).body == b"POST / \n" + body
            tls = client.writer.get_extra_info("ssl_object")
            assert tls.selected_alpn_protocol() == "http/1.1"
            assert tls.version() in {"TLSv1.2", "TLSv1.3"}

    uvloop.run(main())


@pytest.mark.parametrize("limits", [ServerLimits(), KEEPS_GOING], ids=["default", "half close keeps going"])
def test_a_tls_client_that_goes_has_left(certificate: tuple[Path, Path], limits: ServerLimits) -> None:
    """Within TLS there is no half close: EOF always means leaving."""

    async def main() -> None:
        application = RecordingApplication(on_head=do_nothing)
        async with serving(application, limits, ssl_context=tls_context(*certificate)) as server:
            async with raw_client(server.port, ssl_context=client_context(certificate[0])) as client:
                client.send(GET)
                recorded = await application.exchange(0)
            await recorded.wait_for("client_left")

    uvloop.run(main())


def test_a_refusal_over_tls_is_seen(certificate: tuple[Path, Path]) -> None:
    """Without a half close, `connection: close` and the length must do."""

    async def main() -> None:
        async with (
            serving(RecordingApplication(), ssl_context=tls_context(*certificate)) as server,
            raw_client(server.port, ssl_context=client_context(certificate[0])) as client,
        ):
            client.send(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 209715200\r\n\r\n" + b"z" * 500_000)
            response = await client.read_response()
            assert response.status == 413
            assert response.headers[b"connection"] == b"close"

    uvloop.run(main())


def test_http_on_the_https_port_is_closed(certificate: tuple[Path, Path]) -> None:
    """A failed handshake costs a connection and nothing else."""

    async def main() -> None:
        async with serving(RecordingApplication(), ssl_context=tls_context(*certificate)) as server:
            async with raw_client(server.port) as client:
                client.send(GET)
                await client.read_to_end()
            assert server.statistics().connections == 0

    uvloop.run(main())


def test_an_unusable_certificate_is_explained(certificate: tuple[Path, Path], tmp_path: Path) -> None:
    """A missing file, or a key that is not the certificate's, names the files."""
    with pytest.raises(ConfigurationError, match=r"absent\.pem"):
        tls_context(tmp_path / "absent.pem", certificate[1])
    with pytest.raises(ConfigurationError, match=r"certificate\.pem"):
        tls_context(certificate[0], certificate[0])
