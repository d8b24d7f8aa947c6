"""Bound the tokens of a prompt from above without tokenising it.

A byte-level tokenizer (BPE over bytes, as Qwen's, Llama 3's, GPT's) makes at most one token per byte of UTF-8. JSON escapes are longer
than what they stand for, and the braces, names and quotes around a message outweigh the handful of special tokens that a chat template
puts there instead. So the whole body's length bounds the prompt, whatever fields a server may take into it, but for what is added below:

* what templates put before and after the messages (a constant), and for tools (a constant, and one byte for every separator, since
  templates print JSON with spaces);
* Unicode normalisation (NFC), done by some tokenizers, which can lengthen text: by a few bytes for each of some rare characters;
* pictures, which cost tokens by their size and not by the bytes of their address: a constant each, and their addresses are not counted.

Lists of token ids count by their ids.
"""

from __future__ import annotations

from typing import Final

import msgspec

from tidegate.wire.request_heads import PICTURES

TEMPLATE_TOKENS: Final = 128
"""Default system messages and the prompt for the answer; the longest known to us (gpt-oss) takes about 100."""
TOOLS_TOKENS: Final = 512
"""The instructions that templates print around tool definitions; Qwen's take about 250."""
PLAIN_TOKENS = 8
"""Marks of beginning and end where no template is applied."""
IMAGE_TOKENS = 16_384
"""The most that the Qwen-VL family makes of one picture."""

_HARMLESS_BYTES: Final = bytes(set(range(256)) - {0xCC, 0xCD, 0xD2, *range(0xD6, 0xE4), 0xEA, *range(0xEF, 256)})
"""Bytes of UTF-8 that begin no character which NFC can lengthen, alone or by a mark: ASCII, continuation
bytes, Latin, most of Chinese, Hangul.

Chinese punctuation and kana share their first byte with a few that can: they are charged without need, which a bound may do."""
_NFC_SURPLUS = 3
_NFC_SURPLUS_OF_FOUR_BYTES = 8
"""The most bytes that one character can cost more after NFC, the effect of a mark on its neighbour included."""


def nfc_surplus(body: bytes) -> int:
    """Bound the bytes that NFC may add to a text in UTF-8. An escape in JSON is longer than what it stands for by more than that."""
    if body.isascii():  # told at once; what follows looks at each byte
        return 0
    leads = body.translate(None, _HARMLESS_BYTES)
    if not leads:
        return 0
    of_four = len(leads) - len(leads.translate(None, b"\xf0\xf1\xf2\xf3\xf4"))
    return _NFC_SURPLUS * len(leads) + (_NFC_SURPLUS_OF_FOUR_BYTES - _NFC_SURPLUS) * of_four


def chat_bound(body: bytes, *, has_tools: bool, has_parts: bool) -> int:
    """Bound the prompt of a conversation; `has_tools`: tools or calls of tools, `has_parts`: the content of some message is a list."""
    bound = len(body) + nfc_surplus(body) + TEMPLATE_TOKENS
    if has_tools:
        bound += TOOLS_TOKENS + body.count(b",") + body.count(b":")
    if has_parts and b'"image_url"' in body:
        bound += _picture_difference(body)
    return bound


def pictures_in(body: bytes) -> int:
    """Count the pictures of a conversation."""
    if b'"image_url"' not in body:
        return 0
    try:
        conversation = PICTURES.decode(body)
    except msgspec.ValidationError:
        return 0  # parts of unknown shape: whoever answers them knows better
    contents = (message.content for message in conversation.messages)
    return sum(bool(bytes(part.image_url)) for parts in contents if isinstance(parts, list) for part in parts)


def _picture_difference(body: bytes) -> int:
    """Sum up, over the pictures in a body, their allowance less the bytes of their address."""
    try:
        conversation = PICTURES.decode(body)
    except msgspec.ValidationError:
        return body.count(b'"image_url"') * IMAGE_TOKENS  # parts of unknown shape: keep their bytes, add the allowance
    difference = 0
    for message in conversation.messages:
        if isinstance(message.content, list):
            for part in message.content:
                address_bytes = len(bytes(part.image_url))
                difference += IMAGE_TOKENS - address_bytes if address_bytes else 0
    return difference


def plain_bound(body: bytes, *, prompt_bytes: int, token_ids: int | None, prompts: int) -> int:
    """Bound prompts that no template touches: all bytes, or, for lists of ids, the ids and the bytes of everything else."""
    if token_ids is not None:
        return token_ids + PLAIN_TOKENS * prompts + len(body) - prompt_bytes
    return len(body) + nfc_surplus(body) + PLAIN_TOKENS
