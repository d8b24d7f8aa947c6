"""How much of a token limit is used, by how requests are held before their answers' lengths are known.

    python -m benchmarks.reserve [--trace FOLDER] [--only conv] [--copies 1,4] [--shares 0.5,0.8] [--quantiles 0.95] [--token-s 0.03]

Replays a public trace in virtual time through the limiter and the forecast that the gateway runs. One key has a limit of a part of what is
offered. A refused request does as an SDK: it comes again after its `Retry-After` in whole seconds, twice, and is given up when it would
wait more than a minute. An answer begins 0.2 ms per token of its prompt after its request and is written at `token-s` a token. `copies`
lays the trace over itself so many times, evenly shifted, and so makes it denser; the limit grows with it. `extended`: as the gateway does,
more is held when an answer grows beyond what was held for it, and it is cut when there is no more; the others let it go on, and owe it.

One row per trace, copies, share and method:

    utilisation   tokens that requests admitted in the last 60 s really use, of the limit, at the seconds in which something was refused
    over          the most tokens that went through in any 60 s, prompts when admitted and output as it is written, beyond the limit
    short         the same, but with a whole answer counted when its request was admitted: what the holds were short of
    exceeded      requests that used more than was held for them at first
    cut           answers that ended early because the limit had nothing left for them
    served        requests that were answered
"""

from __future__ import annotations

import argparse
import csv
import heapq
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from itertools import accumulate, count
from math import ceil
from pathlib import Path

from benchmarks.errors import BenchmarkError
from tidegate.domain.demand import Demand
from tidegate.domain.limits import LimitSubject
from tidegate.domain.principal import Limits
from tidegate.domain.units import KeyId, ModelName, TenantId, UserId
from tidegate.flow.allowance import Allowance
from tidegate.policy.metering.forecast import FixedForecast, Forecast, LearnedForecast
from tidegate.policy.metering.limiter import Limiter
from tidegate.policy.metering.local_counters import LocalCounters
from tidegate.ports import Denied, Permit, Short

ROOT = Path(__file__).resolve().parent.parent
TRACES = ROOT.parent / "shared" / "data" / "azure_llm_2023"
_FILE = "AzureLLMInferenceTrace_{}.csv"
_KINDS = ("conv", "code")

_PROMPT_TOKEN_S = 0.0002
OUTPUT_TOKEN_S = 0.03  # a busy replica of a large model
_RETRIES = 2  # of OpenAI's SDK
_LONGEST_RETRY_S = 60
_SPAN_S = 60
_WARM_UP_S = 120  # until the window is full and the forecast knows something
_CAP = 4096  # what clients ask for that ask for more than they need
_CONSTANT = 1024

_SUBJECT = LimitSubject(KeyId("k"), TenantId("t"), UserId("u"), model=ModelName("m"), route="r")


@dataclass(frozen=True)
class Arrival:
    """One request of a trace; seconds since its first."""

    at_s: float
    prompt_tokens: int
    completion_tokens: int


@dataclass(frozen=True)
class Method:
    """A way to hold tokens. `extends`: more is held when an answer grows beyond what was; it is cut when there is no more."""

    name: str
    forecast: Callable[[], Forecast]
    extends: bool = False
    cap: int | None = None
    """What the clients ask for."""


@dataclass
class Run:
    """What one replay did."""

    arrivals: int
    until_s: float
    """When the last of them came."""
    limit: int
    token_s: float
    answers: list[Arrival]
    """Those admitted, when, and what they used."""
    refused_at: list[float]
    exceeded: int = 0
    cut: int = 0


@dataclass
class _Running:
    """One admitted request."""

    permit: Permit
    asked: Arrival
    admitted_at: float
    allowance: Allowance


_Step = Callable[[float], None]


class Replay:
    """One trace, one limit, one method."""

    def __init__(self, arrivals: Sequence[Arrival], limit: int, method: Method, *, token_s: float = OUTPUT_TOKEN_S) -> None:
        self.run = Run(len(arrivals), arrivals[-1].at_s, limit, token_s, [], [])
        self._method = method
        self._forecast = method.forecast()
        self._limiter = Limiter(LocalCounters())
        self._limits = Limits(tokens_per_minute=limit)
        self._number = count()
        self._steps: list[tuple[float, int, _Step]] = []
        for arrival in arrivals:
            self._at(arrival.at_s, partial(self._arrive, arrival, 0))

    def finish(self) -> Run:
        while self._steps:
            now, _, step = heapq.heappop(self._steps)
            step(now)
        if self._limiter.outstanding or self._limiter.held_tokens:
            raise BenchmarkError(f"the limiter was left with something held: {self._limiter!r}")
        return self.run

    def _at(self, now: float, step: _Step) -> None:
        heapq.heappush(self._steps, (now, next(self._number), step))

    def _arrive(self, asked: Arrival, retries: int, now: float) -> None:
        cap = self._method.cap
        subject, prompt = _SUBJECT, asked.prompt_tokens
        expected = self._forecast.expect(subject.tenant, subject.route, subject.model, prompt_tokens=prompt, cap=cap, now=now)
        permit = self._limiter.admit(subject, self._limits, now=now)
        if isinstance(permit, Denied | Short):
            raise BenchmarkError("only tokens are limited here")
        denied = permit.reserve(Demand(prompt, expected), now=now)
        if denied is None:
            self.run.exceeded += asked.completion_tokens > expected
            allowance = Allowance(permit, Demand(prompt, expected), choices=1, cap=cap)
            self._go_on(_Running(permit, asked, now, allowance))
            return
        permit.cancel(now=now)
        self.run.refused_at.append(now)
        wait_s = denied.retry_after_s if isinstance(denied, Denied) else None
        if wait_s is not None and ceil(wait_s) <= _LONGEST_RETRY_S and retries < _RETRIES:
            self._at(now + max(1, ceil(wait_s)), partial(self._arrive, asked, retries + 1))

    def _go_on(self, running: _Running) -> None:
        tokens = running.asked.completion_tokens
        extend_at = running.allowance.extend_at
        if self._method.extends and tokens > extend_at:
            self._at(self._written_at(running, extend_at), partial(self._extend, running, extend_at))
        else:
            self._at(self._written_at(running, tokens), partial(self._end, running, tokens))

    def _written_at(self, running: _Running, tokens: int) -> float:
        return running.admitted_at + running.asked.prompt_tokens * _PROMPT_TOKEN_S + tokens * self.run.token_s

    def _extend(self, running: _Running, written: int, now: float) -> None:
        if running.allowance.extend(written, now=now) is None:
            self._go_on(running)
        else:
            self.run.cut += 1
            self._end(running, written, now)

    def _end(self, running: _Running, tokens: int, now: float) -> None:
        asked, subject = running.asked, _SUBJECT
        running.permit.settle(Demand(asked.prompt_tokens, tokens), now=now)
        self.run.answers.append(Arrival(running.admitted_at, asked.prompt_tokens, tokens))
        self._forecast.observe(
            subject.tenant,
            subject.route,
            subject.model,
            prompt_tokens=asked.prompt_tokens,
            completion_tokens=tokens,
            cut=tokens < asked.completion_tokens,
            now=now,
        )


def utilisation(run: Run) -> float:
    used = _last_minute(whole(run))
    full = {int(at_s) for at_s in run.refused_at if _WARM_UP_S <= at_s <= run.until_s}
    if not full:
        raise BenchmarkError("nothing was refused: the limit is too high for this trace")
    return sum(used[second] for second in full if second < len(used)) / len(full) / run.limit


def over(run: Run, seconds: list[float]) -> float:
    return max(0.0, max(_last_minute(seconds)) / run.limit - 1)


def whole(run: Run) -> list[float]:
    """Tokens by second, those of a request in the one in which it was admitted."""
    return _by_second((each.at_s, 0.0, each.prompt_tokens + each.completion_tokens) for each in run.answers)


def as_spent(run: Run) -> list[float]:
    """Tokens by second, those of an answer spread over the time in which it was written."""
    return _by_second(
        part
        for each in run.answers
        for part in (
            (each.at_s, 0.0, each.prompt_tokens),
            (each.at_s + each.prompt_tokens * _PROMPT_TOKEN_S, each.completion_tokens * run.token_s, each.completion_tokens),
        )
    )


def _by_second(parts: Iterable[tuple[float, float, int]]) -> list[float]:
    """Add up (from, during, tokens) by second."""
    seconds: dict[int, float] = {}
    for begin_s, during_s, tokens in parts:
        end_s = begin_s + during_s
        for second in range(int(begin_s), int(end_s) + 1):
            part = 1.0 if during_s == 0 else (min(end_s, second + 1) - max(begin_s, second)) / during_s
            seconds[second] = seconds.get(second, 0.0) + tokens * part
    return [seconds.get(second, 0.0) for second in range(max(seconds) + 1)]


def _last_minute(seconds: Sequence[float]) -> list[float]:
    """For each second, what was in it and the 59 before it."""
    sums = [0.0, *accumulate(seconds)]
    return [sums[end] - sums[max(0, end - _SPAN_S)] for end in range(1, len(sums))]


def read_trace(folder: Path, kind: str) -> list[Arrival]:
    file = folder / _FILE.format(kind)
    if not file.is_file():
        raise BenchmarkError(f"There is no {file}. Get the Azure LLM inference trace of 2023 and name its folder: --trace FOLDER")
    with file.open(newline="", encoding="utf-8") as lines:
        rows = [(datetime.fromisoformat(row["TIMESTAMP"][:26]), row) for row in csv.DictReader(lines)]
    first = rows[0][0]
    return [Arrival((at - first).total_seconds(), int(row["ContextTokens"]), int(row["GeneratedTokens"])) for at, row in rows]


def laid_over(arrivals: Sequence[Arrival], copies: int) -> list[Arrival]:
    span_s = arrivals[-1].at_s + 1
    many = (
        Arrival((each.at_s + span_s * copy / copies) % span_s, each.prompt_tokens, each.completion_tokens)
        for copy in range(copies)
        for each in arrivals
    )
    return sorted(many, key=lambda each: each.at_s)


def methods(quantiles: Sequence[float]) -> list[Method]:
    return [
        Method(f"cap of {_CAP:,}", partial(FixedForecast, _CONSTANT, heeds_cap=True), cap=_CAP),
        Method(f"constant {_CONSTANT:,}", partial(FixedForecast, _CONSTANT, heeds_cap=False)),
        *(
            Method(f"learned {quantile:g}{', extended' if extends else ''}", partial(LearnedForecast, quantile, _CONSTANT), extends)
            for quantile in quantiles
            for extends in (False, True)
        ),
    ]


def measure(name: str, arrivals: Sequence[Arrival], share: float, method: Method, *, token_s: float) -> str:
    """Give one row of the table."""
    offered = sum(each.prompt_tokens + each.completion_tokens for each in arrivals) / arrivals[-1].at_s * _SPAN_S
    run = Replay(arrivals, int(offered * share), method, token_s=token_s).finish()
    figures = (
        utilisation(run),
        over(run, as_spent(run)),
        over(run, whole(run)),
        run.exceeded / len(run.answers),
        run.cut / len(run.answers),
        len(run.answers) / run.arrivals,
    )
    return f"| {name} | {share:g} | {method.name} | " + " | ".join(f"{figure:.2%}" for figure in figures) + " |"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trace", type=Path, default=TRACES, help="folder of the Azure LLM inference trace of 2023")
    parser.add_argument("--only", choices=_KINDS, action="append")
    parser.add_argument("--copies", default="1,4")
    parser.add_argument("--shares", default="0.5,0.8", help="limits, as parts of what is offered")
    parser.add_argument("--quantiles", default="0.95")
    parser.add_argument("--token-s", type=float, default=OUTPUT_TOKEN_S, help="seconds in which a token is written")
    options = parser.parse_args()
    print("| trace | copies | limit | held | utilisation | over | short | exceeded | cut | served |")
    print("|---|---|---|---|---|---|---|---|---|---|")
    try:
        for kind in options.only or _KINDS:
            trace = read_trace(options.trace, kind)
            for copies in map(int, options.copies.split(",")):
                arrivals = laid_over(trace, copies)
                for share in map(float, options.shares.split(",")):
                    for method in methods([float(quantile) for quantile in options.quantiles.split(",")]):
                        print(measure(f"{kind} | {copies}", arrivals, share, method, token_s=options.token_s), flush=True)
    except BenchmarkError as problem:
        print(problem, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
