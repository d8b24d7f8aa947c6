"""What a worker and the one authority over shared limits say to each other about slices of a counter's budget.

Ages are seconds before the message was made, never instants: clocks of processes differ. A slot is a number that the authority gave
and that only it understands.
"""

from __future__ import annotations

import msgspec

from tidegate.domain.limits import PERIOD_S, CounterSpec, Meter, most_at_once

LEASE_S = 1.0
"""A lease that was not renewed for so long is dead on both sides; a worker counts from when it asked, the authority from when it gave."""


class LeaseClaim(msgspec.Struct, frozen=True, array_like=True, gc=False, kw_only=True):
    """A worker's account of one counter since its last claim, and what it wants. Said again under the same number, it counts once."""

    counter: str
    spec: CounterSpec
    sequence: int
    """Grows with every claim of the worker, over all counters."""
    life: int
    """Which life of the counter this goes on with; 0: the worker knows of none."""
    spent: int
    """Used of its lease."""
    held: int
    """Places in use: the worker keeps them, whether they fit or not."""
    spare: int
    """Left of its lease, and to be kept; the rest of the lease goes back."""
    want: int
    """More units."""
    returned: tuple[tuple[int, int], ...] = ()
    """(slot, amount): used by the worker's account, and after all not."""
    owed: tuple[tuple[float, int], ...] = ()
    """(age_s, amount): used without a lease, oldest first."""


class LeaseGrant(msgspec.Struct, frozen=True, array_like=True, gc=False, kw_only=True):
    """The authority's answer to one claim."""

    counter: str
    sequence: int
    life: int
    """0: the claim goes on with a life that has ended, and nothing of it was counted. Make the account anew and claim without a life."""
    granted: int = 0
    """The lease from now on: what is kept and what is added. Less than was asked for when no more is left."""
    slot: int = 0
    """Where the lease was taken."""
    available: int = 0
    """Left for everybody."""
    reset_s: float = 0.0
    wait_s: float = 0.0
    """Until what was wanted would fit, if nothing more is used."""


class LeaseBatch(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """All that one worker has to say at one time; empty as a sign of life."""

    worker: str
    claims: tuple[LeaseClaim, ...] = ()


class LeaseAnswer(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The answer to a batch: a grant for each claim."""

    epoch: int
    """Names this incarnation of the store: another one came up empty."""
    age_s: float
    """How old it is."""
    workers: int
    """Alive, the asking one included."""
    grants: tuple[LeaseGrant, ...] = ()


def open_s(spec: CounterSpec) -> float:
    """Give how long a use matters to a counter without debt, at most, in seconds."""
    if spec.meter is Meter.SLIDING:
        return spec.span_s * (1 + 1 / 300)  # it leaves with the whole of its slot
    if spec.meter is Meter.GCRA:
        return spec.span_s * most_at_once(spec) / spec.ceiling
    return PERIOD_S[spec.period] if spec.meter is Meter.CALENDAR else LEASE_S
