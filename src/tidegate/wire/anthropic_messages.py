"""Read an Anthropic Messages request (as `/v1/messages/count_tokens` takes it) as the chat request that says the same.

Any JSON object can be read: a member of an odd type is as good as absent, a block of an unknown type is counted as the JSON it is, and then
the result is not `exact`. Source: Anthropic's API reference, "Count Message tokens".
"""

from __future__ import annotations

from typing import Final

import msgspec

from tidegate.wire.chat_form import ChatCall, ChatForm, ChatFunction, ChatMessage, ChatPart, ImageUrl, ReadForm
from tidegate.wire.lenient import member, text

PDF_BYTES_PER_TOKEN: Final = 30
"""A page of a PDF is 50 to 100 KB and becomes 1,500 to 3,000 tokens."""
PDF_TOKENS: Final = 1_500
"""Of a document that is not sent along: a page."""

_DECODE = msgspec.json.Decoder(dict[str, object]).decode
_BASE64_SHARE = 0.75


def read_messages_request(body: bytes) -> ReadForm:
    """Raise `msgspec.MsgspecError` or `RecursionError` for what is no JSON object."""
    asked = _DECODE(body)
    reading = _Reading()
    system = reading.parts(asked.get("system"))
    if system:
        reading.messages.append(ChatMessage("system", content=system))
    for turn in entries(asked.get("messages")):
        reading.turn(turn)
    tools = [_tool(tool) for tool in entries(asked.get("tools"))]
    thinking = member(asked.get("thinking"), "type")
    shape = member(asked.get("output_config"), "format")
    form = ChatForm(
        messages=reading.messages,
        tools=tools or None,
        enable_thinking=False if thinking == "disabled" else None,
        response_format=msgspec.Raw(msgspec.json.encode(shape)) if shape is not None else msgspec.Raw(),
    )
    return ReadForm(form, reading.extra_tokens, reading.exact)


def entries(value: object) -> list[object]:
    """Give a list's entries; anything else has none."""
    return value if isinstance(value, list) else []


def words(value: object) -> str:
    """Write a value of unknown shape as JSON."""
    return msgspec.json.encode(value).decode("utf-8")


def _tool(tool: object) -> dict[str, object]:
    """Turn a tool of the client's own into a function; one that the provider runs stays as it is."""
    schema = member(tool, "input_schema")
    if schema is None:
        return tool if isinstance(tool, dict) else {"tool": tool}
    function = {"name": member(tool, "name"), "description": member(tool, "description"), "parameters": schema}
    return {"type": "function", "function": {name: value for name, value in function.items() if value is not None}}


class _Reading:
    """The conversation as it grows."""

    def __init__(self) -> None:
        self.messages: list[ChatMessage] = []
        self.extra_tokens = 0
        self.exact = True

    def turn(self, turn: object) -> None:
        """Add one message; results of tools stand before what the user says beside them."""
        role, content = text(member(turn, "role")) or "user", member(turn, "content")
        blocks = entries(content)
        results = [block for block in blocks if member(block, "type") == "tool_result"]
        for result in results:
            self.messages.append(ChatMessage("tool", content=self.parts(member(result, "content"))))
        if blocks and len(results) == len(blocks):
            return
        calls, thoughts, said = list[ChatCall](), list[str](), list[object]()
        for block in blocks:
            kind = member(block, "type")
            if kind == "tool_use":
                calls.append(ChatCall(ChatFunction(text(member(block, "name")) or "", _arguments(member(block, "input")))))
            elif kind == "thinking":
                thoughts.append(text(member(block, "thinking")) or "")
            elif kind != "tool_result":
                said.append(block)
        parts = self.parts(said if blocks else content)
        self.messages.append(
            ChatMessage(role, content=parts, reasoning_content="\n".join(thoughts) if thoughts else None, tool_calls=calls or None)
        )

    def parts(self, content: object) -> list[ChatPart]:
        if isinstance(content, str):
            return [ChatPart(text=content)]
        found: list[ChatPart] = []
        for block in entries(content):
            found.extend(self._block(block))
        return found

    def _block(self, block: object) -> list[ChatPart]:
        kind, source = member(block, "type"), member(block, "source")
        if kind == "text":
            return [ChatPart(text=text(member(block, "text")) or "")]
        if kind == "image":
            return [ChatPart("image_url", image_url=ImageUrl(_address(source)))]
        self.exact = False
        if kind == "document":
            named = _named(block, "title", "context")
            return [*named, *self._document(source)]
        if kind == "search_result":
            named = _named(block, "title", "source")
            return [*named, *self.parts(member(block, "content"))]
        return [ChatPart(text=words(block))]

    def _document(self, source: object) -> list[ChatPart]:
        content = text(member(source, "data"))
        if member(source, "type") == "text" and content:
            return [ChatPart(text=content)]
        if member(source, "type") == "content":
            return self.parts(member(source, "content"))
        self.extra_tokens += max(PDF_TOKENS, int(len(content or "") * _BASE64_SHARE) // PDF_BYTES_PER_TOKEN)
        return []


def _named(block: object, *names: str) -> list[ChatPart]:
    return [ChatPart(text=said) for name in names if (said := text(member(block, name)))]


def _arguments(value: object) -> dict[str, object]:
    return value if isinstance(value, dict) else {}


def _address(source: object) -> str:
    """Give a picture's address as chat requests have it."""
    encoded = text(member(source, "data"))
    if encoded:
        return f"data:{text(member(source, 'media_type')) or 'image/png'};base64,{encoded}"
    return text(member(source, "url")) or ""
