"""One page of figures that a server offers over HTTP, on a connection that is kept."""

from __future__ import annotations

import os
from typing import Final

from tidegate.adapters.samplers.source import SourceFailed
from tidegate.domain.units import Headers
from tidegate.errors import TidegateError
from tidegate.http.client import PoolSettings, UpstreamPool, fetch, proxy_from_environment
from tidegate.http.origin import Origin
from tidegate.ports import UpstreamRequest

MAX_PAGE_BYTES: Final = 4_194_304
"""A page of vLLM has some 100 kB, more with several engines."""
_IDLE_S: Final = 90.0
_OK: Final = 200


class Page:
    """Fetches it. Belongs to the event loop; `aclose` ends it."""

    def __init__(self, url: str, *, headers: Headers = (), verify_tls: bool = True, deadline_s: float) -> None:
        origin = Origin.parse(url)
        root = f"{origin.scheme}://{origin.authority}"
        self._path = origin.prefix or "/"
        self._label = f"{root}{self._path}"
        self._headers = headers
        self._deadline_s = deadline_s
        self._pool = UpstreamPool(
            PoolSettings(
                base_url=root,
                max_connections=1,
                max_waiting=1,
                idle_timeout_s=_IDLE_S,
                connect_timeout_s=deadline_s,
                verify_tls=verify_tls,
                proxy=proxy_from_environment(root, os.environ),
            )
        )

    def __repr__(self) -> str:
        return f"Page({self._label!r})"

    async def text(self) -> str:
        """Give it; `SourceFailed` when it does not come."""
        request = UpstreamRequest("GET", self._path, (*self._headers, (b"accept", b"text/plain")), b"")
        try:
            response = await fetch(self._pool, request, deadline_s=self._deadline_s, max_bytes=MAX_PAGE_BYTES)
        except TidegateError as error:
            raise SourceFailed(f"{self._label}: {error.message}") from error
        if response.status != _OK:
            raise SourceFailed(f"{self._label} answers with status {response.status}")
        return response.body.decode("utf-8", "replace")

    def not_understood(self, error: ValueError) -> SourceFailed:
        """Say that what came is no page of figures."""
        return SourceFailed(f"{self._label} is not understood: {error}")

    async def aclose(self) -> None:
        await self._pool.aclose()
