"""Two connections to a Redis or Valkey: one speaks, one listens.

Invariants: every exchange has a deadline; whatever goes wrong is `LinkLost`, after which only `aclose` is called;
no message of an error holds the password. Imported only where a store is configured: it brings the package `redis`.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Sequence
from typing import Any, Self, TypeVar
from urllib.parse import urlsplit

import redis.asyncio
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import RedisError

from tidegate.adapters.health.share import LinkLost
from tidegate.domain.units import Secret
from tidegate.errors import ConfigurationError

T = TypeVar("T")

_QUIET_S = 2.0
"""After so long without a message the store is asked whether it is there."""
_CLOSING_S = 1.0
_LONGEST_CAUSE = 300


class RedisLink:
    """Open with `open`; `hear` belongs to one task, `say` and `recall` to another."""

    def __init__(self, url: Secret, channel: str, *, timeout_s: float) -> None:
        self._url = url
        self._channel = channel
        self._timeout_s = timeout_s
        # Untyped: the package's own types leave much open. No retries of its own, for they would hide a loss from whoever has to ask again.
        self._client: Any = _client(url, timeout_s)
        self._subscription: Any = self._client.pubsub()

    @classmethod
    async def open(cls, url: Secret, channel: str, *, timeout_s: float) -> Self:
        """Connect, log in and subscribe."""
        link = cls(url, channel, timeout_s=timeout_s)
        try:
            await link._within(link._subscription.subscribe(channel))
            await link._within(link._client.ping())
        except BaseException:
            await link.aclose()
            raise
        return link

    async def say(self, message: bytes, key: str, *, keep_s: float | None) -> None:
        """Publish, and keep the message under `key` for so long; None forgets what is kept there."""
        async with self._pipeline() as pipeline:
            if keep_s is None:
                pipeline.delete(key)
            else:
                pipeline.set(key, message, px=int(keep_s * 1000))
            pipeline.publish(self._channel, message)
            await self._within(pipeline.execute())

    async def keep(self, messages: Sequence[tuple[str, bytes]], *, keep_s: float) -> None:
        """Keep these under their keys for so long, without publishing."""
        async with self._pipeline() as pipeline:
            for key, message in messages:
                pipeline.set(key, message, px=int(keep_s * 1000))
            await self._within(pipeline.execute())

    async def recall(self, keys: Sequence[str]) -> list[bytes]:
        """Give what is kept under these keys."""
        if not keys:
            return []
        found: list[bytes | None] = await self._within(self._client.mget(keys))
        return [message for message in found if message is not None]

    async def hear(self) -> bytes:
        """Wait for the next message, however long; `LinkLost` when the store gives no sign of life."""
        while True:
            heard = await self._next(_QUIET_S)
            if heard is None:
                await self._within(self._subscription.ping())
                heard = await self._next(self._timeout_s)
                if heard is None:
                    raise LinkLost(f"it did not answer a ping within {self._timeout_s:g} s")
            if heard["type"] == "message":
                message: bytes = heard["data"]
                return message

    async def aclose(self) -> None:
        """Close both connections; safe to repeat, and after any failure."""
        for closing in (self._subscription.aclose, self._client.aclose):
            closed = asyncio.ensure_future(closing())
            await asyncio.wait({closed}, timeout=_CLOSING_S)  # no `asyncio.timeout`: see `adapters.child_process`
            closed.cancel()
            await asyncio.gather(closed, return_exceptions=True)

    async def _next(self, wait_s: float) -> dict[str, Any] | None:
        heard: dict[str, Any] | None = await self._within(self._subscription.get_message(timeout=wait_s), more_s=wait_s)
        return heard

    @contextlib.asynccontextmanager
    async def _pipeline(self) -> AsyncIterator[Any]:
        pipeline = self._client.pipeline(transaction=True)
        try:
            yield pipeline
        finally:
            with contextlib.suppress(LinkLost):
                await self._within(pipeline.aclose())

    async def _within(self, work: Awaitable[T], *, more_s: float = 0.0) -> T:
        """Do one exchange within its time; every way to fail becomes `LinkLost`."""
        try:
            async with asyncio.timeout(self._timeout_s + more_s):
                return await work
        except TimeoutError:
            raise LinkLost(f"it did not answer within {self._timeout_s:g} s") from None
        except (RedisError, OSError, ValueError) as problem:
            raise LinkLost(self._without_password(f"{problem}")[:_LONGEST_CAUSE] or type(problem).__name__) from None

    def _without_password(self, text: str) -> str:
        """Mask the password as it is sent, wherever in the address it stands, and as the address writes it."""
        written = urlsplit(self._url.reveal()).password
        sent = self._client.connection_pool.connection_kwargs.get("password")
        for password in (written, sent):
            if password:
                text = text.replace(password, "****")
        return text


def check_address(url: Secret) -> None:
    """Refuse an address that can never work; its text is not repeated."""
    try:
        _client(url, 1.0)
    except (ValueError, TypeError, RedisError):
        raise ConfigurationError(
            "shared.redis_url is not an address of a Redis; write it like redis://10.0.0.7:6379/0 or rediss://user:password@host:6379/0"
        ) from None


def _client(url: Secret, timeout_s: float) -> Any:
    return redis.asyncio.Redis.from_url(
        url.reveal(),
        socket_timeout=timeout_s,
        socket_connect_timeout=timeout_s,
        retry=Retry(NoBackoff(), 0),
        protocol=2,
        max_connections=2,
    )
