"""A canary in every place a secret can be put, and a search of every place where something comes out."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import httpx

from tidegate.testing import Endpoint, Fault, FaultKind, GatewayProcess, Script, ThreadedUpstream

PROVIDER_KEY = "sk-proj-canary0123456789abcdef"
HEADERS = {
    "cookie": "session=cookie-canary",
    "proxy-authorization": "Basic proxy-canary",
    "x-secret": "header-canary",
    "x-forwarded-for": "address-canary",
    "baggage": "user=baggage-canary",
    "forwarded": "for=forwarded-canary",
}
PROMPT = "prompt-canary"
ANSWER = "answer-canary"
VENDOR_WORDS = f"no such key {PROVIDER_KEY}; you sent Authorization: Bearer {PROVIDER_KEY}"


def records(gateway: GatewayProcess, count: int) -> str:
    """Give the record files once they hold `count` records of this test's key."""
    deadline = time.monotonic() + 5.0
    directory: Path = gateway.state_directory / "records"
    text = ""
    while time.monotonic() < deadline:
        text = "".join(path.read_text() for path in directory.glob("*.jsonl"))
        if text.count("key-canary") >= count:
            return text
        time.sleep(0.02)
    raise AssertionError(f"{text.count('key-canary')} of {count} records are written")


def chat(model: str, *, stream: bool = False) -> dict[str, Any]:
    return {"model": model, "stream": stream, "messages": [{"role": "user", "content": PROMPT}]}


def test_no_secret_comes_out_anywhere(gateway: GatewayProcess, upstream: ThreadedUpstream) -> None:
    """Keys, headers, query, prompt and answer: in no log line, record, metric, error, or upstream call where they do not belong."""
    key = gateway.create_key(name="canary", user="key-canary")
    gateway.wait_for_key(key)
    token = key.reveal()
    plain = Script(
        pieces=(ANSWER,), headers=(("set-cookie", "a=cookie-of-upstream"), ("x-internal", "host-canary"), ("x-request-id", "up-7"))
    )
    scripts = [plain, Script(status=400, error={"message": VENDOR_WORDS}), Script(pieces=(ANSWER,), fault=Fault(FaultKind.ERROR_EVENT, 2))]
    errors: list[str] = []
    with httpx.Client(base_url=gateway.api_url, headers={**HEADERS, "authorization": f"Bearer {token}"}, timeout=10.0) as client:
        for script in scripts:
            for stream in (False, True):
                upstream.set_default(script)
                answer = client.post("/v1/chat/completions", params={"api_key": "query-canary"}, json=chat("scripted", stream=stream))
                errors += [answer.text] if answer.is_error else []
                assert "cookie-of-upstream" not in str(answer.headers)
                assert "host-canary" not in str(answer.headers)
        seen = [(call.headers, call.path) for call in upstream.requests]
        upstream.reset()
        for pasted in (token, PROVIDER_KEY):  # where the model's name belongs, and as a request id
            client.post("/v1/chat/completions", json=chat(pasted), headers={"x-request-id": pasted})
        wrong = client.get("/v1/models", headers={"authorization": "Bearer wrong-canary-credential"})
        errors.append(wrong.text)

    assert '"upstream_request_id":"up-7"' in records(gateway, 2), "the provider's name of a call is for the record"
    places = {"log": gateway.log(), "records": records(gateway, 2 + 2 * len(scripts)), "metrics": gateway.metrics()}
    canaries = ["cookie-canary", "proxy-canary", "header-canary", "baggage-canary", "query-canary", "wrong-canary", PROMPT, ANSWER]
    secret = token.rpartition("-")[2]
    for place, text in places.items():
        assert [] == [canary for canary in (*canaries, secret, PROVIDER_KEY, "sk-upstream-canary") if canary in text], place
    assert [] == [canary for canary in (secret, PROVIDER_KEY, "sk-upstream-canary", "wrong-canary") if canary in "".join(errors)]
    assert [] == [canary for canary in (*canaries[:6], "forwarded-canary", "address-canary", secret) if canary in repr(seen)]


def test_whoever_pastes_a_key_as_model_finds_it_masked(gateway: GatewayProcess, through: Endpoint) -> None:
    """The record keeps enough to see what happened, and not the secret."""
    token = through.api_key.reveal()
    answer = httpx.post(f"{through.base_url}/chat/completions", headers={**through.headers, "x-request-id": "paste-1"}, json=chat(token))
    assert 404 == answer.status_code

    deadline = time.monotonic() + 5.0
    lines: list[str] = []
    while not lines and time.monotonic() < deadline:
        paths = (gateway.state_directory / "records").glob("*.jsonl")
        lines = [line for path in paths for line in path.read_text().splitlines() if '"paste-1"' in line]
        time.sleep(0.02)
    head, _, secret = token.rpartition("-")
    assert f"{head}-****" == json.loads(lines[0])["model"]
    assert secret not in gateway.log()
