"""A counting process that takes questions and answers none: a frozen neighbour must not hang every request."""

from __future__ import annotations

import asyncio
import contextlib
import random
from tempfile import TemporaryDirectory

from tidegate.adapters.counting import frames
from tidegate.adapters.counting.client import HANGS_AFTER_S, CountFailed, FailureReason, ProcessTokenCounter, TextCounts
from tidegate.adapters.counting.frames import Counted

QUICK_S = 0.2
PATIENCE_S = 5.0


class Frozen:
    """Reads questions and keeps silent until `thaw`; then it counts one token for each text."""

    def __init__(self) -> None:
        self.thawed = False
        self.questions = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.closing(writer), contextlib.suppress(OSError):
            while (lengths := await frames.read_lengths(reader, max_raw_bytes=1024)) is not None:
                question = frames.decode_question(await reader.readexactly(lengths[0]))
                self.questions += 1
                if self.thawed:
                    writer.write(frames.frame_start(Counted(question.request_id, (1,), exact=True), 0))


def test_a_process_that_hangs_delays_only_the_requests_that_find_out() -> None:
    """After one deadline without an answer all others fail at once, until the process answers again."""

    async def scene(path: str) -> None:
        frozen = Frozen()
        server = await asyncio.start_unix_server(frozen.serve, path)
        counter = ProcessTokenCounter(path, max_body_bytes=1024, rng=random.Random(1))
        loop = asyncio.get_running_loop()

        async def count(deadline_s: float = HANGS_AFTER_S + 0.05) -> tuple[TextCounts | CountFailed, float]:
            began = loop.time()
            return await counter.count_texts("q", ("text",), deadline_s=deadline_s), loop.time() - began

        (first, _), (second, _) = await asyncio.gather(count(), count())
        assert all(isinstance(answer, CountFailed) for answer in (first, second))
        for _ in range(20):
            answer, took_s = await count()
            assert isinstance(answer, CountFailed)
            assert answer.reason is FailureReason.UNAVAILABLE
            assert took_s < QUICK_S
        assert frozen.questions == 2

        frozen.thawed = True
        async with asyncio.timeout(PATIENCE_S):
            while True:
                answer, _ = await count()
                if isinstance(answer, TextCounts):
                    break
                await asyncio.sleep(0.01)
        assert TextCounts((1,), exact=True) == answer
        answers = await asyncio.gather(*(count() for _ in range(20)))
        assert [TextCounts((1,), exact=True)] * 20 == [answer for answer, _ in answers]
        await counter.aclose()
        server.close()
        await server.wait_closed()

    with TemporaryDirectory(prefix="tg") as folder:
        asyncio.run(scene(f"{folder}/count.sock"))


def test_a_caller_that_gives_up_first_finds_out_too() -> None:
    """The requests' own deadline ends the wait by cancelling it."""

    async def scene(path: str) -> None:
        server = await asyncio.start_unix_server(Frozen().serve, path)
        counter = ProcessTokenCounter(path, max_body_bytes=1024, rng=random.Random(1))
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(HANGS_AFTER_S + 0.05):
                await counter.count_texts("q", ("text",), deadline_s=60.0)
        answer = await counter.count_texts("q", ("text",), deadline_s=60.0)
        assert isinstance(answer, CountFailed)
        assert answer.reason is FailureReason.UNAVAILABLE
        await counter.aclose()
        server.close()
        await server.wait_closed()

    with TemporaryDirectory(prefix="tg") as folder:
        asyncio.run(scene(f"{folder}/count.sock"))


def test_a_short_deadline_says_nothing_about_the_process() -> None:
    """A question that had hardly any time left does not shut the others out."""

    async def scene(path: str) -> None:
        frozen = Frozen()
        server = await asyncio.start_unix_server(frozen.serve, path)
        counter = ProcessTokenCounter(path, max_body_bytes=1024, rng=random.Random(1))
        assert isinstance(await counter.count_texts("q", ("text",), deadline_s=0.05), CountFailed)
        frozen.thawed = True
        assert await counter.count_texts("q", ("text",), deadline_s=5.0) == TextCounts((1,), exact=True)
        await counter.aclose()
        server.close()
        await server.wait_closed()

    with TemporaryDirectory(prefix="tg") as folder:
        asyncio.run(scene(f"{folder}/count.sock"))
