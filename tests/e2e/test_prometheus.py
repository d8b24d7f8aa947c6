"""A real Prometheus scrapes a real node: it takes what it is given, keeps the exemplars, and one scrape shows all processes."""

from __future__ import annotations

import json
import re
import shutil
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from functools import partial
from http import HTTPStatus
from pathlib import Path
from typing import Any, TypeVar

import httpx
import pytest
from tests.e2e.test_shared_limits import configuration

from tidegate.adapters.wall_clock import wall_clock
from tidegate.domain.units import Secret
from tidegate.testing import GatewayProcess, ThreadedUpstream

RULES = Path(__file__).parents[2] / "deploy" / "prometheus" / "tidegate.rules.yaml"
DEADLINE_S = 20.0
IN_A_ROW = 20
"""New connections go to any worker: of two, one is missed by so many once in a million times."""
TRACE = "0af7651916cd43dd8448eb211c80319c"

Result = TypeVar("Result")


def wait_for(condition: Callable[[], Result | None], what: str) -> Result:
    """Wait until `condition` gives something true, and give that."""
    until = time.monotonic() + DEADLINE_S
    while not (result := condition()):
        assert time.monotonic() < until, f"waited {DEADLINE_S:g} s for {what}"
        time.sleep(0.1)
    return result


class Prometheus:
    """One that scrapes a gateway every second."""

    def __init__(self, target: str, folder: Path) -> None:
        program = shutil.which("prometheus")
        if program is None:
            pytest.skip("prometheus is not installed; on Debian: apt-get install prometheus")
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.url = f"http://127.0.0.1:{free.getsockname()[1]}"
        scrape = {"job_name": "tidegate", "static_configs": [{"targets": [target]}]}
        (folder / "rules.yaml").write_text(re.sub(r"interval: \w+", "interval: 1s", RULES.read_text()))
        settings = {"global": {"scrape_interval": "1s"}, "rule_files": ["rules.yaml"], "scrape_configs": [scrape]}
        (folder / "prometheus.yml").write_text(json.dumps(settings))
        listen = self.url.removeprefix("http://")
        arguments = [f"--web.listen-address={listen}", "--config.file=prometheus.yml", "--storage.tsdb.path=tsdb"]
        self.log = folder / "log"
        with self.log.open("wb") as log:
            command = [program, *arguments, "--enable-feature=exemplar-storage", "--log.level=warn"]
            self.process = subprocess.Popen(command, cwd=folder, stdin=subprocess.DEVNULL, stdout=log, stderr=log)

    def get(self, path: str, **parameters: str) -> Any:
        """Give the `data` of an answer of its API; None while it gives none."""
        try:
            answer = httpx.get(f"{self.url}/api/v1/{path}", params=parameters, trust_env=False, timeout=5.0)
        except httpx.TransportError:
            assert self.process.poll() is None, self.log.read_text()
            return None
        return answer.json().get("data") if answer.status_code != HTTPStatus.SERVICE_UNAVAILABLE else None  # it is starting

    def value(self, expression: str) -> float | None:
        found = self.get("query", query=expression)
        return float(found["result"][0]["value"][1]) if found and found["result"] else None

    def traces(self, buckets: str, *, around: float) -> set[str]:
        """Give those that exemplars of a histogram name."""
        found = self.get("query_exemplars", query=buckets, start=f"{around - 60}", end=f"{around + 60}")
        return {exemplar["labels"]["trace_id"] for series in found or () for exemplar in series["exemplars"]}

    def scraped(self) -> dict[str, Any] | None:
        """Give its target, once it was scraped."""
        found = self.get("targets")
        target: dict[str, Any] | None = next(iter(found["activeTargets"] if found else ()), None)
        return target if target is not None and target["health"] != "unknown" else None


@pytest.fixture(scope="module")
def gateway() -> Iterator[GatewayProcess]:
    with ThreadedUpstream(models=("m",)) as upstream:
        settings = {**configuration(upstream, 2), "analytics": {"enabled": True}}
        with GatewayProcess(settings) as process:
            yield process


@pytest.fixture(scope="module")
def prometheus(gateway: GatewayProcess, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prometheus]:
    running = Prometheus(gateway.admin_url.removeprefix("http://"), tmp_path_factory.mktemp("prometheus"))
    yield running
    running.process.terminate()
    running.process.wait(DEADLINE_S)


@pytest.fixture(scope="module")
def key(gateway: GatewayProcess) -> Secret:
    made = gateway.create_key()
    for _ in range(IN_A_ROW):
        gateway.wait_for_key(made)
    return made


def chat(gateway: GatewayProcess, key: Secret, model: str, **headers: str) -> int:
    body = {"model": model, "stream": True, "messages": [{"role": "user", "content": "hello"}]}
    headers = {"authorization": f"Bearer {key.reveal()}", **headers}
    return httpx.post(f"{gateway.base_url}/chat/completions", json=body, headers=headers, trust_env=False, timeout=DEADLINE_S).status_code


def test_prometheus_takes_the_page_and_keeps_its_exemplars(gateway: GatewayProcess, prometheus: Prometheus, key: Secret) -> None:
    """No complaint about the page, and from a bucket of TTFT one gets to the trace of the request that is in it."""
    assert 200 == chat(gateway, key, "m", traceparent=f"00-{TRACE}-b7ad6b7169203331-01")
    target = wait_for(prometheus.scraped, "a scrape")
    assert ("up", "") == (target["health"], target["lastError"])
    now = wall_clock()
    for metric in ("tidegate_ttft_seconds", "tidegate_tpot_seconds", "tidegate_request_duration_seconds"):
        assert TRACE in wait_for(partial(prometheus.traces, f"{metric}_bucket", around=now), f"exemplars of {metric}")
    assert "level=error" not in prometheus.log.read_text()
    assert "level=warn" not in prometheus.log.read_text()


@pytest.mark.soak
def test_one_scrape_shows_every_process_of_the_node(prometheus: Prometheus) -> None:
    """Both workers, the ledger process with its figures, and the recorder process."""
    for condition in ('tidegate_workers{phase="ready"} == 2', "tidegate_ledger_up == 1", "tidegate_recorder_up == 1"):
        wait_for(partial(prometheus.value, condition), condition)
    assert prometheus.value("tidegate_ledger_counters") is not None
    assert prometheus.value("tidegate_recorder_backlog_bytes") is not None


def test_the_rules_are_evaluated(prometheus: Prometheus) -> None:
    """Prometheus has read them all, and none fails on what a node really says."""

    def health() -> dict[str, str]:
        return {rule["name"]: rule["health"] for group in (prometheus.get("rules") or {"groups": ()})["groups"] for rule in group["rules"]}

    wait_for(lambda: health() and "unknown" not in health().values(), "every rule to be evaluated")
    assert {"ok"} == set(health().values())


@pytest.mark.soak
def test_what_clients_invent_adds_no_series(gateway: GatewayProcess, key: Secret) -> None:
    """Models, features, colours and contexts that nobody has heard of: forty more of them add nothing to the first ten."""

    def invent(numbers: range) -> None:
        for number in numbers:
            word = f"invented-{number}"
            context = {"x-tidegate-feature": word, "x-tidegate-color": word, "x-business-context": f"feature={word}; user_tier={word}"}
            assert 404 == chat(gateway, key, word, **context)
            assert 200 == chat(gateway, key, "m", **context)

    def series() -> list[str]:
        names = {line.rpartition(" ")[0] for line in gateway.metrics().splitlines() if not line.startswith("#")}
        return sorted(name for name in names if not name.startswith("tidegate_estimate_error_ratio"))  # of some requests, drawn by lot

    invent(range(10))
    before = series()
    invent(range(10, 50))
    assert before == series()
    assert "invented" not in gateway.metrics()
