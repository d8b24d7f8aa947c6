"""The report: what it says, what it never says, and that it is read back."""

from __future__ import annotations

import csv
import io

import msgspec
import pytest
from tests.unit.bench.runs import HEALTHY, LENIENT, MACHINE, TARGET, answer, failure, plan, planned, report, steady, steady_report

from tidegate.bench.costs import Prices
from tidegate.bench.figures import Figures
from tidegate.bench.outcome import judge
from tidegate.bench.plan import Target
from tidegate.bench.run_report import csv_heading, csv_line, make_report, read_report, report_json
from tidegate.bench.sample import ClientReport, End
from tidegate.domain.money import Price, PriceBook, PriceEntry, PriceTier
from tidegate.errors import ConfigurationError
from tidegate.policy.billing.pricing import Pricing


def test_a_report_says_what_was_run_where_and_by_what() -> None:
    """Enough to run it again."""
    made = steady_report()
    assert (1, MACHINE, 7, "constant, 10/s for 10 s", True) == (made.version, made.machine, made.seed, made.load, made.valid)
    assert ("http://127.0.0.1:8000/v1", "m", "chat", True) == (
        made.target.base_url,
        made.target.model,
        made.target.endpoint,
        made.target.stream,
    )
    assert [("steady", 10.0)] == [(stage.name, stage.length_s) for stage in made.stage_plans]
    assert () == made.remarks


def test_nothing_secret_is_in_a_report() -> None:
    """Neither the key, nor a header's value, nor a password in the address, wherever they were given."""
    target = Target(
        base_url="https://user:pass-1@host:8443/v1?token=t-1#f",
        model="m",
        key="sk-very-secret",
        headers=(("x-api-key", "h-1"),),
        extra_body='{"user":"sk-very-secret"}',
    )
    figures = Figures(plan())
    made = make_report(
        plan(), target, figures, [], machine=MACHINE, began_at=0.0, criteria=LENIENT, options={"header": "x: sk-very-secret"}
    )
    text = report_json(made).decode()
    assert [] == [secret for secret in ("sk-very-secret", "h-1", "pass-1", "t-1", "user:") if secret in text]
    assert ("https://host:8443/v1", ("x-api-key",), '{"user":"***"}') == (
        made.target.base_url,
        made.target.header_names,
        made.target.extra_body,
    )


def test_a_report_without_a_key_keeps_its_words() -> None:
    """There is nothing to hide then."""
    made = report([], target=msgspec.structs.replace(TARGET, key="", extra_body='{"a":1}'))
    assert '{"a":1}' == made.target.extra_body


def test_a_run_that_does_not_count_says_so() -> None:
    """A report without a request, and one of a client that stood still."""
    stalled = msgspec.structs.replace(HEALTHY, loop_lag_max_s=0.5)
    assert ("no request was sent",) == report([]).invalid
    assert not report([judge(answer(), planned(), LENIENT)], health=stalled).valid


def test_what_a_reader_should_know_is_remarked() -> None:
    """Each oddity in a sentence."""
    figures = Figures(plan(concurrency=2), warm_up_s=1.0)
    steady(figures)
    odd = msgspec.structs.replace(answer(due_at=3.0, tokens=None), cost_micro=None)
    figures.end_at(9.0)
    figures.add(judge(msgspec.structs.replace(answer(due_at=3.0), cost_micro=5), planned(), LENIENT))
    for _ in range(5):
        figures.add(judge(odd, planned(), LENIENT))
    busy = msgspec.structs.replace(HEALTHY, cpu_ratio=0.99)
    made = make_report(plan(concurrency=2), TARGET, figures, [ClientReport(busy, {}, {})], machine=MACHINE, began_at=0.0, criteria=LENIENT)
    words = (
        "closed loop",
        "interrupted after 9.0 s",
        "10 requests of the warm-up",
        "without usage",
        "the cost of 95 answers",
        "99 % of a core",
    )
    assert [word in remark for word, remark in zip(words, made.remarks, strict=True)] == [True] * len(words)
    assert (True, 9.0, 1.0) == (made.closed_loop, made.interrupted_s, made.warm_up_s)


def test_costs_that_differ_are_remarked() -> None:
    """How many, and from what."""
    made = steady_report()
    assert made.whole.cost is None
    figures = Figures(plan(), prices=_free())
    figures.add(judge(msgspec.structs.replace(answer(), cost_micro=500), planned(), LENIENT))
    differing = make_report(plan(), TARGET, figures, [], machine=MACHINE, began_at=0.0, criteria=LENIENT)
    assert ("the reported cost of 1 of 1 requests differs from the price book's by more than 1 %",) == differing.remarks


def test_a_report_is_read_back_as_it_was() -> None:
    """With all of its histograms."""
    made = steady_report(failures=3)
    assert made == read_report(report_json(made), "a.json")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (b"{}", "a.json is no report of `tidegate bench`"),
        (b"nonsense", "give the `report.json` of a run"),
        (b'{"version": 2}', "a.json is a report of version 2, this Tidegate reads version 1"),
        (b'{"version": 1}', "a.json is a damaged report"),
        (b"[" * 100_000, "a.json is no report"),
    ],
)
def test_what_is_no_report_is_refused_in_words(text: bytes, words: str) -> None:
    """The file is named, and what to do."""
    with pytest.raises(ConfigurationError, match=words):
        read_report(text, "a.json")


def test_each_request_is_a_line_of_csv() -> None:
    """As many cells as there are columns; what did not happen is empty."""
    judged = [
        judge(answer(3, due_at=1.0, lag_s=0.5), planned(3), LENIENT),
        judge(failure(4, end=End.HTTP_ERROR, status=429, error="=cmd()"), planned(4), LENIENT),
        judge(failure(5, end=End.NOT_SENT, due_at=9.0), planned(5), LENIENT),
    ]
    rows = list(csv.DictReader(io.StringIO(csv_heading() + "".join(map(csv_line, judged)))))
    good, refused, unsent = rows
    assert [("3", "ok", "1.000000", "1.500000", "0.200000", "-0.300000")] == [
        (good["index"], good["outcome"], good["due_at"], good["sent_at"], good["ttft_due_s"], good["ttft_sent_s"])
    ]
    assert ("http", "status_429", "429", "'=cmd()", "") == tuple(
        refused[name] for name in ("outcome", "reasons", "status", "error", "ttft_due_s")
    )
    assert ("not_sent", "", "", "") == tuple(unsent[name] for name in ("outcome", "sent_at", "ended_at", "e2e_due_s"))
    assert [False, False, False] == [None in row or None in row.values() for row in rows]


def _free() -> Prices:
    book = PriceBook("v1", "USD", (PriceEntry("*", "m", Price((PriceTier(0, 0),))),))
    return Prices(Pricing(book), "any", "m", began_at=0.0)
