"""Check the upstreams: names, addresses, credentials, headers, clocks. Pools and breakers are in `check_pools`."""

from __future__ import annotations

import re
from collections.abc import Iterator
from urllib.parse import SplitResult

import msgspec

from tidegate.config.check_pools import addresses, check_pool
from tidegate.config.check_targets import stand_ins
from tidegate.config.environment import LOCAL
from tidegate.config.problem import Path, Problem, Severity, did_you_mean
from tidegate.config.schema import Configuration, DialectName, TimeoutsSection, UpstreamSection
from tidegate.config.source import Source
from tidegate.config.words import is_header_name, is_header_value, is_name, is_private, split_url
from tidegate.domain.units import Secret

TOKENIZERS = ("qwen3.6", "engine")

_NEED_A_KEY = frozenset({DialectName.OPENROUTER, DialectName.DASHSCOPE})
_VERSIONED = frozenset({DialectName.OPENROUTER, DialectName.DASHSCOPE, DialectName.VLLM, DialectName.LLAMACPP})
"""Their API begins below a version; under `openai` there are servers without one."""
_VERSION = re.compile(r"/v[0-9]")
_ENDPOINTS = ("/chat/completions", "/completions", "/embeddings", "/models", "/responses")
_OUR_HEADERS = frozenset(
    {"host", "content-length", "transfer-encoding", "connection", "keep-alive", "te", "trailer", "upgrade", "expect", "proxy-connection"}
)
"""Headers that the HTTP client sets or must not send: a second value makes framing ambiguous."""


def check_upstreams(configuration: Configuration, source: Source) -> Iterator[Problem]:
    """Check each upstream by itself, and whether the file gives it anything to do."""
    routed = _routed(configuration)
    for name, upstream in configuration.upstreams.items():
        path = ("upstreams", name)
        if name == LOCAL:
            yield source.problem(
                path, f'the name "{LOCAL}" belongs to the local engine', "rename this upstream, here and in routes", at_key=True
            )
        elif not is_name(name):
            message = f'"{name}" cannot name an upstream'
            yield source.problem(path, message, "use up to 64 letters, digits, dots, dashes and underscores", at_key=True)
        for where, address in addresses(name, upstream):
            yield from _check_address(where, address, name, upstream, source)
        yield from _check_credentials(name, upstream, source)
        yield from _check_headers(name, upstream, source)
        yield from _check_clocks(name, upstream.timeouts, source)
        yield from check_pool(name, upstream, source)
        if upstream.tokenizer is not None and upstream.tokenizer not in TOKENIZERS:
            hint = did_you_mean(upstream.tokenizer, TOKENIZERS) or f"use {' or '.join(TOKENIZERS)}, or leave it out"
            yield source.problem((*path, "tokenizer"), f'there is no tokenizer "{upstream.tokenizer}"', hint)
        for index, model in enumerate(upstream.models):
            if not model.strip():
                yield source.problem((*path, "models", index), "a model name is empty", "delete it from the list")
        if name not in routed and source.mentions(path):
            what = "no route leads to it" if source.mentions(("routes",)) else "it lists no models, and there are no routes"
            message = f"the upstream {name} is never used: {what}"
            yield source.problem(path, message, "add it to a route, or list its models", severity=Severity.WARNING, at_key=True)


def _routed(configuration: Configuration) -> set[str]:
    """Name the upstreams that a request can come to: as a target, by a rule, or in a target's place."""
    targets = [target for route in configuration.routes for target in route.targets]
    targets += [target for rule in configuration.rules for target in rule.use]
    targets += [target for route in configuration.routes for _, target in stand_ins(route)]
    return {target.upstream for target in targets}


def _check_address(path: Path, address: str, name: str, upstream: UpstreamSection, source: Source) -> Iterator[Problem]:
    parts = split_url(address)
    if isinstance(parts, str):
        hint = "write credentials as api_key or headers" if "password" in parts else "write it like https://host/v1"
        yield source.problem(path, f"the base_url of {name} {parts}", hint)
        return
    if parts.query or parts.fragment or "?" in address or "#" in address:
        yield source.problem(path, f"the base_url of {name} has a query or fragment", 'end it before the "?" or "#"')
    ending = next((end for end in _ENDPOINTS if parts.path.rstrip("/").endswith(end)), None)
    if ending is not None:
        yield source.problem(path, f"the base_url of {name} ends in {ending}", f"leave {ending} out: Tidegate adds the path of each call")
    elif upstream.dialect in _VERSIONED and not _VERSION.search(parts.path):
        message = f"the base_url of {name} has no version in its path, so calls would go to {parts.path.rstrip('/')}/chat/completions"
        hint = f"write {address.rstrip('/')}/v1, if that is where its API is"
        yield source.problem(path, message, hint, severity=Severity.WARNING)
    if parts.scheme == "https" and not upstream.verify_tls:
        yield source.problem(
            ("upstreams", name, "verify_tls"),
            f"the certificate of {name} is not checked, so anyone on the way can read its key and its answers",
            "remove verify_tls: false, or install the server's CA certificate",
            severity=Severity.WARNING,
        )
    yield from _check_plain_http(path, name, upstream, parts, source)


def _check_plain_http(path: Path, name: str, upstream: UpstreamSection, parts: SplitResult, source: Source) -> Iterator[Problem]:
    sends_secrets = upstream.api_key is not None or bool(upstream.headers)
    if parts.scheme == "http" and sends_secrets and not is_private(parts.hostname or ""):
        yield source.problem(
            path,
            f"the key of {name} and all prompts cross the network unencrypted",
            "use https://",
            severity=Severity.WARNING,
        )


def _check_credentials(name: str, upstream: UpstreamSection, source: Source) -> Iterator[Problem]:
    path = ("upstreams", name, "api_key")
    authorization = any(header.lower() == "authorization" for header in upstream.headers)
    if upstream.api_key is None:
        if upstream.dialect in _NEED_A_KEY and not authorization:
            message = f"{name} has no api_key: {upstream.dialect} will refuse every call"
            yield source.problem(path, message, "add api_key: ${NAME} with the variable that holds it", severity=Severity.WARNING)
        return
    fault = _secret_fault(upstream.api_key)
    if fault is not None:
        yield source.problem(path, f"the api_key of {name} {fault}", "look at the variable or file it comes from")
    if authorization:
        yield source.problem(path, f"{name} has both an api_key and an authorization header", "keep one of them")


def _check_headers(name: str, upstream: UpstreamSection, source: Source) -> Iterator[Problem]:
    seen: set[str] = set()
    for header, value in upstream.headers.items():
        path = ("upstreams", name, "headers", header)
        if not is_header_name(header):
            yield source.problem(path, "not a header name", "use letters, digits and dashes", at_key=True)
        elif header.lower() in _OUR_HEADERS:
            yield source.problem(path, f"the header {header} is set by Tidegate", "delete it", at_key=True)
        elif header.lower() in seen:
            yield source.problem(path, f"the header {header} is given twice", "names differ in more than capitals; keep one", at_key=True)
        seen.add(header.lower())
        fault = _secret_fault(value)
        if fault is not None:
            yield source.problem(path, f"the value of this header {fault}", "look at the variable or file it comes from")


def _secret_fault(value: Secret) -> str | None:
    """Say why a secret cannot be sent, without showing it."""
    text = value.reveal()
    if not text.strip():
        return "is empty"
    if not is_header_value(text):
        return "has a line break, control character or letter in it that a header cannot carry"
    if text != text.strip():
        return "begins or ends with a space"
    return None


def _check_clocks(name: str, timeouts: TimeoutsSection, source: Source) -> Iterator[Problem]:
    for clock, value in msgspec.structs.asdict(timeouts).items():
        path = ("upstreams", name, "timeouts", clock)
        if clock != "total_s" and value > timeouts.total_s and source.mentions(path):
            message = f"{clock} of {name} can never run out: total_s ({timeouts.total_s:g} s) ends the call before"
            yield source.problem(path, message, f"lower {clock} or raise total_s", severity=Severity.WARNING)
