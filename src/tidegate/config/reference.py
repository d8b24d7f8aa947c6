"""The generated pages `configuration.md` and `errors.md`: the schema and the error tree, put into words for those who use them.

`python -m tidegate.config.reference DIR` writes both. A test compares the committed pages with what these functions give.
"""

from __future__ import annotations

import pathlib
import re
import sys
from collections.abc import Iterator
from inspect import cleandoc

from msgspec import NODEFAULT, Struct, inspect

from tidegate import errors
from tidegate.config.convert import configuration_type
from tidegate.config.environment import HOSTED
from tidegate.config.reference_text import ADVICE, CONFIGURATION_EXAMPLES, CONFIGURATION_INTRODUCTION, ERRORS_INTRODUCTION
from tidegate.config.reload import FIXED
from tidegate.config.scalars import bare, range_text, wanted

_TREE_LINE = re.compile(r"^(?P<branch>[│├└─ ]*── )(?P<name>\w+)\s+(?:(?P<status>\d{3})\s+)?(?P<meaning>.+)$")
_SDK_CLASSES = {
    400: "BadRequestError",
    401: "AuthenticationError",
    403: "PermissionDeniedError",
    404: "NotFoundError",
    429: "RateLimitError",
}
_FIVE_DIGITS = 10_000
_SIZE_UNITS = ((2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB"))


# ── configuration ────────────────────────────────────────────────────────────


def configuration_page() -> str:
    """Give the page that documents every setting."""
    sections = "".join(_section(name, kind, fields_only=not name) for name, kind in _sections("", configuration_type()))
    return (
        f"{CONFIGURATION_INTRODUCTION}\n{_environment()}\n{CONFIGURATION_EXAMPLES}\n{_fixed()}\n# Every setting\n\n{sections}".rstrip()
        + "\n"
    )


def _sections(name: str, kind: inspect.StructType) -> Iterator[tuple[str, inspect.StructType]]:
    """Walk the schema, each section before those inside it."""
    yield name, kind
    for field in kind.fields:
        inner, _ = bare(field.type)
        suffix = ""
        if isinstance(inner, inspect.DictType):
            inner, suffix = bare(inner.value_type)[0], ".<name>"
        elif isinstance(inner, inspect.VarTupleType):
            inner, suffix = bare(inner.item_type)[0], "[]"
        if isinstance(inner, inspect.StructType):
            yield from _sections(f"{name}.{field.encode_name}{suffix}".removeprefix("."), inner)


def _section(name: str, kind: inspect.StructType, *, fields_only: bool) -> str:
    introduction = "" if fields_only else f"{cleandoc(kind.cls.__doc__ or '')}\n\n"
    heading = "Top level" if fields_only else f"`{name}`"
    rows = "".join(_row(field) for field in kind.fields)
    return f"## {heading}\n\n{introduction}| key | takes | default | meaning |\n|---|---|---|---|\n{rows}\n"


def _row(field: inspect.Field) -> str:
    description = ""
    if isinstance(field.type, inspect.Metadata) and field.type.extra_json_schema is not None:
        description = str(field.type.extra_json_schema["description"])
    cells = (f"`{field.encode_name}`", _takes(field.type, field.encode_name), _default(field), description)
    return f"| {' | '.join(cell.replace('|', '&#124;') for cell in cells)} |\n"


def _takes(kind: inspect.Type, name: str) -> str:
    inner, _ = bare(kind)
    match inner:
        case inspect.StructType():
            return "a section"
        case inspect.DictType():
            return "sections by name" if isinstance(bare(inner.value_type)[0], inspect.StructType) else "text by name"
        case inspect.VarTupleType():
            return "a list of sections" if isinstance(bare(inner.item_type)[0], inspect.StructType) else "a list of text"
        case inspect.EnumType():
            return ", ".join(f"`{member.value}`" for member in inner.cls)
        case inspect.IntType() | inspect.FloatType():
            limits = range_text(inner.ge, inner.gt, inner.le)
            unit = "a size" if name.endswith("_bytes") else "a duration" if name.endswith("_s") else wanted(inner, name)
            return f"{unit}, {_range_in_unit(inner, name) or limits}" if limits else unit
        case _:
            return wanted(inner, name)


def _range_in_unit(kind: inspect.IntType | inspect.FloatType, name: str) -> str:
    """Say a duration's usual range shortly; the bounds of other units read well as plain numbers."""
    return f"up to {seconds_text(kind.le)}" if name.endswith("_s") and kind.le is not None and not kind.ge else ""


def _default(field: inspect.Field) -> str:
    if field.required:
        return "**required**"
    value = field.default if field.default is not NODEFAULT else field.default_factory()
    return f"`{_value(value, field.encode_name)}`" if not isinstance(value, Struct) and value is not None else "–"


def _value(value: object, name: str) -> str:
    match value:
        case bool():
            return str(value).lower()
        case int():
            return size_text(value) if name.endswith("_bytes") else str(value) if value < _FIVE_DIGITS else f"{value:_}"
        case float():
            return seconds_text(value) if name.endswith("_s") else f"{value:g}"
        case tuple():
            return f"[{', '.join(map(str, value))}]"
        case _:
            return str(value)


def size_text(size: int) -> str:
    """Write a size as people do, in the largest unit that divides it."""
    for factor, unit in _SIZE_UNITS:
        if size and size % factor == 0:
            return f"{size // factor}{unit}"
    return str(size)


def seconds_text(seconds: float) -> str:
    """Write a duration as people do: `30s`, `10m`, `7d`."""
    for factor, unit in ((86_400, "d"), (3_600, "h"), (60, "m")):
        if seconds % factor == 0 and seconds > factor:
            return f"{seconds / factor:g}{unit}"
    return f"{seconds:g}s"


def _environment() -> str:
    rows = "".join(
        f"| `{hosted.key_variable}` | `{hosted.name}` | `{hosted.base_url}`"
        + (f", or `{hosted.base_url_variable}`" if hosted.base_url_variable else "")
        + f" | {', '.join(f'`{pattern}`' for pattern in hosted.patterns)} |\n"
        for hosted in HOSTED
    )
    return f"| variable | upstream | address | models routed to it when there are no `routes` |\n|---|---|---|---|\n{rows}"


def _fixed() -> str:
    rows = "".join(f"* `{'.'.join(path)}`: {reason}\n" for path, reason in FIXED)
    return (
        "# Reload\n\nSend the node's first process `SIGHUP`; its number is in the file `lock` of the state directory, and in the log as\n"
        "`pid` of `node.listening`:\n\n"
        "```sh\nkill -HUP $(cat .tidegate/lock)\n```\n\n"
        "Only this process reloads: workers ignore the signal, the node's other processes end by it and are started again, and `make`\n"
        "does not pass it on, so one sent to the process of `make up` itself is lost.\n"
        "The log says what came of it: `configuration.reloaded`, or `configuration.reload_refused` with the reason.\n\n"
        "The file is loaded and checked as a whole; with any error, nothing changes and the old configuration goes on. Requests that are\n"
        "running keep what they began with. These settings need a restart, and a reload that changes one of them is refused:\n\n"
        f"{rows}"
    )


# ── errors ───────────────────────────────────────────────────────────────────


def error_classes() -> list[tuple[type[errors.TidegateError], str, bool]]:
    """Read the tree in the docstring of `errors`: each class, its meaning, and whether it is a group of others."""
    found: list[tuple[type[errors.TidegateError], str, bool]] = []
    for line in (errors.__doc__ or "").splitlines():
        match = _TREE_LINE.match(line)
        if match is not None:
            cls: type[errors.TidegateError] = getattr(errors, match["name"])
            is_group = any(child.__module__ == errors.__name__ for child in cls.__subclasses__())  # others may have been imported
            found.append((cls, match["meaning"], is_group))
    return found


def errors_page() -> str:
    """Give the page that documents every error a client or operator can meet."""
    parts = [ERRORS_INTRODUCTION]
    for cls, meaning, is_group in error_classes():
        if is_group:
            parts.append(f"## {_sentence(meaning)}\n")
        else:
            parts.append(_error(cls, meaning))
    return "\n".join(parts).rstrip() + "\n"


def _error(cls: type[errors.TidegateError], meaning: str) -> str:
    if cls is errors.ConfigurationError:
        rows = [("class", f"`{cls.__name__}`")]
    else:
        status = "4xx, as the upstream sent it" if cls is errors.UpstreamRejected else str(cls.status)
        own_code = [("`code`", "the model server's own where it sent one, else this one")] if cls is errors.UpstreamRejected else []
        rows = [
            ("HTTP status", status),
            *own_code,
            ("`type`", f"`{cls.type}`"),
            ("may succeed later", "yes" if cls.retryable else "no"),
            ("`openai` SDK raises", "by its status" if cls is errors.UpstreamRejected else f"`{_sdk_class(cls.status)}`"),
            ("class", f"`{cls.__name__}`"),
        ]
    table = "".join(f"| {name} | {value} |\n" for name, value in rows)
    return f"### `{cls.code}`\n\n{_sentence(meaning)}.\n\n| | |\n|---|---|\n{table}\n**What to do.** {ADVICE[cls]}\n"


def _sdk_class(status: int) -> str:
    return "InternalServerError" if status >= 500 else _SDK_CLASSES.get(status, "APIStatusError")  # noqa: PLR2004  HTTP's own classes


def _sentence(meaning: str) -> str:
    return meaning[0].upper() + meaning[1:]


def write_pages(directory: pathlib.Path) -> None:
    """Write both pages into a folder, which is made if need be."""
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "configuration.md").write_text(configuration_page(), encoding="utf-8")
    (directory / "errors.md").write_text(errors_page(), encoding="utf-8")


if __name__ == "__main__":
    if len(sys.argv) != 2:  # noqa: PLR2004  the program and its one argument
        sys.exit("usage: python -m tidegate.config.reference DIR")
    write_pages(pathlib.Path(sys.argv[1]))
