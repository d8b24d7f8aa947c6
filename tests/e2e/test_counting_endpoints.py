"""Counting and estimating through a running gateway, with the official SDKs; one long prompt beside many short questions."""

from __future__ import annotations

import json
import os
import signal
import statistics
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import anthropic
import httpx
import openai
import psutil
import pytest

from tidegate.domain.units import Secret
from tidegate.testing import GatewayProcess, ThreadedUpstream

QWEN = "qwen3.6-plus"
QUESTION = "Why is the sky blue?"
QUESTION_TOKENS = 16
"""In Qwen's template: its marks, the six words, and the beginning of the answer."""
WEATHER_SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}}
HTML = "<html><body><table>" + "<tr><td>Colour</td><td>Blue</td></tr>" * 20 + "</table></body></html>"


@pytest.fixture(scope="module")
def server() -> Iterator[ThreadedUpstream]:
    with ThreadedUpstream(models=(QWEN,)) as running:
        yield running


@pytest.fixture(scope="module")
def counting(server: ThreadedUpstream) -> Iterator[GatewayProcess]:
    upstream = {"dialect": "openai", "base_url": server.base_url, "tokenizer": "qwen3.6", "models": [QWEN], "health": {"enabled": False}}
    settings = {"upstreams": {"hosted": upstream}, "server": {"max_body_bytes": 16_777_216, "drain_timeout_s": 2.0}}
    with GatewayProcess(settings) as process:
        yield process


@pytest.fixture(scope="module")
def secret(counting: GatewayProcess) -> Secret:
    created = counting.create_key()
    counting.wait_for_key(created)
    return created


@pytest.fixture
def claude(counting: GatewayProcess, secret: Secret) -> Iterator[anthropic.Anthropic]:
    with anthropic.Anthropic(base_url=counting.api_url, api_key=secret.reveal(), max_retries=0) as client:
        yield client


@pytest.fixture
def http_client(counting: GatewayProcess, secret: Secret) -> Iterator[httpx.Client]:
    headers = {"authorization": f"Bearer {secret.reveal()}"}
    with httpx.Client(base_url=counting.api_url, headers=headers, timeout=60.0, trust_env=False) as client:
        yield client


def test_all_three_count_the_same(claude: anthropic.Anthropic, http_client: httpx.Client, counting: GatewayProcess, secret: Secret) -> None:
    """One question has as many tokens for Anthropic's SDK, for OpenAI's, and for `/tokenize`."""
    messages = [{"role": "user", "content": QUESTION}]
    by_claude = claude.messages.count_tokens(model=QWEN, messages=[{"role": "user", "content": QUESTION}])
    with openai.OpenAI(base_url=counting.base_url, api_key=secret.reveal()) as client:
        by_openai = client.responses.input_tokens.count(model=QWEN, input=QUESTION)
    by_vllm = http_client.post("/tokenize", json={"model": QWEN, "messages": messages}).json()
    assert (by_claude.input_tokens, by_openai.input_tokens, by_vllm["count"]) == (QUESTION_TOKENS,) * 3
    assert (by_openai.object, by_vllm["exact"]) == ("response.input_tokens", True)


def test_everything_that_a_message_can_hold_is_counted(claude: anthropic.Anthropic) -> None:
    """System, tools, calls, results, pictures and documents each add to a count."""
    png = "iVBORw0KGgoAAAANSUhEUgAAAoAAAAHgCAYAAAA10dzk"  # the head of one of 640 x 480
    counted = claude.messages.count_tokens(
        model=QWEN,
        system=[{"type": "text", "text": "Be kind."}],
        tools=[{"name": "weather", "description": "Looks outside.", "input_schema": {"type": "object", "properties": {}}}],
        messages=[
            {"role": "user", "content": [{"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": png}}]},
            {"role": "assistant", "content": [{"type": "tool_use", "id": "t1", "name": "weather", "input": {"city": "Hangzhou"}}]},
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t1", "content": "mild"}]},
        ],
    )
    assert 200 + 300 + 2 < counted.input_tokens < 700


def test_anthropics_sdk_knows_our_errors(claude: anthropic.Anthropic, counting: GatewayProcess) -> None:
    """A bad key, an unknown model and a missing member raise the classes that its users catch."""
    stranger = anthropic.Anthropic(base_url=counting.api_url, api_key="sk-none", max_retries=0)
    with stranger, pytest.raises(anthropic.AuthenticationError) as refused:
        stranger.messages.count_tokens(model=QWEN, messages=[{"role": "user", "content": "x"}])
    assert isinstance(refused.value.body, dict)
    assert refused.value.body["error"]["type"] == "authentication_error"
    with pytest.raises(anthropic.NotFoundError):
        claude.messages.count_tokens(model="nobody", messages=[{"role": "user", "content": "x"}])
    with pytest.raises(anthropic.BadRequestError, match="messages"):
        claude.messages.count_tokens(model=QWEN, messages=[])
    with pytest.raises(anthropic.APIStatusError) as method:
        claude.get("/v1/messages/count_tokens", cast_to=object)
    assert (method.value.status_code, method.value.type) == (405, "invalid_request_error")


def test_an_estimate_shows_its_arithmetic(http_client: httpx.Client, server: ThreadedUpstream) -> None:
    """Input, output and overhead with their coefficients make up the total, and no model is called."""
    server.reset()
    body = {
        "model": QWEN,
        "messages": [{"role": "user", "content": f"Describe this product. {HTML}"}],
        "max_completion_tokens": 300,
        "response_format": {"type": "json_object"},
    }
    shown = http_client.post("/v1/estimate", json=body).json()
    assert (shown["object"], shown["content_type"], shown["output_tokens"], shown["exact"]) == ("estimate", "html", 300, True)
    assert (shown["alpha"], shown["beta"], shown["gamma"], shown["learned_from"]) == (1.42, 1.05, 0.22, 0)
    weighted = round(shown["input_tokens"] * 1.42) + 315
    assert (shown["overhead_tokens"], shown["total_tokens"]) == (weighted, weighted + round(weighted * 0.22))
    assert "cost_micro" not in shown
    assert list(server.requests) == []


def test_estimates_learn_from_what_upstreams_report(counting: GatewayProcess, http_client: httpx.Client) -> None:
    """Answered requests move the coefficients toward what their usage says, and the error becomes a metric."""
    body = {"model": QWEN, "messages": [{"role": "user", "content": f"Tell me. {HTML}"}], "max_completion_tokens": 300}
    before = http_client.post("/v1/estimate", json=body).json()

    def enough(page: str) -> bool:
        """Ask once more; of requests that come together one is learned from."""
        assert http_client.post("/v1/chat/completions", json=body).status_code == 200
        return _samples(page) >= 20

    page = counting.wait_for_metrics(enough, deadline_s=20.0)
    after = http_client.post("/v1/estimate", json=body).json()
    reported = http_client.post("/v1/chat/completions", json=body).json()["usage"]["prompt_tokens"]
    assert after["learned_from"] >= 20
    target = reported / after["input_tokens"]
    assert abs(after["alpha"] - target) < abs(before["alpha"] - target) / 4
    assert 'figure="estimate"' in page


def _samples(page: str) -> int:
    lines = [line for line in page.splitlines() if line.startswith("tidegate_estimate_error_ratio_count{") and 'figure="count"' in line]
    return int(sum(float(line.rpartition(" ")[2]) for line in lines))


@pytest.mark.parametrize("path", ["/tokenize", "/v1/messages/count_tokens"])
def test_a_million_tokens_hold_nobody_up(http_client: httpx.Client, counting: GatewayProcess, secret: Secret, path: str) -> None:
    """While a prompt of a million tokens is counted, short counts and health checks are answered at once."""
    text = " ".join(f"word {number} of the story" for number in range(130_000))
    body = json.dumps({"model": QWEN, "max_tokens": 1, "messages": [{"role": "user", "content": text}]}).encode()
    counted: dict[str, int] = {}

    def count() -> None:
        headers = {"authorization": f"Bearer {secret.reveal()}"}
        with httpx.Client(base_url=counting.api_url, timeout=60.0, headers=headers, trust_env=False) as client:
            counted.update(client.post(path, content=body).json())

    long_count = threading.Thread(target=count)
    long_count.start()
    health_s, short_s = list[float](), list[float]()
    while long_count.is_alive():
        begun = time.perf_counter()
        assert http_client.get("/livez").status_code == 200
        health_s.append(time.perf_counter() - begun)
        begun = time.perf_counter()
        question = {"model": QWEN, "prompt": f"short question {len(short_s)}"}
        assert http_client.post("/tokenize", json=question).json()["exact"] is True
        short_s.append(time.perf_counter() - begun)
        time.sleep(0.002)
    long_count.join()
    assert (counted.get("count") or counted["input_tokens"]) > 1_000_000
    assert len(health_s) > 5, "one or two, if the count held them up"
    assert statistics.median(health_s) < 0.1, "a machine shared with other tests: benchmarks/counting.py has the figures"
    assert statistics.median(short_s) < 0.5


def test_a_killed_counting_process_costs_exactness_only(http_client: httpx.Client, counting: GatewayProcess) -> None:
    """When it dies in the middle of a count, the answer comes at once and says that it is not exact; its successor counts again."""
    text = " ".join(f"word {number} of the story" for number in range(130_000))
    children = psutil.Process(counting.pid).children(recursive=True)
    [process] = [child for child in children if any("counting.process" in part for part in child.cmdline())]
    answers: list[dict[str, object]] = []

    def count() -> None:
        answers.append(http_client.post("/tokenize", json={"model": QWEN, "prompt": text}).json())

    asking = threading.Thread(target=count)
    asking.start()
    busy_from = sum(process.cpu_times()[:2])
    deadline = time.monotonic() + 20.0
    while sum(process.cpu_times()[:2]) - busy_from < 0.1 and time.monotonic() < deadline:  # until it is counting
        time.sleep(0.01)
    os.kill(process.pid, signal.SIGKILL)
    asking.join(timeout=20.0)
    deadline = time.monotonic() + 20.0
    assert [(answer["exact"], answer["tokenizer"]) for answer in answers] == [(False, "fallback:bytes")]
    while not (again := http_client.post("/tokenize", json={"model": QWEN, "prompt": "hello"}).json())["exact"]:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    assert again["count"] == 1


def test_the_page_about_counting_names_what_is_served(counting: GatewayProcess) -> None:
    """Each path in docs/counting.md is one that the gateway answers to."""
    page = (Path(__file__).resolve().parents[2] / "docs" / "counting.md").read_text()
    for path in ("/tokenize", "/v1/messages/count_tokens", "/v1/responses/input_tokens", "/v1/estimate"):
        assert f"POST {path}" in page
        assert httpx.post(f"{counting.api_url}{path}", json={}, trust_env=False).status_code == 401
