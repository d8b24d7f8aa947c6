"""A TCP relay that slows down, or loses, what goes through it: a network in trouble, for tests of what is shared over it."""

from __future__ import annotations

import asyncio
import contextlib
from types import TracebackType
from typing import Self

_PIECE_BYTES = 65_536


class TcpRelay:
    """Use as an asynchronous context manager. `delay_s` is added on each way; while `drops`, bytes vanish and connections stay open."""

    def __init__(self, port: int, *, host: str = "127.0.0.1") -> None:
        self._target = (host, port)
        self.delay_s = 0.0
        self.drops = False
        self.port = 0
        self._server: asyncio.Server | None = None
        self._writers: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._relay, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        assert self._server is not None
        self._server.close()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for writer in self._writers:
            writer.transport.abort()

    async def _relay(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        far_writer: asyncio.StreamWriter | None = None
        try:
            far_reader, far_writer = await asyncio.open_connection(*self._target)
            self._writers |= {writer, far_writer}
            await asyncio.gather(self._pump(reader, far_writer), self._pump(far_reader, writer))
        except (OSError, asyncio.CancelledError):
            pass  # either side is gone, or the relay ends
        finally:
            self._tasks.discard(task)
            for end in (writer, far_writer):
                if end is not None:
                    end.transport.abort()
                    self._writers.discard(end)

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        loop = asyncio.get_running_loop()
        while piece := await reader.read(_PIECE_BYTES):
            if not self.drops:
                loop.call_later(self.delay_s, _write, writer, piece)
        await asyncio.sleep(self.delay_s)  # after what was read last
        with contextlib.suppress(OSError, RuntimeError):
            writer.write_eof()


def _write(writer: asyncio.StreamWriter, piece: bytes) -> None:
    if not writer.transport.is_closing():
        writer.write(piece)
