"""Metrics of requests: how many, how long, how many tokens, at what cost; and of the connections that bring them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from tidegate.admin.metrics.spec import Kind, MetricSpec, Sample, by_route, counter, level, several
from tidegate.admin.view import NodeSnapshot


def _requests(node: NodeSnapshot) -> Iterator[Sample]:
    for tally in node.statistics.requests.requests:
        yield (tally.operation, tally.route, tally.upstream, tally.outcome), float(tally.count)


def _tokens(node: NodeSnapshot) -> Iterator[Sample]:
    for tally in node.statistics.requests.tokens:
        yield (tally.route, tally.token_class, tally.evidence), float(tally.tokens)


def _cost(node: NodeSnapshot) -> Iterator[Sample]:
    for tally in node.statistics.requests.costs:
        yield (tally.route,), float(tally.cost_micro)


def _estimate_errors(node: NodeSnapshot) -> Iterator[Sample]:
    for one in node.statistics.estimate_errors:
        yield (one.route, one.model, one.figure), one.errors


_SERVER_REFUSALS = {
    "too_many_connections": "server.rejected_connections",
    "malformed_http": "server.malformed",
    "body": "server.refused_bodies",
    "too_slow": "server.timed_out",
}

TRAFFIC: Final[tuple[MetricSpec, ...]] = (
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
    by_route(
        "tidegate_prompt_tokens", lambda route: route.prompt_tokens, "Tokens of a request's prompt, of requests that reached a model."
    ),
    by_route(
        "tidegate_output_input_ratio",
        lambda route: route.output_ratio,
        "Completion tokens of an answer for each token of its prompt, as the upstream reported them: 0.2 to 0.8 is healthy for most uses.",
    ),
    by_route("tidegate_request_duration_seconds", lambda route: route.duration, "From a request's head to the end of its response."),
    by_route(
        "tidegate_ttft_seconds",
        lambda route: route.ttft,
        "From a request's head to its first non-empty output seen by the gateway; streams only.",
    ),
    by_route(
        "tidegate_tpot_seconds",
        lambda route: route.tpot,
        "Time per output token of an answer after its first: (duration - ttft) / (completion tokens - 1); streams of two tokens or more.",
    ),
    by_route(
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
    level("tidegate_open_connections", "server.connections", "Open client connections."),
    level("tidegate_running_requests", "gateway.requests_running", "Requests whose response is not complete."),
    level("tidegate_resumable_streams", "streams.resumable", "Streams that a client could come back for, finished ones included."),
    level("tidegate_resume_buffer_bytes", "streams.resume_buffer_bytes", "Bytes of streams kept for clients that come back."),
    several(
        "tidegate_stream_resumptions_total",
        Kind.COUNTER,
        "result",
        {"resumed": "streams.resumed", "missed": "streams.resume_missed"},
        "Clients that came back for a stream, and whether they got the rest.",
    ),
    counter("tidegate_stream_heartbeats_total", "streams.heartbeats", "Heartbeats sent into silent streams."),
    level("tidegate_request_buffer_bytes", "server.buffered_bytes", "Request bytes held in memory."),
    counter("tidegate_connections_total", "server.accepted_connections", "Client connections accepted."),
    counter("tidegate_http_requests_total", "server.requests", "Request heads read, health checks included."),
    several("tidegate_http_refused_total", Kind.COUNTER, "reason", _SERVER_REFUSALS, "What the HTTP server itself refused."),
    counter("tidegate_clients_left_total", "server.clients_left", "Requests whose client went before the response was complete."),
    counter("tidegate_slow_readers_total", "server.slow_readers", "Connections dropped because the client stopped reading."),
)
