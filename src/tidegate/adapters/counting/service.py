"""`ports.TokenCounter`: which tokenizer a model has, what is counted where, and what is said when nobody can count.

Small bodies are parsed here and only messages not seen before are sent away; large ones are sent away whole. Invariants: never more
than `INLINE_BODY_BYTES` are parsed on the loop; a count always comes, if need be from the size alone, and says by `tokenizer` and
`exact` how good it is; no HTTP client is known here, the engine is asked through `EngineFetch`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Protocol

import msgspec

from tidegate.adapters.counting.cache import CountCache, cache_key
from tidegate.adapters.counting.client import CountFailed, FailureReason, TextCounts
from tidegate.adapters.counting.prompt import Rendered, render
from tidegate.domain.request import Operation, ParsedRequest
from tidegate.domain.units import ModelName
from tidegate.ports import TokenCount

QWEN = "qwen3.6"
ENGINE = "engine"
FALLBACK_QWEN = f"fallback:{QWEN}"
FALLBACK_BYTES = "fallback:bytes"
INLINE_BODY_BYTES = 65_536
"""Parsed, rendered and hashed here in about 0.3 ms; a larger body would be felt by the streams of this worker."""
CACHE_ENTRIES = 16_384
"""Messages remembered per worker, about 3 MB; the counting process remembers four times as many for all workers."""
BYTES_PER_TOKEN = 4
"""English prose is close to it; other text has fewer, so this is a low guess and never used where a bound is needed."""
ENGINE_COUNTS = {
    Operation.CHAT: "/v1/chat/completions/input_tokens",
    Operation.COUNT_MESSAGES: "/v1/messages/count_tokens",
    Operation.COUNT_RESPONSES: "/v1/responses/input_tokens",
}
"""Where the engine counts a conversation by its own template, each in the shape it came in."""
MAX_ENGINE_PROMPTS = 64
"""Prompts of one batch asked one by one; longer batches are estimated."""

EngineFetch = Callable[[str, bytes, float], Awaitable[tuple[int, bytes]]]
"""POST a JSON body to an absolute path of the engine within a deadline in seconds; give status and answer.

Raises `OSError` (`TimeoutError` is one) when no answer comes."""


class TextCounter(Protocol):
    """Who has the vocabulary; see `client.ProcessTokenCounter`."""

    async def count_texts(
        self, vocabulary: str, texts: tuple[str, ...], *, deadline_s: float, want_ids: bool = False
    ) -> TextCounts | CountFailed: ...
    async def count_body(
        self, vocabulary: str, operation: Operation, body: bytes, *, deadline_s: float, want_ids: bool = False
    ) -> TextCounts | CountFailed: ...


class CountStatistics(msgspec.Struct, frozen=True):
    """Totals since the start; `fallbacks` by reason."""

    counts: int
    cache_entries: int
    cache_hits: int
    cache_misses: int
    fallbacks: dict[str, int]


class _InputTokens(msgspec.Struct):
    input_tokens: int


class _Tokens(msgspec.Struct):
    tokens: tuple[int, ...]


class _Applied(msgspec.Struct):
    prompt: str


class TokenCountService:
    """Counts for one worker. `tokenizer_of` gives an upstream's `tokenizer` setting for a model name (a dict's `.get` will do)."""

    def __init__(
        self, *, tokenizer_of: Callable[[ModelName], str | None], counter: TextCounter | None, engine: EngineFetch | None = None
    ) -> None:
        self._tokenizer_of = tokenizer_of
        self._counter = counter
        self._engine = engine
        self._cache = CountCache(CACHE_ENTRIES)
        self._counts = 0
        self._fallbacks: dict[str, int] = {}

    def statistics(self) -> CountStatistics:
        return CountStatistics(self._counts, len(self._cache), self._cache.hits, self._cache.misses, dict(self._fallbacks))

    async def count(self, request: ParsedRequest, *, deadline_s: float) -> TokenCount:
        """Count a request's prompt. Raises only `InvalidParameter`, for a `/tokenize` request with nothing to tokenize."""
        self._counts += 1
        ends_at = asyncio.get_running_loop().time() + deadline_s
        tokenizer = self._tokenizer_of(request.model)
        if tokenizer == ENGINE and self._engine is not None:
            counted = await self._by_engine(self._engine, request, ends_at)
            if counted is not None:
                return counted
            self._note("engine")
        elif tokenizer != QWEN:
            self._note("unknown_model")
        answer = await self._by_qwen(request, ends_at)
        if isinstance(answer, CountFailed):
            self._note(answer.reason)
            return _guess(request)
        known = tokenizer == QWEN
        return TokenCount(
            sum(answer.counts), QWEN if known else FALLBACK_QWEN, exact=known and answer.exact, tokens=answer.ids if known else None
        )

    def _note(self, reason: str) -> None:
        self._fallbacks[reason] = self._fallbacks.get(reason, 0) + 1

    async def _by_qwen(self, request: ParsedRequest, ends_at: float) -> TextCounts | CountFailed:
        if self._counter is None:
            return CountFailed(FailureReason.UNAVAILABLE, "no counting process is configured")
        want_ids = request.operation is Operation.TOKENIZE
        if len(request.body) > INLINE_BODY_BYTES:
            return await self._counter.count_body(QWEN, request.operation, request.body, deadline_s=_left(ends_at), want_ids=want_ids)
        rendered = render(request.operation, request.body)
        if rendered is None:
            return CountFailed(FailureReason.REFUSED, "the request body has a shape that cannot be counted")
        if want_ids and not rendered.extra_tokens:
            answer = await self._counter.count_texts(QWEN, rendered.texts, deadline_s=_left(ends_at), want_ids=True)
            return answer if isinstance(answer, CountFailed) else msgspec.structs.replace(answer, exact=answer.exact and rendered.exact)
        return await self._with_cache(self._counter, rendered, ends_at)

    async def _with_cache(self, counter: TextCounter, rendered: Rendered, ends_at: float) -> TextCounts | CountFailed:
        """Send only what was not counted before."""
        keys = [cache_key(QWEN, text) for text in rendered.texts]
        known = [self._cache.get(key) for key in keys]
        total = rendered.extra_tokens + sum(count for count in known if count is not None)
        unknown = [(key, text) for key, text, count in zip(keys, rendered.texts, known, strict=True) if count is None]
        exact = rendered.exact
        if unknown:
            answer = await counter.count_texts(QWEN, tuple(text for _, text in unknown), deadline_s=_left(ends_at))
            if isinstance(answer, CountFailed):
                return answer
            if answer.exact:
                for (key, _), count in zip(unknown, answer.counts, strict=True):
                    self._cache.put(key, count)
            total += sum(answer.counts)
            exact = exact and answer.exact
        return TextCounts((total,), exact)

    async def _by_engine(self, fetch: EngineFetch, request: ParsedRequest, ends_at: float) -> TokenCount | None:
        """Ask the model's own server; None when it cannot tell."""
        try:
            path = ENGINE_COUNTS.get(request.operation)
            if path is not None:
                return await self._chat_by_engine(fetch, path, request.body, ends_at)
            if len(request.body) > INLINE_BODY_BYTES:
                return None
            return await _plain_by_engine(fetch, request, ends_at)
        except (OSError, msgspec.MsgspecError):
            return None

    async def _chat_by_engine(self, fetch: EngineFetch, path: str, body: bytes, ends_at: float) -> TokenCount | None:
        key = cache_key(f"{ENGINE}{path}", body.decode("utf-8", "replace")) if len(body) <= INLINE_BODY_BYTES else None
        count = self._cache.get(key) if key is not None else None
        if count is None:
            status, answer = await fetch(path, body, _left(ends_at))
            if status != 200:  # noqa: PLR2004  HTTP's OK
                return None
            count = msgspec.json.decode(answer, type=_InputTokens).input_tokens
            if key is not None:
                self._cache.put(key, count)
        return TokenCount(count, ENGINE, exact=True)


async def _plain_by_engine(fetch: EngineFetch, request: ParsedRequest, ends_at: float) -> TokenCount | None:
    """Count prompts with `/tokenize`; a conversation is rendered by the engine first."""
    rendered = render(request.operation, request.body)
    if rendered is None or len(rendered.texts) > MAX_ENGINE_PROMPTS:
        return None
    texts = rendered.texts
    if request.operation is Operation.TOKENIZE and b'"messages"' in request.body:
        status, answer = await fetch("/apply-template", request.body, _left(ends_at))
        if status != 200:  # noqa: PLR2004  HTTP's OK
            return None
        texts = (msgspec.json.decode(answer, type=_Applied).prompt,)
        rendered = Rendered(texts)
    ids: list[int] = []
    for text in texts:
        question = msgspec.json.encode({"content": text, "add_special": True, "parse_special": True})
        status, answer = await fetch("/tokenize", question, _left(ends_at))
        if status != 200:  # noqa: PLR2004  HTTP's OK
            return None
        ids += msgspec.json.decode(answer, type=_Tokens).tokens
    tokens = tuple(ids) if request.operation is Operation.TOKENIZE and not rendered.extra_tokens else None
    return TokenCount(len(ids) + rendered.extra_tokens, ENGINE, exact=True, tokens=tokens)


def _guess(request: ParsedRequest) -> TokenCount:
    size = request.prompt_tokens_bound or len(request.body)
    return TokenCount(max(1, size // BYTES_PER_TOKEN), FALLBACK_BYTES, exact=False, counted=False)


def _left(ends_at: float) -> float:
    return max(0.0, ends_at - asyncio.get_running_loop().time())
