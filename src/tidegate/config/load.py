"""Read `tidegate.yaml` into a typed configuration, or into every problem that it has. Refusals are values.

The only module here that touches the outside, and only to read the file it is given. The environment is an argument.
What the settings mean together is for `check`; what the environment adds for `environment`; `prepare` is all of it in order.
"""

from __future__ import annotations

import os
import pathlib
import stat
from collections.abc import Mapping

import msgspec

from tidegate.config.convert import Conversion, Whole
from tidegate.config.document import MAX_FILE_BYTES, DocumentFault, lines_of, parse
from tidegate.config.problem import Problem
from tidegate.config.schema import Configuration
from tidegate.config.schema_prices import PriceListSection
from tidegate.config.source import Source, syntax_problem


class Loaded(msgspec.Struct, frozen=True):
    """A configuration of the right types, and where in the file each setting stands."""

    configuration: Configuration
    source: Source


def load(path: pathlib.Path | None, environ: Mapping[str, str]) -> Loaded | list[Problem]:
    """Read a file; None stands for an empty one, which is a working configuration."""
    if path is None:
        return Loaded(Configuration(), Source(""))
    text = _read(path)
    return text if isinstance(text, list) else load_text(text, environ, name=str(path))


def load_text(text: str, environ: Mapping[str, str], *, name: str = "tidegate.yaml") -> Loaded | list[Problem]:
    """Read a text as `load` reads a file of that name."""
    found = _convert(text, environ, Configuration, name)
    return found if isinstance(found, list) else Loaded(*found)


def load_prices(path: pathlib.Path, environ: Mapping[str, str]) -> tuple[PriceListSection, Source] | list[Problem]:
    """Read a price list that has a file of its own."""
    text = _read(path)
    return text if isinstance(text, list) else _convert(text, environ, PriceListSection, str(path))


def _convert(text: str, environ: Mapping[str, str], kind: type[Whole], name: str) -> tuple[Whole, Source] | list[Problem]:
    root = parse(text)
    if isinstance(root, DocumentFault):
        return [syntax_problem(text, root.place, root.message, root.hint)]
    conversion = Conversion(environ)
    settings = conversion.run(root, kind)
    source = Source(name, lines_of(text), conversion.keys, conversion.values, tuple(conversion.hidden))
    if settings is not None:
        return settings, source
    problems = [source.problem_at(found.place, found.path, found.message, found.hint) for found in conversion.findings]
    return sorted(problems, key=lambda problem: (problem.line, problem.column))


def _read(path: pathlib.Path) -> str | list[Problem]:
    """Read at most the allowed size of a regular file: a pipe or a device could keep us waiting for ever."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                return [_whole_file(f"{path} is not a regular file", "give the path of the YAML file itself")]
            with open(descriptor, "rb", closefd=False) as file:
                content = file.read(MAX_FILE_BYTES + 1)
        finally:
            os.close(descriptor)
    except FileNotFoundError:
        return [_whole_file(f"{path} does not exist", "give the right path, or start from tidegate.example.yaml")]
    except OSError as error:
        return [_whole_file(f"{path} cannot be read: {error.strerror}", "check its permissions and those of the folders above it")]
    if len(content) > MAX_FILE_BYTES:
        return [_whole_file(f"{path} is larger than {MAX_FILE_BYTES:,} bytes", "is this the right file?")]
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        return [Problem(content.count(b"\n", 0, error.start) + 1, 1, "", "not UTF-8 text", "save the file as UTF-8")]


def _whole_file(message: str, hint: str) -> Problem:
    return Problem(0, 0, "", message, hint)
