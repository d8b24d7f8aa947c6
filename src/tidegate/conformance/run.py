"""Run the matrix against a gateway whose upstream is `tidegate mock`.

Every case has a prompt of its own, so that the upstream's in-turn scripts and any cache see each for the first time. Cases that close the
upstream's port, and those in which the client leaves, run alone; the others a few at a time.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Callable, Iterable
from urllib.parse import SplitResult, urlsplit

import msgspec

from tidegate.conformance.cases import Case
from tidegate.conformance.expect import Way
from tidegate.conformance.observe import End, Target, ask

AT_ONCE = 6
"""Cases running together: enough to overlap their waits, few enough to leave the gateway calm."""
_LEAVE_WITHIN_S = 0.25
_LOOK_S = 0.05
_TELL_S = 5.0
_AFTER_REFUSAL_S = 1.2  # the scripted upstream's port stays closed for a second
_AFTER_RATE_LIMIT_S = 1.5
PATHS = {
    Way.CHAT: "/chat/completions",
    Way.CHAT_STREAM: "/chat/completions",
    Way.COMPLETION: "/completions",
    Way.COMPLETION_STREAM: "/completions",
    Way.EMBEDDING: "/embeddings",
}
"""Below the version: `/v1`."""


class Result(msgspec.Struct, frozen=True):
    """How a case went in one way of asking; `complaint` None: as it should."""

    case: str
    kind: str
    way: str
    right: str
    complaint: str | None
    took_s: float


class Settings(msgspec.Struct, frozen=True):
    """What to run against. `model` may hold `{case}`: then each case has a model name of its own."""

    target: Target
    model: str = "scripted"
    mock_url: str | None = None
    """The scripted upstream's address, for what only it can see (a client that left); None leaves those cases out."""
    patience_s: float = 30.0
    """Longest wait for any answer."""
    round: str = "0"
    """Makes prompts unlike those of other runs."""


def is_left_out(case: Case, mock_url: str | None) -> bool:
    """Tell whether a case cannot be run, since only the scripted upstream could judge it."""
    return case.leaves_after_s is not None and mock_url is None


async def run_cases(cases: Iterable[Case], settings: Settings, *, told: Callable[[Result], None]) -> list[Result]:
    """Run cases; `told` hears of each result as it comes."""
    gate = asyncio.Semaphore(AT_ONCE)
    together: list[tuple[Case, Way]] = []
    alone: list[tuple[Case, Way]] = []
    for case in cases:
        if is_left_out(case, settings.mock_url):
            continue
        apart = (
            case.play == "refuse" or case.leaves_after_s is not None or (case.name.startswith("429-") and "{case}" not in settings.model)
        )
        (alone if apart else together).extend((case, way) for way in case.ways)
    results: list[Result] = []

    async def one(case: Case, way: Way) -> None:
        async with gate:
            result = await _run(case, way, settings)
        results.append(result)
        told(result)

    await asyncio.gather(*(one(case, way) for case, way in together))
    for case, way in alone:
        await one(case, way)
        if case.play == "refuse":
            await asyncio.sleep(_AFTER_REFUSAL_S)
        elif case.name.startswith("429-"):
            await asyncio.sleep(_AFTER_RATE_LIMIT_S)
    return results


async def _run(case: Case, way: Way, settings: Settings) -> Result:
    loop = asyncio.get_running_loop()
    begun = loop.time()
    try:
        complaint = await (_leave(case, way, settings) if case.leaves_after_s is not None else _ask(case, way, settings))
    except _Unheard as problem:
        complaint = str(problem)
    return Result(case.name, case.kind, way, case.right, complaint, loop.time() - begun)


async def _ask(case: Case, way: Way, settings: Settings) -> str | None:
    seen = await ask(settings.target, PATHS[way], body_of(case, way, settings), deadline_s=settings.patience_s)
    if seen.end is End.SILENT:
        return f"nothing more came within {settings.patience_s:g} s: {seen}"
    return case.expect(seen, way)


async def _leave(case: Case, way: Way, settings: Settings) -> str | None:
    """Leave, then ask the upstream when it saw that."""
    assert case.leaves_after_s is not None
    assert settings.mock_url is not None
    before = max((int(str(entry["number"])) for entry in await _received(settings.mock_url)), default=0)
    body = body_of(case, way, settings)
    await ask(settings.target, PATHS[way], body, deadline_s=settings.patience_s, leave_after_s=case.leaves_after_s)
    until = asyncio.get_running_loop().time() + _LEAVE_WITHIN_S * 4
    calls: list[dict[str, object]] = []
    while asyncio.get_running_loop().time() < until:
        calls = [entry for entry in await _received(settings.mock_url) if int(str(entry["number"])) > before and entry["method"] == "POST"]
        if calls and all(entry["client_left_after_s"] is not None for entry in calls):
            break
        await asyncio.sleep(_LOOK_S)
    if not calls:
        return "the upstream was not called"
    for call in calls:
        left = call["client_left_after_s"]
        if not isinstance(left, float):
            return "the upstream never saw the client leave: it goes on generating"
        if left > case.leaves_after_s + _LEAVE_WITHIN_S:
            return f"the upstream saw the client leave {left - case.leaves_after_s:.2f} s late"
    return None


class _Unheard(Exception):
    """The scripted upstream did not tell what it received."""


async def _received(mock_url: str) -> list[dict[str, object]]:
    """Ask the scripted upstream what it received; raises `_Unheard`."""
    try:
        answer = await _fetch(urlsplit(mock_url))
    except OSError as problem:
        raise _Unheard(f"the scripted upstream at {mock_url} cannot be asked what it saw, is it running? {problem!r}") from None
    try:
        content: dict[str, list[dict[str, object]]] = json.loads(answer.partition(b"\r\n\r\n")[2])
        return content["requests"]
    except (ValueError, KeyError, TypeError):
        raise _Unheard(f"what answers at {mock_url} is no `tidegate mock`: {answer[:200]!r}") from None


async def _fetch(mock: SplitResult) -> bytes:
    writer: asyncio.StreamWriter | None = None
    try:
        async with asyncio.timeout(_TELL_S):
            reader, writer = await asyncio.open_connection(mock.hostname, mock.port or 80)
            writer.write(f"GET /mock/requests HTTP/1.1\r\nhost: {mock.netloc}\r\nconnection: close\r\n\r\n".encode())
            return await reader.read(-1)
    finally:
        if writer is not None:
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()


def body_of(case: Case, way: Way, settings: Settings) -> bytes:
    """Make the request body of a case."""
    model = settings.model.replace("{case}", case.name)
    return request_body(way, model, f"case {case.name} {way} {settings.round} [[mock:{case.play}]]", asks_usage=case.asks_usage)


def request_body(way: Way, model: str, text: str, *, asks_usage: bool = False) -> bytes:
    """Make the body of a request that says this; `asks_usage` counts for streams, the others have it anyway."""
    body: dict[str, object] = {"model": model}
    if way is Way.EMBEDDING:
        body["input"] = text
    elif way in (Way.COMPLETION, Way.COMPLETION_STREAM):
        body["prompt"] = text
    else:
        body["messages"] = [{"role": "user", "content": text}]
    if way.is_stream:
        body["stream"] = True
        if asks_usage:
            body["stream_options"] = {"include_usage": True}
    return json.dumps(body, ensure_ascii=False).encode()
