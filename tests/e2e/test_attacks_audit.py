"""Secrets in every place of requests and answers, with bodies kept under every policy: what is kept, and what is nowhere."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator

import httpx
import pytest

from tidegate.domain.units import Secret
from tidegate.testing import GatewayProcess, Script, ThreadedUpstream, ToolCall

UPSTREAM_KEY = "upstream-canary-opaque-credential"
"""Of no known shape: only who was configured with it can know it."""
PROVIDER_KEY = "sk-proj-canary0123456789abcdef"
JWT = "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiJjYW5hcnkifQ.c2lnbmF0dXJl"
BEARER = "Bearer bearer-canary-0123456789"
PASSWORD = "passw0rd-canary"
CREDENTIALS = (PROVIDER_KEY, JWT, BEARER.split()[1], PASSWORD)
PERSONAL = ("13800138000", "ann@canary.example", "11010519491231002X", "4111111111111111", "E-424242")
WORDS = "words-canary"
HEADERS = {
    "cookie": "session=header-canary",
    "proxy-authorization": "Basic header-canary",
    "x-secret": "header-canary",
    "x-api-version": "header-canary",
    "user-agent": "header-canary",
    "forwarded": "for=header-canary",
}
TEXT = f"{WORDS}, {PROVIDER_KEY}, {JWT}, {BEARER}, https://ann:{PASSWORD}@h.example/x, {', '.join(PERSONAL)}."
COMPLAINT = f"no such key {PROVIDER_KEY}, {UPSTREAM_KEY}, {JWT}, {BEARER}, https://ann:{PASSWORD}@h.example/x, nor {', '.join(PERSONAL)}."
"""What an upstream says of its failure goes into the record, for operators: whatever words those are."""
POLICIES = ("off", "metadata", "redacted", "full")


@pytest.fixture(scope="module")
def upstream() -> Iterator[ThreadedUpstream]:
    with ThreadedUpstream(models=("scripted",), api_key=UPSTREAM_KEY) as server:
        yield server


@pytest.fixture(scope="module")
def gateway(upstream: ThreadedUpstream) -> Iterator[GatewayProcess]:
    there = {
        "dialect": "openai",
        "base_url": upstream.base_url,
        "api_key": UPSTREAM_KEY,
        "models": ["scripted"],
        "health": {"enabled": False},
    }
    audit = {
        "rules": [{"tenant": policy, "policy": policy} for policy in POLICIES],
        "patterns": [{"name": "staff", "pattern": r"E-\d{6}"}],
        "max_body_bytes": 65_536,
    }
    with GatewayProcess({"upstreams": {"there": there}, "audit": audit}) as process:
        yield process


@pytest.fixture(scope="module")
def keys(gateway: GatewayProcess) -> dict[str, Secret]:
    made = {policy: gateway.create_key(name=policy, tenant=policy) for policy in POLICIES}
    for key in made.values():
        gateway.wait_for_key(key)
    return made


def request(text: str, *, stream: bool) -> dict[str, object]:
    """A chat request with a text in every member that may hold one, and in names of members."""
    return {
        "model": "scripted",
        "stream": stream,
        "temperature": 0.3,
        "messages": [
            {"role": "system", "content": text, "name": text},
            {"role": "user", "content": [{"type": "text", "text": f"first\n{text}"}]},
            {
                "role": "assistant",
                "tool_calls": [{"id": "c", "type": "function", "function": {"name": "f", "arguments": json.dumps({"a": f"\t{text}"})}}],
            },
            {"role": "tool", "tool_call_id": "c", "content": text},
        ],
        "tools": [{"type": "function", "function": {"name": "f", "description": text, "parameters": {"type": "object", "title": text}}}],
        "user": text,
        "metadata": {text: text},
        "stop": [text],
        "password": PASSWORD,
        "some_unknown_field": {"deep": [[text]]},
    }


def kept(gateway: GatewayProcess, count: int, request_id: str = "") -> list[dict[str, object]]:
    """Give the lines of the audit file, or those of one request there, once there are so many."""
    deadline = time.monotonic() + 10.0
    file = gateway.state_directory / "records" / "audit-0.jsonl"
    lines: list[str] = []
    while len(lines) < count:
        assert time.monotonic() < deadline, f"{len(lines)} of {count} bodies are kept"
        time.sleep(0.02)
        lines = [line for line in file.read_text().splitlines() if f'"request_id":"{request_id}' in line] if file.exists() else []
    return [json.loads(line) for line in lines]


def test_no_secret_is_kept_under_any_policy(gateway: GatewayProcess, upstream: ThreadedUpstream, keys: dict[str, Secret]) -> None:
    """Credentials are in no body, record, log line, metric or error, and what is in headers and query is nowhere at all.

    Personal numbers are only where everything is to be kept, words of texts only in bodies.
    """
    answer = f"{TEXT} {UPSTREAM_KEY}, {keys['redacted'].reveal()}."
    script = Script(pieces=tuple(answer), tool_calls=(ToolCall("f", json.dumps({"x": f"\n{answer}"})),))
    errors: list[str] = []
    for policy, key in keys.items():
        with httpx.Client(base_url=gateway.api_url, headers=HEADERS | {"authorization": f"Bearer {key.reveal()}"}, timeout=20.0) as client:
            for each in (script, Script(status=400, error={"message": COMPLAINT})):
                upstream.set_default(each)
                for stream in (False, True):
                    body = request(f"{TEXT} {key.reveal()}", stream=stream)
                    got = client.post(
                        "/v1/chat/completions", params={"api_key": "query-canary"}, json=body, headers={"x-request-id": policy}
                    )
                    errors += [got.text] if got.is_error else []
            client.post("/v1/chat/completions", content=f"no json, {TEXT}".encode(), headers={"x-request-id": policy})
    bodies = kept(gateway, 3 * 2 * 5)
    secrets = [*CREDENTIALS, UPSTREAM_KEY, *(key.reveal().rpartition("-")[2] for key in keys.values()), "header-canary", "query-canary"]

    assert 30 == len(bodies)
    by_policy = {policy: json.dumps([body for body in bodies if body["policy"] == policy], ensure_ascii=False) for policy in POLICIES}
    assert "[]" == by_policy["off"]
    assert [] == [(policy, secret) for policy, text in by_policy.items() for secret in secrets if secret in text]
    assert [] == [word for word in (*PERSONAL, WORDS) if word in by_policy["metadata"]]
    assert [] == [word for word in PERSONAL if word in by_policy["redacted"]]
    assert [] == [word for word in (*PERSONAL, WORDS) if word not in by_policy["full"]]
    assert WORDS in by_policy["redacted"]
    assert "[staff]" in by_policy["redacted"]
    records = "".join(path.read_text() for path in (gateway.state_directory / "records").glob("requests-*"))
    places = {"log": gateway.log(), "records": records, "metrics": gateway.metrics()}
    assert [] == [(place, word) for place, text in places.items() for word in (*secrets, *PERSONAL, WORDS) if word in text]
    seen = repr([call.headers for call in upstream.requests])
    assert [] == [word for word in ("header-canary", "query-canary", *CREDENTIALS, WORDS) if word in seen]
    own = [error for error in errors if "no such key" not in error]  # the others repeat what the upstream said, to who asked it
    assert [] == [secret for secret in secrets if secret in "".join(own)]


def test_a_body_is_what_was_asked_and_answered(gateway: GatewayProcess, upstream: ThreadedUpstream, keys: dict[str, Secret]) -> None:
    """Under `full`, where there is nothing to mask, the request stands there byte for byte, and the stream as the text that it was."""
    upstream.set_default(Script(pieces=("one ", "two")))
    body = '{"model":"scripted", "stream":true,\n "messages":[{"role":"user","content":"限 ünd \\u0061"}]}'
    headers = {"authorization": f"Bearer {keys['full'].reveal()}", "x-request-id": "exact"}
    got = httpx.post(f"{gateway.api_url}/v1/chat/completions", content=body.encode(), headers=headers, timeout=20.0)
    asked, answered = kept(gateway, 2, "exact")
    assert ("exact", "request", body, len(body.encode()), False) == tuple(
        asked[name] for name in ("request_id", "kind", "body", "bytes", "truncated")
    )
    assert {"choices": [{"index": 0, "content": "one two"}]} == json.loads(str(answered["body"]))
    assert len(got.content) == answered["bytes"]
