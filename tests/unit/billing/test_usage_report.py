"""Who used how much, out of records."""

from __future__ import annotations

import csv
import io
import json

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.billing.calls import BilledCall, call_of_books, calls_of_record
from tidegate.billing.layout import csv_text, ratio_text, table
from tidegate.billing.usage import GROUPS, report_csv, report_json, report_table, usage_report, usage_rows
from tidegate.cli.report_choices import GroupName
from tidegate.domain.books import Dimensions, OperationId, SettledCall, UsageRow
from tidegate.domain.money import money_text
from tidegate.domain.outcome import Outcome
from tidegate.domain.record import AttemptRecord, RequestRecord
from tidegate.domain.units import TenantId
from tidegate.domain.usage import Evidence, Usage
from tidegate.policy.billing.hybrid import ResourceUse

RECORD = RequestRecord(
    request_id="r",
    started_at=1_000.0,
    operation="chat",
    outcome=Outcome.OK,
    status=200,
    duration_s=3.0,
    key_id="k",
    tenant="acme",
    user="u",
    model="plus",
    route="p*",
    upstream="b",
    usage=Usage(100, 20),
    evidence=Evidence.COUNTED,
    cost_micro=500,
    price_version="1",
    traffic_bytes=900,
    feature="search",
    attempts=(
        AttemptRecord(1, "a/0", "status_503", model="x"),
        AttemptRecord(2, "a/1", "failed", model="x", duration_s=1.0, usage=Usage(100, 5), cost_micro=200),
        AttemptRecord(3, "b/0", "ok", model="y", duration_s=2.0004, cost_micro=300),
    ),
)


def call(tenant: str, cost: int, usage: Usage = Usage(10, 5), *, evidence: Evidence = Evidence.REPORTED, key: str = "k") -> BilledCall:  # noqa: B008  frozen
    return BilledCall(0.0, TenantId(tenant), cost, evidence, "1", usage, Dimensions(key=key, model="m"))


def test_each_attempt_that_used_something_is_a_call_of_its_own() -> None:
    """The parts make the record's cost; the traffic counts once."""
    first, second = calls_of_record(RECORD)
    assert (200, Usage(100, 5), Evidence.REPORTED) == (first.amount_micro, first.usage, first.evidence)
    assert ("x", "a") == (first.dimensions.model, first.dimensions.upstream)
    assert ResourceUse(105, 105_000, 0) == first.resources
    expected = BilledCall(
        1_003.0,
        TenantId("acme"),
        300,
        Evidence.COUNTED,
        "1",
        Usage(100, 20),
        Dimensions("k", "u", "search", "y", "p*", "b"),
        ResourceUse(120, 240_000, 900),
    )
    assert expected == second


def test_a_last_attempt_that_ended_nowhere_counts_with_what_it_reported() -> None:
    """As when a pause before a retry ended with the request."""
    record = msgspec.structs.replace(RECORD, usage=Usage(), cost_micro=200, attempts=RECORD.attempts[:2])
    [only] = calls_of_record(record)
    assert (200, Usage(100, 5), Evidence.REPORTED) == (only.amount_micro, only.usage, only.evidence)


def test_a_refused_request_is_no_call() -> None:
    """Nothing was used."""
    assert [] == list(calls_of_record(msgspec.structs.replace(RECORD, usage=Usage(), cost_micro=0, attempts=())))


def test_a_call_of_the_books_is_what_they_have() -> None:
    """But for how long it ran."""
    settled = SettledCall(OperationId("o"), 1, TenantId("acme"), 7, 5.0, Evidence.REPORTED, "1", Usage(3, 4), Dimensions(key="k"))
    expected = BilledCall(5.0, TenantId("acme"), 7, Evidence.REPORTED, "1", Usage(3, 4), Dimensions(key="k"), resources=ResourceUse(7))
    assert expected == call_of_books(settled)


def test_usage_is_ranked_by_cost_and_the_rest_is_one_row() -> None:
    """The first three of the articles had 61 % of all; so do these two."""
    calls = [call("a", 400), call("b", 100), call("c", 300), call("b", 110), call("d", 90, evidence=Evidence.COUNTED)]
    report = usage_report(usage_rows(calls, ["tenant"]), ["tenant"], top=2, currency="CNY", since="x", until="y")
    assert (UsageRow(("a",), 1, 400, Usage(10, 5), 400), UsageRow(("c",), 1, 300, Usage(10, 5), 300)) == report.rows
    assert UsageRow(("2 more",), 3, 300, Usage(30, 15), 210) == report.rest
    assert UsageRow(("total",), 5, 1000, Usage(50, 25), 910) == report.total
    assert [0.4, 0.3, 1.0] == [report.share(row) for row in (*report.rows, report.total)]


def test_without_prices_shares_are_of_the_tokens() -> None:
    """And of nothing there is no share."""
    rows = usage_rows([call("a", 0, Usage(90, 0)), call("b", 0, Usage(0, 10))], ["tenant"])
    report = usage_report(rows, ["tenant"], top=5, currency="USD")
    assert [0.9, 0.1] == [report.share(row) for row in report.rows]
    empty = usage_report([], ["tenant"], top=5, currency="USD")
    assert (0.0, None) == (empty.share(empty.total), empty.rest)


def test_names_to_group_by_are_the_same_everywhere() -> None:
    """On the command line and here; every one can be read of a call."""
    assert {name.value for name in GroupName} == set(GROUPS)
    assert [("a", "k", "", "", "m", "", "", "1", "reported")] == [row.group for row in usage_rows([call("a", 1)], list(GROUPS))]


def test_groups_beyond_what_is_kept_are_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Clients can invent names of features."""
    monkeypatch.setattr("tidegate.billing.usage.MAX_GROUPS", 2)
    rows = usage_rows([call(name, 1) for name in ("a", "b", "c", "d", "a")], ["tenant"])
    assert [(("a",), 2), (("b",), 1), (("other",), 2)] == [(row.group, row.calls) for row in rows]


def test_a_report_is_a_table_for_people() -> None:
    """Figures stand under each other."""
    report = usage_report(
        usage_rows([call("acme", 1_500_000), call("b", 500_000)], ["tenant"]), ["tenant"], top=1, currency="CNY", since="s", until="u"
    )
    expected = (
        "s to u (UTC)\n"
        "tenant  calls  prompt  cached  completion  cost (CNY)    share\n"
        "acme        1      10       0           5        1.50   75.0 %\n"
        "1 more      1      10       0           5        0.50   25.0 %\n"
        "total       2      20       0          10        2.00  100.0 %\n"
    )
    assert expected == report_table(report)


def test_a_report_is_csv_and_json_too() -> None:
    """The same figures, exactly."""
    report = usage_report(usage_rows([call("=acme", 1), call("b", 3)], ["tenant", "key"]), ["tenant", "key"], top=9, currency="CNY")
    [heading, first, second] = csv.reader(io.StringIO(report_csv(report)))
    assert (
        "tenant,key,calls,prompt_tokens,completion_tokens,cached_tokens,reasoning_tokens,cache_write_tokens,cost,currency,share"
        == ",".join(heading)
    )
    assert ["b", "k", "1", "10", "5", "0", "0", "0", "0.000003", "CNY", "0.750000"] == first
    assert "'=acme" == second[0]
    shown = json.loads(msgspec.json.encode(report_json(report)))
    assert {"tenant": "b", "key": "k", "cost_micro": 3, "cost": "0.000003", "share": 0.75}.items() <= shown["rows"][0].items()
    assert (4, None, 2) == (shown["total"]["cost_micro"], shown["rest"], shown["groups"])
    rest = report_json(usage_report(usage_rows([call("a", 1), call("b", 3)], ["tenant"]), ["tenant"], top=1, currency="CNY"))["rest"]
    assert isinstance(rest, dict)
    assert 1 == rest["cost_micro"]


def test_amounts_and_ratios_are_written_plainly() -> None:
    """Two to six decimals; a dash where there is nothing."""
    assert ["0.00", "0.000001", "1.50", "-2.05", "1234567.891234"] == [
        money_text(each) for each in (0, 1, 1_500_000, -2_050_000, 1_234_567_891_234)
    ]
    assert ["-", "12.3 %", "-0.5 %"] == [ratio_text(each) for each in (None, 0.1234, -0.005)]
    assert "-1,234,567.89" == money_text(-1_234_567_890_000, grouped=True)
    assert "模型  a\nx     1\n" == table([("模型", "a"), ("x", "1")])
    assert "a?[2J  1\n" == table([("a\x1b[2J", "1")]), "names are clients' words: none steers the terminal"
    assert "'=1+1,-5,'+x\n" == csv_text([("=1+1", "-5", "+x")])


@given(st.lists(st.tuples(st.sampled_from("abcdef"), st.integers(0, 10**12), st.integers(0, 10**6)), max_size=40), st.integers(0, 8))
def test_law_what_is_shown_is_all_there_is(parts: list[tuple[str, int, int]], top: int) -> None:
    """However it is cut, the rows and the rest make the total."""
    calls = [call(name, cost, Usage(tokens, 1)) for name, cost, tokens in parts]
    report = usage_report(usage_rows(calls, ["tenant"]), ["tenant"], top=top, currency="USD")
    shown = [*report.rows, *([report.rest] if report.rest is not None else [])]
    assert sum(each.amount_micro for each in calls) == report.total.amount_micro == sum(row.amount_micro for row in shown)
    assert len(calls) == sum(row.calls for row in shown)
