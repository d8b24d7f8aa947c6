"""The failover drill of `python -m benchmarks.drill`, short and gentle enough for a busy machine; `make soak` runs the timed ones."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import psutil
import pytest
from benchmarks.drill import Mock, Plan, drill
from benchmarks.errors import BenchmarkError
from benchmarks.load.drill_client import play

from tidegate.testing import Endpoint, ThreadedUpstream

SHORT = Plan(rate_per_s=60.0, seconds=9.0, trouble_at_s=2.0, back_at_s=4.0)
EXTRA_CALLS_RATIO = 0.2
HARD_RECOVERY_S = 1.0
HANG_RECOVERY_S = 10.0


def test_a_killed_primary_costs_no_client_its_answer() -> None:
    """Every request is answered, by the standby once the primary is gone; only streams that had begun end, with an error event."""
    allowed = {"retry": {"budget_floor": 1000}}  # where a machine stood still, more than 20 % of the calls are under way at once
    verdict = drill("killed", Plan(rate_per_s=20.0, seconds=3.0, trouble_at_s=1.5, settings=allowed))
    assert 60 == verdict.requests
    assert 0 == verdict.errors_before_commit, verdict.said
    assert 0 == verdict.cut_streams, verdict.said
    assert 0 < verdict.from_standby


@pytest.mark.parametrize(
    ("number", "script", "end"),
    [
        (0, '{"fault":"reset@3","per_token_s":0.05}', "cut"),
        (0, "cut@3", "cut"),
        (0, "error_event@3", "broken"),
        (0, "reset_before_headers", "error"),
        (0, "ok", "ok"),
        (1, "cut", "error"),
        (1, "500", "error"),
        (1, "ok", "ok"),
    ],
)
def test_the_drills_client_tells_what_came_before_the_end(number: int, script: str, end: str) -> None:
    """A stream that was reset after its beginning is a cut one, not an error before the commit point; even numbers are streams."""

    async def main(endpoint: Endpoint) -> dict[str, Any]:
        port = int(endpoint.base_url.removesuffix("/v1").rpartition(":")[2])
        now = asyncio.get_running_loop().time()
        return await play({"port": port, "key": "k", "model": "m", "prompt": f"# [[mock:{script}]]"}, number, now, now)

    with ThreadedUpstream() as upstream:
        told = asyncio.run(main(upstream.endpoint))
    assert (end, number % 2 == 0, False) == (told["end"], told["stream"], told["degraded"])
    assert ("said" in told) is (end != "ok")


def test_a_mock_that_cannot_start_says_why_and_is_gone(tmp_path: Path) -> None:
    """The error repeats the mock's own words, and no process stays."""
    before = set(psutil.Process().children())
    with pytest.raises(BenchmarkError, match="falt"):
        Mock("broken", tmp_path, script={"default": {"falt": "x"}})
    assert set(psutil.Process().children()) <= before


@pytest.mark.soak
@pytest.mark.timeout(150)
@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("trouble", ["killed", "failing"])
def test_a_hard_failure_is_over_within_a_second(trouble: str, workers: int) -> None:
    """No error before the commit point, hardly a second call, and nobody waits."""
    verdict = drill(trouble, Plan(**vars(SHORT) | {"workers": workers}))
    assert 0 == verdict.errors_before_commit, verdict.said
    assert 0 == verdict.cut_streams, verdict.said
    assert HARD_RECOVERY_S >= verdict.recovery_s
    assert EXTRA_CALLS_RATIO >= verdict.extra_calls_ratio
    assert verdict.from_standby > 0.5 * verdict.requests


@pytest.mark.soak
@pytest.mark.timeout(150)
def test_a_frozen_primary_is_left_within_ten_seconds() -> None:
    """With the default clocks: its health checks find it, and what waits there moves. Over a drill of 40 s these are no more extra calls
    than the bound; over the seconds around the freeze they are more."""
    verdict = drill("frozen", Plan(rate_per_s=60.0, seconds=40.0))
    assert 0 == verdict.errors_before_commit, verdict.said
    assert 0 == verdict.cut_streams, verdict.said
    assert HANG_RECOVERY_S >= verdict.recovery_s
    assert EXTRA_CALLS_RATIO >= verdict.extra_calls_ratio
    assert verdict.from_standby > 0.4 * verdict.requests


@pytest.mark.soak
@pytest.mark.timeout(150)
def test_a_slow_primary_is_left_within_ten_seconds() -> None:
    """First tokens that are late count before they come; nothing fails and nothing is asked twice."""
    verdict = drill("slow", Plan(seconds=20.0))  # at the whole rate: two probes are less than one request in fifty
    assert 0 == verdict.errors_before_commit, verdict.said
    assert 0 == verdict.broken_streams
    assert 0 == verdict.cut_streams, verdict.said
    assert HANG_RECOVERY_S >= verdict.recovery_s
    assert 0.01 > verdict.extra_calls_ratio


@pytest.mark.soak
@pytest.mark.timeout(150)
@pytest.mark.parametrize(("trouble", "back_at_s"), [("killed_and_back", 5.0), ("failing_and_back", 5.0), ("frozen_and_back", 9.0)])
def test_a_primary_that_comes_back_gets_its_traffic_again(trouble: str, back_at_s: float) -> None:
    """Without an error on the way back: probes and health checks find out."""
    verdict = drill(trouble, Plan(rate_per_s=60.0, seconds=back_at_s + 13.0, trouble_at_s=2.0, back_at_s=back_at_s))
    assert 0 == verdict.errors_before_commit, verdict.said
    assert 0 == verdict.cut_streams, verdict.said
    assert verdict.back_s is not None
    assert HANG_RECOVERY_S >= verdict.back_s
