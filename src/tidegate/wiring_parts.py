"""What wiring makes of each section of a configuration: replicas, pools, headers, routes, limits, and who checks tokens."""

from __future__ import annotations

import asyncio
import os
from typing import Protocol
from urllib.parse import urlsplit

from tidegate.config.environment import is_pattern
from tidegate.config.schema import Configuration, LimitsSection, TimeoutsSection, UpstreamSection
from tidegate.domain.principal import Limits
from tidegate.domain.units import Headers, ModelName, ReplicaId, Secret, UpstreamName
from tidegate.domain.upstream import Replica, Route, Target, Timeouts
from tidegate.errors import ConfigurationError
from tidegate.gateway.authenticate import LimitsResolver, TokenVerifier
from tidegate.http.client import PoolSettings, UpstreamPool, fetch, proxy_from_environment
from tidegate.ports import UpstreamRequest
from tidegate.wire.dialects import DIALECTS


class TokenKeys(TokenVerifier, Protocol):
    """A token verifier that fetches keys in the background."""

    async def close(self) -> None: ...


async def token_keys(configuration: Configuration) -> TokenKeys | None:
    if not configuration.jwt:
        return None
    from tidegate.adapters.jwt.verifier import JwtVerifier  # imported only where JWT is configured: it brings cryptography

    verifier = JwtVerifier(configuration.jwt, fetch=fetch_key_set)
    await verifier.warm_up(now=asyncio.get_running_loop().time())
    return verifier


def limits_resolver(configuration: Configuration) -> LimitsResolver:
    return LimitsResolver({name: limits_of(section) for name, section in configuration.tiers.items()}, limits_of(configuration.limits))


def replica_of(name: str, section: UpstreamSection) -> Replica:
    return Replica(ReplicaId(f"{name}/0"), UpstreamName(name), section.dialect, timeouts_of(section.timeouts))


def pool_of(section: UpstreamSection) -> UpstreamPool:
    return UpstreamPool(
        PoolSettings(
            base_url=section.base_url,
            max_connections=section.max_connections,
            idle_timeout_s=section.idle_timeout_s,
            connect_timeout_s=section.timeouts.connect_s,
            verify_tls=section.verify_tls,
            proxy=proxy_from_environment(section.base_url, os.environ),
        )
    )


def upstream_headers(section: UpstreamSection) -> Headers:
    """Give the dialect's headers, the key, and the operator's own, which win over both."""
    headers = dict((*DIALECTS[section.dialect].request_headers, *bearer(section.api_key)))
    headers |= {name.lower().encode(): value.reveal().encode() for name, value in section.headers.items()}
    return tuple(headers.items())


def bearer(key: Secret | None) -> Headers:
    return ((b"authorization", b"Bearer " + key.reveal().encode()),) if key is not None else ()


def route_of(pattern: str, targets: list[tuple[str, str | None]]) -> Route:
    return Route(
        pattern, tuple(Target(UpstreamName(upstream), ModelName(model) if model is not None else None) for upstream, model in targets)
    )


def timeouts_of(section: TimeoutsSection) -> Timeouts:
    return Timeouts(section.connect_s, section.first_byte_s, section.first_token_s, section.stall_s, section.total_s)


def limits_of(section: LimitsSection) -> Limits:
    return Limits(section.tokens_per_minute, section.requests_per_minute, section.concurrency)


def listed_models(configuration: Configuration) -> tuple[str, ...]:
    """Names for `/v1/models`: those of the routes and of the upstreams, patterns left out, each once and in order."""
    names = [route.model for route in configuration.routes]
    for section in configuration.upstreams.values():
        names += section.models
    return tuple(dict.fromkeys(name for name in names if not is_pattern(name)))


async def fetch_key_set(url: str) -> bytes:
    """Get a JSON Web Key Set."""
    from tidegate.adapters.jwt.key_set import MAX_DOCUMENT_BYTES
    from tidegate.adapters.jwt.key_source import FETCH_DEADLINE_S

    parts = urlsplit(url)
    base = f"{parts.scheme}://{parts.netloc}"
    path = f"{parts.path or '/'}{f'?{parts.query}' if parts.query else ''}"
    pool = UpstreamPool(PoolSettings(base_url=base, max_connections=1, proxy=proxy_from_environment(base, os.environ)))
    try:
        answer = await fetch(pool, UpstreamRequest("GET", path, (), b""), deadline_s=FETCH_DEADLINE_S, max_bytes=MAX_DOCUMENT_BYTES)
    finally:
        await pool.aclose()
    if answer.status != 200:  # noqa: PLR2004  HTTP's OK
        raise ConfigurationError(f"the key set at {base} answered with status {answer.status}")
    return answer.body
