"""What one call may use: held of its limits before it runs, more of it while a long answer flows, elsewhere after a failover.

Invariants: one demand is held at a time, and another takes its place, so that nothing is held twice; output beyond the client's cap is
never held; what is held is given back or charged when the permit is settled, not here.
"""

from __future__ import annotations

from typing import Final

from tidegate.domain.demand import Demand
from tidegate.domain.request import ParsedRequest
from tidegate.domain.upstream import Choice
from tidegate.flow.charges import pictures_of
from tidegate.policy.billing.pricing import Pricing
from tidegate.ports import Denied, Permit

UNREACHED: Final = 2**48
"""Tokens that no stream reaches; an integer that is small for a machine, so that the driver compares with it for next to nothing."""

_LEAST_SLICE = 64  # tokens: about a second of a fast model, so that a stream asks at most about once a second
_LEAST_REST = 16  # tokens: what is left of a limit below this is not worth another stop


class Allowance:
    """Keeps a permit's demand in step with one call. `reserved` is held already; `cap` is the most output of one answer."""

    __slots__ = ("_at", "_cap", "_choice", "_choices", "_held", "_images", "_most", "_permit", "_pricing", "_refused", "_reserved")

    def __init__(
        self,
        permit: Permit,
        reserved: Demand,
        *,
        choices: int,
        cap: int | None,
        pricing: Pricing | None = None,
        images: int = 0,
        at: float = 0.0,
    ) -> None:
        self._permit = permit
        self._reserved = self._held = reserved
        self._choices = choices
        self._cap = cap
        self._most = UNREACHED if cap is None else cap * choices
        self._pricing = pricing
        self._images = images
        self._at = at
        self._choice: Choice | None = None
        self._refused = False
        """The permit's last word was a refusal: it is told when another target needs no more than is held."""

    def __repr__(self) -> str:
        return f"Allowance({self._held.input_tokens} in, {self._held.output_tokens} out, {self._held.cost_micro} micro)"

    @property
    def cost_micro(self) -> int:
        """What is held of cost limits: the most that the call can come to cost."""
        return self._held.cost_micro

    @property
    def extend_at(self) -> int:
        """The output tokens at which more must be held."""
        held = self._held.output_tokens
        return held if held < self._most else UNREACHED

    def move(self, choice: Choice, cap: int | None, *, now: float) -> Denied | None:
        """Hold what an attempt may use in place of what the one before it might have; a refusal leaves what is held."""
        self._choice = choice
        output = self._reserved.output_tokens
        if cap is None:
            self._most = UNREACHED
        else:
            self._most = cap * self._choices
            if cap != self._cap:
                output = min(output, self._most)
        return self._hold(output, now)

    def extend(self, flowed: int, *, now: float) -> Denied | None:
        """Hold a slice beyond what has flowed, or what little is left of the limits."""
        held = self._held.output_tokens
        wanted = min(flowed + max(_LEAST_SLICE * self._choices, held // 4), self._most)
        left = self._permit.remaining_tokens(now=now)
        if left is not None and _LEAST_REST <= left < wanted - held and held + left > flowed:
            wanted = held + left
        return self._hold(wanted, now)

    def _hold(self, output_tokens: int, now: float) -> Denied | None:
        demand, held = self._demand(output_tokens), self._held
        is_held = demand.output_tokens == held.output_tokens and demand.cost_micro == held.cost_micro  # the prompt stays as it is
        if is_held and not self._refused:
            return None
        denied = self._permit.move(demand, now=now)
        self._refused = denied is not None
        if denied is None:
            self._held = demand
        return denied

    def _demand(self, output_tokens: int) -> Demand:
        input_tokens, cost, choice = self._reserved.input_tokens, self._reserved.cost_micro, self._choice
        if self._pricing is not None and choice is not None:
            cost = self._pricing.cost_micro(
                choice.replica.upstream,
                choice.model,
                input_tokens=input_tokens,
                output_tokens=output_tokens,
                at=self._at,
                images=self._images,
            )
        return Demand(input_tokens, output_tokens, cost)


def allowance_of(
    permit: Permit, reserved: Demand, request: ParsedRequest, cap: int | None, *, pricing: Pricing | None, at: float
) -> Allowance | None:
    """Watch over what a call uses, if anything limits it. `at` is in seconds since the epoch, since prices change with the hour."""
    if pricing is None and permit.ceiling_tokens() is None and permit.ceiling_output_tokens() is None:
        return None
    images = 0 if pricing is None else pictures_of(pricing, request)
    return Allowance(permit, reserved, choices=request.choices, cap=cap, pricing=pricing, images=images, at=at)
