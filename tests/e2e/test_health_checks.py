"""A model server that freezes, and what nodes tell each other of it: real processes, a real Redis."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from benchmarks.drill import Mock

from tidegate.domain.units import Secret
from tidegate.testing import GatewayProcess, RedisServer, ThreadedUpstream

QUESTION = {"model": "m", "messages": [{"role": "user", "content": "hello"}]}
PROMISED_S = 2.0 * 2 + 1.5
"""`every_s * failures + timeout_s` with the defaults."""

needs_redis = pytest.mark.skipif(not RedisServer.is_installed(), reason="redis-server is not installed: apt-get install redis-server")


@pytest.fixture
def primary(tmp_path: Path) -> Iterator[Mock]:
    """A model server in a process of its own, which can be frozen."""
    made = Mock("primary", tmp_path, script={"models": ["m"]})
    yield made
    made.end()


def ask(gateway: GatewayProcess, key: Secret, *, stream: bool = False) -> httpx.Response:
    headers = {"authorization": f"Bearer {key.reveal()}"}
    return httpx.post(f"{gateway.base_url}/chat/completions", json=QUESTION | {"stream": stream}, headers=headers, timeout=30.0)


def key_for(gateway: GatewayProcess) -> Secret:
    key = gateway.create_key()
    gateway.wait_for_key(key)
    return key


def figure(page: str, name: str) -> float:
    """One sample of a page of metrics; 0 when it is not there."""
    found = re.search(rf"^{re.escape(name)} (\S+)$", page, re.MULTILINE)
    return float(found[1]) if found is not None else 0.0


def test_requests_leave_a_server_that_freezes(primary: Mock) -> None:
    """With default settings: those that wait for it move within the promised time, later ones do not wait, nobody sees an error."""
    with ThreadedUpstream(models=("m",)) as standby:
        upstreams = {
            "primary": {"dialect": "openai", "base_url": primary.base_url, "models": ["m"]},
            "standby": {"dialect": "openai", "base_url": standby.base_url},
        }
        routes = [{"model": "m", "targets": [{"upstream": "primary"}, {"upstream": "standby"}]}]
        with GatewayProcess({"upstreams": upstreams, "routes": routes}) as gateway:
            key = key_for(gateway)
            assert "x-tidegate-degraded" not in ask(gateway, key).headers
            primary.freeze()
            frozen_at = time.monotonic()
            answers: list[tuple[httpx.Response, float]] = []

            def wait_there(*, stream: bool) -> None:
                answer = ask(gateway, key, stream=stream)
                answers.append((answer, time.monotonic() - frozen_at))

            waiting = [threading.Thread(target=wait_there, kwargs={"stream": index % 2 == 0}) for index in range(4)]
            for thread in waiting:
                thread.start()
            for thread in waiting:
                thread.join(30.0)
            assert [answer.status_code for answer, _ in answers] == [200] * 4
            assert all("upstream=standby" in answer.headers["x-tidegate-degraded"] for answer, _ in answers)
            assert max(took_s for _, took_s in answers) < PROMISED_S + 1.0  # one second for a busy machine
            began = time.monotonic()
            assert ask(gateway, key).status_code == 200
            assert time.monotonic() - began < 1.0
            assert httpx.get(f"{gateway.admin_url}/readyz").json()["upstreams"]["primary"].startswith("away")
            primary.thaw()
            page = gateway.wait_for_metrics(
                lambda page: figure(page, 'tidegate_health_changes_total{change="came_back",upstream="primary"}') == 1, deadline_s=8.0
            )
            assert figure(page, 'tidegate_health_changes_total{change="went_down",upstream="primary"}') == 1
            asked = [float(count) for count in re.findall(r"^tidegate_requests_total\{[^}]*chat[^}]*\} (\S+)$", page, re.MULTILINE)]
            assert sum(asked) == 6
            log = gateway.log()
        assert log.count("upstream.went_down") == 1
        assert "calls=4" in log
        assert log.count("upstream.came_back") == 1


@pytest.mark.soak
@needs_redis
def test_a_node_learns_from_another_one_and_does_without_its_store(primary: Mock) -> None:
    """A node that asks once an hour hears of it within moments; with the store killed, frozen or empty requests go on."""
    with RedisServer(password="canary-of-the-store") as store, ThreadedUpstream(models=("m",)) as standby:

        def configuration(name: str, every_s: float) -> dict[str, object]:
            health = {"every_s": every_s, "timeout_s": 0.5}
            upstreams = {
                name: {"dialect": "vllm", "base_url": primary.base_url, "health": health},
                "standby": {"dialect": "openai", "base_url": standby.base_url, "health": {"enabled": False}},
            }
            routes = [{"model": "m", "targets": [{"upstream": name}, {"upstream": "standby"}]}]
            return {"upstreams": upstreams, "routes": routes, "shared": {"redis_url": store.url, "timeout_s": 0.5}}

        with GatewayProcess(configuration("one-name", 0.2)) as one, GatewayProcess(configuration("another", 3600.0)) as two:
            key = key_for(two)
            for gateway in (one, two):
                gateway.wait_for_metrics(lambda page: figure(page, "tidegate_shared_connected") == 1, deadline_s=5.0)
            assert ask(two, key).status_code == 200
            primary.freeze()
            gone = 'tidegate_health_changes_total{change="went_down",upstream="another"}'
            two.wait_for_metrics(lambda page: figure(page, gone) == 1, deadline_s=5.0)
            primary.thaw()
            back = 'tidegate_health_changes_total{change="came_back",upstream="another"}'
            two.wait_for_metrics(lambda page: figure(page, back) >= 1, deadline_s=5.0)

            store.freeze()
            two.wait_for_metrics(lambda page: figure(page, "tidegate_shared_connected") == 0, deadline_s=8.0)
            began = time.monotonic()
            assert ask(two, key).status_code == 200
            assert time.monotonic() - began < 1.0
            ready = httpx.get(f"{two.admin_url}/readyz")
            assert (ready.status_code, ready.json()["shared"]) == (200, "lost by 1 of 1 workers")
            store.thaw()
            two.wait_for_metrics(lambda page: figure(page, "tidegate_shared_connected") == 1, deadline_s=10.0)
            store.kill()
            two.wait_for_metrics(lambda page: figure(page, "tidegate_shared_connected") == 0, deadline_s=5.0)
            assert ask(two, key).status_code == 200
            store.start()
            two.wait_for_metrics(lambda page: figure(page, "tidegate_shared_connected") == 1, deadline_s=10.0)
            assert httpx.get(f"{two.admin_url}/readyz").json()["shared"] == "connected"
            assert two.log().count("shared.lost") == 2
            assert "canary-of-the-store" not in one.log() + two.log()
