"""The store of several nodes: a Redis or Valkey, where one script per counter does what the ledger does.

Invariants: every exchange has a deadline and is one round trip; whatever goes wrong is `StoreLost`; every key expires; the keys of one
counter lie in one slot of a cluster; no message of an error holds the password. Imported only where a store is configured: it brings
the package `redis`.
"""

from __future__ import annotations

import asyncio
import contextlib
from hashlib import sha1
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import msgspec
import redis.asyncio
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import NoScriptError, RedisError

from tidegate.adapters.limits.store import StoreLost
from tidegate.domain.leases import LEASE_S, LeaseAnswer, LeaseBatch, LeaseClaim, LeaseGrant
from tidegate.domain.units import Secret
from tidegate.policy.metering.leases.ledger import ALIVE_S, REMEMBERED_S

_MOST_CONNECTIONS = 4
"""As many exchanges as may be under way; see `keeper`."""
_CLOSING_S = 1.0
_LONGEST_CAUSE = 300

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(LeaseGrant).decode


class _Script:
    """A script and the name under which a server keeps it."""

    def __init__(self, name: str) -> None:
        self.text = Path(__file__).with_name(name).read_bytes()
        self.sha = sha1(self.text, usedforsecurity=False).hexdigest()


class RedisStore:
    """Implements `store.LeaseStore`. `clock` is of tests only: the time that the counters' script uses instead of the server's."""

    def __init__(self, url: Secret, *, connect_s: float = 0.75, clock: float | None = None) -> None:
        self._url = url
        self.clock = clock
        # Untyped: the package's own types leave much open. No retries of its own, for they would hide a loss from whoever has to ask again.
        self._client: Any = redis.asyncio.Redis.from_url(
            url.reveal(),
            socket_timeout=None,  # the deadline of an exchange is its caller's
            socket_connect_timeout=connect_s,
            retry=Retry(NoBackoff(), 0),
            protocol=2,
            max_connections=_MOST_CONNECTIONS,
        )
        self._lease, self._beat = _Script("lease.lua"), _Script("beat.lua")

    async def exchange(self, batch: LeaseBatch, *, deadline_s: float) -> LeaseAnswer:
        try:
            async with asyncio.timeout(deadline_s):
                try:
                    return await self._exchange(batch)
                except NoScriptError:  # a server that just started; said twice, a claim counts once
                    await self._client.script_load(self._lease.text)
                    await self._client.script_load(self._beat.text)
                    return await self._exchange(batch)
        except TimeoutError:
            raise StoreLost(f"it did not answer within {deadline_s:g} s") from None
        except (RedisError, OSError, ValueError, msgspec.MsgspecError) as problem:
            raise StoreLost(self._without_password(f"{problem}")[:_LONGEST_CAUSE] or type(problem).__name__) from None

    async def aclose(self) -> None:
        closed = asyncio.ensure_future(self._client.aclose())
        await asyncio.wait({closed}, timeout=_CLOSING_S)  # no `asyncio.timeout`: see `adapters.child_process`
        closed.cancel()
        await asyncio.gather(closed, return_exceptions=True)

    async def _exchange(self, batch: LeaseBatch) -> LeaseAnswer:
        pipeline = self._client.pipeline(transaction=False)
        try:
            pipeline.evalsha(self._beat.sha, 2, "tidegate:{store}:epoch", "tidegate:{store}:workers", batch.worker, ALIVE_S)
            for claim in batch.claims:
                pipeline.evalsha(self._lease.sha, 2, *_keys(claim), _encode(claim), batch.worker, LEASE_S, REMEMBERED_S, *self._clock())
            (epoch, age_s, workers), *grants = await pipeline.execute()
            return LeaseAnswer(int(epoch), float(age_s), workers, tuple(_decode(grant) for grant in grants))
        finally:
            with contextlib.suppress(RedisError, OSError):
                await pipeline.reset()

    def _clock(self) -> tuple[str, ...]:
        return () if self.clock is None else (repr(self.clock),)

    def _without_password(self, text: str) -> str:
        """Mask the password as it is sent, and as the address writes it."""
        written = urlsplit(self._url.reveal()).password
        sent = self._client.connection_pool.connection_kwargs.get("password")
        for password in (written, sent):
            if password:
                text = text.replace(password, "****")
        return text


def _keys(claim: LeaseClaim) -> tuple[str, str]:
    """Name a counter's keys by how it counts: a ceiling may change while it is in use, the rest makes it another one."""
    spec = claim.spec
    name = f"tidegate:{{{claim.counter}}}:{spec.meter}:{spec.span_s:g}:{spec.period}"
    return name, f"{name}:leases"
