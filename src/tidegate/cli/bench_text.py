"""How the findings of `tidegate bench` are printed: the figures of a run, two runs side by side, and a run against its baseline."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence

import msgspec
from rich.console import Console
from rich.table import Table

from tidegate.bench import shown
from tidegate.bench.assertions import figure_text
from tidegate.bench.baseline import Held, Regressions
from tidegate.bench.compare import Comparison, Row
from tidegate.bench.distribution import Distribution
from tidegate.bench.figures import GroupFigures
from tidegate.bench.outcome import Outcome, Reason
from tidegate.bench.run_report import Report
from tidegate.billing.layout import plain
from tidegate.domain.money import MICRO

_WIDTH = 110
"""Where the output is no terminal: wide enough that no cell is cut."""


def say(sentence: str) -> None:
    """Print a sentence as it is, but for what would steer the terminal: a report that is read may be anybody's."""
    _console().print(plain(sentence), markup=False, highlight=False, soft_wrap=True)


def print_report(report: Report) -> None:
    """Print what a person reads first; `report.html` and `report.json` have the rest."""
    say(f"{report.load}, {'' if report.closed_loop else 'open loop, '}{report.target.model} at {report.target.base_url}")
    for reason in report.invalid:
        say(f"NOT VALID: {reason}")
    if report.valid:
        say("valid: the client kept pace, so these figures are the server's")
    if late := _lateness(report):
        say(late)
    for sentence in report.remarks:
        say(f"note: {sentence}")
    _console().print(_latencies(report))
    whole = report.whole
    for sentence in (_outcomes(whole), _rates(report), _tokens(whole), _cost(whole)):
        if sentence:
            say(sentence)
    for number, (error, times) in enumerate(report.errors.items()):
        if number < 3:  # noqa: PLR2004  the report has them all
            say(f"error, {times} times: {error}")
    if len(report.stages) > 1:
        _console().print(_stages(report.stages))


def print_comparison(comparison: Comparison, *, as_json: bool) -> None:
    """Print two runs side by side."""
    if as_json:
        _print_json(comparison)
        return
    for obstacle in comparison.obstacles:
        say(f"note: not alike: {obstacle}")
    table = _table("", "before", "after", "change", "noise", "")
    for row in comparison.rows:
        table.add_row(*_row(row), row.change.value)
    _console().print(table)


def print_regressions(found: Regressions, *, as_json: bool) -> None:
    """Print a run against its baseline."""
    if as_json:
        _print_json(found)
        return
    for obstacle in found.obstacles:
        say(f"not compared: {obstacle}")
    if found.obstacles:
        say("Run it as the baseline was run, or make this run the baseline with --accept.")
        return
    table = _table("", "baseline", "now", "change", "noise", "may be worse by", "")
    for held in found.held:
        table.add_row(*_row(held.row), shown.share(held.tolerance), _verdict(held))
    _console().print(table)
    say(f"{len(found.regressed)} of {len(found.held)} figures regressed." if found.regressed else "Nothing regressed.")


def _lateness(report: Report) -> str:
    """Say which limits made most of the failures; nothing where they did not."""
    whole, criteria = report.whole, report.criteria
    failed = sum(number for outcome, number in whole.outcomes.items() if outcome not in {Outcome.OK, Outcome.NOT_SENT})
    late = {
        f"a first token after {criteria.ttft_s or 0:g} s (--ttft-limit-s)": whole.reasons.get(Reason.SLOW_TTFT, 0),
        f"an answer after {criteria.e2e_s or 0:g} s (--e2e-limit-s)": whole.reasons.get(Reason.SLOW_E2E, 0),
    }
    if 2 * max(late.values()) <= failed:
        return ""
    limits = " or ".join(limit for limit, number in late.items() if number)
    return f"note: most failures are whole answers that came late: {limits} counts as one; raise the limit, or 0 for none"


def _verdict(held: Held) -> str:
    return "REGRESSED" if held.regressed else held.row.change.value


def _row(row: Row) -> tuple[str, ...]:
    before, after, noise = (
        shown.NOTHING if value is None else figure_text(value, row.kind) for value in (row.before, row.after, row.noise)
    )
    return (row.path, before, after, shown.change(row.change_ratio), f"± {noise}")


def _latencies(report: Report) -> Table:
    table = _table("", "n", "mean", "sd", "p50", "p90", "p99", "p99.9", "most")
    for name, found in _distributions(report):
        values = (found.mean, found.sd, found.p50, found.p90, found.p99, found.p999, found.most)
        table.add_row(name, shown.count(found.n), *(shown.time_s(value) for value in values))
    return table


def _distributions(report: Report) -> Iterator[tuple[str, Distribution]]:
    whole = report.whole
    for name, both in (("ttft", whole.ttft), ("e2e", whole.e2e), ("failed e2e", whole.failed_e2e)):
        if both is not None:
            yield f"{name} from due", both.due
            yield f"{name} from sent", both.sent
    named = (("tpot", whole.tpot), ("itl per token", whole.itl_token), ("itl per chunk", whole.itl_chunk))
    for name, found in (*named, ("queue", whole.queue), ("server", whole.server), ("sent after due", whole.lag)):
        if found is not None:
            yield name, found


def _outcomes(whole: GroupFigures) -> str:
    counted = ", ".join(f"{name} {number:,}" for name, number in whole.outcomes.items() if number)
    reasons = ", ".join(f"{name} {number:,}" for name, number in whole.reasons.items())
    because = f" ({reasons})" if reasons else ""
    return (
        f"success   {shown.share(whole.success_ratio)} of {whole.requests:,}: {counted or 'nothing'}{because}; "
        f"by HTTP's word {shown.share(whole.http_success_ratio)}"
    )


def _rates(report: Report) -> str:
    rates = report.whole.rates
    asked = "" if report.closed_loop else f"asked {shown.per_s(rates.asked)}, "
    return (
        f"rate      {asked}sent {shown.per_s(rates.sent)}, ok {shown.per_s(rates.ok)}, good {shown.per_s(rates.good)}; "
        f"tokens in {shown.per_s(rates.tokens_in)}, out {shown.per_s(rates.tokens_out)}"
    )


def _tokens(whole: GroupFigures) -> str:
    tokens, tries = whole.tokens, whole.tries
    text = f"tokens    in {tokens.prompt:,} ({tokens.cached:,} cached), out {tokens.completion:,} ({tokens.reasoning:,} reasoning)"
    if tries.retries or tries.upstream_retries:
        text += f"; {tries.retries} tries again by us, {tries.upstream_retries} by the server"
    return text


def _cost(whole: GroupFigures) -> str:
    cost = whole.cost
    if cost is None:
        return ""
    each = cost.per_request
    return (
        f"cost      {shown.money(cost.total_micro / MICRO, cost.currency)}; "
        f"per request {shown.money(each.mean, '')} ± {shown.money(each.sd, '')}, "
        f"last third against the first {shown.change(cost.drift_ratio)}, per token {shown.change(cost.drift_ratio_1k)}"
    )


def _stages(stages: Sequence[GroupFigures]) -> Table:
    table = _table("stage", "requests", "success", "sent", "good", "ttft p50", "ttft p99", "e2e p99", "tokens out")
    for stage in stages:
        ttft, e2e = stage.ttft, stage.e2e
        table.add_row(
            stage.name,
            shown.count(stage.requests),
            shown.share(stage.success_ratio),
            shown.per_s(stage.rates.sent),
            shown.per_s(stage.rates.good),
            shown.time_s(ttft.due.p50 if ttft else None),
            shown.time_s(ttft.due.p99 if ttft else None),
            shown.time_s(e2e.due.p99 if e2e else None),
            shown.per_s(stage.rates.tokens_out),
        )
    return table


def _table(*head: str) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0), header_style="dim")
    for number, name in enumerate(head):
        table.add_column(name, justify="left" if number == 0 else "right", no_wrap=True)
    return table


def _console() -> Console:
    console = Console()
    return console if console.is_terminal else Console(width=_WIDTH)


def _print_json(found: Comparison | Regressions) -> None:
    sys.stdout.write(msgspec.json.format(msgspec.json.encode(found)).decode() + "\n")
