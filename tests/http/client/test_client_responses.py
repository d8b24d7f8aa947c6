"""Responses: framing, bounds, and indifference to how the bytes are cut."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from itertools import pairwise

import pytest
import uvloop
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.http.client.raw_server import CHUNKED, OK, Peer, Recorder, call, get, open_pool, post, raw_server, run

from tidegate.http.client_call import Call
from tidegate.http.client_connection import TURN_BYTES, ClientConnection
from tidegate.ports import CallFailure, CallFailureKind, UpstreamRequest

# ── without sockets: a connection fed by hand ─────────────────────────────────


class DeadWire(asyncio.Transport):
    """A transport that takes everything at once and remembers only whether it is closed."""

    def __init__(self) -> None:
        super().__init__()
        self.closed = False
        self.reading = True

    def pause_reading(self) -> None:
        self.reading = False

    def resume_reading(self) -> None:
        self.reading = True

    def write(self, data: bytes | bytearray | memoryview) -> None: ...

    def abort(self) -> None:
        self.closed = True

    def is_closing(self) -> bool:
        return self.closed

    def get_write_buffer_size(self) -> int:
        return 0


class Ledger:
    """The pool's side of a connection."""

    label = "http://model.test:80"
    via_proxy = False

    def __init__(self, max_head_bytes: int = 65_536) -> None:
        self.max_head_bytes = max_head_bytes
        self.freed = 0
        self.ended = 0

    def connection_freed(self, connection: ClientConnection) -> None:
        assert not connection.closed
        self.freed += 1

    def connection_ended(self, connection: ClientConnection, again: Call | None) -> None:
        assert connection.closed
        assert again is None
        self.ended += 1

    def withdraw(self, call: Call) -> None:
        raise AssertionError(f"{call!r} has a connection")


class Leaving(Recorder):
    """A receiver that cancels its call when it hears the first chunk."""

    call: Call

    def response_chunk(self, chunk: bytes) -> None:
        super().response_chunk(chunk)
        self.call.cancel()


def feed(
    pieces: Iterable[bytes], *, is_head: bool = False, end: bool = True, max_head_bytes: int = 65_536
) -> tuple[list[object], bytes, bool]:
    """Give the events, the body and whether the connection was kept, for an answer that comes in these pieces."""

    async def main() -> tuple[list[object], bytes, bool]:
        owner = Ledger(max_head_bytes)
        connection = ClientConnection(owner, asyncio.get_running_loop())
        connection.connection_made(DeadWire())
        recorder = Recorder()
        connection.begin(Call(owner, recorder, b"request", b"", is_head=is_head))
        await asyncio.sleep(0)
        for piece in pieces:
            if connection.closed or recorder.over.is_set():
                break
            connection.data_received(piece)
        kept = owner.freed == 1 and not connection.closed
        if end:
            connection.eof_received()
            connection.connection_lost(None)
        assert owner.ended <= 1
        return recorder.events, recorder.body, kept

    return uvloop.run(main())


ANSWERS = {
    "length": OK,
    "no content": b"HTTP/1.1 204 No Content\r\ncontent-length: 4\r\n\r\n",
    "not modified": b"HTTP/1.1 304 Not Modified\r\ncontent-length: 4\r\n\r\n",
    "chunked": CHUNKED + b"5;ext=1\r\nhello\r\n1\r\n \r\n5\r\nworld\r\n0\r\ntrailer: x\r\n\r\n",
    "until close": b"HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\n\r\nto the end",
    "coding other than chunked": b"HTTP/1.1 200 OK\r\ntransfer-encoding: gzip\r\n\r\nto the end",
    "interim": b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nlink: </x>\r\n\r\n" + OK,
    "close": b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok",
    "http 1.0": b"HTTP/1.0 200 OK\r\n\r\nok",
    "error": b"HTTP/1.1 503 Busy\r\nretry-after: 2\r\ncontent-length: 0\r\n\r\n",
    "surplus": OK + b"HTTP/1.1 200 OK\r\n",
    "bad chunk": CHUNKED + b"2\r\nok\r\nzz\r\n",
    "chunk without end": CHUNKED + b"2\r\nokay\r\n",
    "cut length": b"HTTP/1.1 200 OK\r\ncontent-length: 20\r\n\r\nhalf",
    "cut chunks": CHUNKED + b"4\r\nhalf\r\n",
    "cut head": b"HTTP/1.1 200 OK\r\ncontent-le",
    "not http": b"SSH-2.0-OpenSSH_9.2\r\n",
    "switch": b"HTTP/1.1 101 Switching\r\nupgrade: x\r\nconnection: upgrade\r\n\r\nabc",
    "two lengths": b"HTTP/1.1 200 OK\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\nok",
    "length and chunked": b"HTTP/1.1 200 OK\r\ncontent-length: 1\r\ntransfer-encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n",
}


@settings(max_examples=300, deadline=None)
@given(name=st.sampled_from(sorted(ANSWERS)), cuts=st.lists(st.integers(0, 200), max_size=12), is_head=st.booleans())
def test_law_any_split_of_an_answer_gives_the_same_calls(name: str, cuts: list[int], *, is_head: bool) -> None:
    """Expected events and body of the cut answer to equal those of the whole one."""
    answer = ANSWERS[name]
    places = sorted({0, len(answer), *(cut for cut in cuts if cut < len(answer))})
    pieces = [answer[a:b] for a, b in pairwise(places)]
    events, body, _ = feed([answer], is_head=is_head)
    cut_events, cut_body, _ = feed(pieces, is_head=is_head)
    assert (events, body) == (cut_events, cut_body)


@settings(max_examples=60, deadline=None)
@given(chunks=st.lists(st.binary(min_size=1, max_size=40), max_size=6), cuts=st.sets(st.integers(0, 400), max_size=20))
def test_law_a_chunked_body_comes_out_as_it_went_in(chunks: list[bytes], cuts: set[int]) -> None:
    """Expected the chunks' concatenation, and a connection fit for reuse, however the stream is cut."""
    stream = CHUNKED + b"".join(b"%x\r\n%b\r\n" % (len(chunk), chunk) for chunk in chunks) + b"0\r\n\r\n"
    places = sorted({0, len(stream), *(cut for cut in cuts if cut < len(stream))})
    events, body, kept = feed((stream[a:b] for a, b in pairwise(places)), end=False)
    assert (events, body, kept) == (["connected", 200, "ended"], b"".join(chunks), True)


SIZES = [b"%x", b"%x", b"%x", b"%X", b"0%x", b"+%x", b"-%x", b"0x%x", b"%x ", b" %x", b"%x;e", b'%x;e="\\"3"', b"%x\r", b"f%x", b"%x\t"]
CONTENTS = [b"x", b"3", b"3\r\n", b"\r\n", b"\r\n3\r\nabc\r\n", b"0\r\n\r\n", b"a" * 11, b"b" * 16, b"c" * 171, b"d" * 1023, b"e" * 1024]
chunk_reads = st.one_of(
    st.builds(lambda size, content: size % len(content) + b"\r\n" + content + b"\r\n", st.sampled_from(SIZES), st.sampled_from(CONTENTS)),
    st.builds(lambda content, wrong: b"%x\r\n%b\r\n" % (len(content) + wrong, content), st.sampled_from(CONTENTS), st.integers(0, 2)),
    st.builds(
        lambda content, end: b"%x\r\n%b" % (len(content), content) + end, st.sampled_from(CONTENTS), st.sampled_from([b"\n", b"", b"\r"])
    ),
    st.sampled_from(
        [
            b"1\r\n",
            b"x\r\n",
            b"\r\n",
            b"\n",
            b"1",
            b"2\r\nab\r\n2\r\ncd\r\n",
            b"2\r\nab\r\n6\r\n",
            b"2\r\nab\r\n1",
            b"2\r\nab\r\n0",
            b"0\r\n\r\n",
            b"0\r\nt: x\r\n\r\n",
        ]
    ),
)


@settings(max_examples=500, deadline=None)
@given(reads=st.lists(chunk_reads, max_size=7), joined=st.booleans())
def test_law_chunks_read_whole_are_what_the_parser_makes_of_their_bytes(reads: list[bytes], *, joined: bool) -> None:
    """Expected the same events and body whether chunks, and what is none, come in reads of their own or byte by byte."""
    whole = [CHUNKED + b"".join(reads[:1]), *reads[1:]] if joined else [CHUNKED, *reads]
    one_by_one = [bytes((byte,)) for byte in b"".join(whole)]
    assert feed(whole)[:2] == feed(one_by_one)[:2]


def test_a_whole_chunk_does_not_disturb_the_parser() -> None:
    """Expected the parser to go on behind chunks that it never saw."""
    reads = [
        CHUNKED + b"2\r\nab\r\n",
        b"2\r\ncd\r\n",
        b"B\r\nhello world\r\n",
        b"2\r\nef\r\n1",
        b"\r\ng",
        b"\r\n",
        b"1\r\nh\r\n",
        b"0\r\n\r\n",
    ]
    assert feed(reads, end=False) == (["connected", 200, "ended"], b"abcdhello worldefgh", True)


def test_what_looks_like_a_whole_chunk_within_one_is_its_content() -> None:
    """Expected a size whose digits are cut apart, and bodies of other framings, to be read for what they are."""
    reads = [CHUNKED + b"2\r\nef\r\n1", b"2\r\nab\r\n", b"c" * 14 + b"\r\n", b"0\r\n\r\n"]
    assert feed(reads, end=False) == (["connected", 200, "ended"], b"efab\r\n" + b"c" * 14, True)
    reads = [b"HTTP/1.1 200 OK\r\ncontent-length: 8\r\n\r\n\n", b"2\r\nab\r\n"]
    assert feed(reads, end=False) == (["connected", 200, "ended"], b"\n2\r\nab\r\n", True)


def test_the_next_answer_of_a_connection_is_read_by_its_own_framing() -> None:
    """Expected no trace of the chunks of the answer before."""

    async def main() -> None:
        owner = Ledger()
        connection = ClientConnection(owner, asyncio.get_running_loop())
        connection.connection_made(DeadWire())
        for answer in (
            (CHUNKED + b"2\r\nab\r\n", b"2\r\ncd\r\n", b"0\r\n\r\n"),
            (OK.replace(b"2\r\n\r\nok", b"8\r\n\r\n\n"), b"2\r\nab\r\n"),
        ):
            recorder = Recorder()
            connection.begin(Call(owner, recorder, b"request", b"", is_head=False))
            await asyncio.sleep(0)
            for read in answer:
                connection.data_received(read)
            assert recorder.events == ["connected", 200, "ended"]
        assert recorder.body == b"\n2\r\nab\r\n"

    uvloop.run(main())


@pytest.mark.parametrize("surplus", [0, 1])
def test_a_large_read_is_taken_in_turns(surplus: int) -> None:
    """Expected pieces with turns of the loop between them, nothing read meanwhile, and no reuse of a connection that has a rest."""

    async def main() -> None:
        owner, wire, recorder = Ledger(), DeadWire(), Recorder()
        connection = ClientConnection(owner, asyncio.get_running_loop())
        connection.connection_made(wire)
        connection.begin(Call(owner, recorder, b"request", b"", is_head=False))
        await asyncio.sleep(0)
        head = b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n"
        size = 3 * TURN_BYTES - len(head % (3 * TURN_BYTES))
        body = bytes(number % 251 for number in range(size))
        connection.data_received(head % size + body + b"!" * surplus)
        for turn in range(1, 4):
            assert len(head % size) + len(recorder.body) == turn * TURN_BYTES
            if turn < 3:
                assert not wire.reading
                connection.pause()
                connection.resume()
                assert not wire.reading
            await asyncio.sleep(0)
        assert recorder.events == ["connected", 200, "ended"]
        assert recorder.body == body
        assert (owner.freed, connection.closed, wire.reading) == ((0, True, False) if surplus else (1, False, True))

    uvloop.run(main())


def test_a_rest_is_nobodys_after_its_call_is_cancelled() -> None:
    """Expected no more pieces."""

    async def main() -> None:
        owner, recorder = Ledger(), Leaving()
        connection = ClientConnection(owner, asyncio.get_running_loop())
        connection.connection_made(DeadWire())
        recorder.call = Call(owner, recorder, b"request", b"", is_head=False)
        connection.begin(recorder.call)
        await asyncio.sleep(0)
        connection.data_received(b"HTTP/1.1 200 OK\r\ncontent-length: 999999\r\n\r\n" + b"x" * TURN_BYTES)
        heard = len(recorder.body)
        await asyncio.sleep(0)
        assert len(recorder.body) == heard

    uvloop.run(main())


def test_a_call_cancelled_in_the_middle_of_a_read_hears_no_chunk_of_the_next() -> None:
    """Expected nothing after `cancel`, though the read in which it came ended with a whole chunk."""

    async def main() -> None:
        owner = Ledger()
        connection = ClientConnection(owner, asyncio.get_running_loop())
        connection.connection_made(DeadWire())
        recorder = Leaving()
        recorder.call = Call(owner, recorder, b"request", b"", is_head=False)
        connection.begin(recorder.call)
        await asyncio.sleep(0)
        connection.data_received(CHUNKED + b"2\r\nab\r\n2\r\ncd\r\n")
        connection.data_received(b"2\r\nef\r\n")
        assert recorder.body == b"ab"

    uvloop.run(main())


@pytest.mark.parametrize(
    ("name", "status", "body", "kept"),
    [
        ("length", 200, b"ok", True),
        ("no content", 204, b"", True),
        ("not modified", 304, b"", True),
        ("chunked", 200, b"hello world", True),
        ("until close", 200, b"to the end", False),
        ("coding other than chunked", 200, b"to the end", False),
        ("interim", 200, b"ok", True),
        ("close", 200, b"ok", False),
        ("http 1.0", 200, b"ok", False),
        ("error", 503, b"", True),
        ("surplus", 200, b"ok", False),
    ],
)
def test_each_framing_ends_where_it_says_and_is_kept_only_when_safe(name: str, status: int, body: bytes, *, kept: bool) -> None:
    """Expected a complete answer, and reuse only where the connection is at a clean boundary."""
    assert feed([ANSWERS[name]]) == (["connected", status, "ended"], body, kept)


@pytest.mark.parametrize(
    ("name", "kind", "reason"),
    [
        ("bad chunk", CallFailureKind.PROTOCOL, "chunk size"),
        ("chunk without end", CallFailureKind.PROTOCOL, "after chunk"),
        ("two lengths", CallFailureKind.PROTOCOL, "Content-Length"),
        ("length and chunked", CallFailureKind.PROTOCOL, "Content-Length"),
        ("not http", CallFailureKind.PROTOCOL, "not valid HTTP/1.1"),
        ("switch", CallFailureKind.PROTOCOL, "status 101"),
        ("cut length", CallFailureKind.RESET, "in the middle of its answer"),
        ("cut chunks", CallFailureKind.RESET, "in the middle of its answer"),
        ("cut head", CallFailureKind.RESET, "before it answered"),
    ],
)
def test_a_broken_answer_is_named(name: str, kind: CallFailureKind, reason: str) -> None:
    """Expected the right kind, a reason and the address, and nothing of the body."""
    events, _, kept = feed([ANSWERS[name]])
    failure = events[-1]
    assert isinstance(failure, CallFailure)
    assert (failure.kind, kept) == (kind, False)
    assert reason in failure.message
    assert "http://model.test:80" in failure.message
    assert "half" not in failure.message
    assert "SSH" not in failure.message


@pytest.mark.parametrize("piece_bytes", [1, 100, 10_000])
def test_a_head_over_the_limit_is_refused_however_it_comes(piece_bytes: int) -> None:
    """Expected PROTOCOL above max_head_bytes and success just below it, whole or in pieces."""
    large = b"HTTP/1.1 200 OK\r\nx-large: %b\r\ncontent-length: 2\r\n\r\nok"
    for length, wanted in ((850, "ended"), (1100, CallFailureKind.PROTOCOL)):
        answer = large % (b"v" * length)
        events, _, _ = feed((answer[at : at + piece_bytes] for at in range(0, len(answer), piece_bytes)), max_head_bytes=1024)
        last = events[-1]
        assert wanted == (last.kind if isinstance(last, CallFailure) else last)


def test_interim_answers_without_end_are_refused() -> None:
    """Expected 103 after 103 to count as one head, so that they cannot go on for ever."""
    events, _, _ = feed([b"HTTP/1.1 103 Early Hints\r\nlink: </x>\r\n\r\n"] * 100, max_head_bytes=1024)
    failure = events[-1]
    assert isinstance(failure, CallFailure)
    assert (failure.kind, "longer than 1024 bytes" in failure.message) == (CallFailureKind.PROTOCOL, True)


def test_trailers_without_end_are_refused_but_dripping_chunk_framing_is_not() -> None:
    """Expected a bound on framing between pieces of body, not on all framing of a long stream."""
    events, _, _ = feed([CHUNKED, b"0\r\n", *[b"t: " + b"x" * 97] * 12], max_head_bytes=1024, end=False)
    failure = events[-1]
    assert isinstance(failure, CallFailure)
    assert "trailers" in failure.message
    dripping = [CHUNKED, *[piece for _ in range(400) for piece in (b"1\r\n", b"x", b"\r\n")], b"0\r\n\r\n"]
    assert feed(dripping, max_head_bytes=1024, end=False) == (["connected", 200, "ended"], b"x" * 400, True)


def test_a_long_head_does_not_count_against_the_framing_behind_it() -> None:
    """Expected a head just within the limit, directly followed by chunk framing, to pass."""
    head = b"HTTP/1.1 200 OK\r\nx: %b\r\ntransfer-encoding: chunked\r\n\r\n" % (b"v" * 940)
    answer = [head + b"2;extension=%b\r\n" % (b"e" * 100), b"ok\r\n0\r\n\r\n"]
    assert feed(answer, max_head_bytes=1024, end=False) == (["connected", 200, "ended"], b"ok", True)


@pytest.mark.parametrize("length", [b"content-length: 5", b"transfer-encoding: chunked"])
def test_an_answer_to_head_has_no_body_and_the_connection_serves_on(length: bytes) -> None:
    """Expected the answer complete behind its head, and the next call over the same connection."""

    async def main() -> None:
        async def script(peer: Peer, _: int) -> None:
            await peer.request()
            await peer.send(b"HTTP/1.1 200 OK\r\n" + length + b"\r\n\r\n")
            await peer.answer_all()

        async with raw_server(script) as server, open_pool(server.base_url()) as pool:
            assert (await call(pool, get(method="HEAD"))).events == ["connected", 200, "ended"]
            assert (await call(pool)).body == b"ok"
            assert server.accepted == 1

    run(main())


def test_a_body_behind_an_answer_to_head_costs_the_connection() -> None:
    """Expected the body to be thrown away together with the connection."""
    assert feed([b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"], is_head=True) == (["connected", 200, "ended"], b"", False)


def test_header_names_are_lower_case_and_values_trimmed() -> None:
    """Expected `content-type` and a value without the padding around it."""

    async def main() -> None:
        async def script(peer: Peer, _: int) -> None:
            await peer.answer_all(b"HTTP/1.1 200 OK\r\nContent-Type: \t text/event-stream \t \r\nX-Empty:\r\ncontent-length: 0\r\n\r\n")

        async with raw_server(script) as server, open_pool(server.base_url()) as pool:
            recorder = await call(pool)
            assert recorder.headers[:2] == ((b"content-type", b"text/event-stream"), (b"x-empty", b""))

    run(main())


def test_an_early_refusal_of_a_large_body_is_delivered_and_the_connection_closed() -> None:
    """Expected the 413 although most of the body was never read, and no reuse."""

    async def main() -> None:
        async def script(peer: Peer, _: int) -> None:
            await asyncio.wait_for(peer.reader.readuntil(b"\r\n\r\n"), 5)
            await peer.send(b"HTTP/1.1 413 Too Large\r\ncontent-length: 2\r\n\r\nno")
            peer.reader._transport.pause_reading()  # type: ignore[attr-defined]  # a reader that stops has no public way to say so
            await closing.wait()

        closing = asyncio.Event()
        async with raw_server(script) as server, open_pool(server.base_url()) as pool:
            recorder = await call(pool, post(b"x" * 30_000_000))
            assert (recorder.events, recorder.body) == (["connected", 413, "ended"], b"no")
            assert pool.statistics().open == 0
            closing.set()

    run(main())


def test_a_large_body_arrives_whole() -> None:
    """Expected 5 MB behind their head, byte for byte."""

    async def main() -> None:
        body = bytes(range(256)) * 20_000
        seen: list[bytes] = []

        async def script(peer: Peer, _: int) -> None:
            seen.append((await peer.request()).split(b"\r\n\r\n", 1)[1])
            await peer.send(OK)

        async with raw_server(script) as server, open_pool(server.base_url()) as pool:
            assert (await call(pool, post(body))).events == ["connected", 200, "ended"]
            assert seen == [body]

    run(main())


def test_a_receiver_that_raises_loses_its_connection_but_not_its_final_call() -> None:
    """Expected the fault reported to the loop, the call failed, and other calls unharmed."""

    async def main() -> None:
        async def script(peer: Peer, _: int) -> None:
            await peer.answer_all()

        reported: list[object] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, context: reported.append(context.get("exception")))
        async with raw_server(script) as server, open_pool(server.base_url()) as pool:

            class Faulty(Recorder):
                def response_chunk(self, chunk: bytes) -> None:
                    super().response_chunk(chunk)
                    raise RuntimeError("a fault of the driver")

            faulty = Faulty()
            pool.start(post(), faulty)
            await faulty.finished()
            assert faulty.failure.kind is CallFailureKind.RESET
            assert "a fault of the driver" not in faulty.failure.message
            assert [str(problem) for problem in reported] == ["a fault of the driver"]
            assert (await call(pool)).body == b"ok"

    run(main())


@pytest.mark.parametrize(
    "request_",
    [
        post(headers=((b"x-a", b"1\r\nx-b: 2"),)),
        post(headers=((b"x-a", b"1\n"),)),
        post(headers=((b"x-a\r", b"1"),)),
        post(headers=((b"x-a", b"1\0"),)),
        post(headers=((b"content-length", b"3"),)),
        post(headers=((b"transfer-encoding", b"chunked"),)),
        post(headers=((b"host", b"other.test"),)),
        post(path="/a b"),
        post(path="/a\r\nx: y"),
        post(path="models"),
        post(path="/mod\u00e8les"),
        post(path="/a#b"),
        UpstreamRequest(method="GET /x HTTP/1.1\r\n", path="/", headers=(), body=b""),
    ],
)
def test_a_request_that_could_smuggle_another_is_not_sent(request_: UpstreamRequest) -> None:
    """Expected an assertion from start, nothing on the wire and no place taken."""

    async def main() -> None:
        async def script(peer: Peer, _: int) -> None:
            await peer.answer_all()

        async with raw_server(script) as server, open_pool(server.base_url()) as pool:
            with pytest.raises(AssertionError):
                pool.start(request_, Recorder())
            assert (pool.statistics().waiting, server.accepted) == (0, 0)

    run(main())
