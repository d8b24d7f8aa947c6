"""Writes `tables.md`, the page of every column of the tables of records: `python -m tidegate.analytics.reference DIRECTORY`."""

from __future__ import annotations

import sys
from pathlib import Path

from tidegate.analytics.schema import page

FILE_NAME = "tables.md"

_HEAD = """\
# Tables of records

Generated from `tidegate.analytics.schema` by `make docs`; a test keeps it current.

[`tidegate query`](../query.md) and the console ask these tables; [records](../records.md) says how rows come into them. `bodies`
can only be read by an administrator, and not with `tidegate query`. Times are in UTC. A type that is not `Nullable` has its nothing (0,
an empty text) where a record does not say: of another version, or because there was none.
"""


def tables_page() -> str:
    """Give the whole page."""
    return "\n".join((_HEAD.rstrip("\n"), *page(), ""))


def main() -> int:
    if len(sys.argv) != 2:  # noqa: PLR2004  the program and its one argument
        sys.stderr.write("usage: python -m tidegate.analytics.reference DIRECTORY\n")
        return 2
    directory = Path(sys.argv[1])
    directory.mkdir(parents=True, exist_ok=True)
    (directory / FILE_NAME).write_text(tables_page())
    return 0


if __name__ == "__main__":
    sys.exit(main())
