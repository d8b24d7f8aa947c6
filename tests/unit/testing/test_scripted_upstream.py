"""The scripted upstream keeps to OpenAI's wire format, and misbehaves exactly as told."""

from __future__ import annotations

import asyncio
import json
import random
import time
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import httpx
import msgspec
import pytest
import uvloop
from hypothesis import given, settings
from hypothesis import strategies as st

from tidegate.mock.answers import compose, read_asked
from tidegate.mock.staging import cut, stream_pieces
from tidegate.testing import (
    Fault,
    FaultKind,
    Script,
    ScriptedUpstream,
    Split,
    ThreadedUpstream,
    ToolCall,
    UsagePlace,
    cut_after,
    end_after,
    error_event_after,
    hang_before_first_token,
    hang_before_headers,
    malformed_event_at,
    missing_done,
    reset_after,
    reset_before_headers,
    split_at,
    split_every,
    stall_after,
    words,
)

T = TypeVar("T")
CHAT: dict[str, Any] = {"model": "scripted", "messages": [{"role": "user", "content": "say something"}]}
STREAM = CHAT | {"stream": True}
STREAM_WITH_USAGE = STREAM | {"stream_options": {"include_usage": True}}


def with_upstream(
    body: Callable[[ScriptedUpstream, httpx.AsyncClient], Awaitable[T]], script: Script | None = None, *, api_key: str | None = None
) -> T:
    async def main() -> T:
        async with (
            ScriptedUpstream(script, api_key=api_key) as upstream,
            httpx.AsyncClient(base_url=upstream.base_url, timeout=5.0) as client,
        ):
            return await body(upstream, client)

    return uvloop.run(main())


def post(script: Script, request: dict[str, Any], path: str = "/chat/completions") -> httpx.Response:
    async def body(_: ScriptedUpstream, client: httpx.AsyncClient) -> httpx.Response:
        return await client.post(path, json=request)

    return with_upstream(body, script)


async def read_into(pieces: list[bytes], response: httpx.Response) -> None:
    async for piece in response.aiter_raw():
        pieces.append(piece)  # noqa: PERF401  what came before a failure must be kept


def events_of(stream_body: bytes) -> list[Any]:
    """Parse a plain LF stream into its events, `[DONE]` as a string."""
    blocks = stream_body.decode().split("\n\n")
    assert blocks.pop() == "", "the stream ends within an event"
    payloads = [block.removeprefix("data: ") for block in blocks]
    return [payload if payload == "[DONE]" else json.loads(payload) for payload in payloads]


def text_of(events: list[Any]) -> str:
    return "".join(
        choice["delta"].get("content") or ""
        for event in events
        if event != "[DONE]"
        for choice in event.get("choices", ())
        if "delta" in choice
    )


def test_a_whole_chat_answer() -> None:
    """The default script answers a chat call with text, finish reason and usage."""
    answer = post(Script(), CHAT).json()
    assert answer["object"] == "chat.completion"
    assert answer["choices"][0]["message"] == {"role": "assistant", "content": "Hello, wide world."}
    assert answer["choices"][0]["finish_reason"] == "stop"
    assert answer["usage"] == {"prompt_tokens": 9, "completion_tokens": 5, "total_tokens": 14}


def test_a_stream_without_usage_says_nothing_of_usage() -> None:
    """A client that did not ask gets neither a usage chunk nor a usage key."""
    response = post(Script(), STREAM)
    events = events_of(response.content)
    assert response.headers["content-type"] == "text/event-stream"
    assert events[0]["choices"][0]["delta"] == {"role": "assistant", "content": ""}
    assert text_of(events) == "Hello, wide world."
    assert events[-2]["choices"][0]["finish_reason"] == "stop"
    assert events[-1] == "[DONE]"
    assert b"usage" not in response.content
    assert len({event["id"] for event in events[:-1]}) == 1


def test_a_stream_with_usage_follows_openai() -> None:
    """With `include_usage` every chunk has `usage: null` and one more, without choices, has the figures."""
    events = events_of(post(Script(), STREAM_WITH_USAGE).content)
    assert all(event["usage"] is None for event in events[:-2])
    assert events[-2]["choices"] == []
    assert events[-2]["usage"]["total_tokens"] == 14


@pytest.mark.parametrize(
    ("place", "found"),
    [
        (UsagePlace.ABSENT, []),
        (UsagePlace.NULL_EVERYWHERE, []),
        (UsagePlace.EARLY, [1]),
        (UsagePlace.WITH_FINISH, [6]),
        (UsagePlace.LAST, [7]),
    ],
)
def test_usage_comes_where_the_script_says(place: UsagePlace, found: list[int]) -> None:
    """Each way of reporting usage that is seen in the field can be imitated."""
    events = events_of(post(Script(usage=place), STREAM_WITH_USAGE).content)
    assert [number for number, event in enumerate(events[:-1]) if event.get("usage")] == found


def test_a_server_may_report_usage_unasked() -> None:
    """`usage_unasked` imitates servers that always send it."""
    events = events_of(post(Script(usage_unasked=True), STREAM).content)
    assert events[-2]["usage"]["total_tokens"] == 14


def test_equal_requests_give_equal_bytes() -> None:
    """Nothing random or timed is in an answer; a different prompt gives a different id."""
    first, second = post(Script(), STREAM).content, post(Script(), STREAM).content
    other = post(Script(), STREAM | {"messages": [{"role": "user", "content": "else"}]}).content
    assert first == second
    assert events_of(first)[0]["id"] != events_of(other)[0]["id"]


def test_tool_calls_stream_in_pieces() -> None:
    """Name and id come first, then the arguments in pieces that join to the whole."""
    call = ToolCall(name="weather", arguments='{"city":"Hangzhou"}', id="call_7", piece_chars=5)
    events = events_of(post(Script(tool_calls=(call,)), STREAM).content)
    deltas = [tool for event in events[1:-2] for tool in event["choices"][0]["delta"]["tool_calls"]]
    assert deltas[0]["function"] == {"name": "weather", "arguments": ""}
    assert "".join(delta["function"]["arguments"] for delta in deltas) == '{"city":"Hangzhou"}'
    assert events[-2]["choices"][0]["finish_reason"] == "tool_calls"
    message = post(Script(tool_calls=(call,)), CHAT).json()["choices"][0]["message"]
    assert message["tool_calls"][0]["function"]["arguments"] == '{"city":"Hangzhou"}'
    assert message["content"] is None


def test_reasoning_comes_before_the_text() -> None:
    """Reasoning has deltas of its own and is counted."""
    response = post(Script(reasoning=("hm", "…"), cached_tokens=4), STREAM_WITH_USAGE)
    events = events_of(response.content)
    assert [event["choices"][0]["delta"].get("reasoning_content") for event in events[1:3]] == ["hm", "…"]
    assert events[-2]["usage"]["completion_tokens_details"] == {"reasoning_tokens": 2}
    assert events[-2]["usage"]["prompt_tokens_details"] == {"cached_tokens": 4}
    assert post(Script(reasoning=("hm",)), CHAT).json()["choices"][0]["message"]["reasoning_content"] == "hm"


def test_the_clients_cap_cuts_the_text() -> None:
    """A cap below the script's length ends with `length`."""
    choice = post(Script(), CHAT | {"max_completion_tokens": 2}).json()["choices"][0]
    assert (choice["message"]["content"], choice["finish_reason"]) == ("Hello,", "length")


def test_completions_answer_each_prompt() -> None:
    """A list of prompts gives a choice each, whole and streamed."""
    request = {"model": "scripted", "prompt": ["a", "b"]}
    answer = post(Script(), request, "/completions").json()
    assert [(choice["index"], choice["text"]) for choice in answer["choices"]] == [(0, "Hello, wide world."), (1, "Hello, wide world.")]
    assert answer["usage"] == {"prompt_tokens": 18, "completion_tokens": 10, "total_tokens": 28}
    events = events_of(post(Script(), request | {"stream": True}, "/completions").content)
    assert "".join(event["choices"][0]["text"] for event in events[:-1] if event["choices"][0]["index"] == 1) == "Hello, wide world."


def test_embeddings_in_both_encodings() -> None:
    """Floats by default, base64 of float32 on request, one row per input."""
    request = {"model": "scripted", "input": ["a", "b"]}
    rows = post(Script(), request, "/embeddings").json()["data"]
    assert [row["embedding"] for row in rows] == [[0.25, -0.5, 0.125]] * 2
    packed = post(Script(), request | {"encoding_format": "base64"}, "/embeddings").json()["data"]
    assert packed[0]["embedding"] == "AACAPgAAAL8AAAA+"


def test_the_other_paths() -> None:
    """Models, health and tokenize answer without consuming a script; an unknown path is 404."""

    async def body(upstream: ScriptedUpstream, client: httpx.AsyncClient) -> None:
        upstream.script(Script(status=500))
        root = upstream.base_url.removesuffix("/v1")
        assert (await client.get(f"{root}/health")).json() == {"status": "ok"}
        assert (await client.get("/models")).json()["data"][0]["id"] == "scripted"
        assert (await client.get("/models/scripted")).json()["owned_by"] == "scripted"
        assert (await client.post(f"{root}/tokenize", json={"prompt": "ab"})).json() == {
            "count": 2,
            "max_model_len": 4096,
            "tokens": [97, 98],
        }
        assert (await client.get("/nowhere")).status_code == 404
        upstream.scripts["/health"] = Script(status=503)
        assert (await client.get(f"{root}/health")).status_code == 503
        assert (await client.post("/chat/completions", json=CHAT)).status_code == 500

    with_upstream(body)


def test_scripts_are_chosen_by_header_queue_and_model() -> None:
    """The header wins over the queue, the queue over the model's script, that over the default."""

    async def body(upstream: ScriptedUpstream, client: httpx.AsyncClient) -> list[str]:
        async def say(model: str = "scripted", **headers: str) -> str:
            answer = await client.post("/chat/completions", json=CHAT | {"model": model}, headers=headers)
            return str(answer.json()["choices"][0]["message"]["content"])

        upstream.scripts["named"] = Script(pieces=("named",))
        upstream.scripts["m2"] = Script(pieces=("by model",))
        upstream.script(Script(pieces=("queued",)))
        inline = msgspec.json.encode(Script(pieces=("inline",))).decode()
        return [await say(**{"x-script": "named"}), await say(**{"x-script": inline}), await say("m2"), await say("m2"), await say()]

    assert with_upstream(body, Script(echo=True)) == ["named", "inline", "queued", "by model", "say something"]


def test_errors_have_openais_shape() -> None:
    """A status gives a fitting error object, with the script's headers; the script's own error wins."""
    limited = post(Script(status=429, headers=(("retry-after", "3"),)), CHAT)
    assert (limited.status_code, limited.headers["retry-after"]) == (429, "3")
    assert limited.json()["error"]["code"] == "rate_limit_exceeded"
    own: dict[str, object] = {"message": "no", "type": "t", "param": "p", "code": "c"}
    assert post(Script(status=400, error=own), STREAM).json() == {"error": own}
    assert post(Script(status=500, body="<html>"), CHAT).text == "<html>"


def test_stream_options_can_be_refused() -> None:
    """`reject_stream_options` answers 400 when the option is there, and only then."""
    refused = post(Script(reject_stream_options=True), STREAM_WITH_USAGE)
    assert (refused.status_code, refused.json()["error"]["param"]) == (400, "stream_options")
    assert post(Script(reject_stream_options=True), STREAM).status_code == 200


def test_a_wrong_upstream_key_is_refused() -> None:
    """With `api_key` set, only that bearer token gets an answer."""

    async def body(_: ScriptedUpstream, client: httpx.AsyncClient) -> tuple[int, int]:
        wrong = await client.post("/chat/completions", json=CHAT, headers={"authorization": "Bearer no"})
        right = await client.post("/chat/completions", json=CHAT, headers={"authorization": "Bearer sesame"})
        return wrong.status_code, right.status_code

    assert with_upstream(body, api_key="sesame") == (401, 200)


@pytest.mark.parametrize("fault", [cut_after(3), reset_after(3)])
def test_a_cut_stream_breaks_for_the_client(fault: Fault) -> None:
    """After three events the connection breaks, and the client's HTTP library notices."""

    async def body(_: ScriptedUpstream, client: httpx.AsyncClient) -> bytes:
        received: list[bytes] = []
        async with client.stream("POST", "/chat/completions", json=STREAM) as response:
            with pytest.raises((httpx.RemoteProtocolError, httpx.ReadError)):
                await read_into(received, response)
        return b"".join(received)

    assert len(events_of(with_upstream(body, Script(fault=fault)))) == 3


@pytest.mark.parametrize("kind", [FaultKind.RESET_BEFORE_HEADERS, FaultKind.CLOSE_BEFORE_HEADERS, FaultKind.GARBAGE])
def test_faults_before_the_headers_give_no_answer(kind: FaultKind) -> None:
    """The client sees a broken connection instead of a status."""
    with pytest.raises((httpx.RemoteProtocolError, httpx.ReadError)):
        post(Script(fault=Fault(kind)), CHAT)


@pytest.mark.parametrize(("fault", "events"), [(end_after(2), 2), (missing_done(), 7)])
def test_a_stream_may_end_without_done(fault: Fault, events: int) -> None:
    """The body ends well-formed while the terminal marker is missing."""
    assert len(events_of(post(Script(fault=fault), STREAM).content)) == events


def test_a_malformed_event_leaves_the_rest_whole() -> None:
    """One event more that is not JSON; all others are as without the fault."""
    clean = post(Script(), STREAM).content.split(b"\n\n")
    broken = post(Script(fault=malformed_event_at(2)), STREAM).content.split(b"\n\n")
    with pytest.raises(json.JSONDecodeError):
        json.loads(broken[2].removeprefix(b"data: "))
    assert [*broken[:2], *broken[3:]] == clean


def test_an_error_event_comes_under_status_200() -> None:
    """`error_event_after(0)` makes it the first and only event."""
    response = post(Script(fault=error_event_after(0)), STREAM)
    assert response.status_code == 200
    assert [list(event) for event in events_of(response.content)] == [["error"]]
    assert "error" in post(Script(fault=error_event_after(0)), CHAT).json()


@pytest.mark.parametrize(
    ("fault", "pieces"), [(hang_before_headers(), 0), (hang_before_first_token(), 1), (stall_after(3), 3), (stall_after(0), 0)]
)
def test_a_hanging_stream_is_silent_and_sees_the_client_leave(fault: Fault, pieces: int) -> None:
    """It sends what it should, then nothing, and notes when the client closes."""

    async def body(upstream: ScriptedUpstream, client: httpx.AsyncClient) -> None:
        with pytest.raises(httpx.ReadTimeout):
            await client.post("/chat/completions", json=STREAM, timeout=httpx.Timeout(5.0, read=0.15))
        left_at = time.monotonic()
        (request,) = upstream.requests
        await upstream.wait_for(lambda: request.client_left_at is not None, 1.0)
        assert request.pieces_sent == pieces
        assert request.client_left_after_s is not None
        assert request.client_left_after_s >= 0.1
        assert request.client_left_at is not None
        assert abs(request.client_left_at - left_at) < 0.25
        assert request.answered_at is None

    with_upstream(body, Script(fault=fault))


@pytest.mark.parametrize(
    "fault", [cut_after(0), reset_after(0), stall_after(0), hang_before_first_token(), end_after(0), reset_before_headers()]
)
def test_a_whole_answer_breaks_as_a_stream_would(fault: Fault) -> None:
    """Faults of streams apply to answers with a length too: half of it comes, or none."""

    async def body(_: ScriptedUpstream, client: httpx.AsyncClient) -> Any:
        return (await client.post("/chat/completions", json=CHAT, timeout=0.2)).json()

    with pytest.raises((httpx.HTTPError, json.JSONDecodeError)):
        with_upstream(body, Script(fault=fault))


def test_delays_are_kept() -> None:
    """Headers, first token and each further token wait as long as the script says."""

    async def body(_: ScriptedUpstream, client: httpx.AsyncClient) -> list[float]:
        began = time.monotonic()
        async with client.stream("POST", "/chat/completions", json=STREAM) as response:
            instants = [time.monotonic() - began]
            instants += [time.monotonic() - began async for _ in response.aiter_raw()]
        return instants

    script = Script(pieces=("a", "b"), headers_s=0.05, first_token_s=0.05, per_token_s=0.05)
    headers, role, first, second, *_rest = with_upstream(body, script)
    assert (headers >= 0.05, role < 0.1, first >= 0.1, second >= 0.15) == (True, True, True, True)
    assert second < 1.0


def test_reuse_of_connections_is_recorded() -> None:
    """The second request on a kept connection is marked; after a refusal the client must open another."""

    async def body(upstream: ScriptedUpstream, client: httpx.AsyncClient) -> None:
        for _ in range(2):
            await client.post("/chat/completions", json=CHAT, headers={"X-Case": "reuse"})
        assert [(request.connection, request.reused) for request in upstream.requests] == [(1, False), (1, True)]
        assert upstream.requests[0].header("x-case") == "reuse"
        assert upstream.requests[0].json == CHAT
        assert (upstream.requests[0].method, upstream.requests[0].path) == ("POST", "/v1/chat/completions")
        assert "POST /v1/chat/completions" in repr(upstream.requests[0])

    with_upstream(body)


def test_a_refusing_upstream_cannot_be_connected_to_until_it_accepts_again() -> None:
    """`refuse` makes connecting fail, `accept` listens on the same port."""

    async def body(upstream: ScriptedUpstream, client: httpx.AsyncClient) -> None:
        assert (await client.get("/models")).status_code == 200
        upstream.refuse()
        await upstream.wait_for(lambda: not upstream.connections, 1.0)
        with pytest.raises(httpx.ConnectError):
            await client.get("/models")
        await upstream.accept()
        assert (await client.get("/models")).status_code == 200

    with_upstream(body)


def test_pipelined_requests_are_answered_in_order() -> None:
    """Two requests in one segment get two answers on the same connection; rubbish gets 400."""

    async def body(upstream: ScriptedUpstream, _: httpx.AsyncClient) -> bytes:
        port = int(upstream.base_url.rsplit(":", 1)[1].removesuffix("/v1"))
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"GET /health HTTP/1.1\r\nhost: x\r\n\r\n" * 2 + b"GET nonsense\r\n\r\n")
        answers = await reader.read(-1)
        writer.close()
        await writer.wait_closed()
        return answers

    answers = with_upstream(body)
    assert answers.count(b'{"status":"ok"}') == 2
    assert answers.count(b"HTTP/1.1 400 Bad Request") == 1


@given(every=st.integers(1, 40) | st.none(), at=st.lists(st.integers(0, 2000), max_size=5))
@settings(deadline=None, max_examples=60)
def test_law_splitting_changes_no_byte(every: int | None, at: list[int]) -> None:
    """However the body is cut, its bytes are the same; no piece is empty and none longer than asked."""
    script = Script(pieces=("水", "🌊", " tide"), first_token_s=0.5, newline="\r\n")
    asked = read_asked("/v1/chat/completions", STREAM)
    pieces, _ = stream_pieces(script, asked, compose(script, asked), random.Random(0))
    cuts = cut(pieces, Split(every=every, at=tuple(at)))
    whole = b"".join(piece.payload for piece in pieces)
    assert b"".join(piece.payload for piece in cuts) == whole
    assert all(0 < len(piece.payload) <= (every or len(whole)) for piece in cuts)
    assert sum(piece.delay_s for piece in cuts) == 0.5


def test_split_bodies_arrive_in_the_pieces_asked_for() -> None:
    """With a pause, each piece is read by itself, even in the middle of a character."""

    async def body(_: ScriptedUpstream, client: httpx.AsyncClient) -> list[bytes]:
        async with client.stream("POST", "/chat/completions", json=STREAM) as response:
            return [piece async for piece in response.aiter_raw()]

    whole = post(Script(pieces=("水",)), STREAM).content
    inside = whole.index("水".encode()) + 1
    pieces = with_upstream(body, Script(pieces=("水",), split=split_at(inside, pause_s=0.02)))
    assert pieces == [whole[:inside], whole[inside:]]
    assert len(with_upstream(body, Script(pieces=("水",), split=split_every(len(whole) // 2 + 1, pause_s=0.02)))) == 2


@pytest.mark.parametrize("newline", ["\n", "\r\n", "\r"])
def test_the_look_of_events_can_vary(newline: Any) -> None:
    """Line ends, comments, a missing space and several data lines are all within the standard."""
    script = Script(pieces=("x",), newline=newline, comment="ping", space_after_colon=False, multi_line=True)
    blocks = post(script, STREAM).content.decode().split(newline * 2)
    assert blocks[0] == ": ping"
    first, second = blocks[1].split(newline)
    assert first == "data:{"
    assert json.loads("{" + second.removeprefix("data:"))["object"] == "chat.completion.chunk"
    assert blocks[-2] == "data:[DONE]"


def test_waiting_in_vain_tells_what_was_seen() -> None:
    """A condition that does not come true in time fails with the last requests in the message."""

    async def body(upstream: ScriptedUpstream, client: httpx.AsyncClient) -> None:
        await client.get("/models")
        with pytest.raises(TimeoutError, match="GET /v1/models"):
            await upstream.wait_for(lambda: False, 0.01)

    with_upstream(body)


def test_a_client_that_reads_slowly_stops_the_playback() -> None:
    """A large stream nobody reads is held back instead of buffered whole."""

    async def body(upstream: ScriptedUpstream, client: httpx.AsyncClient) -> None:
        async with client.stream("POST", "/chat/completions", json=STREAM) as response:
            assert upstream.requests[0].pieces_sent < 2000
            size = 0
            async for piece in response.aiter_raw():
                size += len(piece)
        assert upstream.requests[0].pieces_sent == 2003
        assert size > 2000 * 8192

    with_upstream(body, Script(pieces=("x" * 8192,) * 2000))


def test_a_threaded_upstream_serves_code_that_is_not_async() -> None:
    """Scripts, faults, waiting and reset work from another thread."""
    with ThreadedUpstream(Script(pieces=("one",))) as upstream, httpx.Client(base_url=upstream.base_url, timeout=2.0) as client:
        upstream.script(Script(pieces=("two",)))
        upstream.scripts["m3"] = Script(pieces=("three",))
        said = [client.post("/chat/completions", json=CHAT | {"model": model}).json() for model in ("m", "m", "m3")]
        assert [answer["choices"][0]["message"]["content"] for answer in said] == ["two", "one", "three"]
        upstream.set_default(Script(fault=stall_after(1)))
        with pytest.raises(httpx.ReadTimeout):
            client.post("/chat/completions", json=STREAM, timeout=0.1)
        upstream.wait_for(lambda: upstream.requests[-1].client_left_at is not None, 1.0)
        upstream.refuse()
        upstream.wait_for(lambda: upstream.open_connections == 0, 1.0)
        with pytest.raises(httpx.ConnectError):
            client.get("/models")
        upstream.accept()
        upstream.reset()
        assert upstream.requests == ()
        assert client.post("/chat/completions", json=CHAT).json()["choices"][0]["message"]["content"] == "one"
        assert upstream.connections_opened >= 2


def test_words_join_to_the_text() -> None:
    """Cutting into words loses nothing."""
    assert words("the  tide") == ("the", " ", " tide")
    assert "".join(words(" a b ")) == " a b "
