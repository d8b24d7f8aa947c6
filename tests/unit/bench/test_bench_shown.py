"""Figures as people read them."""

from __future__ import annotations

import pytest

from tidegate.bench import shown


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (None, "–"),
        (0.0, "0 µs"),
        (2.5e-5, "25 µs"),
        (0.0123, "12.3 ms"),
        (0.25, "250 ms"),
        (1.234, "1.23 s"),
        (90.0, "90 s"),
        (1200.0, "20.0 min"),
    ],
)
def test_durations_have_units_of_their_size(seconds: float | None, text: str) -> None:
    """Three digits that count; a dash where nothing was measured."""
    assert text == shown.time_s(seconds)


@pytest.mark.parametrize(("ratio", "text"), [(None, "–"), (1.0, "100 %"), (0.99999, "99.99 %"), (0.5, "50 %"), (0.0012, "0.12 %")])
def test_what_is_not_everything_never_reads_a_hundred_per_cent(ratio: float | None, text: str) -> None:
    """One failure among a million is seen."""
    assert text == shown.share(ratio)


def test_rates_numbers_changes_and_money() -> None:
    """Each with its own sign of nothing."""
    assert ["12.3/s", "1,235/s", "–"] == [shown.per_s(12.34), shown.per_s(1234.6), shown.per_s(None)]
    assert ["1,000", "–"] == [shown.count(1000), shown.count(None)]
    assert ["+5.0 %", "-50.0 %", "–"] == [shown.change(0.05), shown.change(-0.5), shown.change(None)]
    assert ["0.0003067 USD", "1,234.50 CNY", "0.5", "–"] == [
        shown.money(0.00030672, "USD"),
        shown.money(1234.5, "CNY"),
        shown.money(0.5, ""),
        shown.money(None, "USD"),
    ]
