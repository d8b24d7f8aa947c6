"""Plans: what was asked for is what is planned, and what makes no sense is refused with what to do."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from statistics import fmean

import msgspec
import pytest

from tidegate.bench import planning
from tidegate.bench.load_options import Load, LoadOptions
from tidegate.bench.plan import CurvePoint, Plan, Scenario, Stage
from tidegate.bench.planning import make_plan
from tidegate.bench.scenarios import built_in
from tidegate.errors import ConfigurationError

TEXTS = Scenario("texts", texts=("a",), prompt_tokens=(10, 20), completion_tokens=(5, 7))
OWN = Scenario("own", lines=('{"prompt":"a"}',), completion_tokens=None)


def _trace(folder: Path) -> Path:
    path = folder / "trace.jsonl"
    lines = [
        f'{{"timestamp": {second * 1000}, "input_length": {1000 + second}, "output_length": 9, "hash_ids": [0, {second}]}}'
        for second in range(1, 9)
    ]
    path.write_text("\n".join(lines))
    return path


def _options(load: Load, folder: Path) -> LoadOptions:
    return LoadOptions(
        load=load, rate_per_s=30, to_rate_per_s=60, length_s=5, steps=((5, 2), (50, 3)), concurrency=3, burstiness=0.5, trace=_trace(folder)
    )


@pytest.mark.parametrize("load", Load)
def test_equal_options_give_equal_plans(load: Load, tmp_path: Path) -> None:
    """Law: a plan follows from its options and nothing else; requests are numbered in order of their instants, within stages and length."""
    options = _options(load, tmp_path)
    plan = make_plan(options)
    assert plan == make_plan(options)
    assert list(range(len(plan.requests))) == [request.index for request in plan.requests]
    dues = [request.due_s for request in plan.requests]
    assert sorted(dues) == dues
    for request in plan.requests:
        stage = plan.stages[request.stage]
        assert stage.begins_s <= request.due_s < stage.begins_s + stage.length_s + 1e-9
        assert 0 <= request.due_s < plan.length_s
    other = make_plan(msgspec.structs.replace(options, seed=1))
    assert [request.seed for request in plan.requests[:5]] != [request.seed for request in other.requests[:5]]


def test_another_mix_leaves_the_instants_alone() -> None:
    """When requests are due is drawn by itself."""
    one = make_plan(LoadOptions())
    other = make_plan(LoadOptions(mix=((TEXTS, 1.0), (OWN, 2.0))))
    assert [request.due_s for request in one.requests] == [request.due_s for request in other.requests]


def test_constant_is_told_as_it_is() -> None:
    """Every tenth of a second, in one stage; the report has the words and the curve."""
    plan = make_plan(LoadOptions(load=Load.CONSTANT, length_s=2))
    assert [number / 10 for number in range(20)] == [request.due_s for request in plan.requests]
    assert ("constant, 10/s for 2 s", 2.0, None, 1.0) == (plan.load, plan.length_s, plan.concurrency, plan.time_factor)
    assert (Stage("constant", 0.0, 2.0, 10.0),) == plan.stages
    assert (CurvePoint(0.0, 10.0), CurvePoint(2.0, 10.0)) == plan.curve


def test_a_ramp_and_steps_have_their_stages() -> None:
    """A ramp is one stage with its mean; each step is one of its own, and has its own rate."""
    ramp = make_plan(LoadOptions(load=Load.RAMP, rate_per_s=10, to_rate_per_s=0, length_s=20))
    assert (Stage("ramp", 0.0, 20.0, 5.0),) == ramp.stages
    flat = make_plan(LoadOptions(load=Load.RAMP, rate_per_s=10, length_s=20))
    assert (CurvePoint(0.0, 10.0), CurvePoint(20.0, 10.0)) == flat.curve
    steps = make_plan(LoadOptions(load=Load.STEPS, steps=((100, 10), (200, 5), (50, 1))))
    assert (Stage("step 1, 100/s", 0, 10, 100), Stage("step 2, 200/s", 10, 5, 200), Stage("step 3, 50/s", 15, 1, 50)) == steps.stages
    counts = Counter(request.stage for request in steps.requests)
    assert all(abs(counts[place] - mean) < 4 * mean**0.5 for place, mean in enumerate((1_000, 1_000, 50)))


def test_a_closed_loop_plans_enough_and_not_too_much() -> None:
    """All are due at once; as many as the fastest target could take, or as many as are asked for."""
    plan = make_plan(LoadOptions(load=Load.CONCURRENCY, concurrency=2, length_s=0.5))
    assert (1_000, 2, {0.0}) == (len(plan.requests), plan.concurrency, {request.due_s for request in plan.requests})
    assert (Stage("closed loop", 0.0, 0.5, None, 2),) == plan.stages
    assert ("closed loop, 2 at once for 0.5 s", 0.5) == (plan.load, plan.length_s)
    assert 7 == len(make_plan(LoadOptions(load=Load.CONCURRENCY, requests=7)).requests)


def test_a_number_of_requests_ends_the_run() -> None:
    """With at most so many, the run is as long as until the next one would have been due, and later stages are gone."""
    plan = make_plan(LoadOptions(load=Load.CONSTANT, requests=15))
    assert (15, 1.5, 1.5) == (len(plan.requests), plan.length_s, plan.stages[0].length_s)
    steps = make_plan(LoadOptions(load=Load.STEPS, steps=((100, 10), (200, 5)), requests=10))
    assert (1, 2) == (len(steps.stages), len(make_plan(LoadOptions(load=Load.STEPS, steps=((100, 1), (200, 5)))).stages))
    assert 20 == len(make_plan(LoadOptions(load=Load.CONSTANT, length_s=2, requests=50)).requests)


def test_lengths_are_the_scenarios_unless_the_load_says_more() -> None:
    """Drawn evenly from the scenario's ranges, ends included; the options' ranges come first; own requests are as long as they are."""
    mix = ((TEXTS, 3.0), (OWN, 1.0))
    plan = make_plan(LoadOptions(rate_per_s=100, mix=mix))
    texts = [request for request in plan.requests if request.scenario == "texts"]
    owns = [request for request in plan.requests if request.scenario == "own"]
    assert pytest.approx(0.75, abs=0.03) == len(texts) / len(plan.requests)
    assert (set(range(10, 21)), {5, 6, 7}) == (
        {request.prompt_tokens for request in texts},
        {request.completion_tokens for request in texts},
    )
    assert {(0, None)} == {(request.prompt_tokens, request.completion_tokens) for request in owns}
    given = make_plan(LoadOptions(rate_per_s=100, mix=mix, prompt_tokens=(3, 3), completion_tokens=(4, 4)))
    assert {("texts", 3, 4), ("own", 0, 4)} == {(one.scenario, one.prompt_tokens, one.completion_tokens) for one in given.requests}


def test_the_model_may_decide_how_long_it_answers() -> None:
    """A scenario without a range of completions expects nothing; one of the user's own may expect something."""
    free = msgspec.structs.replace(TEXTS, completion_tokens=None)
    assert {None} == {request.completion_tokens for request in make_plan(LoadOptions(mix=((free, 1.0),))).requests}
    short = msgspec.structs.replace(OWN, completion_tokens=(2, 2))
    assert {2} == {request.completion_tokens for request in make_plan(LoadOptions(mix=((short, 1.0),))).requests}


@pytest.mark.parametrize(
    ("stage", "mean", "least", "most", "scenarios"),
    [
        ("morning peak", 680, 340, 1_020, {"legal_text", "support_chat"}),
        ("noon peak", 210, 105, 315, {"code_comments"}),
        ("evening peak", 1_110, 120, 2_100, {"product_copy", "support_chat"}),
        ("second valley", 400, 120, 680, set(built_in())),
    ],
)
def test_a_day_asks_for_what_its_hours_ask_for(stage: str, mean: float, least: int, most: int, scenarios: set[str]) -> None:
    """Each peak has its own lengths and scenarios."""
    plan = _day()
    place = [one.name for one in plan.stages].index(stage)
    requests = [request for request in plan.requests if request.stage == place]
    totals = [request.prompt_tokens + (request.completion_tokens or 0) for request in requests]
    assert pytest.approx(mean, rel=0.05) == fmean(totals)
    assert least <= min(totals) <= max(totals) <= most
    assert scenarios == {request.scenario for request in requests}


def _day() -> Plan:
    return make_plan(LoadOptions(load=Load.DAY, rate_per_s=200, seed=9))


def test_a_day_is_played_in_a_minute() -> None:
    """1440 times as fast: the noon peak is 3.3 s long and has 32 % of the requests."""
    plan = _day()
    assert [60.0, 1_440.0, 7] == pytest.approx([plan.length_s, plan.time_factor, len(plan.stages)])
    noon = next(stage for stage in plan.stages if stage.name == "noon peak")
    assert [80 / 24, 0.32 * 12_000 / (80 / 24)] == pytest.approx([noon.length_s, noon.rate_per_s])
    share = sum(plan.stages[request.stage] is noon for request in plan.requests) / len(plan.requests)
    assert pytest.approx(0.32, abs=0.02) == share
    assert pytest.approx(60.0) == plan.curve[-1].at_s


def test_a_day_of_ones_own_scenarios_keeps_to_them() -> None:
    """Where the day's mix knows none of the load's scenarios, the load's mix holds, with the day's lengths."""
    plan = make_plan(LoadOptions(load=Load.DAY, rate_per_s=20, mix=((TEXTS, 1.0),), length_s=24))
    assert {"texts"} == {request.scenario for request in plan.requests}
    assert (24.0, 2) == (plan.length_s, len(plan.stages))


def test_a_curve_file_is_followed(tmp_path: Path) -> None:
    """Its mix multiplies the load's weights; a name that the load does not have is refused."""
    path = tmp_path / "curve.yaml"
    path.write_text("points:\n  - {at: 0, rate: 1, mix: {texts: 1}}\n  - {at: 5, rate: 1, mix: {own: 1}}\n  - {at: 10, rate: 1}\n")
    options = LoadOptions(load=Load.DAY, curve=path, compress=2, rate_per_s=50, mix=((TEXTS, 1.0), (OWN, 1.0)))
    plan = make_plan(options)
    assert {(0, "texts"), (1, "own")} == {(request.stage, request.scenario) for request in plan.requests}
    assert (5.0, 2.0) == (plan.length_s, plan.time_factor)
    with pytest.raises(ConfigurationError, match='mixes in "own", which the load has not; use texts, or add it'):
        make_plan(msgspec.structs.replace(options, mix=((TEXTS, 1.0),)))
    with pytest.raises(ConfigurationError, match="use support_chat, product_copy, legal_text, code_comments"):
        make_plan(msgspec.structs.replace(options, mix=()))


def test_a_trace_is_replayed(tmp_path: Path) -> None:
    """Instants are divided by the speed-up; lengths and prefixes are the trace's, and who shares a prefix shares the scenario."""
    plan = make_plan(LoadOptions(load=Load.TRACE, trace=_trace(tmp_path), speedup=2))
    assert [number / 2 for number in range(8)] == [request.due_s for request in plan.requests]
    assert {(0, 512, 9)} == {(request.prefix, request.prefix_tokens, request.completion_tokens) for request in plan.requests}
    assert list(range(1_001, 1_009)) == [request.prompt_tokens for request in plan.requests]
    assert 1 == len({request.scenario for request in plan.requests})
    assert ("trace trace.jsonl, 8 requests, 2 times as fast", 4.0, 2.0) == (plan.load, plan.length_s, plan.time_factor)
    assert pytest.approx(8) == sum(point.rate_per_s for point in plan.curve) * 0.04


def test_a_trace_can_be_cut_and_shortened(tmp_path: Path) -> None:
    """A length ends it early; shorter prompts have shorter prefixes; own requests have none."""
    options = LoadOptions(load=Load.TRACE, trace=_trace(tmp_path), length_s=3, prompt_tokens=(100, 100))
    plan = make_plan(options)
    assert (3, 3.0, {100}) == (len(plan.requests), plan.length_s, {request.prefix_tokens for request in plan.requests})
    owns = make_plan(msgspec.structs.replace(options, mix=((OWN, 1.0),)))
    assert {(0, None, None, 0)} == {(one.prompt_tokens, one.completion_tokens, one.prefix, one.prefix_tokens) for one in owns.requests}


def test_a_trace_of_one_instant_is_a_burst(tmp_path: Path) -> None:
    """Requests that all came at once come at once; the run has a length all the same."""
    path = tmp_path / "trace.csv"
    path.write_text("time,input,output\n" + "5,1,1\n" * 3)
    plan = make_plan(LoadOptions(load=Load.TRACE, trace=path))
    assert (3, 1.0, {0.0}) == (len(plan.requests), plan.length_s, {request.due_s for request in plan.requests})
    assert 1.0 == make_plan(LoadOptions(load=Load.TRACE, trace=path, requests=2)).length_s


@pytest.mark.parametrize(
    ("expected", "options"),
    [
        ("the rate is 0/s; give one from", LoadOptions(rate_per_s=0)),
        ("the rate is nan/s; give one from", LoadOptions(rate_per_s=float("nan"))),
        ("the rate of a step is -1/s; give one from", LoadOptions(steps=((-1, 1),))),
        ("the ramp ends at -1/s; give a rate", LoadOptions(to_rate_per_s=-1)),
        ("a length is not above 0", LoadOptions(length_s=0)),
        ("a length is not above 0", LoadOptions(steps=((1, 1e9),))),
        ("the load is steps and 0 are given", LoadOptions(load=Load.STEPS)),
        ("the load is steps and 1001 are given", LoadOptions(load=Load.STEPS, steps=((1, 1),) * 1_001)),
        ("the burstiness is 0; give one from", LoadOptions(burstiness=0)),
        ("0 requests at once are asked for; give from 1", LoadOptions(concurrency=0)),
        ("0 requests are asked for; give from 1", LoadOptions(requests=0)),
        ("the speed-up is 0; give one from", LoadOptions(speedup=0)),
        ("the compression is -1; give one from", LoadOptions(compress=-1)),
        ("no request is due within 0.001 s; raise the rate or the length", LoadOptions(length_s=0.001)),
        ("no file is named; give the path", LoadOptions(load=Load.TRACE)),
        ('the scenario "own" is in the mix twice', LoadOptions(mix=((OWN, 1.0), (OWN, 1.0)))),
        ("a weight of the mix is below 0", LoadOptions(mix=((OWN, -1.0),))),
        ("or all are 0", LoadOptions(mix=((OWN, 0.0),))),
        ("5 to 4 tokens are asked for", LoadOptions(prompt_tokens=(5, 4))),
        ("0 to 4 tokens are asked for", LoadOptions(completion_tokens=(0, 4))),
        ("9 to 4 tokens are asked for", LoadOptions(mix=((Scenario("a", texts=("a",), prompt_tokens=(9, 4)), 1.0),))),
    ],
)
def test_what_makes_no_sense_is_refused(expected: str, options: LoadOptions) -> None:
    """The message says what is wrong and what to give instead."""
    with pytest.raises(ConfigurationError, match=expected):
        make_plan(options)


def test_a_trace_that_spans_years_asks_for_a_speed_up(tmp_path: Path) -> None:
    """Nobody waits a year for a run."""
    path = tmp_path / "trace.csv"
    path.write_text("time,input,output\n2020-01-01,1,1\n2024-01-01,1,1\n")
    with pytest.raises(ConfigurationError, match="give a speed-up"):
        make_plan(LoadOptions(load=Load.TRACE, trace=path))


def test_a_plan_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """A plan that would not fit says what to lower."""
    monkeypatch.setattr(planning, "MAX_REQUESTS", 100)
    with pytest.raises(ConfigurationError, match=r"more than 100 requests.* lower the rate or the length, or give the largest number"):
        make_plan(LoadOptions())
