"""The members of a client's body that tell of its prompt, as types that take any shape: what is not looked into stays bytes.

Kept apart from what is done with them: msgspec makes these classes.
"""

from __future__ import annotations

import msgspec

_ABSENT = msgspec.Raw()


class MessageHead(msgspec.Struct, gc=False):
    content: msgspec.Raw = _ABSENT
    tool_calls: msgspec.Raw = _ABSENT


class PartHead(msgspec.Struct, gc=False):
    text: msgspec.Raw = _ABSENT
    image_url: msgspec.Raw = _ABSENT
    image: msgspec.Raw = _ABSENT
    file_id: msgspec.Raw = _ABSENT
    type: msgspec.Raw = _ABSENT
    input_audio: msgspec.Raw = _ABSENT
    audio_url: msgspec.Raw = _ABSENT


class ConversationHead(msgspec.Struct, gc=False):
    messages: list[MessageHead]
    tools: msgspec.Raw = _ABSENT
    functions: msgspec.Raw = _ABSENT
    response_format: msgspec.Raw = _ABSENT
    guided_json: msgspec.Raw = _ABSENT


class PlainHead(msgspec.Struct, gc=False):
    prompt: msgspec.Raw = _ABSENT
    input: msgspec.Raw = _ABSENT


CONVERSATION = msgspec.json.Decoder(ConversationHead)
PLAIN = msgspec.json.Decoder(PlainHead)
PART = msgspec.json.Decoder(PartHead)
ENTRIES = msgspec.json.Decoder(list[msgspec.Raw])
TEXT = msgspec.json.Decoder(str)
