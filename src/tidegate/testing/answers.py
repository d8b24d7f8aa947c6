"""Turns a `Script` and a request into OpenAI-shaped bytes; knows nothing of sockets and time.

Deterministic: ids come from the model and the prompt, `created` is fixed, so equal requests give equal bytes. `usage` is the
last key of every chunk that has it.
"""

from __future__ import annotations

import base64
import struct
import zlib
from enum import StrEnum
from typing import Any

import msgspec

from tidegate.testing.script import FaultKind, Script, UsagePlace, words

CREATED = 1_700_000_000
_SENTENCE = ("Hello", ",", " wide", " world", ".")
_TYPES = {401: "authentication_error", 403: "permission_error", 429: "rate_limit_error"}
_CODES = {401: "invalid_api_key", 403: "forbidden", 404: "model_not_found", 429: "rate_limit_exceeded"}

_encode = msgspec.json.encode


class Ending(StrEnum):
    """What happens after the last piece."""

    CLEAN = "clean"
    HANG = "hang"
    CLOSE = "close"
    RESET = "reset"


_STOPS = {
    FaultKind.STALL: Ending.HANG,
    FaultKind.CUT: Ending.CLOSE,
    FaultKind.RESET: Ending.RESET,
    FaultKind.END: Ending.CLEAN,
}
"""Faults that are some events and then an ending."""


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


class Event(msgspec.Struct, frozen=True):
    """One block of a stream; `output` marks those that carry generated text."""

    delay_s: float
    block: bytes
    output: bool = False


def read_asked(path: str, request: dict[str, Any]) -> Asked:
    """Read a request leniently: it is the gateway's business to be strict."""
    chat = path.endswith("/chat/completions")
    prompts: Any = request.get("messages" if chat else "input" if path.endswith("/embeddings") else "prompt") or ""
    count = 1
    if isinstance(prompts, list) and prompts and not chat and not isinstance(prompts[0], int):
        count = len(prompts)
    first: Any = prompts
    if isinstance(prompts, list):
        first = (prompts[-1].get("content") if chat else prompts[0]) if prompts else ""
    return Asked(
        chat=chat,
        model=str(request.get("model", "")),
        text=first if isinstance(first, str) else _encode(first).decode(),
        prompts=count,
        choices=int(request.get("n") or 1) * count,
        stream=bool(request.get("stream")),
        wants_usage=bool((request.get("stream_options") or {}).get("include_usage")),
        cap=request.get("max_completion_tokens") or request.get("max_tokens"),
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
    total = script.prompt_tokens * asked.prompts
    rows = [{"object": "embedding", "index": index, "embedding": vector} for index in range(asked.prompts)]
    return _encode({"object": "list", "data": rows, "model": asked.model, "usage": {"prompt_tokens": total, "total_tokens": total}})


def model_entry(model: str) -> dict[str, object]:
    return {"id": model, "object": "model", "created": CREATED, "owned_by": "scripted"}


def whole(script: Script, asked: Asked) -> bytes:
    """The answer of a call without `stream`."""
    pieces, finish = _output(script, asked)
    text = "".join(pieces)
    choices: list[dict[str, object]] = []
    for index in range(asked.choices):
        if asked.chat:
            message: dict[str, object] = {"role": "assistant", "content": text if pieces or not script.tool_calls else None}
            if script.reasoning:
                message[script.reasoning_field] = "".join(script.reasoning)
            if script.tool_calls:
                message["tool_calls"] = [
                    {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
                    for call in script.tool_calls
                ]
            choices.append({"index": index, "message": message, "logprobs": None, "finish_reason": finish})
        else:
            choices.append({"index": index, "text": text, "logprobs": None, "finish_reason": finish})
    answer = _envelope(asked, "chat.completion" if asked.chat else "text_completion", choices)
    if script.usage in {UsagePlace.ABSENT, UsagePlace.NULL_EVERYWHERE}:
        return _encode(answer)
    return _encode(answer | {"usage": _usage(script, asked)})


def stream(script: Script, asked: Asked) -> tuple[list[Event], Ending]:
    """The blocks of a stream and how it ends, the script's fault applied."""
    events = [
        Event(delay, _block(script, _encode(chunk), comment=bool(chunk["choices"])), output)
        for delay, chunk, output in _chunks(script, asked)
    ]
    events.append(Event(0.0, _block(script, b"[DONE]")))
    fault = script.fault
    if fault is None:
        return events, Ending.CLEAN
    until = events[: fault.after]
    if (ending := _STOPS.get(fault.kind)) is not None:
        return until, ending
    match fault.kind:
        case FaultKind.HANG_BEFORE_FIRST_TOKEN:
            first = next((number for number, event in enumerate(events) if event.output), len(events))
            return events[:first], Ending.HANG
        case FaultKind.MISSING_DONE:
            events = events[:-1]
        case FaultKind.MALFORMED_EVENT:
            events = [*until, Event(0.0, _block(script, b'{"id":"chatcmpl-broken","choices":[{')), *events[fault.after :]]
        case FaultKind.ERROR_EVENT:
            events = [*until, Event(0.0, _block(script, error_body(script, status=500)))]
        case _:
            pass  # those before the headers never come here
    return events, Ending.CLEAN


def _chunks(script: Script, asked: Asked) -> list[tuple[float, dict[str, object], bool]]:
    """Every chunk of a stream with the wait before it and whether it is generated output."""
    pieces, finish = _output(script, asked)
    kind = "chat.completion.chunk" if asked.chat else "text_completion"
    reports = (asked.wants_usage or script.usage_unasked) and script.usage in {UsagePlace.LAST, UsagePlace.EARLY, UsagePlace.WITH_FINISH}
    tail: dict[str, object] = {}
    if script.usage is UsagePlace.NULL_EVERYWHERE or (reports and script.usage is UsagePlace.LAST):
        tail = {"usage": None}
    figures = {"usage": _usage(script, asked)}
    chunks: list[tuple[float, dict[str, object], bool]] = []

    def add(deltas: dict[str, object], *, delay_s: float = 0.0, output: bool = True, last: bool = False) -> None:
        for index in range(asked.choices):
            choice: dict[str, object] = {"index": index}
            choice |= {"delta": deltas} if asked.chat else {"text": deltas.get("content", ""), "logprobs": None}
            choice["finish_reason"] = finish if last else None
            extra = figures if last and index == asked.choices - 1 and reports and script.usage is UsagePlace.WITH_FINISH else tail
            chunks.append((delay_s if index == 0 else 0.0, _envelope(asked, kind, [choice]) | extra, output))

    if asked.chat and script.role_first:
        add({"role": "assistant", "content": ""}, output=False)
    if reports and script.usage is UsagePlace.EARLY:
        chunks.append((0.0, _envelope(asked, kind, []) | figures, False))
    delay_s = script.first_token_s
    for delta in _deltas(script, asked, pieces):
        add(delta, delay_s=delay_s)
        delay_s = script.per_token_s
    add({}, output=False, last=True)
    if reports and script.usage is UsagePlace.LAST:
        chunks.append((0.0, _envelope(asked, kind, []) | figures, False))
    return chunks


def _deltas(script: Script, asked: Asked, pieces: tuple[str, ...]) -> list[dict[str, object]]:
    if not asked.chat:
        return [{"content": piece} for piece in pieces]
    deltas: list[dict[str, object]] = [{script.reasoning_field: piece} for piece in script.reasoning]
    deltas += [{"content": piece} for piece in pieces]
    for number, call in enumerate(script.tool_calls):
        begun = {"index": number, "id": call.id, "type": "function", "function": {"name": call.name, "arguments": ""}}
        deltas.append({"tool_calls": [begun]})
        for start in range(0, len(call.arguments), call.piece_chars):
            part = call.arguments[start : start + call.piece_chars]
            deltas.append({"tool_calls": [{"index": number, "function": {"arguments": part}}]})
    return deltas


def _output(script: Script, asked: Asked) -> tuple[tuple[str, ...], str]:
    """The text pieces and the finish reason, the client's cap applied."""
    pieces = words(asked.text) if script.echo else script.pieces
    if pieces is None:
        pieces = () if script.tool_calls else _SENTENCE
    finish = script.finish_reason or ("tool_calls" if script.tool_calls and asked.chat else "stop")
    if script.honour_max_tokens and asked.cap is not None and asked.cap < len(pieces):
        return pieces[: asked.cap], script.finish_reason or "length"
    return pieces, finish


def _usage(script: Script, asked: Asked) -> dict[str, object]:
    pieces, _ = _output(script, asked)
    prompt_tokens = script.prompt_tokens * asked.prompts
    completion_tokens = len(_deltas(script, asked, pieces)) * asked.choices
    usage: dict[str, object] = {
        "prompt_tokens": prompt_tokens,
        "completion_tokens": completion_tokens,
        "total_tokens": prompt_tokens + completion_tokens,
    }
    if script.cached_tokens:
        usage["prompt_tokens_details"] = {"cached_tokens": script.cached_tokens}
    if script.reasoning:
        usage["completion_tokens_details"] = {"reasoning_tokens": len(script.reasoning)}
    return usage


def _envelope(asked: Asked, kind: str, choices: list[dict[str, object]]) -> dict[str, object]:
    mark = zlib.crc32(f"{asked.model}\n{asked.text}".encode())
    prefix = "chatcmpl" if asked.chat else "cmpl"
    return {"id": f"{prefix}-{mark:08x}", "object": kind, "created": CREATED, "model": asked.model, "choices": choices}


def _block(script: Script, payload: bytes, *, comment: bool = False) -> bytes:
    newline = script.newline.encode()
    field = b"data: " if script.space_after_colon else b"data:"
    if script.multi_line and payload.startswith(b"{"):
        payload = b"{" + newline + field + payload[1:]
    before = b": " + script.comment.encode() + newline * 2 if comment and script.comment is not None else b""
    return before + field + payload + newline * 2
