"""Streams that outlive their connection: numbered events, a tail kept for replay, and a client that may come back for it.

A `ResumableStream` stands between a request driver and the client's connection. To the driver it is the exchange; its subscriber changes:
the connection that began it, nobody, or one that returned. While there is none, the answer goes on being read.

Invariants:
* What a client that returns is sent is, byte for byte, what it would have been sent.
* A stream has at most one subscriber; a later one takes over and the earlier is closed.
* The flow hears that its client left once nobody has returned for the window, or at once when there is nothing to return to.
* Each stream keeps at most its own bound of bytes, and all together at most theirs: finished streams go first, the oldest first, then the
  stream that grows loses its own oldest events.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from itertools import islice
from random import Random
from typing import Final, Protocol

from tidegate.domain.principal import Principal
from tidegate.domain.units import HeaderLines, Headers
from tidegate.errors import TidegateError
from tidegate.gateway.statistics import StreamStatistics
from tidegate.gateway.stream_settings import StreamSettings
from tidegate.ports import Exchange, ExchangeReceiver, RequestHead
from tidegate.wire.event_ids import EventNumbering, make_stream_id

MAX_STREAMS: Final = 10_000
"""Resumable at one time in one worker: without its events one costs about 2 KB, so 20 MB at worst. One more is an ordinary stream."""

_ID_BITS: Final = 96
_KEPT_HEADERS: Final = frozenset({b"content-type", b"cache-control", b"x-tidegate-degraded"})


class Subscriber(Protocol):
    """A connection at the client's end of a stream."""

    exchange: Exchange
    paused: bool
    """The client reads more slowly than we send."""

    def displaced(self) -> None:
        """Another connection took over: close this one."""

    def served(self) -> None:
        """The response is complete."""


class StreamReceiver(ExchangeReceiver, Protocol):
    """The driver behind a stream."""

    @property
    def principal(self) -> Principal | None: ...


class ResumableStreams:
    """All resumable streams of one worker."""

    def __init__(self, worker: int, rng: Random) -> None:
        self.worker = worker
        self.resumed = 0
        self.missed = 0
        self.closed = False
        self._rng = rng
        self._streams: dict[str, ResumableStream] = {}
        """Bounded by `MAX_STREAMS`."""
        self._finished: dict[str, ResumableStream] = {}
        """Those of them that wait only to be replayed, the oldest first."""
        self._kept_bytes = 0

    def __repr__(self) -> str:
        return f"ResumableStreams({len(self._streams)} streams, {self._kept_bytes} bytes)"

    def statistics(self, *, heartbeats: int) -> StreamStatistics:
        return StreamStatistics(len(self._streams), self._kept_bytes, self.resumed, self.missed, heartbeats)

    def find(self, stream_id: str) -> ResumableStream | None:
        return self._streams.get(stream_id)

    def close(self) -> None:
        """No client can return any more: streams without one end, and none waits from now on."""
        self.closed = True
        for stream in list(self._streams.values()):
            stream.give_up_if_alone()

    # ── for the streams ───────────────────────────────────────────────────────

    def enter(self, stream: ResumableStream) -> str | None:
        """Take a stream in and name it; None when there is no room."""
        if self.closed:
            return None
        if len(self._streams) >= MAX_STREAMS:
            if not self._finished:
                return None
            next(iter(self._finished.values())).forget()
        stream_id = make_stream_id(self.worker, self._rng.getrandbits(_ID_BITS))
        self._streams[stream_id] = stream
        return stream_id

    def finished(self, stream_id: str) -> None:
        self._finished[stream_id] = self._streams[stream_id]

    def leave(self, stream_id: str) -> None:
        self._streams.pop(stream_id, None)
        self._finished.pop(stream_id, None)

    def kept(self, amount: int) -> None:
        """Count bytes that a stream keeps from now on; negative ones it let go."""
        self._kept_bytes += amount

    def is_over(self, total_bytes: int) -> bool:
        """Say whether a growing stream must let go of something, once all finished ones that could have gone are gone."""
        while self._kept_bytes > total_bytes and self._finished:
            next(iter(self._finished.values())).forget()
        return self._kept_bytes > total_bytes


class ResumableStream:
    """Implements `ports.Exchange` for the driver of one request that asked to be resumable."""

    def __init__(self, streams: ResumableStreams, exchange: Exchange, settings: StreamSettings, loop: asyncio.AbstractEventLoop) -> None:
        self.head: RequestHead = exchange.head
        self._streams = streams
        self._settings = settings
        self._loop = loop
        self._first = exchange
        self._subscriber: Subscriber | None = None
        self._receiver: StreamReceiver | None = None
        self._principal: Principal | None = None
        self._id: str | None = None
        """Set while it can be resumed."""
        self._numbering: EventNumbering | None = None
        self._headers: Headers = ()
        self._tail: deque[bytes] = deque()
        """The last events, ids included; bounded in bytes by the settings."""
        self._tail_bytes = 0
        self._lost = 0
        """Events that were kept no longer: the tail begins after them."""
        self._over = False
        self._timer: asyncio.TimerHandle | None = None

    def __repr__(self) -> str:
        return f"ResumableStream({self._id}, {len(self._tail)} events, {'over' if self._over else 'running'})"

    def begin(self, receiver: StreamReceiver) -> FirstSubscriber:
        """Subscribe the connection that asked; give what its server is to talk to."""
        self._receiver = receiver
        subscriber = FirstSubscriber(self, receiver, self._first)
        self._subscriber = subscriber
        return subscriber

    # ── ports.Exchange ────────────────────────────────────────────────────────

    def read_body(self) -> None:
        self._first.read_body()

    def respond(self, status: int, headers: Headers, body: bytes, lines: HeaderLines = b"") -> None:
        """Answer whole: an error, or no stream. There is nothing to resume."""
        self._over = True
        self._receiver = None
        self._first.respond(status, headers, body, lines)

    def start(self, status: int, headers: Headers, lines: HeaderLines = b"") -> None:
        self._principal = self._receiver.principal if self._receiver is not None else None
        self._id = self._streams.enter(self) if self._principal is not None else None
        if self._id is not None:
            self._numbering = EventNumbering(self._id)
            name = (b"x-tidegate-stream-id", self._id.encode("ascii"))
            self._headers = (*(header for header in headers if header[0] in _KEPT_HEADERS), name)
            headers = (*headers, name)
        self._first.start(status, headers, lines)

    def send(self, chunk: bytes) -> None:
        subscriber = self._subscriber
        if self._numbering is None:
            self._first.send(chunk)
            return
        pieces = self._numbering.apply(chunk)
        if self._id is not None:
            self._keep([piece for number, piece in pieces if number])
        if subscriber is not None:
            subscriber.exchange.send(b"".join([piece for _, piece in pieces]))

    def finish(self) -> None:
        self._over = True
        self._receiver = None
        subscriber, self._subscriber = self._subscriber, None
        if subscriber is not None:
            subscriber.exchange.finish()
            subscriber.served()
        if self._streams.closed:
            self.forget()  # nobody can come back any more
        elif self._id is not None:
            self._streams.finished(self._id)
            self._wait(self.forget)

    def abort(self) -> None:
        self._over = True
        self._receiver = None
        subscriber, self._subscriber = self._subscriber, None
        if subscriber is not None:
            subscriber.displaced()
        self.forget()

    # ── the client's end ──────────────────────────────────────────────────────

    def is_of(self, principal: Principal, path: str) -> bool:
        """Say whether this caller began the stream, with this path."""
        mine = self._principal
        return (
            mine is not None
            and path == self.head.path
            and (mine.key_id, mine.tenant, mine.user)
            == (
                principal.key_id,
                principal.tenant,
                principal.user,
            )
        )

    def has_event(self, number: int) -> bool:
        return self._numbering is not None and 0 <= number <= self._numbering.number

    def keeps_after(self, number: int) -> bool:
        """Say whether every event after `number` is still there."""
        return number >= self._lost

    def subscribe(self, subscriber: Subscriber, number: int, headers: Headers) -> None:
        """Send what came after event `number`, and from now on what comes. Ask `has_event` and `keeps_after` before."""
        assert self.keeps_after(number), "the tail was looked at before"
        before, self._subscriber = self._subscriber, subscriber
        if before is not None:
            before.displaced()
            if before.paused and self._receiver is not None:
                self._receiver.write_resumed()
        if not self._over:
            self._stop_waiting()
        subscriber.exchange.start(200, (*headers, *self._headers))
        subscriber.exchange.send(b"".join(islice(self._tail, number - self._lost, None)))
        if self._over:
            self._subscriber = None
            subscriber.exchange.finish()
            subscriber.served()

    def left(self, subscriber: Subscriber) -> None:
        """The client of this connection has gone: wait for its return if it can return to anything."""
        if subscriber is not self._subscriber:
            return
        self._subscriber = None
        if self._id is None or self._streams.closed:
            self._give_up()
            return
        if subscriber.paused and self._receiver is not None:
            self._receiver.write_resumed()
        self._wait(self._give_up)

    def pause(self, subscriber: Subscriber) -> None:
        if subscriber is self._subscriber and self._receiver is not None:
            self._receiver.write_paused()

    def resume(self, subscriber: Subscriber) -> None:
        if subscriber is self._subscriber and self._receiver is not None:
            self._receiver.write_resumed()

    def give_up_if_alone(self) -> None:
        if self._subscriber is None:
            self._give_up()

    def forget(self) -> None:
        """Let go of the tail: from now on the stream cannot be resumed."""
        self._stop_waiting()
        if self._id is not None:
            self._streams.leave(self._id)
            self._id = None
        self._lost += len(self._tail)
        self._tail.clear()
        self._streams.kept(-self._tail_bytes)
        self._tail_bytes = 0

    # ── within ────────────────────────────────────────────────────────────────

    def _give_up(self) -> None:
        """Nobody returned: from here on it is like any other request whose client left."""
        self.forget()
        receiver, self._receiver = self._receiver, None
        if receiver is not None:
            receiver.client_left()

    def _keep(self, events: list[bytes]) -> None:
        added = sum(map(len, events))
        self._tail.extend(events)
        self._tail_bytes += added
        self._streams.kept(added)
        settings = self._settings
        while self._tail and (self._tail_bytes > settings.resume_buffer_bytes or self._streams.is_over(settings.resume_total_bytes)):
            dropped = len(self._tail.popleft())
            self._lost += 1
            self._tail_bytes -= dropped
            self._streams.kept(-dropped)

    def _wait(self, then: Callable[[], None]) -> None:
        self._stop_waiting()
        self._timer = self._loop.call_later(self._settings.resume_window_s, then)

    def _stop_waiting(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


class FirstSubscriber:
    """The connection that began a stream: implements `ports.ExchangeReceiver` and `Subscriber`."""

    __slots__ = ("_receiver", "_stream", "exchange", "paused")

    def __init__(self, stream: ResumableStream, receiver: ExchangeReceiver, exchange: Exchange) -> None:
        self.exchange = exchange
        self.paused = False
        self._stream = stream
        self._receiver = receiver

    def body_received(self, body: bytes) -> None:
        self._receiver.body_received(body)

    def body_refused(self, error: TidegateError) -> None:
        self._receiver.body_refused(error)

    def client_left(self) -> None:
        self._stream.left(self)

    def write_paused(self) -> None:
        self.paused = True
        self._stream.pause(self)

    def write_resumed(self) -> None:
        self.paused = False
        self._stream.resume(self)

    def displaced(self) -> None:
        self.exchange.abort()

    def served(self) -> None: ...
