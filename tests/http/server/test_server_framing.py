"""Ambiguous and malformed requests are refused, and how bytes are split never matters."""

from __future__ import annotations

import asyncio
import itertools

import msgspec
import pytest
import uvloop
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tidegate.errors import BodyTooLarge, InvalidHttp
from tidegate.http.framing import MAX_EXTENSION_BYTES, MAX_TRAILER_BYTES, ChunkedReader, Chunks, LengthReader
from tidegate.http.server import ServerLimits
from tidegate.testing.raw_http import RecordingApplication, raw_client, serving

CHUNKED = b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
NEXT = b"GET /smuggled HTTP/1.1\r\nHost: x\r\n\r\n"


def post(*lines: bytes, version: bytes = b"1.1") -> bytes:
    return b"\r\n".join((b"POST / HTTP/" + version, b"Host: x", *lines)) + b"\r\n\r\n"


def get(first: bytes, *lines: bytes) -> bytes:
    return b"\r\n".join((first, *lines)) + b"\r\n\r\n"


REFUSED_HEADS = {
    "both framings": post(b"Content-Length: 3", b"Transfer-Encoding: chunked"),
    "both framings, other order": post(b"Transfer-Encoding: chunked", b"Content-Length: 3"),
    "two lengths": post(b"Content-Length: 3", b"Content-Length: 4"),
    "two equal lengths": post(b"Content-Length: 3", b"content-length: 3"),
    "list of lengths": post(b"Content-Length: 3, 3"),
    "plus sign": post(b"Content-Length: +5"),
    "minus sign": post(b"Content-Length: -5"),
    "space in length": post(b"Content-Length: 1 2"),
    "hexadecimal length": post(b"Content-Length: 0x5"),
    "letters in length": post(b"Content-Length: 5a"),
    "empty length": post(b"Content-Length:"),
    "blank length": post(b"Content-Length:  "),
    "length over 64 bits": post(b"Content-Length: 99999999999999999999"),
    "length near 64 bits": post(b"Content-Length: 9999999999999999999"),
    "digits of another script": post("Content-Length: ٣".encode()),
    "gzip": post(b"Transfer-Encoding: gzip"),
    "gzip, chunked": post(b"Transfer-Encoding: gzip, chunked"),
    "xchunked": post(b"Transfer-Encoding: xchunked"),
    "chunked twice": post(b"Transfer-Encoding: chunked, chunked"),
    "chunked in two fields": post(b"Transfer-Encoding: chunked", b"Transfer-Encoding: chunked"),
    "identity": post(b"Transfer-Encoding: identity"),
    "identity and chunked": post(b"Transfer-Encoding: identity", b"Transfer-Encoding: chunked"),
    "chunked with a parameter": post(b"Transfer-Encoding: chunked;q=1"),
    "quoted chunked": post(b'Transfer-Encoding: "chunked"'),
    "empty transfer-encoding": post(b"Transfer-Encoding:"),
    "vertical tab before chunked": post(b"Transfer-Encoding: \x0bchunked"),
    "chunked in HTTP/1.0": post(b"Transfer-Encoding: chunked", version=b"1.0"),
    "folded field": post(b"X: a", b" b"),
    "folded with a tab": post(b"X: a", b"\tb"),
    "fold in the first field": b"POST / HTTP/1.1\r\n Host: x\r\n\r\n",
    "LF ends the request line": b"GET / HTTP/1.1\nHost: x\r\n\r\n",
    "LF ends a field": b"GET / HTTP/1.1\r\nHost: x\nX: a\r\n\r\n",
    "LF ends the head": b"GET / HTTP/1.1\r\nHost: x\r\n\n" + NEXT,
    "LF everywhere": b"GET / HTTP/1.1\nHost: x\n\n",
    "CR within a field": post(b"X: a\rb"),
    "CR ends a field": b"GET / HTTP/1.1\r\nHost: x\rX: a\r\n\r\n",
    "NUL in a value": post(b"X: a\0b"),
    "NUL in a name": post(b"X\0: a"),
    "control in a value": post(b"X: a\x01b"),
    "DEL in a value": post(b"X: a\x7fb"),
    "high byte in a name": post(b"X\xe9: a"),
    "space before the colon": post(b"X : a"),
    "space before the colon of a length": post(b"Content-Length : 3"),
    "tab before the colon": post(b"X\t: a"),
    "no name": post(b": a"),
    "no colon": post(b"Xabc"),
    "bracket in a name": post(b"X(: a"),
    "no host": b"GET / HTTP/1.1\r\n\r\n",
    "two hosts": b"GET / HTTP/1.1\r\nHost: x\r\nHost: x\r\n\r\n",
    "two hosts in HTTP/1.0": b"GET / HTTP/1.0\r\nHost: x\r\nHost: y\r\n\r\n",
    "list of hosts": get(b"GET / HTTP/1.1", b"Host: x, y"),
    "path in host": get(b"GET / HTTP/1.1", b"Host: x/y"),
    "user in host": get(b"GET / HTTP/1.1", b"Host: a@x"),
    "absolute target": get(b"GET http://x/ HTTP/1.1", b"Host: x"),
    "target without a slash": get(b"GET a HTTP/1.1", b"Host: x"),
    "fragment": get(b"GET /a#b HTTP/1.1", b"Host: x"),
    "two spaces": get(b"GET  / HTTP/1.1", b"Host: x"),
    "space in the target": get(b"GET /a b HTTP/1.1", b"Host: x"),
    "tab in the target": get(b"GET /a\tb HTTP/1.1", b"Host: x"),
    "control in the target": get(b"GET /a\x01 HTTP/1.1", b"Host: x"),
    "high byte in the target": get(b"GET /\xe9 HTTP/1.1", b"Host: x"),
    "bad percent-encoding": get(b"GET /%zz HTTP/1.1", b"Host: x"),
    "cut percent-encoding": get(b"GET /a% HTTP/1.1", b"Host: x"),
    "NUL in the path": get(b"GET /a%00b HTTP/1.1", b"Host: x"),
    "line end in the path": get(b"GET /a%0d%0ab HTTP/1.1", b"Host: x"),
    "path that is not UTF-8": get(b"GET /%ff HTTP/1.1", b"Host: x"),
    "space after the version": get(b"GET / HTTP/1.1 ", b"Host: x"),
    "no version": get(b"GET /", b"Host: x"),
    "HTTP/0.9": get(b"GET / HTTP/0.9", b"Host: x"),
    "HTTP/1.2": get(b"GET / HTTP/1.2", b"Host: x"),
    "HTTP/1.10": get(b"GET / HTTP/1.10", b"Host: x"),
    "HTTP/2.0": get(b"GET / HTTP/2.0", b"Host: x"),
    "RTSP": get(b"OPTIONS / RTSP/1.0", b"Host: x"),
    "ICE": get(b"SOURCE / ICE/1.0", b"Host: x"),
    "method in lower case": get(b"get / HTTP/1.1", b"Host: x"),
    "unknown method": get(b"FOO / HTTP/1.1", b"Host: x"),
    "HTTP/2 preface": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "TLS ClientHello": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(64),
    "garbage": b"\x00\xff\x80garbage",
    "text of another protocol": b"EHLO example.org\r\n",
    "long word": b"A" * 400,
}

REFUSED_BODIES = {
    "plus sign": b"+5\r\nhello\r\n0\r\n\r\n",
    "minus sign": b"-5\r\nhello\r\n0\r\n\r\n",
    "0x": b"0x5\r\nhello\r\n0\r\n\r\n",
    "space after the size": b"5 \r\nhello\r\n0\r\n\r\n",
    "space before the size": b" 5\r\nhello\r\n0\r\n\r\n",
    "empty size": b"\r\nhello\r\n0\r\n\r\n",
    "only an extension": b";a=b\r\nhello\r\n0\r\n\r\n",
    "size over 64 bits": b"FFFFFFFFFFFFFFFFF\r\nhello\r\n0\r\n\r\n",
    "LF after the size": b"5\nhello\r\n0\r\n\r\n",
    "LF in an extension": b"5;a\nb\r\nhello\r\n0\r\n\r\n",
    "CR in an extension": b"5;a\rb\r\nhello\r\n0\r\n\r\n",
    "LF after the content": b"5\r\nhello\n0\r\n\r\n",
    "content longer than its size": b"5\r\nhelloX\r\n0\r\n\r\n",
    "underscore": b"1_0\r\n0123456789abcdef\r\n0\r\n\r\n",
    "long extension": b"5;" + b"a" * 300 + b"\r\nhello\r\n0\r\n\r\n",
    "long extension without an end": b"5;" + b"a" * 300,
    "LF ends the body": b"5\r\nhello\r\n0\r\n\n",
    "length in the trailer": b"5\r\nhello\r\n0\r\nContent-Length: 3\r\n\r\n",
    "malformed trailer": b"5\r\nhello\r\n0\r\nX : a\r\n\r\n",
    "folded trailer": b"5\r\nhello\r\n0\r\nX: a\r\n b\r\n\r\n",
    "NUL in the trailer": b"5\r\nhello\r\n0\r\nX: \0\r\n\r\n",
}


def refusal(sent: bytes, *, at_a_time: int) -> tuple[bytes, RecordingApplication]:
    """Send something that must be refused; give all that comes back, and the application."""

    async def main() -> tuple[bytes, RecordingApplication]:
        application = RecordingApplication()
        async with serving(application) as server, raw_client(server.port) as client:
            for start in range(0, len(sent), at_a_time):
                client.send(sent[start : start + at_a_time])
                await asyncio.sleep(0)
            received = await client.read_to_end()
            return received, application

    return uvloop.run(main())


@pytest.mark.parametrize("at_a_time", [1 << 20, 7])
@pytest.mark.parametrize("sent", REFUSED_HEADS.values(), ids=REFUSED_HEADS.keys())
def test_an_ambiguous_head_is_refused_and_nothing_after_it_is_parsed(sent: bytes, at_a_time: int) -> None:
    """400 in OpenAI's shape, `connection: close`, and no second request, however the bytes come."""
    received, application = refusal(sent + NEXT, at_a_time=at_a_time)
    head, _, body = received.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 400 ")
    assert b"\r\nconnection: close" in head
    error = msgspec.json.decode(body)["error"]
    assert error["code"] == "invalid_http"
    assert error["type"] == "invalid_request_error"
    assert application.exchanges == []


@pytest.mark.parametrize("at_a_time", [1 << 20, 1])
@pytest.mark.parametrize("sent", REFUSED_BODIES.values(), ids=REFUSED_BODIES.keys())
def test_a_malformed_chunked_body_is_refused_and_nothing_after_it_is_parsed(sent: bytes, at_a_time: int) -> None:
    """The application hears `body_refused` with a 400, and the connection closes behind its answer."""
    received, application = refusal(CHUNKED + sent + NEXT, at_a_time=at_a_time)
    assert received.startswith(b"HTTP/1.1 400 ")
    assert b"\r\nconnection: close\r\n" in received
    [recorded] = application.exchanges
    assert recorded.events == ["body_refused"]
    assert isinstance(recorded.error, InvalidHttp)


@pytest.mark.parametrize("sent", [b"GET / HTTP/1.1\nHost: x\n\n", b"GET / HTTP/1.1\r\nHost: x\n", b"\x16\x03\x01\x02\x00", b"hello\r\n"])
@pytest.mark.parametrize("at_a_time", [1 << 20, 1])
def test_what_cannot_become_a_request_is_refused_before_its_end(sent: bytes, at_a_time: int) -> None:
    """A client of another protocol is told at once, not when its time for a head is over."""
    received, application = refusal(sent, at_a_time=at_a_time)
    assert received.startswith(b"HTTP/1.1 400 ")
    assert application.exchanges == []


def test_chunk_extensions_are_bounded_in_total() -> None:
    """Many short extensions are refused like one long one."""
    reader = ChunkedReader(1 << 20)
    one = b"1;" + b"e" * 200 + b"\r\nz\r\n"
    with pytest.raises(InvalidHttp, match="extensions"):
        reader.feed(one * (MAX_EXTENSION_BYTES // 200 + 1), 0)


def test_a_trailer_is_bounded() -> None:
    """A trailer that never ends is refused."""
    reader = ChunkedReader(1 << 20)
    with pytest.raises(InvalidHttp, match="trailer"):
        reader.feed(b"0\r\n" + b"X: a\r\n" * (MAX_TRAILER_BYTES // 6 + 1), 0)


def test_tiny_chunks_are_bounded() -> None:
    """A body in a hundred thousand one-byte chunks is refused: decoding it would stall the streams beside it."""
    reader = ChunkedReader(1 << 20)
    with pytest.raises(InvalidHttp, match="tiny"):
        reader.feed(b"1\r\nz\r\n" * 100_000, 0)


def test_a_chunk_over_the_limit_is_refused_with_its_size_line() -> None:
    """The limit holds before a byte of the chunk has come."""
    reader = ChunkedReader(10)
    assert reader.feed(b"a\r\n0123456789\r\n", 0) == 15
    with pytest.raises(BodyTooLarge, match="10 bytes"):
        reader.feed(b"1\r\n", 0)


def split(whole: bytes, cuts: list[int]) -> list[bytes]:
    edges = [0, *sorted(cut % (len(whole) + 1) for cut in cuts), len(whole)]
    return [whole[start:end] for start, end in itertools.pairwise(edges)]


@st.composite
def chunked_bodies(draw: st.DrawFn) -> tuple[bytes, bytes]:
    """A body, and one of its chunked encodings."""
    pieces = draw(st.lists(st.binary(min_size=1, max_size=40), max_size=5))
    encoded = b""
    for piece in pieces:
        size = draw(st.sampled_from([b"%x", b"%X", b"%04x"])) % len(piece)
        encoded += size + draw(st.sampled_from([b"", b";", b";a=b", b';a="c d"'])) + b"\r\n" + piece + b"\r\n"
    trailer = draw(st.sampled_from([b"", b"X-Sum: 1\r\n", b"A:\r\nB: c\r\n"]))
    return b"".join(pieces), encoded + draw(st.sampled_from([b"0", b"000"])) + b"\r\n" + trailer + b"\r\n"


@given(chunked_bodies(), st.binary(max_size=20), st.lists(st.integers(0, 500), max_size=8))
def test_law_a_chunked_body_is_the_same_however_it_is_split(pair: tuple[bytes, bytes], after: bytes, cuts: list[int]) -> None:
    """Law: any split gives the same body, and no byte after it is taken."""
    body, encoded = pair
    reader = ChunkedReader(1 << 20)
    taken = 0
    for piece in split(encoded + after, cuts):
        if not reader.complete:
            taken += reader.feed(piece, 0)
    assert reader.complete
    assert reader.take() == body
    assert taken == len(encoded)


@given(st.binary(max_size=60), st.binary(max_size=20), st.lists(st.integers(0, 100), max_size=6))
def test_law_a_body_of_known_length_is_the_same_however_it_is_split(body: bytes, after: bytes, cuts: list[int]) -> None:
    """Law: any split gives the same body, and no byte after it is taken."""
    reader = LengthReader(len(body))
    taken = sum(reader.feed(piece, 0) for piece in split(body + after, cuts))
    assert reader.complete
    assert reader.take() == body
    assert taken == len(body)


@st.composite
def requests(draw: st.DrawFn) -> tuple[bytes, bytes]:
    """A valid request, and the echo that answers it."""
    path = draw(st.sampled_from([b"/", b"/v1/chat/completions", b"/a%20b"]))
    shown = path.replace(b"%20", b" ")
    filler = draw(st.sampled_from([b"", b"X-Pad: \t abc \r\n", b"Accept:\r\nX-Y: z\r\n"]))
    kind = draw(st.sampled_from(["get", "length", "chunked"]))
    before = draw(st.sampled_from([b"", b"\r\n"]))
    if kind == "get":
        return before + b"GET %s?q HTTP/1.1\r\nHost: x\r\n%s\r\n" % (path, filler), b"GET %s q\n" % shown
    if kind == "length":
        body = draw(st.binary(max_size=50))
        head = b"POST %s HTTP/1.1\r\nHost: x\r\n%sContent-Length: %d\r\n\r\n" % (path, filler, len(body))
        return before + head + body, b"POST %s \n%s" % (shown, body)
    body, encoded = draw(chunked_bodies())
    head = b"POST %s HTTP/1.1\r\n%sHost: x\r\nTransfer-Encoding: chunked\r\n\r\n" % (path, filler)
    return before + head + encoded, b"POST %s \n%s" % (shown, body)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(requests(), min_size=1, max_size=4), st.lists(st.integers(0, 2000), max_size=12))
def test_law_any_split_of_a_pipelined_stream_gives_the_same_exchanges(pairs: list[tuple[bytes, bytes]], cuts: list[int]) -> None:
    """Law: however the bytes of several requests are split, the application sees the same requests, answered in order."""

    async def main() -> None:
        application = RecordingApplication()
        async with serving(application, ServerLimits()) as server, raw_client(server.port) as client:
            for piece in split(b"".join(sent for sent, _ in pairs), cuts):
                client.send(piece)
                for _ in range(3):  # let the server read this piece by itself
                    await asyncio.sleep(0)
            echoes = [(await client.read_response()).body for _ in pairs]
        assert [echo for _, echo in pairs] == echoes
        assert [recorded.events for recorded in application.exchanges] == [["body_received"]] * len(pairs)

    uvloop.run(main())


@pytest.mark.parametrize("size", [1, 9, 10, 15, 16, 255, 256, 1015, 1016, 1023, 1024, 4096])
def test_a_chunk_is_framed_and_unframed(size: int) -> None:
    """Expected the size in plain hexadecimal; to be read again, in either case of letters, where it is no longer than most."""
    content = b"x" * size
    chunk = Chunks().framed(content)
    assert chunk == b"%x\r\n%b\r\n" % (size, content)
    expected = content if len(chunk) < 1024 else b""
    assert Chunks().content_of(chunk) == Chunks().content_of(b"%X\r\n%b\r\n" % (size, content)) == expected


@pytest.mark.parametrize(
    "piece",
    [
        b"",
        b"\r\n",
        b"0\r\n\r\n",
        b"1\r\n\r\n",
        b"2\r\nx\r\n",
        b"1\r\nxy\r\n",
        b"1\r\nx\r\n1",
        b"1\r\nx\n\n",
        b"1\nxyz\r\n",
        b"01\r\nx\r\n",
        b"+1\r\nx\r\n",
        b"1;e\r\nx\r\n",
        b"1 \r\nx\r\n",
        b"g\r\n" + b"x" * 16 + b"\r\n",
        b"0x1\r\nx\r\n",
    ],
)
def test_what_is_not_one_ordinary_chunk_gives_nothing(piece: bytes) -> None:
    """Expected everything unusual to be left to the parser."""
    assert Chunks().content_of(piece) == b""


@pytest.mark.parametrize("size_line", [b"1F", b"1f"])
def test_what_was_just_read_is_written_as_it_came(size_line: bytes) -> None:
    """Expected the very bytes, and of any other content, also of what was read before, a chunk that is built."""
    first, second = b"x" * 31, b"y" * 31
    piece = size_line + b"\r\n" + first + b"\r\n"
    chunks = Chunks()
    content = chunks.content_of(piece)
    assert chunks.framed(content) is piece
    assert chunks.framed(second) == b"1f\r\n" + second + b"\r\n"
    chunks.content_of(b"1F\r\n" + second + b"\r\n")
    assert chunks.framed(content) == b"1f\r\n" + first + b"\r\n"
