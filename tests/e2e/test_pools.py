"""A pool of real servers behind a real gateway: calls are spread, a dead server is left alone, and readiness shows each."""

from __future__ import annotations

import os
import signal

import httpx

from tidegate.testing import GatewayProcess, ThreadedUpstream

QUESTION = {"model": "m", "messages": [{"role": "user", "content": "hello"}]}
NOBODY = "http://127.0.0.1:9/v1"


def _upstream(base_url: str, *more: str) -> dict[str, object]:
    return {
        "dialect": "openai",
        "base_url": base_url,
        "models": ["m"],
        "replicas": [{"base_url": each} for each in more],
        "health": {"enabled": False},
        "breaker": {"cooldown_s": 60.0, "max_cooldown_s": 60.0},
    }


def test_calls_are_spread_and_a_dead_server_is_left_alone() -> None:
    """No client sees the dead one. After two connections its breaker is open, readiness says so, and a reload does not forget it."""
    with ThreadedUpstream(models=("m",)) as first, ThreadedUpstream(models=("m",)) as second:
        pool = _upstream(first.base_url, NOBODY, second.base_url)
        with GatewayProcess({"upstreams": {"pool": pool}}) as gateway, httpx.Client(timeout=10.0) as client:
            key = gateway.create_key()
            gateway.wait_for_key(key)
            headers = {"authorization": f"Bearer {key.reveal()}"}

            def ask() -> int:
                return client.post(f"{gateway.base_url}/chat/completions", headers=headers, json=QUESTION).status_code

            assert [200] * 12 == [ask() for _ in range(12)]
            assert 12 == len(first.requests) + len(second.requests)
            assert min(len(first.requests), len(second.requests)) >= 4

            replicas = client.get(f"{gateway.api_url}/readyz").json()["upstreams"]["pool"]
            assert ["pool/0", "pool/1", "pool/2"] == [each["replica"] for each in replicas]
            assert ["closed", "open", "closed"] == [each["breaker"] for each in replicas]
            assert ["ready", "failing", "ready"] == [each["phase"] for each in replicas]
            assert "2 connections in a row could not be had" in replicas[1]["why"]
            assert replicas[1]["last_error"] is None

            gateway.wait_for_metrics(lambda page: 'tidegate_upstream_ready{upstream="pool"} 1.0' in page, deadline_s=10.0)
            path = gateway.configuration_path
            path.write_text(path.read_text().replace(first.base_url, second.base_url.replace("127.0.0.1", "localhost")))
            os.kill(gateway.pid, signal.SIGHUP)
            gateway.wait_for_metrics(lambda page: 'reloads_total{result="succeeded"} 1.0' in page, deadline_s=10.0)
            before = len(first.requests)
            assert [200] * 4 == [ask() for _ in range(4)]
            replicas = client.get(f"{gateway.api_url}/readyz").json()["upstreams"]["pool"]
            assert ["closed", "open", "closed"] == [each["breaker"] for each in replicas]
            assert before == len(first.requests)
