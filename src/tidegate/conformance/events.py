"""Read a stream as the strictest client would: a blank line dispatches, whatever stood before it (WHATWG HTML, 9.2.6)."""

from __future__ import annotations

import re

import msgspec

_LINE_END = re.compile(rb"\r\n|\n|\r")


class Reading(msgspec.Struct, frozen=True):
    """What a stream said."""

    data: tuple[str, ...]
    """The data of each event, in order."""
    empty_dispatches: int
    """Blank lines that ended a comment or field without data: some decoders make an empty event of it, and fail."""
    comments: int
    undecodable: bool
    """Some event is not UTF-8."""
    rest: bytes
    """What stood after the last blank line."""

    @property
    def chunks(self) -> list[dict[str, object]]:
        """Every event that is a JSON object."""
        found = []
        for text in self.data:
            try:
                content = msgspec.json.decode(text.encode())
            except (msgspec.DecodeError, UnicodeEncodeError):
                continue
            if isinstance(content, dict):
                found.append(content)
        return found

    @property
    def text(self) -> str:
        """What all choices say, one after the other."""
        return "".join(text_of(choice) for chunk in self.chunks for choice in choices_of(chunk))

    @property
    def ends_with_done(self) -> bool:
        return bool(self.data) and self.data[-1].strip() == "[DONE]"

    @property
    def malformed(self) -> list[str]:
        """Events whose data is neither JSON nor `[DONE]`."""
        return [text for text in self.data if text.strip() != "[DONE]" and not _is_json(text)]


def read_events(body: bytes) -> Reading:
    """Split a body into events."""
    lines = _LINE_END.split(body)
    rest = lines.pop()
    data: list[str] = []
    pending: list[bytes] = []
    touched = undecodable = False
    empty = comments = 0
    for line in lines:
        if not line:
            if pending:
                text = b"\n".join(pending)
                undecodable = undecodable or not _is_utf8(text)
                data.append(text.decode("utf-8", "replace"))
            elif touched:
                empty += 1
            pending, touched = [], False
            continue
        touched = True
        if line.startswith(b":"):
            comments += 1
        elif line.startswith(b"data:"):
            pending.append(line[5:].removeprefix(b" "))
    return Reading(tuple(data), empty, comments, undecodable, b"\n".join([*pending, rest]))


def choices_of(answer: dict[str, object]) -> list[dict[str, object]]:
    """Give the choices of a chunk or of a whole answer."""
    choices = answer.get("choices")
    return [choice for choice in choices if isinstance(choice, dict)] if isinstance(choices, list) else []


def text_of(choice: dict[str, object]) -> str:
    """Give what a choice says, streamed or whole, of a chat or of a completion."""
    message = choice.get("message") or choice.get("delta")
    text = message.get("content") if isinstance(message, dict) else choice.get("text")
    return text if isinstance(text, str) else ""


def _is_json(text: str) -> bool:
    try:
        msgspec.json.decode(text.encode())
    except (msgspec.DecodeError, UnicodeEncodeError):
        return False
    return True


def _is_utf8(text: bytes) -> bool:
    try:
        text.decode()
    except UnicodeDecodeError:
        return False
    return True
