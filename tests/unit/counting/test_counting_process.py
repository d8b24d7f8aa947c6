"""The counting process and its client, over a real socket."""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
import socket
import struct
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from tidegate.adapters.counting import frames
from tidegate.adapters.counting.client import CountFailed, FailureReason, ProcessTokenCounter, TextCounts
from tidegate.adapters.counting.process import CountingServer
from tidegate.adapters.counting.service import TokenCountService
from tidegate.adapters.counting.vocabulary import QWEN, Encode, VocabularyMissingError, load_vocabulary
from tidegate.domain.request import Operation, ParsedRequest
from tidegate.domain.units import ModelName

MAX_BODY_BYTES = 8_388_608
DEADLINE_S = 20.0


class Process:
    """A counting process on a short path; leaving ends it."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.popen = subprocess.Popen(
            [sys.executable, "-m", "tidegate.adapters.counting.process", "--socket", path, "--max-body-bytes", str(MAX_BODY_BYTES)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        assert self.popen.stdout is not None
        assert json.loads(self.popen.stdout.readline()) == {"listening": path}

    def end(self) -> int:
        for pipe in (self.popen.stdin, self.popen.stdout):
            if pipe is not None:
                pipe.close()
        return self.popen.wait(timeout=5)


@pytest.fixture(scope="module")
def process() -> Iterator[Process]:
    with TemporaryDirectory(prefix="tg") as folder:
        running = Process(f"{folder}/count.sock")
        yield running
        running.end()


def client(path: str, *, max_body_bytes: int = MAX_BODY_BYTES) -> ProcessTokenCounter:
    return ProcessTokenCounter(path, max_body_bytes=max_body_bytes, rng=random.Random(1))


def chat_body(text: str) -> bytes:
    return json.dumps({"model": "q", "messages": [{"role": "user", "content": text}]}, ensure_ascii=False).encode()


def test_texts_and_bodies_are_counted_as_the_tokenizer_counts_them(process: Process) -> None:
    """Short texts, ids, and a parsed body give the tokenizer's own figures."""
    encode = load_vocabulary(QWEN)
    texts = ("hello world", "你好，世界！<|im_end|>", "", "x" * 10_000)
    prompt = "<|im_start|>user\nwhy?<|im_end|>\n<|im_start|>assistant\n<think>\n"

    async def scene() -> None:
        counter = client(process.path)
        plain = await counter.count_texts(QWEN, texts, deadline_s=DEADLINE_S)
        assert plain == TextCounts(tuple(len(encode(text)) for text in texts), exact=True)
        with_ids = await counter.count_texts(QWEN, texts[:2], deadline_s=DEADLINE_S, want_ids=True)
        assert isinstance(with_ids, TextCounts)
        assert with_ids.ids == tuple(encode(texts[0]) + encode(texts[1]))
        body = await counter.count_body(QWEN, Operation.CHAT, chat_body("why?"), deadline_s=DEADLINE_S)
        assert body == TextCounts((len(encode(prompt)),), exact=True)
        await counter.aclose()

    asyncio.run(scene())


def test_five_megabytes_are_counted_in_the_other_process(process: Process) -> None:
    """A 5 MB prompt is counted exactly, by the other process: while that one is stopped, only the deadline answers."""
    text = "The quick brown fox 跳过了懒狗。 " * 130_000
    request = ParsedRequest(operation=Operation.CHAT, model=ModelName("q"), body=chat_body(text))
    assert len(request.body) > 5_000_000
    expected = len(load_vocabulary(QWEN)(f"<|im_start|>user\n{text.strip()}<|im_end|>\n<|im_start|>assistant\n<think>\n"))

    async def scene() -> None:
        counter = client(process.path)
        service = TokenCountService(tokenizer_of=lambda _: QWEN, counter=counter)
        os.kill(process.popen.pid, signal.SIGSTOP)
        try:
            stopped = await service.count(request, deadline_s=0.2)
        finally:
            os.kill(process.popen.pid, signal.SIGCONT)
        assert (stopped.tokenizer, stopped.exact) == ("fallback:bytes", False)
        counted = await service.count(request, deadline_s=DEADLINE_S)
        assert (counted.prompt_tokens, counted.exact) == (expected, True)
        await counter.aclose()

    asyncio.run(scene())


def test_a_short_text_overtakes_a_long_one(process: Process) -> None:
    """While one worker's long body is counted, another worker's short text is answered first."""
    long_body = chat_body("words and 1 more, " * 300_000)

    async def scene() -> None:
        busy, other = client(process.path), client(process.path)
        long_count = asyncio.ensure_future(busy.count_body(QWEN, Operation.CHAT, long_body, deadline_s=DEADLINE_S))
        await asyncio.sleep(0)
        short = await other.count_texts(QWEN, ("hello",), deadline_s=DEADLINE_S)
        assert short == TextCounts((1,), exact=True)
        assert not long_count.done()
        assert isinstance(await long_count, TextCounts)
        await busy.aclose()
        await other.aclose()

    asyncio.run(scene())


def test_many_questions_at_once_each_get_their_own_answer(process: Process) -> None:
    """Answers find their questions however many are in flight."""

    async def scene() -> None:
        counter = client(process.path)
        asked = [counter.count_texts(QWEN, ("word " * size,), deadline_s=DEADLINE_S) for size in range(300)]
        answers = await asyncio.gather(*asked)
        encode = load_vocabulary(QWEN)
        assert answers == [TextCounts((len(encode("word " * size)),), exact=True) for size in range(300)]
        await counter.aclose()

    asyncio.run(scene())


def test_too_much_in_flight_is_refused_at_once(process: Process) -> None:
    """Texts beyond the in-flight bound are not queued: the caller is told that counting is busy."""

    async def scene() -> None:
        counter = client(process.path)
        text = ("word " * 100_000,)
        answers = await asyncio.gather(*(counter.count_texts(QWEN, text, deadline_s=DEADLINE_S) for _ in range(40)))
        reasons = {answer.reason for answer in answers if isinstance(answer, CountFailed)}
        assert reasons == {FailureReason.BUSY}
        assert sum(isinstance(answer, TextCounts) for answer in answers) >= 30
        await counter.aclose()

    asyncio.run(scene())


def test_what_cannot_be_counted_is_refused_with_a_reason(process: Process) -> None:
    """An unknown vocabulary, an unknown shape, and bodies and texts over their bounds each say why."""

    async def scene() -> None:
        counter = client(process.path, max_body_bytes=1000)
        answers = [
            await counter.count_texts("klingon", ("x",), deadline_s=DEADLINE_S),
            await counter.count_body(QWEN, Operation.CHAT, b"[]", deadline_s=DEADLINE_S),
            await counter.count_body(QWEN, Operation.CHAT, b"x" * 1001, deadline_s=DEADLINE_S),
            await counter.count_texts(QWEN, ("x" * frames.MAX_HEAD_BYTES,), deadline_s=DEADLINE_S),
        ]
        await counter.aclose()
        reasons = [answer.reason for answer in answers if isinstance(answer, CountFailed)]
        assert reasons == [FailureReason.REFUSED, FailureReason.REFUSED, FailureReason.TOO_LARGE, FailureReason.TOO_LARGE]

    asyncio.run(scene())


def test_only_this_user_can_open_the_socket(process: Process) -> None:
    """The socket's mode gives nobody else access."""
    assert Path(process.path).stat().st_mode & 0o077 == 0


def test_a_broken_frame_costs_only_its_connection(process: Process) -> None:
    """Somebody who announces four gigabytes is cut off, and the next worker is served."""
    with socket.socket(socket.AF_UNIX) as rude:
        rude.settimeout(5)
        rude.connect(process.path)
        rude.sendall(struct.pack(">II", 10, 0xFFFFFFFF))
        assert rude.recv(1) == b""

    async def scene() -> None:
        counter = client(process.path)
        assert isinstance(await counter.count_texts(QWEN, ("hello",), deadline_s=DEADLINE_S), TextCounts)
        await counter.aclose()

    asyncio.run(scene())


def test_a_lost_process_fails_fast_and_its_successor_is_found() -> None:
    """Calls fail at once while there is no process, and succeed again after a new one listens on the same path."""

    async def scene(path: str) -> None:
        first = await asyncio.to_thread(Process, path)
        counter = client(path)
        assert isinstance(await counter.count_texts(QWEN, ("a",), deadline_s=DEADLINE_S), TextCounts)
        first.popen.kill()
        await asyncio.to_thread(first.end)
        lost = await counter.count_texts(QWEN, ("b",), deadline_s=DEADLINE_S)
        assert isinstance(lost, CountFailed)
        assert lost.reason is FailureReason.UNAVAILABLE
        second = await asyncio.to_thread(Process, path)
        for _ in range(200):  # ten seconds at the most; the client's pauses are under two
            found = await counter.count_texts(QWEN, ("b",), deadline_s=DEADLINE_S)
            if isinstance(found, TextCounts):
                break
            await asyncio.sleep(0.05)
        assert found == TextCounts((1,), exact=True)
        await counter.aclose()
        assert await asyncio.to_thread(second.end) == 0

    with TemporaryDirectory(prefix="tg") as folder:
        asyncio.run(scene(f"{folder}/count.sock"))


def test_it_ends_with_its_owner_and_ignores_ctrl_c() -> None:
    """SIGINT is for the owner to decide on; the end of standard input ends the process and removes the socket."""
    with TemporaryDirectory(prefix="tg") as folder:
        running = Process(f"{folder}/count.sock")
        running.popen.send_signal(signal.SIGINT)
        with pytest.raises(subprocess.TimeoutExpired):
            running.popen.wait(timeout=0.3)
        assert running.end() == 0
        assert not Path(running.path).exists()


def test_without_the_vocabulary_package_the_reason_is_told() -> None:
    """A node without the optional package answers every question with what to install."""

    def absent(name: str) -> Encode:
        raise VocabularyMissingError(f"no {name}: install it")

    async def scene(path: str) -> CountFailed | TextCounts:
        server = CountingServer(max_body_bytes=MAX_BODY_BYTES, load=absent)
        async with await asyncio.start_unix_server(server.serve_connection, path):
            counter = client(path)
            answer = await counter.count_texts(QWEN, ("a",), deadline_s=DEADLINE_S)
            await counter.aclose()
            server.close()
            return answer

    with TemporaryDirectory(prefix="tg") as folder:
        assert asyncio.run(scene(f"{folder}/s")) == CountFailed(FailureReason.REFUSED, "no qwen3.6: install it")
