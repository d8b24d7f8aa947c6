"""Bounds in size, number and time: what is over them is refused clearly, and costs the others nothing."""

from __future__ import annotations

import asyncio
import socket
from itertools import pairwise

import msgspec
import pytest
import uvloop

from tidegate.errors import BodyTooLarge, Overloaded, RequestTimeout
from tidegate.http.server import ServerLimits
from tidegate.testing.raw_http import (
    RawResponse,
    RecordedExchange,
    RecordingApplication,
    ask_for_body,
    do_nothing,
    raw_client,
    respond_with_refusal,
    serving,
    settled,
    until,
)

MOST_IN_A_READ = 262_144
GET = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"


def code(response: RawResponse) -> str:
    found: str = msgspec.json.decode(response.body)["error"]["code"]
    return found


@pytest.mark.parametrize("at_a_time", [1 << 20, 500])
@pytest.mark.parametrize("end", [b"\r\n\r\n", b""], ids=["complete", "incomplete"])
def test_a_head_over_the_limit_is_refused(at_a_time: int, end: bytes) -> None:
    """431, whether the head is complete or only growing."""

    async def main() -> None:
        application = RecordingApplication()
        async with serving(application, ServerLimits(max_header_bytes=2000)) as server, raw_client(server.port) as client:
            sent = b"GET / HTTP/1.1\r\nHost: x\r\nX-Pad: " + b"p" * 2000 + end
            for start in range(0, len(sent), at_a_time):
                client.send(sent[start : start + at_a_time])
                await asyncio.sleep(0)
            response = await client.read_response()
            assert response.status == 431
            assert code(response) == "headers_too_large"
            assert response.headers[b"connection"] == b"close"
            assert await client.read_to_end() == b""
            assert application.exchanges == []

    uvloop.run(main())


def test_a_head_at_the_limit_is_served() -> None:
    """The limit itself is allowed."""

    async def main() -> None:
        async with serving(RecordingApplication(), ServerLimits(max_header_bytes=1024)) as server, raw_client(server.port) as client:
            head = b"GET / HTTP/1.1\r\nHost: x\r\nX-Pad: %s\r\n\r\n"
            client.send(head % (b"p" * (1024 - len(head) + 2)))
            assert (await client.read_response()).status == 200

    uvloop.run(main())


def test_too_many_fields_are_refused() -> None:
    """431 for a head of many tiny fields, which cost more than their bytes."""

    async def main() -> None:
        async with serving(RecordingApplication()) as server, raw_client(server.port) as client:
            client.send(b"GET / HTTP/1.1\r\nHost: x\r\n" + b"a:\r\n" * 300 + b"\r\n")
            assert (await client.read_response()).status == 431

    uvloop.run(main())


def test_a_declared_length_over_the_limit_is_refused_at_once() -> None:
    """413 before a byte of the body is sent; the application writes the answer, the connection closes."""

    async def main() -> None:
        application = RecordingApplication()
        async with serving(application) as server, raw_client(server.port) as client:
            client.send(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 209715200\r\n\r\n")
            response = await client.read_response()
            assert response.status == 413
            assert code(response) == "body_too_large"
            assert response.headers[b"connection"] == b"close"
            [recorded] = application.exchanges
            assert recorded.events == ["body_refused"]
            assert isinstance(recorded.error, BodyTooLarge)
            assert await client.read_to_end() == b""

    uvloop.run(main())


def test_a_declared_length_over_the_limit_gets_no_100_continue() -> None:
    """A client that asks before it sends is told 413 instead."""

    async def main() -> None:
        async with serving(RecordingApplication()) as server, raw_client(server.port) as client:
            client.send(b"POST / HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 209715200\r\n\r\n")
            assert (await client.read_response()).status == 413

    uvloop.run(main())


def send_all_then_read(port: int, head: bytes, piece: bytes, count: int) -> bytes:
    """Do as a simple blocking client does: look for a response only when everything is sent."""
    with socket.create_connection(("127.0.0.1", port), timeout=10.0) as connected:
        connected.sendall(head)
        for _ in range(count):
            connected.sendall(piece)
        received = b""
        while some := connected.recv(65_536):
            received += some
        return received


@pytest.mark.parametrize("framing", ["length", "chunked"])
def test_a_client_that_sends_a_huge_body_before_it_reads_sees_the_413(framing: str) -> None:
    """20 MB over the limit are read and thrown away, so that no reset destroys the response under a blocking client."""

    async def main() -> None:
        application = RecordingApplication()
        limits = ServerLimits(max_body_bytes=100_000)
        async with serving(application, limits) as server:
            piece = b"z" * 1_000_000
            head = b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 20000000\r\n\r\n"
            if framing == "chunked":
                head = b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
                piece = b"f000\r\n" + b"z" * 0xF000 + b"\r\n"
            count = 20_000_000 // len(piece)
            received = await asyncio.to_thread(send_all_then_read, server.port, head, piece, count)
            assert received.startswith(b"HTTP/1.1 413 ")
            assert received.count(b"HTTP/1.1") == 1
            assert application.exchanges[0].events == ["body_refused"]
            assert server.statistics().refused_bodies == 1

    uvloop.run(main())


def test_a_client_that_sends_on_after_its_last_request_sees_the_response() -> None:
    """What follows a request with `connection: close` is thrown away, and does not reset the connection under the response."""

    async def main() -> None:
        async with serving(RecordingApplication()) as server:
            head = b"GET /last HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n" + GET
            received = await asyncio.to_thread(send_all_then_read, server.port, head, GET * 30_000, 20)
            assert received.endswith(b"\r\n\r\nGET /last \n")

    uvloop.run(main())


def test_a_chunked_body_at_the_limit_is_taken() -> None:
    """The limit itself is allowed."""

    async def main() -> None:
        async with serving(RecordingApplication(), ServerLimits(max_body_bytes=10)) as server, raw_client(server.port) as client:
            client.send(b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n5\r\nworld\r\n0\r\n\r\n")
            assert (await client.read_response()).body == b"POST / \nhelloworld"

    uvloop.run(main())


def test_bodies_of_all_connections_together_are_bounded() -> None:
    """While one exchange holds most of the memory allowed, another's body is refused with 503; after it there is room again."""

    async def main() -> None:
        application = RecordingApplication(on_body=do_nothing)
        limits = ServerLimits(max_buffered_bytes=1000)
        post = b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 600\r\n\r\n" + b"z" * 600
        async with serving(application, limits) as server, raw_client(server.port) as one, raw_client(server.port) as two:
            one.send(post)
            holder = await application.exchange(0)
            await holder.wait_for("body_received")
            assert server.statistics().buffered_bytes == 600
            two.send(post)
            response = await two.read_response()
            assert response.status == 503
            assert code(response) == "overloaded"
            assert isinstance(application.exchanges[1].error, Overloaded)
            holder.exchange.respond(200, (), b"")
            assert server.statistics().buffered_bytes == 0
            async with raw_client(server.port) as three:
                three.send(post)
                await (await application.exchange(2)).wait_for("body_received")

    uvloop.run(main())


def test_chunked_bodies_are_bounded_together_too() -> None:
    """A body of unknown length is refused when it has grown over the memory allowed."""

    async def main() -> None:
        application = RecordingApplication(on_refusal=do_nothing)
        async with serving(application, ServerLimits(max_buffered_bytes=1000)) as server, raw_client(server.port) as client:
            client.send(b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n" + (b"200\r\n" + b"z" * 512 + b"\r\n") * 3)
            recorded = await application.exchange(0)
            await recorded.wait_for("body_refused")
            assert server.statistics().buffered_bytes == 0
            respond_with_refusal(recorded)
            assert (await client.read_response()).status == 503

    uvloop.run(main())


def test_connections_over_the_limit_get_a_503_and_close() -> None:
    """A flood of connections: those over the limit are told and closed, the others served."""

    async def main() -> None:
        async with serving(RecordingApplication(), ServerLimits(max_connections=5)) as server:
            kept = [await asyncio.open_connection("127.0.0.1", server.port) for _ in range(5)]
            await until(lambda: server.statistics().connections == 5)
            for _ in range(40):
                async with raw_client(server.port) as extra:
                    response = await extra.read_response()
                    assert response.status == 503
                    assert response.headers[b"connection"] == b"close"
                    assert code(response) == "overloaded"
            assert server.statistics().rejected_connections == 40
            for reader, writer in kept:
                writer.write(GET)
                assert (await reader.readline()).startswith(b"HTTP/1.1 200 ")
                writer.close()
                await writer.wait_closed()
            await until(lambda: server.statistics().connections == 0)
            async with raw_client(server.port) as again:
                again.send(GET)
                assert (await again.read_response()).status == 200

    uvloop.run(main())


def test_an_idle_connection_is_closed() -> None:
    """Fresh or used, a connection without a request is closed after the idle time, silently."""

    async def main() -> None:
        limits = ServerLimits(idle_timeout_s=0.3)
        async with serving(RecordingApplication(), limits) as server, raw_client(server.port) as fresh, raw_client(server.port) as used:
            used.send(GET)
            await used.read_response()
            assert await fresh.read_to_end() == b""
            assert await used.read_to_end() == b""

    uvloop.run(main())


def test_a_running_request_is_not_idle() -> None:
    """The idle time does not run while the application thinks."""

    async def main() -> None:
        application = RecordingApplication(on_head=do_nothing)
        async with serving(application, ServerLimits(idle_timeout_s=0.3)) as server, raw_client(server.port) as client:
            async with raw_client(server.port) as idle:
                client.send(GET)
                recorded = await application.exchange(0)
                assert await idle.read_to_end() == b""  # so the idle time has passed
            recorded.exchange.respond(200, (), b"late")
            assert (await client.read_response()).body == b"late"

    uvloop.run(main())


async def drip(writer: asyncio.StreamWriter, head: bytes) -> None:
    for byte in head:
        writer.write(bytes((byte,)))
        await asyncio.sleep(0.02)


def test_slow_loris_does_not_extend_the_head_s_deadline() -> None:
    """A byte now and then is answered 408 in the end, before the head is complete."""

    async def main() -> None:
        limits = ServerLimits(header_timeout_s=0.3)
        async with serving(RecordingApplication(), limits) as server, raw_client(server.port) as client:
            loop = asyncio.get_running_loop()
            began = loop.time()
            dripping = asyncio.ensure_future(drip(client.writer, b"GET / HTTP/1.1\r\nHost: x\r\nX-Pad: " + b"p" * 1000))
            response = await client.read_response()
            assert response.status == 408
            assert code(response) == "request_timeout"
            assert 0.3 <= loop.time() - began < 2.0
            dripping.cancel()
            assert server.statistics().timed_out == 1

    uvloop.run(main())


def test_a_pause_within_a_body_is_bounded() -> None:
    """A body that stops coming is refused with 408."""

    async def main() -> None:
        application = RecordingApplication()
        async with serving(application, ServerLimits(body_timeout_s=0.3)) as server, raw_client(server.port) as client:
            client.send(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\nhalf")
            response = await client.read_response()
            assert response.status == 408
            assert response.headers[b"connection"] == b"close"
            assert isinstance(application.exchanges[0].error, RequestTimeout)

    uvloop.run(main())


def test_a_body_that_drips_is_bounded_as_a_whole() -> None:
    """Short pauses are fine for ten times the longest one, not for ever."""

    async def main() -> None:
        application = RecordingApplication()
        async with serving(application, ServerLimits(body_timeout_s=0.1)) as server, raw_client(server.port) as client:
            loop = asyncio.get_running_loop()
            began = loop.time()
            client.send(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n")
            dripping = asyncio.ensure_future(drip(client.writer, b"z" * 1000))
            assert (await client.read_response()).status == 408
            assert 1.0 <= loop.time() - began < 3.0
            dripping.cancel()

    uvloop.run(main())


def test_a_large_body_leaves_every_other_turn_to_the_others() -> None:
    """A client that sends as fast as it can has one read in a turn of the loop, and not the 32 that the loop would do."""

    async def main() -> None:
        application = RecordingApplication(on_head=ask_for_body, on_body=do_nothing)
        async with serving(application, ServerLimits(max_body_bytes=1 << 25)) as server:
            held = [0]

            def look() -> None:
                held.append(server.statistics().buffered_bytes)
                watching[0] = loop.call_soon(look)

            loop = asyncio.get_running_loop()
            watching = [loop.call_soon(look)]
            await asyncio.to_thread(send_body, server.port, 1 << 24)
            recorded = await application.exchange(0)
            await recorded.wait_for("body_received")
            watching[0].cancel()
            most = max(after - before for before, after in pairwise(held))
            assert 65_536 < most <= MOST_IN_A_READ

    uvloop.run(main())


def send_body(port: int, size: int) -> None:
    """Send a request with a body of `size` bytes, and leave the answer alone."""
    with socket.create_connection(("127.0.0.1", port)) as connected:
        connected.sendall(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % size + b"x" * size)


def stream_until_paused(recorded: RecordedExchange) -> None:
    recorded.exchange.start(200, ())
    while "write_paused" not in recorded.events:
        recorded.exchange.send(b"z" * 65_536)


def test_a_slow_reader_is_waited_for() -> None:
    """`write_paused` when the client does not keep up, `write_resumed` when it reads on; nothing is lost."""

    async def main() -> None:
        application = RecordingApplication(on_head=do_nothing)
        async with serving(application) as server, raw_client(server.port) as client:
            client.send(GET)
            recorded = await application.exchange(0)
            stream_until_paused(recorded)
            reading = asyncio.ensure_future(client.read_response())
            await recorded.wait_for("write_resumed")
            recorded.exchange.send(b"end")
            recorded.exchange.finish()
            assert (await reading).body.endswith(b"zzzend")
            assert recorded.events == ["write_paused", "write_resumed"]

    uvloop.run(main())


def test_a_slow_reader_is_reported_when_the_application_has_returned() -> None:
    """An application that sends a lot before it returns its receiver hears of the pause then."""

    def stream(recorded: RecordedExchange) -> None:
        recorded.exchange.start(200, ())
        recorded.exchange.send(b"z" * 20_000_000)

    async def main() -> None:
        application = RecordingApplication(on_head=stream)
        async with serving(application) as server, raw_client(server.port) as client:
            client.send(GET)
            await (await application.exchange(0)).wait_for("write_paused")

    uvloop.run(main())


def blocked_client(port: int) -> socket.socket:
    """A client that sends a request and never reads; its small receive buffer makes the server feel that soon."""
    connected = socket.socket()
    connected.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    connected.connect(("127.0.0.1", port))
    connected.sendall(GET)
    return connected


def test_a_client_that_stops_reading_is_dropped() -> None:
    """After the send time without progress the application hears `client_left`, and the connection is gone."""

    async def main() -> None:
        application = RecordingApplication(on_head=do_nothing)
        async with serving(application, ServerLimits(send_timeout_s=0.3)) as server:
            with blocked_client(server.port):
                recorded = await application.exchange(0)
                stream_until_paused(recorded)
                await recorded.wait_for("client_left")
                assert recorded.events == ["write_paused", "client_left"]
                recorded.exchange.send(b"late")
                recorded.exchange.finish()
                await until(lambda: server.statistics().connections == 0)
                assert server.statistics().slow_readers == 1
                assert server.statistics().exchanges == 0

    uvloop.run(main())


def test_a_client_that_stops_reading_after_the_last_byte_was_handed_over_is_dropped() -> None:
    """A finished response that nobody takes does not hold its connection for ever, and `client_left` does not follow the end."""

    async def main() -> None:
        application = RecordingApplication(on_head=do_nothing)
        async with serving(application, ServerLimits(send_timeout_s=0.3)) as server:
            with blocked_client(server.port):
                recorded = await application.exchange(0)
                recorded.exchange.respond(200, (), b"z" * 20_000_000)
                await until(lambda: server.statistics().connections == 0)
                assert "client_left" not in recorded.events
                assert server.statistics().slow_readers == 1

    uvloop.run(main())


def test_a_slow_but_steady_reader_is_kept() -> None:
    """Progress within the send time is enough, however long the whole takes."""

    async def main() -> None:
        application = RecordingApplication(on_head=do_nothing)
        async with serving(application, ServerLimits(send_timeout_s=0.5)) as server:
            reader, writer = await asyncio.open_connection("127.0.0.1", server.port, limit=16_384)
            writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65_536)
            writer.write(GET)
            recorded = await application.exchange(0)
            recorded.exchange.respond(200, ((b"x", b"y"),), b"z" * 12_000_000)
            loop = asyncio.get_running_loop()
            began = loop.time()
            received = 0
            while received < 12_000_000:
                received += len(await reader.read(1 << 20))
                if loop.time() - began < 1.8:  # about four times the send time
                    await asyncio.sleep(0.01)
            assert loop.time() - began > 1.0
            writer.close()
            await writer.wait_closed()

    uvloop.run(main())


def test_a_client_that_pipelines_and_never_reads_is_not_served_endlessly() -> None:
    """While unsent responses pile up, no further request is begun."""

    async def main() -> None:
        big = b"z" * 500_000
        application = RecordingApplication(on_head=lambda recorded: recorded.exchange.respond(200, (), big))
        async with serving(application) as server:
            with blocked_client(server.port) as connected:
                connected.sendall(GET * 1000)
                count = await settled(lambda: len(application.exchanges), at_least=1)
                assert count < 100

    uvloop.run(main())


def test_two_hundred_connections_at_once_are_served_alike() -> None:
    """Each of 200 parallel clients gets its own answers, and nothing is left behind."""

    async def one(port: int, number: int) -> None:
        async with raw_client(port) as client:
            for turn in range(5):
                body = b"%d-%d" % (number, turn)
                client.send(b"POST /p HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(body))
                await asyncio.sleep(0)
                client.send(body)
                assert (await client.read_response()).body == b"POST /p \n" + body

    async def main() -> None:
        async with serving(RecordingApplication(on_head=ask_for_body)) as server:
            async with asyncio.TaskGroup() as group:
                for number in range(200):
                    group.create_task(one(server.port, number))
            await until(lambda: server.statistics().connections == 0)
            assert server.statistics().requests == 1000

    uvloop.run(main())


@pytest.mark.parametrize("framing", [b"Content-Length: 4", b"Transfer-Encoding: chunked"], ids=["length", "chunked"])
@pytest.mark.parametrize("coding", [b"gzip", b"br", b"identity, gzip"])
def test_a_compressed_body_is_refused_by_its_name(framing: bytes, coding: bytes) -> None:
    """415 through the application, which knows who asks; no 100 Continue invites the body."""

    async def main() -> None:
        application = RecordingApplication()
        async with serving(application) as server, raw_client(server.port) as client:
            client.send(
                b"POST / HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Encoding: " + coding + b"\r\n" + framing + b"\r\n\r\n"
            )
            response = await client.read_response()
            assert (response.status, code(response)) == (415, "unsupported_encoding")
            assert application.exchanges[0].events == ["body_refused"]

    uvloop.run(main())


@pytest.mark.parametrize("coding", [b"identity", b"Identity", b""])
def test_a_body_that_is_not_compressed_may_say_so(coding: bytes) -> None:
    """Some clients always send the field."""

    async def main() -> None:
        async with serving(RecordingApplication()) as server, raw_client(server.port) as client:
            client.send(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Encoding: " + coding + b"\r\nContent-Length: 4\r\n\r\nbody")
            assert (await client.read_response()).body.endswith(b"body")

    uvloop.run(main())


def test_empty_lines_do_not_put_off_the_end_of_an_idle_connection() -> None:
    """CR and LF in turn are no head; a head that begins after them has its own deadline."""

    async def main() -> None:
        limits = ServerLimits(idle_timeout_s=0.3, header_timeout_s=0.3)
        async with serving(RecordingApplication(), limits) as server, raw_client(server.port) as client:
            loop = asyncio.get_running_loop()
            began = loop.time()
            closed = asyncio.create_task(client.read_to_end())
            while not closed.done():
                for piece in (b"\r", b"\n"):
                    client.send(piece)
                    await asyncio.wait([closed], timeout=0.02)
                assert loop.time() - began < 3.0

        async with serving(RecordingApplication(), ServerLimits(header_timeout_s=0.3)) as server, raw_client(server.port) as client:
            client.send(b"\r")
            await client.flush()
            client.send(b"\nGET / HT")
            assert (await client.read_response()).status == 408

    uvloop.run(main())


def test_a_burst_of_clients_is_let_in_within_a_few_turns() -> None:
    """A turn of the loop is long where many streams flow: a client must not wait for one turn for each client before it."""

    async def main() -> None:
        async with serving(RecordingApplication()) as server:
            clients = [socket.create_connection(("127.0.0.1", server.port)) for _ in range(64)]
            turns = 0
            async with asyncio.timeout(5.0):
                while server.statistics().connections < len(clients):
                    await asyncio.sleep(0)
                    turns += 1
            for client in clients:
                client.close()
            assert turns < 20

    uvloop.run(main())
