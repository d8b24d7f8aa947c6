"""The report of a run: everything that is known of it, as one record that is written to JSON and read back the same.

It never holds the key, the values of headers, or a name and password within the target's address. The request-by-request CSV is written
line by line and never held.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from typing import Final
from urllib.parse import urlsplit, urlunsplit

import msgspec

from tidegate import __version__
from tidegate.bench.figures import Figures, GroupFigures
from tidegate.bench.outcome import Criteria, Judged, http_success, tpot_s
from tidegate.bench.plan import CurvePoint, Plan, Stage, Target
from tidegate.bench.sample import ClientHealth, ClientReport, End
from tidegate.bench.series import Series
from tidegate.bench.validity import RunConditions, busy_clients, check
from tidegate.errors import ConfigurationError

VERSION: Final = 1
"""Raised when a reader of the old form would misread the new one."""
_MISSING_USAGE: Final = 0.01
"""Share of answers without usage that token figures may lack unsaid."""
_FORMULA: Final = ("=", "+", "-", "@", "\t", "\r")
"""What a spreadsheet takes for the beginning of a formula; error texts and finish reasons are the server's choice."""


class Machine(msgspec.Struct, frozen=True):
    """What the clients ran on."""

    cores: int
    python: str
    kernel: str


class TargetSummary(msgspec.Struct, frozen=True):
    """Whom the run asked, without anything secret."""

    base_url: str
    model: str
    endpoint: str
    stream: bool
    header_names: tuple[str, ...]
    color: str
    extra_body: str
    retries: int
    timeout_s: float


class Report(msgspec.Struct, frozen=True):
    """All of a run."""

    version: int
    tidegate: str
    machine: Machine
    began_at: float
    """Seconds since the epoch."""
    seed: int
    load: str
    closed_loop: bool
    length_s: float
    """Of the plan."""
    warm_up_s: float
    time_factor: float
    target: TargetSummary
    criteria: Criteria
    options: dict[str, str]
    """As they were given."""
    interrupted_s: float | None
    """When it was ended before its time."""
    invalid: tuple[str, ...]
    """Why the run does not count; empty: it does."""
    remarks: tuple[str, ...]
    """What a reader of the figures should know."""
    whole: GroupFigures
    stages: tuple[GroupFigures, ...]
    stage_plans: tuple[Stage, ...]
    """What each of `stages` was to be, in the same order."""
    scenarios: tuple[GroupFigures, ...]
    series: Series
    curve: tuple[CurvePoint, ...]
    """The rate that the plan followed."""
    errors: dict[str, int]
    clients: tuple[ClientHealth, ...]

    @property
    def valid(self) -> bool:
        return not self.invalid


def make_report(
    plan: Plan,
    target: Target,
    figures: Figures,
    client_reports: Sequence[ClientReport],
    *,
    machine: Machine,
    began_at: float,
    criteria: Criteria,
    options: dict[str, str] | None = None,
) -> Report:
    """Sum a run up. The gaps that the clients measured are added to `figures` here, so it is called once."""
    for report in client_reports:
        figures.add_gaps(report)
    whole = figures.whole.figures()
    clients = tuple(report.health for report in client_reports)
    waits = whole.e2e if whole.ttft is None else whole.ttft
    conditions = RunConditions(
        closed_loop=plan.concurrency is not None,
        requests=whole.requests,
        lag_p99_s=None if whole.lag is None else whole.lag.p99,
        ttft_p50_s=None if waits is None else waits.due.p50,
        sent_ratio=whole.rates.sent_ratio,
        clients=clients,
    )
    return Report(
        version=VERSION,
        tidegate=__version__,
        machine=machine,
        began_at=began_at,
        seed=plan.seed,
        load=plan.load,
        closed_loop=conditions.closed_loop,
        length_s=plan.length_s,
        warm_up_s=figures.warm_up_s,
        time_factor=plan.time_factor,
        target=_summary(target),
        criteria=criteria,
        options={name: _masked(text, target) for name, text in (options or {}).items()},
        interrupted_s=figures.interrupted_s,
        invalid=check(conditions),
        remarks=_remarks(whole, figures, clients, closed_loop=conditions.closed_loop),
        whole=whole,
        stages=figures.stages(),
        stage_plans=plan.stages,
        scenarios=figures.scenarios(),
        series=figures.series(),
        curve=plan.curve,
        errors=figures.errors(),
        clients=clients,
    )


def report_json(report: Report) -> bytes:
    """Write a report, indented, with a line break at its end."""
    return msgspec.json.format(msgspec.json.encode(report), indent=1) + b"\n"


def read_report(text: bytes, source: str) -> Report:
    """Read a report back; `source` names it in the error."""
    try:
        version = msgspec.json.decode(text, type=_Versioned).version
    except (msgspec.DecodeError, RecursionError) as error:
        raise ConfigurationError(f"{source} is no report of `tidegate bench`: {error}; give the `report.json` of a run") from error
    if version != VERSION:
        raise ConfigurationError(f"{source} is a report of version {version}, this Tidegate reads version {VERSION}; run the test again")
    try:
        return msgspec.json.decode(text, type=Report)
    except msgspec.DecodeError as error:
        raise ConfigurationError(f"{source} is a damaged report of `tidegate bench`: {error}; run the test again") from error


def csv_heading() -> str:
    """Give the first line of the CSV of requests."""
    return _csv_line(_COLUMNS)


def csv_line(judged: Judged) -> str:
    """Write one request. Times are seconds, instants from the run's origin; what is not known is empty."""
    sample, planned = judged.sample, judged.planned
    sent = sample.end is not End.NOT_SENT
    first_at = judged.first_at
    return _csv_line(
        (
            sample.index,
            planned.stage,
            planned.scenario,
            judged.outcome.value,
            " ".join(judged.reasons),
            int(judged.good),
            int(http_success(sample)),
            sample.status or None,
            sample.finish_reason,
            sample.error,
            sample.due_at,
            sample.sent_at if sent else None,
            sample.connected_at,
            sample.headers_at,
            sample.first_event_at,
            sample.first_reasoning_at,
            sample.first_content_at,
            sample.last_output_at,
            sample.ended_at if sent else None,
            None if first_at is None else first_at - sample.due_at,
            None if first_at is None else first_at - sample.sent_at,
            tpot_s(sample),
            sample.ended_at - sample.due_at if sent else None,
            sample.ended_at - sample.sent_at if sent else None,
            sample.longest_gap_s if sample.output_chunks > 1 else None,
            sample.output_chunks,
            planned.completion_tokens,
            sample.prompt_tokens,
            sample.cached_tokens,
            sample.completion_tokens,
            sample.reasoning_tokens,
            sample.cost_micro,
            sample.tries,
            sample.upstream_tries,
            sample.queue_s,
            sample.server_s,
            sample.client,
        )
    )


_COLUMNS: Final = (
    *("index", "stage", "scenario", "outcome", "reasons", "good", "http_success", "status", "finish_reason", "error"),
    *("due_at", "sent_at", "connected_at", "headers_at", "first_event_at", "first_reasoning_at", "first_content_at", "last_output_at"),
    *("ended_at", "ttft_due_s", "ttft_sent_s", "tpot_s", "e2e_due_s", "e2e_sent_s", "longest_gap_s", "output_chunks"),
    *("expected_tokens", "prompt_tokens", "cached_tokens", "completion_tokens", "reasoning_tokens", "cost_micro", "tries"),
    *("upstream_tries", "queue_s", "server_s", "client"),
)


class _Versioned(msgspec.Struct):
    version: int


def _csv_line(cells: Sequence[str | float | None]) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerow([_cell(cell) for cell in cells])
    return text.getvalue()


def _cell(cell: str | float | None) -> str | int | None:
    if isinstance(cell, float):
        return f"{cell:.6f}"
    if isinstance(cell, str) and cell.startswith(_FORMULA):
        return f"'{cell}"
    return cell


def _summary(target: Target) -> TargetSummary:
    parts = urlsplit(target.base_url)
    return TargetSummary(
        base_url=urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", "")),
        model=target.model,
        endpoint=target.endpoint.value,
        stream=target.stream,
        header_names=tuple(name for name, _ in target.headers),
        color=target.color,
        extra_body=_masked(target.extra_body, target),
        retries=target.retries,
        timeout_s=target.timeout_s,
    )


def _masked(text: str, target: Target) -> str:
    return text.replace(target.key, "***") if target.key else text


def _remarks(whole: GroupFigures, figures: Figures, clients: tuple[ClientHealth, ...], *, closed_loop: bool) -> tuple[str, ...]:
    remarks: list[str] = []
    if closed_loop:
        remarks.append("closed loop: a request waits for another to end, so a slow server gets less load, and its stalls show too little")
    if figures.interrupted_s is not None:
        remarks.append(f"interrupted after {figures.interrupted_s:.1f} s; {figures.not_asked + whole.not_sent} requests were not sent")
    if figures.warmed_up:
        remarks.append(
            f"{figures.warmed_up} requests of the warm-up are left out, but not the gaps between their tokens, which clients keep by stage"
        )
    missing = whole.tokens.usage_missing_ratio
    if missing is not None and missing > _MISSING_USAGE:
        remarks.append(
            f"{100 * missing:.1f} % of the answers came without usage: token figures lack them, and they were not judged by length"
        )
    cost = whole.cost
    if cost is not None and cost.disagreement is not None and cost.disagreement.differing:
        found = cost.disagreement
        remarks.append(f"the reported cost of {found.differing} of {found.n} requests differs from the price book's by more than 1 %")
    if cost is not None and cost.unknown:
        remarks.append(f"the cost of {cost.unknown} answers is not known; they are in no figure of costs")
    return (*remarks, *busy_clients(clients))
