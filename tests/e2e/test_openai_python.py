"""The official `openai` package works unchanged: the same stories against the upstream itself and through the gateway."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable
from typing import Any

import openai
import pytest
from openai.types.chat import ChatCompletionContentPartParam, ChatCompletionMessageParam, ChatCompletionToolParam

from tidegate.domain.units import Secret
from tidegate.testing import (
    Endpoint,
    GatewayProcess,
    ReceivedRequest,
    Script,
    ThreadedUpstream,
    ToolCall,
    cut_after,
    error_event_after,
    hang_before_first_token,
    hang_before_headers,
    reset_before_headers,
    stall_after,
)

MESSAGES: list[ChatCompletionMessageParam] = [{"role": "user", "content": "say something"}]
SENTENCE = "Hello, wide world."
WEATHER: ChatCompletionToolParam = {
    "type": "function",
    "function": {"name": "weather", "parameters": {"type": "object", "properties": {"city": {"type": "string"}}}},
}
CALL = ToolCall(name="weather", arguments='{"city":"杭州"}', id="call_7", piece_chars=3)


def calls(upstream: ThreadedUpstream) -> list[ReceivedRequest]:
    """Give the calls the upstream received, without the gateway's own questions after its health."""
    return [received for received in upstream.requests if received.method == "POST"]


# ── the same, direct and through the gateway ──────────────────────────────────


def test_models_are_listed_and_retrieved(client: openai.OpenAI) -> None:
    """`models.list` names what is served and `models.retrieve` finds each."""
    listed = {model.id for model in client.models.list()}
    assert {"scripted", "second"} <= listed
    assert client.models.retrieve("second").id == "second"


def test_a_whole_answer(client: openai.OpenAI) -> None:
    """A plain chat call gives text, finish reason and usage."""
    answer = client.chat.completions.create(model="scripted", messages=MESSAGES)
    assert answer.choices[0].message.content == SENTENCE
    assert answer.choices[0].finish_reason == "stop"
    assert answer.usage is not None
    assert (answer.usage.prompt_tokens, answer.usage.completion_tokens, answer.usage.total_tokens) == (9, 5, 14)


def test_a_stream_gives_the_text_and_no_usage_unasked(client: openai.OpenAI) -> None:
    """Without `stream_options` no chunk has usage and each has a choice."""
    chunks = list(client.chat.completions.create(model="scripted", messages=MESSAGES, stream=True))
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks) == SENTENCE
    assert [chunk.usage for chunk in chunks] == [None] * 7
    assert chunks[0].choices[0].delta.role == "assistant"
    assert chunks[-1].choices[0].finish_reason == "stop"


def test_a_stream_gives_usage_when_asked(client: openai.OpenAI) -> None:
    """With `include_usage` the last chunk has the figures and no choice."""
    chunks = list(client.chat.completions.create(model="scripted", messages=MESSAGES, stream=True, stream_options={"include_usage": True}))
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks[:-1]) == SENTENCE
    assert chunks[-1].choices == []
    assert chunks[-1].usage is not None
    assert chunks[-1].usage.total_tokens == 14


def test_a_picture_is_passed_on(client: openai.OpenAI, upstream: ThreadedUpstream) -> None:
    """Parts of a message reach the upstream as they came, and the answer comes back."""
    parts: list[ChatCompletionContentPartParam] = [
        {"type": "text", "text": "What is this?"},
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}},
    ]
    answer = client.chat.completions.create(model="scripted", messages=[{"role": "user", "content": parts}])
    assert answer.choices[0].message.content == SENTENCE
    assert json.loads(calls(upstream)[0].body)["messages"][0]["content"] == parts


def test_tools_in_a_whole_answer(client: openai.OpenAI, upstream: ThreadedUpstream) -> None:
    """A tool call comes back whole."""
    upstream.script(Script(tool_calls=(CALL,)))
    choice = client.chat.completions.create(model="scripted", messages=MESSAGES, tools=[WEATHER]).choices[0]
    assert choice.finish_reason == "tool_calls"
    assert choice.message.tool_calls is not None
    (called,) = choice.message.tool_calls
    assert called.type == "function"
    assert (called.id, called.function.name, json.loads(called.function.arguments)) == ("call_7", "weather", {"city": "杭州"})


def test_tools_in_a_stream(client: openai.OpenAI, upstream: ThreadedUpstream) -> None:
    """The SDK's own accumulator puts a streamed tool call together."""
    upstream.script(Script(tool_calls=(CALL,)))
    with client.chat.completions.stream(model="scripted", messages=MESSAGES, tools=[WEATHER]) as stream:
        choice = stream.get_final_completion().choices[0]
    assert choice.finish_reason == "tool_calls"
    assert choice.message.tool_calls is not None
    assert choice.message.tool_calls[0].function.arguments == CALL.arguments


def test_fields_we_do_not_know_reach_the_upstream(client: openai.OpenAI, upstream: ThreadedUpstream) -> None:
    """`response_format`, `extra_body` and everything else arrive as sent."""
    schema: dict[str, object] = {"type": "object", "properties": {"ok": {"type": "boolean"}}, "required": ["ok"]}
    client.chat.completions.create(
        model="scripted",
        messages=MESSAGES,
        response_format={"type": "json_schema", "json_schema": {"name": "verdict", "schema": schema, "strict": True}},
        seed=7,
        extra_body={"x_tide": {"深": [1, 2.5, None, True]}, "enable_thinking": False},
    )
    (request,) = calls(upstream)
    assert request.json == {
        "model": "scripted",
        "messages": MESSAGES,
        "response_format": {"type": "json_schema", "json_schema": {"name": "verdict", "schema": schema, "strict": True}},
        "seed": 7,
        "x_tide": {"深": [1, 2.5, None, True]},
        "enable_thinking": False,
    }


def test_completions_with_a_list_of_prompts(client: openai.OpenAI) -> None:
    """Each prompt gets its choice, whole and streamed."""
    answer = client.completions.create(model="scripted", prompt=["a", "b"])
    assert [(choice.index, choice.text) for choice in answer.choices] == [(0, SENTENCE), (1, SENTENCE)]
    texts = ["", ""]
    for chunk in client.completions.create(model="scripted", prompt=["a", "b"], stream=True):
        texts[chunk.choices[0].index] += chunk.choices[0].text
    assert texts == [SENTENCE, SENTENCE]


def test_embeddings(client: openai.OpenAI) -> None:
    """The SDK's own base64 encoding and plain floats both work."""
    packed = client.embeddings.create(model="scripted", input=["a", "b"])
    assert [row.embedding for row in packed.data] == [[0.25, -0.5, 0.125]] * 2
    assert packed.usage.prompt_tokens == 18
    plain = client.embeddings.create(model="scripted", input="a", encoding_format="float")
    assert plain.data[0].embedding == [0.25, -0.5, 0.125]


def test_the_sdks_own_timeout(client: openai.OpenAI, upstream: ThreadedUpstream) -> None:
    """A client that gives up gets its timeout, and the upstream sees it go."""
    upstream.scripts["hanging"] = Script(fault=hang_before_headers())
    with pytest.raises(openai.APITimeoutError):
        client.with_options(timeout=0.3).chat.completions.create(model="hanging", messages=MESSAGES)
    (request,) = calls(upstream)
    upstream.wait_for(lambda: request.client_left_at is not None, 1.0)


def test_a_failure_in_mid_stream_is_an_api_error(client: openai.OpenAI, upstream: ThreadedUpstream) -> None:
    """An error event after three events raises `APIError` once the text before it was read."""
    upstream.scripts["cut"] = Script(fault=error_event_after(3))
    text = ""
    with pytest.raises(openai.APIError, match=r".+") as caught:  # noqa: PT012  the loop is the point
        for chunk in client.chat.completions.create(model="cut", messages=MESSAGES, stream=True):
            text += chunk.choices[0].delta.content or ""
    assert text == "Hello,"
    assert not isinstance(caught.value, openai.APIConnectionError)


def test_async_calls_and_streams(endpoint: Endpoint, upstream: ThreadedUpstream) -> None:
    """The async client does the same, many at a time, and no answer is mixed up with another."""
    upstream.set_default(Script(echo=True, per_token_s=0.002))

    async def one(client: openai.AsyncOpenAI, number: int) -> tuple[str, str]:
        said: list[ChatCompletionMessageParam] = [{"role": "user", "content": f"this is call number {number} 水🌊"}]
        whole = await client.chat.completions.create(model="scripted", messages=said)
        text = ""
        async for chunk in await client.chat.completions.create(model="scripted", messages=said, stream=True):
            text += chunk.choices[0].delta.content or ""
        return whole.choices[0].message.content or "", text

    async def main() -> list[tuple[str, str]]:
        async with openai.AsyncOpenAI(base_url=endpoint.base_url, api_key=endpoint.api_key.reveal(), max_retries=0, timeout=10.0) as client:
            return await asyncio.gather(*(one(client, number) for number in range(20)))

    assert asyncio.run(main()) == [(f"this is call number {number} 水🌊",) * 2 for number in range(20)]


def test_async_stream_left_early(endpoint: Endpoint, upstream: ThreadedUpstream) -> None:
    """Leaving an `async for` closes the upstream's call."""
    upstream.script(Script(fault=stall_after(3)))

    async def main() -> None:
        async with openai.AsyncOpenAI(base_url=endpoint.base_url, api_key=endpoint.api_key.reveal(), max_retries=0, timeout=10.0) as client:
            stream = await client.chat.completions.create(model="say-long", messages=MESSAGES, stream=True)
            async for chunk in stream:
                if chunk.choices[0].delta.content == "Hello":
                    break
            await stream.close()

    asyncio.run(main())
    (request,) = calls(upstream)
    upstream.wait_for(lambda: request.client_left_at is not None, 1.0)


# ── what only the gateway does ────────────────────────────────────────────────


def test_headers_of_an_answer(
    gateway: GatewayProcess, keys: dict[str, Secret], sdk: Callable[[Endpoint], openai.OpenAI], upstream: ThreadedUpstream
) -> None:
    """Request id, duration and what is left of the limits are in the headers, on streams too."""
    client = sdk(gateway.endpoint(keys["metered"]))
    whole = client.chat.completions.with_raw_response.create(
        model="scripted", messages=MESSAGES, extra_headers={"x-request-id": "req-from-client-1"}
    )
    assert whole.headers["x-request-id"] == "req-from-client-1"
    assert float(whole.headers["x-model-response-time"].removesuffix("ms")) >= 0
    assert whole.headers["x-ratelimit-limit-requests"] == "5000"
    assert whole.headers["x-ratelimit-limit-tokens"] == "1000000"
    assert int(whole.headers["x-ratelimit-remaining-requests"]) < 5000
    assert 0 < int(whole.headers["x-ratelimit-remaining-tokens"]) < 1_000_000
    for quantity in ("requests", "tokens"):  # Go durations, as OpenAI sends them
        assert re.fullmatch(r"(\d+h)?(\d+m)?(\d+(\.\d+)?(s|ms))?", whole.headers[f"x-ratelimit-reset-{quantity}"])
    assert whole.parse().choices[0].message.content == SENTENCE
    with client.chat.completions.with_streaming_response.create(model="scripted", messages=MESSAGES, stream=True) as streamed:
        assert streamed.headers["content-type"].startswith("text/event-stream")
        assert streamed.headers["x-request-id"]
        assert streamed.headers["x-ratelimit-limit-requests"] == "5000"
        streamed.read()
    assert calls(upstream)[0].header("x-request-id") == "req-from-client-1"


def test_the_clients_key_stays_here(gateway_client: openai.OpenAI, upstream: ThreadedUpstream) -> None:
    """The upstream sees its own key and never the client's."""
    gateway_client.chat.completions.create(model="scripted", messages=MESSAGES, extra_headers={"cookie": "session=canary"})
    request = calls(upstream)[-1]
    assert request.header("authorization") == "Bearer sk-upstream-canary"
    assert gateway_client.api_key not in repr(request.headers)
    assert "canary" not in repr([pair for pair in request.headers if pair[0] != "authorization"])


def test_a_wrong_key(gateway: GatewayProcess, sdk: Callable[[Endpoint], openai.OpenAI], upstream: ThreadedUpstream) -> None:
    """`AuthenticationError`, with one generic text that does not repeat the key."""
    client = sdk(gateway.endpoint(Secret("sk-wrong-canary")))
    with pytest.raises(openai.AuthenticationError) as caught:
        client.chat.completions.create(model="scripted", messages=MESSAGES)
    assert caught.value.code == "invalid_api_key"
    assert "canary" not in caught.value.message
    assert caught.value.request_id
    assert calls(upstream) == []


def test_an_unknown_model(gateway_client: openai.OpenAI, upstream: ThreadedUpstream) -> None:
    """`NotFoundError` that names the model, for calls and for `models.retrieve`."""
    with pytest.raises(openai.NotFoundError, match="no-such-model") as caught:
        gateway_client.chat.completions.create(model="no-such-model", messages=MESSAGES)
    assert caught.value.code == "model_not_found"
    with pytest.raises(openai.NotFoundError, match="no-such-model"):
        gateway_client.models.retrieve("no-such-model")
    assert calls(upstream) == []


def test_a_model_the_key_may_not_use(gateway: GatewayProcess, keys: dict[str, Secret], sdk: Callable[[Endpoint], openai.OpenAI]) -> None:
    """`PermissionDeniedError`; the model it may use works."""
    client = sdk(gateway.endpoint(keys["second-only"]))
    with pytest.raises(openai.PermissionDeniedError) as caught:
        client.chat.completions.create(model="scripted", messages=MESSAGES)
    assert caught.value.code == "forbidden"
    assert client.chat.completions.create(model="second", messages=MESSAGES).choices[0].message.content == SENTENCE


@pytest.mark.parametrize("broken", [{"messages": "no list"}, {"messages": []}, {"stream": "yes"}, {"max_completion_tokens": -1}])
def test_a_bad_body(gateway_client: openai.OpenAI, upstream: ThreadedUpstream, broken: dict[str, object]) -> None:
    """`BadRequestError` that names the field, before anything reaches the upstream."""
    body: dict[str, Any] = {"model": "scripted", "messages": MESSAGES} | broken
    with pytest.raises(openai.BadRequestError) as caught:
        gateway_client.post("/chat/completions", body=body, cast_to=object)
    assert caught.value.type == "invalid_request_error"
    assert caught.value.param == next(iter(broken))
    assert calls(upstream) == []


def test_the_upstreams_verdict_is_kept(gateway_client: openai.OpenAI, upstream: ThreadedUpstream) -> None:
    """A 400 of the upstream stays a `BadRequestError` with its text, whole or streamed."""
    own: dict[str, object] = {
        "message": "temperature must be below 2",
        "type": "invalid_request_error",
        "param": "temperature",
        "code": None,
    }
    upstream.scripts["strange"] = Script(status=400, error=own)
    for stream in (False, True):
        with pytest.raises(openai.BadRequestError, match="temperature must be below 2"):
            gateway_client.chat.completions.create(model="strange", messages=MESSAGES, temperature=1.9, stream=stream)


def test_our_own_rate_limit(gateway: GatewayProcess, keys: dict[str, Secret], sdk: Callable[[Endpoint], openai.OpenAI]) -> None:
    """`RateLimitError` with a `retry-after` that is true to within the window."""
    client = sdk(gateway.endpoint(keys["single"]))
    client.chat.completions.create(model="scripted", messages=MESSAGES)
    with pytest.raises(openai.RateLimitError) as caught:
        client.chat.completions.create(model="scripted", messages=MESSAGES)
    assert caught.value.code == "rate_limit_exceeded"
    assert 1 <= float(caught.value.response.headers["retry-after"]) <= 61
    assert caught.value.response.headers["x-ratelimit-remaining-requests"] == "0"


def test_the_upstreams_rate_limit(gateway_client: openai.OpenAI, upstream: ThreadedUpstream) -> None:
    """A 429 of the upstream is a `RateLimitError` that passes on when to come back."""
    upstream.scripts["busy"] = Script(status=429, headers=(("retry-after", "2"),))
    with pytest.raises(openai.RateLimitError) as caught:
        gateway_client.chat.completions.create(model="busy", messages=MESSAGES)
    assert 0 < float(caught.value.response.headers["retry-after"]) <= 2


def test_the_gateways_own_key_is_refused(gateway_client: openai.OpenAI, upstream: ThreadedUpstream) -> None:
    """An upstream's 401 concerns the gateway's key: the client sees a 502, not an `AuthenticationError`."""
    with pytest.raises(openai.InternalServerError) as caught:
        gateway_client.chat.completions.create(model="locked", messages=MESSAGES)
    assert (caught.value.status_code, caught.value.code) == (502, "upstream_credentials_rejected")
    assert "sk-not-the-upstreams-key" not in str(caught.value.body)
    assert len(calls(upstream)) == 1


@pytest.mark.parametrize("stream", [False, True])
def test_an_upstream_that_is_down(gateway_client: openai.OpenAI, *, stream: bool) -> None:
    """`InternalServerError` with 502 or, once it is known to be down, 503; never a connection error."""
    with pytest.raises(openai.InternalServerError) as caught:
        gateway_client.chat.completions.create(model="down", messages=MESSAGES, stream=stream)
    assert caught.value.status_code in {502, 503}
    assert caught.value.code in {"upstream_unavailable", "no_replica_available"}


FAULTS = [
    pytest.param("broken", Script(status=500), "upstream_unavailable", id="status-500"),
    pytest.param("mute", Script(fault=reset_before_headers()), "upstream_unavailable", id="reset"),
    pytest.param("hanging", Script(fault=hang_before_headers()), "upstream_timeout", id="no-headers"),
    pytest.param("stalling", Script(fault=hang_before_first_token()), "upstream_timeout", id="no-token"),
]


@pytest.mark.parametrize(("model", "script", "code"), FAULTS)
def test_a_failure_before_the_first_token_has_a_status(
    gateway_client: openai.OpenAI, upstream: ThreadedUpstream, model: str, script: Script, code: str
) -> None:
    """A stream that fails before its first output is an `InternalServerError` with a code, not an empty 200."""
    upstream.scripts[model] = script
    with pytest.raises(openai.InternalServerError) as caught:
        list(gateway_client.chat.completions.create(model=model, messages=MESSAGES, stream=True))
    assert caught.value.code == code


@pytest.mark.parametrize("script", [Script(fault=cut_after(3)), Script(fault=stall_after(3))], ids=["cut", "stall"])
def test_a_stream_that_breaks_is_an_api_error(gateway_client: openai.OpenAI, upstream: ThreadedUpstream, script: Script) -> None:
    """Cut or stalled after some text, the SDK raises `APIError`, and not a connection error."""
    upstream.scripts["cut"] = script
    text = ""
    with pytest.raises(openai.APIError) as caught:  # noqa: PT012  the loop is the point
        for chunk in gateway_client.chat.completions.create(model="cut", messages=MESSAGES, stream=True):
            text += chunk.choices[0].delta.content or ""
    assert text == "Hello,"
    assert not isinstance(caught.value, openai.APIConnectionError)


def test_a_provider_that_refuses_stream_options(gateway_client: openai.OpenAI, upstream: ThreadedUpstream) -> None:
    """A stream works although the upstream answers 400 to the option we add."""
    upstream.scripts["picky"] = Script(reject_stream_options=True)
    for _ in range(2):
        chunks = list(gateway_client.chat.completions.create(model="picky", messages=MESSAGES, stream=True))
        assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks) == SENTENCE
