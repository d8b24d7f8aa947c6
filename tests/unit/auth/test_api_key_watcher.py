"""The watcher that carries key changes to a process."""

from __future__ import annotations

import asyncio
import logging
import sqlite3
import threading
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import pytest

from tidegate.adapters.keys.snapshot import KeySnapshot
from tidegate.adapters.keys.store import CreatedKey, KeyStore
from tidegate.adapters.keys.watcher import KeyWatcher

DEADLINE_S = 5.0


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "keys.db"


@pytest.fixture
def log_lines() -> Iterator[list[str]]:
    lines: list[str] = []

    class Collector(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            lines.append(record.getMessage())

    logger = logging.getLogger("tidegate.adapters.keys.watcher")
    collector = Collector()
    logger.addHandler(collector)
    yield lines
    logger.removeHandler(collector)


class Watched:
    """A running watcher and what it delivered."""

    def __init__(self, path: Path, *, interval_s: float = 0.005) -> None:
        self.snapshots: list[KeySnapshot] = []
        self.threads: set[int] = set()
        self.watcher = KeyWatcher(path, loop=asyncio.get_running_loop(), on_snapshot=self._receive, interval_s=interval_s)

    def _receive(self, snapshot: KeySnapshot) -> None:
        self.snapshots.append(snapshot)
        self.threads.add(threading.get_ident())

    def trouble(self) -> str:
        return self.watcher.statistics().trouble or ""

    def knows(self, key: CreatedKey) -> bool:
        return bool(self.snapshots) and self.snapshots[-1].match(key.token.reveal(), wall_now=1.0) is not None


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(DEADLINE_S):
        while not condition():  # noqa: ASYNC110  the watcher's thread has no event to offer
            await asyncio.sleep(0.002)


def watching(path: Path, scenario: Callable[[Watched], Awaitable[None]]) -> Watched:
    """Run a scenario beside a watcher of `path`, and close the watcher."""

    async def run() -> Watched:
        watched = Watched(path)
        watched.watcher.start()
        try:
            await scenario(watched)
        finally:
            watched.watcher.close()
        return watched

    return asyncio.run(run())


def make_key(path: Path) -> CreatedKey:
    with KeyStore(path) as store:
        return store.create(name="n", tenant="t", user="u", now=1.0)


def revoke(path: Path, key: CreatedKey) -> None:
    with KeyStore(path) as store:
        assert store.revoke(key.key_id, 1.0)


def database_files(path: Path) -> list[Path]:
    return list(path.parent.glob("keys.db*"))


def remove_database(path: Path) -> None:
    for file in database_files(path):
        file.unlink()


def test_changes_arrive_on_the_loops_thread(path: Path) -> None:
    """The first snapshot, a created key and a revocation each arrive, on the thread of the loop."""
    first = make_key(path)

    async def scenario(watched: Watched) -> None:
        await until(lambda: watched.knows(first))
        second = make_key(path)
        await until(lambda: watched.knows(second))
        revoke(path, first)
        await until(lambda: not watched.knows(first))
        assert watched.knows(second)

    watched = watching(path, scenario)

    assert watched.threads == {threading.get_ident()}


def test_nothing_is_delivered_while_nothing_changes(path: Path) -> None:
    """Twenty polls of an unchanged database deliver the one first snapshot."""
    make_key(path)

    async def scenario(watched: Watched) -> None:
        await until(lambda: watched.watcher.statistics().polls >= 20)

    watched = watching(path, scenario)

    assert len(watched.snapshots) == watched.watcher.statistics().snapshots == 1


def test_a_missing_database_is_waited_for_and_logged_once(path: Path, log_lines: list[str]) -> None:
    """Started before the database exists, the watcher logs one line, creates nothing, and takes up the keys when they come."""

    async def scenario(watched: Watched) -> None:
        await until(lambda: watched.watcher.statistics().polls >= 10)
        assert "is missing" in watched.trouble()
        assert database_files(path) == []
        key = make_key(path)
        await until(lambda: watched.knows(key))

    watching(path, scenario)

    assert [line.split(":")[0] for line in log_lines if "damaged" not in line and "no key database" not in line] == [
        "key_database.became_unreadable",
        "key_database.became_readable",
    ]


def test_a_deleted_database_leaves_the_last_keys_in_force(path: Path) -> None:
    """After the file is gone the last snapshot stands; a fresh file in its place is taken up, even at the same version number."""
    key = make_key(path)

    async def scenario(watched: Watched) -> None:
        await until(lambda: watched.knows(key))
        remove_database(path)
        await until(lambda: "is missing" in watched.trouble())
        assert watched.knows(key)
        other = make_key(path)
        await until(lambda: watched.knows(other))
        assert not watched.knows(key)

    watching(path, scenario)


def test_a_damaged_database_leaves_the_last_keys_in_force(path: Path, log_lines: list[str]) -> None:
    """Garbage put in the file's place is reported once and changes nothing."""
    key = make_key(path)

    async def scenario(watched: Watched) -> None:
        await until(lambda: watched.knows(key))
        garbage = path.with_name("garbage")
        garbage.write_bytes(b"garbage" * 1000)
        for leftover in ("keys.db-wal", "keys.db-shm"):
            path.with_name(leftover).unlink(missing_ok=True)
        garbage.replace(path)
        await until(lambda: "damaged" in watched.trouble())
        polls = watched.watcher.statistics().polls
        await until(lambda: watched.watcher.statistics().polls >= polls + 5)
        assert watched.knows(key)
        assert len(watched.snapshots) == 1

    watching(path, scenario)

    assert len([line for line in log_lines if "damaged" in line]) == 1


def test_a_locked_database_is_read_when_the_lock_is_gone(path: Path) -> None:
    """While another process holds the file exclusively the watcher says so; afterwards it delivers."""
    key = make_key(path)
    owner = sqlite3.connect(path, isolation_level=None)
    owner.execute("PRAGMA locking_mode = EXCLUSIVE")
    owner.execute("BEGIN EXCLUSIVE")

    async def scenario(watched: Watched) -> None:
        await until(lambda: "locked" in watched.trouble())
        assert not watched.snapshots
        owner.close()
        await until(lambda: watched.knows(key))

    watching(path, scenario)


def test_nothing_is_delivered_after_close(path: Path) -> None:
    """A snapshot already on its way to the loop when the watcher closes is dropped."""
    make_key(path)

    async def run() -> Watched:
        watched = Watched(path)
        watched.watcher.start()
        give_up_at = asyncio.get_running_loop().time() + DEADLINE_S
        while not watched.watcher.statistics().snapshots:  # the loop is kept busy, so the delivery stays queued
            assert asyncio.get_running_loop().time() < give_up_at
        watched.watcher.close()
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        return watched

    assert asyncio.run(run()).snapshots == []


def test_close_may_be_repeated_and_may_come_before_start(path: Path) -> None:
    """Closing is safe at any time, and no thread is left."""

    async def run() -> None:
        never_started = Watched(path).watcher
        never_started.close()
        watcher = Watched(path).watcher
        watcher.start()
        watcher.close()
        watcher.close()

    asyncio.run(run())

    assert [thread for thread in threading.enumerate() if thread.name == "tidegate-key-watcher"] == []


def test_a_closed_loop_ends_the_watcher(path: Path) -> None:
    """A watcher that nobody closed ends by itself at its first delivery to a loop that is gone."""
    make_key(path)
    loop = asyncio.new_event_loop()
    loop.close()
    watcher = KeyWatcher(path, loop=loop, on_snapshot=lambda _: None, interval_s=0.005)
    watcher.start()

    watcher.close()

    assert watcher.statistics().snapshots == 0
