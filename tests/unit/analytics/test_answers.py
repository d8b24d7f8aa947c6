"""How answers look, and what a failed question is told."""

from __future__ import annotations

import json

import pytest

from tidegate.analytics.answers import advice, cell, csv_of, is_figure, json_text, nearest
from tidegate.analytics.asking import QueryAnswer, Value
from tidegate.analytics.scope import Section

ANSWER = QueryAnswer(
    ("name", "share", "many", "said", "pairs", "is_so"),
    ("String", "Float64", "Array(String)", "Nullable(String)", "Map(String, String)", "Bool"),
    (("=1+1", 0.5, ["a", "b"], None, {"k": "v"}, True), ("x", 2.0, [], "s", {}, False)),
    truncated=True,
    elapsed_s=0.25,
    rows_read=7,
)


@pytest.mark.parametrize(
    ("column", "value", "expected"),
    [
        ("requests", 1234567, "1,234,567"),
        ("status", 1234, "1234"),
        ("prompt_tokens", 1234, "1,234"),
        ("failed_ratio", 0.01234, "1.23 %"),
        ("share", 0.5, "50.00 %"),
        ("duration_s", 0.0123456, "0.01235"),
        ("cost", 12345.678, "12,345.68"),
        ("cost", 0.0, "0"),
        ("cost", 0.00001, "0.00001"),
        ("cost", 0.0000123456, "0.00001235"),
        ("cost", 1.23456e-9, "1.23e-09"),
        ("stream", True, "yes"),
        ("stream", False, "no"),
        ("ttft_s", None, "-"),
        ("users", ["a", "b\x1b[2J"], "a, b?[2J"),
        ("context", {"a": "b\x07"}, "a=b?"),
        ("tenant", "a\nb\x1b[31m", "a?b?[31m"),
    ],
)
def test_cells_are_rounded_and_cannot_steer_a_terminal(column: str, value: Value, expected: str) -> None:
    """By what the column's name says of its unit."""
    assert expected == cell(column, value)


def test_json_has_rows_as_objects() -> None:
    """With what is told about the answer as a whole."""
    document = json.loads(json_text("q", (Section("t", ANSWER, "So it is."), Section("u"))))
    assert "q" == document["question"]
    first, second = document["sections"]
    assert {"name": "x", "share": 2.0, "many": [], "said": "s", "pairs": {}, "is_so": False} == first["rows"][1]
    assert ("So it is.", True, 0.25, 7) == tuple(first[name] for name in ("sentence", "truncated", "elapsed_s", "rows_read"))
    assert "sentence" not in second


def test_csv_has_no_formulas() -> None:
    """Nothing is empty; lists and maps are JSON; sections have an empty line between."""
    expected = 'name,share,many,said,pairs,is_so\n\'=1+1,0.5,"[""a"",""b""]",,"{""k"":""v""}",true\nx,2.0,[],s,{},false\n'
    assert f"{expected}\n{expected}" == csv_of((Section("a", ANSWER), Section("b", ANSWER)))


@pytest.mark.parametrize(
    ("error", "said"),
    [
        ("Unknown expression identifier `tenat` in scope SELECT", "Did you mean tenant?"),
        ("Unknown function `zzzz`", "`tidegate query columns` lists"),
        ("Timeout exceeded: elapsed 10 seconds. (TIMEOUT_EXCEEDED)", "--deadline"),
        ("Query memory limit exceeded. (MEMORY_LIMIT_EXCEEDED)", "group by less"),
        ("Something else.", "Something else."),
    ],
)
def test_a_failure_says_what_to_do(error: str, said: str) -> None:
    """In words of the command line."""
    assert said in advice(error)


def test_figures_stand_to_the_right() -> None:
    """By their type."""
    assert [True, True, True, False] == [is_figure(kind) for kind in ("UInt64", "Nullable(Float64)", "Decimal(9, 2)", "Array(UInt8)")]


def test_the_nearest_name_is_given_or_all() -> None:
    """As a sentence."""
    assert 'Did you mean "cost"?' == nearest("cots", ["cost", "cache"])
    assert "There are: cost, cache." == nearest("zzz", ["cost", "cache"])
