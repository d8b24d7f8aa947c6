"""Check health checks and the store through which nodes share what they find."""

from __future__ import annotations

import re
from collections.abc import Iterator
from urllib.parse import urlsplit

from tidegate.config.problem import Path, Problem, Severity
from tidegate.config.schema import Configuration
from tidegate.config.source import Source
from tidegate.domain.units import Secret

_PATH = re.compile(r"/[\x21\x22\x24-\x7e]*")
"""What a request line can carry: printable ASCII without spaces and `#`."""
_SCHEMES = ("redis://", "rediss://")


def check_health(configuration: Configuration, source: Source) -> Iterator[Problem]:
    """Check how replicas are asked, and the section `shared`."""
    for name, upstream in configuration.upstreams.items():
        path = ("upstreams", name, "health")
        asked = upstream.health.path
        if asked is not None and not _PATH.fullmatch(asked):
            message = f"the health path of {name} is not a path from the server's root"
            yield source.problem((*path, "path"), message, 'begin it with "/", and percent-encode spaces and letters outside ASCII')
        if asked is not None and upstream.health.enabled is False:
            message = f"{name} is not asked for its health, so the path changes nothing"
            yield source.problem((*path, "path"), message, "delete it, or set enabled: true", severity=Severity.WARNING)
    if configuration.shared is not None:
        yield from check_redis_address(("shared", "redis_url"), configuration.shared.redis_url, source)


def check_redis_address(path: Path, address: Secret, source: Source) -> Iterator[Problem]:
    """Messages do not repeat the address: it may hold a password."""
    url = address.reveal()
    if not url.startswith(_SCHEMES):
        yield source.problem(path, f"{path[-1]} does not begin with redis:// or rediss://", "write it like redis://10.0.0.7:6379/0")
    elif not _names_a_host(url):
        yield source.problem(path, f"{path[-1]} names no server", "write it like redis://10.0.0.7:6379/0")


def _names_a_host(url: str) -> bool:
    try:
        return bool(urlsplit(url).hostname)
    except ValueError:
        return False
