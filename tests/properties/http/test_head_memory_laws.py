"""Laws of remembered heads: a memory reads whatever came before it as if nothing had."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tidegate.errors import TidegateError
from tidegate.http.head_memory import CAPACITY, MAX_FIELDS, MAX_HEAD_BYTES, REST, HeadMemory
from tidegate.http.request_head import HeadReader, ParsedHead

PEER = "127.0.0.1:1"
HEAD = b"POST /v1/chat/completions?a=1 HTTP/1.1\r\nHost: x\r\nContent-Length: %b\r\nAuthorization: Bearer k\r\n\r\n"

DIGITS = st.sampled_from([b"0", b"5", b"7", b"007", b"12", b"9" * 18, b"9" * 19, b"1" + b"0" * 20])
LENGTHS = st.one_of(
    DIGITS,
    st.sampled_from(
        [b"", b"+5", b"-5", b" 5", b"5 ", b"5\t", b"5,5", b"5, 5", b"0x5", b"5\r\n 6", b"5\n6", b"5\r", "٥".encode(), b"\xb2", b"1_0"]
    ),
)
LENGTH_NAMES = st.sampled_from(
    [
        b"content-length: ",
        b"Content-Length: ",
        b"CONTENT-LENGTH: ",
        b"Content-length: ",
        b"content-length:",
        b"content-length : ",
        b" content-length: ",
    ]
)
OTHERS = st.sampled_from(
    [
        b"host: x",
        b"Host: y",
        b"transfer-encoding: chunked",
        b"Transfer-Encoding: gzip",
        b"expect: 100-continue",
        b"connection: close",
        b"Connection: keep-alive, upgrade",
        b"upgrade: h2c",
        b"content-encoding: gzip",
        b"x-folded: a\r\n b",
        b"x-lf: a\ncontent-length: 5",
        b"x-space: a ",
        b"x-lookalike: content-length: 5",
        b"x-content-length: 5",
        b"content-length: 5\r\nContent-Length: 7",
        b"x-request-id: 1",
        b"",
    ]
)
LINES = st.sampled_from(
    [
        b"POST / HTTP/1.1",
        b"GET /a?b HTTP/1.1",
        b"POST / HTTP/1.0",
        b"POST /%zz HTTP/1.1",
        b"HEAD * HTTP/1.1",
        b"CONNECT x:1 HTTP/1.1",
        b"\r\nGET / HTTP/1.1",
    ]
)


@st.composite
def shapes(draw: st.DrawFn) -> tuple[bytes, bytes]:
    """A head but for what stands in the place of its length's value."""
    fields = draw(st.lists(OTHERS, max_size=3))
    if draw(st.integers(0, 7)):
        fields.insert(0, b"host: x")
    place = draw(st.integers(0, len(fields)))
    before = b"\r\n".join((draw(LINES), *fields[:place], draw(LENGTH_NAMES)))
    return before, b"\r\n".join((b"", *fields[place:], b"", b""))


@st.composite
def sequences(draw: st.DrawFn) -> list[bytes]:
    """Heads as one server meets them: few shapes, many lengths, and now and then a byte that is wrong."""
    few = draw(st.lists(shapes(), min_size=1, max_size=3))
    heads = []
    for _ in range(draw(st.integers(1, 8))):
        before, after = draw(st.sampled_from(few))
        head = before + draw(LENGTHS) + after
        if not draw(st.integers(0, 5)):
            at = draw(st.integers(0, len(head) - 1))
            head = (
                head[:at]
                + draw(st.sampled_from([b"", b"\r", b"\n", b"\0", b" ", b"5", b":", b"\x80"]))
                + head[at + draw(st.integers(0, 1)) :]
            )
        heads.append(head.partition(b"\r\n\r\n")[0] + b"\r\n\r\n")  # as the connection cuts it off
    return heads


def outcome(reader: HeadMemory | HeadReader, raw: bytes, peer: str) -> tuple[Any, ...]:
    try:
        parsed = reader.read(raw, peer)
    except TidegateError as error:
        return type(error), str(error)
    head = parsed.head
    read = (head.method, head.path, head.query, head.headers, head.peer)
    return (*read, parsed.body_length, parsed.keep_alive, parsed.http_1_0, parsed.expectation, parsed.coded)


@given(sequences())
@example([HEAD % b"5", HEAD % b"5\r\nContent-Length: 7", HEAD % b"+7", HEAD % b"7", HEAD % b"7\r\n 8"])
@example([HEAD % b"5\r\ntransfer-encoding: chunked", HEAD % b"6\r\ntransfer-encoding: chunked"])
def test_law_what_came_before_changes_nothing(heads: list[bytes]) -> None:
    """Each head of any sequence is read as by a reader that never read any: the same facts, or the same refusal."""
    memory = HeadMemory()

    for number, raw in enumerate(heads):
        peer = f"127.0.0.1:{number}"
        assert outcome(memory, raw, peer) == outcome(HeadReader(), raw, peer)


@given(sequences())
def test_law_notes_are_shared_only_by_heads_that_differ_in_their_length(heads: list[bytes]) -> None:
    """Of two heads with the same notes every field but content-length is equal, in its place; and so is the first line."""
    memory, by_notes = HeadMemory(), dict[int, list[ParsedHead]]()
    for raw in heads:
        try:
            parsed = memory.read(raw, PEER)
        except TidegateError:
            continue
        by_notes.setdefault(id(parsed.head.notes), []).append(parsed)

    for alike in by_notes.values():
        assert 1 == len({(each.head.method, each.head.path, each.head.query) for each in alike})
        assert 1 == len({tuple(field if field[0] != b"content-length" else None for field in each.head.headers) for each in alike})


@pytest.mark.parametrize("head", [HEAD, HEAD.lower().replace(b"post", b"POST").replace(b"http/", b"HTTP/")])
def test_a_head_that_comes_again_is_remembered(head: bytes) -> None:
    """With another length, on another connection; what the application noted of it is found."""
    memory = HeadMemory()
    first = memory.read(head % b"5", PEER)
    first.head.notes.derived = "noted"

    again = memory.read(head % b"0012", "127.0.0.1:2")

    assert ("noted", 12, "127.0.0.1:2") == (again.head.notes.derived, again.body_length, again.head.peer)
    assert (b"content-length", b"0012") == again.head.headers[1]


@pytest.mark.parametrize(
    "head",
    [
        HEAD.replace(b"Host: x", b"Host: x\r\nx-long: " + b"a" * MAX_HEAD_BYTES),
        HEAD.replace(b"Host: x", b"Host: x" + b"\r\na: b" * (MAX_FIELDS - 2)),
        HEAD.replace(b"Host: x", b"Host: x\r\nX-Request-Id: 1"),
        HEAD.replace(b"Content-Length: ", b"content-Length: "),
    ],
)
def test_a_head_out_of_the_ordinary_is_not_remembered(head: bytes) -> None:
    """One that is long, has many fields, names its request or spells its length in its own way."""
    memory = HeadMemory()
    memory.read(head % b"5", PEER).head.notes.derived = "noted"

    assert memory.read(head % b"5", PEER).head.notes.derived is None


def is_known(memory: HeadMemory, number: int) -> bool:
    """Say whether the head of this number came before; it has by now."""
    notes = memory.read(b"POST /%d HTTP/1.1\r\nhost: x\r\ncontent-length: 5\r\n\r\n" % number, PEER).head.notes
    known, notes.derived = notes.derived is not None, number
    return known


def test_a_full_memory_forgets_everything() -> None:
    """So what clients send has no say in what stays."""
    memory = HeadMemory()
    for number in range(CAPACITY):
        assert not is_known(memory, number)
    assert is_known(memory, 0)
    assert not is_known(memory, CAPACITY)

    assert [True, False] == [is_known(memory, CAPACITY), is_known(memory, 0)]


def test_heads_that_never_come_again_are_seldom_remembered() -> None:
    """Once as many as there is room for were of no use, only one in some; one that is known ends that."""
    memory = HeadMemory()
    for number in range(CAPACITY + 4 * REST):
        assert not is_known(memory, number)

    later = [is_known(memory, number) for number in range(CAPACITY, CAPACITY + 4 * REST) if number % REST == REST - 1]
    fresh = [is_known(memory, CAPACITY + 4 * REST), is_known(memory, CAPACITY + 4 * REST)]

    assert ([True] * 4, [False, True]) == (later, fresh)
