"""How the doctor's sentences are said in Chinese as well as in English.

A sentence is written in English where it is decided. One without figures is a plain `str`; one with figures is made by `say`, is a `str`,
too, and remembers what it was made of. Tables hold the Chinese of each. What comes from elsewhere (errors, records, names, settings,
commands) stays as it is.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import Enum
from types import MappingProxyType
from typing import Final, TypeVar

import msgspec

from tidegate.doctor import chinese_causes, chinese_checks, chinese_evidence, chinese_requests
from tidegate.language import Language

CHINESE: Final[Mapping[str, str]] = MappingProxyType(
    dict((*chinese_causes.TEXTS, *chinese_checks.TEXTS, *chinese_evidence.TEXTS, *chinese_requests.TEXTS))
)
Document = TypeVar("Document")


class Phrase(str):
    """A sentence in English, its template, and the figures in it, some of which may be phrases themselves."""

    __slots__ = ("figures", "template")
    template: str
    figures: Mapping[str, object]


def say(template: str, /, **figures: object) -> Phrase:
    """Say a sentence: `template` names its figures in braces. Without figures it is taken as it stands."""
    phrase = Phrase(template.format_map(figures) if figures else template)
    phrase.template, phrase.figures = template, figures
    return phrase


def joined(separator: str, parts: Iterable[str]) -> Phrase:
    """Put phrases into one."""
    figures = {f"part_{number}": part for number, part in enumerate(parts)}
    return say(separator.join(f"{{{name}}}" for name in figures), **figures)


def said(text: str, language: Language) -> str:
    """Give a text in a language."""
    if language is Language.ENGLISH:
        return str(text)
    if not isinstance(text, Phrase) or not text.figures:
        return CHINESE.get(text, str(text))
    figures = {name: said(value, language) if isinstance(value, Phrase) else value for name, value in text.figures.items()}
    return CHINESE.get(text.template, text.template).format_map(figures)


def in_language(document: Document, language: Language) -> Document:
    """Give a check, a statement or a story, or several, with every text in a language, as plain strings."""
    return _in_language(document, language)  # type: ignore[return-value]  # the same kind comes back


def _in_language(value: object, language: Language) -> object:
    match value:
        case Enum():  # a verdict: programs go by it
            return value
        case str():
            return said(value, language)
        case list() | tuple():
            return type(value)(_in_language(each, language) for each in value)
        case dict():
            return {key: _in_language(each, language) for key, each in value.items()}
        case msgspec.Struct():
            texts = {name: _in_language(getattr(value, name), language) for name in value.__struct_fields__}
            return msgspec.structs.replace(value, **texts)
        case _:
            return value
