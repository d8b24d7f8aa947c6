"""Every metric of the node, declared once: name, labels, meaning, and where its value comes from.

`/metrics`, `docs/reference/metrics.md` and the test of that page all read `METRICS`. Labels are bounded: routes and upstreams come from
the configuration, everything else from enums of ours. Names carry their unit; counters never fall while the node runs, even when a worker
is replaced.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from enum import StrEnum

import msgspec
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from tidegate.admin.view import NodeSnapshot
from tidegate.domain.statistics import Histogram, RouteHistograms


class Kind(StrEnum):
    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


Labels = tuple[str, ...]
Sample = tuple[Labels, float | Histogram]
Samples = Callable[[NodeSnapshot], Iterable[Sample]]


class MetricSpec(msgspec.Struct, frozen=True):
    """One metric. `samples` reads it out of a snapshot."""

    name: str
    kind: Kind
    labels: Labels
    meaning: str
    samples: Samples


def _level(name: str, key: str, meaning: str, *labels: tuple[str, str]) -> MetricSpec:
    """Declare a gauge over a flat level; a part that reports nothing has no sample. `labels` are fixed ones."""

    def samples(node: NodeSnapshot) -> Iterator[Sample]:
        value = node.statistics.levels.get(key)
        if value is not None:
            yield tuple(value for _, value in labels), value

    return MetricSpec(name, Kind.GAUGE, tuple(label for label, _ in labels), meaning, samples)


def _counter(name: str, key: str, meaning: str) -> MetricSpec:
    def samples(node: NodeSnapshot) -> Iterator[Sample]:
        value = node.statistics.counters.get(key)
        if value is not None:
            yield (), value

    return MetricSpec(name, Kind.COUNTER, (), meaning, samples)


_LIMIT_MODES = {"denied": "enforce", "would_deny": "shadow"}


def _several(name: str, kind: Kind, label: str, keys: dict[str, str], meaning: str) -> MetricSpec:
    """Declare one metric over several flat figures, told apart by a label; `keys` maps label value to key."""

    def samples(node: NodeSnapshot) -> Iterator[Sample]:
        figures = node.statistics.counters if kind is Kind.COUNTER else node.statistics.levels
        for value, key in keys.items():
            if key in figures:
                yield (value,), figures[key]

    return MetricSpec(name, kind, (label,), meaning, samples)


def _of_upstream(name: str, kind: Kind, key: str, meaning: str) -> MetricSpec:
    """Declare one figure of each upstream; one that reports nothing has no sample."""

    def samples(node: NodeSnapshot) -> Iterator[Sample]:
        for upstream in node.statistics.upstreams:
            figures = upstream.counters if kind is Kind.COUNTER else upstream.levels
            if key in figures:
                yield (upstream.name,), figures[key]

    return MetricSpec(name, kind, ("upstream",), meaning, samples)


def _several_of_upstream(name: str, kind: Kind, label: str, keys: dict[str, str], meaning: str) -> MetricSpec:
    """Declare one metric over several figures of each upstream, as `_several` does."""

    def samples(node: NodeSnapshot) -> Iterator[Sample]:
        for upstream in node.statistics.upstreams:
            figures = upstream.counters if kind is Kind.COUNTER else upstream.levels
            for value, key in keys.items():
                if key in figures:
                    yield (upstream.name, value), figures[key]

    return MetricSpec(name, kind, ("upstream", label), meaning, samples)


def _by_route(name: str, choose: Callable[[RouteHistograms], Histogram], meaning: str) -> MetricSpec:
    def samples(node: NodeSnapshot) -> Iterator[Sample]:
        for histograms in node.statistics.requests.histograms:
            yield (histograms.route,), choose(histograms)

    return MetricSpec(name, Kind.HISTOGRAM, ("route",), meaning, samples)


def _limit_refusals(node: NodeSnapshot) -> Iterator[Sample]:
    for key, count in node.statistics.counters.items():
        part, _, rest = key.partition(".")
        told, _, rule = rest.partition(".")
        if part == "limits" and told in _LIMIT_MODES:
            yield (rule, _LIMIT_MODES[told]), count


def _requests(node: NodeSnapshot) -> Iterator[Sample]:
    for tally in node.statistics.requests.requests:
        yield (tally.operation, tally.route, tally.upstream, tally.outcome), float(tally.count)


def _tokens(node: NodeSnapshot) -> Iterator[Sample]:
    for tally in node.statistics.requests.tokens:
        yield (tally.route, tally.token_class, tally.evidence), float(tally.tokens)


def _estimate_errors(node: NodeSnapshot) -> Iterator[Sample]:
    for one in node.statistics.estimate_errors:
        yield (one.route, one.model, one.figure), one.errors


def _cost(node: NodeSnapshot) -> Iterator[Sample]:
    for tally in node.statistics.requests.costs:
        yield (tally.route,), float(tally.cost_micro)


def _upstream_ready(node: NodeSnapshot) -> Iterator[Sample]:
    for upstream in node.statistics.upstreams:
        yield (upstream.name,), float(upstream.ready)


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


def _engine_restarts(node: NodeSnapshot) -> Iterator[Sample]:
    if node.engine is not None:
        yield (), float(node.engine.restarts)


_SERVER_REFUSALS = {
    "too_many_connections": "server.rejected_connections",
    "malformed_http": "server.malformed",
    "body": "server.refused_bodies",
    "too_slow": "server.timed_out",
}
_POOL_STATES = {"open": "connections_open", "idle": "connections_idle", "connecting": "connections_connecting"}
_BREAKER_STATES = {"open": "breaker_open", "half_open": "breaker_half_open", "soft_open": "breaker_soft_open"}
_POOL_EVENTS = {
    "opened": "connects",
    "open_failed": "connect_failures",
    "reused": "reused",
    "retried_unused": "retried_unused",
    "refused_pool_full": "refused_full",
    "expired_idle": "expired",
    "lost_idle": "lost_idle",
}

METRICS: tuple[MetricSpec, ...] = (
    MetricSpec(
        "tidegate_requests_total",
        Kind.COUNTER,
        ("operation", "route", "upstream", "outcome"),
        "Finished requests. `route` is the configured pattern that matched (`none`: none did), `outcome` is one of the outcome classes.",
        _requests,
    ),
    MetricSpec(
        "tidegate_tokens_total",
        Kind.COUNTER,
        ("route", "class", "evidence"),
        "Tokens of finished requests. `class` is `prompt`, `completion` or `cached` (a part of `prompt`); `evidence`: who counted.",
        _tokens,
    ),
    MetricSpec(
        "tidegate_cost_micro_total",
        Kind.COUNTER,
        ("route",),
        "What finished requests cost, in millionths of the price book's currency; 0 where nothing has a price.",
        _cost,
    ),
    _by_route(
        "tidegate_prompt_tokens", lambda route: route.prompt_tokens, "Tokens of a request's prompt, of requests that reached a model."
    ),
    _by_route(
        "tidegate_output_input_ratio",
        lambda route: route.output_ratio,
        "Completion tokens of an answer for each token of its prompt, as the upstream reported them: 0.2 to 0.8 is healthy for most uses.",
    ),
    _by_route("tidegate_request_duration_seconds", lambda route: route.duration, "From a request's head to the end of its response."),
    _by_route(
        "tidegate_ttft_seconds",
        lambda route: route.ttft,
        "From a request's head to its first non-empty output seen by the gateway; streams only.",
    ),
    _by_route(
        "tidegate_gateway_overhead_seconds",
        lambda route: route.overhead,
        "Duration less the time an upstream call ran: the gateway's own time, and the client's while it sends its body.",
    ),
    MetricSpec(
        "tidegate_estimate_error_ratio",
        Kind.HISTOGRAM,
        ("route", "model", "figure"),
        "Of sampled chat requests: how far our figure for the prompt was from the tokens that the upstream reported, as a share of those. "
        "`figure` is `count` (the tokenizer's) or `estimate` (with the coefficient learned so far).",
        _estimate_errors,
    ),
    _level("tidegate_open_connections", "server.connections", "Open client connections."),
    _level("tidegate_running_requests", "gateway.requests_running", "Requests whose response is not complete."),
    _level("tidegate_resumable_streams", "streams.resumable", "Streams that a client could come back for, finished ones included."),
    _level("tidegate_resume_buffer_bytes", "streams.resume_buffer_bytes", "Bytes of streams kept for clients that come back."),
    _several(
        "tidegate_stream_resumptions_total",
        Kind.COUNTER,
        "result",
        {"resumed": "streams.resumed", "missed": "streams.resume_missed"},
        "Clients that came back for a stream, and whether they got the rest.",
    ),
    _counter("tidegate_stream_heartbeats_total", "streams.heartbeats", "Heartbeats sent into silent streams."),
    _level("tidegate_request_buffer_bytes", "server.buffered_bytes", "Request bytes held in memory."),
    _counter("tidegate_connections_total", "server.accepted_connections", "Client connections accepted."),
    _counter("tidegate_http_requests_total", "server.requests", "Request heads read, health checks included."),
    _several("tidegate_http_refused_total", Kind.COUNTER, "reason", _SERVER_REFUSALS, "What the HTTP server itself refused."),
    _counter("tidegate_clients_left_total", "server.clients_left", "Requests whose client went before the response was complete."),
    _counter("tidegate_slow_readers_total", "server.slow_readers", "Connections dropped because the client stopped reading."),
    MetricSpec(
        "tidegate_upstream_ready", Kind.GAUGE, ("upstream",), "1 when at least one worker can use the upstream, else 0.", _upstream_ready
    ),
    _several_of_upstream(
        "tidegate_upstream_connections", Kind.GAUGE, "state", _POOL_STATES, "Connections to the upstream; `open` includes the idle ones."
    ),
    _several_of_upstream(
        "tidegate_upstream_calls",
        Kind.GAUGE,
        "state",
        {"running": "in_flight", "waiting": "calls_waiting"},
        "Calls running, or waiting for a connection.",
    ),
    _several_of_upstream(
        "tidegate_upstream_connection_events_total", Kind.COUNTER, "event", _POOL_EVENTS, "What happened to connections of the pool."
    ),
    _of_upstream("tidegate_upstream_replicas", Kind.GAUGE, "replicas", "Addresses of the upstream, counted by each worker."),
    _of_upstream(
        "tidegate_upstream_replicas_available", Kind.GAUGE, "replicas_available", "Those that a worker would choose at this instant."
    ),
    _several_of_upstream(
        "tidegate_breaker_state", Kind.GAUGE, "state", _BREAKER_STATES, "Breakers of replicas that are not closed, counted by each worker."
    ),
    _of_upstream(
        "tidegate_breaker_trips_total", Kind.COUNTER, "trips", "Times a breaker of the upstream or of one of its replicas opened."
    ),
    _several_of_upstream(
        "tidegate_health_changes_total",
        Kind.COUNTER,
        "change",
        {"went_down": "health_went_down", "came_back": "health_came_back"},
        "Replicas that health checks, or other nodes, found dead or alive again, counted by each worker.",
    ),
    _level("tidegate_diverted_classes", "classes.diverted", "Kinds of prompts that workers send to their route's fallback."),
    _level("tidegate_shared_connected", "shared.connected", "Workers that are connected to the store shared with other nodes."),
    _several(
        "tidegate_shared_messages_total",
        Kind.COUNTER,
        "direction",
        {"sent": "shared.sent", "received": "shared.received"},
        "Changes of replicas told to other nodes, and heard from them.",
    ),
    _counter("tidegate_shared_lost_total", "shared.lost", "Times a worker lost the store shared with other nodes."),
    _level("tidegate_limit_counters", "limits.counters", "Counters of limits that have something in use or were asked for lately."),
    _counter("tidegate_limit_shared_total", "limits.shared", "Times a name had to share a counter, because its rule had too many."),
    MetricSpec(
        "tidegate_limit_refusals_total",
        Kind.COUNTER,
        ("rule", "mode"),
        "Requests that a limit refused (`mode` is `enforce`) or, in shadow mode, would have refused (`shadow`).",
        _limit_refusals,
    ),
    _level("tidegate_limit_lease_units", "limits.lease_units", "Units of all shared limits that workers may use without asking."),
    _level("tidegate_limit_store_away", "limits.store_away", "Workers that cannot reach the store of limits: `on_store_down` decides."),
    _level("tidegate_limit_store_settling", "limits.store_settling", "Workers whose store came up empty a moment ago."),
    _counter("tidegate_limit_exchanges_total", "limits.exchanges", "Exchanges of leases with the store of the limits."),
    _counter("tidegate_limit_exchange_failures_total", "limits.exchange_failures", "Exchanges of leases that failed."),
    _level("tidegate_permits", "limits.permits_outstanding", "Requests admitted and not yet settled."),
    _level("tidegate_reservation_tokens", "limits.tokens_held", "Tokens reserved for running requests.", ("state", "held")),
    _several(
        "tidegate_forecasts_total",
        Kind.COUNTER,
        "result",
        {"kept": "reserve.kept", "exceeded": "reserve.exceeded"},
        "Answers whose length was forecast from those before them, and whether they stayed within it (see `reserve.quantile`).",
    ),
    _level("tidegate_forecast_groups", "reserve.groups", "Kinds of requests whose lengths are remembered, added up over the workers."),
    _several(
        "tidegate_authentication_cache_total",
        Kind.COUNTER,
        "result",
        {"hit": "authentication.hits", "miss": "authentication.misses"},
        "Credentials answered from memory, or verified.",
    ),
    _counter("tidegate_authentication_refused_total", "authentication.refused", "Credentials refused."),
    _level(
        "tidegate_keys_unreadable", "keys.unreadable", "Workers that cannot read the key database; the keys known until then stay in force."
    ),
    _counter("tidegate_retries_refused_total", "retries.refused", "Extra attempts that the retry budget did not grant."),
    _counter("tidegate_prompt_counts_total", "counting.counts", "Prompts counted with a tokenizer."),
    _counter("tidegate_prompt_count_fallbacks_total", "counting.fallbacks", "Prompts whose count became an estimate."),
    _level("tidegate_records_queued", "records.queued", "Records waiting to be written."),
    _level(
        "tidegate_records_spilling", "records.spilling", "Workers whose record directory cannot be written: records are in the spill file."
    ),
    _level("tidegate_records_spill_bytes", "records.spill_bytes", "Bytes of records waiting in spill files."),
    _counter("tidegate_records_written_total", "records.written", "Records written."),
    _counter(
        "tidegate_records_dropped_total", "records.dropped", "Records lost because neither file could be written and the queue was full."
    ),
    _counter(
        "tidegate_log_lines_dropped_total",
        "records.log_lines_dropped",
        "Request log lines that the reader of standard error did not take.",
    ),
    _level("tidegate_books_alone", "books.alone", "Workers that cannot reach the ledger process: their entries wait in files."),
    _level(
        "tidegate_books_unacknowledged_bytes", "books.unacknowledged_bytes", "Entries sent or in files that the books have not committed."
    ),
    _counter("tidegate_books_entries_total", "books.posted", "Holds, settlements and releases that workers entered."),
    _counter("tidegate_books_refused_total", "books.refused", "Entries that the books do not take: faults, told in the log."),
    _counter("tidegate_books_lost_total", "books.lost", "Entries for which nothing had room: money that nobody charges."),
    MetricSpec("tidegate_workers", Kind.GAUGE, ("phase",), "Worker processes by phase.", _workers),
    MetricSpec(
        "tidegate_worker_restarts_total",
        Kind.COUNTER,
        (),
        "Workers that died and were started again.",
        lambda node: [((), float(sum(worker.restarts for worker in node.workers)))],
    ),
    _counter(
        "tidegate_requests_lost_total",
        "workers.requests_lost",
        "Requests that ran in a worker when it died, by its last report (up to 2 s old): cut, and without a record.",
    ),
    MetricSpec("tidegate_engine_phase", Kind.GAUGE, ("phase",), "1 for the phase the local engine is in.", _engine_phase),
    MetricSpec(
        "tidegate_engine_ttft_seconds", Kind.GAUGE, ("temperature",), "TTFT of the local engine's two warm-up requests.", _engine_ttft
    ),
    MetricSpec("tidegate_engine_restarts_total", Kind.COUNTER, (), "Times the local engine was started again.", _engine_restarts),
    MetricSpec(
        "tidegate_counting_process_up",
        Kind.GAUGE,
        (),
        "1 while the counting process runs; without it counts are estimates.",
        lambda node: [((), float(node.counting.running))],
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


class NodeCollector(Collector):
    """Gives the metrics of one snapshot to prometheus_client."""

    def __init__(self, node: NodeSnapshot) -> None:
        self._node = node

    def collect(self) -> Iterator[Metric]:
        for spec in METRICS:
            yield _family(spec, self._node)


def _family(spec: MetricSpec, node: NodeSnapshot) -> Metric:
    match spec.kind:
        case Kind.COUNTER:
            counter = CounterMetricFamily(spec.name, spec.meaning, labels=spec.labels)
            for labels, value in spec.samples(node):
                counter.add_metric(labels, _number(value))
            return counter
        case Kind.GAUGE:
            gauge = GaugeMetricFamily(spec.name, spec.meaning, labels=spec.labels)
            for labels, value in spec.samples(node):
                gauge.add_metric(labels, _number(value))
            return gauge
        case Kind.HISTOGRAM:
            histogram = HistogramMetricFamily(spec.name, spec.meaning, labels=spec.labels)
            for labels, value in spec.samples(node):
                if isinstance(value, Histogram):
                    histogram.add_metric(labels, _cumulative(value), value.total)
            return histogram


def _number(value: float | Histogram) -> float:
    assert not isinstance(value, Histogram), "only a histogram metric has histogram samples"
    return value


def _cumulative(histogram: Histogram) -> list[tuple[str, float]]:
    """Prometheus counts in each bucket everything up to its bound."""
    buckets: list[tuple[str, float]] = []
    sum_so_far = 0
    for bound, count in zip((*histogram.bounds, float("inf")), histogram.counts, strict=True):
        sum_so_far += count
        buckets.append(("+Inf" if bound == float("inf") else repr(bound), float(sum_so_far)))
    return buckets
