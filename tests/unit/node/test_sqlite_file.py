"""Files that only their owner reads, and SQLite's locks on them."""

from __future__ import annotations

import stat
import subprocess
import sys
from contextlib import closing
from pathlib import Path

from tidegate.adapters.books.opening import open_books
from tidegate.adapters.keys.store import KeyStore
from tidegate.adapters.sqlite_file import make_private
from tidegate.domain.books import Credit, OperationId
from tidegate.domain.units import TenantId

READS = """
import sys
from tidegate.adapters.books.opening import open_books
books = open_books(sys.argv[1])
print(len(books.balances()))
books.close()
"""
LISTS = """
import sys
from pathlib import Path
from tidegate.adapters.keys.store import KeyStore
keys = KeyStore(Path(sys.argv[1]))
print(len(keys.list()))
keys.close()
"""


def elsewhere(script: str, path: Path) -> str:
    """Run it in another process, as a command would."""
    return subprocess.run([sys.executable, "-c", script, str(path)], check=True, capture_output=True, text=True, timeout=30.0).stdout


def test_a_file_is_its_owners_alone(tmp_path: Path) -> None:
    """One that is made, and one that was there."""
    made, found = tmp_path / "made", tmp_path / "found"
    found.write_text("kept")
    found.chmod(0o644)
    for path in (made, found, found):
        make_private(path)
        assert 0o600 == stat.S_IMODE(path.stat().st_mode)
    assert "kept" == found.read_text()


def test_books_opened_twice_by_a_process_lose_nothing(tmp_path: Path) -> None:
    """The second connection takes no lock away from the first: a command's end does not delete the log that the first goes on to write."""
    path = tmp_path / "books.sqlite"
    with closing(open_books(str(path))) as books:
        books.post([Credit(OperationId("one"), TenantId("acme"), 1, 0.0)], now=0.0)
        open_books(str(path)).close()
        elsewhere(READS, path)
        books.post([Credit(OperationId("two"), TenantId("beta"), 1, 0.0)], now=0.0)
        assert "2\n" == elsewhere(READS, path)


def test_keys_opened_twice_by_a_process_lose_nothing(tmp_path: Path) -> None:
    """Likewise, for keys: every process sees what was changed after that."""
    path = tmp_path / "keys.sqlite"
    with KeyStore(path) as keys:
        keys.create(name="one", tenant="t", user="u", now=0.0)
        KeyStore(path).close()
        elsewhere(LISTS, path)
        keys.create(name="two", tenant="t", user="u", now=0.0)
        assert "2\n" == elsewhere(LISTS, path)
