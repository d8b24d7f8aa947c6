"""Where questions arrive in the recorder process: frames of the kind `query`, answered by one thread with a connection of its own.

Questions wait for each other, so that they share neither cores nor memory; those that would wait for long are told to come again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final

import msgspec

from tidegate.analytics.asking import AnalyticsStore, QueryAnswer, QueryRequest
from tidegate.errors import StoreError

QUERY: Final = "query"
"""The kind of frames that bring a `QueryRequest`; the answer is a `QueryAnswer`."""
STATUS: Final = "status"
"""The kind of frames that ask how the feed is; the answer is its `FeedStatistics`."""
MAX_WAITING: Final = 16
"""Questions that wait: some people with a console each. More would wait longer than people do."""

_decode = msgspec.msgpack.Decoder(QueryRequest).decode
_encode = msgspec.msgpack.Encoder().encode


class QueryDesk:
    """Answers frames of the kind `query` on one loop. The store is opened at the first question, and again after one that failed to."""

    def __init__(self, open_store: Callable[[], AnalyticsStore]) -> None:
        self._open_store = open_store
        self._store: AnalyticsStore | None = None
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="questions")
        self._waiting = 0

    def __repr__(self) -> str:
        return f"QueryDesk(waiting={self._waiting})"

    async def answer(self, payload: bytes) -> bytes:
        if self._waiting >= MAX_WAITING:
            return _encode(QueryAnswer(error=f"{MAX_WAITING} questions are waiting already. Ask again in some seconds."))
        try:
            request = _decode(payload)
        except msgspec.MsgspecError as error:
            return _encode(QueryAnswer(error=f"The question cannot be read ({error})."))
        self._waiting += 1
        try:
            return _encode(await asyncio.get_running_loop().run_in_executor(self._thread, self._ask, request))
        finally:
            self._waiting -= 1

    def close(self) -> None:
        """Stop; a question that is being answered is waited for, which its deadline bounds."""
        self._thread.shutdown(cancel_futures=True)
        if self._store is not None:
            self._store.close()

    def _ask(self, request: QueryRequest) -> QueryAnswer:
        try:
            store = self._store = self._store or self._open_store()
        except StoreError as error:
            return QueryAnswer(error=error.message)
        return store.query(request)
