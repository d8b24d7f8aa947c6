"""A provider's figures beside ours."""

from __future__ import annotations

import json
import re
from pathlib import Path

import msgspec
import pytest

from tidegate.billing.calls import BilledCall
from tidegate.billing.reconcile import (
    COLUMNS,
    Comparison,
    Export,
    Figures,
    days_of,
    our_figures,
    read_export,
    reconcile,
    reconciliation_csv,
    reconciliation_json,
    reconciliation_text,
)
from tidegate.domain.books import Dimensions
from tidegate.domain.units import TenantId
from tidegate.domain.usage import Evidence, Usage
from tidegate.errors import ConfigurationError

NOVEMBER = 1_793_491_200.0  # 2026-11-01
DAY = 86_400.0
OPENROUTER = """\
date,model,model_permaslug,usage,requests,prompt_tokens,completion_tokens,reasoning_tokens
2026-11-01,qwen/qwen3.6-plus,qwen/qwen3.6-plus-0402,0.0012,2,100,20,5
2026-11-02,qwen/qwen3.6-plus,qwen/qwen3.6-plus-0402,0.0006,1,50,10,0
"""
OPENAI = """\
start_time,start_time_iso,model,num_model_requests,input_tokens,output_tokens
1793491200,2026-11-01T00:00:00+00:00,gpt-4o,2,100,20
"""


def call(at: float, cost: int, usage: Usage, model: str = "qwen3.6-plus") -> BilledCall:
    return BilledCall(at, TenantId("t"), cost, Evidence.REPORTED, "1", usage, Dimensions(model=model))


def test_exports_are_read_by_the_names_of_their_columns() -> None:
    """Vendors' parts of model names are left out."""
    expected = {("2026-11-01", "qwen3.6-plus"): Figures(120, 1200), ("2026-11-02", "qwen3.6-plus"): Figures(60, 600)}
    assert Export(expected, True) == read_export(OPENROUTER, name="x.csv")
    assert Export({("2026-11-01", "gpt-4o"): Figures(120)}, False) == read_export(OPENAI, name="x.csv")


@pytest.mark.parametrize(
    ("day", "tokens", "cost"),
    [
        ("2026-11-01", "1,200", "$1.50"),
        ("2026/11/01", "1200", "¥ 1.5"),
        ("2026-11-01 23:59:59 UTC", "1200", "1.5"),
        ("2026-11-02T01:00:00+08:00", " 1200 ", "1.50000"),
        ("1793491200", "1200", "1.5"),
        ("1793491200123", "1200.0", "15e-1"),
    ],
)
def test_cells_are_read_in_the_spellings_of_spreadsheets(day: str, tokens: str, cost: str) -> None:
    """Days are UTC's; empty lines and empty cells are nothing."""
    text = f'\ufeffUsage Date,Model Name,Total Tokens,Cost (USD)\n"{day}",M,"{tokens}","{cost}"\n\n{day},m,,\n'
    assert Export({("2026-11-01", "m"): Figures(1200, 1_500_000)}, True) == read_export(text, name="x.csv")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "no column for the day"),
        ("date,tokens\n", "no column for the model"),
        ("date,model,cost\n", "no column for the input"),
        ("date,model,tokens\nyesterday,m,1\n", 'x.csv, line 2: "yesterday" is not a day'),
        ("date,model,tokens\n2026-11-01,m,many\n", 'x.csv, line 2: "many" is not a number'),
        ("date,model,tokens\n2026-11-01,m,1e99\n", 'x.csv, line 2: "1e99" is not a number'),
        ("date,model,tokens\n2026-11-01,m,nan\n", "is not a number"),
        ("date,model,tokens\n2026-11-01\n2026,m,1\n", "is not a day"),
        ("date,model,tokens\n0001-01-01,m,1\n", '"0001-01-01" is not a day'),
        ("date,model,tokens\n0001-01-01T00:00+14:00,m,1\n", "is not a day"),
        ("date,model,tokens\n9999-12-31,m,1\n", '"9999-12-31" is not a day'),
        ("date;model;tokens\n2026-11-01;m;1\n", "Columns are separated by commas."),
        (f"date,model,tokens\n2026-11-01,{'m' * 200_000},1\n", "x.csv, line 2: this is no CSV (field larger than field limit (131072))"),
        ('date,model,tokens,cost\n2026-11-01,m,1,"0,5"\n', '"0,5" is not a number; write it like 1234.56 or 1,234.56.'),
        ('date,model,tokens\n2026-11-01,m,"1.000,5"\n', '"1.000,5" is not a number'),
    ],
)
def test_what_cannot_be_read_is_said(text: str, message: str) -> None:
    """With the line, or the names that would be known."""
    with pytest.raises(ConfigurationError, match=r"x\.csv") as caught:
        read_export(text, name="x.csv")
    assert message in caught.value.message


def test_models_that_agree_are_within_the_tolerance() -> None:
    """A day's drift is evened out by the next: only sums are judged."""
    ours = our_figures([call(NOVEMBER, 1300, Usage(110, 20)), call(NOVEMBER + DAY, 500, Usage(41, 10))])
    found = reconcile(read_export(OPENROUTER, name="x"), ours, tolerance=0.01)
    assert () == found.beyond
    assert (Comparison("", "qwen3.6-plus", Figures(180, 1800), Figures(181, 1800)),) == found.models
    assert [10 / 120, -9 / 60] == [each.tokens_ratio for each in found.days]


def test_a_model_that_drifts_is_named() -> None:
    """In tokens, or in cost alone; what only one side knows drifts without end, but only on the days of the export."""
    export = read_export(OPENROUTER, name="x")
    whole = our_figures([call(NOVEMBER, 1800, Usage(160, 20))])
    assert () == reconcile(export, whole, tolerance=0.0).beyond
    assert ("qwen3.6-plus",) == reconcile(export, our_figures([call(NOVEMBER, 1900, Usage(160, 20))]), tolerance=0.05).beyond
    assert ("qwen3.6-plus",) == reconcile(export, {}, tolerance=0.5).beyond
    more = whole | our_figures([call(NOVEMBER, 0, Usage(1, 0), "max"), call(NOVEMBER + 2 * DAY, 0, Usage(1, 0), "later")])
    found = reconcile(export, more, tolerance=0.01)
    assert ("max",) == found.beyond
    assert [None, 0.0] == [each.tokens_ratio for each in found.models]


def test_their_names_may_be_translated() -> None:
    """An alias joins what we know by another name."""
    ours = our_figures([call(NOVEMBER, 1800, Usage(160, 20), "plus")])
    found = reconcile(read_export(OPENROUTER, name="x"), ours, tolerance=0.0, aliases={"qwen/qwen3.6-plus": "plus"})
    assert () == found.beyond


def test_an_export_covers_its_days() -> None:
    """From the first instant of the first to the last of the last."""
    assert (NOVEMBER, NOVEMBER + 2 * DAY) == days_of(read_export(OPENROUTER, name="x"))
    assert (0.0, 0.0) == days_of(Export({}, False))


def test_a_comparison_is_text_csv_and_json() -> None:
    """Without a cost of theirs there are no columns for it."""
    found = reconcile(read_export(OPENROUTER, name="x"), our_figures([call(NOVEMBER, 1300, Usage(110, 20))]), tolerance=0.01)
    text = reconciliation_text(found)
    assert ["2026-11-01", "qwen3.6-plus", "120", "130", "+10", "8.3", "%", "0.0012", "0.0013", "0.0001", "8.3", "%"] == text.splitlines()[
        1
    ].split()
    assert "1 of 1 models drift by more than 1 %: qwen3.6-plus" == text.splitlines()[-1]
    assert "2026-11-01,qwen3.6-plus,120,130,0.083333,0.0012,0.0013,0.083333" == reconciliation_csv(found).splitlines()[1]
    shown = json.loads(msgspec.json.encode(reconciliation_json(found)))
    assert (["qwen3.6-plus"], -50 / 180) == (shown["beyond"], shown["models"][0]["tokens_ratio"])
    plain = reconcile(read_export(OPENAI, name="x"), {("2026-11-01", "gpt-4o"): Figures(120, 7)}, tolerance=0.01)
    assert "cost" not in reconciliation_text(plain)
    assert "0 of 1 models drift" in reconciliation_text(plain)
    unknown = reconcile(Export({}, True), {}, tolerance=0.01)
    assert () == unknown.models
    only_ours = reconcile(read_export(OPENAI, name="x"), {("2026-11-01", "x"): Figures(1, 1)}, tolerance=0.01)
    assert "2026-11-01,x,0,1,,0.00,0.000001," in reconciliation_csv(only_ours)


def test_the_page_lists_the_columns_that_are_known() -> None:
    """In the order in which they are looked for."""
    page = (Path(__file__).parents[3] / "docs" / "money.md").read_text(encoding="utf-8")
    rows = [re.findall(r"`([^`]+)`", line) for line in page.partition("| figure | names |")[2].splitlines()[2:] if line]
    assert [list(names) for names in COLUMNS.values()] == rows
