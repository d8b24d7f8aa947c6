"""Metrics of upstreams: connections, replicas, breakers, and what nodes tell each other of them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from tidegate.admin.metrics.spec import Kind, MetricSpec, Sample, counter, level, of_upstream, several, several_of_upstream
from tidegate.admin.view import NodeSnapshot


def _upstream_ready(node: NodeSnapshot) -> Iterator[Sample]:
    for upstream in node.statistics.upstreams:
        yield (upstream.name,), float(upstream.ready)


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

UPSTREAMS: Final[tuple[MetricSpec, ...]] = (
    MetricSpec(
        "tidegate_upstream_ready", Kind.GAUGE, ("upstream",), "1 when at least one worker can use the upstream, else 0.", _upstream_ready
    ),
    several_of_upstream(
        "tidegate_upstream_connections", Kind.GAUGE, "state", _POOL_STATES, "Connections to the upstream; `open` includes the idle ones."
    ),
    several_of_upstream(
        "tidegate_upstream_calls",
        Kind.GAUGE,
        "state",
        {"running": "in_flight", "waiting": "calls_waiting"},
        "Calls running, or waiting for a connection.",
    ),
    several_of_upstream(
        "tidegate_upstream_connection_events_total", Kind.COUNTER, "event", _POOL_EVENTS, "What happened to connections of the pool."
    ),
    of_upstream("tidegate_upstream_replicas", Kind.GAUGE, "replicas", "Addresses of the upstream, counted by each worker."),
    of_upstream(
        "tidegate_upstream_replicas_available", Kind.GAUGE, "replicas_available", "Those that a worker would choose at this instant."
    ),
    of_upstream("tidegate_upstream_replicas_drained", Kind.GAUGE, "replicas_drained", "Those that an operator has taken out of service."),
    several_of_upstream(
        "tidegate_breaker_state", Kind.GAUGE, "state", _BREAKER_STATES, "Breakers of replicas that are not closed, counted by each worker."
    ),
    of_upstream("tidegate_breaker_trips_total", Kind.COUNTER, "trips", "Times a breaker of the upstream or of one of its replicas opened."),
    several_of_upstream(
        "tidegate_health_changes_total",
        Kind.COUNTER,
        "change",
        {"went_down": "health_went_down", "came_back": "health_came_back"},
        "Replicas that health checks, or other nodes, found dead or alive again, counted by each worker.",
    ),
    level("tidegate_diverted_classes", "classes.diverted", "Kinds of prompts that workers send to their route's fallback."),
    level("tidegate_shared_connected", "shared.connected", "Workers that are connected to the store shared with other nodes."),
    several(
        "tidegate_shared_messages_total",
        Kind.COUNTER,
        "direction",
        {"sent": "shared.sent", "received": "shared.received"},
        "Changes of replicas told to other nodes, and heard from them.",
    ),
    counter("tidegate_shared_lost_total", "shared.lost", "Times a worker lost the store shared with other nodes."),
    counter("tidegate_retries_refused_total", "retries.refused", "Extra attempts that the retry budget did not grant."),
)
