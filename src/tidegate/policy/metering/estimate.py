"""How many tokens to hold for a request before it runs, and whether the cheap bound on its prompt is good enough.

The prompt's bound costs nothing and is three to four times too high; an exact count costs a trip to another process.
So the bound serves while it is small beside what is left, and the exact count is asked for only near a limit.
"""

from __future__ import annotations

import msgspec

DEFAULT_COMPLETION_TOKENS = 1024
"""Held per choice when the client sets no cap."""

_BOUND_IS_GOOD_BELOW = 8  # the bound may take at most 1/8 of what is left
_BYTES_PER_TOKEN = 4  # JSON of English text and its structure; Chinese is near 4 too, in bytes


class Estimate(msgspec.Struct, frozen=True, gc=False):
    """Tokens to hold."""

    prompt_tokens: int
    completion_tokens: int

    @property
    def total(self) -> int:
        return self.prompt_tokens + self.completion_tokens


def estimate(
    prompt_tokens: int,
    cap: int | None,
    choices: int,
    *,
    ceiling: int | None,
    output_ceiling: int | None = None,
    expected: int | None = None,
) -> Estimate:
    """Add the completion to the prompt: what is expected of every choice, else the client's cap, else a default.

    `ceiling` is of prompt and completion together, `output_ceiling` of completions alone; the completion is clamped to them.
    Only up to an explicit cap it is not: the client asked for that many, and is told when its limit can never give them.
    """
    if expected is None:
        expected = DEFAULT_COMPLETION_TOKENS if cap is None else cap
    completion = expected * choices
    least = 1 if cap is None else min(completion, cap * choices)
    if ceiling is not None:
        completion = min(completion, ceiling - prompt_tokens)
    if output_ceiling is not None:
        completion = min(completion, output_ceiling)
    return Estimate(prompt_tokens, max(least, completion))


def bound_is_enough(bound: int, remaining: int | None) -> bool:
    """Tell whether the prompt's cheap bound may be reserved without an exact count."""
    return remaining is None or bound * _BOUND_IS_GOOD_BELOW <= remaining


def guess_tokens(size_bytes: int) -> int:
    """Give a likely number of tokens of a JSON text, where no count could be had."""
    return -(-size_bytes // _BYTES_PER_TOKEN)
