"""The counting process: `python -m tidegate.adapters.counting.process --socket PATH --max-body-bytes N`.

One per node, shared by its workers through a Unix socket that only this user can open. Prints `{"listening": PATH}` when it serves and
ends when its standard input does. The vocabulary is loaded at the first question.

Invariants: the loop of this process is never held longer than a few short texts take; everything else goes to `counter`'s threads. At
most `MAX_BULK` large frames are in memory at once; further ones wait in their sockets, and nobody else waits with them.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import socket
import sys
import threading
from collections.abc import Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import NoReturn

import msgspec
import uvloop

from tidegate.adapters.counting import frames
from tidegate.adapters.counting.counter import TextCounter
from tidegate.adapters.counting.frames import Answer, CountBody, Counted, CountTexts, Question, Uncountable
from tidegate.adapters.counting.prompt import render
from tidegate.adapters.counting.vocabulary import Encode, VocabularyMissingError, load_vocabulary
from tidegate.adapters.engine import lifeline
from tidegate.errors import InvalidParameter

INLINE_CHARS = 4_096
"""Counted on the loop itself in well under a millisecond: cheaper than handing it to a thread."""
BULK_BYTES = 262_144
"""From here on a frame needs one of the `MAX_BULK` permits."""
MAX_BULK = 4
"""Large frames in memory at once, each up to the largest request body, with its text beside it."""
MAX_QUESTIONS = 256
"""Of one connection, being answered at once; the next waits in the socket."""


class CountingServer:
    """Answers questions on any number of connections."""

    def __init__(self, *, max_body_bytes: int, load: Callable[[str], Encode] = load_vocabulary) -> None:
        self._max_body_bytes = max_body_bytes
        self._counter = TextCounter(load=load)
        self._bulk = asyncio.Semaphore(MAX_BULK)

    def close(self) -> None:
        self._counter.close()

    async def serve_connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer one worker until it leaves or breaks the protocol; answers come in the order they are ready."""
        turns = asyncio.Semaphore(MAX_QUESTIONS)
        try:
            async with asyncio.TaskGroup() as answering:
                while (lengths := await frames.read_lengths(reader, max_raw_bytes=self._max_body_bytes)) is not None:
                    await self._take(reader, writer, lengths, answering, turns)
        except* (OSError, asyncio.IncompleteReadError, frames.FrameTooLargeError, msgspec.MsgspecError) as broken:
            sys.stderr.write(f"counting.connection_broken {broken.exceptions[0]!r}\n")
        finally:
            writer.close()

    async def _take(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        lengths: tuple[int, int],
        answering: asyncio.TaskGroup,
        turns: asyncio.Semaphore,
    ) -> None:
        """Read one frame and see to its answer: at once if that is quick, else in a task that holds the permits."""
        async with AsyncExitStack() as permits:
            await permits.enter_async_context(turns)
            if sum(lengths) > BULK_BYTES:
                await permits.enter_async_context(self._bulk)
            question = frames.decode_question(await reader.readexactly(lengths[0]))
            body = await reader.readexactly(lengths[1]) if lengths[1] else b""
            quick = self._quick_answer(question)
            if quick is not None:
                _send(writer, quick)
                await writer.drain()
            else:
                answering.create_task(self._answer_later(writer, question, body, permits.pop_all()))

    async def _answer_later(self, writer: asyncio.StreamWriter, question: Question, body: bytes, permits: AsyncExitStack) -> None:
        async with permits:
            _send(writer, await self._answer(question, body))
            await writer.drain()

    def _quick_answer(self, question: Question) -> tuple[Answer, bytes] | None:
        """Answer without a thread when the vocabulary is in memory and the texts are short."""
        encode = self._counter.loaded(question.vocabulary)
        if encode is None or isinstance(question, CountBody) or sum(map(len, question.texts)) > INLINE_CHARS:
            return None
        ids = [encode(text) for text in question.texts]
        return _counted(question, ids) if question.want_ids else (Counted(question.request_id, tuple(map(len, ids)), exact=True), b"")

    async def _answer(self, question: Question, body: bytes) -> tuple[Answer, bytes]:
        texts: tuple[str, ...]
        extra_tokens, exact = 0, True
        try:
            if isinstance(question, CountTexts):
                texts = question.texts
            else:
                rendered = await self._counter.in_thread(render, question.operation, body)
                if rendered is None:
                    return Uncountable(question.request_id, "the request body has a shape that cannot be counted"), b""
                texts, extra_tokens, exact = rendered.texts, rendered.extra_tokens, rendered.exact
            if question.want_ids:
                ids, safe = await self._counter.ids(question.vocabulary, texts)
                return _counted(question, ids, extra_tokens=extra_tokens, exact=exact and safe)
            counts, safe = await self._counter.counts(question.vocabulary, texts)
        except (VocabularyMissingError, InvalidParameter) as error:
            return Uncountable(question.request_id, str(error)), b""
        if isinstance(question, CountBody):
            counts = [sum(counts) + extra_tokens]
        return Counted(question.request_id, tuple(counts), exact=exact and safe), b""


def _counted(question: Question, ids: list[list[int]], *, extra_tokens: int = 0, exact: bool = True) -> tuple[Answer, bytes]:
    counts = tuple(map(len, ids))
    if isinstance(question, CountBody):
        counts = (sum(counts) + extra_tokens,)
    has_ids = extra_tokens == 0 and sum(counts) <= frames.MAX_IDS
    raw = frames.pack_ids([word for of_text in ids for word in of_text]) if has_ids else b""
    return Counted(question.request_id, counts, exact, has_ids), raw


def _send(writer: asyncio.StreamWriter, answer: tuple[Answer, bytes]) -> None:
    head, raw = answer
    writer.write(frames.frame_start(head, len(raw)) + raw)


def bind(path: str) -> socket.socket:
    """Listen on a Unix socket that only this user can open, replacing what a dead process left; raise `SystemExit` with advice."""
    if len(os.fsencode(path)) > frames.MAX_SOCKET_PATH_BYTES:
        raise SystemExit(f"The socket path {path} is longer than {frames.MAX_SOCKET_PATH_BYTES} bytes. Use a shorter state_directory.")
    listener = socket.socket(socket.AF_UNIX)
    umask = os.umask(0o077)
    try:
        Path(path).unlink(missing_ok=True)
        listener.bind(path)
    except OSError as error:
        listener.close()
        raise SystemExit(f"Cannot listen on {path}: {error.strerror or error}. Make the state directory writable.") from error
    finally:
        os.umask(umask)
    return listener


async def serve(path: str, *, max_body_bytes: int) -> None:
    """Serve until standard input ends or SIGTERM comes."""
    loop = asyncio.get_running_loop()
    leaving = asyncio.Event()
    loop.add_signal_handler(signal.SIGTERM, leaving.set)
    counting = CountingServer(max_body_bytes=max_body_bytes)
    server = await asyncio.start_unix_server(counting.serve_connection, sock=bind(path))
    threading.Thread(target=_watch_parent, args=(loop, leaving), name="lifeline", daemon=True).start()
    sys.stdout.write(msgspec.json.encode({"listening": path}).decode() + "\n")
    sys.stdout.flush()
    async with server:
        await leaving.wait()
        _leave(path)


def _leave(path: str) -> NoReturn:
    """End at once: a thread may be inside the tokenizer, and nobody waits for its answer any more."""
    Path(path).unlink(missing_ok=True)
    os._exit(0)


def _watch_parent(loop: asyncio.AbstractEventLoop, leaving: asyncio.Event) -> None:
    lifeline.wait_for_parent_to_leave(sys.stdin.fileno(), every_s=60.0, tick=lambda: None)
    loop.call_soon_threadsafe(leaving.set)


def main() -> None:
    lifeline.tie_to_parent()
    parser = argparse.ArgumentParser(prog="tidegate-counting", description="Counts tokens for the workers of one node.")
    parser.add_argument("--socket", required=True, help="path of the Unix socket to serve on")
    parser.add_argument("--max-body-bytes", type=int, required=True, help="largest request body that a worker may send")
    arguments = parser.parse_args()
    uvloop.run(serve(arguments.socket, max_body_bytes=arguments.max_body_bytes))


if __name__ == "__main__":
    main()
