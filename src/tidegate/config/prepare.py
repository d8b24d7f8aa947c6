"""From a file to a configuration that may be used: load, add the price file and the environment, check.

The start, `tidegate check` and a reload call this.
"""

from __future__ import annotations

import os
import pathlib
from collections.abc import Mapping

import msgspec

from tidegate.config.check import FileExists, check
from tidegate.config.environment import with_environment
from tidegate.config.load import load
from tidegate.config.price_file import with_price_file
from tidegate.config.problem import Problem, refused
from tidegate.config.schema import Configuration


class Prepared(msgspec.Struct, frozen=True):
    """What came of it: `configuration` is None when a problem is an error; warnings may stand beside a configuration."""

    configuration: Configuration | None
    problems: tuple[Problem, ...]


def prepare(path: pathlib.Path | None, environ: Mapping[str, str], *, file_exists: FileExists) -> Prepared:
    """Load, complete and check a file; `readable_file` is the usual `file_exists`."""
    loaded = load(path, environ)
    if isinstance(loaded, list):
        return Prepared(None, tuple(loaded))
    configuration, of_prices = with_price_file(with_environment(loaded.configuration, environ), loaded.source, environ)
    problems = (*check(configuration, loaded.source, file_exists=file_exists), *of_prices)
    return Prepared(None if refused(problems) else configuration, problems)


def readable_file(path: str) -> bool:
    """Tell whether a path is a file that this process can read."""
    return pathlib.Path(path).is_file() and os.access(path, os.R_OK)
