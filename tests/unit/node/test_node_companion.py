"""The auxiliary process is kept running, and goes when it is told to or when its keeper goes."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tidegate.adapters.child_process import end as end_process
from tidegate.node.companion import Companion
from tidegate.node.restarts import RestartPolicy

DEADLINE_S = 10.0
QUICK = RestartPolicy(first_pause_s=0.01, longest_pause_s=0.01, give_up_after=None)
WAITS = "import os, sys; open(sys.argv[1], 'a').write(f'{os.getpid()}\\n'); sys.stdin.read()"
"""Notes its process id, then waits for the end of its standard input."""
STUBBORN = f"import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); {WAITS}; signal.pause()"
"""The same, and ignores both ways of being told to end."""


def pids(file: Path) -> list[int]:
    return [int(line) for line in file.read_text().split()] if file.exists() else []


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(DEADLINE_S):
        while not condition():  # noqa: ASYNC110  another process decides; there is no event to wait for
            await asyncio.sleep(0.01)


async def end(task: asyncio.Task[None]) -> None:
    task.cancel()
    await asyncio.wait([task], timeout=DEADLINE_S)
    assert task.cancelled()


def test_the_next_one_is_told_what_holds_by_then(tmp_path: Path) -> None:
    """What it is told in its environment can change; a process that runs keeps what it was told."""
    file = tmp_path / "told"
    pid_file = tmp_path / "pids"
    notes = "open(sys.argv[2], 'a').write(f'{os.getpid()}\\n'); open(sys.argv[1], 'a').write(os.environ['TOLD'] + ' ')"
    script = f"import os, sys; {notes}; sys.stdin.read()"

    def told() -> list[str]:
        return file.read_text().split() if file.exists() else []

    async def scenario() -> None:
        companion = Companion(
            "ledger", (sys.executable, "-c", script, str(file), str(pid_file)), policy=QUICK, environment={"TOLD": "first"}
        )
        task = asyncio.create_task(companion.run())
        await until(lambda: len(told()) == 1 and companion.statistics().running)
        companion.will_know({"TOLD": "second"})
        os.kill(pids(pid_file)[0], signal.SIGKILL)
        await until(lambda: len(told()) == 2)
        await end(task)

    asyncio.run(scenario())
    assert ["first", "second"] == told()


def test_it_is_started_again_when_it_dies_and_ends_when_told(tmp_path: Path) -> None:
    """Its death is counted, and after the end no process is left."""
    file = tmp_path / "pids"

    async def scenario() -> None:
        companion = Companion("counting", (sys.executable, "-c", WAITS, str(file)), policy=QUICK)
        task = asyncio.create_task(companion.run())
        await until(lambda: len(pids(file)) == 1 and companion.statistics().running)
        os.kill(pids(file)[0], signal.SIGKILL)
        await until(lambda: len(pids(file)) == 2 and companion.statistics().running)
        assert (companion.statistics().running, companion.statistics().restarts) == (True, 1)
        await end(task)
        assert not companion.statistics().running

    asyncio.run(scenario())
    assert [alive(pid) for pid in pids(file)] == [False, False]


def test_one_that_is_killed_is_not_started_again(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A forced stop is the end of it: no other is started, nor announced. The same for one that is told before it began."""
    file = tmp_path / "pids"

    async def scenario() -> None:
        companion = Companion("counting", (sys.executable, "-c", WAITS, str(file)), policy=QUICK)
        async with asyncio.timeout(DEADLINE_S):
            task = asyncio.create_task(companion.run())
            await until(lambda: len(pids(file)) == 1)
            companion.kill()
            await task
            await companion.run()
        assert (companion.statistics().running, companion.statistics().restarts) == (False, 0)

    asyncio.run(scenario())
    assert [alive(pid) for pid in pids(file)] == [False]
    assert caplog.text == ""


def test_one_that_ignores_its_end_is_killed(tmp_path: Path) -> None:
    """SIGTERM, a moment, then SIGKILL."""
    file = tmp_path / "pids"

    async def scenario() -> None:
        task = asyncio.create_task(Companion("counting", (sys.executable, "-c", STUBBORN, str(file)), policy=QUICK).run())
        await until(lambda: len(pids(file)) == 1)
        await end(task)

    asyncio.run(scenario())
    assert not alive(pids(file)[0])


def test_a_command_that_cannot_be_started_is_tried_again() -> None:
    """The gateway works without it, so this is never fatal."""

    async def scenario() -> None:
        companion = Companion("counting", ("/nonexistent/program",), policy=QUICK)
        task = asyncio.create_task(companion.run())
        await until(lambda: companion.statistics().restarts >= 2)
        assert not companion.statistics().running
        await end(task)

    asyncio.run(scenario())


def test_an_end_inside_a_cancelled_task_keeps_its_grace_and_reaps(tmp_path: Path) -> None:
    """An owner's last steps often run while it is being cancelled: the process gets its grace, is killed and reaped, in any Python."""
    file = tmp_path / "pids"

    async def scenario() -> None:
        process = await asyncio.create_subprocess_exec(sys.executable, "-c", STUBBORN, str(file), stdin=asyncio.subprocess.PIPE)
        await until(lambda: len(pids(file)) == 1)

        async def owner() -> None:
            try:
                await asyncio.sleep(60.0)
            finally:
                await end_process(process, grace_s=0.1)

        task = asyncio.create_task(owner())
        await asyncio.sleep(0)
        await end(task)
        assert -signal.SIGKILL == process.returncode

    asyncio.run(scenario())
