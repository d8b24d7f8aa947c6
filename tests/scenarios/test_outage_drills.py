"""Outage drills in simulated time: no client sees an error that a healthy standby could have spared it."""

from __future__ import annotations

import time

import msgspec
import pytest
from tests.scenarios.live_driver import LiveRun
from tests.scenarios.test_scenarios import comparable

from tidegate.domain.units import ReplicaId
from tidegate.simulator.driver import Simulation
from tidegate.simulator.outages import Drill, DrillReport, Fault, Outage, random_outages, run_drill

PRIMARY = ReplicaId("main/0")
HARD = {Fault.KILLED, Fault.ERRORS}


def _check(report: DrillReport) -> None:
    """The issue's bar, for a drill with a healthy standby and health checks."""
    assert report.failed == 0
    assert report.extra_ratio <= 0.2
    for each in report.outages:
        if each.outage.fault in HARD:
            assert each.recovered_after_s < 1.0, each
        if each.outage.fault is Fault.HUNG:
            assert each.recovered_after_s < 10.0, each


def test_an_hour_of_outages_shows_no_client_an_error() -> None:
    """Whatever the primary does, the standby answers; what had begun may break off, and nothing else."""
    outages = random_outages(PRIMARY, duration_s=3600.0, seed=7)
    report = run_drill(Drill(outages, 3600.0))
    assert {outage.fault for outage in outages} == set(Fault)
    assert report.requests == 7200
    _check(report)


def test_a_busy_minute_of_each_fault_shows_no_client_an_error() -> None:
    """A hundred requests a second, and all that wait on a hung server move at once: the retry budget does not stand in their way."""
    faults = (Fault.KILLED, Fault.HUNG, Fault.ERRORS, Fault.SLOW)
    outages = tuple(Outage(PRIMARY, fault, 10.0 + 60.0 * number, 40.0 + 60.0 * number) for number, fault in enumerate(faults))
    report = run_drill(Drill(outages, 240.0, requests_per_s=100.0))
    _check(report)
    assert max(each.late for each in report.outages) > 100, "the drill bites"


def test_a_pool_survives_the_loss_of_a_replica_without_its_standby() -> None:
    """The other replica of the pool takes over."""
    outages = (Outage(PRIMARY, Fault.KILLED, 30.0, 60.0), Outage(PRIMARY, Fault.ERRORS, 90.0, 120.0))
    report = run_drill(Drill(outages, 150.0, requests_per_s=10.0, primaries=2))
    _check(report)


def test_an_outage_of_everything_is_an_error_and_ends() -> None:
    """A drill that could not fail would prove nothing: with the standby down too, clients see it, and not for long after."""
    outages = (Outage(PRIMARY, Fault.KILLED, 30.0, 60.0), Outage(ReplicaId("standby/0"), Fault.KILLED, 40.0, 50.0))
    report = run_drill(Drill(outages, 120.0))
    assert report.failed > 0
    assert 9.0 <= report.outages[1].recovered_after_s < 13.0
    assert report.failed - report.outages[1].failed <= 6, "a breaker's pause may last a little longer than the outage"


def test_without_requests_there_is_nothing_to_report() -> None:
    """An empty drill divides by nothing."""
    report = run_drill(Drill((), 0.0))
    assert (0, 0.0) == (report.requests, report.extra_ratio)


@pytest.mark.parametrize("seed", [1, 2])
def test_a_drill_decides_the_same_on_both_drivers(seed: int) -> None:
    """The live driver in virtual time makes the decisions that the simulator made, request by request, through every fault."""
    outages = tuple(
        Outage(PRIMARY, fault, 20.0 + 40.0 * number, 35.0 + 40.0 * number) for number, fault in enumerate(sorted(Fault, reverse=seed == 2))
    )
    drill = Drill(outages, 230.0, requests_per_s=1.7, seed=seed)
    simulated = Simulation(drill.scenario()).run()
    lived = LiveRun(drill.scenario()).run()
    assert comparable(simulated) == comparable(lived)
    assert sum(len(entries) for entries in comparable(simulated).values()) > 2000


def test_a_drill_is_repeatable() -> None:
    """Same seed, same day."""
    drill = Drill(random_outages(PRIMARY, duration_s=1200.0, seed=1), 1200.0)
    assert msgspec.json.encode(run_drill(drill)) == msgspec.json.encode(run_drill(drill))


@pytest.mark.soak
def test_a_day_of_outages_shows_no_client_an_error() -> None:
    """24 hours, a hundred outages, in seconds."""
    began = time.monotonic()
    report = run_drill(Drill(random_outages(PRIMARY, duration_s=86_400.0, seed=3), 86_400.0))
    _check(report)
    assert report.requests == 172_800
    assert len(report.outages) > 80
    assert time.monotonic() - began < 50.0
