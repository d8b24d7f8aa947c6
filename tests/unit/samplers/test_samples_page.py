"""The page of samples says what the code does."""

from __future__ import annotations

from pathlib import Path

from tidegate.analytics.samples import page

PAGE = Path(__file__).parents[3] / "docs" / "samples.md"


def test_every_metric_stands_in_the_page() -> None:
    """As it is declared."""
    assert "\n".join(page()) in PAGE.read_text()
