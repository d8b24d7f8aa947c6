"""Counts texts in a small pool of threads, a bounded piece at a time, remembering what it counted.

Invariants: the cache is touched on the loop only; no turn of a thread takes more than one piece's worth of text, so that turns of
many callers alternate; the answer does not depend on how texts are grouped or cut, unless a cut was forced (then `exact` is False).
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import ParamSpec, TypeVar

from tidegate.adapters.counting.cache import CountCache, cache_key
from tidegate.adapters.counting.vocabulary import PIECE_CHARS, Encode, load_vocabulary, pieces

P = ParamSpec("P")
T = TypeVar("T")

THREADS = 2
"""One for a long text, one beside it for everybody else; more would take cores from the workers."""
NICENESS = 10
"""Of those threads (Linux keeps it by thread). Short texts are counted on the loop, which has the priority of the workers."""
CACHE_ENTRIES = 65_536
"""Messages of some thousand long conversations; about 13 MB."""
BATCH_TEXTS = 1_024
"""Texts per turn of a thread, however short: each costs a few microseconds besides its length."""


class TextCounter:
    """One per process; `close` ends its threads."""

    def __init__(self, *, load: Callable[[str], Encode] = load_vocabulary) -> None:
        self._load = load
        self._encoders: dict[str, Encode] = {}
        self._loading = asyncio.Lock()
        self._pool = ThreadPoolExecutor(THREADS, thread_name_prefix="count", initializer=_step_back)
        self._cache = CountCache(CACHE_ENTRIES)

    def close(self) -> None:
        self._pool.shutdown(wait=False, cancel_futures=True)

    def loaded(self, vocabulary: str) -> Encode | None:
        """Give the vocabulary's encoder if it is in memory."""
        return self._encoders.get(vocabulary)

    async def load(self, vocabulary: str) -> Encode:
        """Load it once, whoever asks first; raise `VocabularyMissingError`."""
        async with self._loading:
            if vocabulary not in self._encoders:
                self._encoders[vocabulary] = await self.in_thread(self._load, vocabulary)
            return self._encoders[vocabulary]

    async def counts(self, vocabulary: str, texts: Sequence[str]) -> tuple[list[int], bool]:
        """Count each text; tell whether all figures are exact."""
        encode = await self.load(vocabulary)
        counts: list[int] = []
        exact = True
        for batch in _batches(texts):
            keys = await self.in_thread(_keys, vocabulary, batch)
            known = [self._cache.get(key) for key in keys]
            unknown = [text for text, count in zip(batch, known, strict=True) if count is None]
            if len(batch) == 1 and len(unknown) == 1:
                fresh, safe = await self._count_long(encode, unknown[0])
            elif unknown:
                fresh, safe = await self.in_thread(_lengths, encode, unknown), True
            else:
                fresh, safe = [], True
            exact &= safe
            supply = iter(fresh)
            for key, count in zip(keys, known, strict=True):
                figure = count if count is not None else next(supply)
                counts.append(figure)
                if count is None and safe:
                    self._cache.put(key, figure)
        return counts, exact

    async def ids(self, vocabulary: str, texts: Sequence[str]) -> tuple[list[list[int]], bool]:
        """Give the token ids of each text; tell whether all are exact."""
        encode = await self.load(vocabulary)
        exact = True
        ids: list[list[int]] = []
        for text in texts:
            of_text: list[int] = []
            for piece, safe in pieces(text):
                of_text += await self.in_thread(encode, piece)
                exact &= safe
            ids.append(of_text)
        return ids, exact

    async def _count_long(self, encode: Encode, text: str) -> tuple[list[int], bool]:
        count = 0
        exact = True
        for piece, safe in pieces(text):
            [length] = await self.in_thread(_lengths, encode, [piece])
            count += length
            exact &= safe
        return [count], exact

    async def in_thread(self, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run one short piece of work in the pool."""
        return await asyncio.get_running_loop().run_in_executor(self._pool, lambda: call(*args, **kwargs))


def _step_back() -> None:
    """Let this thread go after everything else on the machine: whoever waits for a long count waits for a second anyway."""
    with contextlib.suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), NICENESS)


def _batches(texts: Sequence[str]) -> Iterator[list[str]]:
    """Group neighbours up to a piece's size; a longer text stands alone."""
    batch: list[str] = []
    chars = 0
    for text in texts:
        if batch and (chars + len(text) > PIECE_CHARS or len(batch) >= BATCH_TEXTS):
            yield batch
            batch, chars = [], 0
        batch.append(text)
        chars += len(text)
    if batch:
        yield batch


def _keys(vocabulary: str, texts: list[str]) -> list[bytes]:
    return [cache_key(vocabulary, text) for text in texts]


def _lengths(encode: Encode, texts: list[str]) -> list[int]:
    return [len(encode(text)) for text in texts]
