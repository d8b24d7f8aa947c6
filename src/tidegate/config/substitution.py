"""`${NAME}` and `${NAME:-default}` in a value take the environment's; `$${` is a literal `${`. What is put in is not read again."""

from __future__ import annotations

import re
from collections.abc import Mapping

import msgspec

_REFERENCE = re.compile(r"\$\$\{|\$\{(?P<name>[A-Za-z_][A-Za-z0-9_]*)(?::-(?P<default>[^}]*))?\}|(?P<broken>\$\{)")
_PURE = re.compile(r"\$\{[A-Za-z_][A-Za-z0-9_]*\}")


class Substituted(msgspec.Struct, frozen=True):
    """The resulting text, and the variables that went into it."""

    text: str
    variables: tuple[str, ...]


class BadReference(msgspec.Struct, frozen=True):
    """A reference that cannot be followed."""

    message: str
    hint: str


def substitute(text: str, environ: Mapping[str, str]) -> Substituted | list[BadReference]:
    """Replace every reference; all that fail are told. As in a shell, a default also stands in for an empty variable."""
    variables: list[str] = []
    faults: list[BadReference] = []

    def replacement(match: re.Match[str]) -> str:
        if match["broken"]:
            faults.append(
                BadReference('"${" without a variable name and "}"', 'write ${NAME} or ${NAME:-default}; "$${" stands for the text "${"')
            )
            return ""
        name: str | None = match["name"]
        if name is None:
            return "${"
        variables.append(name)
        default: str | None = match["default"]
        value = environ.get(name)
        if default is not None:
            return value or default
        if value is None:
            faults.append(
                BadReference(f"the environment variable {name} is not set", f"set it before the start, or write ${{{name}:-default}}")
            )
            return ""
        return value

    result = _REFERENCE.sub(replacement, text)
    return faults or Substituted(result, tuple(variables))


def only_a_reference(text: str) -> bool:
    """Tell whether the text is one variable and nothing else, so that showing it shows no secret."""
    return _PURE.fullmatch(text) is not None
