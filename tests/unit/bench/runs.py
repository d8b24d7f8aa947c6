"""Requests and runs that the tests of figures begin from."""

from __future__ import annotations

from collections.abc import Iterable
from random import Random
from typing import TypeVar

from hypothesis import strategies as st

from tidegate.bench.figures import Figures
from tidegate.bench.outcome import Criteria, Judged, judge
from tidegate.bench.plan import Plan, PlannedRequest, Stage, Target
from tidegate.bench.run_report import Machine, Report, make_report
from tidegate.bench.sample import ClientHealth, ClientReport, End, Sample

T = TypeVar("T")
LENIENT = Criteria(short_ratio=None, ttft_s=None, e2e_s=None)
TARGET = Target(base_url="http://127.0.0.1:8000/v1", model="m", key="sk-very-secret")
MACHINE = Machine(cores=2, python="3.11", kernel="6.1")
HEALTHY = ClientHealth(client=0, loop_lag_p99_s=0.001, loop_lag_max_s=0.01, cpu_ratio=0.2, cap_reached=0, connections_opened=1)


def planned(
    index: int = 0, *, due_s: float = 0.0, stage: int = 0, scenario: str = "chat", completion_tokens: int | None = 100
) -> PlannedRequest:
    return PlannedRequest(index, due_s, stage, scenario, 1, 50, completion_tokens)


def answer(
    index: int = 0, *, due_at: float = 0.0, ttft_s: float = 0.2, e2e_s: float = 1.0, lag_s: float = 0.0, tokens: int | None = 100
) -> Sample:
    """Give a whole streamed answer of a hundred tokens in ten reads."""
    return Sample(
        index=index,
        due_at=due_at,
        sent_at=due_at + lag_s,
        end=End.COMPLETE,
        ended_at=due_at + e2e_s,
        first_content_at=due_at + ttft_s,
        last_output_at=due_at + e2e_s,
        status=200,
        finish_reason="stop",
        output_chunks=10,
        longest_gap_s=0.1,
        prompt_tokens=None if tokens is None else 50,
        completion_tokens=tokens,
    )


def failure(
    index: int = 0, *, end: End = End.TRANSPORT, due_at: float = 0.0, took_s: float = 0.3, status: int = 0, error: str = ""
) -> Sample:
    return Sample(index=index, due_at=due_at, sent_at=due_at, end=end, ended_at=due_at + took_s, status=status, error=error)


def plan(
    requests: Iterable[PlannedRequest] = (), *, length_s: float = 10.0, stages: tuple[Stage, ...] = (), concurrency: int | None = None
) -> Plan:
    stages = stages or (Stage("steady", 0.0, length_s),)
    return Plan(seed=7, load="constant, 10/s for 10 s", requests=tuple(requests), stages=stages, length_s=length_s, concurrency=concurrency)


def steady(figures: Figures, *, per_s: float = 10.0, length_s: float = 10.0, e2e_s: float = 1.0, criteria: Criteria = LENIENT) -> None:
    """Feed a constant load with answers that all take the same time."""
    for index in range(round(per_s * length_s)):
        due_at = index / per_s
        figures.add(judge(answer(index, due_at=due_at, e2e_s=e2e_s), planned(index, due_s=due_at), criteria))


def report(judged: Iterable[Judged], *, target: Target = TARGET, of: Plan | None = None, health: ClientHealth = HEALTHY) -> Report:
    """Sum up what was judged."""
    run = plan() if of is None else of
    figures = Figures(run)
    for one in judged:
        figures.add(one)
    return make_report(run, target, figures, [ClientReport(health, {}, {})], machine=MACHINE, began_at=1_700_000_000.0, criteria=LENIENT)


def steady_report(*, ttft_s: float = 0.2, e2e_s: float = 1.0, spread_s: float = 0.02, failures: int = 0, target: Target = TARGET) -> Report:
    """Give the report of a hundred requests, 10/s, whose first tokens come `ttft_s` after they were due, and up to `spread_s` later."""
    judged = []
    for index in range(100):
        due_at, later_s = index / 10, spread_s * (index * 37 % 100) / 100
        request = planned(index, due_s=due_at)
        if index < failures:
            judged.append(judge(failure(index, due_at=due_at), request, LENIENT))
        else:
            judged.append(judge(answer(index, due_at=due_at, ttft_s=ttft_s + later_s, e2e_s=e2e_s + later_s), request, LENIENT))
    return report(judged, target=target)


def any_judged(rng: Random, stages: int = 1) -> Judged:
    """Give any request that ended, judged by the default criteria and an SLO."""
    due_at = rng.uniform(0.0, 20.0)
    sent_at = due_at + rng.uniform(0.0, 0.2)
    first, last, ended = sorted(sent_at + rng.uniform(0.0, 8.0) for _ in range(3))
    begun = rng.random() < 0.7

    def maybe(value: T) -> T | None:
        return value if rng.random() < 0.5 else None

    sample = Sample(
        index=rng.randrange(1000),
        due_at=due_at,
        sent_at=sent_at,
        end=End.COMPLETE if rng.random() < 0.5 else rng.choice(list(End)),
        ended_at=ended,
        connected_at=maybe(sent_at),
        first_reasoning_at=maybe(first) if begun else None,
        first_content_at=first if begun else None,
        last_output_at=last if begun else None,
        status=rng.choice((0, 200, 429, 503)),
        finish_reason=rng.choice(("", "stop", "length", "tool_calls", "content_filter")),
        error=rng.choice(("", "refused", "=1+1")),
        output_chunks=rng.randrange(1, 4) if begun else 0,
        prompt_tokens=maybe(rng.randrange(4000)),
        completion_tokens=maybe(rng.choice((0, 1, 99, 4000))),
        cost_micro=maybe(rng.choice((0, 1, 10**7))),
        text_faults=rng.choice(((), ("invalid_json",))),
        tries=rng.randrange(1, 4),
        upstream_tries=maybe(rng.randrange(1, 4)),
        queue_s=maybe(rng.uniform(0.0, 2.0)),
        server_s=maybe(rng.uniform(0.0, 9.0)),
    )
    request = planned(
        sample.index,
        due_s=due_at,
        stage=rng.randrange(stages),
        scenario=rng.choice(("chat", "legal")),
        completion_tokens=maybe(100),
    )
    return judge(sample, request, Criteria(slo_ttft_s=1.0, slo_tpot_s=0.05, slo_e2e_s=3.0))


def _drawn(drawn: tuple[int, int]) -> list[Judged]:
    size, seed = drawn
    rng = Random(seed)
    return [any_judged(rng, 2) for _ in range(size)]


judged_requests = st.tuples(st.integers(0, 25), st.integers(0, 2**32)).map(_drawn)
"""Of two stages. They are made from a seed: drawn one by one they would take seconds."""
