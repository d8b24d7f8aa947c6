"""Judges what an upstream answered: a wrong key, an address without its version, another kind of server, models that it does not have.

Two questions are looked at: for the list of models, and (where people allow it) for one token. Sources: the vendors' pages and servers of
2026-08 to 2026-11; `wire.dialects` says how they differ.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from difflib import get_close_matches
from typing import Final
from urllib.parse import urlsplit

import msgspec

from tidegate.doctor.finding import Check, bad, ok, warning
from tidegate.doctor.phrases import joined, say

SLOW_S: Final = 2.0
"""For a list of models, or for one token of a model that is warm."""
COUNT_ERROR: Final = 0.05
"""Share by which a count may miss the upstream's before limits and budgets are visibly wrong."""
COUNT_SLACK_TOKENS: Final = 3
"""Servers add a few of their own."""
_PAGE_CHARS: Final = 80
_VERSION: Final = re.compile(r"/v\d+(?:beta)?$")
_FINE: Final = 200
_BUSY: Final = 429
_SHOWN: Final = 5
_UNAUTHORIZED: Final = frozenset({401, 403})
_NOWHERE: Final = frozenset({404, 405})


class Address(msgspec.Struct, frozen=True, kw_only=True):
    """One replica as it is configured."""

    name: str
    base_url: str
    dialect: str
    has_key: bool
    models: tuple[str, ...] = ()
    """Configured names, patterns left out."""


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """What came back; `failure` where nothing did. `headers` have lower-case names."""

    status: int = 0
    headers: Mapping[str, str] = {}
    body: bytes = b""
    took_s: float = 0.0
    failure: str = ""


class Model(msgspec.Struct, frozen=True):
    """An entry of a list of models. OpenRouter's have prices."""

    id: str = ""
    owned_by: str | None = None
    pricing: msgspec.Raw | None = None


class _Models(msgspec.Struct, frozen=True):
    data: tuple[Model, ...]


class _Counts(msgspec.Struct, frozen=True):
    prompt_tokens: int = 0
    completion_tokens: int = 0


class _Completion(msgspec.Struct, frozen=True):
    choices: tuple[msgspec.Raw, ...]
    usage: _Counts | None = None


def models_of(answer: Answer) -> tuple[Model, ...] | None:
    """Read a list of models; None when it is none."""
    try:
        return msgspec.json.decode(answer.body, type=_Models).data if answer.status == _FINE else None
    except msgspec.MsgspecError:
        return None


def is_worth_a_version(address: Address, answer: Answer) -> bool:
    """Say whether the same question should be asked once more, below `/v1`."""
    return not answer.failure and models_of(answer) is None and not _VERSION.search(address.base_url)


def reached(address: Address, answer: Answer, *, below_v1: Answer | None = None) -> list[Check]:
    """Judge the list of models. `below_v1`: the answer to the same question with `/v1` added to the address, where it was asked."""
    command = _curl(address, "models")
    name = f"upstream {address.name}"
    if answer.failure:
        fix = "See whether that server runs, and whether base_url, a proxy or a firewall is in the way."
        return [bad(name, say("{who} gave no answer: {why}", who=address.base_url, why=answer.failure), fix, command)]
    if below_v1 is not None and (models_of(below_v1) is not None or below_v1.status in _UNAUTHORIZED):
        url = f"{address.base_url.rstrip('/')}/v1"
        told = say("base_url {base_url} lacks its version: the models are at {url}.", base_url=address.base_url, url=url)
        return [bad(name, told, f"base_url: {url}", command)]
    if answer.status in _UNAUTHORIZED:
        return [_wrong_key(name, address, answer, command)]
    models = models_of(answer)
    if models is None:
        return [_no_list(name, address, answer, command)]
    found = [*_dialect(name, address, answer, models, command), *_missing(name, address, models, command)]
    took = answer.took_s * 1000
    if answer.took_s > SLOW_S:
        found.append(
            warning(
                name,
                say("It answered in {took:.0f} ms.", took=took),
                "See whether it is overloaded, far away, or behind a slow proxy.",
                command,
            )
        )
    told = say("{base_url} answered in {took:.0f} ms, {n} models.", base_url=address.base_url, took=took, n=len(models))
    return found or [ok(name, told)]


def _wrong_key(name: str, address: Address, answer: Answer, command: str) -> Check:
    if not address.has_key:
        told = say("It wants a key ({status}), and none is configured.", status=answer.status)
        return bad(name, told, say("Set {setting}.api_key.", setting=_setting(address)), command)
    fix = say(
        "Correct {setting}.api_key: it is wrong, expired, of another provider or region, or may not do this.", setting=_setting(address)
    )
    return bad(name, say("It refuses the configured key ({status}): {said}", status=answer.status, said=_said(answer)), fix, command)


def _no_list(name: str, address: Address, answer: Answer, command: str) -> Check:
    if answer.status in _NOWHERE:
        fix = "Where that server has no list of models, ask for a token instead: tidegate doctor --ask. Else correct base_url."
        told = say("There is no list of models at {base_url} ({status}).", base_url=address.base_url, status=answer.status)
        return warning(name, told, fix, command)
    if answer.status == _FINE:
        fix = "Correct base_url: it leads to a web page, a proxy's greeting, or an API of another kind."
        told = say("{base_url} is no OpenAI-compatible API: it answered {said}", base_url=address.base_url, said=_said(answer))
        return bad(name, told, fix, command)
    fix = "Wait, or see that provider's status page." if answer.status == _BUSY else "Look at that server's log."
    return bad(name, say("It answered with {status}: {said}", status=answer.status, said=_said(answer)), fix, command)


def _dialect(name: str, address: Address, answer: Answer, models: Sequence[Model], command: str) -> Iterator[Check]:
    seems = dialect_of(address.base_url, answer.headers, models)
    if seems is not None and seems != address.dialect:
        fix = say("{setting}.dialect: {seems} (usage, limits and errors are read by it)", setting=_setting(address), seems=seems)
        told = say("It is configured as {dialect}, and looks like {seems}.", dialect=address.dialect, seems=seems)
        yield warning(name, told, fix, command)


def _missing(name: str, address: Address, models: Sequence[Model], command: str) -> Iterator[Check]:
    listed = [model.id for model in models]
    for wanted in address.models:
        if listed and wanted not in listed:
            near = get_close_matches(wanted, listed, n=1)
            meant = say("Did you mean {name}?", name=near[0]) if near else say("It has {names}.", names=", ".join(listed[:_SHOWN]))
            told = joined(" ", (say("It does not list the model {wanted}.", wanted=wanted), meant))
            yield warning(name, told, say("Correct {setting}.models.", setting=_setting(address)), command)


def dialect_of(base_url: str, headers: Mapping[str, str], models: Sequence[Model]) -> str | None:
    """Tell whose server it is, by what only that one says; None where nothing tells."""
    host = urlsplit(base_url).hostname or ""
    owners = {model.owned_by for model in models}
    if "llamacpp" in owners or headers.get("server", "").startswith("llama.cpp"):
        return "llamacpp"
    if "vllm" in owners:
        return "vllm"
    if host.endswith("openrouter.ai") or any(model.pricing is not None for model in models):
        return "openrouter"
    return "dashscope" if host.startswith("dashscope") and host.endswith("aliyuncs.com") else None


def asked(address: Address, model: str, answer: Answer, *, counted: int | None = None) -> list[Check]:
    """Judge the answer to a request for one token. `counted`: our own count of its prompt, where there is a tokenizer for it."""
    name, command = f"ask {address.name}", _curl(address, "chat/completions", model)
    if answer.failure:
        return [
            bad(name, say("{who} gave no answer: {why}", who=model, why=answer.failure), "Look at that server's log and load.", command)
        ]
    if answer.status in _UNAUTHORIZED:
        return [_wrong_key(name, address, answer, command)]
    if answer.status != _FINE:
        fixes = {
            404: say("Correct the model's name, or base_url ({base_url}).", base_url=address.base_url),
            _BUSY: "It is that account's limit or balance: see there.",
        }
        told = say("{model} was answered with {status}: {said}", model=model, status=answer.status, said=_said(answer))
        return [bad(name, told, fixes.get(answer.status, "See what it says; perhaps the dialect is another one."), command)]
    try:
        completion = msgspec.json.decode(answer.body, type=_Completion)
    except msgspec.MsgspecError:
        told = say("{model} answered in a shape that is not OpenAI's: {said}", model=model, said=_said(answer))
        return [bad(name, told, "Correct base_url: it leads to an API of another kind.", command)]
    if completion.usage is None or completion.usage.prompt_tokens == 0:
        fix = "Tokens are estimated instead. Let the server report usage, or set a tokenizer."
        return [warning(name, say("{model} answers, and reports no usage.", model=model), fix, command)]
    found = list(_counts(name, address, counted, completion.usage.prompt_tokens))
    if answer.took_s > SLOW_S:
        told = say("{model} took {took_s:.1f} s for one token.", model=model, took_s=answer.took_s)
        fix = 'It may have been cold: ask again. If not: tidegate doctor --symptom "everything is slow"'
        found.append(warning(name, told, fix, command))
    well = "{model} answered in {took:.0f} ms and reports usage."
    if counted is not None:
        well = "{model} answered in {took:.0f} ms and reports usage, which our count matches."
    return found or [ok(name, say(well, model=model, took=answer.took_s * 1000))]


def _counts(name: str, address: Address, counted: int | None, reported: int) -> Iterator[Check]:
    if counted is not None and abs(counted - reported) > max(COUNT_SLACK_TOKENS, COUNT_ERROR * reported):
        error = counted / reported - 1
        told = say(
            "We count {counted} prompt tokens where it reports {reported}: {error:+.0%}.", counted=counted, reported=reported, error=error
        )
        fix = say(
            "Its models use another vocabulary or template than {setting}.tokenizer says: correct it, or leave it out; limits then go by "
            "estimates that are corrected by usage.",
            setting=_setting(address),
        )
        yield warning(name, told, fix, 'tidegate doctor --symptom "wrong token counts"')


def _said(answer: Answer) -> str:
    """Quote the beginning of a body, on one line."""
    text = " ".join(answer.body[: _PAGE_CHARS * 4].decode(errors="replace").split())
    return repr(text[:_PAGE_CHARS] + "…" if len(text) > _PAGE_CHARS else text) if text else say("nothing")


def _setting(address: Address) -> str:
    return f"upstreams.{address.name.partition('/')[0]}"


def _curl(address: Address, path: str, model: str = "") -> str:
    key = ' -H "authorization: Bearer $KEY"' if address.has_key else ""
    if model:
        body = f'{{"model": "{model}", "max_tokens": 1, "messages": [{{"role": "user", "content": "hi"}}]}}'
        key += f""" -H "content-type: application/json" -d '{body}'"""
    return f"curl -sS {address.base_url.rstrip('/')}/{path}{key}"
