"""Make the plan of a run: from what was asked for to each request and the instant it is due.

Arrivals and requests are drawn from generators of their own, both from the one seed: with another mix or other lengths the same instants
come. Same options, same plan.
"""

from __future__ import annotations

from bisect import bisect
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate, islice, repeat, takewhile
from math import ceil
from random import Random
from typing import assert_never

import msgspec

from tidegate.bench import arrivals
from tidegate.bench.arrivals import Piece
from tidegate.bench.day_curve import LONGEST_S, Part, Tokens, read_curve, three_peak_day
from tidegate.bench.load_options import Load, LoadOptions, check_load
from tidegate.bench.plan import CurvePoint, Plan, PlannedRequest, Scenario, Stage
from tidegate.bench.scenarios import built_in
from tidegate.bench.traces import MAX_REQUESTS, TraceRequest, read_trace
from tidegate.errors import ConfigurationError

DEFAULT_LENGTH_S = 60.0

_FASTEST_PLACE_PER_S = 1_000  # no answer takes less than a millisecond
_FASTEST_CLIENTS_PER_S = 5_000  # what the client processes of one machine send
_TRACE_POINTS = 100  # of the curve that a trace is drawn as


class _Course(msgspec.Struct, frozen=True):
    """A load, ready to be drawn."""

    load: str
    dues: Iterable[float]
    stages: tuple[Stage, ...]
    length_s: float
    curve: tuple[CurvePoint, ...] = ()
    time_factor: float = 1.0
    parts: tuple[Part, ...] = ()
    """Of a day, one for each stage."""
    trace: tuple[TraceRequest, ...] = ()
    """Of a trace, one for each due."""
    concurrency: int | None = None


def make_plan(options: LoadOptions) -> Plan:
    """Decide everything; `ConfigurationError` says which option to change."""
    check_load(options)
    course = _course(options, Random(f"{options.seed}: arrivals"))  # noqa: S311  a seed that can be repeated is the point
    limit = options.requests or MAX_REQUESTS
    dues = list(islice(course.dues, limit + 1))
    length_s = course.length_s
    if len(dues) > limit:
        if options.requests is None:
            raise ConfigurationError(
                f"the run would have more than {MAX_REQUESTS:,} requests, which take half a gigabyte of memory; lower the rate or "
                "the length, or give the largest number of requests"
            )
        length_s = dues.pop() or length_s
    if not dues:
        raise ConfigurationError(f"no request is due within {length_s:g} s; raise the rate or the length")
    stages = tuple(_within(stage, length_s) for stage in course.stages if stage.begins_s < length_s)
    rng = Random(f"{options.seed}: requests")  # noqa: S311  as above
    return Plan(
        seed=options.seed,
        load=course.load,
        requests=tuple(_requests(options, course, dues, rng)),
        stages=stages,
        length_s=length_s,
        concurrency=course.concurrency,
        curve=tuple(point for point in course.curve if point.at_s <= length_s),
        time_factor=course.time_factor,
    )


def _within(stage: Stage, length_s: float) -> Stage:
    return msgspec.structs.replace(stage, length_s=min(stage.length_s, length_s - stage.begins_s))


# ── when ──────────────────────────────────────────────────────────────────────


def _course(options: LoadOptions, rng: Random) -> _Course:
    rate, length_s = options.rate_per_s, options.length_s or DEFAULT_LENGTH_S
    match options.load:
        case Load.CONSTANT:
            return _even(f"constant, {rate:g}/s for {length_s:g} s", arrivals.constant(rate, length_s), rate, length_s)
        case Load.POISSON:
            return _even(f"poisson, {rate:g}/s for {length_s:g} s", arrivals.poisson(rate, length_s, rng), rate, length_s)
        case Load.GAMMA:
            shape = options.burstiness
            load = f"gamma of burstiness {shape:g}, {rate:g}/s for {length_s:g} s"
            return _even(load, arrivals.gamma(rate, length_s, shape=shape, rng=rng), rate, length_s)
        case Load.RAMP:
            ends_at = rate if options.to_rate_per_s is None else options.to_rate_per_s
            ramp = Piece(0.0, length_s, rate, ends_at)
            stage = Stage("ramp", 0.0, length_s, ramp.expected / length_s)
            return _curved(f"ramp, {rate:g}/s to {ends_at:g}/s in {length_s:g} s", [ramp], (stage,), rng)
        case Load.STEPS:
            return _steps(options, rng)
        case Load.CONCURRENCY:
            return _closed(options, length_s)
        case Load.TRACE:
            return _trace(options)
        case Load.DAY:
            return _day(options, rng)
        case other:
            assert_never(other)


def _even(load: str, dues: Iterator[float], rate_per_s: float, length_s: float) -> _Course:
    curve = (CurvePoint(0.0, rate_per_s), CurvePoint(length_s, rate_per_s))
    return _Course(load, dues, (Stage(load.partition(",")[0], 0.0, length_s, rate_per_s),), length_s, curve)


def _curved(load: str, pieces: Sequence[Piece], stages: tuple[Stage, ...], rng: Random) -> _Course:
    points: list[CurvePoint] = []
    for piece in pieces:
        points += (CurvePoint(piece.begins_s, piece.from_per_s), CurvePoint(piece.ends_s, piece.to_per_s))
    return _Course(load, arrivals.along(pieces, rng), stages, pieces[-1].ends_s, tuple(points))


def _steps(options: LoadOptions, rng: Random) -> _Course:
    pieces: list[Piece] = []
    for rate, length_s in options.steps:
        pieces.append(Piece(pieces[-1].ends_s if pieces else 0.0, length_s, rate, rate))
    numbered = enumerate(pieces, start=1)
    stages = tuple(
        Stage(f"step {number}, {piece.from_per_s:g}/s", piece.begins_s, piece.length_s, piece.from_per_s) for number, piece in numbered
    )
    course = _curved(f"{len(pieces)} steps of poisson for {pieces[-1].ends_s:g} s", pieces, stages, rng)
    return course if options.length_s is None else _cut(course, options.length_s)


def _closed(options: LoadOptions, length_s: float) -> _Course:
    """Plan as many requests as the fastest target could take; the rest is never sent."""
    places = options.concurrency
    most = ceil(length_s * min(places * _FASTEST_PLACE_PER_S, _FASTEST_CLIENTS_PER_S))
    number = options.requests or min(MAX_REQUESTS, most)
    load = f"closed loop, {places} at once for {length_s:g} s"
    return _Course(load, repeat(0.0, number), (Stage("closed loop", 0.0, length_s, concurrency=places),), length_s, concurrency=places)


def _trace(options: LoadOptions) -> _Course:
    if options.trace is None:
        raise ConfigurationError("the load is a trace and no file is named; give the path of one, CSV or JSON Lines")
    requests = read_trace(options.trace)
    span_s = requests[-1].at_s / options.speedup
    # The last request has a gap behind it as others have: without it the rate would be that of one request more.
    length_s = span_s * len(requests) / (len(requests) - 1) if span_s > 0 else 1.0
    if length_s > LONGEST_S:
        raise ConfigurationError(f"{options.trace} spans {length_s:,.0f} s; give a speed-up that makes it at most {LONGEST_S:,.0f} s")
    dues = [request.at_s / options.speedup for request in requests]
    width_s = length_s / _TRACE_POINTS
    counts = [0] * (_TRACE_POINTS + 1)
    for due_s in dues:
        counts[int(due_s / width_s)] += 1
    course = _Course(
        load=f"trace {options.trace.name}, {len(requests)} requests, {options.speedup:g} times as fast",
        dues=dues,
        stages=(Stage("trace", 0.0, length_s, len(requests) / length_s),),
        length_s=length_s,
        curve=tuple(CurvePoint((place + 0.5) * width_s, counts[place] / width_s) for place in range(_TRACE_POINTS)),
        time_factor=options.speedup,
        trace=requests,
    )
    return course if options.length_s is None else _cut(course, options.length_s)


def _day(options: LoadOptions, rng: Random) -> _Course:
    original = three_peak_day() if options.curve is None else read_curve(options.curve)
    known = [scenario.name for scenario, _ in options.mix] or list(built_in())
    unknown = next((name for part in original.parts for name, _ in part.mix if name not in known), None)
    if options.curve is not None and unknown is not None:
        raise ConfigurationError(f'{options.curve} mixes in "{unknown[:40]}", which the load has not; use {", ".join(known)}, or add it')
    day = original.played(options.rate_per_s, options.compress)
    stages = tuple(Stage(part.name, part.begins_s, part.length_s, part.expected / part.length_s) for part in day.parts)
    load = f"{day.name}, {options.rate_per_s:g}/s on average for {day.length_s:g} s, {options.compress:g} times as fast"
    course = msgspec.structs.replace(_curved(load, day.pieces, stages, rng), time_factor=options.compress, parts=day.parts)
    return course if options.length_s is None else _cut(course, options.length_s)


def _cut(course: _Course, length_s: float) -> _Course:
    """End a course early."""
    dues = takewhile(lambda due_s: due_s < length_s, course.dues)
    return msgspec.structs.replace(course, dues=dues, length_s=min(course.length_s, length_s))


# ── what ──────────────────────────────────────────────────────────────────────


class _Urn:
    """The scenarios of one stage, drawn by weight."""

    def __init__(self, mix: Sequence[tuple[Scenario, float]], favoured: Sequence[tuple[str, float]]) -> None:
        """Multiply the load's weights by the part's; where that leaves nothing, the load's hold alone."""
        shares = dict(favoured)
        weights = [weight * shares.get(scenario.name, 0.0) for scenario, weight in mix]
        self._scenarios = [scenario for scenario, _ in mix]
        self._bounds = list(accumulate(weights if any(weights) else (weight for _, weight in mix)))

    def draw(self, rng: Random) -> Scenario:
        return self._scenarios[bisect(self._bounds, rng.random() * self._bounds[-1], hi=len(self._bounds) - 1)]


def _requests(options: LoadOptions, course: _Course, dues: Sequence[float], rng: Random) -> Iterator[PlannedRequest]:
    mix = options.mix or tuple((scenario, 1.0) for scenario in built_in().values())
    begins = [stage.begins_s for stage in course.stages]
    parts: Sequence[Part | None] = course.parts or [None] * len(begins)
    urns = [_Urn(mix, part.mix if part is not None else ()) for part in parts]
    by_prefix: dict[int, Scenario] = {}
    for index, due_s in enumerate(dues):
        stage = bisect(begins, due_s) - 1
        part = parts[stage]
        scenario = urns[stage].draw(rng)
        traced = course.trace[index] if course.trace else None
        if traced is not None and traced.prefix is not None:
            scenario = by_prefix.setdefault(traced.prefix, scenario)  # another scenario has another text: nothing would be shared
        if not scenario.texts:
            traced = None
        prompt_tokens, completion_tokens = _lengths(options, scenario, traced, part.tokens if part is not None else None, rng)
        yield PlannedRequest(
            index=index,
            due_s=due_s,
            stage=stage,
            scenario=scenario.name,
            seed=rng.getrandbits(32),
            prompt_tokens=prompt_tokens,
            completion_tokens=completion_tokens,
            prefix=traced.prefix if traced is not None else None,
            prefix_tokens=min(traced.prefix_tokens, prompt_tokens) if traced is not None else 0,
        )


def _lengths(
    options: LoadOptions, scenario: Scenario, traced: TraceRequest | None, tokens: Tokens | None, rng: Random
) -> tuple[int, int | None]:
    """Give the tokens of prompt and completion: as the options say, or trace, curve and scenario, in this order."""
    prompt: int
    completion: int | None
    if not scenario.texts:  # requests of the user's own are as long as they are
        prompt = 0
        completion = None if scenario.completion_tokens is None else _between(*scenario.completion_tokens, rng)
    elif traced is not None:
        prompt, completion = traced.prompt_tokens, traced.completion_tokens
    elif tokens is not None:
        whole = _between(tokens.least, tokens.most, rng)
        prompt = min(whole - 1, max(1, round(whole * tokens.prompt_ratio)))
        completion = whole - prompt
    else:
        prompt = _between(*scenario.prompt_tokens, rng)
        completion = None if scenario.completion_tokens is None else _between(*scenario.completion_tokens, rng)
    if options.prompt_tokens is not None and scenario.texts:
        prompt = _between(*options.prompt_tokens, rng)
    if options.completion_tokens is not None:
        completion = _between(*options.completion_tokens, rng)
    return prompt, completion


def _between(least: int, most: int, rng: Random) -> int:
    return least + int(rng.random() * (most - least + 1))
