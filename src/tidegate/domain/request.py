"""What a client asked for, after parsing: a typed head over the untouched body."""

from __future__ import annotations

import re
from enum import StrEnum

import msgspec

from tidegate.domain.units import ModelName

_COLOR = re.compile(r"[A-Za-z0-9._-]{1,64}")


class Operation(StrEnum):
    CHAT = "chat"
    COMPLETION = "completion"
    EMBEDDING = "embedding"
    MODELS = "models"
    MODEL = "model"
    TOKENIZE = "tokenize"
    COUNT_MESSAGES = "count_messages"
    """Anthropic's `/v1/messages/count_tokens`."""
    COUNT_RESPONSES = "count_responses"
    """OpenAI's `/v1/responses/input_tokens`."""
    ESTIMATE = "estimate"
    """What a chat request will cost; its body is a chat request's, and is parsed as one."""

    @property
    def is_call(self) -> bool:
        """True when an upstream answers it; the others are answered by the gateway itself."""
        return self in _CALLS

    @property
    def is_count(self) -> bool:
        """True when the answer is made of the prompt's count, and no model is called."""
        return self in _COUNTS


_CALLS = frozenset({Operation.CHAT, Operation.COMPLETION, Operation.EMBEDDING})
_COUNTS = frozenset({Operation.TOKENIZE, Operation.COUNT_MESSAGES, Operation.COUNT_RESPONSES, Operation.ESTIMATE})


def is_color(text: str) -> bool:
    """Tell whether a text can be the colour of traffic: one plain word, so that it looks the same wherever it is read."""
    return _COLOR.fullmatch(text) is not None


class ParsedRequest(msgspec.Struct, frozen=True):
    """One request body with the fields that decisions need; everything else stays in `body`."""

    operation: Operation
    model: ModelName
    body: bytes
    stream: bool = False
    wants_usage: bool = False
    """The client itself set `stream_options.include_usage`."""
    max_completion_tokens: int | None = None
    """The larger of the client's caps; tokens per choice."""
    choices: int = 1
    """`n`: answers generated per prompt; for `/v1/completions` times the number of prompts."""
    prompt_tokens_bound: int = 0
    """Proven upper bound on the prompt's tokens: a byte-level tokenizer never makes more tokens than UTF-8 bytes."""


class BodyChanges(msgspec.Struct, frozen=True):
    """What a policy changes in a request on its way to an upstream; None leaves a member as it is."""

    max_completion_tokens: int | None = None
    """A cap to send: never above the client's own."""
    temperature: float | None = None
    """Likewise: a lower one of the client's stays."""
