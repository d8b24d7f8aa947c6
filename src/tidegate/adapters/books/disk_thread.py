"""One thread that does one thing after another, and that nobody has to wait for.

The executors of the standard library are waited for when the process ends, so a disk that hangs would hang it too. This thread is a
daemon: whoever closes waits as long as it likes, and leaves.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from queue import SimpleQueue
from typing import TypeVar

Result = TypeVar("Result")


class DiskThread:
    """Started by the first thing to do. Its queue needs no bound: a journal asks for the next thing when the one before is done."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._thread: threading.Thread | None = None
        self._queue: SimpleQueue[Callable[[], None] | None] = SimpleQueue()

    def __repr__(self) -> str:
        return f"DiskThread({self._name}, waiting={self._queue.qsize()})"

    def do(self, work: Callable[[], Result]) -> Future[Result]:
        """Have it done after what was asked for before. What its future is told of, it is told in the thread."""
        done: Future[Result] = Future()

        def run() -> None:
            if not done.set_running_or_notify_cancel():
                return
            try:
                result = work()
            except Exception as error:  # noqa: BLE001  whoever asked for it is told
                done.set_exception(error)
            else:
                done.set_result(result)

        self._queue.put(run)
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name=self._name, daemon=True)
            self._thread.start()
        return done

    def stop(self) -> None:
        """End it after what it has to do."""
        self._queue.put(None)

    def _run(self) -> None:
        while (run := self._queue.get()) is not None:
            run()
