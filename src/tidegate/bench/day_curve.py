"""How the rate of requests goes over a day, and what is asked for when: the day of three peaks, or any curve from a YAML file.

A curve is a row of points with straight lines between them; two points at one instant are a jump. Rates are relative: how many requests
there are is for the load to say. A *part* begins at each point that has a name, tokens or a mix of its own, and is reported by itself.

    points:
      - {at: "00:00", rate: 1, name: night, tokens: [100, 500], prompt_ratio: 0.6}
      - {at: "09:00", rate: 1}
      - {at: "09:30", rate: 8, name: morning, mix: {support_chat: 3, legal_text: 1}}
      - {at: "24:00", rate: 1}

`tokens` are those of a whole request, prompt and completion, drawn evenly from least to most (their mean is the middle); `prompt_ratio`
of them are the prompt. Both, and the mix, hold until another point says otherwise; `mix: {}` goes back to the load's own. `at` is a time of
day, or seconds from the beginning.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

import msgspec
import yaml

from tidegate.bench.arrivals import Piece
from tidegate.errors import ConfigurationError

MAX_FILE_BYTES = 1_048_576
"""10,000 points are less; a larger file is not a curve."""
MAX_POINTS = 10_000
"""One for every nine seconds of a day."""
LONGEST_S = 31 * 86_400.0
"""A month: a longer one is a mistake in the unit."""

_HIGHEST_RATE = 1e9
_MOST_TOKENS = 1_000_000
_FEWEST_TOKENS = 2  # one of the prompt, one of the completion
_ENDS = 2  # of a range
_TIME = re.compile(r"(\d{1,3}):([0-5]\d)(?::([0-5]\d))?")
_KEYS = ("at", "rate", "name", "tokens", "prompt_ratio", "mix")


class Tokens(msgspec.Struct, frozen=True):
    """The tokens of a request, prompt and completion together, drawn evenly."""

    least: int
    most: int
    prompt_ratio: float = 0.5


class Point(msgspec.Struct, frozen=True):
    """Where a curve bends; what is None goes on as it was."""

    at_s: float
    rate: float
    name: str = ""
    tokens: tuple[int, int] | None = None
    prompt_ratio: float | None = None
    mix: tuple[tuple[str, float], ...] | None = None
    line: int = 0


class _Stretch(msgspec.Struct, frozen=True):
    """A part of the day of three peaks."""

    name: str
    ends_s: float
    share: float
    """Of the day's requests."""
    tokens: tuple[int, int] = (120, 680)
    prompt_ratio: float = 0.6
    mix: tuple[tuple[str, float], ...] = ()
    is_peak: bool = False


_STRETCHES = (
    _Stretch("night", 9.25 * 3600, 0.08),
    _Stretch("morning peak", 10.75 * 3600, 0.20, (340, 1_020), 0.85, (("legal_text", 3.0), ("support_chat", 1.0)), is_peak=True),
    _Stretch("first valley", 12.5 * 3600, 0.08),
    _Stretch("noon peak", 13.0 * 3600 + 3000, 0.32, (105, 315), 0.7, (("code_comments", 1.0),), is_peak=True),
    _Stretch("second valley", 20.0 * 3600, 0.12),
    _Stretch("evening peak", 22.5 * 3600, 0.18, (120, 2_100), 0.25, (("product_copy", 3.0), ("support_chat", 1.0)), is_peak=True),
    _Stretch("late evening", 24.0 * 3600, 0.02),
)
_RISE_S = 900.0


class Part(msgspec.Struct, frozen=True):
    """A stretch of the curve in which the same is asked for."""

    name: str
    pieces: tuple[Piece, ...]
    tokens: Tokens | None = None
    """None: as the scenarios say."""
    mix: tuple[tuple[str, float], ...] = ()
    """Scenarios by name, with weights; empty: as the load says."""

    @property
    def begins_s(self) -> float:
        return self.pieces[0].begins_s

    @property
    def length_s(self) -> float:
        return self.pieces[-1].ends_s - self.pieces[0].begins_s

    @property
    def expected(self) -> float:
        """Give the mean number of requests."""
        return sum(piece.expected for piece in self.pieces)


class Curve(msgspec.Struct, frozen=True):
    """A whole curve, from 0 to `length_s`, without a gap."""

    name: str
    parts: tuple[Part, ...]

    @property
    def pieces(self) -> tuple[Piece, ...]:
        return tuple(piece for part in self.parts for piece in part.pieces)

    @property
    def length_s(self) -> float:
        return self.parts[-1].begins_s + self.parts[-1].length_s

    def rate(self, at_s: float) -> float:
        """Give the rate at an instant; 0 outside of the curve."""
        return next((piece.rate(at_s) for piece in self.pieces if piece.begins_s <= at_s < piece.ends_s), 0.0)

    def played(self, mean_per_s: float, factor: float) -> Curve:
        """Give the curve `factor` times as fast, with that mean rate when it is so played."""
        rise = mean_per_s * self.length_s / sum(piece.expected for piece in self.pieces)

        def faster(piece: Piece) -> Piece:
            return Piece(piece.begins_s / factor, piece.length_s / factor, piece.from_per_s * rise, piece.to_per_s * rise)

        parts = tuple(msgspec.structs.replace(part, pieces=tuple(faster(piece) for piece in part.pieces)) for part in self.parts)
        return Curve(self.name, parts)


def three_peak_day() -> Curve:
    """Give the working day of an office suite with three peaks and two valleys.

    9:15-10:45 at 680 tokens a request, mostly of long prompts; 12:30-13:50 with 32 % of the day's requests at 210 tokens; 20:00-22:30 at
    120 to 2,100. The shares of the other hours are ours; a peak takes a quarter of an hour to rise from what was before, and to fall.
    """
    points: list[Point] = []
    begins_s = before = 0.0
    for place, stretch in enumerate(_STRETCHES):
        length_s = stretch.ends_s - begins_s
        if stretch.is_peak:
            after = _STRETCHES[place + 1].share / (_STRETCHES[place + 1].ends_s - stretch.ends_s)
            top = (stretch.share - _RISE_S * (before + after) / 2) / (length_s - _RISE_S)
            bends = [(begins_s, before), (begins_s + _RISE_S, top), (stretch.ends_s - _RISE_S, top), (stretch.ends_s, after)]
        else:
            before = stretch.share / length_s
            bends = [(begins_s, before), (stretch.ends_s, before)]
        first, *others = bends
        points.append(Point(*first, name=stretch.name, tokens=stretch.tokens, prompt_ratio=stretch.prompt_ratio, mix=stretch.mix))
        points += (Point(at_s, rate) for at_s, rate in others)
        begins_s = stretch.ends_s
    return curve_of("the day of three peaks", points)


def curve_of(name: str, points: Sequence[Point]) -> Curve:
    """Put points together; they must begin at 0, be in order, span some time, and have a rate above 0."""
    if not points or points[0].at_s != 0 or points[-1].at_s <= 0:
        raise ConfigurationError(f'{name}: a curve has a first point at "00:00" and a last one where it ends; add them')
    if not any(point.rate for point in points):
        raise ConfigurationError(f"{name}: every rate is 0, so nothing would be sent; give a point a rate above 0")
    parts: list[Part] = []
    for point, following in pairwise(points):
        if following.at_s < point.at_s:
            raise ConfigurationError(
                f"{name}, line {following.line}: the point is before the one above it; put the points in order of time"
            )
        says_more = point.name or point.tokens or point.prompt_ratio is not None or point.mix is not None
        if says_more or not parts:
            parts.append(_part(parts[-1] if parts else None, point))
        if following.at_s > point.at_s:
            piece = Piece(point.at_s, following.at_s - point.at_s, point.rate, following.rate)
            parts[-1] = msgspec.structs.replace(parts[-1], pieces=(*parts[-1].pieces, piece))
    return Curve(name, tuple(part for part in parts if part.pieces))


def _part(before: Part | None, point: Point) -> Part:
    tokens = before.tokens if before else None
    if point.tokens:
        tokens = Tokens(*point.tokens, prompt_ratio=tokens.prompt_ratio if tokens else 0.5)
    if point.prompt_ratio is not None and tokens:
        tokens = Tokens(tokens.least, tokens.most, point.prompt_ratio)
    hours, seconds = divmod(round(point.at_s), 3600)
    mix = point.mix if point.mix is not None else before.mix if before else ()
    return Part(point.name or f"{hours:02}:{seconds // 60:02}", (), tokens, mix)


def read_curve(path: Path) -> Curve:
    """Read a file; `ConfigurationError` names the line that is at fault."""
    try:
        with path.open("rb") as file:
            content = file.read(MAX_FILE_BYTES + 1)
    except OSError as error:
        raise ConfigurationError(f"{path} cannot be read: {error.strerror}; give the path of a YAML file with a curve") from error
    if len(content) > MAX_FILE_BYTES:
        raise ConfigurationError(f"{path} has more than {MAX_FILE_BYTES:,} bytes; a curve is far shorter: is this the right file?")
    return parse_curve(content, name=str(path))


def parse_curve(content: bytes, *, name: str) -> Curve:
    """Read the text of a file as `read_curve` does."""
    try:
        root = yaml.compose(content, Loader=yaml.SafeLoader)
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        raise ConfigurationError(f"{name}, line {line}: this is not YAML: {error.problem}; correct it") from error
    except (yaml.YAMLError, RecursionError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"{name}, line 1: this is not YAML that can be read; give a text file with a list `points`") from error
    return _CurveFile(name).curve(root)


class _CurveFile:
    """Reads nodes, and says where one is not what it should be. Never deeper than the three levels that a curve has."""

    def __init__(self, name: str) -> None:
        self._name = name

    def curve(self, root: yaml.Node | None) -> Curve:
        if not isinstance(root, yaml.MappingNode):
            raise self._wrong(root, "a curve file is a mapping", "begin it with `points:`")
        entries = self._entries(root, ("points",))
        listed = entries.get("points")
        if not isinstance(listed, yaml.SequenceNode):
            raise self._wrong(listed or root, "there is no list `points`", "add one, each with `at` and `rate`")
        if len(listed.value) > MAX_POINTS:
            raise self._wrong(listed, f"there are more than {MAX_POINTS:,} points", "leave some out: lines are straight between them")
        return curve_of(self._name, [self._point(node) for node in listed.value])

    def _point(self, node: yaml.Node) -> Point:
        entries = self._entries(node, _KEYS)
        for key in ("at", "rate"):
            if key not in entries:
                raise self._wrong(node, f"a point has no `{key}`", 'write, for example, {at: "09:15", rate: 3}')
        ratio = entries.get("prompt_ratio")
        mix = entries.get("mix")
        return Point(
            self._instant(entries["at"]),
            self._number(entries["rate"], _HIGHEST_RATE),
            name=self._text(entries["name"])[:80] if "name" in entries else "",
            tokens=self._tokens(entries["tokens"]) if "tokens" in entries else None,
            prompt_ratio=None if ratio is None else self._number(ratio, 1.0),
            mix=None if mix is None else self._mix(mix),
            line=node.start_mark.line + 1,
        )

    def _entries(self, node: yaml.Node, allowed: Sequence[str] = ()) -> dict[str, yaml.Node]:
        """Give a mapping's values by key; any key is allowed where none are named."""
        if not isinstance(node, yaml.MappingNode):
            raise self._wrong(node, "this is not a mapping", "write `key: value`")
        entries: dict[str, yaml.Node] = {}
        for key, value in node.value:
            name = self._text(key)
            if name in entries or (allowed and name not in allowed):
                problem = f'"{name[:40]}" appears twice' if name in entries else f'"{name[:40]}" is not known here'
                raise self._wrong(key, problem, f"use {', '.join(allowed)}, each once" if allowed else "name each once")
            entries[name] = value
        return entries

    def _mix(self, node: yaml.Node) -> tuple[tuple[str, float], ...]:
        mix = tuple((name, self._number(weight, _HIGHEST_RATE)) for name, weight in self._entries(node).items())
        if mix and not any(weight for _, weight in mix):
            raise self._wrong(node, "no scenario of the mix has a weight above 0", "write, for example, {support_chat: 3, legal_text: 1}")
        return mix

    def _tokens(self, node: yaml.Node) -> tuple[int, int]:
        limits = [int(self._number(limit, _MOST_TOKENS)) for limit in (node.value if isinstance(node, yaml.SequenceNode) else [node])]
        if len(limits) not in {1, _ENDS}:
            raise self._wrong(node, "tokens are one number, or [least, most]", "write, for example, [120, 2100]")
        least, most = limits[0], limits[-1]
        if not _FEWEST_TOKENS <= least <= most:
            raise self._wrong(node, "least is above most, or below 2", "a request has a token of prompt and one of completion at least")
        return least, most

    def _instant(self, node: yaml.Node) -> float:
        match = _TIME.fullmatch(self._text(node))
        at_s = self._number(node, LONGEST_S) if match is None else int(match[1]) * 3600.0 + int(match[2]) * 60 + int(match[3] or 0)
        if at_s > LONGEST_S:
            raise self._wrong(node, f"{at_s:g} s is beyond a month", 'write a time of day such as "09:15", or seconds')
        return at_s

    def _number(self, node: yaml.Node, most: float) -> float:
        text = self._text(node)
        try:
            value = float(text)
        except ValueError:
            value = -1.0
        if not 0 <= value <= most:
            raise self._wrong(node, f'"{text[:40]}" is not a number from 0 to {most:g}', "correct it")
        return value

    def _text(self, node: yaml.Node) -> str:
        if not isinstance(node, yaml.ScalarNode):
            raise self._wrong(node, "here is a list or a mapping where one value is wanted", "write a single value")
        return str(node.value)

    def _wrong(self, node: yaml.Node | None, problem: str, remedy: str) -> ConfigurationError:
        line = node.start_mark.line + 1 if node is not None else 1
        return ConfigurationError(f"{self._name}, line {line}: {problem}; {remedy}")
