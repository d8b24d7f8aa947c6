"""Judges what an answer says by what its scenario asks for: JSON, JSON of a schema, a pattern.

Done in the client process, so that no text has to leave it. What is asked is compiled once.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

import msgspec

from tidegate.bench.bodies import UnusableRequestsError
from tidegate.bench.outcome import Reason
from tidegate.bench.plan import Scenario

_FENCE: Final = re.compile(r"\A\s*```(?:json)?\s*\n(.*?)\n?\s*```\s*\Z", re.DOTALL)
"""JSON in a Markdown fence is JSON to every application that asks a model for it."""

_decode_json = msgspec.json.Decoder().decode


class TextCheck:
    """What the answers of one scenario are held against."""

    __slots__ = ("_pattern", "_satisfies", "_wants_json", "is_needed")

    def __init__(self, scenario: Scenario) -> None:
        """Compile; raise `UnusableRequestsError` for what is no pattern or no schema."""
        try:
            self._pattern = re.compile(scenario.require) if scenario.require is not None else None
        except re.error as problem:
            raise UnusableRequestsError(f"What {scenario.name} requires is no regular expression: {problem}. Correct it.") from problem
        self._wants_json = scenario.json_schema is not None
        self._satisfies = _satisfies(scenario)
        self.is_needed = self._wants_json or self._pattern is not None
        """Without it nobody needs to keep the text."""

    def faults(self, text: str) -> tuple[str, ...]:
        """Name what is wrong with an answer's text, as `outcome.Reason` does."""
        faults: list[str] = []
        if self._wants_json:
            fenced = _FENCE.match(text)
            try:
                content = _decode_json(fenced[1] if fenced else text)
            except (ValueError, RecursionError):  # half an emoji is no JSON either
                faults.append(Reason.INVALID_JSON.value)
            else:
                if self._satisfies is not None and not self._satisfies(content):
                    faults.append(Reason.SCHEMA_MISMATCH.value)
        if self._pattern is not None and self._pattern.search(text) is None:
            faults.append(Reason.PATTERN_MISSING.value)
        return tuple(faults)


def _satisfies(scenario: Scenario) -> Callable[[object], bool] | None:
    """Compile the schema; None where there is none, or where any JSON satisfies it."""
    if scenario.json_schema is None:
        return None
    try:
        schema = _decode_json(scenario.json_schema)
        if schema == {}:
            return None
        import jsonschema_rs
    except ImportError as problem:
        raise UnusableRequestsError(
            f"The JSON Schema of {scenario.name} needs the package jsonschema-rs. Install it: pip install 'tidegate[bench]'"
        ) from problem
    except msgspec.DecodeError as problem:
        raise UnusableRequestsError(f"The JSON Schema of {scenario.name} is not JSON: {problem}. Correct it.") from problem
    try:
        is_valid: Callable[[object], bool] = jsonschema_rs.validator_for(schema).is_valid
    except ValueError as problem:
        raise UnusableRequestsError(f"The JSON Schema of {scenario.name} is none: {problem}. Correct it.") from problem
    return is_valid
