"""A tree of YAML nodes to a `Configuration`, guided by the schema's own types; every problem is found in one pass.

The schema decides what a scalar means, not YAML: `no` is a fine model name, `"8080"` a fine port. Values that come from the
environment, and everything whose meaning is not known, are never quoted in a message and are masked in excerpts.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import TypeVar

from msgspec import inspect

from tidegate.config import scalars
from tidegate.config.document import ListNode, MappingNode, Node, Place, ScalarNode, TextSpan
from tidegate.config.problem import Path, did_you_mean, path_text
from tidegate.config.schema import Configuration
from tidegate.config.section import Section
from tidegate.config.substitution import only_a_reference, substitute

Whole = TypeVar("Whole", bound=Section)
"""What a whole file holds."""

MAX_FINDINGS = 1_000
"""More than anyone reads; a file of that many mistakes is the wrong file, and each finding costs a look at every hidden span."""


class _Invalid(Enum):
    INVALID = "invalid"


INVALID = _Invalid.INVALID
"""Stands for a value with a problem, so that the pass can go on."""


class Finding:
    """A problem before its excerpt can be cut: what must be hidden is known only after the whole pass."""

    __slots__ = ("hint", "message", "path", "place")

    def __init__(self, place: Place, path: Path, message: str, hint: str | None) -> None:
        self.place = place
        self.path = path
        self.message = message
        self.hint = hint


class Conversion:
    """One pass over one tree. After `run`, the findings, places and hidden spans of the file."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self.findings: list[Finding] = []
        self.keys: dict[Path, Place] = {}
        self.values: dict[Path, Place] = {}
        self.hidden: list[TextSpan] = []
        self._environ = environ

    def run(self, root: MappingNode, kind: type[Whole]) -> Whole | None:
        """Give what the file holds, or None when there are findings."""
        section = self._section(_structure(kind), root, ())
        return section if isinstance(section, kind) and not self.findings else None

    # ── collections ──────────────────────────────────────────────────────────

    def _value(self, kind: inspect.Type, node: Node, path: Path) -> object:
        kind, optional = scalars.bare(kind)
        self.values[path] = node.span.start
        if isinstance(node, ScalarNode) and node.kind == "null":
            if optional:
                return None
            if isinstance(kind, inspect.StructType | inspect.DictType):
                node = MappingNode((), node.span)
            elif isinstance(kind, inspect.VarTupleType):
                node = ListNode((), node.span)
        match kind:
            case inspect.StructType():
                return self._section(kind, node, path) if isinstance(node, MappingNode) else self._wrong(node, path, "a section with keys")
            case inspect.DictType():
                return (
                    self._names(kind, node, path)
                    if isinstance(node, MappingNode)
                    else self._wrong(node, path, "a section with names as keys")
                )
            case inspect.VarTupleType():
                return (
                    self._list(kind, node, path)
                    if isinstance(node, ListNode)
                    else self._wrong(node, path, "a list", "write it as [one, two]")
                )
            case _:
                return self._scalar(kind, node, path, optional=optional)

    def _section(self, kind: inspect.StructType, node: MappingNode, path: Path) -> object:
        fields = {field.encode_name: field for field in kind.fields}
        settings: dict[str, object] = {}
        for name, key_place, value in self._entries(node, path):
            field = fields.get(name)
            if field is None:
                self.hidden.append(value.span)
                message = f'unknown key "{scalars.shortened(name)}" {_where(path)}'
                hint = _elsewhere(name, path) or did_you_mean(name, fields) or f"the keys here are: {', '.join(fields)}"
                self._found(key_place, (*path, name), message, hint)
                continue
            settings[field.name] = self._value(field.type, value, (*path, name))
        for field in kind.fields:
            if field.required and field.name not in settings:
                hint = f'add "{field.encode_name}: …"{_choices(field.type)}'
                self._found(
                    self.keys.get(path, node.span.start),
                    (*path, field.encode_name),
                    f'missing key "{field.encode_name}" {_where(path)}',
                    hint,
                )
                settings[field.name] = INVALID
        if any(value is INVALID for value in settings.values()):
            return INVALID
        section: object = kind.cls(**settings)
        return section

    def _names(self, kind: inspect.DictType, node: MappingNode, path: Path) -> object:
        values = {name: self._value(kind.value_type, value, (*path, name)) for name, _, value in self._entries(node, path)}
        return INVALID if any(value is INVALID for value in values.values()) else values

    def _list(self, kind: inspect.VarTupleType, node: ListNode, path: Path) -> object:
        members = tuple(self._value(kind.item_type, member, (*path, index)) for index, member in enumerate(node.members))
        if kind.min_length is not None and len(members) < kind.min_length:
            self._found(node.span.start, path, f"{path_text(path)} is empty", f"at least {kind.min_length} is needed")
            return INVALID
        return INVALID if any(member is INVALID for member in members) else members

    def _entries(self, node: MappingNode, path: Path) -> list[tuple[str, Place, Node]]:
        """Give the usable entries of a mapping, in order, each key once."""
        entries: list[tuple[str, Place, Node]] = []
        first: dict[str, int] = {}
        for key, value in node.entries:
            place = key.span.start
            if not isinstance(key, ScalarNode) or key.kind != "str":
                self.hidden.append(value.span)
                merge = isinstance(key, ScalarNode) and key.kind == "merge"
                hint = "merging is not supported; repeat the settings" if merge else "put quotes around it"
                shown = f"the key {scalars.shortened(key.text)}" if isinstance(key, ScalarNode) else "a key"
                self._found(place, path, f"{shown} {_where(path)} is not text", hint)
            elif key.text in first:
                self.hidden.append(value.span)
                message = f'the key "{scalars.shortened(key.text)}" appears twice {_where(path)}'
                self._found(place, (*path, key.text), message, f"it is first on line {first[key.text]}; keep one of them")
            else:
                first[key.text] = place.line
                self.keys[(*path, key.text)] = place
                entries.append((key.text, place, value))
        return entries

    def _scalar(self, kind: inspect.Type, node: Node, path: Path, *, optional: bool) -> object:
        name = str(path[-1]) if path else ""
        if not isinstance(node, ScalarNode):
            return self._wrong(node, path, scalars.wanted(kind, name))
        may_hold_password = isinstance(kind, inspect.CustomType) or ("://" in node.text and "@" in node.text)
        if may_hold_password and not only_a_reference(node.text):
            self.hidden.append(node.span)
        if node.kind == "null":
            hint = "write a value, or delete the key to take the default"
            return self._refuse(node, path, f"expected {scalars.wanted(kind, name)}, got nothing", hint)
        result = substitute(node.text, self._environ)
        if isinstance(result, list):
            for fault in result:
                self._found(node.span.start, path, fault.message, fault.hint)
            return INVALID
        if result.variables and not result.text and optional:
            return None
        got = f"the value of {', '.join(result.variables)}" if result.variables else _described(node)
        value = scalars.read(kind, result.text, path=path, got=got)
        return self._refuse(node, path, value.message, value.hint) if isinstance(value, scalars.InvalidValue) else value

    # ── problems ─────────────────────────────────────────────────────────────

    def _wrong(self, node: Node, path: Path, wanted: str, hint: str | None = None) -> object:
        """Refuse a value of the wrong shape; what it holds is not known, so it is not shown."""
        self.hidden.append(node.span)
        got = {ScalarNode: "a single value", ListNode: "a list", MappingNode: "a section with keys"}[type(node)]
        return self._refuse(node, path, f"expected {wanted}, got {got}", hint)

    def _refuse(self, node: Node, path: Path, message: str, hint: str | None = None) -> object:
        self._found(node.span.start, path, message, hint)
        return INVALID

    def _found(self, place: Place, path: Path, message: str, hint: str | None) -> None:
        if len(self.findings) < MAX_FINDINGS:
            self.findings.append(Finding(place, path, message, hint))


def _described(node: ScalarNode) -> str:
    """Say what kind of value was found, and repeat the beginning of it."""
    match node.kind:
        case "int" | "float":
            return f"the number {scalars.shortened(node.text)}"
        case "bool":
            return scalars.shortened(node.text)
        case _:
            return f"the text '{scalars.shortened(node.text)}'"


def _where(path: Path) -> str:
    return f"in {path_text(path)}" if path else "at the top level"


def _choices(kind: inspect.Type) -> str:
    inner, _ = scalars.bare(kind)
    return f" with {scalars.wanted(inner, '')}" if isinstance(inner, inspect.EnumType) else ""


def _elsewhere(name: str, path: Path) -> str | None:
    """Say which section of the top level owns a key that was written at the top or in a neighbour."""
    if len(path) > 1:
        return None
    owners = [owner for owner, section in _fixed_sections() if name in {field.encode_name for field in section.fields}]
    return f"it belongs under {' or '.join(owners)}" if owners else None


def _fixed_sections() -> list[tuple[str, inspect.StructType]]:
    sections = []
    for field in _CONFIGURATION.fields:
        kind, _ = scalars.bare(field.type)
        if isinstance(kind, inspect.StructType):
            sections.append((field.encode_name, kind))
    return sections


def configuration_type() -> inspect.StructType:
    """Give the schema as msgspec describes it."""
    return _structure(Configuration)


def _structure(section: type[Section]) -> inspect.StructType:
    kind = inspect.type_info(section)
    if not isinstance(kind, inspect.StructType):
        raise TypeError("a section is not a Struct")
    return kind


_CONFIGURATION = configuration_type()
