"""How much one client core of `tidegate bench` can do: `python -m benchmarks.bench_client [--quick]`.

The client has one core, the upstreams and the parent have another: the scripted one for whole answers, and for streams the one of the
other measurements, which can send more chunks in a second. Prints the most it achieves, what CPU a request and a chunk
cost it, and how late it sends when nothing is near its limit. Fails when it cannot do `REQUESTS_PER_S` or `CHUNKS_PER_S`.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence

import msgspec

from benchmarks.bench_rig import CORES, Upstream, carry_out, closed, constant, judged
from benchmarks.content import MODEL, NUMBER_AFTER
from benchmarks.subjects import stream_upstream
from tidegate.bench.histogram import Histogram
from tidegate.bench.plan import Target
from tidegate.bench.sample import End, Sample

REQUESTS_PER_S = 3_000
CHUNKS_PER_S = 30_000
TOKENS = 100
"""Of each answer, one a chunk."""
PER_TOKEN_S = 0.02


def span_s(samples: Sequence[Sample]) -> float:
    return max(sample.ended_at for sample in samples) - min(sample.sent_at for sample in samples)


def complete(samples: Sequence[Sample]) -> int:
    return sum(sample.end is End.COMPLETE for sample in samples)


async def whole_answers(target: Target, length_s: float) -> float:
    """Ask for small whole answers as fast as it goes."""
    samples, health = await carry_out(target, closed(64, length_s, at_most=round(40_000 * length_s)))
    took_s = span_s(samples)
    rate = complete(samples) / took_s
    print(
        f"whole answers, 64 at once:  {rate:8,.0f} requests/s  {health.cpu_ratio * 1e6 / rate:6.1f} µs CPU each: a whole core "
        f"could do {rate / health.cpu_ratio:,.0f}  (CPU {health.cpu_ratio:.0%}; {len(samples) - complete(samples)} failed)"
    )
    return rate


async def streams(target: Target, chunks_per_s: float, length_s: float) -> float:
    """Ask for streams at a rate of chunks that are sent one by one."""
    plan = constant(chunks_per_s / TOKENS, length_s)
    samples, health = await carry_out(target, plan)
    steady = [sample for sample in samples if sample.ended_at <= length_s]
    inner_s = length_s - TOKENS * PER_TOKEN_S
    began = [sample for sample in steady if sample.due_at <= inner_s]
    rate = sum(sample.output_chunks for sample in began) / inner_s
    cpu_s = health.cpu_ratio * span_s(samples)
    chunks = sum(sample.output_chunks for sample in samples)
    lags = Histogram()
    lags.record_many(sample.sent_at - sample.due_at for sample in samples)
    print(
        f"streams, {chunks_per_s:9,.0f} chunks/s:  {rate:8,.0f} chunks/s  {cpu_s * 1e6 / chunks:6.1f} µs CPU each: a whole core "
        f"could do {chunks / cpu_s:,.0f}  (loop lag p99 "
        f"{health.loop_lag_p99_s * 1e3:.1f} ms; sent late p50 {lags.quantile(0.5) * 1e3:.3f} ms, "
        f"p99 {lags.quantile(0.99) * 1e3:.2f} ms; {len(samples) - complete(samples)} failed)"
    )
    return rate


async def idle_lag(target: Target, length_s: float) -> None:
    """See how late it sends at a rate that nobody notices."""
    samples, health = await carry_out(target, constant(100, length_s))
    lags = Histogram()
    lags.record_many(sample.sent_at - sample.due_at for sample in samples)
    print(
        f"at 100 requests/s: sent late p50 {lags.quantile(0.5) * 1e3:.3f} ms, p99 {lags.quantile(0.99) * 1e3:.3f} ms, "
        f"most {lags.most * 1e3:.2f} ms; loop lag p99 {health.loop_lag_p99_s * 1e3:.2f} ms, CPU {health.cpu_ratio:.0%}"
    )


async def measure(upstream: Upstream, *, length_s: float) -> int:
    target = Target(upstream.base_url, "scripted", ask_usage=True)
    upstream.follow({"default": {"pieces": ["Yes."]}})
    await idle_lag(msgspec.structs.replace(target, stream=False), length_s)
    requests = await whole_answers(msgspec.structs.replace(target, stream=False), length_s)
    chunks = 0.0
    with stream_upstream(CORES, tick_s=PER_TOKEN_S, phases=20) as port:
        ticking = Target(f"http://127.0.0.1:{port}/v1", MODEL, extra_body=json.dumps({"user": f"{NUMBER_AFTER}{TOKENS:010}"}))
        for asked in (10_000, 20_000, 30_000, 36_000):
            chunks = max(chunks, await streams(ticking, asked, length_s + 2 * TOKENS * PER_TOKEN_S))
    met = requests >= REQUESTS_PER_S and chunks >= CHUNKS_PER_S * 0.98
    print(f"{'met' if met else 'NOT met'}: {REQUESTS_PER_S:,} requests/s and {CHUNKS_PER_S:,} chunks/s on one core")
    return 0 if met else 1


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="two seconds of each instead of five")
    length_s = 2.0 if parser.parse_args().quick else 5.0
    return judged(lambda upstream: measure(upstream, length_s=length_s))


if __name__ == "__main__":
    sys.exit(main())
