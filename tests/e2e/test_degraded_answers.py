"""Every target is dead: the official SDK gets an answer all the same, first one that asks for patience, then one by the rules."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import openai
import pytest
from openai.types.chat import ChatCompletionMessageParam

from tidegate.testing import GatewayProcess, ThreadedUpstream

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "rules" / "faq.json"
HOLDING = "We are looking for a fuller answer.\n\n- [Status](https://example.com/status)\n- [FAQ](https://example.com/faq)"
HAND_OVER = "Please write to support@example.com."
HOLD_S = 0.3
ROUTES = ("whole", "streamed", "featured", "texts", "ruled", "vectors")
"""Models, each on a route of its own: an outage belongs to a route, and its first request is always held."""


@pytest.fixture(scope="module")
def degraded(upstream_server: ThreadedUpstream) -> Iterator[GatewayProcess]:
    """A gateway with one healthy model, so that it is ready, and routes on which nothing ever answers."""
    links = [{"title": "Status", "url": "https://example.com/status"}, {"title": "FAQ", "url": "https://example.com/faq"}]
    configuration = {
        "upstreams": {
            "healthy": {"dialect": "openai", "base_url": upstream_server.base_url, "api_key": "sk-upstream-canary", "models": ["second"]},
            "dead": {"dialect": "openai", "base_url": "http://127.0.0.1:9/v1", "models": list(ROUTES)},
        },
        "retry": {"base_delay_s": 0.01, "max_delay_s": 0.01},
        "degradation": {
            "holding": {
                "default": {"sentence": "We are looking for a fuller answer.", "links": links},
                "code_completion": {"sentence": "// back soon"},
            },
            "hold_for_s": HOLD_S,
            "rules_file": str(EXAMPLE),
            "hand_over": HAND_OVER,
        },
    }
    with GatewayProcess(configuration) as process:
        yield process


@pytest.fixture(scope="module")
def client(degraded: GatewayProcess) -> Iterator[openai.OpenAI]:
    key = degraded.create_key()
    degraded.wait_for_key(key)
    with openai.OpenAI(base_url=degraded.base_url, api_key=key.reveal(), max_retries=0, timeout=10.0) as made:
        yield made


def ask(client: openai.OpenAI, model: str, question: str = "hello", **headers: str) -> tuple[str | None, str | None]:
    """Give the answer's text and what the header says it is."""
    extra = {name.replace("_", "-"): value for name, value in headers.items()}
    messages: list[ChatCompletionMessageParam] = [{"role": "user", "content": question}]
    raw = client.chat.completions.with_raw_response.create(model=model, messages=messages, extra_headers=extra)
    return raw.parse().choices[0].message.content, raw.headers.get("x-tidegate-degraded")


def test_a_whole_answer_is_held(client: openai.OpenAI) -> None:
    """A sentence and links, in the client's own protocol, and the header that says what it is."""
    assert (HOLDING, "L2; reason=holding") == ask(client, "whole")


def test_a_stream_is_held(client: openai.OpenAI) -> None:
    """As events, with a finish reason and a proper end, and its usage where it was asked for."""
    with client.chat.completions.with_streaming_response.create(
        model="streamed",
        messages=[{"role": "user", "content": "hello"}],
        stream=True,
        stream_options={"include_usage": True},
    ) as raw:
        assert "L2; reason=holding" == raw.headers["x-tidegate-degraded"]
        assert raw.headers["content-type"].startswith("text/event-stream")
        chunks = list(raw.parse())
    assert HOLDING == "".join(choice.delta.content or "" for chunk in chunks for choice in chunk.choices)
    assert chunks[-1].usage is not None
    assert 0 == chunks[-1].usage.total_tokens


def test_a_feature_has_its_own_answer(client: openai.OpenAI) -> None:
    """The client names it in a header."""
    assert ("// back soon", "L2; reason=holding") == ask(client, "featured", X_Business_Context="feature=code_completion; user_tier=vip")


def test_a_text_completion_is_held(client: openai.OpenAI) -> None:
    """In the older protocol too."""
    assert HOLDING == client.completions.create(model="texts", prompt="Once upon a time").choices[0].text


def test_after_a_while_the_rules_answer(client: openai.OpenAI) -> None:
    """Known questions get their answer, others a person; in a stream too."""
    until = time.monotonic() + 10.0
    answer = ask(client, "ruled", "I forgot my password")
    while answer[1] == "L2; reason=holding" and time.monotonic() < until:
        answer = ask(client, "ruled", "I forgot my password")
    assert "L3; reason=rules" == answer[1]
    assert "https://example.com/password" in (answer[0] or "")
    assert (HAND_OVER, "L3; reason=hand_over") == ask(client, "ruled", "Write a poem.")
    stream = client.chat.completions.create(model="ruled", messages=[{"role": "user", "content": "密码忘了怎么办"}], stream=True)
    assert "忘记密码" in "".join(choice.delta.content or "" for chunk in stream for choice in chunk.choices)


def test_what_has_no_words_keeps_its_error(client: openai.OpenAI) -> None:
    """No sentence stands for a vector."""
    with pytest.raises(openai.APIStatusError) as failed:
        client.embeddings.create(model="vectors", input="hello")
    assert failed.value.status_code in (502, 503)


@pytest.mark.usefixtures("upstream")
def test_a_healthy_model_is_not_touched(client: openai.OpenAI) -> None:
    """Nothing is prepared for who gets a real answer."""
    text, degraded = ask(client, "second")
    assert text
    assert degraded is None


def test_prepared_answers_are_counted_as_such(client: openai.OpenAI, degraded: GatewayProcess) -> None:
    """They are neither successes nor failures."""
    ask(client, "whole")
    degraded.wait_for_metrics(lambda page: 'outcome="degraded"' in page, deadline_s=10.0)


def test_a_reload_with_a_broken_file_of_rules_changes_nothing(tmp_path: Path) -> None:
    """It is refused with the row that cannot be read, and the rules loaded before go on answering; a mended file is taken up."""
    rules = tmp_path / "rules.json"
    rules.write_text(EXAMPLE.read_text())
    settings = {
        "upstreams": {"dead": {"dialect": "openai", "base_url": "http://127.0.0.1:9/v1", "models": ["m"], "health": {"enabled": False}}},
        "degradation": {"rules_file": str(rules), "hand_over": HAND_OVER},
    }
    with GatewayProcess(settings) as process:
        key = process.create_key()
        process.wait_for_key(key)
        with openai.OpenAI(base_url=process.base_url, api_key=key.reveal(), max_retries=0, timeout=10.0) as client:
            rules.write_text(EXAMPLE.read_text().replace("contains($, 'refund')", "contains($, 'refund"))
            os.kill(process.pid, signal.SIGHUP)
            _wait(lambda: "configuration.reload_refused" in process.log())
            assert 'row 4, column "The question contains"' in process.log().replace('\\"', '"')
            assert "https://example.com/refund" in (ask(client, "m", "refund")[0] or "")
            rules.write_text(EXAMPLE.read_text().replace("https://example.com/refund", "https://example.com/money"))
            os.kill(process.pid, signal.SIGHUP)
            _wait(lambda: "https://example.com/money" in (ask(client, "m", "refund")[0] or ""))


def _wait(condition: Callable[[], bool]) -> None:
    until = time.monotonic() + 10.0
    while not condition():
        assert time.monotonic() < until, "the gateway did not do it in time"
        time.sleep(0.02)
