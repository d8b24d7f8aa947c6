"""Plausible records by the million, made by the store itself: for benchmarks of questions, and tests of them.

`python -m benchmarks.records DIRECTORY --rows 10000000` fills the chDB tables of an analytics directory. The traffic has a shape: a few
tenants and features make most of it, a day has peaks, cached prompts are faster, VIPs write code, one replica is slower for one feature
since `--slow-since` (what "why did P99 rise" is to find), and the GPU samples show memory bandwidth full in every fifth minute.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

import msgspec

from tidegate.adapters.analytics.chdb_store import ChdbStore
from tidegate.analytics.rows import timestamp

PIECE_ROWS: Final = 1_000_000
TENANTS: Final = 40
REPLICAS: Final = ("gpu-a/0", "gpu-a/1", "gpu-a/2", "gpu-b/0", "gpu-b/1", "cloud/0")
FEATURES: Final = ("code_completion", "chat", "search_summary", "translation", "meeting_notes", "ticket_triage")
OUTCOMES: Final = "multiIf(r % 1000 < 930, 'ok', r % 1000 < 955, 'truncated', r % 1000 < 970, 'content_filter', r % 1000 < 985, "
OUTCOMES_END: Final = "'client_cancelled', r % 1000 < 995, 'failed_upstream', 'rejected_rate_limit')"


class Traffic(msgspec.Struct, frozen=True, kw_only=True):
    """What is made. Instants are seconds since the epoch."""

    rows: int
    until: float
    span_s: float
    slow_replica: str = "gpu-a/1"
    slow_feature: str = "code_completion"
    slow_since: float | None = None
    """From then on requests of that feature at that replica take four times as long; None: never."""


def statements(traffic: Traffic) -> Iterator[str]:
    """Give the inserts that make it, in pieces that a small memory holds."""
    for start in range(0, traffic.rows, PIECE_ROWS):
        count = min(PIECE_ROWS, traffic.rows - start)
        facts = _facts(traffic, start, count)
        yield _insert("requests", _REQUESTS, facts)
        yield _insert("attempts", _ATTEMPTS, facts)
    yield _samples(traffic)


def fill(store: ChdbStore, traffic: Traffic) -> None:
    """Put the traffic into tables that `create_tables` made."""
    for statement in statements(traffic):
        store.run(statement)


def _insert(table: str, cells: Mapping[str, str], facts: str) -> str:
    return f"INSERT INTO {table} ({', '.join(cells)}) SELECT {', '.join(cells.values())} FROM ({facts})"  # noqa: S608  our own words


def _facts(traffic: Traffic, start: int, count: int) -> str:
    """Give what is drawn of each request; the same number has the same facts."""
    slow = "0" if traffic.slow_since is None else f"at >= toDateTime64('{timestamp(traffic.slow_since)}', 3, 'UTC')"
    begin = f"toDateTime64('{timestamp(traffic.until - traffic.span_s)}', 3, 'UTC')"
    return f"""
        SELECT *, if(is_slow, 4.0, 1.0) * (0.02 + prompt * 0.00004 * if(is_cached, 0.3, 1)) * (0.6 + (r3 % 1000) / 1000) AS ttft,
          if(is_slow, 4.0, 1.0) * completion * 0.008 * (0.8 + (r4 % 1000) / 2500) AS decode
        FROM (
          SELECT n, sipHash64(n, 1) AS r, sipHash64(n, 2) AS r2, sipHash64(n, 3) AS r3, sipHash64(n, 4) AS r4,
            {begin} + toIntervalMillisecond(toInt64((n + (r2 % 1000) / 1000) * {traffic.span_s * 1000 / traffic.rows})) AS at,
            ['{"','".join(FEATURES)}'][1 + least(r % 7, r2 % {len(FEATURES)})] AS feature,
            concat('tenant-', toString(least(r3 % {TENANTS}, r4 % {TENANTS}))) AS tenant,
            if(r4 % 5 = 0, 'vip', if(r4 % 5 < 3, 'standard', 'free')) AS user_tier,
            ['{"','".join(REPLICAS)}'][1 + r2 % {len(REPLICAS)}] AS replica,
            (r3 % 100) < if(feature = 'code_completion', 60, 25) AS is_cached,
            100 + (r2 % 3000) + if(feature = 'meeting_notes', 6000, 0) AS prompt,
            20 + (r3 % 400) AS completion,
            {slow} AND replica = '{traffic.slow_replica}' AND feature = '{traffic.slow_feature}' AS is_slow
          FROM (SELECT number + {start} AS n FROM numbers({count}))
        )"""  # noqa: S608  our own words


_MODEL: Final = "if(startsWith(replica, 'cloud'), 'qwen-max', 'qwen3-32b')"
_ID: Final = "concat('req-', lower(hex(r)))"
_REQUESTS: Final = {
    "node": "'gateway-1'",
    "request_id": _ID,
    "trace_id": "lower(concat(hex(r), hex(r2)))",
    "started_at": "at",
    "operation": "'chat'",
    "outcome": OUTCOMES + OUTCOMES_END,
    "status": "multiIf(r % 1000 < 970, 200, r % 1000 < 985, 0, r % 1000 < 995, 502, 429)",
    "duration_s": "ttft + decode + 0.0004",
    "ttft_s": "ttft",
    "upstream_s": "ttft + decode",
    "gateway_s": "0.0002 + (r2 % 100) / 250000",
    "queue_s": "ttft * 0.2",
    "prefill_s": "ttft * 0.8",
    "decode_s": "decode",
    "tpot_s": "decode / completion",
    "key_id": "concat('key-', toString(r % 200))",
    "tenant": "tenant",
    "user": "concat('user-', toString(r3 % 5000))",
    "tier": "user_tier",
    "feature": "feature",
    "context": "map('feature', feature, 'user_tier', user_tier)",
    "model": _MODEL,
    "route": "'*'",
    "upstream": "splitByChar('/', replica)[1]",
    "upstream_model": _MODEL,
    "replica": "replica",
    "stream": "r4 % 4 > 0",
    "finish_reason": "multiIf(r % 1000 < 930, 'stop', r % 1000 < 955, 'length', r % 1000 < 970, 'content_filter', '')",
    "chunks": "completion",
    "prompt_tokens": "prompt",
    "cached_tokens": "if(is_cached, toUInt32(prompt * 0.8), 0)",
    "completion_tokens": "completion",
    "evidence": "'reported'",
    "reserved_tokens": "prompt + 512",
    "cost_micro": "toInt64(prompt * 0.5 + completion * 2)",
    "price_version": "'2026-11'",
    "traffic_bytes": "prompt * 4 + completion * 5",
    "attempts": "1",
    "source": "'generated'",
    "offset": "n",
}
_ATTEMPTS: Final = {
    "request_id": _ID,
    "started_at": "at",
    "attempt": "1",
    "replica": "replica",
    "upstream": "splitByChar('/', replica)[1]",
    "model": _MODEL,
    "result": "if(r % 1000 < 970, 'ok', if(r % 1000 < 985, 'cancelled', 'status_503'))",
    "status": "if(r % 1000 < 985, 200, 503)",
    "first_token_s": "ttft",
    "queue_s": "ttft * 0.2",
    "prefill_s": "ttft * 0.8",
    "decode_s": "decode",
    "duration_s": "ttft + decode",
    "prompt_tokens": "prompt",
    "cached_tokens": "if(is_cached, toUInt32(prompt * 0.8), 0)",
    "completion_tokens": "completion",
    "cost_micro": "toInt64(prompt * 0.5 + completion * 2)",
    "source": "'generated'",
    "offset": "n",
}


def _samples(traffic: Traffic) -> str:
    """Give the insert of one sample a second for each replica with a GPU, of at most a day."""
    seconds = int(min(traffic.span_s, 86_400.0))
    begin = f"toDateTime64('{timestamp(traffic.until - seconds)}', 3, 'UTC')"
    return f"""
        INSERT INTO samples (at, node, replica, source, metric, device, value)
        SELECT {begin} + toIntervalSecond(number) AS moment, 'gateway-1', replica, 'nvml', metric, '0',
          if(metric = 'gpu.memory_bandwidth_ratio', if(intDiv(number, 60) % 5 = 0, 0.97, 0.6), 0.85)
        FROM numbers({seconds})
        ARRAY JOIN ['{"','".join(REPLICAS[:-1])}'] AS replica
        ARRAY JOIN ['gpu.memory_bandwidth_ratio', 'gpu.utilization_ratio'] AS metric"""  # noqa: S608  our own words


def main() -> None:
    parser = argparse.ArgumentParser(description="Fills the tables of an analytics directory with plausible records.")
    parser.add_argument("directory", type=Path)
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--hours", type=float, default=24.0, help="time that the records are spread over, until now")
    parser.add_argument("--slow-since", type=float, help="minutes ago that one replica became slow for one feature")
    arguments = parser.parse_args()
    now = time.time()  # noqa: TID251  a program of its own
    slow_since = None if arguments.slow_since is None else now - 60 * arguments.slow_since
    store = ChdbStore(arguments.directory, keep_days=3650)
    store.create_tables()
    began = time.perf_counter()
    fill(store, Traffic(rows=arguments.rows, until=now, span_s=3600 * arguments.hours, slow_since=slow_since))
    sys.stdout.write(f"{arguments.rows:,} records in {time.perf_counter() - began:.1f} s\n")
    store.close()


if __name__ == "__main__":
    main()
