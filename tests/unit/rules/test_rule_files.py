"""Files of rules that cannot be used are refused, each with its place and what to do."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tidegate.adapters.rules.model_file import MAX_FILE_BYTES
from tidegate.adapters.rules.zen import open_rule_book
from tidegate.errors import ConfigurationError

EXAMPLE = json.loads((Path(__file__).resolve().parents[3] / "examples" / "rules" / "faq.json").read_text())
Change = Callable[[Any], object]


def _expression(value: object) -> Change:
    def change(model: Any) -> None:
        model["nodes"][1] |= {"type": "expressionNode", "content": {"expressions": [{"id": "1", "key": "answer", "value": value}]}}

    return change


def _switch(condition: str) -> Change:
    def change(model: Any) -> None:
        statements = [{"id": "s", "condition": condition}, {"id": "t", "condition": ""}]
        model["nodes"].append({"id": "switch", "type": "switchNode", "name": "Which", "content": {"statements": statements}})
        model["edges"].append({"id": "e", "sourceId": "request", "targetId": "switch", "type": "edge"})

    return change


def _table(**content: object) -> Change:
    return lambda model: model["nodes"][1]["content"].update(content)


def _cell(column: str, text: object) -> Change:
    return lambda model: model["nodes"][1]["content"]["rules"][1].update({column: text})


CHANGES: list[tuple[Change, str]] = [
    (
        _cell("words", "contains($, 'can't')"),
        r'row 2, column "The question contains" of the node "Known questions": contains.* cannot be read',
    ),
    (_cell("answer", "Ask for a refund"), r'row 2, column "Answer" of the node "Known questions".*texts stand in quotes'),
    (_expression("'a' +"), r'line 1 \("answer"\) of the node "Known questions".*cannot be read'),
    (_expression("number(question) > 1"), r"Failed to evaluate"),
    (_expression("5"), r"answer is not a text but int"),
    (_switch("question =="), r'branch 1 of the node "Which"'),
    (_expression(5), r"expected a string"),
    (_table(outputs=[{"id": "answer", "name": "Answer", "field": ""}]), r"nothing in it sets a field called answer"),
    (_cell("words", 7), r"expected a string"),
    (_table(hitPolicy="collect"), r"set the hit policy of its table to first"),
    (_table(hitPolicy="fisrt"), r"unknown variant `fisrt`"),
    (_table(inputs="none"), r"expected a sequence"),
    (_table(outputs=[{"id": "answer", "name": "Answer", "field": "reply"}]), r"nothing in it sets a field called answer"),
    (
        lambda model: model["nodes"][1].update(type="functionNode"),
        r'the node "Known questions" has the type functionNode; .* use only inputNode',
    ),
    (lambda model: model["edges"].pop(), r'no edge leads to the node "Response"'),
    (lambda model: model["edges"].append({"id": "x", "sourceId": "questions", "targetId": "questions"}), r"cyclicGraph"),
    (lambda model: model["nodes"].pop(0), r"missingNode"),
    (lambda model: model.pop("edges"), r"it has no lists of nodes and edges"),
    (lambda model: model.update(nodes=[1], edges=[2]), r"nothing in it sets a field called answer"),
    (lambda model: model["nodes"][1].pop("content"), r"nothing in it sets a field called answer"),
]


@pytest.mark.parametrize(("change", "said"), CHANGES)
def test_a_broken_model_is_refused(change: Change, said: str, tmp_path: Path) -> None:
    """With the row and column where there is one: the engine itself would only never match."""
    model = json.loads(json.dumps(EXAMPLE))
    change(model)
    file = tmp_path / "rules.json"
    file.write_text(json.dumps(model))
    with pytest.raises(ConfigurationError, match=said) as refused:
        open_rule_book(str(file))
    assert f"degradation.rules_file {file} cannot be used: " in refused.value.message
    assert "backtrace" not in refused.value.message


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"{", r"it is not JSON"),
        (b"[]", r"it has no lists of nodes and edges"),
        (b"\xff", r"it is not UTF-8 \(byte 0\)"),
        (b" " * (MAX_FILE_BYTES + 1), r"it is larger than 1,048,576 bytes"),
        (None, r"it cannot be read \(No such file or directory\); check the path and its permissions"),
    ],
)
def test_a_file_that_is_no_model_is_refused(content: bytes | None, said: str, tmp_path: Path) -> None:
    """Before the engine sees it."""
    file = tmp_path / "rules.json"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(ConfigurationError, match=said):
        open_rule_book(str(file))


def test_expressions_can_prepare_the_question(tmp_path: Path) -> None:
    """A branch by feature before the answers: a switch and expressions are allowed too."""
    model = json.loads(json.dumps(EXAMPLE))
    _expression("contains(lower(question), 'refund') ? 'page' : ''")(model)
    model["nodes"][2:2] = [
        {
            "id": "switch",
            "type": "switchNode",
            "name": "Feature",
            "content": {"statements": [{"id": "shop", "condition": "feature == 'shop'"}]},
        }
    ]
    model["edges"] = [
        {"id": "a", "sourceId": "request", "targetId": "switch", "type": "edge"},
        {"id": "b", "sourceId": "switch", "targetId": "questions", "sourceHandle": "shop", "type": "edge"},
        {"id": "c", "sourceId": "questions", "targetId": "response", "type": "edge"},
    ]
    file = tmp_path / "rules.json"
    file.write_text(json.dumps(model))
    book = open_rule_book(str(file))
    assert ["page", None, None] == [book.decide(*asked) for asked in (("REFUND", "shop"), ("REFUND", "other"), ("hello", "shop"))]
