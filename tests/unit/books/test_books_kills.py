"""Real processes that are killed in the middle: what was posted arrives, once, and the books stay sound."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from tidegate.adapters.books.opening import open_books
from tidegate.domain.books import Invariant

HERE = Path(__file__).parent
DEADLINE_S = 40.0


class Processes:
    """One ledger process and workers that post to it."""

    def __init__(self, directory: Path, database: str) -> None:
        self.directory = directory
        self.database = database
        self.socket = str(directory / "ledger.sock")
        self.ledger: subprocess.Popen[bytes] | None = None
        self.started: list[subprocess.Popen[bytes]] = []

    def start_ledger(self) -> None:
        Path(self.socket).unlink(missing_ok=True)
        self.ledger = self._start("stand_in_ledger.py", self.socket, self.database)
        assert self.ledger.stdout is not None
        assert b"listening\n" == self.ledger.stdout.readline()

    def kill_ledger(self) -> None:
        assert self.ledger is not None
        self.ledger.kill()
        self.ledger.wait(10)

    def start_worker(self, name: str, how: str, entries: int, *, per_turn: int = 1) -> subprocess.Popen[bytes]:
        spill = str(self.directory / f"{name}.spill")
        return self._start("stand_in_worker.py", self.socket, spill, name, how, str(entries), str(per_turn))

    def _start(self, program: str, *arguments: str) -> subprocess.Popen[bytes]:
        process = subprocess.Popen([sys.executable, str(HERE / program), *arguments], stdout=subprocess.PIPE, cwd=HERE.parents[2])
        self.started.append(process)
        return process

    def await_postings(self, count: int) -> Invariant:
        """Check the books once they have so many postings; fail when they do not come to have them."""
        with closing(open_books(self.database)) as books:
            until = time.monotonic() + DEADLINE_S
            while (found := books.verify()).postings < count and time.monotonic() < until:
                time.sleep(0.05)
        assert count == found.postings
        return found


@contextmanager
def _processes(directory: Path, database: str) -> Iterator[Processes]:
    processes = Processes(directory, database)
    try:
        processes.start_ledger()
        yield processes
    finally:
        for process in processes.started:
            process.kill()
            process.wait(10)
            if process.stdout is not None:
                process.stdout.close()


@pytest.fixture
def processes(tmp_path: Path, database: str) -> Iterator[Processes]:
    with _processes(tmp_path, database) as running:
        yield running


def _is_sound(found: Invariant, *, settled: int) -> None:
    assert () == found.faults
    assert [(-30 * settled, 30 * settled)] == [(each.balance_micro, each.spent_micro) for each in found.balances]


def test_a_killed_worker_loses_nothing_that_it_posted(processes: Processes) -> None:
    """SIGKILL in the turn after the last post: the kernel hands over what was sent."""
    worker = processes.start_worker("w", "die", 2_000)
    assert worker.stdout is not None
    assert b"posted 2000" == worker.stdout.read().splitlines()[-1]
    assert -9 == worker.wait(DEADLINE_S)
    _is_sound(processes.await_postings(2_000), settled=1_000)


def test_a_killed_ledger_process_loses_nothing(processes: Processes) -> None:
    """Killed twice under load: what was acknowledged is there, the rest is sent again, and each entry counts once."""
    workers = [processes.start_worker(name, "close", 30_000, per_turn=20) for name in ("a", "b")]
    for _ in range(2):
        time.sleep(0.4)
        processes.kill_ledger()
        time.sleep(0.2)
        processes.start_ledger()
    for worker in workers:
        assert worker.stdout is not None
        said = worker.stdout.read().decode()
        assert "posted 30000 kept True" in said, said
        assert 0 == worker.wait(DEADLINE_S)
    for name in ("a", "b"):  # what a worker could not hand over before its end is its successor's to hand over
        processes.start_worker(name, "close", 0).wait(DEADLINE_S)
    _is_sound(processes.await_postings(60_000), settled=30_000)


def test_both_killed_lose_only_what_was_in_flight(processes: Processes) -> None:
    """A worker that outlives its ledger process for a moment puts everything into its file, and its successor hands it over."""
    processes.kill_ledger()
    worker = processes.start_worker("w", "spill", 2_000)
    assert worker.stdout is not None
    worker.stdout.read()
    worker.wait(DEADLINE_S)
    processes.start_ledger()
    processes.start_worker("w", "close", 0).wait(DEADLINE_S)
    with closing(open_books(processes.database)) as books:
        found = books.verify()
    assert () == found.faults
    assert 1_000 <= found.postings <= 2_000, "what the thread had not written yet is lost: posts of the last milliseconds"


def test_both_killed_at_once_leave_sound_books(processes: Processes) -> None:
    """What was committed before stays; what only the two knew is gone with its operation's hold or settlement, and nothing else is."""
    worker = processes.start_worker("w", "close", 30_000)
    assert worker.stdout is not None
    for _ in range(4):
        worker.stdout.readline()
    processes.kill_ledger()
    worker.kill()
    worker.wait(10)
    with closing(open_books(processes.database)) as books:
        before = books.verify()
        processes.start_ledger()
        processes.start_worker("w", "close", 0).wait(DEADLINE_S)
        after = books.verify()
    assert () == before.faults == after.faults
    assert before.postings <= after.postings <= 30_000
