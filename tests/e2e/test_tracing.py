"""A running gateway's requests as spans at a collector: who is whose parent, what stays secret, and what happens while nobody listens."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from opentelemetry.proto.trace.v1.trace_pb2 import Span
from tests.unit.tracing.receiver import Receiver, attributes_of

from tidegate.adapters.keys.store import KeyStore
from tidegate.adapters.wall_clock import wall_clock
from tidegate.domain.units import Secret
from tidegate.mock.script import Fault, FaultKind, Script
from tidegate.testing import GatewayProcess, ThreadedUpstream
from tidegate.wiring.worker import KEYS_FILE

CANARY = "canary-7f3a9b2c5d"
UPSTREAM_KEY = f"sk-upstream-{CANARY}"
CALLER_TRACE, CALLER_SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
QUESTION: dict[str, object] = {"model": "m", "messages": [{"role": "user", "content": f"Tell me of {CANARY}."}]}
STREAM = (
    'data: {"id":"c","choices":[{"index":0,"delta":{"content":"Never mind."},"finish_reason":null}]}\n\n'
    'data: {"id":"c","choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}\n\n'
    'data: {"id":"c","choices":[],"usage":{"prompt_tokens":9,"completion_tokens":4,"total_tokens":13},'
    '"timings":{"prompt_n":9,"prompt_ms":1.5,"predicted_n":4,"predicted_ms":0.25}}\n\n'
    "data: [DONE]\n\n"
)
WHOLE = (
    '{"id":"c","choices":[{"index":0,"message":{"role":"assistant","content":"No."},"finish_reason":"stop"}],'
    '"usage":{"prompt_tokens":9,"completion_tokens":1},"timings":{"prompt_ms":2.0,"predicted_ms":1.0}}'
)


@pytest.fixture(scope="module")
def upstream() -> Iterator[ThreadedUpstream]:
    with ThreadedUpstream(models=("m",), api_key=UPSTREAM_KEY) as server:
        yield server


def configuration(upstream: ThreadedUpstream, endpoint: str, **tracing: Any) -> dict[str, object]:
    otlp = {"endpoint": endpoint, "headers": {"authorization": f"Bearer {CANARY}"}}
    there = {"dialect": "llamacpp", "base_url": upstream.base_url, "api_key": UPSTREAM_KEY, "models": ["m"], "health": {"enabled": False}}
    return {"upstreams": {"there": there}, "tracing": {"otlp": otlp, "keep_ratio": 1.0, **tracing}}


def key_of(gateway: GatewayProcess) -> Secret:
    key = gateway.create_key(tenant="acme")
    gateway.wait_for_key(key)
    return key


def ask(gateway: GatewayProcess, key: Secret, body: dict[str, object], **headers: str) -> httpx.Response:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return httpx.post(
        f"{gateway.base_url}/chat/completions", json=body, headers={"authorization": f"Bearer {key.reveal()}", **named}, timeout=10.0
    )


def until(condition: Callable[[], bool], what: str, *, deadline_s: float = 15.0) -> None:
    deadline = time.monotonic() + deadline_s
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.05)


def chats(receiver: Receiver) -> dict[str, Span]:
    """Give the spans of chat requests by their ids."""
    spans = {span.span_id.hex(): span for span in receiver.spans()}
    roots = [span for span in spans.values() if span.kind == Span.SPAN_KIND_SERVER and span.name.startswith("chat")]
    traces = {span.trace_id for span in roots}
    return {name: span for name, span in spans.items() if span.trace_id in traces}


def test_what_an_upstream_repeats_of_a_prompt_is_kept_nowhere(upstream: ThreadedUpstream) -> None:
    """Whole, in part, as JSON, in a 500 and in an error within a stream: the client reads it; no record, log line, span or page does."""
    prompt = f'Mrs. {CANARY} of Elm Street 12\nsays: "my PIN is {CANARY}-4711, do not tell"'
    body: dict[str, object] = {"model": "m", "messages": [{"role": "user", "content": prompt}]}
    echoes = [prompt, prompt[5:45], json.dumps(prompt), json.dumps(json.dumps(body))]
    with Receiver() as receiver, GatewayProcess(configuration(upstream, receiver.endpoint)) as gateway:
        key = key_of(gateway)
        for echo in echoes:
            upstream.set_default(Script(status=400, error={"message": f"invalid input: {echo}"}))
            assert CANARY in ask(gateway, key, body).text, "clients get what they got before"
        upstream.set_default(Script(pieces=("a",) * 4, fault=Fault(FaultKind.ERROR_EVENT, 2), error={"message": f"lost at: {prompt}"}))
        assert CANARY in ask(gateway, key, body | {"stream": True}).text
        upstream.set_default(Script(status=500, error={"message": f"crashed at: {prompt}"}))
        for _ in range(4):  # from some failure on, the next ones are told why nobody is there
            ask(gateway, key, body)
        until(
            lambda: len([each for each in chats(receiver).values() if each.kind == Span.SPAN_KIND_SERVER]) >= len(echoes) + 5, "the spans"
        )
        files = [path for path in gateway.state_directory.rglob("*") if path.is_file() and path.suffix in {".jsonl", ".log"}]
        places = {path.name: path.read_text() for path in files}
        places |= {"log": gateway.log(), "ready": httpx.get(f"{gateway.admin_url}/readyz").text, "spans": str(receiver.spans())}
    assert "[request text]" in places["requests-0.jsonl"]
    assert "[request text]" in places["log"]
    assert [] == [place for place, text in places.items() if CANARY in text]


def test_a_stream_is_one_trace_from_the_caller_to_the_model_server(upstream: ThreadedUpstream) -> None:
    """Each span's parent is the one before it, its time within that one's, and no secret is in any."""
    with Receiver() as receiver, GatewayProcess(configuration(upstream, receiver.endpoint, keep_ratio=0.0)) as gateway:
        key = key_of(gateway)
        upstream.reset()
        upstream.script(Script(body=STREAM, content_type="text/event-stream"))
        before = time.time_ns()
        answer = ask(
            gateway,
            key,
            QUESTION | {"stream": True},
            traceparent=f"00-{CALLER_TRACE}-{CALLER_SPAN}-01",
            x_business_context=f"feature=faq; order=17; token=Bearer {CANARY}",
            x_request_id=f"sk-{CANARY}",
        )
        after = time.time_ns()
        assert (200, True) == (answer.status_code, "[DONE]" in answer.text)
        until(lambda: len(chats(receiver)) == 4, "the spans of the request")
        (received,) = upstream.requests
        sent = dict(received.headers)["traceparent"]
    spans = chats(receiver)
    by_name = {span.name.split()[0] + str(span.kind): span for span in spans.values()}
    request, call = by_name[f"chat{Span.SPAN_KIND_SERVER}"], by_name[f"chat{Span.SPAN_KIND_CLIENT}"]
    prefill, decode = by_name[f"prefill{Span.SPAN_KIND_INTERNAL}"], by_name[f"decode{Span.SPAN_KIND_INTERNAL}"]
    assert (CALLER_TRACE, CALLER_SPAN) == (request.trace_id.hex(), request.parent_span_id.hex())
    assert f"00-{CALLER_TRACE}-{call.span_id.hex()}-01" == sent
    assert f"00-{CALLER_TRACE}-{request.span_id.hex()}-01" == answer.headers["traceparent"]
    for span, parent in ((call, request), (prefill, call), (decode, call)):
        assert parent.span_id == span.parent_span_id
        assert parent.start_time_unix_nano <= span.start_time_unix_nano <= span.end_time_unix_nano <= parent.end_time_unix_nano
    slack = 5_000_000
    assert before - slack <= request.start_time_unix_nano <= request.end_time_unix_nano <= after + slack
    expected = {"tidegate.tenant": "acme", "tidegate.business.order": "17", "tidegate.feature": "faq", "tidegate.kept_for": "caller"}
    attributes = attributes_of(request)
    assert expected == {name: attributes[name] for name in expected}
    assert 4 == attributes_of(call)["gen_ai.usage.output_tokens"]
    serialized = b"".join(request.SerializeToString() for request in receiver.requests)
    assert CANARY.encode() not in serialized
    assert key.reveal().encode() not in serialized
    assert f"Bearer {CANARY}" == receiver.headers[0]["authorization"]


@pytest.mark.soak
def test_a_trace_that_begins_here_is_sent_on_as_sampled_where_it_is_kept(upstream: ThreadedUpstream) -> None:
    """So that the model server keeps its part of it too; a whole answer has the server's own times as well."""
    with Receiver() as receiver, GatewayProcess(configuration(upstream, receiver.endpoint)) as gateway:
        key = key_of(gateway)
        upstream.reset()
        upstream.script(Script(body=WHOLE, content_type="application/json"))
        assert 200 == ask(gateway, key, QUESTION).status_code
        until(lambda: len(chats(receiver)) == 4, "the spans of the request")
        (received,) = upstream.requests
        sent = dict(received.headers)["traceparent"]
    lengths = {
        span.name: span.end_time_unix_nano - span.start_time_unix_nano
        for span in chats(receiver).values()
        if not span.name.startswith("chat")
    }
    assert {"prefill", "decode"} == set(lengths)
    assert sent.endswith("-01")


@pytest.mark.soak
def test_while_nobody_listens_the_spans_wait(upstream: ThreadedUpstream, tmp_path: Path) -> None:
    """No request notices, and once a collector is there it gets each of them."""
    with Receiver() as receiver:
        port = receiver.port
    upstream.reset()
    with GatewayProcess(configuration(upstream, receiver.endpoint), state_directory=tmp_path) as gateway:
        key = key_of(gateway)
        for number in range(5):
            assert 200 == ask(gateway, key, QUESTION, x_request_id=f"waiting-{number}").status_code
        until(lambda: "spans.waiting" in gateway.log(), "the feed to notice")
        with Receiver(port) as late:
            until(lambda: len(chats(late)) >= 10, "the spans that waited", deadline_s=30.0)
            roots = [span for span in late.spans() if span.name.startswith("chat") and span.kind == Span.SPAN_KIND_SERVER]
            assert sorted(f"waiting-{number}" for number in range(5)) == sorted(
                str(attributes_of(each)["tidegate.request_id"]) for each in roots
            )


@pytest.mark.soak
def test_spans_and_tables_come_from_the_same_records(upstream: ThreadedUpstream, tmp_path: Path) -> None:
    """Each with its own position; the admin port says how both are."""
    with Receiver() as receiver:
        settings = {**configuration(upstream, receiver.endpoint), "analytics": {"enabled": True}}
        upstream.reset()
        with GatewayProcess(settings, state_directory=tmp_path) as gateway:
            key = key_of(gateway)
            assert 200 == ask(gateway, key, QUESTION).status_code
            until(lambda: bool(chats(receiver)), "the spans of the request")
            admin = KeyStore(tmp_path / KEYS_FILE)
            token = admin.create(name="status", tenant="ops", user="ops", now=wall_clock(), admin=True).token
            admin.close()
            headers = {"authorization": f"Bearer {token.reveal()}"}
            seen: dict[str, Any] = {}

            def is_told() -> bool:
                seen.update(httpx.get(f"{gateway.admin_url}/admin/status", headers=headers).json())
                return bool(seen.get("spans", {}).get("sent") and seen.get("recorder", {}).get("rows"))

            until(is_told, "the figures", deadline_s=30.0)
    assert ("", 0, 0) == tuple(seen["spans"][name] for name in ("trouble", "refused", "lost_bytes"))
    assert (tmp_path / "tracing" / "positions.json").exists()
    assert (tmp_path / "analytics" / "positions.json").exists()
