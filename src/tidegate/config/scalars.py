"""One scalar of the file to a value of the schema's type, or why not. The spellings allowed follow from the type and the setting's unit."""

from __future__ import annotations

import msgspec
from msgspec import inspect

from tidegate.config import quantities
from tidegate.config.problem import Path, did_you_mean, path_text
from tidegate.domain.units import Secret

LARGEST_WHOLE_NUMBER = 2**53 - 1
"""Above it JSON readers lose digits, and no count or size of ours comes near."""

_LONGEST_QUOTE = 40
"""Characters of a wrong value that a message repeats."""
_BOOLEANS = {"true": True, "yes": True, "on": True, "false": False, "no": False, "off": False}


class InvalidValue(msgspec.Struct, frozen=True):
    """Why a text cannot be this setting's value."""

    message: str
    hint: str | None = None


def read(kind: inspect.Type, text: str, *, path: Path, got: str) -> object:
    """Give the value, or `InvalidValue`. `got` is how messages call the text, which they never repeat themselves."""
    name = str(path[-1])
    match kind:
        case inspect.CustomType(cls=cls) if cls is Secret:
            return Secret(text)
        case inspect.StrType():
            return text
        case inspect.EnumType():
            return _choice(kind, text, got)
        case inspect.BoolType():
            value: object = _BOOLEANS.get(text.lower())
        case inspect.IntType() | inspect.FloatType():
            number = _number(kind, name, text)
            limit = out_of_range(kind, number) if number is not None else None
            if limit is not None:
                unit = " seconds" if name.endswith("_s") else " bytes" if name.endswith("_bytes") else ""
                return InvalidValue(f"{path_text(path)} must be {limit}{unit}; got {got}")
            value = number
        case _:
            raise AssertionError(f"the schema uses a type that the loader does not know: {kind}")
    return value if value is not None else InvalidValue(f"expected {wanted(kind, name)}, got {got}")


def _choice(kind: inspect.EnumType, text: str, got: str) -> object:
    choices = [str(member.value) for member in kind.cls]
    if text in choices:
        return kind.cls(text)
    return InvalidValue(f"expected one of {', '.join(choices)}; got {got}", did_you_mean(text, choices))


def bare(kind: inspect.Type) -> tuple[inspect.Type, bool]:
    """Strip documentation and `| None` from a type; the second value tells whether None is allowed."""
    optional = False
    while True:
        match kind:
            case inspect.Metadata():
                kind = kind.type
            case inspect.UnionType():
                optional = True
                (kind,) = (member for member in kind.types if not isinstance(member, inspect.NoneType))
            case _:
                return kind, optional


def wanted(kind: inspect.Type, name: str) -> str:
    """Say in words what a setting of this type takes."""
    match kind:
        case inspect.BoolType():
            return "true or false"
        case inspect.EnumType():
            return "one of " + ", ".join(str(member.value) for member in kind.cls)
        case inspect.IntType():
            return 'a size like "32MiB" or a whole number of bytes' if name.endswith("_bytes") else "a whole number"
        case inspect.FloatType():
            return 'a duration like "30s" or "500ms"' if name.endswith("_s") else "a number"
        case _:
            return "text"


def _number(kind: inspect.IntType | inspect.FloatType, name: str, text: str) -> float | None:
    """Read a number in the spellings that the setting's unit allows; an int for a whole-number setting."""
    if isinstance(kind, inspect.IntType):
        return quantities.size_bytes(text) if name.endswith("_bytes") else quantities.whole_number(text)
    return quantities.seconds(text) if name.endswith("_s") else quantities.number(text)


def out_of_range(kind: inspect.IntType | inspect.FloatType, number: float) -> str | None:
    """Say which range was missed, or None."""
    if isinstance(kind, inspect.IntType) and kind.le is None and number > LARGEST_WHOLE_NUMBER:
        return range_text(kind.ge, kind.gt, LARGEST_WHOLE_NUMBER)
    inside = (kind.ge is None or number >= kind.ge) and (kind.gt is None or number > kind.gt) and (kind.le is None or number <= kind.le)
    return None if inside else range_text(kind.ge, kind.gt, kind.le)


def range_text(at_least: float | None, above: float | None, at_most: float | None) -> str:
    """Say a range in words: `between 1 and 256`, `more than 0 and at most 604,800`."""
    if at_least is not None and at_most is not None:
        return f"between {at_least:,} and {at_most:,}"
    low = f"at least {at_least:,}" if at_least is not None else (f"more than {above:,}" if above is not None else "")
    high = f"at most {at_most:,}" if at_most is not None else ""
    return " and ".join(part for part in (low, high) if part)


def shortened(text: str) -> str:
    """Cut a text to what a message can repeat, on one line."""
    line = "".join(character if character.isprintable() else "?" for character in text)
    return line if len(line) <= _LONGEST_QUOTE else line[: _LONGEST_QUOTE - 1] + "…"
