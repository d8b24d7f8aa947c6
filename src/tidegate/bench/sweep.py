"""Which rate to try next, so that the highest one that a target holds is found in few steps.

The rate is doubled until a step does not hold, or halved until one does; then the gap between the two is halved, on a logarithmic scale,
until it is a tenth. Whether a step holds is judged by what was sent, not by what was asked for: by chance the one differs from the other.

Pure: the next step follows from the steps so far. No sweep has more than `MAX_STEPS`.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

MAX_STEPS = 24
"""Doubling from 1/s to 100,000/s takes 17, and closing in on a tenth 4."""
LEAST_PER_S = 0.01
"""A request in 100 s: a target that cannot hold it holds nothing."""
HIGHEST_PER_S = 100_000.0
"""Far beyond what one machine can send."""
_CLOSE = 1.1  # the lowest rate that failed over the highest that held, at which we know enough
_GOOD = 0.95  # of what was sent must be good
_KEPT = 0.9  # of the rate must be sent: less is no test of that rate


class StepResult(msgspec.Struct, frozen=True):
    """What one stage gave."""

    rate_per_s: float
    achieved_per_s: float
    goodput_per_s: float
    ttft_p99_s: float | None
    """None: no answer began."""
    valid: bool
    success_ratio: float


class SweepEnd(msgspec.Struct, frozen=True):
    """The sweep is over. `saturation_per_s`: the highest rate that held; None: none did."""

    saturation_per_s: float | None
    reason: str
    """A sentence for the report."""


def next_step(
    history: Sequence[StepResult],
    *,
    start_per_s: float = 1.0,
    success_ratio: float = 0.99,
    ttft_p99_s: float | None = None,
) -> float | SweepEnd:
    """Give the rate to try next, or the end. A step holds with at least `success_ratio`, and a p99 of TTFT of at most `ttft_p99_s`."""
    if not history:
        return start_per_s

    def held(step: StepResult) -> bool:
        in_time = ttft_p99_s is None or (step.ttft_p99_s is not None and step.ttft_p99_s <= ttft_p99_s)
        good = step.goodput_per_s >= _GOOD * step.achieved_per_s and step.success_ratio >= success_ratio
        return step.valid and good and in_time and step.achieved_per_s >= _KEPT * step.rate_per_s

    failed = [step for step in history if not held(step)]
    first_failed = min(failed, key=lambda step: step.rate_per_s, default=None)
    ceiling = float("inf") if first_failed is None else first_failed.rate_per_s
    # What held above a rate that failed was luck: load is not got used to.
    floor = max((step.rate_per_s for step in history if held(step) and step.rate_per_s < ceiling), default=None)
    if first_failed is None:
        return _upwards(history)
    if floor is None:
        if ceiling / 2 < LEAST_PER_S or len(history) >= MAX_STEPS:
            return SweepEnd(None, f"No rate held, down to {ceiling:g}/s: {_why(first_failed)}.")
        return ceiling / 2
    if ceiling <= _CLOSE * floor or len(history) >= MAX_STEPS:
        return SweepEnd(floor, f"{floor:g}/s held and {ceiling:g}/s did not: {_why(first_failed)}.")
    return float((floor * ceiling) ** 0.5)


def _upwards(history: Sequence[StepResult]) -> float | SweepEnd:
    """Double what held, as long as there is room."""
    highest = max(step.rate_per_s for step in history)
    if len(history) >= MAX_STEPS or highest * 2 > HIGHEST_PER_S:
        return SweepEnd(highest, f"Every rate held up to {highest:g}/s, where the sweep ends: the target may take more.")
    return highest * 2


def _why(step: StepResult) -> str:
    """Say who could not follow: a sweep that ends at the client says nothing about the target's limit."""
    if not step.valid:
        return "the client was the bottleneck there, so the target may take more; use more client processes or another machine"
    return f"{step.success_ratio:.1%} of its requests succeeded, and {step.goodput_per_s:g}/s of {step.achieved_per_s:g}/s were good"
