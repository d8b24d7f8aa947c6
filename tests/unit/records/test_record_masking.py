"""What clients choose is masked before it is kept."""

from __future__ import annotations

import pytest

from tidegate.adapters.records.lines import without_credentials
from tidegate.domain.outcome import Outcome
from tidegate.domain.record import RequestRecord


@pytest.mark.parametrize(("color", "expected"), [("bench", "bench"), ("sk-abcdefghijklmnop", "sk-****"), ("", "")])
def test_a_key_pasted_as_a_color_is_masked(color: str, expected: str) -> None:
    """It has the letters of one, so it may be one."""
    record = RequestRecord("r", 0.0, "chat", Outcome.OK, 200, 1.0, color=color)
    assert expected == without_credentials(record).color


@pytest.mark.parametrize(("feature", "expected"), [("billing", "billing"), ("Bearer abcdefghijkl", "Bearer ****"), ("", "")])
def test_a_key_pasted_as_a_feature_is_masked(feature: str, expected: str) -> None:
    """The business context is the client's own words."""
    record = RequestRecord("r", 0.0, "chat", Outcome.OK, 200, 1.0, feature=feature)
    assert expected == without_credentials(record).feature


@pytest.mark.parametrize(
    ("context", "expected"), [("order=17", "order=17"), ("token=sk-abcdefghijklmnop; a=b", "token=sk-****; a=b"), ("", "")]
)
def test_a_key_in_the_business_context_is_masked(context: str, expected: str) -> None:
    """Whatever it is called there; the rest stays."""
    record = RequestRecord("r", 0.0, "chat", Outcome.OK, 200, 1.0, business_context=context)
    assert expected == without_credentials(record).business_context
