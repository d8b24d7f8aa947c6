"""YAML text to a tree of nodes that remember their place; structure only, no meaning.

Built on PyYAML's event stream with an explicit stack, so that nothing recurses, no object of the file's choosing is ever made, and the
bounds below hold while reading. What a plain scalar means is left to the schema (`convert`): `no` is a fine model name.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Protocol

import msgspec
import yaml
from yaml.resolver import Resolver

MAX_FILE_BYTES = 1_048_576
"""A configuration of a thousand upstreams is a third of this; the parser needs seconds for more."""
MAX_DEPTH = 50
"""The schema is six levels deep."""
MAX_NODES = 50_000
"""Counted with aliases expanded, so that a short file cannot grow without end."""

_LINE_BREAK = re.compile("\r\n|[\r\n\x85\u2028\u2029]")
_TAG_PREFIX = "tag:yaml.org,2002:"
_MISSED_LATE = ("while scanning a quoted scalar", "while scanning a simple key")
"""What PyYAML was about when the end of something was missing: it notices that lines later, often at the end of the file."""


class Place(msgspec.Struct, frozen=True, order=True):
    """A character of the file; both count from 1."""

    line: int
    column: int


class TextSpan(msgspec.Struct, frozen=True):
    """From a place up to, not including, another."""

    start: Place
    end: Place


class ScalarNode(msgspec.Struct, frozen=True):
    text: str
    kind: str
    """What YAML would take it for: `str`, `int`, `float`, `bool`, `null`, `merge` …; always `str` when quoted."""
    span: TextSpan


class ListNode(msgspec.Struct, frozen=True):
    members: tuple[Node, ...]
    span: TextSpan


class MappingNode(msgspec.Struct, frozen=True):
    entries: tuple[tuple[Node, Node], ...]
    """Keys and values in order; repeated keys are all here."""
    span: TextSpan


class _Mark(Protocol):
    """A place as PyYAML counts: from 0."""

    line: int
    column: int


Node = ScalarNode | ListNode | MappingNode


class DocumentFault(msgspec.Struct, frozen=True):
    """Why the text is not a document: the first fault found, after which nothing can be trusted."""

    place: Place
    message: str
    hint: str | None = None


class _Open(msgspec.Struct):
    """A list or mapping whose end has not been read; a mapping's members alternate key, value."""

    mapping: bool
    start: Place
    anchor: str | None
    members: list[Node]
    size: int = 1


class _Refusal(Exception):
    def __init__(self, malformed: DocumentFault) -> None:
        super().__init__(malformed.message)
        self.malformed = malformed


def parse(text: str) -> MappingNode | DocumentFault:
    """Read one document, which must be a mapping; an empty one is an empty mapping."""
    builder = _Builder()
    try:
        for event in yaml.parse(text, Loader=yaml.SafeLoader):
            builder.receive(event)
    except _Refusal as refusal:
        return refusal.malformed
    except yaml.MarkedYAMLError as error:
        mark = _begin_of(error) or error.problem_mark or error.context_mark
        return DocumentFault(_place(mark) if mark is not None else Place(1, 1), _syntax_message(error), _syntax_hint(error, text))
    except yaml.reader.ReaderError as error:
        before = lines_of(text[: error.position])
        place = Place(len(before), len(before[-1]) + 1)
        return DocumentFault(place, "a control character that YAML does not allow", "delete it, or write it as an escape in double quotes")
    return _top(builder.root)


def lines_of(text: str) -> tuple[str, ...]:
    """Split a text into the lines that places count."""
    return tuple(_LINE_BREAK.split(text))


def _top(root: Node | None) -> MappingNode | DocumentFault:
    match root:
        case MappingNode():
            return root
        case None:
            return MappingNode((), TextSpan(Place(1, 1), Place(1, 1)))
        case ScalarNode(kind="null", span=span):
            return MappingNode((), span)
        case _:
            return DocumentFault(root.span.start, "the file is not a mapping of settings", 'write settings as "key: value", one per line')


class _Builder:
    """Turns events into one tree; `root` is None for an empty file."""

    def __init__(self) -> None:
        self.root: Node | None = None
        self._stack: list[_Open] = []
        self._anchors: dict[str, tuple[Node, int]] = {}
        self._nodes = 0
        self._documents = 0
        self._resolve: Callable[[type[yaml.Node], str, tuple[bool, bool]], str] = Resolver().resolve

    def receive(self, event: yaml.Event) -> None:
        match event:
            case yaml.DocumentStartEvent():
                self._documents += 1
                if self._documents > 1:
                    raise _refusal(event, "a second document begins here", 'the file holds one configuration; remove the line "---"')
            case yaml.ScalarEvent():
                self._refuse_tag(event)
                self._add(self._scalar(event), event, size=1, anchor=event.anchor)
            case yaml.AliasEvent():
                known = self._anchors.get(event.anchor or "")
                if known is None:
                    raise _refusal(
                        event,
                        "an alias of something that is not complete before it",
                        'put quotes around a pattern that begins with "*"; an alias needs its "&name" above it',
                    )
                self._add(known[0], event, size=known[1], anchor=None)
            case yaml.SequenceStartEvent() | yaml.MappingStartEvent():
                self._refuse_tag(event)
                if len(self._stack) >= MAX_DEPTH:
                    raise _refusal(
                        event, f"nested more than {MAX_DEPTH} levels deep", "no setting is that deep; look for a missing bracket"
                    )
                mapping = isinstance(event, yaml.MappingStartEvent)
                self._stack.append(_Open(mapping, _place(event.start_mark), event.anchor, []))
            case yaml.SequenceEndEvent() | yaml.MappingEndEvent():
                self._close(event)
            case _:
                pass

    def _scalar(self, event: yaml.ScalarEvent) -> ScalarNode:
        plain = event.style is None or event.style == ""
        tag = self._resolve(yaml.ScalarNode, event.value, (True, False)) if plain else _TAG_PREFIX + "str"
        return ScalarNode(event.value, tag.removeprefix(_TAG_PREFIX), _span(event))

    def _close(self, event: yaml.Event) -> None:
        collection = self._stack.pop()
        span = TextSpan(collection.start, _place(event.end_mark))
        members = tuple(collection.members)
        pairs = zip(members[::2], members[1::2], strict=True) if collection.mapping else None
        node = MappingNode(tuple(pairs), span) if pairs is not None else ListNode(members, span)
        self._add(node, event, size=collection.size, anchor=collection.anchor)

    def _add(self, node: Node, event: yaml.Event, *, size: int, anchor: str | None) -> None:
        if anchor is not None:
            self._anchors[anchor] = (node, size)
        if not self._stack:
            self.root = node
            return
        parent = self._stack[-1]
        parent.members.append(node)
        parent.size += size
        self._nodes += 1
        if parent.size > MAX_NODES or self._nodes > MAX_NODES:
            raise _refusal(event, f"more than {MAX_NODES} values", "split the deployment, or remove aliases that repeat large parts")

    @staticmethod
    def _refuse_tag(event: yaml.ScalarEvent | yaml.CollectionStartEvent) -> None:
        if event.tag is not None:
            raise _refusal(event, "a YAML tag; tags are not used here", 'remove the word that begins with "!"; put quotes around text')


def _refusal(event: yaml.Event, message: str, hint: str) -> _Refusal:
    return _Refusal(DocumentFault(_place(event.start_mark), message, hint))


def _place(mark: _Mark | None) -> Place:
    if mark is None:
        raise AssertionError("PyYAML marks every event")
    return Place(mark.line + 1, mark.column + 1)


def _span(event: yaml.Event) -> TextSpan:
    return TextSpan(_place(event.start_mark), _place(event.end_mark))


def _begin_of(error: yaml.MarkedYAMLError) -> _Mark | None:
    """Give where a text without its closing quote, or a key without its colon, begins."""
    return error.context_mark if error.context in _MISSED_LATE else None


def _syntax_message(error: yaml.MarkedYAMLError) -> str:
    """Say what the parser says, in one line; its messages name tokens, never values, except for the names of aliases."""
    if isinstance(error, yaml.composer.ComposerError) or not error.problem:
        return "not valid YAML"
    return f"not valid YAML: {' '.join(error.problem.split())}"


def _syntax_hint(error: yaml.MarkedYAMLError, text: str) -> str:
    problem = error.problem or ""
    if "\\t" in problem or "\t" in problem:
        return "indent with spaces; YAML does not take tabs"
    if "mapping values are not allowed" in problem:
        hint = 'put quotes around a value that contains ": ", and give each key its own line'
        return _deeper_than_above(text, error.problem_mark) or hint
    if error.context == "while scanning an alias":
        return 'put quotes around a pattern that begins with "*", as in "*"'
    if error.context == "while scanning a quoted scalar":
        return "close the quotes that begin here"
    if (error.context or "").startswith("while parsing a flow") and error.context_mark is not None and "but got '{'" not in problem:
        return f"the bracket that opens on line {error.context_mark.line + 1} is not closed, or a comma is missing"
    if "but got '{'" in problem:
        return 'inside { } and [ ], put quotes around a value like "${NAME}"'
    if "could not find expected ':'" in problem:
        return 'a key needs ": " after it'
    if "block end" in problem or "block mapping" in (error.context or ""):
        return "keys of one section start in the same column; look at this line's indentation and the one above"
    return "look at this line and the one above for a missing quote, bracket or colon"


def _deeper_than_above(text: str, colon: _Mark | None) -> str | None:
    """Tell a key that is indented deeper than the line above it, whose value YAML took it to continue; `colon` is the one after the key."""
    if colon is None:
        return None
    lines = lines_of(text)
    line = lines[colon.line]
    above = next((number for number in range(colon.line, 0, -1) if lines[number - 1].strip()), None)
    if above is None or ": " in line[: colon.column] or _indentation(line) <= _indentation(lines[above - 1]):
        return None
    return f"this line is indented deeper than line {above}, whose value ends there: keys of one section start in the same column"


def _indentation(line: str) -> int:
    return len(line) - len(line.lstrip(" "))
