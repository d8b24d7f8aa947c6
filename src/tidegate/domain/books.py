"""Money as the books know it: what is entered, what an account says, and the equation that always holds.

Every tenant has four accounts: `credit` (what was given to it, with the sign turned), `balance` (what it may still use; below zero it is
debt), `holds` (what running operations may come to cost) and `spent`. Amounts are whole millionths of the price book's currency.
"""

from __future__ import annotations

from typing import Annotated, NewType

import msgspec
from msgspec import Meta

from tidegate.domain.units import TenantId
from tidegate.domain.usage import Evidence, Usage

OperationId = NewType("OperationId", str)
"""Names what is paid for, once and for ever: drawn by the gateway, never by a client, who could name two requests alike."""

INCARNATION_CHARS = 16
"""The beginning of a request's operation: it names the run of the worker that served it."""

LARGEST_MICRO = 2**53
"""Nine thousand million whole units: more than any posting, and exact in every reader of JSON."""

Micro = Annotated[int, Meta(ge=0, le=LARGEST_MICRO)]
SignedMicro = Annotated[int, Meta(ge=-LARGEST_MICRO, le=LARGEST_MICRO)]
Attempt = Annotated[int, Meta(ge=0, le=1_000_000)]


class Dimensions(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """By what spending can be told apart, besides the tenant. Empty: not known."""

    key: str = ""
    user: str = ""
    feature: str = ""
    model: str = ""
    route: str = ""
    upstream: str = ""


# ── what is entered; each entry is known by its operation, its attempt and its kind, and counts once however often it comes ──


class Credit(msgspec.Struct, frozen=True, array_like=True, tag="credit", gc=False):
    """Money given to a tenant; below zero, taken back."""

    operation_id: OperationId
    tenant: TenantId
    amount_micro: SignedMicro
    at: float
    """Seconds since the epoch, here and below: when it happened, not when it was written."""
    note: str = ""

    @property
    def attempt(self) -> int:
        return 0


class Hold(msgspec.Struct, frozen=True, array_like=True, tag="hold", gc=False):
    """What an operation may come to cost. One of a later attempt takes the place of the earlier: moved, never both."""

    operation_id: OperationId
    attempt: Attempt
    tenant: TenantId
    amount_micro: Micro
    at: float
    expires_at: float
    """From then on it is released by itself: whoever would settle it is gone."""


class Settle(msgspec.Struct, frozen=True, array_like=True, tag="settle"):
    """What one attempt did cost. Ends the operation's hold."""

    operation_id: OperationId
    attempt: Attempt
    tenant: TenantId
    amount_micro: Micro
    at: float
    evidence: Evidence = Evidence.ESTIMATED
    price_version: str = ""
    usage: Usage = Usage()
    dimensions: Dimensions = Dimensions()
    upstream_request_id: str = ""
    """The provider's own name for it, to compare their bill with."""


class Release(msgspec.Struct, frozen=True, array_like=True, tag="release", gc=False):
    """The operation ended and cost nothing. Ends its hold."""

    operation_id: OperationId
    attempt: Attempt
    tenant: TenantId
    at: float


Entry = Credit | Hold | Settle | Release

# ── what is read ──────────────────────────────────────────────────────────────


class SettledCall(msgspec.Struct, frozen=True):
    """One settled attempt, as it is compared with a provider's bill or put on an invoice."""

    operation_id: OperationId
    attempt: int
    tenant: TenantId
    amount_micro: int
    at: float
    evidence: Evidence
    price_version: str
    usage: Usage
    dimensions: Dimensions
    upstream_request_id: str = ""


class UsageRow(msgspec.Struct, frozen=True):
    """What was settled in a span of time under one value of each dimension asked for."""

    group: tuple[str, ...]
    """The values, in the order in which the dimensions were named."""
    calls: int
    amount_micro: int
    usage: Usage
    reported_micro: int = 0
    """The part of `amount_micro` whose tokens the upstream itself reported."""


class Balance(msgspec.Struct, frozen=True):
    """Where a tenant stands."""

    tenant: TenantId
    credited_micro: int
    balance_micro: int
    """What it may still use; below zero it owes that much."""
    holds_micro: int
    spent_micro: int

    @property
    def is_sound(self) -> bool:
        """Tell whether all that was given is somewhere."""
        return self.credited_micro == self.balance_micro + self.holds_micro + self.spent_micro


class Invariant(msgspec.Struct, frozen=True):
    """What a check of the whole books found."""

    balances: tuple[Balance, ...]
    postings: int
    open_holds: int
    faults: tuple[str, ...]
    """In words, each with the tenant or the operation that it concerns; none when the books are sound."""
