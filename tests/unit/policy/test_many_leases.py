"""A request that is under several shared limits asks for its part of all of them at once."""

from __future__ import annotations

from tidegate.domain.demand import Demand
from tidegate.domain.leases import LeaseBatch
from tidegate.domain.limits import CounterSpec, LimitRule, LimitSubject, Meter, Resource
from tidegate.domain.principal import Limits
from tidegate.domain.units import KeyId, TenantId, UserId
from tidegate.policy.metering.leases.leased_counters import LeasedCounters
from tidegate.policy.metering.leases.ledger import LeaseLedger
from tidegate.policy.metering.limiter import Limiter
from tidegate.ports import Denied, Permit, Short

SUBJECT = LimitSubject(KeyId("k"), TenantId("acme"), UserId("u"))
WINDOW = CounterSpec(Meter.SLIDING, 10_000, 60.0)
RULES = (LimitRule("input", Resource.INPUT_TOKENS, WINDOW, ()), LimitRule("output", Resource.OUTPUT_TOKENS, WINDOW, ()))


def test_what_fits_is_kept_for_a_request_that_waits_for_the_rest() -> None:
    """While the lease of the output is on its way, another request may not take the input that is there."""
    counters, ledger = LeasedCounters(), LeaseLedger(epoch=1, now=-100.0)
    limiter = Limiter(counters, RULES)

    def exchange() -> None:
        counters.receive(ledger.exchange(LeaseBatch("w", counters.claims(now=0.0)), now=0.0), now=0.0)

    first, second, third = (permit(limiter) for _ in range(3))
    assert isinstance(first.reserve(Demand(100, 0), now=0.0), Short)
    exchange()
    counters.serve_waiting()  # now there is a lease of the input, and none of the output
    assert isinstance(second.reserve(Demand(100, 50), now=0.0), Short)
    exchange()
    assert isinstance(third.reserve(Demand(100, 0), now=0.0), Short), "it is kept for the one that waits"
    counters.serve_waiting()
    assert second.reserve(Demand(100, 50), now=0.0) is None


def permit(limiter: Limiter) -> Permit:
    """Admit a request; nothing refuses it here."""
    admitted = limiter.admit(SUBJECT, Limits(), now=0.0)
    assert not isinstance(admitted, Denied | Short)
    return admitted
