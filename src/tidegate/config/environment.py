"""What the environment and the defaults add to a file: hosted upstreams by their usual key variables, and routes where none are written.

A key in the environment enables a provider only if the file does not configure that provider itself. `OPENAI_BASE_URL` is never used as an
address, since applications set it to reach Tidegate; when it points away from OpenAI, the key beside it is not OpenAI's and is left alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from fnmatch import fnmatchcase
from urllib.parse import urlsplit

import msgspec

from tidegate.config.schema import Configuration, DialectName, UpstreamSection
from tidegate.config.schema_routing import RouteSection, TargetSection
from tidegate.domain.units import Secret

LOCAL = "local"
"""The local engine's name as an upstream."""

_WILDCARDS = frozenset("*?[")
_OPENAI_HOST = "api.openai.com"


class Hosted(msgspec.Struct, frozen=True):
    """A provider that a key in the environment is enough to enable."""

    name: str
    dialect: DialectName
    key_variable: str
    base_url: str
    models: tuple[str, ...]
    """Well-known names, for `/v1/models`."""
    patterns: tuple[str, ...]
    """What is routed to it when the file has no routes."""
    base_url_variable: str | None = None
    """The variable that replaces the address."""
    foreign_url_variable: str | None = None
    """The variable that, when it names another host, shows that the key belongs elsewhere."""
    tokenizer: str | None = None


HOSTED = (
    Hosted(
        name="openrouter",
        dialect=DialectName.OPENROUTER,
        key_variable="OPENROUTER_API_KEY",
        base_url="https://openrouter.ai/api/v1",
        models=("qwen/qwen3.6-plus", "qwen/qwen3-max", "qwen/qwen3-coder-plus"),
        patterns=("*/*",),
    ),
    Hosted(
        name="dashscope",
        dialect=DialectName.DASHSCOPE,
        key_variable="DASHSCOPE_API_KEY",
        base_url="https://dashscope.aliyuncs.com/compatible-mode/v1",
        base_url_variable="DASHSCOPE_BASE_URL",
        models=("qwen3.6-plus", "qwen3-max", "qwen-plus", "qwen3-coder-plus", "qwen3-coder-flash"),
        patterns=("qwen*",),
        tokenizer="qwen3.6",
    ),
    Hosted(
        name="openai",
        dialect=DialectName.OPENAI,
        key_variable="OPENAI_API_KEY",
        base_url=f"https://{_OPENAI_HOST}/v1",
        foreign_url_variable="OPENAI_BASE_URL",
        models=("gpt-4o", "gpt-4o-mini", "text-embedding-3-small", "text-embedding-3-large"),
        patterns=("gpt-*", "o*", "text-embedding-*"),
    ),
)
"""In the order in which they are preferred where two serve the same name."""


def with_environment(configuration: Configuration, environ: Mapping[str, str]) -> Configuration:
    """Add the hosted upstreams whose keys are set, then default routes if there are none. Applying it again changes nothing."""
    upstreams = dict(configuration.upstreams)
    for hosted in HOSTED:
        upstream = _enabled(hosted, configuration.upstreams, environ)
        if upstream is not None:
            upstreams[hosted.name] = upstream
    enlarged = msgspec.structs.replace(configuration, upstreams=upstreams)
    return enlarged if configuration.routes else msgspec.structs.replace(enlarged, routes=_default_routes(enlarged))


def left_alone(configuration: Configuration, environ: Mapping[str, str]) -> list[str]:
    """Say which keys of the environment enable nothing, and why, a sentence each. `configuration` is the file's or the effective one."""
    sentences = []
    for hosted in HOSTED:
        key = environ.get(hosted.key_variable, "").strip()
        if not key:
            continue
        rival = _rival(hosted, configuration.upstreams)
        if rival is not None and configuration.upstreams[rival].api_key != Secret(key):
            sentences.append(f"{hosted.key_variable} enables nothing: the file configures {rival} itself.")
        elif rival is None and _foreign(hosted, environ):
            sentences.append(
                f"{hosted.key_variable} enables nothing: {hosted.foreign_url_variable} points elsewhere, so the key is not "
                f"{hosted.name}'s. Unset {hosted.foreign_url_variable}, or configure the upstream in the file."
            )
    return sentences


def is_pattern(model: str) -> bool:
    """Tell whether a model name is a shell-style pattern."""
    return not _WILDCARDS.isdisjoint(model)


def _enabled(hosted: Hosted, upstreams: Mapping[str, UpstreamSection], environ: Mapping[str, str]) -> UpstreamSection | None:
    key = environ.get(hosted.key_variable, "").strip()
    if not key or _rival(hosted, upstreams) is not None or _foreign(hosted, environ):
        return None
    address = environ.get(hosted.base_url_variable, "").strip() if hosted.base_url_variable else ""
    return UpstreamSection(
        dialect=hosted.dialect,
        base_url=address or hosted.base_url,
        api_key=Secret(key),
        models=hosted.models,
        tokenizer=hosted.tokenizer,
    )


def _rival(hosted: Hosted, upstreams: Mapping[str, UpstreamSection]) -> str | None:
    """Find the upstream that already is this provider. Many servers speak OpenAI's dialect, so there the address decides."""
    for name, upstream in upstreams.items():
        same_dialect = upstream.dialect is hosted.dialect
        if name == hosted.name or (same_dialect and (hosted.dialect is not DialectName.OPENAI or _host(upstream.base_url) == _OPENAI_HOST)):
            return name
    return None


def _foreign(hosted: Hosted, environ: Mapping[str, str]) -> bool:
    address = environ.get(hosted.foreign_url_variable, "").strip() if hosted.foreign_url_variable else ""
    return bool(address) and _host(address) != _host(hosted.base_url)


def _host(address: str) -> str:
    try:
        return (urlsplit(address).hostname or "").rstrip(".")
    except ValueError:
        return ""


# ── default routes ───────────────────────────────────────────────────────────


def _default_routes(configuration: Configuration) -> tuple[RouteSection, ...]:
    """Derive routes from what each upstream serves: names before patterns, narrow patterns before wide ones.

    The local engine stands behind every upstream, but not for embeddings. A name nobody serves stays an error, also where the engine
    is alone: a misspelt model must not silently become a small model's answer.
    """
    targets: dict[str, list[TargetSection]] = {}
    for name, upstream in configuration.upstreams.items():
        for pattern in _served(upstream):
            targets.setdefault(pattern, []).append(TargetSection(upstream=name))
    engine = configuration.local_engine
    if engine.enabled:
        local = TargetSection(upstream=LOCAL, model=engine.model_name)
        for pattern, choices in targets.items():
            if not _makes_vectors(pattern):
                choices.append(local)
        targets.setdefault(engine.model_name, [local])
    return tuple(RouteSection(model=pattern, targets=tuple(targets[pattern])) for pattern in sorted(targets, key=_width))


def _makes_vectors(model: str) -> bool:
    """Tell embedding models by their name: vectors of another model mixed into an index are a silent fault, worse than an error."""
    return "embed" in model.lower()


def _served(upstream: UpstreamSection) -> list[str]:
    """List the names and patterns of an upstream: its `models`, and for a hosted one its provider's patterns, which cover most names."""
    hosted = next((known for known in HOSTED if known.dialect is upstream.dialect), None)
    wide: tuple[str, ...] = ()
    if hosted is not None and upstream.models in {(), hosted.models}:
        wide = hosted.patterns if hosted.dialect is not DialectName.OPENAI or _host(upstream.base_url) == _OPENAI_HOST else ()
    names = [model for model in upstream.models if not any(fnmatchcase(model, pattern) for pattern in wide)]
    return list(dict.fromkeys([*names, *wide]))


def _width(pattern: str) -> tuple[bool, int]:
    """Order names before patterns, then by how much of the pattern is fixed, most first; otherwise the order stays."""
    return (is_pattern(pattern), -sum(character not in _WILDCARDS for character in pattern) if is_pattern(pattern) else 0)
