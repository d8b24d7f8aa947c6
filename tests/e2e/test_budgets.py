"""Budgets and books of a running gateway: what was spent is written down, and no restart makes it forgotten."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest
from tests.e2e.test_shared_limits import QUESTION, at_once, configuration, prepared

from tidegate.domain.principal import Limits
from tidegate.domain.units import Secret
from tidegate.testing import GatewayProcess, ThreadedUpstream

CALL_MICRO = 10_000
PRICES = {
    "version": "2026-11",
    "currency": "CNY",
    "models": [{"upstream": "there", "model": "m", "input": 0, "output": 0, "request": 0.01}],
}


@pytest.fixture(scope="module")
def upstream() -> Iterator[ThreadedUpstream]:
    with ThreadedUpstream(models=("m",)) as server:
        yield server


def with_budget(upstream: ThreadedUpstream, workers: int, amount: float) -> dict[str, object]:
    """Every call costs a hundredth; a month does not end during a test, or only once in its life."""
    budget = {"name": "tenant-month", "scope": {"tenant": "each"}, "amount": amount, "per": "month"}
    return {**configuration(upstream, workers), "prices": PRICES, "budgets": [budget]}


def asked(gateway: GatewayProcess, *arguments: str) -> dict[str, Any]:
    """Give what a command of the gateway's own answers in JSON."""
    command = [sys.executable, "-m", "tidegate.cli.main", *arguments, "--config", str(gateway.configuration_path), "--json"]
    ran = subprocess.run(command, capture_output=True, text=True, check=True, timeout=30.0)
    answer: dict[str, Any] = json.loads(ran.stdout)
    return answer


def kill_ledger(gateway: GatewayProcess) -> None:
    [ledger] = children_of(gateway, "tidegate.node.ledger")
    os.kill(ledger.pid, signal.SIGKILL)


def kill_workers(gateway: GatewayProcess) -> None:
    """Kill all of them, and wait until others are ready."""
    workers = children_of(gateway, "tidegate.node.worker")
    for worker in workers:
        os.kill(worker.pid, signal.SIGKILL)
    deadline = time.monotonic() + 15.0
    while httpx.get(f"{gateway.admin_url}/readyz").status_code != 200 or {*workers} & {*children_of(gateway, "tidegate.node.worker")}:
        assert time.monotonic() < deadline
        time.sleep(0.05)


def children_of(gateway: GatewayProcess, module: str) -> list[psutil.Process]:
    """Give the processes of a kind; one that ends at this moment is none."""
    found = []
    for each in psutil.Process(gateway.pid).children():
        with contextlib.suppress(psutil.NoSuchProcess, psutil.ZombieProcess):
            if module in each.cmdline():
                found.append(each)
    return found


def until_spent(gateway: GatewayProcess, calls: int) -> None:
    """Wait until the books have so many calls, and say that they add up."""
    deadline = time.monotonic() + 10.0
    while True:
        told = asked(gateway, "books", "verify")
        [account] = told["balances"]
        if account["spent_micro"] == calls * CALL_MICRO and account["holds_micro"] == 0:
            assert told["faults"] == []
            return
        assert time.monotonic() < deadline, told
        time.sleep(0.05)


@pytest.mark.parametrize("workers", [1, pytest.param(3, marks=pytest.mark.soak)])
def test_a_budget_is_not_overspent_by_two_hundred_calls_nor_by_a_restart(upstream: ThreadedUpstream, tmp_path: Path, workers: int) -> None:
    """Of 200 at once the ten that it is worth are answered; started again, the gateway knows that nothing is left."""
    gateway = GatewayProcess(with_budget(upstream, workers, 0.1), state_directory=tmp_path)
    with gateway:
        key = prepared(gateway, Limits())
        assert {200: 10, 429: 190} == at_once(gateway, key, 200)
        until_spent(gateway, 10)
    with gateway:
        assert {429: 20} == at_once(gateway, key, 20)


@pytest.mark.soak
def test_killed_processes_lose_and_double_nothing(upstream: ThreadedUpstream) -> None:
    """kill -9 of the process that keeps the books, in the middle of calls: every answer is settled once, and the budget goes on."""
    with GatewayProcess(with_budget(upstream, 2, 0.5)) as gateway:
        key = prepared(gateway, Limits())
        statuses = at_once(gateway, key, 20)
        kill_ledger(gateway)
        answered = statuses[200] + _until_answered(gateway, key)[200]
        until_spent(gateway, answered)
        deadline = time.monotonic() + 10.0
        while answered < 50:  # a piece that one worker had leased may come back after another asked for it
            assert time.monotonic() < deadline
            answered += at_once(gateway, key, 60)[200]
        assert 50 == answered, "what was spent before is not forgotten"
        assert {429: 20} == at_once(gateway, key, 20)
        until_spent(gateway, 50)


@pytest.mark.soak
def test_what_a_killed_worker_spent_is_not_forgotten_with_the_ledger_process(upstream: ThreadedUpstream) -> None:
    """kill -9 of all workers, and then of the process that had counted what they spent: the books know, and nobody spends it again."""
    with GatewayProcess(with_budget(upstream, 2, 0.3)) as gateway:
        key = prepared(gateway, Limits())
        assert {200: 20} == at_once(gateway, key, 20)
        until_spent(gateway, 20)
        kill_workers(gateway)
        answered = 20 + _until_answered(gateway, key)[200]
        kill_ledger(gateway)
        answered += _until_answered(gateway, key)[200]
        deadline = time.monotonic() + 10.0
        while answered < 30:  # a piece that one worker had leased may come back after another asked for it
            assert time.monotonic() < deadline, "what is left is not given out"
            answered += at_once(gateway, key, 60)[200]
        assert 30 == answered, "what was spent before is not forgotten"
        assert {429: 20} == at_once(gateway, key, 20)
        until_spent(gateway, 30)


@pytest.mark.soak
def test_a_budget_that_a_reload_adds_goes_on_from_what_the_books_say(upstream: ThreadedUpstream) -> None:
    """Five calls were made without one; of a budget worth eight, three are left."""
    free = {name: section for name, section in with_budget(upstream, 2, 1).items() if name != "budgets"}
    with GatewayProcess(free) as gateway:
        key = prepared(gateway, Limits())
        assert {200: 5} == at_once(gateway, key, 5)
        until_spent(gateway, 5)
        path = gateway.configuration_path
        path.write_text(json.dumps({**json.loads(path.read_text()), "budgets": with_budget(upstream, 2, 0.08)["budgets"]}))
        os.kill(gateway.pid, signal.SIGHUP)
        gateway.wait_for_metrics(lambda page: 'reloads_total{result="succeeded"} 1.0' in page, deadline_s=10.0)
        assert {200: 3, 429: 17} == at_once(gateway, key, 20)


@pytest.mark.soak
def test_a_load_test_that_nobody_pays_for_leaves_budget_and_books_alone(upstream: ThreadedUpstream) -> None:
    """Its colour and its tenant's grant let it off; a limit on requests ends it all the same, and a customer's colour changes nothing."""
    granted = {
        **with_budget(upstream, 1, 0.02),
        "unbilled": [{"color": "bench", "tenant": "load-test"}],
        "limits": {"rules": [{"name": "tester", "scope": {"tenant": "load-test", "model": "m"}, "of": "requests", "ceiling": 15}]},
    }
    with GatewayProcess(granted) as gateway:
        key = prepared(gateway, Limits())
        tester = gateway.create_key(name="tester", tenant="load-test")
        gateway.wait_for_key(tester)
        assert {200: 15, 429: 5} == Counter(_colored(gateway, tester) for _ in range(20))
        assert {200: 2, 429: 4} == Counter(_colored(gateway, key) for _ in range(6))
        until_spent(gateway, 2)
        command = ("usage", "--color", "bench", "--format")
        deadline = time.monotonic() + 10.0
        while (costs := _costs(gateway, *command)) != {"load-test": 15 * CALL_MICRO, "test": 2 * CALL_MICRO}:
            assert time.monotonic() < deadline, costs
            time.sleep(0.05)
        assert {"test": 2 * CALL_MICRO} == _costs(gateway, "usage", "--format")


def _colored(gateway: GatewayProcess, key: Secret) -> int:
    headers = {"authorization": f"Bearer {key.reveal()}", "x-tidegate-color": "bench"}
    return httpx.post(f"{gateway.base_url}/chat/completions", json=QUESTION, headers=headers).status_code


def _costs(gateway: GatewayProcess, *command: str) -> dict[str, int]:
    """Give what each tenant's usage comes to, by a report."""
    ran = subprocess.run(
        [sys.executable, "-m", "tidegate.cli.main", *command, "json", "--config", str(gateway.configuration_path)],
        capture_output=True, text=True, check=True, timeout=30.0,
    )  # fmt: skip
    return {row["tenant"]: row["cost_micro"] for row in json.loads(ran.stdout)["rows"]}


def _until_answered(gateway: GatewayProcess, key: Secret) -> Counter[int]:
    """Ask until the budget, which refuses while its keeper is away, is kept again."""
    total: Counter[int] = Counter()
    deadline = time.monotonic() + 15.0
    while not total[200]:
        assert time.monotonic() < deadline, total
        total += at_once(gateway, key, 4)
    return total
