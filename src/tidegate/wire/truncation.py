"""The end of a stream that the gateway itself stops, because a limit on tokens, or a budget, has nothing left for it.

It is what a model server writes when a length limit is reached: for every choice that is still open a chunk with `finish_reason: "length"`,
the usage if the client asked for it, and `[DONE]`, which is not forged, since it is the gateway that ends this answer. Every chunk of it
says so: `"tidegate": {"reason": "token_limit", "rule": …}`; the reason may be `budget` too. Id, model and time are those that the stream
had so far; what the upstream left out stays left out.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from tidegate.domain.outcome import FinishReason
from tidegate.domain.request import Operation
from tidegate.domain.usage import Usage

_DONE = b"data: [DONE]\n\n"


class StreamHead(msgspec.Struct, frozen=True):
    """What all chunks of a stream have in common."""

    operation: Operation
    id: str | None
    created: int | None
    model: str | None


def encode_truncation(head: StreamHead, open_choices: Iterable[int], usage: Usage | None, *, reason: str, rule: str) -> bytes:
    """Write the events that end a stream well. `usage` is for a client that asked for it."""
    chat = head.operation is Operation.CHAT
    known = {"id": head.id, "created": head.created, "model": head.model}
    chunk: dict[str, object] = {name: value for name, value in known.items() if value is not None}
    chunk["object"] = "chat.completion.chunk" if chat else "text_completion"
    chunk["tidegate"] = {"reason": reason, "rule": rule}
    nothing_more: dict[str, object] = {"delta": {}} if chat else {"text": ""}
    later = {} if usage is None else {"usage": None}
    events = [
        _event(chunk | {"choices": [{"index": index, **nothing_more, "logprobs": None, "finish_reason": FinishReason.LENGTH}]} | later)
        for index in open_choices
    ]
    if usage is not None:
        events.append(_event(chunk | {"choices": [], "usage": _figures(usage)}))
    return b"".join((*events, _DONE))


def _figures(usage: Usage) -> dict[str, int]:
    return {
        "prompt_tokens": usage.prompt_tokens,
        "completion_tokens": usage.completion_tokens,
        "total_tokens": usage.total_tokens,
    }


def _event(chunk: dict[str, object]) -> bytes:
    return b"data: %b\n\n" % msgspec.json.encode(chunk)
