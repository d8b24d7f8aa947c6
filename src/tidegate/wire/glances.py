"""What of an upstream's answer, or of one event of its stream, is looked at: types, and a decoder for each; the rest is skipped, not built.

Members are typed loosely, since servers are: `lenient` judges them. Kept apart from what is done with them: msgspec makes these classes.
"""

from __future__ import annotations

import msgspec
from msgspec import UNSET


class AnswerChoice(msgspec.Struct, gc=False):
    finish_reason: object = None


class AnswerHead(msgspec.Struct, gc=False):
    """The small members of an answer; texts and vectors are skipped, not built."""

    id: object = None
    model: object = None
    choices: list[AnswerChoice] | None = None
    usage: object = None
    error: object = None
    code: object = None
    message: object = None
    timings: object = None
    has_vectors: msgspec.Raw = msgspec.field(default=msgspec.Raw(), name="data")


ANSWER = msgspec.json.Decoder(AnswerHead)


_NO_TEXT = msgspec.Raw(b'""')


class FunctionGlance(msgspec.Struct, gc=False):
    arguments: msgspec.Raw = _NO_TEXT


class ToolCallGlance(msgspec.Struct, gc=False):
    function: FunctionGlance | None = None


class DeltaGlance(msgspec.Struct, gc=False):
    """The texts stay raw: their size is looked at, not what they say."""

    content: msgspec.Raw = _NO_TEXT
    reasoning_content: msgspec.Raw = _NO_TEXT
    reasoning: msgspec.Raw = _NO_TEXT
    tool_calls: list[ToolCallGlance] | None = None


class ChoiceGlance(msgspec.Struct, gc=False):
    index: int = 0
    finish_reason: object = None
    delta: DeltaGlance | None = None
    text: msgspec.Raw = _NO_TEXT


class StreamGlance(msgspec.Struct, gc=False):
    choices: list[ChoiceGlance] = []
    usage: object = UNSET
    error: object = None


STREAM = msgspec.json.Decoder(StreamGlance)
