"""What a scenario wants of a text, compiled and applied."""

import pytest

from tidegate.bench.bodies import UnusableRequestsError
from tidegate.bench.plan import Scenario
from tidegate.bench.text_checks import TextCheck


def check(**wants: str) -> TextCheck:
    return TextCheck(Scenario("s", texts=("x",), **wants))  # type: ignore[arg-type]


def test_nothing_wanted_is_nothing_kept() -> None:
    """Nobody needs the text then."""
    assert (False, ()) == (check().is_needed, check().faults("anything"))


@pytest.mark.parametrize(
    ("text", "faults"),
    [
        ('{"a": 1}', ()),
        ('```json\n{"a": 1}\n```', ()),
        ("[1, 2]", ()),
        ("Sure! {}", ("invalid_json",)),
        ("[" * 5_000, ("invalid_json",)),
        ("", ("invalid_json",)),
    ],
)
def test_json_of_any_kind(text: str, faults: tuple[str, ...]) -> None:
    """The empty schema asks for no more; a Markdown fence is forgiven."""
    assert faults == check(json_schema="{}").faults(text)


def test_a_schema_is_held_to() -> None:
    """By a library that knows all of it."""
    wanted = check(json_schema='{"type":"object","properties":{"n":{"type":"integer","minimum":3}},"required":["n"]}')
    assert [(), ("schema_mismatch",), ("schema_mismatch",)] == [wanted.faults(text) for text in ('{"n":3}', '{"n":2}', "{}")]


def test_a_pattern_may_be_anywhere() -> None:
    """As `search` finds it."""
    assert [(), ("pattern_missing",)] == [check(require="[Tt]ide").faults(text) for text in ("The Tide", "ebb")]


@pytest.mark.parametrize("wants", [{"require": "("}, {"json_schema": "{"}, {"json_schema": '{"type":"nonsense"}'}])
def test_what_cannot_be_checked_is_said_before_the_run(wants: dict[str, str]) -> None:
    """With the scenario's name."""
    with pytest.raises(UnusableRequestsError, match=r"of s |What s "):
        check(**wants)
