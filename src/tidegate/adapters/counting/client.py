"""A worker's side of the counting process.

Two connections: short texts on one, whole bodies on the other, so that a body on its way holds nobody up. Invariants: a call never
raises for what the process does or fails to do, it returns `CountFailed`; nothing waits longer than its deadline; while the process
is away, calls fail at once and a connection is tried again after a growing pause; while it hangs, one short text at a time finds out
whether it still does and all others fail at once; what is in flight is bounded.
"""

from __future__ import annotations

import asyncio
import random
from enum import StrEnum

import msgspec

from tidegate.adapters.counting import frames
from tidegate.adapters.counting.frames import CountBody, Counted, CountTexts, Question, Uncountable
from tidegate.domain.request import Operation

MAX_IN_FLIGHT_BYTES = 16_777_216
"""Short texts sent and not yet answered: a second's work of the counting process. Beyond it, counting would only delay requests."""
QUESTION_OVERHEAD_BYTES = 512
"""Charged per question for what it holds here besides its text."""
MAX_BODIES_IN_FLIGHT = 2
"""Whole bodies under way per worker; the process counts two at a time anyway."""
WRITE_SLICE_BYTES = 262_144
"""Handed to the socket at once, so that the loop turns between slices."""
FIRST_PAUSE_S = 0.05
LONGEST_PAUSE_S = 2.0
HANGS_AFTER_S = 1.0
"""Without any answer to a short text for so long, and a question left at the end, the process is taken as hanging."""


class FailureReason(StrEnum):
    UNAVAILABLE = "unavailable"
    """No connection to the process, or it was lost."""
    BUSY = "busy"
    DEADLINE = "deadline"
    TOO_LARGE = "too_large"
    REFUSED = "refused"
    """The process cannot count this (no vocabulary, a body of unknown shape)."""


class CountFailed(msgspec.Struct, frozen=True):
    """Why there is no count; `message` is for a log line."""

    reason: FailureReason
    message: str


class TextCounts(msgspec.Struct, frozen=True):
    """Counts in the order of the texts (one for a body), and the ids of all texts one after another if they were asked for."""

    counts: tuple[int, ...]
    exact: bool
    ids: tuple[int, ...] | None = None


class ProcessTokenCounter:
    """Asks the counting process that serves on `socket_path`. Use it on one loop; `aclose` at the end."""

    def __init__(self, socket_path: str, *, max_body_bytes: int, rng: random.Random | None = None) -> None:
        self._max_body_bytes = max_body_bytes
        rng = rng if rng is not None else random.Random()  # noqa: S311  jitter, not a secret
        self._texts = _Lane(socket_path, max_in_flight_bytes=MAX_IN_FLIGHT_BYTES, rng=rng, is_prompt=True)
        self._bodies = _Lane(socket_path, max_in_flight_bytes=MAX_BODIES_IN_FLIGHT * (max_body_bytes + frames.MAX_HEAD_BYTES), rng=rng)
        self._body_turns = asyncio.Semaphore(MAX_BODIES_IN_FLIGHT)
        self._next_id = 0

    def __repr__(self) -> str:
        return f"<ProcessTokenCounter texts={self._texts!r} bodies={self._bodies!r}>"

    async def count_texts(
        self, vocabulary: str, texts: tuple[str, ...], *, deadline_s: float, want_ids: bool = False
    ) -> TextCounts | CountFailed:
        """Count each text, special tokens honoured."""
        return await self._within(deadline_s, self._texts, CountTexts(self._request_id(), vocabulary, texts, want_ids), b"")

    async def count_body(
        self, vocabulary: str, operation: Operation, body: bytes, *, deadline_s: float, want_ids: bool = False
    ) -> TextCounts | CountFailed:
        """Have a whole request body parsed, rendered and counted over there: one figure."""
        if len(body) > self._max_body_bytes:
            return CountFailed(FailureReason.TOO_LARGE, f"a body of {len(body)} bytes is over {self._max_body_bytes}")
        return await self._within(deadline_s, self._bodies, CountBody(self._request_id(), vocabulary, operation, want_ids), body)

    async def aclose(self) -> None:
        await self._texts.aclose()
        await self._bodies.aclose()

    async def _within(self, deadline_s: float, lane: _Lane, question: Question, body: bytes) -> TextCounts | CountFailed:
        answers, began_at = lane.answers, asyncio.get_running_loop().time()
        try:
            async with asyncio.timeout(deadline_s):
                if not body:
                    return await lane.ask(question, body)
                async with self._body_turns:
                    return await lane.ask(question, body)
        except TimeoutError:
            return CountFailed(FailureReason.DEADLINE, f"the counting process gave no answer in {deadline_s:g} s")
        finally:  # also when a caller's own deadline, a moment shorter, cancelled this
            if asyncio.get_running_loop().time() - began_at >= HANGS_AFTER_S:
                lane.waited_long(answers)

    def _request_id(self) -> int:
        self._next_id += 1
        return self._next_id


class _Lane:
    """One connection, opened when first needed and again after it was lost."""

    def __init__(self, path: str, *, max_in_flight_bytes: int, rng: random.Random, is_prompt: bool = False) -> None:
        """`is_prompt`: answers come at once, so that none for a while means that none will."""
        self.answers = 0
        self._path = path
        self._is_prompt = is_prompt
        self._hangs = False
        self._max_in_flight_bytes = max_in_flight_bytes
        self._rng = rng
        self._in_flight_bytes = 0
        self._waiting: dict[int, asyncio.Future[TextCounts | CountFailed]] = {}
        self._connecting = asyncio.Lock()
        self._writing = asyncio.Lock()
        self._writer: asyncio.StreamWriter | None = None
        self._reading: asyncio.Task[None] | None = None
        self._failures = 0
        self._retry_at = 0.0
        self._closed = False

    def __repr__(self) -> str:
        return f"<{'open' if self._writer is not None else 'closed'} in_flight={len(self._waiting)}>"

    async def ask(self, question: Question, body: bytes) -> TextCounts | CountFailed:
        start = frames.frame_start(question, len(body))
        if len(start) > frames.MAX_HEAD_BYTES:
            return CountFailed(FailureReason.TOO_LARGE, f"texts of {len(start)} bytes are over {frames.MAX_HEAD_BYTES}")
        cost = len(start) + len(body) + QUESTION_OVERHEAD_BYTES
        if self._in_flight_bytes + cost > self._max_in_flight_bytes:
            return CountFailed(FailureReason.BUSY, f"{self._in_flight_bytes} bytes of text already wait for the counting process")
        self._in_flight_bytes += cost
        try:
            writer = self._writer if self._writer is not None else await self._connect()
            if writer is None:
                return CountFailed(FailureReason.UNAVAILABLE, f"no connection to the counting process at {self._path}")
            if self._hangs and self._waiting:
                return CountFailed(FailureReason.UNAVAILABLE, f"the counting process at {self._path} has stopped answering")
            answer: asyncio.Future[TextCounts | CountFailed] = asyncio.get_running_loop().create_future()
            self._waiting[question.request_id] = answer
            if body:
                await self._write_body(writer, start, body)
            else:
                writer.write(start)
            return await answer
        except OSError as error:
            return CountFailed(FailureReason.UNAVAILABLE, f"lost the counting process at {self._path} ({error})")
        finally:
            self._in_flight_bytes -= cost
            self._waiting.pop(question.request_id, None)

    def waited_long(self, answers: int) -> None:
        """Give the connection up if nothing was answered since `answers` was read and something should have been."""
        if self._is_prompt and answers == self.answers and self._writer is not None:
            self._hangs = True
            self._retry_at = asyncio.get_running_loop().time() + LONGEST_PAUSE_S
            self._drop(self._writer)

    async def aclose(self) -> None:
        self._closed = True
        if self._reading is not None:
            self._reading.cancel()
            await asyncio.wait([self._reading])

    async def _write_body(self, writer: asyncio.StreamWriter, start: bytes, body: bytes) -> None:
        async with self._writing:
            complete = False
            try:
                writer.write(start)
                view = memoryview(body)
                for begin in range(0, len(body), WRITE_SLICE_BYTES):
                    writer.write(view[begin : begin + WRITE_SLICE_BYTES])
                    await writer.drain()
                complete = True
            finally:
                if not complete:  # half a frame can only be ended by ending the connection
                    self._drop(writer)

    async def _connect(self) -> asyncio.StreamWriter | None:
        """Open the connection, one caller at a time; None while the pause after a failure lasts."""
        async with self._connecting:
            loop = asyncio.get_running_loop()
            if self._writer is not None or self._closed or loop.time() < self._retry_at:
                return self._writer
            try:
                reader, writer = await asyncio.open_unix_connection(self._path)
            except OSError:
                span = min(LONGEST_PAUSE_S, FIRST_PAUSE_S * 2**self._failures)
                self._failures = min(self._failures + 1, 16)  # 0.05 · 2^16 is far over the longest pause
                self._retry_at = loop.time() + self._rng.uniform(span / 2, span)
                return None
            self._failures = 0
            self._writer = writer
            self._reading = loop.create_task(self._read(reader, writer), name="counting-answers")
            return writer

    async def _read(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while (lengths := await frames.read_lengths(reader, max_raw_bytes=4 * frames.MAX_IDS)) is not None:
                head = frames.decode_answer(await reader.readexactly(lengths[0]))
                raw = await reader.readexactly(lengths[1]) if lengths[1] else b""
                self.answers += 1
                self._hangs = False
                waiting = self._waiting.get(head.request_id)
                if waiting is not None and not waiting.done():
                    waiting.set_result(_result(head, raw))
        except (OSError, asyncio.IncompleteReadError, frames.FrameTooLargeError, msgspec.MsgspecError):
            pass  # the same as a lost connection: `_drop` answers those who wait
        finally:
            self._drop(writer)

    def _drop(self, writer: asyncio.StreamWriter) -> None:
        """Close this connection and tell everyone who waits for an answer on it."""
        writer.transport.abort()  # closing in order would wait for a process that hangs to read the rest
        if self._writer is writer:
            self._writer = None
            lost = CountFailed(FailureReason.UNAVAILABLE, "the connection to the counting process was lost")
            for waiting in self._waiting.values():
                if not waiting.done():
                    waiting.set_result(lost)


def _result(head: Counted | Uncountable, raw: bytes) -> TextCounts | CountFailed:
    if isinstance(head, Uncountable):
        return CountFailed(FailureReason.REFUSED, head.reason)
    return TextCounts(head.counts, head.exact, frames.unpack_ids(raw) if head.has_ids else None)
