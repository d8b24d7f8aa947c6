"""Turns a `Script` and a request into OpenAI-shaped bytes; knows nothing of sockets and clocks.

Deterministic: ids come from the model and the prompt, `created` is fixed, so equal requests give equal bytes. `usage` is the
last key of every chunk that has it.
"""

from __future__ import annotations

import base64
import random
import struct
import zlib
from typing import Any

import msgspec

from tidegate.mock.constructors import words
from tidegate.mock.distribution import draw
from tidegate.mock.playback import Piece
from tidegate.mock.script import Script, UsagePlace

CREATED = 1_700_000_000
_SENTENCE = ("Hello", ",", " wide", " world", ".")
_TYPES = {401: "authentication_error", 403: "permission_error", 429: "rate_limit_error"}
_CODES = {401: "invalid_api_key", 403: "forbidden", 404: "model_not_found", 429: "rate_limit_exceeded"}
_FIGURES_AT_THE_END = {UsagePlace.LAST: 1, UsagePlace.CUMULATIVE: 1, UsagePlace.LATE: 1, UsagePlace.DOUBLED: 2}
"""How many chunks with nothing but usage come after the finish."""
_NULL_BEFORE = {UsagePlace.LAST, UsagePlace.LATE, UsagePlace.DOUBLED, UsagePlace.AFTER_DONE}
"""Reported so, the chunks before have `usage: null`."""

_MOST_CHOICES = 128
"""OpenAI's own ceiling of `n`."""

_encode = msgspec.json.encode


class Asked(msgspec.Struct, frozen=True):
    """The parts of a request that shape its answer."""

    chat: bool
    model: str
    text: str
    """The last message's text, or the first prompt."""
    prompts: int
    choices: int
    """Answers to generate: `n` times the number of prompts."""
    stream: bool
    wants_usage: bool
    cap: int | None


class Deltas(msgspec.Struct, frozen=True):
    """What one choice says: each delta with the number of its tokens, and why it ends."""

    deltas: tuple[tuple[dict[str, object], int], ...]
    text: str
    finish: str
    tokens: int


def read_asked(path: str, request: dict[str, Any]) -> Asked:
    """Read a request leniently: it is the gateway's business to be strict."""
    chat = path.endswith("/chat/completions")
    prompts: Any = request.get("messages" if chat else "input" if path.endswith("/embeddings") else "prompt") or ""
    count = 1
    if isinstance(prompts, list) and prompts and not chat and not isinstance(prompts[0], int):
        count = len(prompts)
    first: Any = prompts
    if isinstance(prompts, list):
        first = prompts[-1 if chat else 0] if prompts else ""
        if chat and isinstance(first, dict):
            first = first.get("content")
    choices, options = request.get("n"), request.get("stream_options")
    cap = request.get("max_completion_tokens") or request.get("max_tokens")
    return Asked(
        chat=chat,
        model=str(request.get("model", "")),
        text=first if isinstance(first, str) else _encode(first).decode(),
        prompts=count,
        choices=(min(choices, _MOST_CHOICES) if isinstance(choices, int) and choices > 0 else 1) * count,
        stream=bool(request.get("stream")),
        wants_usage=isinstance(options, dict) and bool(options.get("include_usage")),
        cap=cap if isinstance(cap, int) and cap >= 0 else None,
    )


def error_object(script: Script, *, status: int) -> dict[str, object]:
    """The script's own error, or one that fits the status."""
    return script.error or {
        "message": f"scripted failure with status {status}",
        "type": _TYPES.get(status, "server_error" if status >= 500 else "invalid_request_error"),  # noqa: PLR2004  HTTP's own classes
        "param": None,
        "code": _CODES.get(status),
    }


def error_body(script: Script, *, status: int) -> bytes:
    return _encode({"error": error_object(script, status=status)})


def embeddings(script: Script, asked: Asked, *, as_base64: bool) -> bytes:
    vector: object = script.embedding
    if as_base64:
        vector = base64.b64encode(struct.pack(f"<{len(script.embedding)}f", *script.embedding)).decode()
    total = (script.prompt_tokens or 0) * asked.prompts
    rows = [{"object": "embedding", "index": index, "embedding": vector} for index in range(asked.prompts)]
    return _encode({"object": "list", "data": rows, "model": asked.model, "usage": {"prompt_tokens": total, "total_tokens": total}})


def model_entry(model: str) -> dict[str, object]:
    return {"id": model, "object": "model", "created": CREATED, "owned_by": "scripted"}


def compose(script: Script, asked: Asked) -> Deltas:
    """Decide what one choice says, the client's cap applied."""
    pieces = words(asked.text) if script.echo else script.pieces
    if pieces is None:
        pieces = () if script.tool_calls else _SENTENCE
    finish = script.finish_reason or ("tool_calls" if script.tool_calls and asked.chat else "stop")
    if script.honour_max_tokens and asked.cap is not None and asked.cap < len(pieces):
        pieces, finish = pieces[: asked.cap], script.finish_reason or "length"
    size = script.tokens_per_chunk
    deltas: list[tuple[dict[str, object], int]] = []
    if asked.chat:
        deltas += [({script.reasoning_field: text}, tokens) for text, tokens in _joined(script.reasoning, size)]
    deltas += [({"content": text}, tokens) for text, tokens in _joined(pieces, size)]
    if asked.chat:
        deltas += _tool_deltas(script)
    return Deltas(tuple(deltas), "".join(pieces), finish, sum(tokens for _, tokens in deltas))


def whole(script: Script, asked: Asked, said: Deltas, *, failed: bool = False) -> bytes:
    """The answer of a call without `stream`; `failed` ends its choices with `error`, beside an error object."""
    finish = "error" if failed else said.finish
    choices: list[dict[str, object]] = []
    for index in range(asked.choices):
        if asked.chat:
            message: dict[str, object] = {"role": "assistant", "content": said.text if said.text or not script.tool_calls else None}
            if script.reasoning:
                message[script.reasoning_field] = "".join(script.reasoning)
            if script.tool_calls:
                message["tool_calls"] = [
                    {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
                    for call in script.tool_calls
                ]
            choices.append({"index": index, "message": message, "logprobs": None, "finish_reason": finish})
        else:
            choices.append({"index": index, "text": said.text, "logprobs": None, "finish_reason": finish})
    answer = _envelope(asked, "chat.completion" if asked.chat else "text_completion") | {"choices": choices}
    if failed:
        answer["error"] = _provider_error(script)
    if script.usage in {UsagePlace.ABSENT, UsagePlace.NULL_EVERYWHERE}:
        return _encode(answer)
    return _encode(answer | {"usage": usage_of(script, asked, said.tokens * asked.choices)})


def usage_of(script: Script, asked: Asked, completion_tokens: int) -> dict[str, object]:
    """The figures after so many tokens of output."""
    prompt_tokens = (script.prompt_tokens or 0) * asked.prompts
    usage: dict[str, object] = {
        "prompt_tokens": prompt_tokens,
        "completion_tokens": completion_tokens,
        "total_tokens": prompt_tokens + completion_tokens,
    }
    if script.cached_tokens:
        usage["prompt_tokens_details"] = {"cached_tokens": script.cached_tokens}
    if script.reasoning:
        usage["completion_tokens_details"] = {"reasoning_tokens": min(len(script.reasoning), completion_tokens)}
    return usage


class Chunks:
    """Writes the blocks of one stream. `pieces` are those of a healthy one; faults ask for more."""

    def __init__(self, script: Script, asked: Asked, said: Deltas, rng: random.Random) -> None:
        self._script = script
        self._asked = asked
        self._said = said
        self._rng = rng
        place = script.usage
        reports = (asked.wants_usage or script.usage_unasked) and place not in {UsagePlace.ABSENT, UsagePlace.NULL_EVERYWHERE}
        self._place = place if reports else None
        self._null = place is UsagePlace.NULL_EVERYWHERE or (reports and place in _NULL_BEFORE)
        kind = "chat.completion.chunk" if asked.chat else "text_completion"
        self._opening = _encode(_envelope(asked, kind) | {"choices": ()})[:-2]
        newline = script.newline.encode()
        self._line_end = newline
        self._field = b"data: " if script.space_after_colon else b"data:"
        self._comment = b"" if script.comment is None else b": " + script.comment.encode() + newline * 2
        self.pieces: list[Piece] = []
        self.done = 0
        """Number of the event `[DONE]`."""
        self._compose()

    def _compose(self) -> None:
        script, asked = self._script, self._asked
        first_s = draw(script.first_token_s, self._rng)
        first_tokens = self._said.deltas[0][1] if self._said.deltas else 0
        made = 0
        role_waits = script.role_waits and asked.chat and script.role_first
        if asked.chat and script.role_first:
            role: dict[str, object] = {"role": "assistant", "content": ""}
            self._add(role, made, delay_s=first_s if role_waits else 0.0, tokens=first_tokens if role_waits else 0)
        if self._place is UsagePlace.EARLY:
            self.pieces.append(Piece(0.0, self._block(self._figures(self._said.tokens * asked.choices))))
        delay_s = 0.0 if role_waits else first_s
        for number, (delta, tokens) in enumerate(self._said.deltas):
            made += tokens
            self._add(delta, made * asked.choices, delay_s=delay_s, tokens=0 if role_waits and number == 0 else tokens)
            delay_s = sum(draw(script.per_token_s, self._rng) for _ in range(tokens)) if script.per_token_s else 0.0
        self._add({}, made * asked.choices, finish=self._said.finish)
        figures = self._figures(made * asked.choices)
        if self._place is not None:
            late_s = script.usage_delay_s if self._place is UsagePlace.LATE else 0.0
            self.pieces += [Piece(late_s, self._block(figures))] * _FIGURES_AT_THE_END.get(self._place, 0)
        self.done = len(self.pieces)
        self.pieces.append(Piece(0.0, self._block(b"[DONE]")))
        if self._place is UsagePlace.AFTER_DONE:
            self.pieces.append(Piece(0.0, self._block(figures)))

    def _add(self, delta: dict[str, object], made: int, *, delay_s: float = 0.0, tokens: int = 0, finish: str | None = None) -> None:
        """Add a chunk for each choice."""
        asked = self._asked
        for index in range(asked.choices):
            if asked.chat:
                choice = _encode({"index": index, "delta": delta, "finish_reason": finish})
            else:
                choice = _encode({"index": index, "text": delta.get("content", ""), "logprobs": None, "finish_reason": finish})
            block = self._comment + self._block(self._opening + choice + b"]" + self._tail(made, finish=finish, index=index))
            self.pieces.append(Piece(delay_s if index == 0 else 0.0, block, tokens))

    def _tail(self, made: int, *, finish: str | None, index: int) -> bytes:
        last = finish is not None and index == self._asked.choices - 1
        if self._place is UsagePlace.CUMULATIVE or (last and self._place is UsagePlace.WITH_FINISH):
            return b',"usage":' + _encode(usage_of(self._script, self._asked, made)) + b"}"
        return b',"usage":null}' if self._null else b"}"

    def _figures(self, made: int) -> bytes:
        return self._opening + b'],"usage":' + _encode(usage_of(self._script, self._asked, made)) + b"}"

    def _block(self, payload: bytes) -> bytes:
        if self._script.multi_line and payload.startswith(b"{"):
            payload = b"{" + self._line_end + self._field + payload[1:]
        return self._field + payload + self._line_end * 2

    # ── what faults add ──

    def malformed(self, text: str | None) -> Piece:
        return Piece(0.0, self._block(b'{"id":"chatcmpl-broken","choices":[{' if text is None else text.encode()))

    def huge(self, size_bytes: int) -> Piece:
        """Make a comment line and a chunk without text, each of that size."""
        filling = b"x" * size_bytes
        delta: dict[str, object] = {"delta": {"content": ""}} if self._asked.chat else {"text": "", "logprobs": None}
        choice = _encode({"index": 0} | delta | {"finish_reason": None})
        chunk = self._opening + choice + b'],"padding":"' + filling + b'"}'
        return Piece(0.0, b": " + filling + self._line_end + self._block(chunk))

    def error(self) -> Piece:
        return Piece(0.0, self._block(error_body(self._script, status=500)))

    def finish_error(self) -> Piece:
        delta: dict[str, object] = {"delta": {"content": ""}} if self._asked.chat else {"text": "", "logprobs": None}
        choice = _encode({"index": 0} | delta | {"finish_reason": "error", "native_finish_reason": "error"})
        tail = b'],"error":' + _encode(_provider_error(self._script)) + b"}"
        return Piece(0.0, self._block(self._opening + choice + tail))


def _provider_error(script: Script) -> dict[str, object]:
    return script.error or {"code": 502, "message": "scripted failure of the provider", "metadata": {"error_type": "provider_unavailable"}}


def _joined(pieces: tuple[str, ...], size: int) -> list[tuple[str, int]]:
    """Join every `size` pieces; give each text with the number of its tokens."""
    if size == 1:
        return [(piece, 1) for piece in pieces]
    groups = [pieces[start : start + size] for start in range(0, len(pieces), size)]
    return [("".join(group), len(group)) for group in groups]


def _tool_deltas(script: Script) -> list[tuple[dict[str, object], int]]:
    deltas: list[tuple[dict[str, object], int]] = []
    for number, call in enumerate(script.tool_calls):
        begun = {"index": number, "id": call.id, "type": "function", "function": {"name": call.name, "arguments": ""}}
        deltas.append(({"tool_calls": [begun]}, 1))
        for start in range(0, len(call.arguments), call.piece_chars):
            part = call.arguments[start : start + call.piece_chars]
            deltas.append(({"tool_calls": [{"index": number, "function": {"arguments": part}}]}, 1))
    return deltas


def _envelope(asked: Asked, kind: str) -> dict[str, object]:
    mark = zlib.crc32(f"{asked.model}\n{asked.text}".encode())
    prefix = "chatcmpl" if asked.chat else "cmpl"
    return {"id": f"{prefix}-{mark:08x}", "object": kind, "created": CREATED, "model": asked.model}
