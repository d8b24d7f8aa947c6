"""Generated records are plausible enough to be asked about, and the same number always gives the same ones."""

from __future__ import annotations

from pathlib import Path

from benchmarks.records import FEATURES, REPLICAS, Traffic, fill

from tidegate.adapters.analytics.chdb_store import ChdbStore
from tidegate.analytics.asking import QueryRequest

NOW = 1_793_780_000.0
ROWS = 20_000


def test_one_replica_is_slow_for_one_feature_since_then(tmp_path: Path) -> None:
    """All rows are there, spread over the time asked for; what was planted can be found, and nothing else looks like it."""
    store = ChdbStore(tmp_path, keep_days=3650)
    store.create_tables()
    fill(store, Traffic(rows=ROWS, until=NOW, span_s=7200.0, slow_since=NOW - 1800.0))

    def ask(sql: str) -> list[tuple[object, ...]]:
        answer = store.query(QueryRequest(sql))
        assert "" == answer.error
        return list(answer.rows)

    [(requests, ids, replicas, features)] = ask(
        "SELECT count(), countDistinct(request_id), countDistinct(replica), countDistinct(feature) FROM requests"
    )
    assert (ROWS, ROWS, len(REPLICAS), len(FEATURES)) == (requests, ids, replicas, features)
    assert [(ROWS,)] == ask("SELECT count() FROM attempts WHERE request_id IN (SELECT request_id FROM requests)")
    assert [("2026-11-04 06:13:20.000", True)] == ask(
        "SELECT toStartOfSecond(min(started_at)), max(started_at) <= '2026-11-04 08:13:21' FROM requests"
    )
    slowest = ask(
        "SELECT replica, feature FROM requests WHERE started_at >= '2026-11-04 07:43:20' "
        "GROUP BY replica, feature ORDER BY quantile(0.5)(duration_s / completion_tokens) DESC LIMIT 1"
    )
    assert [("gpu-a/1", "code_completion")] == slowest
    assert [(7200 * 5 * 2,)] == ask("SELECT count() FROM samples")
    store.close()
