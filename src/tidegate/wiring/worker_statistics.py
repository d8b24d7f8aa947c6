"""What one worker reports of itself: the figures of its parts, joined, and of what earlier configurations used."""

from __future__ import annotations

import time

from tidegate.adapters.keys.watcher import KeyWatcher
from tidegate.adapters.metrics.estimate_errors import EstimateErrors
from tidegate.adapters.metrics.figures import figures
from tidegate.adapters.metrics.tally import RecordTally
from tidegate.adapters.records.audit import BodyRecorder
from tidegate.adapters.records.jsonl import JsonLinesRecorder, RecorderState
from tidegate.domain.statistics import UpstreamStatistics, WorkerStatistics
from tidegate.domain.units import UpstreamName
from tidegate.domain.upstream import ReplicaPhase, ReplicaStatus
from tidegate.flow.facts import Policies
from tidegate.gateway.gateway import Gateway
from tidegate.policy.metering.limiter import Limiter
from tidegate.policy.routing.fleet import Fleet
from tidegate.wiring.books import WorkerBooks
from tidegate.wiring.engine_client import EngineClient
from tidegate.wiring.health import Lookout
from tidegate.wiring.leases import WorkerLimits
from tidegate.wiring.limits import rule_counters
from tidegate.wiring.parts import LOCAL_REPLICA, class_levels, upstream_detail, upstream_figures
from tidegate.wiring.prepared import Prepared
from tidegate.wiring.records import audit_figures
from tidegate.wiring.reserve import forecast_figures
from tidegate.wiring.streams import stream_figures

_AUTHENTICATION_LEVELS = ("cached_keys", "cached_tokens", "cached_refusals")
_COUNTING_LEVELS = ("cache_entries",)
_POOL_LEVELS = ("open", "idle", "in_use", "connecting", "waiting")


class WorkerFigures:
    """Reads the parts that live as long as the worker, and what `statistics` is given of the configuration in use."""

    def __init__(
        self,
        *,
        tally: RecordTally,
        estimate_errors: EstimateErrors,
        recorder: JsonLinesRecorder,
        bodies: BodyRecorder,
        limits: Limiter,
        shared_limits: WorkerLimits,
        books: WorkerBooks | None,
        watcher: KeyWatcher,
        engine: EngineClient,
    ) -> None:
        self._tally = tally
        self._estimate_errors = estimate_errors
        self._recorder = recorder
        self._bodies = bodies
        self._limits = limits
        self._shared_limits = shared_limits
        self._books = books
        self._watcher = watcher
        self._engine = engine
        self._carried: dict[str, float] = {}
        """Counts of what earlier configurations used."""
        self._carried_by_upstream: dict[UpstreamName, dict[str, float]] = {}

    def statistics(self, gateway: Gateway, active: Prepared, lookout: Lookout) -> WorkerStatistics:
        """Report the worker as it is with the configuration in use."""
        now = time.monotonic()
        running, limits, recorder = gateway.statistics(), self._limits.statistics(now=now), self._recorder.statistics()
        policies = gateway.services.policies
        watcher = self._watcher.statistics()
        stream_levels, stream_counters = stream_figures(running.streams)
        forecast_levels, forecast_counters = forecast_figures(policies.forecast)
        levels = {
            **stream_levels,
            **forecast_levels,
            **class_levels(policies.classes, now=now),
            "gateway.requests_running": running.running,
            "gateway.tasks": running.tasks,
            "limits.counters": limits.counters,
            "limits.permits_outstanding": limits.outstanding,
            "limits.tokens_held": limits.held_tokens,
            "records.queued": recorder.queued,
            "records.spill_bytes": recorder.spill_bytes,
            "records.spilling": float(recorder.state is not RecorderState.WRITING),
            "keys.unreadable": float(watcher.trouble is not None),
        }
        counters: dict[str, float] = {
            **stream_counters,
            **forecast_counters,
            **rule_counters(limits.rules),
            "limits.shared": float(limits.shared),
            "records.written": recorder.written,
            "records.dropped": recorder.dropped,
            "records.log_lines_dropped": recorder.log_lines_dropped,
        }
        counters |= _service_counters(active)
        for name, carried in self._carried.items():
            counters[name] = counters.get(name, 0.0) + carried
        levels |= lookout.levels()
        counters |= lookout.counters()
        for part_levels, part_counters in (audit_figures(self._bodies), (self._shared_limits.levels(), self._shared_limits.counters())):
            levels |= part_levels
            counters |= part_counters
        if self._books is not None:
            levels |= self._books.levels()
            counters |= self._books.counters()
        upstreams = self._upstream_statistics(policies.fleet, active, lookout, now)
        errors = self._estimate_errors.statistics()
        return WorkerStatistics(gateway.readiness().ready, self._tally.statistics(), levels, counters, upstreams, errors)

    def carry(self, retired: Prepared, after: Policies) -> None:
        """Keep what a configuration counted that is no longer in use: counters must not fall at a reload."""
        _add(self._carried, _service_counters(retired))
        for replica, pool in retired.pools.items():
            upstream = retired.services.policies.fleet.replicas[replica].upstream
            _add(self._carried_by_upstream.setdefault(upstream, {}), figures("", pool.statistics(), levels=_POOL_LEVELS)[1])
        now = time.monotonic()
        before = retired.services.policies
        if before.forecast is not after.forecast:
            _add(self._carried, forecast_figures(before.forecast)[1])
        kept = {name: counters["trips"] for name, _, _, counters in _fleet_figures(after.fleet, now)}
        for name, _, _, counters in _fleet_figures(before.fleet, now):  # replicas that went, or are elsewhere now, took theirs with them
            _add(self._carried_by_upstream.setdefault(name, {}), {"trips": max(0.0, counters["trips"] - kept.get(name, 0.0))})

    def _upstream_statistics(self, fleet: Fleet, active: Prepared, lookout: Lookout, now: float) -> tuple[UpstreamStatistics, ...]:
        upstreams = []
        for name, statuses, levels, counters in _fleet_figures(fleet, now):
            for status in statuses:
                pool = self._engine.pool if status.replica == LOCAL_REPLICA else active.pools.get(status.replica)
                if pool is not None:
                    pool_levels, pool_counters = figures("", pool.statistics(), levels=_POOL_LEVELS)
                    _add(levels, pool_levels)
                    _add(counters, pool_counters)
            _add(counters, self._carried_by_upstream.get(name, {}))
            _add(counters, lookout.upstream_counters(name))
            ready = any(status.phase in (ReplicaPhase.READY, ReplicaPhase.UNUSED) for status in statuses)
            upstreams.append(UpstreamStatistics(name, ready, upstream_detail(statuses), levels, counters, tuple(statuses)))
        return tuple(upstreams)


def _fleet_figures(fleet: Fleet, now: float) -> list[tuple[UpstreamName, list[ReplicaStatus], dict[str, float], dict[str, float]]]:
    """Give each upstream with its replicas, levels and counters."""
    statuses = fleet.statistics(now=now)
    upstreams = []
    for pool in fleet.pool_statistics(now=now):
        replicas = [status for status in statuses if status.upstream == pool.upstream]
        upstreams.append((pool.upstream, replicas, *upstream_figures(replicas, pool)))
    return upstreams


def _service_counters(prepared: Prepared) -> dict[str, float]:
    authentication = figures("authentication", prepared.authenticator.statistics(), levels=_AUTHENTICATION_LEVELS)[1]
    authentication["retries.refused"] = float(prepared.services.policies.budget.refused)
    return authentication | figures("counting", prepared.counter.statistics(), levels=_COUNTING_LEVELS)[1]


def _add(totals: dict[str, float], amounts: dict[str, float]) -> None:
    for name, amount in amounts.items():
        totals[name] = totals.get(name, 0.0) + amount
