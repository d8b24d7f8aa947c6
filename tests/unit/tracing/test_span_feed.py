"""Records followed for a collector: what is sent, what waits, what is given up, and what a position is good for."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.unit.tracing.receiver import Instead, Receiver, attributes_of

from tidegate.adapters.analytics.positions import PositionFile
from tidegate.adapters.otlp.opening import open_span_feed, tracing_settings
from tidegate.adapters.otlp.span_feed import Reception, Rejected, SpanFeed, Taken, Unavailable
from tidegate.analytics.spans import Span
from tidegate.analytics.tail_sampling import TailSampling
from tidegate.config.schema import Configuration
from tidegate.config.schema_tracing import OtlpSection, TracingSection
from tidegate.domain.units import Secret

NOW = 1_793_780_000.0
LAST = 9
KEEP_ALL = TailSampling(keep_ratio=1.0, slow_s=10.0)


def line(number: int, **fields: Any) -> bytes:
    required = {"request_id": f"r{number}", "started_at": NOW, "operation": "chat", "outcome": "ok", "status": 200, "duration_s": 0.6}
    ids = {"trace_id": f"{number + 1:032x}", "span_id": f"{(number + 1) << 8:016x}"}
    return json.dumps(required | ids | fields).encode() + b"\n"


def write(directory: Path, *lines: bytes, name: str = "requests-0.jsonl") -> None:
    directory.mkdir(exist_ok=True)
    with (directory / name).open("ab") as file:
        file.write(b"".join(lines))


class Ear:
    """A `SpanReceiver` that takes what it is sent unless it is told otherwise."""

    def __init__(self, *receptions: Reception) -> None:
        self.receptions = list(receptions)
        self.heard: list[Span] = []
        self.tries = 0
        self.is_closed = False

    def send(self, spans: list[Span]) -> Reception:
        self.tries += 1
        reception = self.receptions.pop(0) if self.receptions else Taken()
        if isinstance(reception, Taken):
            self.heard += spans
        return reception

    def close(self) -> None:
        self.is_closed = True

    def ids(self) -> list[str]:
        return [str(span.attributes["tidegate.request_id"]) for span in self.heard]


def feed_of(directory: Path, ear: Ear, *, sampling: TailSampling = KEEP_ALL, batch_lines: int = 4) -> SpanFeed:
    (directory / "state").mkdir(exist_ok=True)
    return SpanFeed(directory / "records", PositionFile(directory / "state"), ear, sampling=sampling, batch_lines=batch_lines)


def test_records_are_sent_in_batches_and_new_ones_as_they_come(tmp_path: Path) -> None:
    """There is more to do while a batch was not all, and a second's pause when it was."""
    write(tmp_path / "records", *map(line, range(6)))
    ear = Ear()
    feed = feed_of(tmp_path, ear)
    assert [0.0, 1.0, 1.0] == [feed.step(now=NOW) for _ in range(3)]
    assert [f"r{number}" for number in range(6)] == ear.ids()
    write(tmp_path / "records", line(6))
    assert 1.0 == feed.step(now=NOW)
    statistics = feed.statistics()
    assert (7, 7, 0, 0) == (statistics.sent, statistics.kept, statistics.backlog_bytes, statistics.lost_bytes)
    feed.close()
    assert ear.is_closed
    assert "sent=7" in repr(feed)


def test_what_is_not_kept_is_passed_over_without_a_call(tmp_path: Path) -> None:
    """As are lines that are no records, which are counted; the position moves on."""
    odd = line(3, outcome="failed_internal", span_id="none", attempts=[{"attempt": 1, "replica": "a/0", "result": "ok"}])
    lines = [line(1), b"[" * 5_000 + b"\n", b"\n", line(2, outcome="failed_internal"), b'{"outcome":"unheard of"}\n', odd]
    write(tmp_path / "records", *lines)
    ear = Ear()
    feed = feed_of(tmp_path, ear, sampling=TailSampling(keep_ratio=0.0, slow_s=10.0), batch_lines=3)
    feed.step(now=NOW)
    assert 0 == ear.tries
    feed.step(now=NOW)
    assert ["r2"] == ear.ids()
    statistics = feed.statistics()
    assert (1, 1, 3) == (statistics.kept, statistics.passed_over, statistics.unreadable)
    feed.close()


def test_while_the_collector_is_away_records_wait(tmp_path: Path) -> None:
    """Pauses grow, or are what it asks for; then the same spans go, once."""
    write(tmp_path / "records", line(1))
    ear = Ear(Unavailable("Away."), Unavailable("Away."), Unavailable("Busy.", 7.0), Unavailable("Busy.", 0.0), *[Unavailable("Away.")] * 4)
    feed = feed_of(tmp_path, ear)
    assert [0.5, 1.0, 7.0, 4.0, 8.0, 16.0, 30.0, 30.0] == [feed.step(now=NOW) for _ in range(8)]
    assert ("Away.", True) == (feed.statistics().trouble, feed.statistics().backlog_bytes == 0)
    assert 1.0 == feed.step(now=NOW)
    assert (["r1"], "") == (ear.ids(), feed.statistics().trouble)
    feed.close()


def test_what_the_collector_refuses_is_counted_and_left(tmp_path: Path) -> None:
    """A batch that it will never take does not hold up the next one."""
    write(tmp_path / "records", *map(line, range(8)))
    ear = Ear(Rejected("Status 400."), Taken(refused=1))
    feed = feed_of(tmp_path, ear)
    feed.step(now=NOW)
    feed.step(now=NOW)
    assert (3, 5) == (feed.statistics().sent, feed.statistics().refused)
    feed.close()


def test_the_next_process_goes_on_where_the_last_position_was_written(tmp_path: Path) -> None:
    """A batch that was not taken is sent by it, one that was is not; its own position has nothing to do with the store's."""
    write(tmp_path / "records", *map(line, range(6)))
    first, second = Ear(Taken(), *[Unavailable("Away.")] * 3), Ear()
    feed = feed_of(tmp_path, first)
    feed.step(now=NOW)
    feed.step(now=NOW)
    feed.close()
    feed = feed_of(tmp_path, second)
    feed.step(now=NOW)
    assert (["r0", "r1", "r2", "r3"], ["r4", "r5"]) == (first.ids(), second.ids())
    feed.close()


def test_what_is_deleted_unread_is_counted_for_good(tmp_path: Path) -> None:
    """Also by the next process."""
    write(tmp_path / "records", *map(line, range(4)))
    feed = feed_of(tmp_path, Ear())
    feed.step(now=NOW)
    write(tmp_path / "records", line(4), name="requests-1.jsonl")
    lost = len(line(4))
    ear = Ear(Unavailable("Away."))
    feed.close()
    feed = feed_of(tmp_path, Ear(), batch_lines=1)
    write(tmp_path / "records", line(5))
    feed.step(now=NOW)
    (tmp_path / "records" / "requests-1.jsonl").unlink()
    feed.step(now=NOW)
    write(tmp_path / "records", line(6))
    feed.step(now=NOW)
    feed.close()
    feed = feed_of(tmp_path, ear)
    feed.step(now=NOW)
    assert lost == feed.statistics().lost_bytes
    feed.close()


def test_a_position_that_cannot_be_written_is_told_and_nothing_is_sent_twice(tmp_path: Path) -> None:
    """Only the writing is tried again."""
    write(tmp_path / "records", line(1))
    ear = Ear()
    feed = feed_of(tmp_path, ear)
    (tmp_path / "state").rmdir()
    assert 0.5 == feed.step(now=NOW)
    assert "No such file or directory" in feed.statistics().trouble
    (tmp_path / "state").mkdir()
    assert 1.0 == feed.step(now=NOW)
    assert (1, "") == (ear.tries, feed.statistics().trouble)
    feed.close()


def test_a_feed_may_be_closed_before_its_first_step(tmp_path: Path) -> None:
    """There is no file to be closed yet."""
    ear = Ear()
    feed_of(tmp_path, ear).close()
    assert ear.is_closed


# ── opened as it is configured ─────────────────────────────────────────────────


def _configuration(endpoint: str) -> Configuration:
    otlp = OtlpSection(endpoint=endpoint, headers={"x-token": Secret("collector-token")})
    tracing = TracingSection(otlp=otlp, keep_ratio=1.0, service_name="gate", resource={"deployment.environment.name": "test"})
    return Configuration(tracing=tracing)


def test_a_feed_is_opened_as_configured(tmp_path: Path) -> None:
    """The collector's address and headers, the resource, the share; a 503 with a wish is waited for."""
    write(tmp_path / "records", line(1))
    with Receiver() as receiver:
        receiver.instead = [Instead(503, {"retry-after": "60"})]
        settings = tracing_settings(_configuration(receiver.endpoint), tmp_path)
        assert settings is not None
        feed = open_span_feed(settings, tmp_path / "records", resource={"host.name": "here", "service.name": "overruled"})
        assert 60.0 == feed.step(now=NOW)
        assert 1.0 == feed.step(now=NOW)
        feed.close()
    assert ["r1"] == [attributes_of(span)["tidegate.request_id"] for span in receiver.spans()]
    assert "collector-token" == receiver.headers[0]["x-token"]
    attributes = receiver.requests[0].resource_spans[0].resource.attributes
    expected = {"host.name": "here", "service.name": "gate", "deployment.environment.name": "test"}
    assert expected == {each.key: each.value.string_value for each in attributes}
    assert (tmp_path / "tracing" / "positions.json").exists()


def test_without_a_collector_there_is_nothing_to_open(tmp_path: Path) -> None:
    """Tracing is off unless it is configured, and no trace is begun as sampled."""
    assert tracing_settings(Configuration(), tmp_path) is None
    assert 0.0 == Configuration().tracing.sent_ratio


def test_without_the_extra_it_says_so_and_waits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The records are sent once it is installed."""
    monkeypatch.setitem(__import__("sys").modules, "tidegate.adapters.otlp.collector", None)
    settings = tracing_settings(_configuration("http://127.0.0.1:4318/v1/traces"), tmp_path)
    assert settings is not None
    write(tmp_path / "records", line(1))
    feed = open_span_feed(settings, tmp_path / "records", resource={})
    assert 0.5 == feed.step(now=NOW)
    assert "pip install 'tidegate[otlp]'" in feed.statistics().trouble
    feed.close()


def test_a_directory_that_cannot_be_made_is_told(tmp_path: Path) -> None:
    """By the first position that cannot be written."""
    (tmp_path / "tracing").write_text("in the way")
    settings = tracing_settings(_configuration("http://127.0.0.1:4318/v1/traces"), tmp_path)
    assert settings is not None
    feed = open_span_feed(settings, tmp_path / "records", resource={})
    assert 0.5 == feed.step(now=NOW)
    assert "Not a directory" in feed.statistics().trouble
    feed.close()
