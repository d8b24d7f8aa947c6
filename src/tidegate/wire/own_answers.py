"""Answers that no model made, in the shape that the client asked for: whole or as a stream, chat or completion, one or several choices.

They cost nothing: `usage` is zeros. `model` is the name that was asked for, so that clients which check it are content; what the answer
really is stands in the header `x-tidegate-degraded`. Also what must be known of a request for it: the question in it, and whether words
will do as an answer.
"""

from __future__ import annotations

import msgspec

from tidegate.domain.request import Operation, ParsedRequest
from tidegate.wire.request_heads import COMPLETION, TEXT, TEXTS

LONGEST_QUESTION = 2_000
"""Characters of a question that are looked at: known questions are short, and this much is searched in microseconds."""
MAX_CHOICES = 2_048
"""OpenAI takes this many prompts in one request. One that asks for more answers gets this many: 128 of each of 10,000 prompts would be a
gigabyte of equal answers."""

_USAGE = {"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0}
_DONE = b"data: [DONE]\n\n"


def encode_prepared(request: ParsedRequest, text: str, *, request_id: str, created: int) -> bytes:
    """Write the whole body of a response: JSON, or, when the client asked for a stream, all events of one up to `[DONE]`.

    `created` is in seconds since the epoch.
    """
    assert request.operation in (Operation.CHAT, Operation.COMPLETION), "only these have an answer in words"
    count = min(_choices(request), MAX_CHOICES)
    text = text.encode("utf-8", "replace").decode("utf-8")  # lone surrogates cannot be sent
    chat = request.operation is Operation.CHAT
    head: dict[str, object] = {
        "id": f"{'chatcmpl' if chat else 'cmpl'}-{request_id}",
        "object": "chat.completion" if chat else "text_completion",
        "created": created,
        "model": request.model,
    }
    if not request.stream:
        return msgspec.json.encode(head | {"choices": [_choice(index, text, chat=chat) for index in range(count)], "usage": _USAGE})
    if chat:
        head["object"] = "chat.completion.chunk"
    return b"".join(_events(request, head, text, count))


def _choices(request: ParsedRequest) -> int:
    """Give how many answers a response has. A completion's `best_of` makes more than are returned."""
    if request.operation is Operation.CHAT:
        return request.choices
    asked = COMPLETION.decode(request.body)
    generated = max(asked.n or 1, asked.best_of or 1)
    return (asked.n or 1) * (request.choices // generated)


def _choice(index: int, text: str, *, chat: bool) -> dict[str, object]:
    content: dict[str, object] = {"message": {"role": "assistant", "content": text, "refusal": None}} if chat else {"text": text}
    return {"index": index, **content, "logprobs": None, "finish_reason": "stop"}


def _events(request: ParsedRequest, head: dict[str, object], text: str, count: int) -> list[bytes]:
    chat = request.operation is Operation.CHAT
    parts: list[tuple[dict[str, object], str | None]]
    if chat:
        parts = [
            ({"delta": {"role": "assistant", "content": "", "refusal": None}}, None),
            ({"delta": {"content": text}}, None),
            ({"delta": {}}, "stop"),
        ]
    else:
        parts = [({"text": text}, None), ({"text": ""}, "stop")]
    later = {"usage": None} if request.wants_usage else {}
    events = []
    for content, finish_reason in parts:
        for index in range(count):
            choice = {"index": index, **content, "logprobs": None, "finish_reason": finish_reason}
            events.append(_event(head | {"choices": [choice]} | later))
    if request.wants_usage:
        events.append(_event(head | {"choices": [], "usage": _USAGE}))
    events.append(_DONE)
    return events


def _event(chunk: dict[str, object]) -> bytes:
    return b"data: %b\n\n" % msgspec.json.encode(chunk)


# ── what was asked ──────────────────────────────────────────────────────────────


class _Format(msgspec.Struct, gc=False):
    type: object = None


class _Wishes(msgspec.Struct, gc=False):
    response_format: _Format | None = None
    tool_choice: object = None


_WISHES = msgspec.json.Decoder(_Wishes)


def takes_words(request: ParsedRequest) -> bool:
    """Tell whether a sentence would answer this request: not when it demands JSON or a tool call; an error serves such a client better."""
    try:
        wishes = _WISHES.decode(request.body)
    except (msgspec.DecodeError, RecursionError):
        return True  # of odd types: then nothing that we know of was demanded
    demanded = wishes.response_format is not None and wishes.response_format.type not in (None, "text")
    return not demanded and wishes.tool_choice in (None, "none", "auto")


class _Turn(msgspec.Struct, gc=False):
    role: str = ""
    content: msgspec.Raw = msgspec.Raw()


class _Conversation(msgspec.Struct, gc=False):
    messages: list[_Turn]


class _Part(msgspec.Struct, gc=False):
    text: object = None


_CONVERSATION = msgspec.json.Decoder(_Conversation)
_PARTS = msgspec.json.Decoder(list[_Part])


def question_of(request: ParsedRequest) -> str:
    """Give the text of the last user message, or of the last prompt of a completion; its first `LONGEST_QUESTION` characters.

    Text parts are joined by line ends. Empty when there is no text: a picture alone, a prompt of token ids.
    """
    try:
        raw = COMPLETION.decode(request.body).prompt if request.operation is Operation.COMPLETION else _last_user_content(request.body)
        return _text_of(raw).strip()[:LONGEST_QUESTION]
    except (msgspec.DecodeError, RecursionError):  # what the upstream would have judged, or a request without a prompt
        return ""


def _last_user_content(body: bytes) -> msgspec.Raw:
    turns = _CONVERSATION.decode(body).messages
    return next((turn.content for turn in reversed(turns) if turn.role == "user"), msgspec.Raw(b'""'))


def _text_of(raw: msgspec.Raw) -> str:
    """Read a string, the text parts of a multimodal message, or the last of several prompts."""
    encoded = bytes(raw)
    if not encoded.startswith(b"["):
        return TEXT.decode(raw)
    if encoded[1:].lstrip().startswith(b'"'):
        return TEXTS.decode(raw)[-1]
    texts = [part.text for part in _PARTS.decode(raw)]
    return "\n".join(text for text in texts if isinstance(text, str) and text)
