"""Following is indifferent to how lines are cut, files rotated, and the follower restarted: each line once, in order."""

from __future__ import annotations

import tempfile
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from tidegate.adapters.analytics.follow import Follower, RecordLine
from tidegate.adapters.analytics.positions import Positions
from tidegate.adapters.records.files import RotatingFile

KEEP = 4
"""More rotations in a row without a look would delete what nobody read; the next test is about that."""


class Records:
    """What a worker does with its files, one step at a time; a line may be written in pieces."""

    def __init__(self, directory: Path, worker: int) -> None:
        self.path = directory / f"requests-{worker}.jsonl"
        self.worker = worker
        self.lines: list[bytes] = []
        """Whole ones, in order."""
        self._pending = b""
        self.rotations = 0

    def begin(self, length: int) -> None:
        self.finish()
        self._pending = b"%d:%d:%s\n" % (self.worker, len(self.lines), b"x" * length)

    def write(self, size: int) -> None:
        part, self._pending = self._pending[:size], self._pending[size:]
        if part:
            with self.path.open("ab") as file:
                file.write(part)
        if part.endswith(b"\n"):
            length = part.rfind(b"\n") + 1
            assert length == len(part)
            self.lines.append(b"")

    def finish(self) -> None:
        self.write(len(self._pending))

    def rotate(self) -> None:
        self.finish()
        if not self.path.exists():
            return
        self._numbered(KEEP).unlink(missing_ok=True)
        for number in range(KEEP - 1, 0, -1):
            if self._numbered(number).exists():
                self._numbered(number).rename(self._numbered(number + 1))
        self.path.rename(self._numbered(1))
        self.rotations += 1

    def _numbered(self, number: int) -> Path:
        return self.path.with_name(f"{self.path.name}.{number}")


def steps() -> st.SearchStrategy[list[tuple[str, int, int]]]:
    names = st.sampled_from(["begin", "begin", "write", "write", "finish", "rotate", "look", "read", "read", "restart"])
    return st.lists(st.tuples(names, st.integers(0, 1), st.integers(1, 60)), max_size=40)


def told(lines: list[RecordLine], worker: int) -> list[int]:
    """Give the numbers of a worker's lines, in the order in which they were given."""
    return [int(line.text.split(b":")[1]) for line in lines if line.text.startswith(b"%d:" % worker)]


@settings(max_examples=60, deadline=None)
@given(steps=steps())
def test_every_line_is_given_once_and_in_order(steps: list[tuple[str, int, int]]) -> None:
    """Law: whatever the order of appends, cuts, rotations, reads and restarts, what was given is what was written."""
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        workers = [Records(directory, 0), Records(directory, 1)]
        follower = Follower(directory, kinds=["requests"], positions=Positions())
        given_lines: list[RecordLine] = []

        def read(most: int) -> None:
            follower.look()
            while lines := follower.read(max_lines=most, max_bytes=most * 10):
                given_lines.extend(lines)

        for step, worker, number in steps:
            records = workers[worker]
            match step:
                case "begin":
                    records.begin(number)
                case "write":
                    records.write(number)
                case "finish":
                    records.finish()
                case "rotate":
                    if records.rotations % (KEEP - 1) == 0:
                        read(1000)
                    records.rotate()
                case "look":
                    follower.look()
                case "read":
                    follower.look()
                    given_lines += follower.read(max_lines=number, max_bytes=number * 5)
                case _:
                    positions = Positions(follower.positions(), deleted=follower.deleted())
                    follower.close()
                    follower = Follower(directory, kinds=["requests"], positions=positions)
        for records in workers:
            records.finish()
        read(7)
        follower.close()
        for records in workers:
            assert list(range(len(records.lines))) == told(given_lines, records.worker)
        assert (0, 0) == (follower.backlog_bytes, follower.lost_bytes)


@settings(max_examples=40, deadline=None)
@given(sizes=st.lists(st.integers(1, 5), min_size=1, max_size=12), looks=st.sets(st.integers(0, 11)), begun=st.booleans())
def test_what_is_deleted_unread_is_counted_to_the_byte(sizes: list[int], looks: set[int], begun: bool) -> None:
    """Law: of files that were seen, bytes given and bytes lost are bytes written."""
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        follower = Follower(directory, kinds=["requests"], positions=Positions())
        seen = 0
        given_bytes = 0
        for number, size in enumerate(sizes):
            content = b"".join(b"%d:%d\n" % (number, each) for each in range(size))
            path = directory / "requests-0.jsonl"
            path.write_bytes(content)
            if number in looks:
                follower.look()
                seen += len(content)
                if begun:
                    given_bytes += sum(len(line.text) for line in follower.read(max_lines=1, max_bytes=1))
            path.unlink()
        follower.look()
        while lines := follower.read(max_lines=100, max_bytes=1000):
            given_bytes += sum(len(line.text) for line in lines)
            follower.look()
        follower.look()
        follower.close()
        assert seen == given_bytes + follower.lost_bytes


@settings(max_examples=60, deadline=None)
@given(
    rounds=st.lists(st.tuples(st.integers(0, 12), st.sampled_from(["look", "one", "all", "restart"])), min_size=1, max_size=8),
    keep=st.integers(1, 3),
)
def test_what_a_worker_deletes_is_read_or_lost_even_if_never_seen(rounds: list[tuple[int, str]], keep: int) -> None:
    """Law: of what a worker's own rotation wrote and deleted since the first look, every byte is given, or counted as lost."""
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        log = RotatingFile(directory / "requests-0.jsonl", max_bytes=100, keep_files=keep)
        line = b"x" * 39 + b"\n"
        log.append(b"first" + line)
        follower = Follower(directory, kinds=["requests"], positions=Positions())
        follower.look()
        written = len(line) + 5
        given_bytes = lost_before = 0
        for count, then in rounds:
            for number in range(count):
                log.append(b"%05d" % (written + number) + line)
            written += count * (len(line) + 5)
            follower.look()
            if then == "restart":
                lost_before += follower.lost_bytes
                positions = Positions(follower.positions(), deleted=follower.deleted())
                follower.close()
                follower = Follower(directory, kinds=["requests"], positions=positions)
                continue
            while then != "look" and (lines := follower.read(max_lines=1, max_bytes=1)):
                given_bytes += sum(len(each.text) for each in lines)
                if then == "one":
                    break
        follower.look()
        while lines := follower.read(max_lines=100, max_bytes=1000):
            given_bytes += sum(len(each.text) for each in lines)
        follower.look()
        follower.close()
        log.close()
        assert written == given_bytes + follower.lost_bytes + lost_before
