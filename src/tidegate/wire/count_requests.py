"""Requests that only ask for a count, in Anthropic's and OpenAI's shapes: the little that decisions need of their bodies, and the answers.

The bodies themselves are read where they are counted (`anthropic_messages`, `responses_input`): one of a million tokens takes milliseconds.
No bound on their prompts is given here, since nothing is held for them.
"""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from tidegate.domain.request import Operation, ParsedRequest
from tidegate.domain.units import ModelName
from tidegate.ports import TokenCount
from tidegate.wire.openai_response import token_count_answer
from tidegate.wire.request_heads import MAX_MODEL_CHARS

_Model = Annotated[str, Meta(min_length=1, max_length=MAX_MODEL_CHARS)]


class _Turn(msgspec.Struct, gc=False):
    role: Annotated[str, Meta(min_length=1)]


class _MessagesHead(msgspec.Struct, gc=False):
    model: _Model
    messages: Annotated[list[_Turn], Meta(min_length=1)]


class _ResponsesHead(msgspec.Struct, gc=False):
    model: _Model
    input: str | list[msgspec.Raw] | None = None


_MESSAGES = msgspec.json.Decoder(_MessagesHead)
_RESPONSES = msgspec.json.Decoder(_ResponsesHead)


def parse_count_request(operation: Operation, body: bytes) -> ParsedRequest:
    """Read a request for a count; raise what the decoder raises, for whoever words refusals."""
    head = _MESSAGES.decode(body) if operation is Operation.COUNT_MESSAGES else _RESPONSES.decode(body)
    return ParsedRequest(operation=operation, model=ModelName(head.model), body=body)


def count_answer(operation: Operation, count: TokenCount) -> bytes:
    """Write a count in the shape that the operation's clients expect."""
    if operation is Operation.COUNT_MESSAGES:
        return msgspec.json.encode({"input_tokens": count.prompt_tokens})
    if operation is Operation.COUNT_RESPONSES:
        return msgspec.json.encode({"object": "response.input_tokens", "input_tokens": count.prompt_tokens})
    return token_count_answer(count, None)
