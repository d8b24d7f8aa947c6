"""Every fault of the scripted upstream as the bytes and silences that a client's socket sees."""

from __future__ import annotations

import asyncio
import functools
import json
import re
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, TypeVar

import pytest
import uvloop

from tidegate.mock.presets import PRESETS
from tidegate.testing import FaultKind, MockSettings, RetryDialect, Script, ScriptedUpstream, UsagePlace
from tidegate.testing.raw_http import PATIENCE_S, RawClient, raw_client

T = TypeVar("T")
SILENCE_S = 0.15
"""How long nothing must come for it to count as silence."""


def ask(said: object, *, stream: bool = True, path: str = "/v1/chat/completions", **fields: object) -> bytes:
    """Make a request whose last user message holds a marker."""
    marker = said if isinstance(said, str) else json.dumps(said)
    text = f"hello [[mock:{marker}]]"
    contents: dict[str, dict[str, object]] = {
        "/v1/chat/completions": {"messages": [{"role": "user", "content": text}, {"role": "assistant", "content": "…"}]},
        "/v1/completions": {"prompt": text},
        "/v1/embeddings": {"input": text},
    }
    body = json.dumps({"model": "m", "stream": stream} | contents[path] | fields).encode()
    return b"POST %b HTTP/1.1\r\nhost: mock\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%b" % (
        path.encode(),
        len(body),
        body,
    )


def served(scenario: Callable[[ScriptedUpstream, RawClient], Awaitable[T]], **settings: Any) -> T:
    async def main() -> T:
        async with ScriptedUpstream(settings=MockSettings(**settings)) as upstream:
            port = int(upstream.base_url.rsplit(":", 1)[1].removesuffix("/v1"))
            async with raw_client(port) as client:
                return await scenario(upstream, client)

    return uvloop.run(main())


def all_of(request: bytes, **settings: Any) -> bytes:
    """Give everything up to the end of the connection; a reset counts as one."""

    async def scenario(_: ScriptedUpstream, client: RawClient) -> bytes:
        client.send(request)
        return await to_the_end(client)

    return served(scenario, **settings)


async def to_the_end(client: RawClient) -> bytes:
    received = b""
    try:
        async with asyncio.timeout(PATIENCE_S):
            while piece := await client.reader.read(65536):
                received += piece
    except ConnectionResetError:
        received += b"<reset>"
    return received


def until_silent(request: bytes, **settings: Any) -> tuple[bytes, Any]:
    """Give what came before the silence, and what the mock says became of the request after we left."""

    async def scenario(upstream: ScriptedUpstream, client: RawClient) -> tuple[bytes, Any]:
        client.send(request)
        received = b""
        while True:
            try:
                async with asyncio.timeout(SILENCE_S):
                    piece = await client.reader.read(65536)
            except TimeoutError:
                break
            assert piece, "the connection ended instead of falling silent"
            received += piece
        await client.close()
        await upstream.wait_for(lambda: upstream.requests[0].client_left_at is not None, 2.0)
        return received, upstream.requests[0].report(upstream.started_at)

    return served(scenario, **settings)


def one_response(request: bytes, **settings: Any) -> tuple[int, dict[bytes, bytes], bytes]:
    async def scenario(_: ScriptedUpstream, client: RawClient) -> tuple[int, dict[bytes, bytes], bytes]:
        client.send(request)
        response = await client.read_response()
        return response.status, response.headers, response.body

    return served(scenario, **settings)


def payloads(body: bytes, newline: bytes = b"\n") -> list[Any]:
    """Give the events of a stream: JSON, or the text of what is none."""
    found: list[Any] = []
    for block in body.split(newline * 2):
        lines = [line.removeprefix(b"data: ") for line in block.split(newline) if line.startswith(b"data:")]
        if not lines:
            continue
        try:
            found.append(json.loads(b"\n".join(lines)))
        except ValueError:
            found.append(b"\n".join(lines).decode())
    return found


def text_of(events: list[Any]) -> str:
    chunks = [event for event in events if isinstance(event, dict)]
    return "".join(choice["delta"].get("content") or "" for chunk in chunks for choice in chunk.get("choices", ()))


@functools.cache
def healthy() -> bytes:
    """Give the body of a stream without a fault."""
    return one_response(ask({}))[2]


# ── before and within the head ──


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/completions", "/v1/embeddings"])
@pytest.mark.parametrize(
    ("fault", "seen"),
    [("reset_before_headers", b"<reset>"), ("close_before_headers", b""), ("garbage", b"\x15\x03\x01 this is not HTTP\r\n\r\n")],
)
def test_no_answer_at_all(fault: str, seen: bytes, path: str, stream: bool) -> None:
    """A reset, an end or bytes that are not HTTP, on every endpoint, streamed or not."""
    assert seen == all_of(ask(fault, path=path, stream=stream))


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/completions", "/v1/embeddings"])
def test_a_hang_before_the_headers_is_silent(path: str) -> None:
    """Not one byte, and the departure is noted with nothing sent."""
    received, report = until_silent(ask("hang_before_headers", path=path))
    assert received == b""
    assert (report["ended"], report["pieces_sent"], report["fault"]) == ("client_left", 0, "hang_before_headers")
    assert report["client_left_after_s"] >= SILENCE_S / 2


def test_half_a_head() -> None:
    """`cut_headers` breaks off within the head."""
    seen = all_of(ask("cut_headers"))
    assert seen.startswith(b"HTTP/1.1 200 OK\r\n")
    assert b"\r\n\r\n" not in seen


def test_a_head_that_drips() -> None:
    """Byte by byte, `pause_s` apart; the answer behind it is whole."""

    async def scenario(_: ScriptedUpstream, client: RawClient) -> tuple[float, bytes]:
        began = asyncio.get_running_loop().time()
        client.send(ask({"fault": {"kind": "drip_headers", "pause_s": 0.001}}, stream=False))
        assert await client.read(1) == b"H"
        response_rest = await client.reader.readuntil(b"\r\n\r\n")
        took = asyncio.get_running_loop().time() - began
        return took, response_rest

    took, head = served(scenario)
    assert took >= 0.001 * len(head)
    assert head.startswith(b"TTP/1.1 200 OK")


def test_a_refusal_closes_the_port_for_its_time() -> None:
    """The call is reset, connecting fails, and after `for_s` it works again."""

    async def scenario(upstream: ScriptedUpstream, client: RawClient) -> bytes:
        port = int(upstream.base_url.rsplit(":", 1)[1].removesuffix("/v1"))
        client.send(ask({"fault": {"kind": "refuse", "for_s": 0.3}}))
        broken = await to_the_end(client)
        with pytest.raises(ConnectionRefusedError):
            await asyncio.open_connection("127.0.0.1", port)
        async with asyncio.timeout(5.0):
            while not upstream.statistics()["accepting"]:  # noqa: ASYNC110  no event tells of it
                await asyncio.sleep(0.01)
        async with raw_client(port) as again:
            again.send(ask("ok", stream=False))
            assert (await again.read_response()).status == 200
        return broken

    assert served(scenario) == b"<reset>"


# ── within the body ──


@pytest.mark.parametrize(
    ("fault", "events"), [("hang_before_first_token", 1), ("stall@0", 0), ("stall@3", 3), ({"fault": "stall@2", "role_first": False}, 2)]
)
def test_a_stall_is_silent_after_so_many_events(fault: object, events: int) -> None:
    """The events before it come whole, then nothing; the departure tells at which piece."""
    received, report = until_silent(ask(fault))
    body = received.partition(b"\r\n\r\n")[2]
    assert body.count(b"data: ") == events
    assert (report["ended"], report["pieces_sent"]) == ("client_left", events)


@pytest.mark.parametrize(("fault", "ending"), [("cut@3", b""), ("reset@3", b"<reset>"), ("bad_framing@3", b"zz\r\n")])
def test_a_body_breaks_after_so_many_events(fault: str, ending: bytes) -> None:
    """Three whole events, no last chunk, and the ending that was asked for."""
    seen = all_of(ask(fault))
    assert seen.count(b"data: ") in ((3,) if ending != b"<reset>" else range(4))  # a reset may overtake what was sent before it
    assert seen.endswith(ending)
    assert not seen.endswith(b"0\r\n\r\n")


@pytest.mark.parametrize("fault", ["cut", "reset", "stall", "end", "malformed_event", "bad_framing"])
def test_an_answer_with_a_length_breaks_likewise(fault: str) -> None:
    """Half of the JSON comes, and never the whole."""
    if fault == "stall":
        received, _ = until_silent(ask(fault, stream=False))
    elif fault in {"end", "malformed_event"}:
        received = one_response(ask(fault, stream=False))[2]
    else:
        received = all_of(ask(fault, stream=False))
    if fault != "reset":  # which may overtake what was sent before it
        assert b'"choices"' in received
    assert b'"total_tokens"' not in received


def test_an_end_without_finish_is_well_formed() -> None:
    """`end@3`: the body ends properly after three events."""
    status, _, body = one_response(ask("end@3"))
    assert (status, len(payloads(body))) == (200, 3)


def test_missing_done_leaves_out_only_that() -> None:
    """Everything else is as in a healthy stream, with usage behind the mark too."""
    assert payloads(one_response(ask("missing_done"))[2]) == payloads(healthy())[:-1]
    behind = payloads(one_response(ask({"fault": "missing_done", "usage": "after_done", "usage_unasked": True}))[2])
    assert "[DONE]" not in behind
    assert behind[-1]["usage"]["completion_tokens"] == 5


@pytest.mark.parametrize("text", [None, "{nonsense", ""])
def test_a_malformed_event_leaves_the_rest(text: str | None) -> None:
    """One event is no JSON; the others are those of a healthy stream."""
    found = payloads(one_response(ask({"fault": {"kind": "malformed_event", "after": 2, "text": text}}))[2])
    assert text is None or found[2] == text
    assert isinstance(found[2], str)
    assert found[:2] + found[3:] == payloads(healthy())


def test_a_huge_event_adds_nothing_to_the_text() -> None:
    """A comment line and an event of a million bytes each, and the same words."""
    body = one_response(ask({"fault": {"kind": "huge_event", "after": 3, "size_bytes": 1_000_000}}))[2]
    assert max(len(line) for line in body.split(b"\n") if line.startswith(b":")) > 1_000_000
    assert max(len(line) for line in body.split(b"\n") if line.startswith(b"data:")) > 1_000_000
    assert text_of(payloads(body)) == text_of(payloads(healthy()))
    whole = json.loads(one_response(ask({"fault": {"kind": "huge_event", "size_bytes": 1000}}, stream=False))[2])
    assert whole["choices"][0]["message"]["content"] == "Hello, wide world."


@pytest.mark.parametrize("stream", [True, False])
def test_an_error_under_status_200(stream: bool) -> None:
    """`error_event`: the first event, or the body, is an error object."""
    status, _, body = one_response(ask("error_event", stream=stream))
    assert status == 200
    [event] = payloads(body) if stream else [json.loads(body)]
    assert event["error"]["type"] == "server_error"


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/completions"])
def test_openrouters_error_within_a_stream(path: str) -> None:
    """`finish_error@2`: `error` beside a choice that finishes with `error`, then the end without `[DONE]`."""
    found = payloads(one_response(ask("finish_error@2", path=path))[2])
    assert len(found) == 3
    assert found[-1]["choices"][0]["finish_reason"] == "error"
    assert found[-1]["error"]["code"] == 502
    whole = json.loads(one_response(ask("finish_error", stream=False, path=path))[2])
    assert (whole["choices"][0]["finish_reason"], whole["error"]["code"]) == ("error", 502)


@pytest.mark.parametrize("stream", [True, False])
def test_a_connection_that_closes_unannounced(stream: bool) -> None:
    """`close_after`: the answer is complete and keeps the connection, but it closes."""
    seen = all_of(ask("close_after", stream=stream))
    assert b"connection: close" not in seen
    assert seen.endswith(b"0\r\n\r\n" if stream else b"}")


def test_a_connection_that_announces_its_close() -> None:
    """`keep_alive: false` says so and does so."""
    assert b"connection: close\r\n" in all_of(ask({"keep_alive": False}, stream=False))


def test_every_kind_of_fault_has_a_test_here() -> None:
    """A fault that is added is not forgotten in this file."""
    text = Path(__file__).read_text(encoding="utf-8")
    assert [kind for kind in FaultKind if re.search(rf'"{kind}["@]', text) is None] == []


# ── usage, framing, times ──


@pytest.mark.parametrize(
    ("place", "where", "figures"),
    [
        (UsagePlace.LAST, [7], [5]),
        (UsagePlace.EARLY, [1], [5]),
        (UsagePlace.WITH_FINISH, [6], [5]),
        (UsagePlace.CUMULATIVE, [0, 1, 2, 3, 4, 5, 6, 7], [0, 1, 2, 3, 4, 5, 5, 5]),
        (UsagePlace.DOUBLED, [7, 8], [5, 5]),
        (UsagePlace.LATE, [7], [5]),
        (UsagePlace.AFTER_DONE, [8], [5]),
        (UsagePlace.ABSENT, [], []),
        (UsagePlace.NULL_EVERYWHERE, [], []),
    ],
)
def test_usage_in_every_place(place: UsagePlace, where: list[int], figures: list[int]) -> None:
    """Late, early, cumulative, doubled, absent: the chunks that have figures, and the figures."""
    request = ask({"usage": place, "usage_delay_s": 0.01}, stream_options={"include_usage": True})
    found = payloads(one_response(request)[2])
    reports = [(number, event["usage"]) for number, event in enumerate(found) if isinstance(event, dict) and event.get("usage")]
    assert where == [number for number, _ in reports]
    assert figures == [usage["completion_tokens"] for _, usage in reports]


@pytest.mark.parametrize(("name", "newline"), [("crlf", b"\r\n"), ("cr", b"\r")])
def test_other_line_ends_carry_the_same_events(name: str, newline: bytes) -> None:
    """CRLF and CR framing, with comments between."""
    body = one_response(ask({"newline": name, "comment": "keep"}))[2]
    assert body.count(b": keep" + newline * 2) == 7
    assert payloads(body, newline) == payloads(healthy())


def test_a_stream_cut_at_every_byte_is_the_same_stream() -> None:
    """One byte per write, in the middle of characters too."""
    said: dict[str, object] = {"pieces": ["潮水", "🌊", " é"]}
    whole = one_response(ask(said))[2]
    assert one_response(ask(said | {"split": {"every": 1}}))[2] == whole
    assert text_of(payloads(whole)) == "潮水🌊 é"


def test_a_role_chunk_may_wait_for_the_first_token() -> None:
    """`role_waits`: nothing follows the head until the first token's time; without it the role comes at once."""

    async def scenario(_: ScriptedUpstream, client: RawClient) -> bytes:
        client.send(ask({"role_waits": True, "first_token_s": 30}))
        await client.reader.readuntil(b"\r\n\r\n")
        try:
            async with asyncio.timeout(SILENCE_S):
                return await client.reader.read(100)
        except TimeoutError:
            return b""

    assert served(scenario) == b""
    received, _ = until_silent(ask({"first_token_s": 30}))
    assert b'"role"' in received


def test_several_tokens_share_a_chunk() -> None:
    """`tokens_per_chunk` joins pieces; usage still counts tokens."""
    found = payloads(one_response(ask({"tokens_per_chunk": 3, "usage_unasked": True}))[2])
    assert [event["choices"][0]["delta"].get("content") for event in found[1:3]] == ["Hello, wide", " world."]
    assert found[-2]["usage"]["completion_tokens"] == 5


# ── refusals in dialects ──


DIALECTS = [
    ("seconds", "retry-after", r"2"),
    ("float", "retry-after", r"1\.5"),
    ("date", "retry-after", r"\w{3}, \d\d \w{3} \d{4} \d\d:\d\d:\d\d GMT"),
    ("ms", "retry-after-ms", r"1500"),
    ("both", "retry-after-ms", r"1500"),
    ("openai", "x-ratelimit-reset-tokens", r"1\.5s"),
    ("reset_seconds", "x-ratelimit-reset", r"2"),
    ("reset_epoch", "x-ratelimit-reset", r"\d{10}"),
    ("reset_epoch_ms", "x-ratelimit-reset", r"\d{13}"),
    ("ietf", "ratelimit", r'"default";r=0;t=2'),
    ("garbage", "retry-after", r"soon"),
    ("none", "retry-after", None),
]


@pytest.mark.parametrize(("dialect", "name", "value"), DIALECTS)
def test_a_429_in_every_dialect(dialect: str, name: str, value: str | None) -> None:
    """Each way of saying when to come back, streamed or not."""
    status, headers, body = one_response(ask({"retry_after": {"dialect": dialect, "after_s": 1.5}}))
    assert (status, json.loads(body)["error"]["type"]) == (429, "rate_limit_error")
    found = headers.get(name.encode())
    assert (found is None) == (value is None)
    assert found is None or value is None or re.fullmatch(value, found.decode())


def test_every_dialect_is_tested() -> None:
    """A dialect that is added is not forgotten."""
    assert {dialect for dialect, _, _ in DIALECTS} == set(RetryDialect)


def test_any_status_with_any_headers() -> None:
    """A 5xx of one's own, in a mapping of headers, with a body that is not JSON."""
    status, headers, body = one_response(
        ask({"status": 529, "headers": {"x-a": 1, "retry-after": "7"}, "body": "<html>", "content_type": "text/html"})
    )
    assert (status, headers[b"x-a"], headers[b"retry-after"], headers[b"content-type"], body) == (529, b"1", b"7", b"text/html", b"<html>")


READY_MADE = [
    ("content_filter", 200, b'"finish_reason":"content_filter"'),
    ("data_inspection", 400, b'"code":"data_inspection_failed"'),
    ("rate_limited", 429, b"rate_limit_exceeded"),
    ("burst_rate", 429, b"limit_burst_rate"),
    ("insufficient_quota", 429, b"tokens per minute"),
    ("out_of_credit", 429, b"billing"),
    ("arrearage", 400, b"Arrearage"),
    ("wrong_key", 401, b"invalid_api_key"),
    ("context_length", 400, b"context_length_exceeded"),
    ("loading", 503, b"Loading model"),
    ("error_in_200", 200, b"provider_unavailable"),
    ("overloaded", 529, b"provider_overloaded"),
    ("html_502", 502, b"<html>"),
    ("ok", 200, b"Hello"),
]


@pytest.mark.parametrize(("name", "status", "found"), READY_MADE)
def test_ready_made_scripts(name: str, status: int, found: bytes) -> None:
    """What providers really answer, by name."""
    answered, _, body = one_response(ask(name))
    assert (answered, found in body) == (status, True)


def test_every_ready_made_script_is_tested() -> None:
    """One that is added is not forgotten."""
    assert {name for name, _, _ in READY_MADE} == PRESETS.keys()


def test_the_kind_of_body_is_kept_by_a_default_script() -> None:
    """A marker's fields go over the script that the call would have got."""
    _, _, body = one_response(ask({"finish_reason": "length"}), default=Script(pieces=("own",)))
    assert text_of(payloads(body)) == "own"
    assert payloads(body)[-2]["choices"][0]["finish_reason"] == "length"
