"""Reads a rule file (a JSON decision model, JDM) and says what is wrong with it, in the words of the person who wrote the table.

The engine itself is lenient where that would hurt here: a cell that it cannot read simply never matches, which nobody would notice before
the outage in which the answer was wanted. So every expression is checked. Nodes that run programs or other files are refused: a decision
is made on the event loop, where nothing may take long.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from msgspec import DecodeError, json

from tidegate.errors import ConfigurationError

MAX_FILE_BYTES = 1_048_576
"""Some thousand answers; the table is gone through for every question."""

_NODES = ("inputNode", "decisionTableNode", "expressionNode", "switchNode", "outputNode")
_SHOWN_CHARS = 60

Faulty = Callable[[str], str | None]
"""Tells what is wrong with an expression; None when it can be read."""


def read_model(path: str, *, cell: Faulty, value: Faulty) -> str:
    """Read and check a file; `ConfigurationError` with the first fault. `cell` judges conditions of a table, `value` whole expressions."""
    text = _read(path)
    try:
        model = json.decode(text)
    except (DecodeError, RecursionError) as error:
        raise _fault(path, f"it is not JSON ({error})", "save the decision model from its editor again") from None
    if not isinstance(model, dict) or not isinstance(model.get("nodes"), list) or not isinstance(model.get("edges"), list):
        raise _fault(path, "it has no lists of nodes and edges", "save it from the editor as a JSON decision model (a graph)")
    reached = {str(edge.get("targetId")) for edge in _objects(model["edges"])}
    nodes = _objects(model["nodes"])
    for node in nodes:
        _check_node(path, node, reached, cell=cell, value=value)
    if not any(_sets_answer(node.get("content")) for node in nodes):
        raise _fault(path, "nothing in it sets a field called answer", "let the output column of the table set the field answer")
    return text


def _read(path: str) -> str:
    try:
        with Path(path).open("rb") as file:
            content = file.read(MAX_FILE_BYTES + 1)
    except OSError as error:
        raise _fault(path, f"it cannot be read ({error.strerror})", "check the path and its permissions") from None
    if len(content) > MAX_FILE_BYTES:
        raise _fault(path, f"it is larger than {MAX_FILE_BYTES:,} bytes", "keep to the questions that are asked most")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise _fault(path, f"it is not UTF-8 (byte {error.start})", "save it as UTF-8") from None


def _check_node(path: str, node: dict[str, Any], reached: set[str], *, cell: Faulty, value: Faulty) -> None:
    kind, name = node.get("type"), str(node.get("name") or node.get("id"))
    if kind not in _NODES:
        allowed = ", ".join(_NODES)
        raise _fault(path, f'the node "{name}" has the type {_shown(str(kind))}', f"an answer must be found at once: use only {allowed}")
    if kind != "inputNode" and str(node.get("id")) not in reached:
        raise _fault(path, f'no edge leads to the node "{name}", so it has no effect', "connect it in the editor, or delete it")
    content = node.get("content")
    if not isinstance(content, dict):
        return
    for where, expression, faulty in _expressions(content, cell=cell, value=value):
        reason = faulty(expression)
        if reason is not None:
            place = f'{where} of the node "{name}": {_shown(expression)}'
            raise _fault(path, f"{place} cannot be read ({reason})", "texts stand in quotes, for example contains(question, 'refund')")


def _expressions(content: dict[str, Any], *, cell: Faulty, value: Faulty) -> Iterator[tuple[str, str, Faulty]]:
    """Find every expression of a node, where it is, and what judges it."""
    for number, rule in enumerate(_objects(content.get("rules")), start=1):
        for columns, of_condition in (("inputs", True), ("outputs", False)):
            for column in _objects(content.get(columns)):
                written = rule.get(str(column.get("id")))
                if isinstance(written, str) and written.strip():
                    field = column.get("field")
                    judge = cell if of_condition and field else value
                    yield f'row {number}, column "{column.get("name") or field}"', written, judge
    for number, line in enumerate(_objects(content.get("expressions")), start=1):
        if isinstance(line.get("value"), str):
            yield f'line {number} ("{line.get("key")}")', line["value"], value
    for number, branch in enumerate(_objects(content.get("statements")), start=1):
        condition = branch.get("condition")
        if isinstance(condition, str) and condition.strip():
            yield f"branch {number}", condition, value


def _sets_answer(content: object) -> bool:
    """Tell whether a node has a column or a line called `answer`."""
    if not isinstance(content, dict):
        return False
    named = [column.get("field") for column in _objects(content.get("outputs"))]
    return "answer" in named or any(line.get("key") == "answer" for line in _objects(content.get("expressions")))


def _objects(value: object) -> list[dict[str, Any]]:
    return [entry for entry in value if isinstance(entry, dict)] if isinstance(value, list) else []


def _shown(text: str) -> str:
    return text if len(text) <= _SHOWN_CHARS else f"{text[:_SHOWN_CHARS]}…"


def _fault(path: str, message: str, hint: str) -> ConfigurationError:
    return ConfigurationError(f"degradation.rules_file {path} cannot be used: {message}; {hint}")
