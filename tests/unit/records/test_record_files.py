"""The rotated log and its spill: whole lines, once each, in order, whatever happens in between."""

from __future__ import annotations

import resource
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidegate.adapters.records.files import RotatingFile, SpillFile, deleted_count, read_deleted

LINES = st.lists(st.binary(max_size=40).map(lambda raw: raw.replace(b"\n", b"_")), max_size=40)


def everything(log: Path) -> list[bytes]:
    """Read the log with its rotated files, oldest first."""
    numbered = sorted(log.parent.glob(log.name + ".*"), key=lambda path: -int(path.suffix[1:]))
    return [line for path in (*numbered, log) if path.exists() for line in path.read_bytes().splitlines()]


@given(lines=LINES, max_bytes=st.integers(1, 200))
@settings(max_examples=60, deadline=None)
def test_rotation_loses_and_doubles_nothing(tmp_path_factory: pytest.TempPathFactory, lines: list[bytes], max_bytes: int) -> None:
    """Law: the rotated files and the log together are exactly what was appended, in order."""
    log = tmp_path_factory.mktemp("records") / "log.jsonl"
    file = RotatingFile(log, max_bytes=max_bytes, keep_files=100)
    numbered = [
        b"%d:%s" % (index, line.replace(b"\r", b"_").replace(b"\x0b", b"_").replace(b"\x0c", b"_")) for index, line in enumerate(lines)
    ]
    for line in numbered:
        file.append(line + b"\n")
    file.close()
    assert everything(log) == numbered


def test_only_the_configured_number_of_files_is_kept(tmp_path: Path) -> None:
    """The oldest rotated file is deleted, never a newer one, and its bytes are counted for readers who were away."""
    log = tmp_path / "log.jsonl"
    file = RotatingFile(log, max_bytes=10, keep_files=2)
    for number in range(6):
        file.append(b"line %d..\n" % number)
    file.close()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["log.deleted", "log.jsonl", "log.jsonl.1", "log.jsonl.2"]
    assert 3 * len(b"line 0..\n") == read_deleted(deleted_count(log))
    assert everything(log) == [b"line 3..", b"line 4..", b"line 5.."]


def test_a_partial_last_line_is_closed_before_the_next(tmp_path: Path) -> None:
    """What a crash left of a line stays on its own line, and the next record is readable."""
    log = tmp_path / "log.jsonl"
    log.write_bytes(b'{"whole":1}\n{"torn":')
    file = RotatingFile(log, max_bytes=1000, keep_files=1)
    file.append(b'{"next":1}\n')
    file.close()
    assert log.read_bytes() == b'{"whole":1}\n{"torn":\n{"next":1}\n'


def test_a_file_moved_away_is_not_written_any_more(tmp_path: Path) -> None:
    """After logrotate or a person moved the file, records go to a fresh one of the old name."""
    log = tmp_path / "log.jsonl"
    file = RotatingFile(log, max_bytes=1000, keep_files=1, look_every_s=0.0)
    file.append(b"one\n")
    log.rename(tmp_path / "elsewhere")
    file.append(b"two\n")
    file.close()
    assert ((tmp_path / "elsewhere").read_bytes(), log.read_bytes()) == (b"one\n", b"two\n")


def test_whether_a_file_was_moved_is_asked_from_time_to_time(tmp_path: Path) -> None:
    """Until then records go where the file is now, whole and in order, and none is lost."""
    log = tmp_path / "log.jsonl"
    file = RotatingFile(log, max_bytes=1000, keep_files=1, look_every_s=3600.0)
    file.append(b"one\n")
    log.rename(tmp_path / "elsewhere")
    file.append(b"two\n")
    file.close()
    assert ((tmp_path / "elsewhere").read_bytes(), log.exists()) == (b"one\ntwo\n", False)


def test_a_full_file_that_was_moved_or_cut_is_not_rotated(tmp_path: Path) -> None:
    """What is rotated is looked at first, however lately that was done."""
    log = tmp_path / "log.jsonl"
    file = RotatingFile(log, max_bytes=10, keep_files=9, look_every_s=3600.0)
    file.append(b"12345678\n")
    log.rename(tmp_path / "elsewhere")
    file.append(b"23456789\n")
    assert log.read_bytes() == b"23456789\n"
    log.write_bytes(b"")
    file.append(b"34567890\n")
    file.close()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["elsewhere", "log.jsonl"]
    assert log.read_bytes() == b"34567890\n"


def test_a_file_that_grew_by_others_is_rotated_when_that_is_seen(tmp_path: Path) -> None:
    """Its size is what it was when it was last looked at, and what was written since; one that was cut is not rotated for what it had."""
    log = tmp_path / "log.jsonl"
    file = RotatingFile(log, max_bytes=10, keep_files=9, look_every_s=0.0)
    file.append(b"1234\n")
    log.write_bytes(b"1\n")
    file.append(b"12345\n")
    assert log.read_bytes() == b"1\n12345\n"
    with log.open("ab") as other:
        other.write(b"x\n")
    file.append(b"2\n")
    file.close()
    assert everything(log) == [b"1", b"12345", b"x", b"2"]
    assert log.read_bytes() == b"2\n"


def test_a_block_that_found_no_room_leaves_nothing_behind(tmp_path: Path) -> None:
    """The part that was written is taken back, whatever the file's size was thought to be."""
    log = tmp_path / "log.jsonl"
    file = RotatingFile(log, max_bytes=100_000, keep_files=1, look_every_s=3600.0)
    file.append(b"one\n")
    log.write_bytes(b"")
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10, before[1]))
    try:
        with pytest.raises(OSError, match="File too large"):
            file.append(b"x" * 20 + b"\n")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert log.read_bytes() == b""
    file.append(b"two\n")
    file.close()
    assert log.read_bytes() == b"two\n"


def test_a_removed_directory_is_made_again(tmp_path: Path) -> None:
    """Removing the directory under a running gateway costs what was in it and nothing after."""
    log = tmp_path / "records" / "log.jsonl"
    file = RotatingFile(log, max_bytes=1000, keep_files=1, look_every_s=0.0)
    file.append(b"one\n")
    log.unlink()
    log.parent.rmdir()
    file.append(b"two\n")
    file.close()
    assert log.read_bytes() == b"two\n"


def test_records_are_readable_by_their_owner_only(tmp_path: Path) -> None:
    """Records name tenants and users."""
    log = tmp_path / "records" / "log.jsonl"
    file = RotatingFile(log, max_bytes=1000, keep_files=1)
    file.append(b"one\n")
    file.close()
    assert (log.stat().st_mode & 0o777, log.parent.stat().st_mode & 0o777) == (0o600, 0o700)


def test_a_full_disk_raises_and_leaves_nothing(tmp_path: Path) -> None:
    """A write that fails is reported, so that the block can go elsewhere."""
    log = tmp_path / "log.jsonl"
    log.symlink_to("/dev/full")
    file = RotatingFile(log, max_bytes=1000, keep_files=1)
    with pytest.raises(OSError, match="No space left"):
        file.append(b"one\n")
    file.close()


def test_the_spill_moves_back_in_order(tmp_path: Path) -> None:
    """What was spilled comes after what was logged before, and the spill file is gone."""
    log = RotatingFile(tmp_path / "log.jsonl", max_bytes=20, keep_files=9)
    spill = SpillFile(tmp_path / "spill.jsonl", max_bytes=1000)
    log.append(b"one\n")
    assert spill.append(b"two\n")
    assert spill.append(b"three\nfour\n")
    spill.replay(log)
    log.append(b"five\n")
    assert everything(log.path) == [b"one", b"two", b"three", b"four", b"five"]
    assert (spill.pending_bytes, spill.path.exists()) == (0, False)
    log.close()


def test_a_full_spill_refuses(tmp_path: Path) -> None:
    """The spill has a bound, because it is often on a small disk."""
    spill = SpillFile(tmp_path / "spill.jsonl", max_bytes=8)
    assert spill.append(b"1234567\n")
    assert not spill.append(b"x\n")
    spill.close()


def test_a_spill_is_not_written_through_a_link(tmp_path: Path) -> None:
    """Another user of a shared temporary directory cannot direct our records into a file of ours."""
    victim = tmp_path / "victim"
    victim.write_text("keep me")
    link = tmp_path / "spill.jsonl"
    link.symlink_to(victim)
    spill = SpillFile(link, max_bytes=1000)
    with pytest.raises(OSError, match="symbolic links"):
        spill.append(b"one\n")
    spill.adopt(tmp_path / "log.jsonl")
    assert (victim.read_text(), spill.pending_bytes) == ("keep me", 0)


@given(before=st.integers(0, 4), spilled=st.integers(1, 8), replayed=st.floats(0, 1), torn=st.sampled_from([b"", b'{"never finished']))
@settings(max_examples=80, deadline=None)
def test_a_replay_cut_by_a_crash_is_completed_without_doubles(
    tmp_path_factory: pytest.TempPathFactory, before: int, spilled: int, replayed: float, torn: bytes
) -> None:
    """Law: wherever a replay was killed, even inside a line, the next process ends with every line once."""
    directory = tmp_path_factory.mktemp("records")
    log, spill = directory / "log.jsonl", directory / "spill.jsonl"
    first = b"".join(b'{"logged":%d}\n' % number for number in range(before))
    second = b"".join(b'{"spilled":%d}\n' % number for number in range(spilled))
    log.write_bytes(first + second[: int(len(second) * replayed)])
    spill.write_bytes(second + torn)
    taken_over = SpillFile(spill, max_bytes=10_000)
    taken_over.adopt(log)
    file = RotatingFile(log, max_bytes=10_000, keep_files=1)
    taken_over.replay(file)
    file.close()
    numbers = [line for line in log.read_bytes().splitlines() if line in second.splitlines() or line in first.splitlines()]
    assert numbers == (first + second).splitlines()
    assert not spill.exists()


def test_a_replay_larger_than_one_piece_keeps_its_lines(tmp_path: Path) -> None:
    """Lines are never cut at the size in which the spill is copied, nor is a single line larger than that."""
    lines = [b"%06d" % number + b"x" * 1000 for number in range(600)] + [b"y" * 600_000, b"z"]
    spill = SpillFile(tmp_path / "spill.jsonl", max_bytes=10_000_000)
    for line in lines:
        assert spill.append(line + b"\n")
    log = RotatingFile(tmp_path / "log.jsonl", max_bytes=10_000_000, keep_files=1)
    spill.replay(log)
    log.close()
    written = log.path.read_bytes().splitlines()
    assert written == lines
    assert all(left != right for left, right in pairwise(written))
    assert log.path.stat().st_size == sum(len(line) + 1 for line in lines)
