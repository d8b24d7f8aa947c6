"""Requests and responses on one connection: bodies, keep-alive, pipelining, expectations, and faults of the application."""

from __future__ import annotations

import asyncio
import re
import socket
from email.utils import parsedate_to_datetime

import msgspec
import pytest
import uvloop

from tidegate.domain.error_object import encode_error
from tidegate.domain.units import Headers
from tidegate.errors import InvalidHttp
from tidegate.http.server import ServerLimits
from tidegate.testing.raw_http import (
    RawResponse,
    RecordedExchange,
    RecordingApplication,
    ask_for_body,
    do_nothing,
    echo,
    raw_client,
    serving,
    settled,
    until,
)

JSON: Headers = ((b"content-type", b"application/json"),)


def answers(sent: bytes, count: int, application: RecordingApplication | None = None) -> list[RawResponse]:
    """Send bytes on one connection and give the first `count` responses."""

    async def main() -> list[RawResponse]:
        async with serving(application or RecordingApplication()) as server, raw_client(server.port) as client:
            client.send(sent)
            return [await client.read_response() for _ in range(count)]

    return uvloop.run(main())


def everything(sent: bytes, application: RecordingApplication | None = None, limits: ServerLimits | None = None) -> bytes:
    """Send bytes on one connection and give all bytes up to the server's FIN."""

    async def main() -> bytes:
        async with serving(application or RecordingApplication(), limits) as server, raw_client(server.port) as client:
            client.send(sent)
            return await client.read_to_end()

    return uvloop.run(main())


def test_a_body_with_a_length_reaches_the_application() -> None:
    """A content-length body is delivered whole, with the head beside it."""
    [response] = answers(b"POST /v1/echo?a=%20b HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nhello", 1)
    assert response.status == 200
    assert response.body == b"POST /v1/echo a=%20b\nhello"
    assert response.headers[b"content-length"] == b"26"
    assert b"connection" not in response.headers


def test_a_chunked_body_reaches_the_application_without_its_framing() -> None:
    """Chunks are joined; extensions and a trailer are dropped."""
    [response] = answers(
        b"POST /e HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: Chunked\r\n\r\n5;a=b\r\nhello\r\n006\r\n world\r\n0\r\nX-Sum: 1\r\n\r\n", 1
    )
    assert response.body == b"POST /e \nhello world"


def test_the_head_is_given_as_the_application_wants_it() -> None:
    """Names are in lower case, values stripped, the path decoded, the query left alone, the peer named."""

    async def main() -> None:
        application = RecordingApplication()
        async with serving(application) as server, raw_client(server.port) as client:
            client.send(b"GET /caf%C3%A9%20x?q=%41#".replace(b"#", b"") + b" HTTP/1.1\r\nHost: x\r\nX-Two:  a b \t \r\nX-Two: c\r\n\r\n")
            await client.read_response()
            head = application.exchanges[0].exchange.head
            assert head.method == "GET"
            assert head.path == "/café x"
            assert head.query == "q=%41"
            assert head.headers == ((b"host", b"x"), (b"x-two", b"a b"), (b"x-two", b"c"))
            assert head.peer == "127.0.0.1:{}".format(client.writer.get_extra_info("sockname")[1])

    uvloop.run(main())


def test_a_connection_serves_requests_one_after_the_other() -> None:
    """HTTP/1.1 keeps the connection without being asked."""

    async def main() -> None:
        async with serving(RecordingApplication()) as server, raw_client(server.port) as client:
            for number in range(3):
                client.send(b"POST /%d HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\n\r\nz" % number)
                assert (await client.read_response()).body == b"POST /%d \nz" % number
            assert server.statistics().accepted_connections == 1
            assert server.statistics().requests == 3

    uvloop.run(main())


def test_connection_close_is_honoured_and_said() -> None:
    """A request with `connection: close` is the last one."""
    received = everything(b"GET / HTTP/1.1\r\nHost: x\r\nConnection: keep-alive, Close\r\n\r\nGET /second HTTP/1.1\r\nHost: x\r\n\r\n")
    assert received.count(b"HTTP/1.1 200 OK") == 1
    assert b"\r\nconnection: close\r\n" in received


def test_http_1_0_closes_unless_asked_to_keep_alive() -> None:
    """An HTTP/1.0 connection is closed after the response, or kept with `connection: keep-alive`, which the response repeats."""
    received = everything(
        b"GET /a HTTP/1.0\r\nConnection: keep-alive\r\n\r\n"
        b"GET /b HTTP/1.0\r\n\r\n"
    )  # fmt: skip
    first, second = received.split(b"HTTP/1.1 200 OK\r\n")[1:]
    assert b"connection: keep-alive\r\n" in first
    assert b"connection: close\r\n" in second


def test_pipelined_requests_are_answered_in_order_one_at_a_time() -> None:
    """The application sees the next request only when the response before it is complete."""

    async def main() -> None:
        application = RecordingApplication(on_head=do_nothing)
        async with serving(application) as server, raw_client(server.port) as client:
            client.send(b"".join(b"GET /%d HTTP/1.1\r\nHost: x\r\n\r\n" % number for number in range(5)))
            for number in range(5):
                recorded = await application.exchange(number)
                assert server.statistics().exchanges == 1
                recorded.exchange.respond(200, (), b"%d" % number)
            assert [(await client.read_response()).body for _ in range(5)] == [b"0", b"1", b"2", b"3", b"4"]

    uvloop.run(main())


def test_pipelined_bytes_that_are_held_are_bounded() -> None:
    """While a request runs, a client that keeps sending is no longer read after some 64 KiB and one read; later all is served."""

    async def main() -> None:
        application = RecordingApplication(on_head=do_nothing)
        async with serving(application) as server, raw_client(server.port) as client:
            one = b"GET /a HTTP/1.1\r\nHost: x\r\nX-Pad: %s\r\n\r\n" % (b"p" * 20_000)
            client.send(one * 400)  # 8 MB: more than the socket buffers take
            first = await application.exchange(0)
            held = await settled(lambda: server.statistics().buffered_bytes, at_least=65_536)
            assert held < 65_536 + 262_144
            application.on_head = ask_for_body
            first.exchange.respond(200, (), b"first")
            assert (await client.read_response()).body == b"first"
            for _ in range(399):
                assert (await client.read_response()).body == b"GET /a \n"

    uvloop.run(main())


def test_a_client_that_pipelines_much_leaves_turns_to_others() -> None:
    """Requests that are answered at once are read some at a time: between two turns of one connection another has its own."""

    async def main() -> None:
        asked: list[str] = []

        def answer(recorded: RecordedExchange) -> None:
            if not asked:
                modest.send(b"GET /modest HTTP/1.1\r\nHost: x\r\n\r\n")
            asked.append(recorded.exchange.head.path)
            recorded.exchange.respond(200, (), b"")

        application = RecordingApplication(on_head=answer)
        async with serving(application) as server, raw_client(server.port) as greedy, raw_client(server.port) as modest:
            greedy.send(b"GET /greedy HTTP/1.1\r\nHost: x\r\n\r\n" * 4_000)
            assert (await modest.read_response()).status == 200
            assert asked.index("/modest") < 4_000
            for _ in range(4_000):
                assert (await greedy.read_response()).status == 200

    uvloop.run(main())


def test_a_client_that_sends_much_leaves_turns_to_others() -> None:
    """However much the kernel holds of one client, a turn of the loop reads it once: at most what the loop's buffer takes."""

    async def main() -> None:
        turns = 0

        def turn() -> None:
            nonlocal turns
            turns += 1
            loop.call_soon(turn)

        loop = asyncio.get_running_loop()
        async with serving(RecordingApplication()) as server:
            greedy = socket.create_connection(("127.0.0.1", server.port))
            turn()
            sending = asyncio.to_thread(greedy.sendall, b"\r\n" * 8_000_000 + b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
            await asyncio.gather(sending, asyncio.to_thread(greedy.recv, 1))
            greedy.close()
        assert turns >= 16_000_000 // 262_144

    uvloop.run(main())


@pytest.mark.parametrize("size", [1_000, 70_000, 200_000])
def test_a_connection_is_read_on_behind_a_large_request_that_waited(size: int) -> None:
    """A request came while another ran, larger than what is held: when it has its turn, what follows is read, and so is the end."""

    async def main() -> None:
        application = RecordingApplication(on_body=do_nothing)
        async with serving(application) as server, raw_client(server.port) as client:
            client.send(b"POST /a HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\n\r\na")
            first = await application.exchange(0)
            await first.wait_for("body_received")
            client.send(b"POST /b HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % size + b"b" * size)
            await settled(lambda: server.statistics().buffered_bytes, at_least=min(size, 65_536))
            echo(first)
            second = await application.exchange(1)
            await second.wait_for("body_received")
            client.send(b"POST /c HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\n\r\nc")
            echo(second)
            third = await application.exchange(2)
            await third.wait_for("body_received")
            client.finish_sending()
            await third.wait_for("client_left")

    uvloop.run(main())


def test_head_gets_the_head_of_the_answer_only() -> None:
    """HEAD: the content-length of the body that GET would have, and no body."""
    received = everything(b"HEAD /abc HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
    assert b"content-length: 11\r\n" in received
    assert received.endswith(b"\r\n\r\n")


def test_head_of_a_streamed_answer_has_no_chunks() -> None:
    """HEAD of a streamed answer ends with its head, too, and the connection goes on."""

    def stream(recorded: RecordedExchange) -> None:
        recorded.exchange.start(200, ())
        recorded.exchange.send(b"never seen")
        recorded.exchange.finish()

    async def main() -> None:
        async with serving(RecordingApplication(on_head=stream)) as server, raw_client(server.port) as client:
            client.send(b"HEAD / HTTP/1.1\r\nHost: x\r\n\r\nGET / HTTP/1.1\r\nHost: x\r\n\r\n")
            assert (await client.read_response(has_body=False)).status == 200
            assert (await client.read_response()).body == b"never seen"

    uvloop.run(main())


@pytest.mark.parametrize("status", [204, 304])
def test_statuses_without_a_body_have_no_framing(status: int) -> None:
    """204 and 304 have neither body nor content-length; the next response follows at once."""
    application = RecordingApplication(on_head=lambda recorded: recorded.exchange.respond(status, (), b"dropped"))
    received = everything(b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", application)
    assert received.startswith(b"HTTP/1.1 %d " % status)
    assert b"content-length" not in received
    assert received.endswith(b"\r\n\r\n")


def test_a_streamed_answer_comes_piece_by_piece() -> None:
    """Each `send` reaches the client before the next is made, and `finish` ends the response on a connection that lives on."""

    async def main() -> None:
        application = RecordingApplication(on_body=do_nothing)
        async with serving(application) as server, raw_client(server.port) as client:
            client.send(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
            exchange = (await application.exchange(0)).exchange
            exchange.start(200, ((b"content-type", b"text/event-stream"),))
            head = await client.reader.readuntil(b"\r\n\r\n")
            assert b"transfer-encoding: chunked\r\n" in head
            exchange.send(b"")  # must not end the response
            for piece in (b"data: one\n\n", b"data: two\n\n"):
                exchange.send(piece)
                assert await client.read(len(piece) + 5) == b"b\r\n" + piece + b"\r\n"
            exchange.finish()
            assert await client.read(5) == b"0\r\n\r\n"
            client.send(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
            (await application.exchange(1)).exchange.respond(200, (), b"next")
            assert (await client.read_response()).body == b"next"

    uvloop.run(main())


def test_a_streamed_answer_to_http_1_0_ends_with_the_connection() -> None:
    """HTTP/1.0 knows no chunks: the pieces go bare, and the close marks the end."""

    def stream(recorded: RecordedExchange) -> None:
        recorded.exchange.start(200, ())
        recorded.exchange.send(b"one")
        recorded.exchange.send(b"two")
        recorded.exchange.finish()

    received = everything(b"GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n", RecordingApplication(on_head=stream))
    assert b"connection: close\r\n" in received
    assert received.endswith(b"\r\n\r\nonetwo")


@pytest.mark.parametrize("version", [b"1.0", b"1.1"])
def test_an_aborted_stream_looks_broken(version: bytes) -> None:
    """After `abort` a chunked response lacks its last chunk, and a close-delimited one ends with a reset."""

    async def main() -> None:
        application = RecordingApplication(on_body=do_nothing)
        async with serving(application) as server, raw_client(server.port) as client:
            client.send(b"GET / HTTP/%s\r\nHost: x\r\n\r\n" % version)
            recorded = await application.exchange(0)
            recorded.exchange.start(200, ())
            recorded.exchange.send(b"part")
            await client.reader.readuntil(b"part")
            recorded.exchange.abort()
            if version == b"1.0":
                with pytest.raises(ConnectionResetError):
                    await client.read_to_end()
            else:
                assert await client.read_to_end() == b"\r\n"
            assert "client_left" not in recorded.events

    uvloop.run(main())


def test_100_continue_is_sent_when_the_application_asks_for_the_body() -> None:
    """The interim response comes with `read_body`, not before, and the body follows."""

    async def main() -> None:
        application = RecordingApplication(on_head=do_nothing)
        async with serving(application) as server, raw_client(server.port) as client:
            client.send(b"POST / HTTP/1.1\r\nHost: x\r\nExpect: 100-Continue\r\nContent-Length: 4\r\n\r\n")
            recorded = await application.exchange(0)
            recorded.exchange.read_body()
            assert (await client.read_response(has_body=False)).status == 100
            client.send(b"body")
            assert (await client.read_response()).body == b"POST / \nbody"

    uvloop.run(main())


def test_100_continue_is_not_sent_when_the_application_refuses() -> None:
    """A final status instead of 100, and the connection closes: whether the body follows cannot be known."""
    application = RecordingApplication(on_head=lambda recorded: recorded.exchange.respond(401, JSON, b"{}"))
    received = everything(b"POST / HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 4\r\n\r\n", application)
    assert received.startswith(b"HTTP/1.1 401 Unauthorized\r\n")
    assert b"\r\nconnection: close\r\n" in received
    assert b"100 Continue" not in received


def test_100_continue_is_not_sent_when_the_body_is_here_already() -> None:
    """A client that did not wait is not told to continue."""
    [response] = answers(b"POST / HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 4\r\n\r\nbody", 1)
    assert response.status == 200


@pytest.mark.parametrize("pieces", [[b"half"], [b"", b"half"]], ids=["with the head", "after the head"])
def test_100_continue_is_not_sent_when_the_body_is_coming_already(pieces: list[bytes]) -> None:
    """Neither for a body that begins with the head nor for one that begins before it is asked for."""

    async def main() -> None:
        application = RecordingApplication(on_head=do_nothing)
        async with serving(application) as server, raw_client(server.port) as client:
            client.send(b"POST / HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 8\r\n\r\n" + pieces[0])
            recorded = await application.exchange(0)
            for piece in pieces[1:]:
                client.send(piece)
            await until(lambda: server.statistics().buffered_bytes == 4)
            recorded.exchange.read_body()
            asyncio.get_running_loop().call_soon(client.send, b"half")  # after the server's own next step
            response = await client.read_response()
            assert response.status == 200
            assert response.body == b"POST / \nhalfhalf"

    uvloop.run(main())


def test_http_1_0_gets_no_interim_response() -> None:
    """HTTP/1.0 does not know 100 Continue."""

    async def main() -> None:
        application = RecordingApplication()
        async with serving(application) as server, raw_client(server.port) as client:
            client.send(b"POST / HTTP/1.0\r\nExpect: 100-continue\r\nContent-Length: 4\r\n\r\n")
            await application.exchange(0)
            client.send(b"body")
            assert (await client.read_response()).status == 200

    uvloop.run(main())


def test_read_body_does_not_call_back_from_inside() -> None:
    """A receiver in the middle of a step is never entered again by what it calls."""

    async def main() -> None:
        application = RecordingApplication(on_head=do_nothing)
        async with serving(application) as server, raw_client(server.port) as client:
            for length in (b"4", b"999999999"):
                client.send(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: " + length + b"\r\n\r\nbody")
                recorded = await application.exchange(len(application.exchanges))
                recorded.exchange.read_body()
                assert recorded.events == []
                await client.read_response()
                assert len(recorded.events) == 1

    uvloop.run(main())


def test_other_expectations_fail() -> None:
    """Anything but 100-continue is answered 417 in OpenAI's shape."""
    [response] = answers(b"GET / HTTP/1.1\r\nHost: x\r\nExpect: miracles\r\n\r\n", 1)
    assert response.status == 417
    assert msgspec.json.decode(response.body)["error"]["code"] == "expectation_failed"


def test_the_body_waits_until_it_is_asked_for() -> None:
    """A large body is left in the kernel until `read_body`; then it is delivered once and whole."""

    async def main() -> None:
        application = RecordingApplication(on_head=do_nothing)
        body = bytes(range(256)) * 40_000  # 10 MB
        async with serving(application) as server, raw_client(server.port) as client:
            client.send(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
            recorded = await application.exchange(0)
            held = await settled(lambda: server.statistics().buffered_bytes, at_least=65_536)
            assert held < 65_536 + 262_144
            assert recorded.events == []
            recorded.exchange.read_body()
            recorded.exchange.read_body()  # repeating it changes nothing
            response = await client.read_response()
            assert response.body == b"POST / \n" + body
            assert recorded.events[0] == "body_received"
            assert recorded.events.count("body_received") == 1

    uvloop.run(main())


def test_an_answer_before_the_body_closes_the_connection() -> None:
    """With the body unread and incomplete, what follows cannot be a request: the response says so."""
    application = RecordingApplication(on_head=lambda recorded: recorded.exchange.respond(404, JSON, b"{}"))
    received = everything(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 400\r\n\r\npart", application)
    assert received.startswith(b"HTTP/1.1 404 Not Found\r\n")
    assert b"\r\nconnection: close\r\n" in received


def test_an_answer_before_the_body_keeps_the_connection_when_the_body_is_here() -> None:
    """A small body that came with its head is skipped."""
    application = RecordingApplication(on_head=lambda recorded: recorded.exchange.respond(404, JSON, b"{}"))
    responses = answers(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\n\r\nbodyGET / HTTP/1.1\r\nHost: x\r\n\r\n", 2, application)
    assert [response.status for response in responses] == [404, 404]


def test_an_offer_to_upgrade_is_ignored() -> None:
    """`Upgrade` may be ignored (RFC 9110, 7.8), which Java's HTTP client needs; the request after it is read as HTTP."""
    responses = answers(
        b"POST /a HTTP/1.1\r\nHost: x\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMA\r\n"
        b"Content-Length: 2\r\n\r\nhi"
        b"GET /b HTTP/1.1\r\nHost: x\r\n\r\n",
        2,
    )
    assert [response.body for response in responses] == [b"POST /a \nhi", b"GET /b \n"]


def test_connect_is_refused() -> None:
    """CONNECT is answered 405 and the connection closed; what follows is not parsed."""
    application = RecordingApplication()
    received = everything(b"CONNECT x:443 HTTP/1.1\r\nHost: x:443\r\n\r\nGET / HTTP/1.1\r\nHost: x\r\n\r\n", application)
    assert received.startswith(b"HTTP/1.1 405 ")
    assert b"\r\nconnection: close\r\n" in received
    assert application.exchanges == []


def test_a_response_carries_the_date() -> None:
    """`date` is a true HTTP date, in GMT."""
    [response] = answers(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", 1)
    assert re.fullmatch(rb"\w{3}, \d\d \w{3} \d{4} \d\d:\d\d:\d\d GMT", response.headers[b"date"])
    assert parsedate_to_datetime(response.headers[b"date"].decode()).year >= 2024


def test_empty_lines_before_a_request_are_forgiven() -> None:
    """Some clients send an empty line after a body."""
    responses = answers(b"\r\nPOST /a HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\n\r\nz\r\n\r\nGET /b HTTP/1.1\r\nHost: x\r\n\r\n", 2)
    assert [response.body for response in responses] == [b"POST /a \nz", b"GET /b \n"]


def test_a_failing_application_is_answered_500_without_its_secrets(caplog: pytest.LogCaptureFixture) -> None:
    """The client sees a general sentence, the log the exception."""

    def fail(recorded: RecordedExchange) -> None:
        raise KeyError("the-secret-detail", recorded)

    received = everything(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", RecordingApplication(on_head=fail))
    assert received.startswith(b"HTTP/1.1 500 ")
    assert b"\r\nconnection: close\r\n" in received
    assert b"internal_error" in received
    assert b"the-secret-detail" not in received
    assert "the-secret-detail" in caplog.text


def test_a_failing_receiver_is_answered_500(caplog: pytest.LogCaptureFixture) -> None:
    """A fault while the body is taken is answered as well."""

    def fail(recorded: RecordedExchange) -> None:
        raise KeyError("the-secret-detail", recorded)

    received = everything(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\n\r\nz", RecordingApplication(on_body=fail))
    assert received.startswith(b"HTTP/1.1 500 ")
    assert "receiver.failed" in caplog.text


def test_a_fault_after_the_response_began_breaks_it(caplog: pytest.LogCaptureFixture) -> None:
    """A response that has begun is not ended as if it were complete."""

    def fail(recorded: RecordedExchange) -> None:
        recorded.exchange.start(200, ())
        recorded.exchange.send(b"part")
        raise KeyError("the-secret-detail")

    received = everything(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", RecordingApplication(on_body=fail))
    assert not received.endswith(b"0\r\n\r\n")
    assert "the-secret-detail" in caplog.text


@pytest.mark.parametrize(
    "headers",
    [
        ((b"x-bad", b"a\r\nset-cookie: b"),),
        ((b"x-bad", b"a\nb"),),
        ((b"x-bad\r", b"a"),),
        ((b"x-bad", b"a\0"),),
        ((b"content-length", b"3"),),
        ((b"transfer-encoding", b"chunked"),),
    ],
)
def test_response_fields_that_would_break_the_framing_are_a_fault(headers: Headers, caplog: pytest.LogCaptureFixture) -> None:
    """The application cannot split a response or claim its framing: nothing of the field is sent."""

    def respond(recorded: RecordedExchange) -> None:
        recorded.exchange.respond(200, headers, b"")

    received = everything(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", RecordingApplication(on_head=respond))
    assert received.startswith(b"HTTP/1.1 500 ")
    assert b"x-bad" not in received
    assert "AssertionError" in caplog.text


def test_methods_of_an_ended_exchange_do_nothing() -> None:
    """A late call cannot reach the next request's response."""

    async def main() -> None:
        application = RecordingApplication(on_head=do_nothing)
        async with serving(application) as server, raw_client(server.port) as client:
            client.send(b"GET /1 HTTP/1.1\r\nHost: x\r\n\r\nGET /2 HTTP/1.1\r\nHost: x\r\n\r\n")
            first = (await application.exchange(0)).exchange
            first.respond(200, (), b"one")
            second = (await application.exchange(1)).exchange
            first.respond(500, (), b"late")
            first.start(500, ())
            first.send(b"late")
            first.finish()
            first.read_body()
            first.abort()
            second.respond(200, (), b"two")
            assert [(await client.read_response()).body for _ in range(2)] == [b"one", b"two"]

    uvloop.run(main())


def test_the_error_body_has_openai_s_four_keys() -> None:
    """SDKs read message, type, param and code."""
    assert msgspec.json.decode(encode_error(InvalidHttp("Say it again.", param="model"))) == {
        "error": {"message": "Say it again.", "type": "invalid_request_error", "param": "model", "code": "invalid_http"}
    }
