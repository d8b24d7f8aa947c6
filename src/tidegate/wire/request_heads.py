"""The members of a client's body that decisions need, as types, and a decoder for each operation.

Kept apart from what is done with them: msgspec makes these classes, and in a compiled module it would not learn what their lists hold.
"""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

MAX_MODEL_CHARS = 256
ABSENT = msgspec.Raw()
_Model = Annotated[str, Meta(min_length=1, max_length=MAX_MODEL_CHARS)]
_Cap = Annotated[int, Meta(ge=1, le=2**31 - 1)]
_Choices = Annotated[int, Meta(ge=1, le=128)]
_TokenId = Annotated[int, Meta(ge=0, le=2**31 - 1)]


class Message(msgspec.Struct, gc=False):
    role: Annotated[str, Meta(min_length=1)]
    content: msgspec.Raw = ABSENT
    tool_calls: msgspec.Raw = ABSENT


_Messages = Annotated[list[Message], Meta(min_length=1)]


class StreamOptions(msgspec.Struct, gc=False):
    include_usage: bool | None = None


class ChatHead(msgspec.Struct, gc=False):
    model: _Model
    messages: _Messages
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    max_tokens: _Cap | None = None
    max_completion_tokens: _Cap | None = None
    n: _Choices | None = None
    tools: msgspec.Raw = ABSENT
    functions: msgspec.Raw = ABSENT


class CompletionHead(msgspec.Struct, gc=False):
    model: _Model
    prompt: msgspec.Raw
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    max_tokens: _Cap | None = None
    max_completion_tokens: _Cap | None = None
    n: _Choices | None = None
    best_of: _Choices | None = None


class EmbeddingHead(msgspec.Struct, gc=False):
    model: _Model
    input: msgspec.Raw


class PicturePart(msgspec.Struct, gc=False):
    image_url: msgspec.Raw = ABSENT


class PictureMessage(msgspec.Struct, gc=False):
    content: list[PicturePart] | str | None = None


class PictureHead(msgspec.Struct, gc=False):
    """A conversation of which only the pictures are looked at."""

    messages: list[PictureMessage] = []


class TokenizeHead(msgspec.Struct, gc=False):
    model: _Model
    prompt: str | None = None
    messages: _Messages | None = None
    tools: msgspec.Raw = ABSENT


CHAT = msgspec.json.Decoder(ChatHead)
COMPLETION = msgspec.json.Decoder(CompletionHead)
EMBEDDING = msgspec.json.Decoder(EmbeddingHead)
PICTURES = msgspec.json.Decoder(PictureHead)
TOKENIZE = msgspec.json.Decoder(TokenizeHead)
MEMBERS = msgspec.json.Decoder(dict[str, msgspec.Raw])
TEXT = msgspec.json.Decoder(str)
TEXTS = msgspec.json.Decoder(Annotated[list[str], Meta(min_length=1)])
IDS = msgspec.json.Decoder(Annotated[list[_TokenId], Meta(min_length=1)])
LISTS_OF_IDS = msgspec.json.Decoder(Annotated[list[Annotated[list[_TokenId], Meta(min_length=1)]], Meta(min_length=1)])
