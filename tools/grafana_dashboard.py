"""Writes Grafana's dashboard: `python tools/grafana_dashboard.py`. What it shows is declared in `ROWS`, for people to read.

A panel's expressions select by the variables `instance` and `route`; a test holds them against the page of metrics.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

import msgspec

FILE: Final = Path(__file__).parent.parent / "deploy" / "grafana" / "tidegate.dashboard.json"
WIDTH: Final = 24
"""Of Grafana's grid."""
HEIGHT: Final = 8
ON_NODE: Final = 'instance=~"$instance"'
ON_ROUTE: Final = f'{ON_NODE}, route=~"$route"'
_SOURCE: Final = {"type": "prometheus", "uid": "${datasource}"}


class Panel(msgspec.Struct, frozen=True):
    """A chart. `curves` are pairs of expression and legend; `unit` is Grafana's name of it."""

    title: str
    unit: str
    curves: tuple[tuple[str, str], ...]
    meaning: str = ""
    exemplars: bool = False
    """Points of single requests are drawn on it: the curves are of a histogram that has them."""
    stacked: bool = False
    ceiling: float | None = None
    """The upper end of the axis; None: as the figures are."""


def rate(metric: str, by: str, selection: str = ON_ROUTE) -> str:
    return f"sum by ({by}) (rate({metric}{{{selection}}}[$__rate_interval]))"


def total(metric: str, by: str = "") -> str:
    return f"sum by ({by}) ({metric}{{{ON_NODE}}})" if by else f"sum({metric}{{{ON_NODE}}})"


def share(part: str, whole: str) -> str:
    """Give no point where there is nothing of the whole."""
    return f"{part} / ({whole} > 0)"


def quantiles(title: str, metric: str, meaning: str) -> Panel:
    """Chart the median and the slow end of a histogram of times, with single requests on it."""
    buckets = rate(f"{metric}_bucket", "le")
    curves = tuple((f"histogram_quantile({quantile}, {buckets})", f"p{100 * quantile:g}") for quantile in (0.5, 0.95, 0.99))
    return Panel(title, "s", curves, meaning, exemplars=True)


_ASKED: Final = f'{ON_ROUTE}, outcome=~"ok|truncated|content_filter|served_from_cache|degraded|model_error|failed_.*|rejected_no_replica"'
_FAILED: Final = f'{ON_ROUTE}, outcome=~"failed_.*|model_error|degraded|rejected_no_replica"'
_ANSWERED: Final = f'{ON_ROUTE}, outcome=~"ok|truncated|content_filter"'
_WITHHELD: Final = f'{ON_ROUTE}, outcome="content_filter"'
_REQUESTS: Final = "tidegate_requests_total"

TRAFFIC: Final = (
    Panel("Requests", "reqps", ((rate(_REQUESTS, "route"), "{{route}}"),), stacked=True),
    Panel(
        "Tokens",
        "short",
        ((rate("tidegate_tokens_total", "class"), "{{class}}"),),
        "Tokens per second; cached ones are part of the prompt's.",
    ),
    Panel(
        "Cost per hour",
        "short",
        ((f"3600 * {rate('tidegate_cost_micro_total', 'route')} / 1e6", "{{route}}"),),
        "In the price book's currency.",
        stacked=True,
    ),
    Panel("Errors by outcome", "reqps", ((rate(_REQUESTS, "outcome", _FAILED), "{{outcome}}"),), stacked=True),
    Panel(
        "Failed",
        "percentunit",
        ((share(rate(_REQUESTS, "route", _FAILED), rate(_REQUESTS, "route", _ASKED)), "{{route}}"),),
        "Of requests that a model was to answer.",
        ceiling=1.0,
    ),
    Panel(
        "Withheld by a content filter",
        "percentunit",
        ((share(rate(_REQUESTS, "route", _WITHHELD), rate(_REQUESTS, "route", _ANSWERED)), "{{route}}"),),
        "Of answers.",
        ceiling=1.0,
    ),
)
LATENCY: Final = (
    quantiles("Time to first token", "tidegate_ttft_seconds", "Streams: from a request's head to its first output."),
    quantiles("Time per output token", "tidegate_tpot_seconds", "Streams: the mean of each, after its first token."),
    quantiles("Duration", "tidegate_request_duration_seconds", "From a request's head to the end of its response."),
    quantiles("Gateway overhead", "tidegate_gateway_overhead_seconds", "Duration less the time an upstream call ran."),
    Panel(
        "Prompt size, median",
        "short",
        ((f"histogram_quantile(0.5, {rate('tidegate_prompt_tokens_bucket', 'route, le')})", "{{route}}"),),
        "Tokens.",
    ),
    Panel(
        "Output to input, median",
        "short",
        ((f"histogram_quantile(0.5, {rate('tidegate_output_input_ratio_bucket', 'route, le')})", "{{route}}"),),
        "Tokens of an answer for each of its prompt: 0.2 to 0.8 is healthy for most uses.",
    ),
)
ADMISSION: Final = (
    Panel("Refused by limits", "reqps", ((rate("tidegate_limit_refusals_total", "rule, mode", ON_NODE), "{{rule}} ({{mode}})"),)),
    Panel(
        "Running",
        "short",
        (
            (total("tidegate_running_requests"), "requests"),
            (total("tidegate_permits"), "admitted"),
            (total("tidegate_open_connections"), "connections"),
        ),
    ),
    Panel(
        "Tokens reserved",
        "short",
        ((total("tidegate_reservation_tokens"), "held"), (total("tidegate_limit_lease_units"), "leased to workers")),
    ),
    Panel(
        "Limiter without its store",
        "short",
        ((total("tidegate_limit_store_away", "instance"), "{{instance}}"),),
        "Workers; their limits are degraded.",
    ),
    Panel(
        "Forecasts exceeded",
        "percentunit",
        (
            (
                share(
                    rate("tidegate_forecasts_total", "instance", f'{ON_NODE}, result="exceeded"'),
                    rate("tidegate_forecasts_total", "instance", ON_NODE),
                ),
                "{{instance}}",
            ),
        ),
        ceiling=1.0,
    ),
)
UPSTREAMS: Final = (
    Panel("Ready", "short", ((f"min by (upstream) (tidegate_upstream_ready{{{ON_NODE}}})", "{{upstream}}"),), ceiling=1.0),
    Panel(
        "Breakers not closed",
        "short",
        ((total("tidegate_breaker_state", "upstream, state"), "{{upstream}} {{state}}"),),
        "Counted by each worker.",
    ),
    Panel(
        "Breaker trips",
        "short",
        ((f"sum by (upstream) (increase(tidegate_breaker_trips_total{{{ON_NODE}}}[$__rate_interval]))", "{{upstream}}"),),
    ),
    Panel("Calls", "short", ((total("tidegate_upstream_calls", "upstream, state"), "{{upstream}} {{state}}"),)),
    Panel("Requests by upstream", "reqps", ((rate(_REQUESTS, "upstream"), "{{upstream}}"),), stacked=True),
    Panel(
        "Extra attempts refused",
        "short",
        ((rate("tidegate_retries_refused_total", "instance", ON_NODE), "{{instance}}"),),
        "By the retry budget, per second.",
    ),
)
KEEPING: Final = (
    Panel("Records waiting for the tables", "bytes", ((total("tidegate_recorder_backlog_bytes", "instance"), "{{instance}}"),)),
    Panel("Oldest record that waits", "s", ((f"max by (instance) (tidegate_recorder_lag_seconds{{{ON_NODE}}})", "{{instance}}"),)),
    Panel("Rows into the tables", "short", ((rate("tidegate_recorder_rows_total", "instance", ON_NODE), "{{instance}}"),), "Per second."),
    Panel(
        "Lost",
        "short",
        (
            (f"sum(increase(tidegate_records_dropped_total{{{ON_NODE}}}[$__rate_interval]))", "records"),
            (f'sum(increase(tidegate_audit_bodies_total{{{ON_NODE}, result="dropped"}}[$__rate_interval]))', "bodies"),
            (f"sum(increase(tidegate_books_lost_total{{{ON_NODE}}}[$__rate_interval]))", "entries of the books"),
            (f"sum(increase(tidegate_recorder_lost_bytes_total{{{ON_NODE}}}[$__rate_interval]))", "bytes of record files"),
        ),
        "Nothing, on a good day.",
    ),
    Panel(
        "Books",
        "short",
        (
            (rate("tidegate_books_committed_entries_total", "instance", ON_NODE), "{{instance}} entries"),
            (rate("tidegate_books_commits_total", "instance", ON_NODE), "{{instance}} commits"),
        ),
        "Per second.",
    ),
    Panel("Entries not yet in the books", "bytes", ((total("tidegate_books_unacknowledged_bytes", "instance"), "{{instance}}"),)),
)
PROCESSES: Final = (
    Panel("Workers", "short", ((total("tidegate_workers", "phase"), "{{phase}}"),), stacked=True),
    Panel(
        "Restarts",
        "short",
        tuple(
            (f"sum(increase(tidegate_{name}_restarts_total{{{ON_NODE}}}[$__rate_interval]))", name)
            for name in ("worker", "engine", "ledger", "recorder")
        ),
    ),
    Panel("Local engine", "short", ((total("tidegate_engine_phase", "phase"), "{{phase}}"),)),
    Panel(
        "Local engine's first token",
        "s",
        ((f"max by (instance, temperature) (tidegate_engine_ttft_seconds{{{ON_NODE}}})", "{{instance}} {{temperature}}"),),
        "Of its two warm-up requests.",
    ),
)
ROWS: Final = {
    "Traffic": TRAFFIC,
    "Latency": LATENCY,
    "Limits": ADMISSION,
    "Upstreams": UPSTREAMS,
    "Records, tables and books": KEEPING,
    "Processes": PROCESSES,
}


def dashboard() -> dict[str, object]:
    """Give the whole of it, as Grafana imports it."""
    panels: list[dict[str, object]] = []
    top = 0
    for title, charts in ROWS.items():
        panels.append({"type": "row", "title": title, "collapsed": False, "gridPos": {"x": 0, "y": top, "w": WIDTH, "h": 1}, "panels": []})
        top += 1
        width = WIDTH // 3
        for number, panel in enumerate(charts):
            place = {"x": number % 3 * width, "y": top + number // 3 * HEIGHT, "w": width, "h": HEIGHT}
            panels.append(_chart(panel, place))
        top += -(-len(charts) // 3) * HEIGHT
    for number, chart in enumerate(panels, 1):
        chart["id"] = number
    return {
        "title": "Tidegate",
        "uid": "tidegate",
        "tags": ["tidegate"],
        "schemaVersion": 39,
        "editable": True,
        "refresh": "30s",
        "time": {"from": "now-6h", "to": "now"},
        "templating": {"list": [_source_variable(), _variable("instance", "tidegate_build_info"), _variable("route", _REQUESTS)]},
        "panels": panels,
    }


def _chart(panel: Panel, place: dict[str, int]) -> dict[str, object]:
    custom = {"fillOpacity": 20 if panel.stacked else 0, "stacking": {"mode": "normal" if panel.stacked else "none"}, "showPoints": "never"}
    defaults: dict[str, object] = {"unit": panel.unit, "min": 0, "custom": custom}
    if panel.ceiling is not None:
        defaults["max"] = panel.ceiling
    targets = [
        {"refId": chr(ord("A") + number), "datasource": _SOURCE, "expr": expression, "legendFormat": legend, "exemplar": panel.exemplars}
        for number, (expression, legend) in enumerate(panel.curves)
    ]
    return {
        "type": "timeseries",
        "title": panel.title,
        "description": panel.meaning,
        "datasource": _SOURCE,
        "gridPos": place,
        "fieldConfig": {"defaults": defaults, "overrides": []},
        "options": {"legend": {"displayMode": "list", "placement": "bottom"}, "tooltip": {"mode": "multi", "sort": "desc"}},
        "targets": targets,
    }


def _source_variable() -> dict[str, object]:
    return {"name": "datasource", "type": "datasource", "query": "prometheus", "label": "Data source"}


def _variable(label: str, metric: str) -> dict[str, object]:
    """Offer the values that a label of a metric has; all of them at first."""
    query = f"label_values({metric}, {label})"
    return {
        "name": label,
        "type": "query",
        "datasource": _SOURCE,
        "query": {"query": query, "refId": label},
        "definition": query,
        "refresh": 2,
        "sort": 1,
        "multi": True,
        "includeAll": True,
        "allValue": ".*",
        "current": {"text": "All", "value": "$__all"},
    }


def page() -> str:
    return msgspec.json.format(msgspec.json.encode(dashboard()), indent=1).decode() + "\n"


if __name__ == "__main__":
    FILE.parent.mkdir(exist_ok=True)
    FILE.write_text(page())
