"""The members of a client's body that tell of its prompt, as types that take any shape: what is not looked into stays bytes.

Kept apart from what is done with them: msgspec makes these classes.
"""

from __future__ import annotations

import msgspec

from tidegate.wire.request_heads import ABSENT


class MessageHead(msgspec.Struct, gc=False):
    content: msgspec.Raw = ABSENT
    tool_calls: msgspec.Raw = ABSENT


class PartHead(msgspec.Struct, gc=False):
    text: msgspec.Raw = ABSENT
    image_url: msgspec.Raw = ABSENT
    image: msgspec.Raw = ABSENT
    file_id: msgspec.Raw = ABSENT
    type: msgspec.Raw = ABSENT
    input_audio: msgspec.Raw = ABSENT
    audio_url: msgspec.Raw = ABSENT


class ConversationHead(msgspec.Struct, gc=False):
    messages: list[MessageHead]
    tools: msgspec.Raw = ABSENT
    functions: msgspec.Raw = ABSENT
    response_format: msgspec.Raw = ABSENT
    guided_json: msgspec.Raw = ABSENT


class PlainHead(msgspec.Struct, gc=False):
    prompt: msgspec.Raw = ABSENT
    input: msgspec.Raw = ABSENT


CONVERSATION = msgspec.json.Decoder(ConversationHead)
PLAIN = msgspec.json.Decoder(PlainHead)
PART = msgspec.json.Decoder(PartHead)
ENTRIES = msgspec.json.Decoder(list[msgspec.Raw])
