"""Tell what kind of text a chat request's prompt is, and what is wished of its answer: what an estimate of its tokens depends on.

Markup, code and JSON are recognised as for routing (`text_traits`). A scan is recognised by what readers of pictures make of letters:
characters that are none, digits and bars inside words, words spaced out letter by letter, runs of stray punctuation. One such sign in a
hundred characters makes a text a scan; code, JSON and HTML are full of them and are looked for first.
"""

from __future__ import annotations

import re

import msgspec

from tidegate.domain.features import AnswerWishes, ContentType, Trait
from tidegate.domain.request import ParsedRequest
from tidegate.wire import lenient
from tidegate.wire.features import prompt_text
from tidegate.wire.text_statistics import measure
from tidegate.wire.text_traits import traits_of

_KINDS = ((Trait.HTML, ContentType.HTML), (Trait.CODE, ContentType.CODE), (Trait.JSON, ContentType.JSON))
_LOOKED_AT = 8_192
"""Characters in which signs of a scan are looked for: they are everywhere in it, and this takes a tenth of a millisecond."""
_HIGHEST = 2
"""Of temperatures, in OpenAI's API. A number in JSON may be beyond every float."""
_FEW_SIGNS = 4
_CHARS_PER_SIGN = 100
_SIGNS = re.compile(
    r"\ufffd+"
    r"|(?<=[a-z])[0-9|](?=[a-z])"
    r"|(?<=[a-z])[^\w\s'’.,:;/@&()-](?=[a-z])"
    r"|(?<![^\s])(?:[A-Za-z] ){4,16}"
    r"|[;:,.'`~^|_\\]{3,16}(?<!\.\.\.)(?<!___)(?<!```)(?<!~~~)"
)


def content_type_of(request: ParsedRequest) -> ContentType:
    """Name what the prompt mostly is."""
    text = prompt_text(request)
    traits = traits_of(text, measure(text))
    for trait, kind in _KINDS:
        if trait in traits:
            return kind
    return ContentType.SCAN if _is_scan(text) else ContentType.PLAIN


def _is_scan(text: str) -> bool:
    looked_at = text[:_LOOKED_AT]
    signs = sum(1 for _ in _SIGNS.finditer(looked_at))
    return signs >= _FEW_SIGNS and signs * _CHARS_PER_SIGN >= len(looked_at)


class _WishesHead(msgspec.Struct, gc=False):
    temperature: msgspec.Raw = msgspec.Raw(b"null")
    response_format: msgspec.Raw = msgspec.Raw()
    tools: msgspec.Raw = msgspec.Raw(b"null")


_WISHES = msgspec.json.Decoder(_WishesHead)


def wishes_of(request: ParsedRequest) -> AnswerWishes:
    """Read what is wished of the answer; members of odd types wish nothing, and a temperature is as high as the highest there is."""
    head = _WISHES.decode(request.body)
    temperature = lenient.decode(bytes(head.temperature))
    number = temperature if isinstance(temperature, int | float) and not isinstance(temperature, bool) else None
    return AnswerWishes(
        temperature=None if number is None else float(min(max(number, 0), _HIGHEST)),
        json=b'"json_' in bytes(head.response_format),
        tools=bool(lenient.decode(bytes(head.tools))),
        stream=request.stream,
    )
