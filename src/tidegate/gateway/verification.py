"""Ask for a verdict on a credential that memory does not know, with a deadline."""

from __future__ import annotations

import asyncio

from tidegate.domain.principal import Principal
from tidegate.domain.units import Secret
from tidegate.errors import Overloaded, TidegateError
from tidegate.ports import Authenticator

_DEADLINE_S = 10.0  # longer than fetching an issuer's keys may take


async def verify(authenticator: Authenticator, credential: Secret, *, now: float) -> Principal | TidegateError:
    """Give the caller, or the error to answer with."""
    try:
        async with asyncio.timeout(_DEADLINE_S):
            return await authenticator.verify(credential, now=now)
    except TimeoutError:
        return Overloaded("Your token could not be checked in time: its issuer's keys are slow. Try again.", retry_after_s=1.0)
