"""From a model name to its route. The choice of a replica is in `tests/unit/routing`."""

from __future__ import annotations

from tidegate.domain.upstream import Route
from tidegate.policy.routing.routes import RouteTable


def test_the_first_matching_pattern_wins_and_answers_are_remembered() -> None:
    """Order is the configuration's; a second look gives the same."""
    exact, wide = Route("qwen3", ()), Route("qwen*", ())
    table = RouteTable([exact, wide], ["qwen3"])
    assert table.match("qwen3") is exact
    assert table.match("qwen3") is exact
    assert table.match("qwen-max") is wide
    assert table.match("gpt") is None
    assert repr(table) == "RouteTable(qwen3, qwen*)"


def test_invented_model_names_do_not_grow_the_memory_for_ever() -> None:
    """Names chosen by clients cannot fill the memory: the answers kept are bounded."""
    table = RouteTable([Route("*", ())], [])
    for number in range(10_000):
        table.match(f"invented-{number}")
        table.allows((f"p{number}",), "m")
    assert len(table._memory) <= 4096
    assert len(table._permissions) <= 4096


def test_a_caller_may_use_the_models_its_patterns_name() -> None:
    """A star allows all; patterns allow what they match; none allow nothing."""
    table = RouteTable([], [])
    assert table.allows(("*",), "anything")
    assert table.allows(("qwen*", "gpt-4o"), "qwen3")
    assert table.allows(("qwen*", "gpt-4o"), "gpt-4o")
    assert not table.allows(("qwen*", "gpt-4o"), "gpt-4")
    assert not table.allows((), "m")
