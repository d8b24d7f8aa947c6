"""The day of three peaks, and curves from files."""

from __future__ import annotations

from pathlib import Path

import pytest

from tidegate.bench import day_curve
from tidegate.bench.arrivals import Piece
from tidegate.bench.day_curve import MAX_FILE_BYTES, Curve, Part, Point, Tokens, curve_of, parse_curve, read_curve, three_peak_day
from tidegate.errors import ConfigurationError

HOUR_S = 3600
FILE = b"""
points:
  - {at: 00:00, rate: 1, name: night, tokens: [100, 500], prompt_ratio: 0.6}
  - {at: 09:00:00, rate: 1}
  - {at: 09:30, rate: 8, name: morning, mix: {support_chat: 3, legal_text: 1}}
  - {at: 36000, rate: 8, tokens: 300}
  - {at: "10:00", rate: 2, prompt_ratio: 0.1}
  - {at: "12:00", rate: 2, mix: {}}
  - {at: "24:00", rate: 1}
"""


def _part(name: str) -> Part:
    return next(part for part in three_peak_day().parts if part.name == name)


@pytest.mark.parametrize(
    ("name", "begins", "ends", "tokens"),
    [
        ("morning peak", 9.25, 10.75, (340, 1_020)),
        ("noon peak", 12.5, 13 + 50 / 60, (105, 315)),
        ("evening peak", 20.0, 22.5, (120, 2_100)),
    ],
)
def test_the_peaks_are_where_and_what_they_are_said_to_be(name: str, begins: float, ends: float, tokens: tuple[int, int]) -> None:
    """680 tokens on average in the morning, 210 at noon, 120 to 2,100 in the evening."""
    part = _part(name)
    assert (begins * HOUR_S, ends * HOUR_S) == pytest.approx((part.begins_s, part.begins_s + part.length_s))
    assert part.tokens is not None
    assert tokens == (part.tokens.least, part.tokens.most)


def test_the_means_are_the_middles() -> None:
    """Lengths are drawn evenly, so the mean that is spoken of is the middle of the range."""
    means = [(part.tokens.least + part.tokens.most) / 2 for part in (_part("morning peak"), _part("noon peak")) if part.tokens]
    assert [680, 210] == means


def test_a_third_of_the_day_is_noon() -> None:
    """32 % of the requests come in the noon peak, more than in any other part, and the shares are a whole day."""
    shares = {part.name: part.expected for part in three_peak_day().parts}
    assert pytest.approx(1.0) == sum(shares.values())
    assert pytest.approx(0.32) == shares["noon peak"]
    assert "noon peak" == max(shares, key=lambda name: shares[name])


def test_there_are_three_peaks_and_two_valleys() -> None:
    """The rate of each valley is below those of the peaks beside it, and a peak rises without a jump."""
    day = three_peak_day()
    tops = [day.rate(hour * HOUR_S) for hour in (10, 11.5, 13, 17, 21)]
    assert tops[1] < min(tops[0], tops[2])
    assert tops[3] < min(tops[2], tops[4])
    assert pytest.approx(day.rate(9.2 * HOUR_S)) == day.rate(9.25 * HOUR_S)
    assert 0.0 == day.rate(24 * HOUR_S)


def test_a_day_is_played_faster_with_the_rate_that_is_asked_for() -> None:
    """24 hours in a minute: lengths shrink, the mean rate is the one of the run, the shares stay."""
    played = three_peak_day().played(50, 1_440)
    assert pytest.approx(60) == played.length_s
    assert pytest.approx(50 * 60) == sum(part.expected for part in played.parts)
    assert pytest.approx(0.32 * 3_000) == next(part.expected for part in played.parts if part.name == "noon peak")


def test_a_file_is_read_with_what_holds_on() -> None:
    """Tokens and mix hold until a point says otherwise; two points at one instant are a jump, an empty mix is the load's own."""
    mix = (("support_chat", 3.0), ("legal_text", 1.0))
    night = Part("night", (Piece(0, 32_400, 1, 1), Piece(32_400, 1_800, 1, 8)), Tokens(100, 500, 0.6))
    morning = Part("morning", (Piece(34_200, 1_800, 8, 8),), Tokens(100, 500, 0.6), mix)
    late = Part("10:00", (Piece(36_000, 7_200, 2, 2),), Tokens(300, 300, 0.1), mix)
    rest = Part("12:00", (Piece(43_200, 43_200, 2, 1),), Tokens(300, 300, 0.1))
    assert Curve("day.yaml", (night, morning, late, rest)) == parse_curve(FILE, name="day.yaml")


def test_a_ratio_without_tokens_says_nothing() -> None:
    """Where no tokens are given the scenarios' own lengths hold."""
    assert curve_of("c", [Point(0, 1, prompt_ratio=0.5), Point(10, 1)]).parts[0].tokens is None


def test_a_file_comes_from_a_path(tmp_path: Path) -> None:
    """The curve is called as its file."""
    path = tmp_path / "day.yaml"
    path.write_bytes(FILE)
    assert parse_curve(FILE, name=str(path)) == read_curve(path)


@pytest.mark.parametrize(
    ("expected", "text"),
    [
        ("line 3: this is not YAML: .*; correct it", "points:\n  - {at: [\n"),
        ("line 1: this is not YAML that can be read", "\x00"),
        ("line 1: this is not YAML that can be read", "[" * 500),
        ("line 1: a curve file is a mapping", ""),
        ("line 1: a curve file is a mapping", "- 1"),
        ('line 1: "pints" is not known here; use points', "pints: []"),
        ("line 1: there is no list `points`", "{}"),
        ("line 1: there is no list `points`", "points: 3"),
        ("line 2: this is not a mapping", "points:\n  - 3"),
        ("line 2: a point has no `rate`", "points:\n  - {at: 3}"),
        ("line 2: a point has no `at`", "points:\n  - {rate: 3}"),
        ('line 3: "at" appears twice; use at, rate', "points:\n  - at: 0\n    at: 1"),
        ('line 2: "weight" is not known here; use at, rate', "points:\n  - {at: 0, weight: 1}"),
        ('line 2: "fast" is not a number from 0 to', "points:\n  - {at: 0, rate: fast}"),
        ('line 2: "-1" is not a number from 0 to', "points:\n  - {at: 0, rate: -1}"),
        ('line 2: "nan" is not a number from 0 to', "points:\n  - {at: 0, rate: nan}"),
        ('line 2: "2" is not a number from 0 to 1;', "points:\n  - {at: 0, rate: 1, prompt_ratio: 2}"),
        ("line 2: here is a list or a mapping", "points:\n  - {at: [1], rate: 1}"),
        ("line 2: here is a list or a mapping", "points:\n  - {[at]: 1, rate: 1}"),
        ("line 2: 3.59964e.06 s is beyond a month", "points:\n  - {at: '999:54', rate: 1}"),
        ("line 2: tokens are one number, or", "points:\n  - {at: 0, rate: 1, tokens: [1, 2, 3]}"),
        ("line 2: least is above most, or below 2", "points:\n  - {at: 0, rate: 1, tokens: [9, 3]}"),
        ("line 2: least is above most, or below 2", "points:\n  - {at: 0, rate: 1, tokens: 1}"),
        ("line 2: no scenario of the mix has a weight", "points:\n  - {at: 0, rate: 1, mix: {a: 0}}"),
        ('line 2: "a" appears twice; name each once', "points:\n  - {at: 0, rate: 1, mix: {a: 1, a: 2}}"),
        ("line 4: the point is before the one above it", "points:\n- {at: 0, rate: 1}\n- {at: 9, rate: 1}\n- {at: 8, rate: 1}"),
        ("a first point at", "points: []"),
        ("a first point at", "points: [{at: 1, rate: 1}, {at: 2, rate: 1}]"),
        ("a first point at", "points: [{at: 0, rate: 1}, {at: 0, rate: 1}]"),
        ("every rate is 0", "points: [{at: 0, rate: 0}, {at: 1, rate: 0}]"),
    ],
)
def test_a_broken_file_is_refused_with_its_line(expected: str, text: str) -> None:
    """The message names file and line, says what is wrong and what to do."""
    with pytest.raises(ConfigurationError, match=expected) as refusal:
        parse_curve(text.encode(), name="day.yaml")
    assert refusal.value.message.startswith("day.yaml")


def test_a_file_that_cannot_be_a_curve_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No file, one that is far too large, or too many points."""
    monkeypatch.setattr(day_curve, "MAX_POINTS", 2)
    with pytest.raises(ConfigurationError, match="line 1: there are more than 2 points; leave some out"):
        parse_curve(b"points: [1, 2, 3]", name="day.yaml")
    with pytest.raises(ConfigurationError, match="cannot be read: No such file"):
        read_curve(tmp_path / "none.yaml")
    large = tmp_path / "large.yaml"
    large.write_bytes(b"#" * (MAX_FILE_BYTES + 1))
    with pytest.raises(ConfigurationError, match="is this the right file"):
        read_curve(large)
