"""How long a connection stays after its last response: bounds that a real client cannot reach in a test."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import cast

import pytest

from tidegate.http.server_connection import ServerConnection
from tidegate.http.server_limits import ServerLimits
from tidegate.http.server_socket import LINGER_BYTES, LINGER_PAUSE_S, LINGER_TOTAL_S
from tidegate.http.server_state import ServerState
from tidegate.testing.raw_http import RecordingApplication, echo


class StandingLoop:
    """A loop whose time the test moves."""

    def __init__(self) -> None:
        self.now = 100.0

    def time(self) -> float:
        return self.now

    def call_soon(self, callback: Callable[[], object]) -> None:
        """Make every turn end at once."""
        callback()


class RecordingTransport(asyncio.Transport):
    """A transport that keeps what is done to it."""

    def __init__(self) -> None:
        super().__init__({"peername": ("192.0.2.1", 1)})
        self.sent = b""
        self.did: list[str] = []
        self.turns = 0
        """How often reading was left for another turn of the loop."""
        self.unsent = 0

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.sent += bytes(data)

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        del high, low

    def get_write_buffer_size(self) -> int:
        return self.unsent

    def is_closing(self) -> bool:
        return False

    def can_write_eof(self) -> bool:
        return True

    def write_eof(self) -> None:
        self.did.append("write_eof")

    def close(self) -> None:
        self.did.append("close")

    def abort(self) -> None:
        self.did.append("abort")

    def pause_reading(self) -> None:
        self.turns += 1

    def resume_reading(self) -> None:
        """Go on with what comes."""


@pytest.fixture
def loop() -> StandingLoop:
    return StandingLoop()


@pytest.fixture
def state(loop: StandingLoop) -> ServerState:
    async def make() -> ServerState:
        return ServerState(RecordingApplication(), ServerLimits(), cast("asyncio.AbstractEventLoop", loop))

    return asyncio.run(make())


@pytest.fixture
def transport() -> RecordingTransport:
    return RecordingTransport()


@pytest.fixture
def connection(state: ServerState, transport: RecordingTransport) -> ServerConnection:
    """A connection whose request was just refused."""
    made = ServerConnection(state)
    made.connection_made(transport)
    made.data_received(b"not HTTP\r\n\r\n")
    return made


def sweep(state: ServerState, now: float) -> None:
    for due in state.deadlines.due(now, at_most=10):
        due.expire(now)


def test_a_refusal_is_sent_and_followed_by_fin(connection: ServerConnection, transport: RecordingTransport) -> None:
    """The client sees the response's end, while the other direction stays open."""
    del connection
    assert transport.sent.startswith(b"HTTP/1.1 400 ")
    assert transport.did == ["write_eof"]


def test_a_silent_client_is_waited_for_a_moment(connection: ServerConnection, transport: RecordingTransport, state: ServerState) -> None:
    """The connection goes when the client neither sends nor closes."""
    sweep(state, 100.0 + LINGER_PAUSE_S - 0.1)
    assert transport.did == ["write_eof"]
    sweep(state, 100.0 + LINGER_PAUSE_S + 0.5)
    assert transport.did == ["write_eof", "abort"]
    connection.connection_lost(None)


def test_a_client_that_sends_slowly_for_ever_is_dropped(
    connection: ServerConnection, transport: RecordingTransport, state: ServerState, loop: StandingLoop
) -> None:
    """Sending now and then extends the lingering, up to its total."""
    while loop.now < 100.0 + LINGER_TOTAL_S - 1.0:
        loop.now += 1.0
        connection.data_received(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        sweep(state, loop.now)
        assert transport.did == ["write_eof"]
    loop.now += 1.0
    connection.data_received(b"z")
    sweep(state, loop.now + 0.5)
    assert transport.did == ["write_eof", "abort"]


def test_a_client_that_sends_fast_for_ever_is_dropped(connection: ServerConnection, transport: RecordingTransport) -> None:
    """The amount thrown away is bounded as well, and every large read is one turn of the loop."""
    piece = bytes(1 << 24)
    for _ in range(LINGER_BYTES // len(piece)):
        connection.data_received(piece)
    assert transport.did == ["write_eof"]
    assert transport.turns == LINGER_BYTES // len(piece)
    connection.data_received(b"z")
    assert transport.did == ["write_eof", "abort"]


def test_a_last_response_that_nobody_takes_is_given_up(state: ServerState, transport: RecordingTransport, loop: StandingLoop) -> None:
    """A close waits for what is unsent while the client takes some of it, and no longer than the send time without that."""
    state.application = RecordingApplication(on_head=echo)
    connection = ServerConnection(state)
    connection.connection_made(transport)
    transport.unsent = 60_000
    connection.data_received(b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
    loop.now += state.limits.send_timeout_s + 0.5
    transport.unsent = 20_000
    sweep(state, loop.now)
    assert transport.did == ["close"]
    loop.now += state.limits.send_timeout_s + 0.5
    transport.unsent = 19_999
    sweep(state, loop.now)
    assert transport.did == ["close", "abort"]
    assert state.slow_readers == 1
