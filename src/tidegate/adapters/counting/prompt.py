"""From a request body to the pieces of text the model will see: Qwen3.6's ChatML, and plain prompts.

Every message becomes segments that begin and end at special tokens. A tokenizer never merges across those, so counts of segments add
up to the count of the whole (a property test), and a segment seen before need not be counted again.

What we cannot render to the letter (tools, tool calls, pictures, schemas, unknown roles) is approximated and makes the result not `exact`.
Requests of other dialects are first read as the chat request that says the same.
Source: the chat template published with the Qwen3.6 models; hosted versions may differ, which the error against `usage` shows.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

import msgspec

from tidegate.domain.request import Operation
from tidegate.errors import InvalidParameter
from tidegate.wire.anthropic_messages import read_messages_request
from tidegate.wire.chat_form import ChatForm, ChatFunction, ChatMessage, ImageUrl, TemplateOptions
from tidegate.wire.picture_size import picture_tokens
from tidegate.wire.responses_input import read_responses_request

START = "<|im_start|>"
END = "<|im_end|>\n"
TOOL_PREAMBLE_TOKENS = 200
"""Instructions on how to call tools which the template puts before the tools' schemas (approximate)."""
AUDIO_TOKENS = 500
"""Half a minute of speech: a guess, since the recording is not looked at."""


class Rendered(msgspec.Struct, frozen=True):
    """Texts to count one by one, tokens to add to their sum, and whether the sum is what the model will see."""

    texts: tuple[str, ...]
    extra_tokens: int = 0
    exact: bool = True


_Prompt = str | list[str | int | list[int]]


class _Body(ChatForm):
    """All operations in OpenAI's dialect at once: what is absent stays None."""

    prompt: _Prompt | None = None
    input: _Prompt | None = None
    content: str | None = None
    suffix: str | None = None


_decode = msgspec.json.Decoder(_Body).decode
_READERS = {Operation.COUNT_MESSAGES: read_messages_request, Operation.COUNT_RESPONSES: read_responses_request}


def render(operation: Operation, body: bytes) -> Rendered | None:
    """Give the texts the model will see; None when the body has a shape we do not know.

    Raise `InvalidParameter` for a `/tokenize` request without anything to tokenize.
    """
    try:
        return _render(operation, body)
    except (msgspec.MsgspecError, RecursionError):
        return None


def _render(operation: Operation, body: bytes) -> Rendered | None:
    if operation in _READERS:
        read = _READERS[operation](body)
        rendered = _chat(read.form)
        return Rendered(rendered.texts, rendered.extra_tokens + read.extra_tokens, rendered.exact and read.exact)
    asked = _decode(body)
    if operation is Operation.CHAT:
        return _chat(asked) if asked.messages is not None else None
    if operation is Operation.COMPLETION:
        return _plain(asked.prompt, suffix=asked.suffix) if asked.prompt is not None else None
    if operation is Operation.EMBEDDING:
        return _plain(asked.input, exact=False) if asked.input is not None else None  # embedding models add tokens of their own
    if asked.messages is not None:
        return _chat(asked)
    for plain in (asked.prompt, asked.input, asked.content):
        if plain is not None:
            return _plain(plain)
    raise InvalidParameter("Nothing to tokenize: send `prompt` (a string or a list) or `messages`.", param="prompt")


def _plain(prompt: _Prompt, *, suffix: str | None = None, exact: bool = True) -> Rendered:
    """Strings are counted, token ids are counted as they are."""
    texts: list[str] = []
    ids = 0
    for entry in [prompt] if isinstance(prompt, str) else prompt:
        if isinstance(entry, str):
            texts.append(entry)
        else:
            ids += len(entry) if isinstance(entry, list) else 1
    if suffix is not None:
        texts.append(suffix)
    return Rendered(tuple(texts), ids, exact and suffix is None)


def _chat(asked: ChatForm) -> Rendered:
    messages = asked.messages or []
    options = asked.chat_template_kwargs or TemplateOptions()
    thinking = asked.enable_thinking if asked.enable_thinking is not None else options.enable_thinking
    page = _Page(_last_question(messages), keep_thoughts=options.preserve_thinking is True)
    page.exact = not asked.continue_final_message
    if asked.tools:
        page.add_tools(asked.tools)
    if b'"json_schema"' in bytes(asked.response_format):
        page.add_schema(bytes(asked.response_format))
    for index, message in enumerate(messages):
        page.add(messages, index, message)
    if asked.add_generation_prompt:
        page.texts.append(f"{START}assistant\n<think>\n\n</think>\n\n" if thinking is False else f"{START}assistant\n<think>\n")
    return Rendered(tuple(page.texts), page.extra_tokens, page.exact)


class _Page:
    """The prompt as it grows."""

    def __init__(self, last_question: int, *, keep_thoughts: bool) -> None:
        self.texts: list[str] = []
        self.extra_tokens = 0
        self.exact = True
        self._last_question = last_question
        self._keep_thoughts = keep_thoughts

    def add_tools(self, tools: Sequence[dict[str, object]]) -> None:
        self.exact = False
        self.extra_tokens += TOOL_PREAMBLE_TOKENS
        self.texts.extend(json.dumps(tool, ensure_ascii=False) + "\n" for tool in tools)

    def add_schema(self, response_format: bytes) -> None:
        """Count a schema that the answer must keep to: some servers show it to the model, others only hold the answer to it."""
        self.exact = False
        self.texts.append(response_format.decode("utf-8") + "\n")

    def add(self, messages: list[ChatMessage], index: int, message: ChatMessage) -> None:
        content = self._content(message)
        if message.role == "assistant":
            self.texts.append(f"{START}assistant\n{self._answer(message, content, index)}{END}")
        elif message.role == "tool":
            self.exact = False
            begin = "" if index > 0 and messages[index - 1].role == "tool" else f"{START}user"
            end = "" if index + 1 < len(messages) and messages[index + 1].role == "tool" else END
            self.texts.append(f"{begin}\n<tool_response>\n{content}\n</tool_response>{end}")
        else:
            self.exact &= message.role == "user" or (message.role == "system" and index == 0)
            self.texts.append(f"{START}{message.role}\n{content}{END}")

    def _answer(self, message: ChatMessage, content: str, index: int) -> str:
        """Thoughts are shown again only after the last question, unless the request keeps them."""
        thoughts = message.reasoning_content
        if thoughts is None and "</think>" in content:
            before, _, content = content.rpartition("</think>")
            thoughts = before.partition("</think>")[0].rpartition("<think>")[2]
            content = content.lstrip("\n")
        calls = self._calls(message, after_text=bool(content.strip()))
        if self._keep_thoughts or index > self._last_question:
            content = f"<think>\n{(thoughts or '').strip()}\n</think>\n\n{content}"
        return content + calls

    def _calls(self, message: ChatMessage, *, after_text: bool) -> str:
        if not message.tool_calls:
            return ""
        self.exact = False
        calls = [_call_text(call.function) for call in message.tool_calls]
        return ("\n\n" if after_text else "") + "\n".join(calls)

    def _content(self, message: ChatMessage) -> str:
        if message.content is None:
            return ""
        if isinstance(message.content, str):
            return message.content.strip()
        texts: list[str] = []
        for part in message.content:
            if part.text is not None:
                texts.append(part.text)
                continue
            self.exact = False
            address = part.image_url
            if part.type in ("input_audio", "audio_url"):
                self.extra_tokens += AUDIO_TOKENS
            elif isinstance(address, ImageUrl):
                self.extra_tokens += picture_tokens(address.url, address.detail)
            else:
                self.extra_tokens += picture_tokens(address or "", None)
        return "".join(texts).strip()


def _last_question(messages: list[ChatMessage]) -> int:
    """Find the last user message that is not a tool's answer in disguise."""
    for index in range(len(messages) - 1, -1, -1):
        message = messages[index]
        if message.role == "user":
            text = message.content if isinstance(message.content, str) else ""
            if not (text.strip().startswith("<tool_response>") and text.strip().endswith("</tool_response>")):
                return index
    return len(messages) - 1


def _call_text(function: ChatFunction) -> str:
    arguments = function.arguments
    if isinstance(arguments, str):
        try:
            arguments = msgspec.json.decode(arguments, type=dict[str, object])
        except msgspec.MsgspecError:
            arguments = {"arguments": arguments}
    lines = [f"<tool_call>\n<function={function.name}>"]
    for name, value in arguments.items():
        shown = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        lines.append(f"<parameter={name}>\n{shown}\n</parameter>")
    lines.append("</function>\n</tool_call>")
    return "\n".join(lines)
