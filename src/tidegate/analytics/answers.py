"""How answers are written: JSON and CSV for programs, cells for people; and what a failed question is told.

A column's name says its unit: `_s` are seconds, `_ratio` a share from 0 to 1. No text out of a record can steer a terminal.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from decimal import Decimal
from difflib import get_close_matches
from typing import Final

import msgspec

from tidegate.analytics.asking import QueryAnswer, Value
from tidegate.analytics.schema import BY_NAME
from tidegate.analytics.scope import Section
from tidegate.billing.layout import csv_text, plain

_SMALL: Final = 1e-6
_UNKNOWN: Final = re.compile(r"(?:Unknown|Missing|There's no)[^`']*[`']([\w.]+)[`']")
_COLUMNS: Final = frozenset(column.name for table in BY_NAME.values() for column in table.columns)


def json_text(name: str, sections: Sequence[Section]) -> str:
    """Write all sections as one JSON document; rows are objects, so that they can be read by name."""
    document = {"question": name, "sections": [_plain_section(section) for section in sections]}
    return msgspec.json.format(msgspec.json.encode(document)).decode()


def csv_of(sections: Sequence[Section]) -> str:
    """Write sections as CSV, one after another with an empty line between; sentences are left out."""
    return "\n".join(
        csv_text([section.answer.columns, *([_csv_cell(value) for value in row] for row in section.answer.rows)]) for section in sections
    )


def cell(column: str, value: Value) -> str:
    """Write one value for people; figures are rounded."""
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}" if _is_amount(column) else str(value)
    if isinstance(value, float):
        return f"{value * 100:.2f} %" if column.endswith(("_ratio", "share")) else _rounded(value)
    if isinstance(value, list):
        return plain(", ".join(str(each) for each in value))
    if isinstance(value, dict):
        return plain(", ".join(f"{key}={each}" for key, each in value.items()))
    return plain(value)


def is_figure(kind: str) -> bool:
    """Say whether a column of this type is laid out to the right."""
    return re.match(r"(?:Nullable\()?(?:U?Int|Float|Decimal)", kind) is not None


def advice(error: str, known: Collection[str] = _COLUMNS) -> str:
    """Add to what the store says what to do about it."""
    unknown = _UNKNOWN.search(error)
    if unknown is not None:
        near = get_close_matches(unknown[1].rpartition(".")[2], known, n=1)
        meant = f"Did you mean {near[0]}?" if near else "`tidegate query columns` lists what there is."
        return f"There is no {unknown[1]!r} here. {meant}"
    if "TIMEOUT_EXCEEDED" in error or "Timeout exceeded" in error:
        return "It took longer than it may. Ask about a shorter time (--since), or allow more with --deadline."
    if "MEMORY_LIMIT_EXCEEDED" in error or "emory limit" in error:
        return "It needs more memory than a question may take. Ask about a shorter time (--since), or group by less."
    return error


def nearest(name: str, known: Collection[str]) -> str:
    """Give a sentence that names what was probably meant, or everything that there is."""
    near = get_close_matches(name, known, n=1, cutoff=0.5)
    return f'Did you mean "{near[0]}"?' if near else f"There are: {', '.join(known)}."


def _plain_section(section: Section) -> dict[str, object]:
    answer: QueryAnswer = section.answer
    return {
        "title": section.title,
        **({"sentence": section.sentence} if section.sentence else {}),
        "columns": answer.columns,
        "rows": [dict(zip(answer.columns, row, strict=True)) for row in answer.rows],
        "truncated": answer.truncated,
        "elapsed_s": answer.elapsed_s,
        "rows_read": answer.rows_read,
    }


def _csv_cell(value: Value) -> str | int:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list | dict):
        return msgspec.json.encode(value).decode()
    return value if isinstance(value, str | int) else repr(value)


def _is_amount(column: str) -> bool:
    return column.startswith(("requests", "attempt_count", "slow_", "count")) or column.endswith(("_sum", "_tokens", "_bytes", "_micro"))


def _rounded(value: float) -> str:
    if value == 0 or abs(value) < _SMALL:
        return f"{value:.3g}"
    if abs(value) >= 100:  # noqa: PLR2004  two digits after the point are enough
        return f"{value:,.2f}"
    return f"{Decimal(f'{value:.4g}'):f}"  # without an exponent, which few read as an amount of money
