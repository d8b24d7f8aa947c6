"""What reports are made of: one call of an upstream that used something, wherever it was written down."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from tidegate.domain.books import Dimensions, SettledCall
from tidegate.domain.record import RequestRecord, billed_attempts
from tidegate.domain.units import TenantId
from tidegate.domain.usage import Evidence, Usage
from tidegate.policy.billing.hybrid import ResourceUse


class BilledCall(msgspec.Struct, frozen=True):
    """One call. `at` is in seconds since the epoch."""

    at: float
    tenant: TenantId
    amount_micro: int
    evidence: Evidence
    price_version: str
    usage: Usage
    dimensions: Dimensions
    resources: ResourceUse = ResourceUse()


def calls_of_record(record: RequestRecord) -> Iterator[BilledCall]:
    """Give the calls of one request: each attempt that used something, the last one with what the request ended with.

    As in the books, a call counts when its request ended, under the name by which the upstream knows the model. What the request sent and
    received counts with its last attempt.
    """
    for attempt, usage, evidence in billed_attempts(record):
        tokens, ran_ms = usage.total_tokens, round(attempt.duration_s * 1000)
        yield BilledCall(
            at=record.started_at + record.duration_s,
            tenant=TenantId(record.tenant),
            amount_micro=attempt.cost_micro,
            evidence=evidence,
            price_version=record.price_version,
            usage=usage,
            dimensions=Dimensions(
                record.key_id, record.user, record.feature, attempt.model or record.model, record.route, attempt.upstream
            ),
            resources=ResourceUse(tokens, tokens * ran_ms, record.traffic_bytes if attempt is record.attempts[-1] else 0),
        )


def call_of_books(settled: SettledCall) -> BilledCall:
    """Give a call as the books have it. They do not know how long it ran or how much it sent."""
    return BilledCall(
        at=settled.at,
        tenant=settled.tenant,
        amount_micro=settled.amount_micro,
        evidence=settled.evidence,
        price_version=settled.price_version,
        usage=settled.usage,
        dimensions=settled.dimensions,
        resources=ResourceUse(settled.usage.total_tokens),
    )
