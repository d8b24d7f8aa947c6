"""The suite can fail: straight to the misbehaving upstream, without a gateway to mend things, its cases do not hold."""

from __future__ import annotations

import asyncio

import pytest

from tidegate.conformance.cases import cases
from tidegate.conformance.events import read_events
from tidegate.conformance.expect import Expectation, Way, complete, without_usage
from tidegate.conformance.observe import End, Observation, Target, ask
from tidegate.conformance.run import Result, Settings, run_cases
from tidegate.testing import ThreadedUpstream

_CHOSEN = (
    "plain",
    "usage-cumulative",
    "malformed-event",
    "reset-before-headers-once",
    "hang-before-headers-once",
    "stall-3",
    "cut-3",
    "wrong-key",
)
_NO_KEY = "none"


def _ignore(result: Result) -> None:
    """Nobody watches."""


@pytest.fixture(scope="module")
def complaints() -> dict[str, str | None]:
    """What the suite says of a bare upstream, by case (asked as a chat stream)."""
    with ThreadedUpstream() as upstream:
        settings = Settings(Target(upstream.base_url, _NO_KEY), patience_s=0.5)
        results = asyncio.run(run_cases([case for case in cases() if case.name in _CHOSEN], settings, told=_ignore))
    return {result.case: result.complaint for result in results if result.way == "chat stream"}


def test_what_the_upstream_does_right_holds(complaints: dict[str, str | None]) -> None:
    """A plain answer needs no gateway."""
    assert complaints["plain"] is None


@pytest.mark.parametrize(
    ("case", "word"),
    [
        ("malformed-event", "not JSON"),
        ("reset-before-headers-once", "expected a complete answer"),
        ("hang-before-headers-once", "nothing more came"),
        ("stall-3", "nothing more came"),
        ("cut-3", "good HTTP order"),
        ("wrong-key", "expected status"),
    ],
)
def test_what_only_a_gateway_can_mend_does_not(complaints: dict[str, str | None], case: str, word: str) -> None:
    """The complaint names what is wrong."""
    complaint = complaints[case]
    assert complaint is not None
    assert word in complaint


def test_a_forged_done_is_a_complaint() -> None:
    """The reader sees a [DONE] wherever it stands, comments that dispatch, bytes that are no text, and what hangs over at the end."""
    reading = read_events(b": c\n\ndata: {}\r\n\r\ndata: \xff\n\ndata: [DONE]\n\ndata: half")
    assert reading.data == ("{}", "\ufffd", "[DONE]")
    assert (1, 1, True, b"data: half") == (reading.empty_dispatches, reading.comments, reading.undecodable, reading.rest)
    assert reading.ends_with_done
    assert reading.malformed == ["\ufffd"]


CHUNK = b'data: {"choices":[{"delta":{"content":"Hello"},"finish_reason":"stop"}]}\n\n'
DONE = b"data: [DONE]\n\n"


@pytest.mark.parametrize(
    ("expect", "body", "complaint"),
    [
        (complete("Hello"), CHUNK + DONE, None),
        (complete("Hello"), CHUNK, "does not end with [DONE]"),
        (complete("Hello"), DONE + CHUNK, "does not end with [DONE]"),
        (complete("Hello", done=False), CHUNK, None),
        (complete("Hello", done=False), CHUNK + DONE, "made up"),
        (complete("Hello"), b": c\n" + CHUNK + DONE, None),
        (complete("Hello"), b": c\n\n" + CHUNK + DONE, "1 blank lines"),
        (complete("Hello"), b"id: 1\n\n" + CHUNK + DONE, "1 blank lines"),
        (complete("Hello", comments=True), b": c\n\n" + CHUNK + DONE, None),
        (complete("Hello", comments=True), b": c\n\n" + CHUNK, "does not end with [DONE]"),
        (without_usage(), CHUNK.replace(b"Hello", b"Hello, wide world."), "does not end with [DONE]"),
    ],
)
def test_a_complete_stream_is_framed_as_the_strictest_client_wants_it(expect: Expectation, body: bytes, complaint: str | None) -> None:
    """It ends with the upstream's `[DONE]`, which is neither lost nor made up, and no blank line makes an empty event."""
    found = expect(Observation(End.CLEAN, 200, body=body), Way.CHAT_STREAM)
    assert found is None if complaint is None else complaint in (found or "")


def seen_from(answer: bytes) -> Observation:
    """Ask a server that answers every request with these bytes, and closes."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"{}")
        writer.write(answer)
        writer.close()
        await writer.wait_closed()

    async def main() -> Observation:
        async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
            port = server.sockets[0].getsockname()[1]
            return await ask(Target(f"http://127.0.0.1:{port}/v1", _NO_KEY), "/chat/completions", b"{}", deadline_s=5.0)

    return asyncio.run(main())


@pytest.mark.parametrize("length", [b"three", b"-3", b"", b"0x3", "²".encode("latin-1")])
def test_a_length_that_is_no_number_is_a_cut_answer(length: bytes) -> None:
    """A gateway that sends nonsense is judged like any other: the run goes on."""
    seen = seen_from(b"HTTP/1.1 200 OK\r\ncontent-length: " + length + b"\r\n\r\nabc")
    assert (End.CUT, 200, b"abc") == (seen.end, seen.status, seen.body)


def test_a_length_that_fits_is_a_whole_answer() -> None:
    """The same bytes with the right number."""
    assert End.CLEAN is seen_from(b"HTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\nabc").end
