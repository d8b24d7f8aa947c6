"""The report for people: one HTML file with tables of every figure and plots, which needs no network and runs nobody else's script.

What must be read before any figure stands above them all: that a run does not count, that it was ended early, that it was a closed loop.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from html import escape
from typing import Final

from tidegate.bench import shown
from tidegate.bench.assertions import Verdict
from tidegate.bench.costs import Basis
from tidegate.bench.distribution import Distribution, Latencies
from tidegate.bench.figures import GroupFigures
from tidegate.bench.html_charts import distributions, over_time
from tidegate.bench.html_page import banner, page, places, table, tiles
from tidegate.bench.run_report import Report
from tidegate.domain.money import MICRO

_DISTRIBUTION: Final = ("", "n", "mean", "sd", "least", "p50", "p75", "p90", "p95", "p99", "p99.9", "most")


def html_report(report: Report, *, plotting: str, verdicts: Sequence[Verdict] = ()) -> str:
    """Give the page. `plotting` is plotly's JavaScript, which becomes a part of it; `verdicts` are those of assertions."""
    time_charts = tuple(over_time(report))
    distribution_charts = tuple(distributions(report.whole))
    sections = (
        _banners(report),
        _heading(report),
        _headline(report),
        _list("To be known", report.remarks),
        _asserted(verdicts),
        _section("Over time", places(time_charts)),
        _section("Latencies", places(distribution_charts, first=len(time_charts)) + table(_DISTRIBUTION, list(_latency_rows(report)))),
        _outcomes(report),
        _groups("Stages", report.stages) if len(report.stages) > 1 else "",
        _groups("Scenarios", report.scenarios),
        _tokens(report.whole),
        _cost(report.whole),
        _clients(report),
        _section("How it was run", table((), list(_settings(report)), words=True)),
    )
    title = f"{report.target.model}: {report.load}"
    return page(title, "\n".join(part for part in sections if part), (*time_charts, *distribution_charts), plotting=plotting)


# ── what is read first ────────────────────────────────────────────────────────


def _banners(report: Report) -> str:
    text = "" if report.valid else banner("This run does not count: its figures are the client's, not the server's.", report.invalid)
    if report.interrupted_s is not None:
        text += banner(f"Interrupted after {shown.time_s(report.interrupted_s)}: this is what there was by then.", ())
    return text


def _heading(report: Report) -> str:
    target = report.target
    began = datetime.fromtimestamp(report.began_at, UTC)
    loop = "closed loop" if report.closed_loop else "open loop"
    stream = "streams" if target.stream else "whole answers"
    return (
        f"<h1>{escape(target.model)}: {escape(report.load)}</h1>"
        f'<p class="quiet">{loop}, {escape(target.endpoint)} at {escape(target.base_url)}, {stream}. '
        f"{began:%Y-%m-%d %H:%M:%S} UTC, Tidegate {escape(report.tidegate)}, seed {report.seed}.</p>"
    )


def _headline(report: Report) -> str:
    whole = report.whole
    rates = whole.rates
    figures = [
        ("success", shown.share(whole.success_ratio)),
        ("requests", shown.count(whole.requests)),
        *([] if report.closed_loop else [("asked for", shown.per_s(rates.asked))]),
        ("sent", shown.per_s(rates.sent)),
        ("good (goodput)", shown.per_s(rates.good)),
        ("TTFT p50, from due", _quantile(whole.ttft, "p50")),
        ("TTFT p99, from due", _quantile(whole.ttft, "p99")),
        ("TPOT p50", shown.time_s(whole.tpot.p50 if whole.tpot else None)),
        ("E2E p99, from due", _quantile(whole.e2e, "p99")),
        ("tokens out", shown.per_s(rates.tokens_out)),
        ("tokens in", shown.per_s(rates.tokens_in)),
    ]
    if whole.cost is not None:
        figures.append(("cost", shown.money(whole.cost.total_micro / MICRO, whole.cost.currency)))
    return tiles(figures)


def _asserted(verdicts: Sequence[Verdict]) -> str:
    if not verdicts:
        return ""
    rows = [("holds" if verdict.holds else "FAILED", verdict.assertion, verdict.explanation) for verdict in verdicts]
    return _section("Assertions", table((), rows, words=True))


# ── tables ────────────────────────────────────────────────────────────────────


def _latency_rows(report: Report) -> Iterator[tuple[str, ...]]:
    whole = report.whole
    for name, both in (("TTFT", whole.ttft), ("E2E", whole.e2e)):
        if both is not None:
            yield _row(f"{name}, from due", both.due)
            yield _row(f"{name}, from sent", both.sent)
    for name, found in (
        ("TPOT", whole.tpot),
        ("ITL per token", whole.itl_token),
        ("ITL per chunk", whole.itl_chunk),
        ("longest gap of an answer", whole.longest_gap),
        ("connecting", whole.connect),
        ("queue (server's word)", whole.queue),
        ("server (its word)", whole.server),
        ("sent after due", whole.lag),
    ):
        if found is not None:
            yield _row(name, found)
    for name, both in (("TTFT of failures", whole.failed_ttft), ("E2E of failures", whole.failed_e2e)):
        if both is not None:
            yield _row(f"{name}, from due", both.due)
            yield _row(f"{name}, from sent", both.sent)


def _row(name: str, found: Distribution) -> tuple[str, ...]:
    values = (found.mean, found.sd, found.least, found.p50, found.p75, found.p90, found.p95, found.p99, found.p999, found.most)
    return (name, shown.count(found.n), *(shown.time_s(value) for value in values))


def _outcomes(report: Report) -> str:
    whole = report.whole
    counted = whole.requests or 1
    rows = [(name, shown.count(number), shown.share(number / counted)) for name, number in whole.outcomes.items()]
    rows.append(("(HTTP would call it success)", "", shown.share(whole.http_success_ratio)))
    if whole.not_sent:
        rows.append(("(not sent)", shown.count(whole.not_sent), ""))
    text = table(("outcome", "requests", "share"), rows)
    if whole.reasons:
        text += table(("reason", "requests"), [(name, shown.count(number)) for name, number in whole.reasons.items()])
    if report.errors:
        text += table(("error", "times"), [(error, shown.count(number)) for error, number in report.errors.items()], words=True)
    return _section("Outcomes", text)


def _groups(title: str, groups: Sequence[GroupFigures]) -> str:
    head = ("", "requests", "success", "asked", "sent", "good", "TTFT p50", "TTFT p99", "TPOT p50", "E2E p50", "E2E p99", "tokens out")
    rows = [
        (
            group.name,
            shown.count(group.requests),
            shown.share(group.success_ratio),
            shown.per_s(group.rates.asked),
            shown.per_s(group.rates.sent),
            shown.per_s(group.rates.good),
            _quantile(group.ttft, "p50"),
            _quantile(group.ttft, "p99"),
            shown.time_s(group.tpot.p50 if group.tpot else None),
            _quantile(group.e2e, "p50"),
            _quantile(group.e2e, "p99"),
            shown.per_s(group.rates.tokens_out),
        )
        for group in groups
    ]
    return _section(title, table(head, rows))


def _tokens(whole: GroupFigures) -> str:
    tokens, tries = whole.tokens, whole.tries
    rows = [
        ("prompt tokens", shown.count(tokens.prompt)),
        ("of them cached", shown.count(tokens.cached)),
        ("completion tokens", shown.count(tokens.completion)),
        ("of them reasoning", shown.count(tokens.reasoning)),
        ("answers without usage", shown.share(tokens.usage_missing_ratio)),
        ("requests that we tried again", shown.count(tries.retried)),
        ("our tries beyond the first", shown.count(tries.retries)),
        ("requests of which the server told its tries", shown.count(tries.upstream_told)),
        ("requests that it tried again", shown.count(tries.upstream_retried)),
        ("its tries beyond the first", shown.count(tries.upstream_retries)),
    ]
    return _section("Tokens and tries", table((), rows))


def _cost(whole: GroupFigures) -> str:
    cost = whole.cost
    if cost is None:
        return ""
    each = cost.per_request
    rows = [
        ("basis", "price book" if cost.basis is Basis.PRICE_BOOK else "as the upstream reports"),
        ("total", shown.money(cost.total_micro / MICRO, cost.currency)),
        ("per request", f"{shown.money(each.mean, cost.currency)} ± {shown.money(each.sd, '')}"),
        ("per request, p50 and p99", f"{shown.money(each.p50, '')}, {shown.money(each.p99, '')}"),
        ("per 1,000 tokens", shown.money(cost.per_1k_tokens.mean if cost.per_1k_tokens else None, cost.currency)),
        ("variation between requests (sd over mean)", shown.share(cost.variation)),
        ("last third of the run against the first", shown.change(cost.drift_ratio)),
        ("the same, per token", shown.change(cost.drift_ratio_1k)),
        ("answers of unknown cost", shown.count(cost.unknown)),
    ]
    if cost.disagreement is not None:
        found = cost.disagreement
        rows.append(("reported against the price book", f"{shown.change(found.ratio)}, {found.differing} of {found.n} differ"))
    return _section("Cost", table((), rows))


def _clients(report: Report) -> str:
    head = ("client", "timers late, p99", "most", "CPU", "held back", "connections opened")
    rows = [
        (
            str(client.client),
            shown.time_s(client.loop_lag_p99_s),
            shown.time_s(client.loop_lag_max_s),
            shown.share(client.cpu_ratio),
            shown.count(client.cap_reached),
            shown.count(client.connections_opened),
        )
        for client in report.clients
    ]
    return _section("The client processes", table(head, rows)) if rows else ""


def _settings(report: Report) -> Iterator[tuple[str, str]]:
    machine, criteria, target = report.machine, report.criteria, report.target
    yield "machine", f"{machine.cores} cores, Python {machine.python}, {machine.kernel}"
    yield "colour", target.color or shown.NOTHING
    yield "headers", ", ".join(target.header_names) or shown.NOTHING
    yield "a good answer has", f"at least {shown.share(criteria.short_ratio)} of its expected length"
    yield "its first token within", shown.time_s(criteria.ttft_s)
    yield "its end within", shown.time_s(criteria.e2e_s)
    yield "time factor", f"{report.time_factor:g}"
    yield "warm-up left out", shown.time_s(report.warm_up_s)
    yield from report.options.items()


def _quantile(latencies: Latencies | None, name: str) -> str:
    return shown.time_s(None if latencies is None else latencies.due.p50 if name == "p50" else latencies.due.p99)


def _section(title: str, content: str) -> str:
    return f"<section><h2>{escape(title)}</h2>{content}</section>"


def _list(title: str, sentences: Sequence[str]) -> str:
    return _section(title, "<ul>" + "".join(f"<li>{escape(sentence)}</li>" for sentence in sentences) + "</ul>") if sentences else ""
