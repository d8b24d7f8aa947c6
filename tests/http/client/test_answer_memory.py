"""Answers whose heads came before: a connection with a memory does what one without does, whatever came earlier and however it is cut."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest
import uvloop
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.http.client.raw_server import CHUNKED, OK, Recorder
from tests.http.client.test_client_responses import ANSWERS, DeadWire, Ledger

from tidegate.domain.units import Headers
from tidegate.http.answer_memory import MAX_HEAD_BYTES, REST, AnswerMemory
from tidegate.http.client_call import Call
from tidegate.http.client_connection import ClientConnection

HEAD = b"HTTP/1.1 200 OK\r\nServer: uvicorn\r\nContent-Length: %d\r\nContent-Type: application/json \r\n\r\n"
EACH_ITS_OWN = [b"HTTP/1.1 200 OK\r\ndate: %d\r\ncontent-length: 2\r\n\r\nok" % number for number in range(REST + 3)]

LINES = st.sampled_from(
    [
        b"HTTP/1.1 200 OK",
        b"HTTP/1.1 200 OK",
        b"HTTP/1.1 200 OK",
        b"HTTP/1.1 200 ",
        b"HTTP/1.1 200",
        b"HTTP/1.0 200 OK",
        b"HTTP/1.1 204 No",
        b"HTTP/1.1 500 Oh",
    ]
)
FIELDS = st.sampled_from(
    [
        b"server: uvicorn",
        b"connection: close",
        b"Connection: keep-alive",
        b"transfer-encoding: chunked",
        b"Transfer-Encoding: gzip",
        b"upgrade: h2c\r\nconnection: upgrade",
        b"content-length: 5",
        b"x-folded: a\r\n b",
        b"x-lf: a\nx-b: c",
        b"x-lf: a\n",
        b"x-lookalike: content-length: 5",
        b"set-cookie: a=b",
        b"x-empty:",
        b"keep-alive: timeout=5",
    ]
)
VALUES = st.one_of(
    st.just(b"%d"),
    st.sampled_from([b"%d", b"00%d", b"+%d", b"%d ", b" %d", b"%d, %d", b"-%d", b"0x%d", b"%d\r\n 1", b"%d" + b"0" * 19, b""]),
)
NAMES = st.sampled_from([b"content-length: ", b"Content-Length: ", b"CONTENT-LENGTH: ", b"content-length:", b"content-length : "])
BODIES = st.sampled_from([b"", b"{}", b"hello", b"hello\r\n\r\nworld", b"\r\n", OK])


PLAIN_SHAPES = st.sampled_from([HEAD.split(b"%d"), [b"HTTP/1.1 200 OK\r\ncontent-length: ", b"\r\nconnection: close\r\n\r\n"]])


@st.composite
def odd_shapes(draw: st.DrawFn) -> list[bytes]:
    """A head but for the value of its length: what is before it, and what is after."""
    fields = draw(st.lists(FIELDS, max_size=2))
    place = draw(st.integers(0, len(fields)))
    return [b"\r\n".join((draw(LINES), *fields[:place], draw(NAMES))), b"\r\n".join((b"", *fields[place:], b"", b""))]


@st.composite
def answers(draw: st.DrawFn) -> list[bytes]:
    """Answers as one upstream gives them: few shapes, many lengths, now and then one that is odd or wrong."""
    few = draw(st.lists(st.one_of(PLAIN_SHAPES, odd_shapes()), min_size=1, max_size=2))
    given_answers = []
    for _ in range(draw(st.integers(2, 6))):
        before, after = draw(st.sampled_from(few))
        body = draw(BODIES)
        size = b"%d" % max(0, len(body) + draw(st.sampled_from([0, 0, 0, 0, 0, 1, -1])))
        answer = before + draw(VALUES).replace(b"%d", size) + after + body
        match draw(st.integers(0, 15)):
            case 0:
                answer = ANSWERS[draw(st.sampled_from(sorted(ANSWERS)))]
            case 1:
                answer += draw(st.sampled_from([b"\r\n", b"\n", b"x", OK]))
            case 2:
                answer = b"HTTP/1.1 103 Early Hints\r\ncontent-length: %d\r\n\r\n" % len(answer) + answer
            case _:
                pass
        given_answers.append(answer)
    return given_answers


Heard = list[tuple[list[object], Headers, list[bytes], bool]]


def converse(
    given_answers: Sequence[tuple[bytes, int]], memory: AnswerMemory | None, *, is_head: bool = False, chunks: bool = False
) -> Heard:
    """Give what the receivers hear and whether the connection was kept, call by call; each answer comes whole or cut once, at an index."""

    async def main() -> Heard:
        heard: Heard = []
        owner, connection = Ledger(), None
        for answer, cut in given_answers:
            if connection is None or connection.closed:
                connection = ClientConnection(owner, asyncio.get_running_loop(), None, memory)
                connection.connection_made(DeadWire())
            recorder = Recorder()
            connection.begin(Call(owner, recorder, b"request", b"", is_head=is_head))
            await asyncio.sleep(0)
            for piece in (answer[:cut], answer[cut:]) if 0 < cut < len(answer) else (answer,):
                if not connection.closed and not recorder.over.is_set():
                    connection.data_received(piece)
            kept = recorder.over.is_set() and not connection.closed
            if not recorder.over.is_set():
                connection.eof_received()
                connection.connection_lost(None)
            heard.append((recorder.events, recorder.headers, recorder.chunks if chunks else [recorder.body], kept))
        return heard

    return uvloop.run(main())


@settings(max_examples=400, deadline=None)
@given(
    given_answers=answers(), cuts=st.lists(st.integers(-200, 200), min_size=6, max_size=6), is_head=st.sampled_from([False] * 5 + [True])
)
@example(
    given_answers=[HEAD % 2 + b"ok", HEAD % 5 + b"hello", HEAD % 2 + b"ok\r\n", HEAD % 9 + b"short", HEAD % 5 + b"hello"],
    cuts=[0] * 6,
    is_head=False,
)
@example(given_answers=[HEAD % 2 + b"ok", HEAD % 2 + b"ok"], cuts=[0] * 6, is_head=True)
@example(given_answers=[HEAD % 2 + b"ok", HEAD % 5 + b"hello", HEAD % 5 + b"hello", OK], cuts=[0, 3, 80, 0, 0, 0], is_head=False)
def test_law_a_memory_changes_nothing(given_answers: list[bytes], cuts: list[int], *, is_head: bool) -> None:
    """Every call hears the same with a memory that all answers went through, and the connection is kept or closed alike."""
    conversation = list(zip(given_answers, cuts, strict=False))

    expected = converse(conversation, None, is_head=is_head)

    assert expected == converse(conversation, AnswerMemory(), is_head=is_head)


def test_a_head_that_comes_again_is_known() -> None:
    """With another length; its fields are as the parser gives them."""
    memory = AnswerMemory()
    expected = converse([(HEAD % 5 + b"hello", 0)], memory)[0][1]

    whole = memory.read(HEAD % 2 + b"ok")

    assert whole is not None
    assert ((expected[0], (b"content-length", b"2"), expected[2]), b"ok", True) == (whole.headers, whole.body, whole.keeps_alive)


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 404 Not Found\r\ncontent-length: 2\r\n\r\nno",
        b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nx-long: " + b"a" * MAX_HEAD_BYTES + b"\r\ncontent-length: 2\r\n\r\nok",
        b"HTTP/1.0 200 OK\r\ncontent-length: 2\r\n\r\nok",
        CHUNKED + b"2\r\nok\r\n0\r\n\r\n",
    ],
)
def test_an_answer_out_of_the_ordinary_is_left_to_the_parser(answer: bytes) -> None:
    """Each time: nothing of it is remembered."""
    memory = AnswerMemory()

    converse([(answer, 0), (answer, 0)], memory)

    assert memory.read(answer) is None


def test_an_upstream_that_never_repeats_itself_is_seldom_remembered() -> None:
    """Once a head did not come again, some answers go by after the next; one that is known ends that."""
    memory = AnswerMemory()
    converse([(answer, 0) for answer in EACH_ITS_OWN[:-1]], memory)
    assert memory.read(EACH_ITS_OWN[-2]) is None
    assert memory.read(EACH_ITS_OWN[1]) is not None

    converse([(EACH_ITS_OWN[-1], 0)], memory)
    assert memory.read(EACH_ITS_OWN[-1]) is not None


def test_after_a_rest_a_head_is_remembered_again() -> None:
    """The first that comes then."""
    memory = AnswerMemory()
    converse([(answer, 0) for answer in EACH_ITS_OWN], memory)

    assert memory.read(EACH_ITS_OWN[-1]) is not None
