"""The file in which entries wait."""

from __future__ import annotations

from pathlib import Path

import pytest

from tidegate.adapters.books import spill as spill_module
from tidegate.adapters.books.spill import EntrySpillFile


def test_what_is_put_in_comes_out_in_order(tmp_path: Path) -> None:
    """Until it is forgotten; an empty file is removed."""
    spill = EntrySpillFile(tmp_path / "kept" / "j.spill")
    spill.append([b"one", b"two"])
    spill.append([b"three"])
    assert [b"one", b"two", b"three"] == spill.peek() == spill.peek()
    spill.forget([b"one"])
    assert [b"two", b"three"] == spill.peek()
    spill.forget([b"two", b"three"])
    assert 0 == spill.pending_bytes
    assert [] == spill.peek()
    assert not spill.path.exists()


def test_it_is_read_a_piece_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Large files do not come into memory at once."""
    monkeypatch.setattr(spill_module, "READ_BYTES", 10)
    spill = EntrySpillFile(tmp_path / "j.spill")
    spill.append([b"x" * 6, b"y" * 6, b"z"])
    assert [b"x" * 6] == spill.peek()
    spill.close()


@pytest.mark.parametrize("rest", [b"", b"\0", b"\0\0\0\5ab", b"\0\0\0\0\0\0"])
def test_a_successor_takes_it_up(tmp_path: Path, rest: bytes) -> None:
    """What a crash left of a half-written payload is cut off."""
    path = tmp_path / "j.spill"
    first = EntrySpillFile(path)
    first.append([b"one", b"two"])
    first.close()
    path.write_bytes(path.read_bytes() + rest)
    second = EntrySpillFile(path)
    second.adopt()
    second.append([b"three"])
    assert [b"one", b"two", b"three"] == second.peek()
    second.close()


def test_files_of_workers_that_are_no_more_are_taken_over(tmp_path: Path) -> None:
    """Their entries come behind its own; the files are removed."""
    for name in ("a", "b", "c"):
        spill = EntrySpillFile(tmp_path / name)
        spill.append([name.encode()])
        spill.close()
    heir = EntrySpillFile(tmp_path / "a")
    heir.adopt([tmp_path / "b", tmp_path / "c", tmp_path / "gone"])
    assert [b"a", b"b", b"c"] == heir.peek()
    assert ["a"] == [path.name for path in tmp_path.iterdir()]
    heir.close()


def test_a_full_file_takes_all_or_nothing(tmp_path: Path) -> None:
    """Its bound is a refusal, and leaves it as it was."""
    spill = EntrySpillFile(tmp_path / "j.spill", max_bytes=20)
    spill.append([b"0123456789"])
    with pytest.raises(OSError, match="full"):
        spill.append([b"a", b"b"])
    assert [b"0123456789"] == spill.peek()
    spill.close()


def test_it_is_its_owners_alone_and_no_link(tmp_path: Path) -> None:
    """Nobody else reads it, and nobody can have it write elsewhere."""
    spill = EntrySpillFile(tmp_path / "j.spill")
    spill.append([b"x"])
    assert 0o600 == spill.path.stat().st_mode & 0o777
    spill.close()
    (tmp_path / "link").symlink_to(tmp_path / "target")
    with pytest.raises(OSError, match="symbolic link"):
        EntrySpillFile(tmp_path / "link").append([b"x"])
