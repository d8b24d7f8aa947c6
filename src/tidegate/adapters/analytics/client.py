"""Asks the records: the recorder process where one runs, else the store itself.

chDB belongs to one process at a time. While a gateway runs that is its recorder process. It answers on a Unix socket, and has written down
in its directory where that is.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Final, TypeVar

import msgspec

from tidegate.adapters.analytics.desk import QUERY, STATUS
from tidegate.adapters.analytics.feed import FeedStatistics
from tidegate.adapters.analytics.opening import StoreSettings, open_store, store_settings
from tidegate.adapters.frame_client import ask
from tidegate.adapters.samplers.plan import SAMPLING, SamplingPlan, SamplingStatistics
from tidegate.analytics.asking import AnalyticsStore, Asker, QueryAnswer, QueryRequest
from tidegate.analytics.span_figures import SPANS, SpanStatistics
from tidegate.config.schema import Configuration
from tidegate.errors import StoreError

GRACE_S: Final = 5.0
"""Beyond a question's own deadline: others may be answered before it, and the answer has to come here."""
STATUS_S: Final = 1.0
SOCKET_FILE: Final = "recorder.path"
"""In the directory of the tables: the path of the socket, which is elsewhere where that would be too long a path for one."""
Answer = TypeVar("Answer")
_encode = msgspec.msgpack.Encoder().encode
_decode_answer = msgspec.msgpack.Decoder(QueryAnswer).decode
_decode_spans = msgspec.msgpack.Decoder(SpanStatistics).decode
_decode_sampling = msgspec.msgpack.Decoder(SamplingStatistics).decode
_decode_status = msgspec.msgpack.Decoder(FeedStatistics).decode


class RecorderAsker:
    """An `Asker` that asks the recorder process; `StoreError` when it does not answer, `ConnectionError` or such when there is none."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __repr__(self) -> str:
        return f"RecorderAsker({str(self._path)!r})"

    async def ask(self, request: QueryRequest) -> QueryAnswer:
        return await self._exchange(QUERY, _encode(request), _decode_answer, deadline_s=request.deadline_s + GRACE_S)

    async def status(self) -> FeedStatistics:
        """Ask how records get into the store."""
        return await self._exchange(STATUS, b"", _decode_status, deadline_s=STATUS_S)

    async def span_status(self) -> SpanStatistics:
        """Ask how spans get to the collector."""
        return await self._exchange(SPANS, b"", _decode_spans, deadline_s=STATUS_S)

    async def sample(self, plan: SamplingPlan) -> SamplingStatistics:
        """Say what is to be sampled from now on, and learn how its sources are."""
        return await self._exchange(SAMPLING, _encode(plan), _decode_sampling, deadline_s=STATUS_S)

    async def _exchange(self, kind: str, payload: bytes, decode: Callable[[bytes], Answer], *, deadline_s: float) -> Answer:
        try:
            answer = await ask(self._path, kind, payload, deadline_s=deadline_s)
            if answer is not None:
                return decode(answer)
        except TimeoutError:
            raise StoreError(f"The recorder process did not answer within {deadline_s:g} s.") from None
        except (ConnectionResetError, BrokenPipeError, ValueError) as error:
            raise StoreError(f"The recorder process cannot be asked ({error}).") from error
        raise StoreError("The recorder process ended before it answered.")


class NearestAsker:
    """An `Asker` that asks the recorder process of a state directory, and where there is none the store, which it then opens itself."""

    def __init__(self, settings: StoreSettings) -> None:
        self._settings = settings
        self._store: AnalyticsStore | None = None

    def __repr__(self) -> str:
        return f"NearestAsker({self._settings.directory!r})"

    async def ask(self, request: QueryRequest) -> QueryAnswer:
        """Ask; `StoreError` when there is nobody to be asked."""
        if self._store is None:
            try:
                path = (Path(self._settings.directory) / SOCKET_FILE).read_text()
                return await RecorderAsker(Path(path)).ask(request)
            except (OSError, ValueError):
                pass  # no gateway runs here, or it has no recorder process, or what it wrote down is no path
        return await asyncio.to_thread(self._ask, request)

    def _ask(self, request: QueryRequest) -> QueryAnswer:
        store = self._store = self._store or open_store(self._settings, is_read_only=True)
        return store.query(request)


def open_asker(configuration: Configuration, state_directory: Path) -> Asker:
    """Give whom to ask about the records of a gateway, whether it runs or not."""
    return NearestAsker(store_settings(configuration, state_directory))
