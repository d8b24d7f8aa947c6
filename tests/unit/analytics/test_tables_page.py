"""The page of the tables says what the tables are."""

from __future__ import annotations

from pathlib import Path

import pytest

from tidegate.analytics import reference
from tidegate.analytics.schema import TABLES

PAGE = Path(__file__).parents[3] / "docs" / "reference" / "tables.md"


def test_the_page_in_the_repository_is_current() -> None:
    """`docs/reference/tables.md` is what `make docs` would write."""
    assert PAGE.read_text() == reference.tables_page()


def test_every_column_is_a_whole_row_of_the_page() -> None:
    """Its name, its type, what it says, and nothing that would part the row elsewhere."""
    rows = [line for line in reference.tables_page().splitlines() if line.startswith("| `")]
    columns = [column for table in TABLES for column in table.columns]
    assert [f"| `{column.name}` | `{column.type}` | {column.sentence} |" for column in columns] == rows
    assert {4} == {row.count("|") for row in rows}


def test_the_page_is_written_where_it_is_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`make docs` names the directory; without one it says how it is called."""
    monkeypatch.setattr("sys.argv", ["reference", str(tmp_path / "pages")])
    assert 0 == reference.main()
    assert reference.tables_page() == (tmp_path / "pages" / "tables.md").read_text()
    monkeypatch.setattr("sys.argv", ["reference"])
    assert 2 == reference.main()
