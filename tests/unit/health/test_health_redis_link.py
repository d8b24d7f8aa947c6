"""What a link to a store says of its failures: never the password, in whichever way the address holds it."""

from __future__ import annotations

import asyncio

import pytest
from redis.exceptions import RedisError

from tidegate.adapters.health.redis_link import RedisLink
from tidegate.adapters.health.share import LinkLost
from tidegate.domain.units import Secret


def reason_of(url: str, message: str) -> str:
    """Give what is said when an exchange over this address fails with this message; nothing is connected."""

    async def fail() -> None:
        raise RedisError(message)

    async def story() -> str:
        link = RedisLink(Secret(url), "fleet-a", timeout_s=1.0)
        try:
            with pytest.raises(LinkLost) as lost:
                await link._within(fail())
        finally:
            await link.aclose()
        return str(lost.value)

    return asyncio.run(story())


@pytest.mark.parametrize(
    ("url", "password"),
    [
        ("redis://:plain-canary@127.0.0.1:1/0", "plain-canary"),
        ("redis://:c%40nary%2Fof@127.0.0.1:1/0", "c@nary/of"),
        ("redis://:c%40nary%2Fof@127.0.0.1:1/0", "c%40nary%2Fof"),
        ("redis://127.0.0.1:1/0?password=query-canary", "query-canary"),
        ("redis://127.0.0.1:1/0?password=c%40nary", "c@nary"),
    ],
)
def test_a_password_is_masked_wherever_the_address_holds_it(url: str, password: str) -> None:
    """Before the host or in the query, as it is written there and as it is sent."""
    assert reason_of(url, f"the store knows no {password} here") == "the store knows no **** here"


def test_a_password_that_a_cut_would_halve_is_masked_first() -> None:
    """A long message loses its end, and no part of the password stays at the cut."""
    reason = reason_of("redis://:halved-canary@127.0.0.1:1/0", "x" * 294 + "halved-canary")
    assert reason == "x" * 294 + "****"


def test_a_failure_without_words_is_named_by_its_kind() -> None:
    """An empty reason would tell nobody anything."""
    assert reason_of("redis://127.0.0.1:1/0", "") == "RedisError"
