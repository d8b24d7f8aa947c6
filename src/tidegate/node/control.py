"""What supervisor and worker say to each other, over a socket pair.

One frame is four bytes of length and a msgpack message, tagged with its kind. A message that asks carries a number, and its answer
repeats it. Frames are bounded; either side gives up on a peer that does not take or finish a frame in time. The end of the stream means
that the other process is gone. Configuration travels with its secrets, so nothing here prints a message.
"""

from __future__ import annotations

import asyncio
import socket
from typing import Generic, TypeVar

import msgspec

from tidegate.adapters.engine.settings import EngineState
from tidegate.config.schema import Configuration
from tidegate.domain.statistics import LimitLevel, WorkerStatistics
from tidegate.domain.units import Secret
from tidegate.errors import InternalError

MAX_FRAME_BYTES = 16_777_216
"""A configuration is at most a few hundred KiB; statistics of 500 routes with all their series stay below 4 MiB."""
SEND_S = 5.0
"""The peer reads on its event loop; one that does not for this long is stuck."""
BODY_S = 5.0
"""Between a frame's length and its end: both were written at once."""

_LENGTH_BYTES = 4

# ── to the worker ─────────────────────────────────────────────────────────────


class Start(msgspec.Struct, frozen=True, tag=True, kw_only=True):
    """The first message; answered by `Ready` or `StartRefused`."""

    configuration: Configuration
    index: int
    workers: int
    state_directory: str
    engine: EngineState | None
    counter_socket: str | None
    log_format: str
    ledger_socket: str | None = None
    """Where the ledger process serves; None where none is needed."""
    drained: tuple[str, ...] = ()
    """Replicas and upstreams that an operator has taken out of service."""


class EngineChanged(msgspec.Struct, frozen=True, tag=True):
    state: EngineState


class GetStatistics(msgspec.Struct, frozen=True, tag=True):
    """Answered by `StatisticsReport`."""

    request: int


class PrepareReload(msgspec.Struct, frozen=True, tag=True):
    """Make everything ready for this configuration without using it; answered by `ReloadPrepared` or `ReloadRefused`."""

    request: int
    configuration: Configuration


class CommitReload(msgspec.Struct, frozen=True, tag=True):
    """Use what was prepared; answered by `ReloadCommitted`."""

    request: int


class AbortReload(msgspec.Struct, frozen=True, tag=True):
    """Forget what was prepared."""


class DrainReplicas(msgspec.Struct, frozen=True, tag=True):
    """Keep exactly these replicas and upstreams out of service."""

    names: tuple[str, ...]


class GetLimits(msgspec.Struct, frozen=True, tag=True):
    """Answered by `LimitsReport`."""

    request: int


class Drain(msgspec.Struct, frozen=True, tag=True):
    """Finish what runs within `timeout_s`, interrupt the rest, flush, send `Drained` and exit."""

    timeout_s: float


ToWorker = Start | EngineChanged | GetStatistics | PrepareReload | CommitReload | AbortReload | DrainReplicas | GetLimits | Drain

# ── to the supervisor ─────────────────────────────────────────────────────────


class Ready(msgspec.Struct, frozen=True, tag=True):
    """Connections are accepted."""


class StartRefused(msgspec.Struct, frozen=True, tag=True):
    """The worker cannot start with this configuration, and another try would not help."""

    reason: str


class StatisticsReport(msgspec.Struct, frozen=True, tag=True):
    request: int
    statistics: WorkerStatistics


class LimitsReport(msgspec.Struct, frozen=True, tag=True):
    request: int
    levels: tuple[LimitLevel, ...]
    """The fullest first."""


class ReloadPrepared(msgspec.Struct, frozen=True, tag=True):
    request: int


class ReloadRefused(msgspec.Struct, frozen=True, tag=True):
    request: int
    reason: str


class ReloadCommitted(msgspec.Struct, frozen=True, tag=True):
    request: int


class Drained(msgspec.Struct, frozen=True, tag=True):
    """The last message: what was counted until the end, and how many requests had to be interrupted."""

    statistics: WorkerStatistics
    interrupted: int


FromWorker = Ready | StartRefused | StatisticsReport | LimitsReport | ReloadPrepared | ReloadRefused | ReloadCommitted | Drained

# ── the channel ───────────────────────────────────────────────────────────────

Incoming = TypeVar("Incoming")


class ControlError(InternalError):
    """The peer broke the protocol or does not answer; the connection is of no more use."""


class Channel(Generic[Incoming]):
    """One end of the socket pair. `receive` belongs to one task; `send` may be called from several."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, decoder: msgspec.msgpack.Decoder[Incoming]) -> None:
        self._reader = reader
        self._writer = writer
        self._decoder = decoder
        self._encoder = msgspec.msgpack.Encoder(enc_hook=_encode_secret)

    async def send(self, message: ToWorker | FromWorker) -> None:
        """Send one message; `ControlError` when the peer is gone or does not take it."""
        body = self._encoder.encode(message)
        if len(body) > MAX_FRAME_BYTES:
            raise ControlError(f"A control message of kind {type(message).__name__} has {len(body)} bytes; the limit is {MAX_FRAME_BYTES}.")
        try:
            self._writer.write(len(body).to_bytes(_LENGTH_BYTES, "big") + body)
            async with asyncio.timeout(SEND_S):
                await self._writer.drain()
        except TimeoutError as error:
            raise ControlError(f"The other process has not read its control messages for {SEND_S:.0f} s.") from error
        except (ConnectionError, RuntimeError) as error:  # RuntimeError: uvloop's word for a closed transport
            raise ControlError("The other process closed its control connection.") from error

    async def receive(self) -> Incoming | None:
        """Wait for the next message; None when the peer is gone. `ControlError` when what comes is no message."""
        try:
            length = int.from_bytes(await self._reader.readexactly(_LENGTH_BYTES), "big")
            if length > MAX_FRAME_BYTES:
                raise ControlError(f"A control frame claims {length} bytes; the limit is {MAX_FRAME_BYTES}.")
            async with asyncio.timeout(BODY_S):
                body = await self._reader.readexactly(length)
        except (asyncio.IncompleteReadError, ConnectionError):
            return None
        except TimeoutError as error:
            raise ControlError(f"A control frame was not complete after {BODY_S:.0f} s.") from error
        try:
            return self._decoder.decode(body)
        except msgspec.MsgspecError:
            raise ControlError("A control frame is not a message of this version of Tidegate.") from None  # the cause may quote a secret

    def close(self) -> None:
        self._writer.close()


async def supervisor_channel(end: socket.socket) -> Channel[FromWorker]:
    """Take over the supervisor's end of the pair."""
    reader, writer = await asyncio.open_unix_connection(sock=end)
    return Channel(reader, writer, msgspec.msgpack.Decoder(FromWorker, dec_hook=_decode_secret))


async def worker_channel(end: socket.socket) -> Channel[ToWorker]:
    """Take over the worker's end of the pair."""
    reader, writer = await asyncio.open_unix_connection(sock=end)
    return Channel(reader, writer, msgspec.msgpack.Decoder(ToWorker, dec_hook=_decode_secret))


def _encode_secret(value: object) -> str:
    if isinstance(value, Secret):
        return value.reveal()
    raise TypeError(f"{type(value).__name__} has no place in a control message")


def _decode_secret(kind: type, value: object) -> object:
    if kind is Secret and isinstance(value, str):
        return Secret(value)
    raise TypeError(f"{kind.__name__} has no place in a control message")
