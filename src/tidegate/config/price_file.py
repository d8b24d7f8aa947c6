"""A price list in a file of its own: read and checked as if it stood in `prices`, its problems told where the file is named."""

from __future__ import annotations

import pathlib
from collections.abc import Mapping

import msgspec

from tidegate.config.check_prices import check_price_list
from tidegate.config.load import load_prices
from tidegate.config.problem import Problem
from tidegate.config.schema import Configuration
from tidegate.config.source import Source


def with_price_file(configuration: Configuration, source: Source, environ: Mapping[str, str]) -> tuple[Configuration, tuple[Problem, ...]]:
    """Put the list that `prices.file` names into its place; nothing changes where no file is named, or it cannot be used."""
    name = configuration.prices.file
    if name is None:
        return configuration, ()
    loaded = load_prices(pathlib.Path(name), environ)
    if isinstance(loaded, list):
        return configuration, tuple(_told(problem, source, name) for problem in loaded)
    prices, places = loaded
    section = msgspec.structs.replace(configuration.prices, **msgspec.structs.asdict(prices))
    complete = msgspec.structs.replace(configuration, prices=section)
    return complete, tuple(_told(problem, source, name) for problem in check_price_list(complete, places, ()))


def _told(problem: Problem, source: Source, name: str) -> Problem:
    where = f"{name}:{problem.line}:{problem.column} " if problem.line else ""
    return source.problem(("prices", "file"), f"{where}{problem.message}", problem.hint, severity=problem.severity)
