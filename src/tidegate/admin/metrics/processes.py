"""Metrics of the node's processes: workers, local engine, counting and ledger process, and the node itself."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from tidegate.admin.metrics.spec import Kind, MetricSpec, Sample, counter, of_part
from tidegate.admin.view import EngineSnapshot, LedgerSnapshot, NodeSnapshot


def _workers(node: NodeSnapshot) -> Iterator[Sample]:
    phases = [worker.phase for worker in node.workers]
    for phase in ("starting", "ready", "waiting", "draining", "ended"):
        yield (phase,), float(phases.count(phase))


def _engine_phase(node: NodeSnapshot) -> Iterator[Sample]:
    if node.engine is not None:
        for phase in ("starting", "warming", "ready", "failed", "stopped"):
            yield (phase,), float(node.engine.phase == phase)


def _engine_ttft(node: NodeSnapshot) -> Iterator[Sample]:
    if node.engine is not None:
        for temperature, value in (("cold", node.engine.cold_ttft_s), ("warm", node.engine.warm_ttft_s)):
            if value is not None:
                yield (temperature,), value


def _engine(node: NodeSnapshot) -> EngineSnapshot | None:
    return node.engine


def _ledger(node: NodeSnapshot) -> LedgerSnapshot | None:
    return node.ledger


PROCESSES: Final[tuple[MetricSpec, ...]] = (
    MetricSpec("tidegate_workers", Kind.GAUGE, ("phase",), "Worker processes by phase.", _workers),
    MetricSpec(
        "tidegate_worker_restarts_total",
        Kind.COUNTER,
        (),
        "Workers that died and were started again.",
        lambda node: [((), float(sum(worker.restarts for worker in node.workers)))],
    ),
    counter(
        "tidegate_requests_lost_total",
        "workers.requests_lost",
        "Requests that ran in a worker when it died, by its last report (up to 2 s old): cut, and without a record.",
    ),
    MetricSpec("tidegate_engine_phase", Kind.GAUGE, ("phase",), "1 for the phase the local engine is in.", _engine_phase),
    MetricSpec(
        "tidegate_engine_ttft_seconds", Kind.GAUGE, ("temperature",), "TTFT of the local engine's two warm-up requests.", _engine_ttft
    ),
    of_part(
        "tidegate_engine_restarts_total", Kind.COUNTER, _engine, lambda engine: engine.restarts, "Times the local engine was started again."
    ),
    MetricSpec(
        "tidegate_counting_process_up",
        Kind.GAUGE,
        (),
        "1 while the counting process runs; without it counts are estimates.",
        lambda node: [((), float(node.counting.running))],
    ),
    of_part("tidegate_ledger_up", Kind.GAUGE, _ledger, lambda ledger: ledger.responsive, "1 while the ledger process answers."),
    of_part(
        "tidegate_ledger_restarts_total",
        Kind.COUNTER,
        _ledger,
        lambda ledger: ledger.restarts,
        "Times the ledger process was started again.",
    ),
    of_part("tidegate_ledger_counters", Kind.GAUGE, _ledger, lambda ledger: ledger.counters, "Counters of limits in the ledger process."),
    of_part(
        "tidegate_ledger_lease_units",
        Kind.GAUGE,
        _ledger,
        lambda ledger: ledger.leased_units,
        "Units of all limits that it has leased to workers.",
    ),
    of_part(
        "tidegate_ledger_expired_units_total",
        Kind.COUNTER,
        _ledger,
        lambda ledger: ledger.expired_units,
        "Units of leases that died, because their worker was not heard of.",
    ),
    MetricSpec(
        "tidegate_configuration_reloads_total",
        Kind.COUNTER,
        ("result",),
        "Reloads of the configuration.",
        lambda node: [(("succeeded",), float(node.reloads.succeeded)), (("refused",), float(node.reloads.refused))],
    ),
    MetricSpec(
        "tidegate_start_time_seconds",
        Kind.GAUGE,
        (),
        "When the node started, seconds since the epoch.",
        lambda node: [((), node.started_at)],
    ),
    MetricSpec(
        "tidegate_build_info", Kind.GAUGE, ("version",), "Always 1; the label is the version.", lambda node: [((node.version,), 1.0)]
    ),
)
