"""What the steps of a ladder ask for."""

from __future__ import annotations

import pytest

from tidegate.domain.request import BodyChanges
from tidegate.domain.units import UpstreamName
from tidegate.domain.upstream import Target
from tidegate.policy.resilience.ladder import Ladder

Q4, Q8 = Target(UpstreamName("q4")), Target(UpstreamName("q8"))


@pytest.mark.parametrize(
    ("cap", "changes", "expected"),
    [
        (100, None, 70),
        (1, None, 1),
        (None, None, None),
        (1000, BodyChanges(max_completion_tokens=100), 70),
        (100, BodyChanges(temperature=0.5), 70),
    ],
)
def test_a_shorter_answer_is_seven_tenths_of_the_cap_in_force(cap: int | None, changes: BodyChanges | None, expected: int | None) -> None:
    """An answer without a cap keeps none; one token is the least."""
    assert Ladder().shorter(cap, changes) == BodyChanges(max_completion_tokens=expected, temperature=0.1)


@pytest.mark.parametrize(
    ("ladder", "precise", "expected"),
    [
        (Ladder(smaller=Q4, smaller_precise=Q8), True, Q8),
        (Ladder(smaller=Q4, smaller_precise=Q8), False, Q4),
        (Ladder(smaller=Q4), True, Q4),
        (Ladder(smaller_precise=Q8), False, Q8),
        (Ladder(), True, None),
    ],
)
def test_the_smaller_model_fits_the_prompt(ladder: Ladder, *, precise: bool, expected: Target | None) -> None:
    """Figures and formulas go to the finer one; where there is one only, it serves all."""
    assert expected == ladder.smaller_for(precise=precise)
    assert ladder.asks_precision is (ladder.smaller is not None and ladder.smaller_precise is not None)
