"""Answers what needs no generation: health, models, tokens, version."""

from __future__ import annotations

import math
import zlib
from typing import Any

import msgspec

from tidegate.mock import answers, staging
from tidegate.mock.playback import Playback
from tidegate.mock.received import ReceivedRequest
from tidegate.mock.script import Script

_VERSION = "0.0.0+mock"
_VOCABULARY = (
    *(" the", " tide", " turns", " and", " water", " rises", " over", " grey", " stones", " while", " gulls", " call", " from", " far"),
    *(" harbour", " walls", ",", " then", " slowly", " falls", " again", " as", " evening", " comes", ".", " 潮水", " 涨落", " 🌊"),
)


def question(path: str, request: ReceivedRequest, models: tuple[str, ...], *, bytes_per_token: int, context_tokens: int) -> Playback:
    """Answer a path that is none of the operations; 404 for those that are nothing."""
    if path in {"/health", "/ping"}:
        return staging.json_answer({"status": "ok"})
    if path == "/version":
        return staging.json_answer({"version": _VERSION})
    if path == "/v1/models":
        return staging.json_answer({"object": "list", "data": [answers.model_entry(model) for model in models]})
    if path.startswith("/v1/models/") and (model := path.removeprefix("/v1/models/")) in models:
        return staging.json_answer(answers.model_entry(model))
    if path in {"/tokenize", "/v1/tokenize"} and request.method == "POST":
        return _tokenize(request, bytes_per_token=bytes_per_token, context_tokens=context_tokens)
    missing: dict[str, object] = {"message": f"no such path: {path}", "type": "invalid_request_error", "param": None, "code": None}
    return staging.error(Script(error=missing), 404)


def prompt_bytes(path: str, body: dict[str, Any]) -> int:
    """Count the bytes of text in a request: messages, prompt or input."""
    key = "messages" if path.endswith("/chat/completions") else "input" if path.endswith("/embeddings") else "prompt"
    return _text_bytes(body.get(key))


def tokens_of(size: int, bytes_per_token: int) -> int:
    """Give the tokens of so many bytes."""
    return math.ceil(size / bytes_per_token)


def made_up(count: int, *, model: str, text: str, seed: int) -> tuple[str, ...]:
    """Make up so many words; the same request and seed give the same ones."""
    state = zlib.crc32(f"{seed}\n{model}\n{text}".encode())
    pieces: list[str] = []
    for _ in range(count):
        state = (state * 1_664_525 + 1_013_904_223) & 0xFFFFFFFF  # a linear congruence: cheap, and good enough to look alive
        pieces.append(_VOCABULARY[(state >> 16) % len(_VOCABULARY)])
    if pieces:
        pieces[0] = pieces[0].lstrip()
    return tuple(pieces)


def _tokenize(request: ReceivedRequest, *, bytes_per_token: int, context_tokens: int) -> Playback:
    try:
        asked = request.json
    except msgspec.DecodeError:
        return staging.error(Script(), 400)
    text = asked.get("prompt") or asked.get("content") or msgspec.json.encode(asked.get("messages", [])).decode()
    encoded = str(text).encode()
    tokens = [int.from_bytes(encoded[start : start + bytes_per_token]) for start in range(0, len(encoded), bytes_per_token)]
    return staging.json_answer({"count": len(tokens), "max_model_len": context_tokens, "tokens": tokens})


def _text_bytes(content: object) -> int:
    match content:
        case str():
            return len(content.encode())
        case list():
            return sum(_text_bytes(part) for part in content) + sum(1 for part in content if isinstance(part, int))
        case {"content": inner}:
            return _text_bytes(inner)
        case {"text": str() as text}:
            return len(text.encode())
        case _:
            return 0
