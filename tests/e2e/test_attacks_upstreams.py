"""Hostile and broken upstreams: what they send can neither end the worker, nor fill it, nor make a client pay for ever."""

from __future__ import annotations

import json
import re
import time

import httpx
import psutil
import pytest

from tidegate.domain.principal import Limits
from tidegate.testing import Endpoint, GatewayProcess, Script, ThreadedUpstream

CHAT = {"model": "scripted", "messages": [{"role": "user", "content": "hi"}]}
HUGE = ("1e300", "9" * 40, "18446744073709551616", "1e999", "-5", '"5"', "[]", "NaN")


def body_with(figure: str) -> str:
    choice = '{"index":0,"message":{"role":"assistant","content":"hi"},"finish_reason":"stop"}'
    return f'{{"id":"x","object":"chat.completion","choices":[{choice}],"usage":{{"prompt_tokens":{figure},"completion_tokens":{figure}}}}}'


def worker_pids(gateway: GatewayProcess) -> list[int]:
    children = psutil.Process(gateway.pid).children(recursive=True)
    return [child.pid for child in children if "tidegate.node.worker" in child.cmdline()]


@pytest.mark.parametrize("figure", HUGE)
def test_an_absurd_usage_ends_no_worker(gateway: GatewayProcess, through: Endpoint, upstream: ThreadedUpstream, figure: str) -> None:
    """A figure that no message to the supervisor can hold once took the worker, and every stream in it, down at the next `/metrics`."""
    before = worker_pids(gateway)
    upstream.script(Script(body=body_with(figure)))
    answer = httpx.post(f"{through.base_url}/chat/completions", headers=through.headers, json=CHAT, timeout=10.0)
    assert 200 == answer.status_code

    page = gateway.metrics()
    assert before == worker_pids(gateway)
    assert all(float(value) < 1e11 for value in re.findall(r"^tidegate_tokens_total\{.*\} (\S+)$", page, re.MULTILINE))
    assert 200 == httpx.get(f"{through.base_url}/models", headers=through.headers).status_code


def test_a_killed_worker_is_replaced_and_no_stream_ends_as_if_it_were_whole(
    gateway: GatewayProcess, through: Endpoint, upstream: ThreadedUpstream
) -> None:
    """SIGKILL in the middle of a stream: the client sees a broken connection, never `[DONE]`, and the next request is served."""
    upstream.set_default(Script(echo=True, per_token_s=0.05))
    (pid,) = worker_pids(gateway)
    received = b""
    whole = True
    request = {**CHAT, "stream": True, "messages": [{"role": "user", "content": "w " * 100}]}
    try:
        with httpx.stream("POST", f"{through.base_url}/chat/completions", headers=through.headers, json=request, timeout=10.0) as response:
            for piece in response.iter_raw():
                received += piece
                if received.count(b"data: ") == 3:
                    psutil.Process(pid).kill()
    except httpx.TransportError:
        whole = False
    assert not whole
    assert b"[DONE]" not in received

    upstream.reset()
    deadline = time.monotonic() + 10.0
    status = 0
    while status != 200 and time.monotonic() < deadline:
        try:
            status = httpx.post(f"{through.base_url}/chat/completions", headers=through.headers, json=CHAT, timeout=5.0).status_code
        except httpx.TransportError:
            time.sleep(0.02)
    assert 200 == status
    upstream.wait_for(lambda: all(call.answered_at or call.client_left_at for call in upstream.requests), 2.0)
    assert json.loads(httpx.get(f"{gateway.api_url}/readyz").text)["status"] == "ready"


def test_a_frozen_counting_process_delays_one_request_and_no_more(gateway: GatewayProcess, upstream: ThreadedUpstream) -> None:
    """SIGSTOP: whoever is near a limit waits once for the count's deadline; the next are let in by an estimate at once."""
    del upstream
    key = gateway.create_key(name="near-its-limit", limits=Limits(tokens_per_minute=20_000))
    gateway.wait_for_key(key)
    endpoint = gateway.endpoint(key)
    (counting,) = [
        each for each in psutil.Process(gateway.pid).children(recursive=True) if "tidegate.adapters.counting" in str(each.cmdline())
    ]
    counting.suspend()
    try:
        took_s = []
        for number in range(5):
            request = {**CHAT, "max_tokens": 10, "messages": [{"role": "user", "content": f"{number}" + " word" * 600}]}
            began = time.monotonic()
            answer = httpx.post(f"{endpoint.base_url}/chat/completions", headers=endpoint.headers, json=request, timeout=10.0)
            took_s.append(time.monotonic() - began)
            assert 200 == answer.status_code
    finally:
        counting.resume()
    assert max(took_s[1:]) < 0.5, took_s
