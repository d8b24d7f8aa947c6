"""What clients choose is masked before it is kept."""

from __future__ import annotations

import pytest

from tidegate.adapters.records.lines import without_credentials
from tidegate.domain.outcome import Outcome
from tidegate.domain.record import RequestRecord


@pytest.mark.parametrize(("feature", "expected"), [("billing", "billing"), ("Bearer abcdefghijkl", "Bearer ****"), ("", "")])
def test_a_key_pasted_as_a_feature_is_masked(feature: str, expected: str) -> None:
    """The business context is the client's own words."""
    record = RequestRecord("r", 0.0, "chat", Outcome.OK, 200, 1.0, feature=feature)
    assert expected == without_credentials(record).feature
