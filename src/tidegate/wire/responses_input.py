"""Read an OpenAI Responses request (as `/v1/responses/input_tokens` takes it) as the chat request that says the same.

Any JSON object can be read: a member of an odd type is as good as absent, an entry of an unknown type is counted as the JSON it is, and
then the result is not `exact`. Neither is that of a request which goes on from an earlier one: that is not here to be counted.
Source: OpenAI's API reference, "Count input tokens".
"""

from __future__ import annotations

from typing import Final

import msgspec

from tidegate.wire.anthropic_messages import PDF_BYTES_PER_TOKEN, PDF_TOKENS, entries, words
from tidegate.wire.chat_form import ChatCall, ChatForm, ChatFunction, ChatMessage, ChatPart, ImageUrl, ReadForm
from tidegate.wire.lenient import member, text

_DECODE = msgspec.json.Decoder(dict[str, object]).decode
_TEXTS: Final = frozenset({"input_text", "output_text", "text", "refusal", "summary_text", "reasoning_text"})
_BASE64_SHARE = 0.75


def read_responses_request(body: bytes) -> ReadForm:
    """Raise `msgspec.MsgspecError` or `RecursionError` for what is no JSON object."""
    asked = _DECODE(body)
    reading = _Reading()
    reading.exact = asked.get("previous_response_id") is None and asked.get("conversation") is None
    instructions = text(asked.get("instructions"))
    if instructions:
        reading.messages.append(ChatMessage("system", content=instructions))
    given = asked.get("input")
    if isinstance(given, str):
        reading.messages.append(ChatMessage("user", content=given))
    for entry in entries(given):
        reading.entry(entry)
    tools = [_tool(tool) for tool in entries(asked.get("tools"))]
    shape = member(asked.get("text"), "format")
    form = ChatForm(
        messages=reading.messages,
        tools=tools or None,
        enable_thinking=False if member(asked.get("reasoning"), "effort") == "none" else None,
        response_format=msgspec.Raw(msgspec.json.encode(shape)) if shape is not None else msgspec.Raw(),
    )
    return ReadForm(form, reading.extra_tokens, reading.exact)


def _tool(tool: object) -> dict[str, object]:
    """Put a function into the shape that chat requests have; any other tool stays as it is."""
    if not isinstance(tool, dict):
        return {"tool": tool}
    if tool.get("type") != "function":
        return tool
    return {"type": "function", "function": {name: tool[name] for name in ("name", "description", "parameters") if name in tool}}


class _Reading:
    """The conversation as it grows."""

    def __init__(self) -> None:
        self.messages: list[ChatMessage] = []
        self.extra_tokens = 0
        self.exact = True

    def entry(self, entry: object) -> None:
        kind = member(entry, "type")
        if kind == "function_call":
            call = ChatFunction(text(member(entry, "name")) or "", text(member(entry, "arguments")) or "")
            self._answer().append(ChatCall(call))
        elif kind == "function_call_output":
            self.messages.append(ChatMessage("tool", content=self._parts(member(entry, "output"))))
        elif kind == "reasoning":
            thoughts = self._parts(member(entry, "content")) or self._parts(member(entry, "summary"))
            self.messages.append(ChatMessage("assistant", reasoning_content="".join(part.text or "" for part in thoughts)))
            self.exact = False
        elif text(member(entry, "role")):
            self.messages.append(ChatMessage(text(member(entry, "role")) or "user", content=self._parts(member(entry, "content"))))
        else:
            self.messages.append(ChatMessage("user", content=words(entry)))
            self.exact = False

    def _answer(self) -> list[ChatCall]:
        """Give the calls of the assistant's message that is being told; a new one if none is."""
        last = self.messages[-1] if self.messages else None
        if last is None or last.role != "assistant":
            last = ChatMessage("assistant")
            self.messages.append(last)
        if last.tool_calls is None:
            last.tool_calls = []
        return last.tool_calls

    def _parts(self, content: object) -> list[ChatPart]:
        if isinstance(content, str):
            return [ChatPart(text=content)]
        return [part for block in entries(content) for part in self._part(block)]

    def _part(self, block: object) -> list[ChatPart]:
        kind = member(block, "type")
        if kind in _TEXTS:
            return [ChatPart(text=text(member(block, "text")) or text(member(block, "refusal")) or "")]
        if kind == "input_image":
            picture = ImageUrl(text(member(block, "image_url")) or "", text(member(block, "detail")))
            return [ChatPart("image_url", image_url=picture)]
        self.exact = False
        if kind == "input_file":
            content = text(member(block, "file_data")) or ""
            self.extra_tokens += max(PDF_TOKENS, int(len(content) * _BASE64_SHARE) // PDF_BYTES_PER_TOKEN)
            return []
        return [ChatPart(text=words(block))]
