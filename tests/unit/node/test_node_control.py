"""Control messages: whole, bounded, with secrets that arrive and are never shown."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import msgspec
import pytest

from tidegate.adapters.engine.settings import EnginePhase, EngineState
from tidegate.config.schema import Configuration, DialectName, UpstreamSection
from tidegate.domain.statistics import Histogram, RequestStatistics, RequestTally, RouteHistograms, WorkerStatistics
from tidegate.domain.units import Secret
from tidegate.node import control

SECRET = "sk-canary-0123456789"


@asynccontextmanager
async def channels() -> AsyncIterator[tuple[control.Channel[control.FromWorker], control.Channel[control.ToWorker], socket.socket]]:
    """Give both ends, and a duplicate of the supervisor's socket to write raw bytes with."""
    ours, theirs = socket.socketpair()
    raw = ours.dup()
    supervisor = await control.supervisor_channel(ours)
    worker = await control.worker_channel(theirs)
    try:
        yield supervisor, worker, raw
    finally:
        supervisor.close()
        worker.close()
        raw.close()
        await asyncio.sleep(0)


def start_message() -> control.Start:
    upstream = UpstreamSection(
        dialect=DialectName.VLLM, base_url="http://127.0.0.1:1/v1", api_key=Secret(SECRET), headers={"x-extra": Secret(SECRET)}
    )
    engine = EngineState(phase=EnginePhase.READY, base_url="http://127.0.0.1:2/v1", api_key=Secret(SECRET), pid=1)
    return control.Start(
        configuration=Configuration(upstreams={"vllm": upstream}),
        index=1,
        workers=2,
        state_directory="state",
        engine=engine,
        counter_socket=None,
        log_format="logfmt",
    )


def test_a_configuration_arrives_as_it_was_with_its_secrets() -> None:
    """Keys of upstreams reach the worker; the message's repr hides them."""

    async def scenario() -> None:
        async with channels() as (supervisor, worker, _):
            await supervisor.send(start_message())
            received = await worker.receive()
            assert received == start_message()
            assert SECRET not in repr(received)

    asyncio.run(scenario())


def test_statistics_arrive_as_they_were() -> None:
    """What a worker counted is what the supervisor sums."""
    histogram = Histogram((1.0,), (2, 3), 4.5)
    requests = RequestStatistics(
        requests=(RequestTally("chat", "q*", "vllm", "ok", 5),), histograms=(RouteHistograms("q*", *[histogram] * 7),)
    )
    report = control.StatisticsReport(7, WorkerStatistics(requests=requests, levels={"server.connections": 1.0}))

    async def scenario() -> None:
        async with channels() as (supervisor, worker, _):
            await worker.send(report)
            assert await supervisor.receive() == report

    asyncio.run(scenario())


def test_messages_keep_their_order() -> None:
    """Many messages sent at once arrive whole, in order."""

    async def scenario() -> None:
        async with channels() as (supervisor, worker, _):
            sent = [control.GetStatistics(number) for number in range(100)]
            for message in sent:
                await supervisor.send(message)
            assert [await worker.receive() for _ in sent] == sent

    asyncio.run(scenario())


def test_the_end_of_the_stream_is_none() -> None:
    """A peer that is gone, even inside a frame, is told as an end, not as an error."""

    async def scenario() -> None:
        async with channels() as (supervisor, worker, raw):
            raw.send(b"\x00\x00\x00\x10only a part")
            raw.shutdown(socket.SHUT_WR)
            assert await worker.receive() is None
            supervisor.close()

    asyncio.run(scenario())


@pytest.mark.parametrize("junk", [b"\xff\xff\xff\xff", b"\x00\x00\x00\x03abc", b"\x00\x00\x00\x00", b"\x00\x00\x00\x01\x80"])
def test_junk_is_refused(junk: bytes) -> None:
    """A frame too large, not msgpack, empty or without a tag ends the conversation instead of the process."""

    async def scenario() -> None:
        async with channels() as (_, worker, raw):
            raw.send(junk)
            with pytest.raises(control.ControlError):
                await worker.receive()

    asyncio.run(scenario())


def test_a_refused_frame_does_not_quote_its_contents() -> None:
    """A message of another version may carry secrets; the error shows none of them, nor does its cause."""
    body = msgspec.msgpack.encode({"type": "Start", "configuration": {"upstreams": {SECRET: SECRET}}})

    async def scenario() -> None:
        async with channels() as (_, worker, raw):
            raw.send(len(body).to_bytes(4, "big") + body)
            with pytest.raises(control.ControlError) as refused:
                await worker.receive()
            assert SECRET not in str(refused.value)
            assert refused.value.__cause__ is None
            assert refused.value.__suppress_context__

    asyncio.run(scenario())


def test_a_peer_that_reads_nothing_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """A stuck worker costs the supervisor a deadline, not its loop."""
    monkeypatch.setattr(control, "SEND_S", 0.05)

    async def scenario() -> None:
        async with channels() as (supervisor, _, raw):
            raw.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
            big = msgspec.structs.replace(start_message(), state_directory="x" * 1_000_000)
            filling = [asyncio.create_task(supervisor.send(big)) for _ in range(10)]
            outcomes = await asyncio.gather(*filling, return_exceptions=True)
            assert "has not read" in str(outcomes[-1])
            assert isinstance(outcomes[-1], control.ControlError)

    asyncio.run(scenario())


def test_a_message_over_the_bound_is_not_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    """The sender notices first."""
    monkeypatch.setattr(control, "MAX_FRAME_BYTES", 100)

    async def scenario() -> None:
        async with channels() as (supervisor, _, _):
            with pytest.raises(control.ControlError, match="Start"):
                await supervisor.send(start_message())

    asyncio.run(scenario())
