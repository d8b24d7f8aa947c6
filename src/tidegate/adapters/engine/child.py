"""Starts and ends the engine's process. Invariant: a process started here is ended and reaped by `end`, whatever it is doing."""

from __future__ import annotations

import asyncio
import signal
import sys
from pathlib import Path

import msgspec

from tidegate.adapters.child_process import end
from tidegate.adapters.engine.process import Launch, Launched
from tidegate.adapters.engine.settings import EngineSettings
from tidegate.domain.units import Secret
from tidegate.errors import ConfigurationError, UpstreamUnavailable

LOG_TAIL_BYTES = 2_048
"""Read of a dead engine's log for the error message: its last lines name the cause."""
LOG_TAIL_LINES = 3


class EngineChild:
    """A running engine process."""

    def __init__(self, process: asyncio.subprocess.Process, settings: EngineSettings) -> None:
        self._process = process
        self._settings = settings

    @classmethod
    async def spawn(cls, settings: EngineSettings, api_key: Secret) -> EngineChild:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-P",
            "-m",
            "tidegate.adapters.engine.process",
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
        )
        child = cls(process, settings)
        if process.stdin is not None:
            process.stdin.write(msgspec.json.encode(Launch(settings=settings, api_key=api_key.reveal())) + b"\n")
        return child

    @property
    def pid(self) -> int:
        return self._process.pid

    async def listening(self) -> str:
        """Wait for its address; raise `ConfigurationError` (a person must act) or `UpstreamUnavailable`."""
        line = await self._process.stdout.readline() if self._process.stdout is not None else b""
        if not line:
            raise UpstreamUnavailable(await self.epitaph())
        answer = msgspec.json.decode(line, type=Launched)
        if answer.address is not None:
            return answer.address
        message = answer.fault or "The engine gave no reason."
        if answer.permanent:
            raise ConfigurationError(message)
        raise UpstreamUnavailable(f"{message} {await self._last_words()}")

    async def exited(self) -> int:
        return await self._process.wait()

    async def epitaph(self) -> str:
        """Say how the process died, once it has."""
        code = await self._process.wait()
        how = f"was ended by {signal.Signals(-code).name}" if code < 0 else f"exited with status {code}"
        return f"The engine process {how}.{self._hint(code)} {await self._last_words()}"

    def _hint(self, code: int) -> str:
        limit = self._settings.memory_limit_bytes
        if code == -signal.SIGKILL:
            return " If nobody killed it, the kernel did for lack of memory: see `dmesg`, and lower slots or context_tokens."
        if code in {-signal.SIGABRT, -signal.SIGSEGV, -signal.SIGBUS}:
            return (
                f" Too little memory is the usual cause of this signal: raise local_engine.memory_limit_bytes (now {limit}) "
                "or lower slots or context_tokens."
            )
        return ""

    async def _last_words(self) -> str:
        path = self._settings.log_path
        return f"The log {path} {await asyncio.to_thread(_log_tail, path)}"

    async def end(self, *, grace_s: float) -> None:
        """SIGTERM, then SIGKILL after `grace_s`; return when it is reaped."""
        await end(self._process, grace_s=grace_s)


def _log_tail(path: Path) -> str:
    try:
        with path.open("rb") as file:
            file.seek(max(0, path.stat().st_size - LOG_TAIL_BYTES))
            lines = file.read(LOG_TAIL_BYTES).decode(errors="replace").strip().splitlines()
    except OSError as error:
        return f"cannot be read ({error.strerror or error})."
    return "ends with: " + " | ".join(lines[-LOG_TAIL_LINES:]) if lines else "is empty."
