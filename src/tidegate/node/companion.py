"""Keeps one auxiliary process running: the counting process, the ledger process.

The gateway works without it (counts become estimates, limits follow their `on_store_down`), so its death is never fatal: it is started
again after a growing pause, for ever.
Its standard input is its lifeline: the process ends when this one does, however that happens.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
from collections.abc import Mapping, Sequence

import msgspec

from tidegate.adapters.child_process import end
from tidegate.node.restarts import RestartPolicy, Restarts

END_GRACE_S = 2.0
"""Between SIGTERM and SIGKILL: it holds nothing that must be saved."""
POLICY = RestartPolicy(first_pause_s=0.5, longest_pause_s=30.0, healthy_s=60.0, give_up_after=None)

_LOG = logging.getLogger("tidegate.node")


class CompanionStatistics(msgspec.Struct, frozen=True):
    running: bool
    restarts: int


class Companion:
    """One child process, from `run` until that is cancelled, or until `kill`."""

    def __init__(
        self, name: str, command: Sequence[str], *, policy: RestartPolicy = POLICY, environment: Mapping[str, str] | None = None
    ) -> None:
        """`environment` is added to this process's own: for what a command line would show to everybody."""
        self._name = name
        self._command = tuple(command)
        self._environment = dict(environment or {})
        self._restarts = Restarts(policy)
        self._process: asyncio.subprocess.Process | None = None
        self._killed = asyncio.Event()

    def __repr__(self) -> str:
        return f"Companion({self._name}, running={self._process is not None}, restarts={self._restarts.count})"

    def statistics(self) -> CompanionStatistics:
        return CompanionStatistics(running=self._process is not None, restarts=self._restarts.count)

    async def run(self) -> None:
        """Keep it running; ends only by cancellation or `kill`, and then the process is gone."""
        loop = asyncio.get_running_loop()
        while not self._killed.is_set():
            began = loop.time()
            reason = await self._one_life()
            if self._killed.is_set():
                return
            now = loop.time()
            pause_s = self._restarts.died(lived_s=now - began, now=now)
            _LOG.warning("%s.exited %s; it is started again", self._name, reason)
            await asyncio.sleep(pause_s or 0.0)

    def will_know(self, environment: Mapping[str, str]) -> None:
        """Tell the next one this instead of what this one was told."""
        self._environment = dict(environment)

    def kill(self) -> None:
        """End the process at once, and start no other; for a forced stop."""
        self._killed.set()
        if self._process is not None and self._process.returncode is None:
            self._process.kill()

    async def _one_life(self) -> str:
        try:
            process = await asyncio.create_subprocess_exec(
                *self._command,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.DEVNULL,
                start_new_session=True,
                env=os.environ | self._environment,
            )
        except OSError as error:
            return f"could not be started ({error})"
        self._process = process
        if self._killed.is_set():  # told to end while it was being started
            self.kill()
        try:
            return how_it_ended(await process.wait())
        finally:
            self._process = None
            await end(process, grace_s=END_GRACE_S)


def how_it_ended(code: int) -> str:
    """Say an exit status in words."""
    return f"was ended by {signal.Signals(-code).name}" if code < 0 else f"exited with status {code}"
