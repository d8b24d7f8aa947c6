"""The server of frames: answers, and what it reads on of clients that are dead, slow, or talk nonsense."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
import pytest

from tidegate.adapters import frame_server
from tidegate.adapters.frame_server import FrameServer, Serve

ENOUGH_S = 20.0


def frame(kind: str, number: int, payload: bytes = b"") -> bytes:
    body = msgspec.msgpack.encode((kind, number, payload))
    return len(body).to_bytes(4, "big") + body


async def answer(reader: asyncio.StreamReader) -> tuple[int, bytes]:
    length = int.from_bytes(await reader.readexactly(4), "big")
    return msgspec.msgpack.decode(await reader.readexactly(length), type=tuple[int, bytes])


@asynccontextmanager
async def served(directory: Path, **serves: Serve) -> AsyncIterator[str]:
    path = str(directory / "f.sock")
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(path)
    server = FrameServer(listener, serves)
    try:
        async with asyncio.timeout(ENOUGH_S):
            yield path
    finally:
        server.close()


class Taken:
    """Serves frames once it may, and remembers them."""

    def __init__(self) -> None:
        self.payloads: list[bytes] = []
        self.most = self.now = 0
        self.may = asyncio.Event()

    async def __call__(self, payload: bytes) -> bytes:
        self.now += 1
        self.most = max(self.most, self.now)
        await self.may.wait()
        self.now -= 1
        self.payloads.append(payload)
        return payload.upper()

    async def until(self, count: int) -> None:
        while len(self.payloads) < count:  # noqa: ASYNC110  it tells nobody
            await asyncio.sleep(0.001)


async def echo(payload: bytes) -> bytes:
    return payload


def test_each_frame_is_answered_by_its_number(tmp_path: Path) -> None:
    """By the function of its kind, however its bytes are cut."""

    async def run() -> None:
        async with served(tmp_path, echo=echo) as path:
            reader, writer = await asyncio.open_unix_connection(path)
            for byte in frame("echo", 7, b"x"):
                writer.write(bytes([byte]))
                await asyncio.sleep(0)
            writer.write(frame("echo", 8, b"y") + frame("echo", 9, b"z"))
            assert [(7, b"x"), (8, b"y"), (9, b"z")] == sorted([await answer(reader) for _ in range(3)])
            writer.close()

    asyncio.run(run())


def test_a_dead_clients_frames_are_all_served(tmp_path: Path) -> None:
    """Also when the first answer fails before the last frame was read."""

    async def run() -> None:
        taken = Taken()
        taken.may.set()
        async with served(tmp_path, post=taken) as path:
            client = socket.socket(socket.AF_UNIX)
            client.connect(path)
            client.sendall(b"".join([frame("post", number, b"%d" % number + b"." * 5_000) for number in range(30)]))
            client.close()
            await taken.until(30)

    asyncio.run(run())


def test_frames_beyond_the_bound_wait_in_the_socket(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A client cannot have more served at once, and all are served in the end."""
    monkeypatch.setattr(frame_server, "MAX_SERVING", 5)
    monkeypatch.setattr(frame_server, "_READ_BYTES", 64)

    async def run() -> None:
        taken = Taken()
        async with served(tmp_path, post=taken) as path:
            reader, writer = await asyncio.open_unix_connection(path)
            writer.write(b"".join([frame("post", number) for number in range(50)]))
            while taken.now < 5:  # noqa: ASYNC110  it tells nobody
                await asyncio.sleep(0.001)
            taken.may.set()
            assert set(range(50)) == {(await answer(reader))[0] for _ in range(50)}
            assert taken.most < 15
            writer.close()

    asyncio.run(run())


def test_a_failing_service_ends_the_answers(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The client sees the end and comes back; what it had sent is served all the same."""
    taken = Taken()

    async def fail(_: bytes) -> bytes:
        raise ConnectionError("the disk is gone")

    async def run() -> None:
        taken.may.set()
        async with served(tmp_path, post=taken, fail=fail) as path:
            reader, writer = await asyncio.open_unix_connection(path)
            writer.write(frame("fail", 1))
            assert b"" == await reader.read()
            writer.write(frame("post", 2))
            await taken.until(1)
            writer.close()

    with caplog.at_level(logging.ERROR):
        asyncio.run(run())
    assert "node.frame_failed frame fail ConnectionError('the disk is gone')" in caplog.text


@pytest.mark.parametrize("nonsense", [b"\xff\xff\xff\xff", b"\0\0\0\1\xc1", frame("other", 1)])
def test_nonsense_ends_its_own_connection_only(tmp_path: Path, nonsense: bytes) -> None:
    """A kind that nobody serves, no frame, and a length that none has."""

    async def run() -> None:
        async with served(tmp_path, echo=echo) as path:
            bad, bad_writer = await asyncio.open_unix_connection(path)
            good, good_writer = await asyncio.open_unix_connection(path)
            bad_writer.write(nonsense)
            assert b"" == await bad.read()
            good_writer.write(frame("echo", 1, b"x"))
            assert (1, b"x") == await answer(good)
            bad_writer.close()
            good_writer.close()

    asyncio.run(run())


def test_answers_that_nobody_takes_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A client that sends and never reads is answered no more; one that reads late gets everything."""
    large = b"." * 400_000

    async def grow(_: bytes) -> bytes:
        return large

    async def run(count: int) -> int:
        async with served(tmp_path, grow=grow) as path:
            reader, writer = await asyncio.open_unix_connection(path)
            writer.write(b"".join([frame("grow", number) for number in range(count)]))
            await asyncio.sleep(0.05)
            received = len(await reader.read()) if count > 3 else sum([len((await answer(reader))[1]) for _ in range(count)])
            writer.close()
            return received

    assert 3 * len(large) == asyncio.run(run(3))
    (tmp_path / "f.sock").unlink()
    monkeypatch.setattr(frame_server, "MAX_UNSENT_BYTES", 1_000_000)
    assert asyncio.run(run(20)) < 20 * len(large)
