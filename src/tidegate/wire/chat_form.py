"""A chat request as its prompt is rendered: what every dialect's request is turned into before it is counted.

A chat completion's body is decoded into it as it stands; `anthropic_messages` and `responses_input` read the other two shapes. Members that
a chat template does not look at are not here.
"""

from __future__ import annotations

import msgspec


class ImageUrl(msgspec.Struct):
    url: str = ""
    detail: str | None = None


class ChatPart(msgspec.Struct):
    """One part of a message: text, a picture, or something that only its `type` tells."""

    type: str = "text"
    text: str | None = None
    image_url: ImageUrl | str | None = None


class ChatFunction(msgspec.Struct):
    name: str = ""
    arguments: str | dict[str, object] = ""


class ChatCall(msgspec.Struct):
    function: ChatFunction = msgspec.field(default_factory=ChatFunction)


class ChatMessage(msgspec.Struct):
    role: str
    content: str | list[ChatPart] | None = None
    reasoning_content: str | None = None
    tool_calls: list[ChatCall] | None = None


class TemplateOptions(msgspec.Struct):
    enable_thinking: bool | None = None
    preserve_thinking: bool | None = None


class ChatForm(msgspec.Struct):
    messages: list[ChatMessage] | None = None
    tools: list[dict[str, object]] | None = None
    enable_thinking: bool | None = None
    chat_template_kwargs: TemplateOptions | None = None
    add_generation_prompt: bool = True
    continue_final_message: bool = False
    response_format: msgspec.Raw = msgspec.Raw()


class ReadForm(msgspec.Struct, frozen=True):
    """What another dialect's request became. What is not in `form` is in the other two, which no client can set."""

    form: ChatForm
    extra_tokens: int = 0
    """Of what has no text here: documents that are not looked into."""
    exact: bool = True
    """Nothing was left out or guessed at."""
