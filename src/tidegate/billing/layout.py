"""How reports look: columns for people, CSV for spreadsheets. No name that somebody chose can steer a terminal or run as a formula."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime

from rich.cells import cell_len, set_cell_size

_FORMULA = ("=", "+", "-", "@", "\t", "\r")
"""What a spreadsheet takes for the beginning of a formula; names in a report may be chosen by clients."""


def ratio_text(ratio: float | None) -> str:
    """Write a share or a drift in per cent; None: there is nothing to compare with."""
    return "-" if ratio is None else f"{ratio * 100:.1f} %"


def day_text(at: float) -> str:
    """Give the day of an instant, in UTC."""
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d")


def plain(name: str) -> str:
    """Give a name as a terminal may show it."""
    return name if name.isprintable() else "".join(character if character.isprintable() else "?" for character in name)


def table(rows: Sequence[Sequence[str]], *, left: int = 1) -> str:
    """Lay rows out in columns, the first of them the heading; the first `left` columns are names, all others figures."""
    rows = [[plain(cell) for cell in row] for row in rows]
    widths = [max(cell_len(cell) for cell in column) for column in zip(*rows, strict=True)]
    lines = []
    for row in rows:
        cells = [
            set_cell_size(cell, width) if index < left else " " * (width - cell_len(cell)) + cell
            for index, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        lines.append("  ".join(cells).rstrip() + "\n")
    return "".join(lines)


def csv_text(rows: Iterable[Sequence[str | int]]) -> str:
    """Write rows as CSV (RFC 4180, with line feeds). A name that a spreadsheet would run as a formula gets an apostrophe before it."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    for row in rows:
        writer.writerow(
            [f"'{cell}" if isinstance(cell, str) and cell.startswith(_FORMULA) and not _is_figure(cell) else cell for cell in row]
        )
    return text.getvalue()


def _is_figure(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True
