"""Finds the marker of a prompt, `[[mock:…]]`: the way to choose a script through a gateway that passes on only the body."""

from __future__ import annotations

import json
from typing import Any

from tidegate.mock.scripting import Misfit

OPENING = "[[mock:"
CLOSING = "]]"


def marked_text(path: str, body: dict[str, Any]) -> str:
    """Give the text that may hold a marker: the last user message, or the first prompt or input."""
    if path.endswith("/chat/completions"):
        messages = body.get("messages")
        for message in reversed(messages if isinstance(messages, list) else []):
            if isinstance(message, dict) and message.get("role") == "user":
                return _text(message.get("content"))
        return ""
    return _text(body.get("input" if path.endswith("/embeddings") else "prompt"))


def find_marker(text: str) -> tuple[object, str] | None:
    """Give what the first marker says and the text without it; None when there is no marker."""
    start = text.find(OPENING)
    if start < 0:
        return None
    inside = start + len(OPENING)
    if text[inside : inside + 1] in {"{", "["}:
        try:
            said, end = json.JSONDecoder().raw_decode(text, inside)
        except ValueError as error:
            raise Misfit(f"the marker {OPENING}…{CLOSING} holds no valid JSON: {error}") from None
        if not text.startswith(CLOSING, end):
            raise Misfit(f"the marker {OPENING}…{CLOSING} does not end behind its JSON", hint=f'write "{CLOSING}" there')
    else:
        end = text.find(CLOSING, inside)
        if end < 0:
            raise Misfit(f"the marker {OPENING}…{CLOSING} does not end", hint=f'write "{CLOSING}" behind it')
        said = text[inside:end]
    return said, text[:start] + text[end + len(CLOSING) :]


def _text(content: object) -> str:
    """Join what is text in a message, a prompt or a list of either."""
    match content:
        case str():
            return content
        case [str() as first, *_]:
            return first
        case list():
            return "\n".join(part["text"] for part in content if isinstance(part, dict) and isinstance(part.get("text"), str))
        case _:
            return ""
