"""The store of several workers on one machine: the ledger process, over a Unix socket.

Invariants: every exchange has a deadline; whatever goes wrong is `StoreLost`; a lost connection is opened again by the next exchange.
"""

from __future__ import annotations

import asyncio

import msgspec

from tidegate.adapters.frames import LEASE, question, take_answers
from tidegate.adapters.limits.store import StoreLost
from tidegate.domain.leases import LeaseAnswer, LeaseBatch

_READ_BYTES = 65_536
_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(LeaseAnswer).decode


class SocketStore:
    """Implements `store.LeaseStore`. Use it on one loop."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._number = 0
        self._waiting: dict[int, asyncio.Future[bytes]] = {}
        self._connecting = asyncio.Lock()
        self._writer: asyncio.StreamWriter | None = None
        self._reading: asyncio.Task[None] | None = None

    def __repr__(self) -> str:
        return f"SocketStore({self._path}, {'open' if self._writer is not None else 'closed'})"

    async def exchange(self, batch: LeaseBatch, *, deadline_s: float) -> LeaseAnswer:
        self._number += 1
        number = self._number
        try:
            async with asyncio.timeout(deadline_s):
                writer = await self._connect()
                answer = self._waiting[number] = asyncio.get_running_loop().create_future()
                writer.write(question(LEASE, number, _encode(batch)))
                return _decode(await answer)
        except TimeoutError:
            self._drop()  # a process that hangs would answer what nobody waits for any more
            raise StoreLost(f"the ledger process did not answer within {deadline_s:g} s") from None
        except (OSError, msgspec.MsgspecError) as problem:
            raise StoreLost(f"{problem}" or type(problem).__name__) from None
        finally:
            self._waiting.pop(number, None)

    async def aclose(self) -> None:
        self._drop()
        if self._reading is not None:
            self._reading.cancel()
            await asyncio.gather(self._reading, return_exceptions=True)

    async def _connect(self) -> asyncio.StreamWriter:
        async with self._connecting:
            if self._writer is None:
                reader, self._writer = await asyncio.open_unix_connection(self._path)
                self._reading = asyncio.get_running_loop().create_task(self._read(reader, self._writer), name="ledger answers")
            return self._writer

    async def _read(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        received = bytearray()
        try:
            while more := await reader.read(_READ_BYTES):
                received += more
                for number, payload in take_answers(received):
                    waiting = self._waiting.get(number)
                    if waiting is not None and not waiting.done():
                        waiting.set_result(payload)
        except (OSError, ValueError):
            pass  # what is no answer is the same as a lost connection
        finally:
            if self._writer is writer:
                self._drop()

    def _drop(self) -> None:
        """Close the connection and tell everybody who waits for an answer on it."""
        writer, self._writer = self._writer, None
        if writer is not None:
            writer.transport.abort()
        for waiting in self._waiting.values():
            if not waiting.done():
                waiting.set_exception(ConnectionResetError("the connection to the ledger process was lost"))
