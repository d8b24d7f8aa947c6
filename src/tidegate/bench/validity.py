"""Whether a run counts: was it the server that was measured, or the client?

A run is invalid when requests were sent later than they were due, too few were sent in time, a client had too many under way to send more,
or its event loop stood still, so that marks were made late. An invalid run is not slow or fast: it says nothing, and every output has to
say so. In a closed loop nothing is due, so that lag and rate cannot be missed; what a closed loop hides is said of it instead.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from tidegate.bench.sample import ClientHealth

LONGEST_LAG_S: Final = 0.005
LAG_OF_TTFT: Final = 0.01
"""The lag may be longer where first tokens take so long that it is below this share of them."""
LEAST_SENT_RATIO: Final = 0.98
LONGEST_STALL_S: Final = 0.1
LONGEST_LOOP_LAG_P99_S: Final = 0.01
LEAST_TO_DOUBT: Final = 100
"""Requests of which one hundredth is one: while a run goes, fewer say nothing of how it will end."""
BUSY_RATIO: Final = 0.9
"""CPU of a client process above which its figures are worth a second look."""


class RunConditions(msgspec.Struct, frozen=True):
    """What is known of how a run was driven."""

    closed_loop: bool
    requests: int
    """That were sent."""
    lag_p99_s: float | None
    ttft_p50_s: float | None
    """From due; of answers that are no streams, when they ended."""
    sent_ratio: float | None
    clients: tuple[ClientHealth, ...]


def check(conditions: RunConditions) -> tuple[str, ...]:
    """Give the reasons why a run does not count, in words; none when it does."""
    if not conditions.requests:
        return ("no request was sent",)
    reasons = [] if conditions.closed_loop else _pace(conditions)
    for client in conditions.clients:
        reasons.extend(_stalls(client))
    return tuple(reasons)


def busy_clients(clients: Sequence[ClientHealth]) -> tuple[str, ...]:
    """Give what does not make a run invalid but should be known: clients that were near their limit."""
    return tuple(
        f"client {client.client} used {100 * client.cpu_ratio:.0f} % of a core: with more clients it would have more in reserve"
        for client in clients
        if client.cpu_ratio > BUSY_RATIO
    )


def longest_lag_s(ttft_p50_s: float | None) -> float:
    """Give the lag that is still harmless."""
    return max(LONGEST_LAG_S, LAG_OF_TTFT * (ttft_p50_s or 0.0))


def _pace(conditions: RunConditions) -> list[str]:
    reasons: list[str] = []
    lag_s, limit_s = conditions.lag_p99_s, longest_lag_s(conditions.ttft_p50_s)
    if lag_s is not None and lag_s > limit_s:
        reasons.append(
            f"1 % of the requests were sent more than {1000 * lag_s:.1f} ms after they were due (at most {1000 * limit_s:.1f} ms);"
            " use more clients or a faster machine"
        )
    ratio = conditions.sent_ratio
    if ratio is not None and ratio < LEAST_SENT_RATIO:
        reasons.append(
            f"only {100 * ratio:.1f} % of the requests that were due were sent in time (at least {100 * LEAST_SENT_RATIO:.0f} %)"
        )
    return reasons


def _stalls(client: ClientHealth) -> list[str]:
    reasons: list[str] = []
    if client.cap_reached:
        reasons.append(
            f"client {client.client} held {client.cap_reached} requests back because it had as many under way as it may;"
            " raise the cap or use more clients"
        )
    if client.loop_lag_max_s > LONGEST_STALL_S:
        reasons.append(f"the event loop of client {client.client} stood still for {1000 * client.loop_lag_max_s:.0f} ms")
    elif client.loop_lag_p99_s > LONGEST_LOOP_LAG_P99_S:
        reasons.append(f"the event loop of client {client.client} was often late: its p99 is {1000 * client.loop_lag_p99_s:.1f} ms")
    return reasons
