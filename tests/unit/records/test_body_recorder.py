"""Bodies on file: masked by their policy, bounded in memory, counted where they cannot be kept, each change told once."""

from __future__ import annotations

import hashlib
import os
import stat
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import pytest

from tidegate.adapters.records.audit import OVERHEAD_BYTES, AuditSettings, BodyRecorder, KeptBody, kept_bodies
from tidegate.adapters.records.sink import LogSink
from tidegate.analytics.schema import BODIES
from tidegate.domain.audit import AuditPolicy, AuditRule, AuditRules
from tidegate.node.recorder import to_rows
from tidegate.ports import AuditedBodies
from tidegate.wire.masking import Masker, MaskPattern

DEADLINE_S = 10.0
EVERYTHING = AuditSettings(rules=AuditRules(AuditPolicy.REDACTED))
REQUEST = b'{"messages":[{"role":"user","content":"E-123456, 13800138000, sk-abcdefghijklmnop1234"}],"n":1}'
ANSWER = b'{"choices":[{"message":{"content":"upstream-secret-1 a@b.cn"}}]}'
SETTINGS = AuditSettings(
    rules=AuditRules(AuditPolicy.REDACTED), masker=Masker([MaskPattern("staff", r"E-\d{6}")]), secrets=("upstream-secret-1",)
)


def bodies(
    number: int = 0,
    *,
    policy: AuditPolicy = AuditPolicy.REDACTED,
    request: bytes = REQUEST,
    answer: bytes | None = ANSWER,
    more: int = 0,
    is_stream: bool = False,
    operation: str = "chat",
) -> AuditedBodies:
    return AuditedBodies(
        request_id=f"req-{number}",
        started_at=1_700_000_000.0,
        operation=operation,
        policy=policy,
        request=request,
        status=200 if answer is not None else 0,
        answer=answer,
        answer_bytes=len(answer or b"") + more,
        answer_sha256="of the whole" if more else "",
        is_stream=is_stream,
    )


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < deadline, "the condition did not come true in time"
        time.sleep(0.005)


@contextmanager
def recording(directory: Path, *, queue_bytes: int = 10_000_000, max_file_bytes: int = 1_000_000) -> Iterator[tuple[BodyRecorder, Path]]:
    """Make a recorder whose log lines go to `directory/log`; closed at the end."""
    log = directory / "log"
    descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    recorder = BodyRecorder(
        directory / "records",
        worker=0,
        max_file_bytes=max_file_bytes,
        keep_files=1000,
        queue_bytes=queue_bytes,
        sink=LogSink(descriptor),
        clock=lambda: 1_700_000_001.0,
        retry_s=0.05,
    )
    try:
        yield recorder, log
    finally:
        recorder.close()
        os.close(descriptor)


def kept(directory: Path) -> list[KeptBody]:
    lines = [line for path in sorted((directory / "records").glob("audit-0.jsonl*")) for line in path.read_bytes().splitlines()]
    return [msgspec.json.decode(line, type=KeptBody) for line in lines]


def texts(policy: AuditPolicy) -> list[str]:
    return [body.body for body in kept_bodies(bodies(policy=policy), SETTINGS)]


def test_each_policy_keeps_what_it_says() -> None:
    """No text; text with placeholders; text but for credentials, the gateway's own among them."""
    assert ['{"messages":1,"roles":{"user":1},"parameters":{"n":1}}', '{"status":200}'] == texts(AuditPolicy.METADATA)
    assert [
        '{"messages":[{"role":"user","content":"[staff], [phone], [key]"}],"n":1}',
        '{"choices":[{"message":{"content":"[key] [email]"}}]}',
    ] == texts(AuditPolicy.REDACTED)
    assert [
        '{"messages":[{"role":"user","content":"E-123456, 13800138000, [key]"}],"n":1}',
        '{"choices":[{"message":{"content":"[key] a@b.cn"}}]}',
    ] == texts(AuditPolicy.FULL)


def test_a_line_has_size_and_hash_of_the_whole_body() -> None:
    """Whatever of it is kept; the request's name is masked like in its record."""
    request, answer = kept_bodies(msgspec.structs.replace(bodies(more=5), request_id="sk-abcdefghijklmnop1234"), SETTINGS)
    assert ("sk-****", len(REQUEST), hashlib.sha256(REQUEST).hexdigest(), False) == (
        request.request_id,
        request.bytes,
        request.sha256,
        request.truncated,
    )
    assert (len(ANSWER) + 5, "of the whole", True) == (answer.bytes, answer.sha256, answer.truncated)
    assert hashlib.sha256(ANSWER).hexdigest() == kept_bodies(bodies(), SETTINGS)[1].sha256


def test_a_long_body_is_cut_and_says_so() -> None:
    """Of 30 MB, no more than the bound is kept, or even looked at."""
    request, answer = kept_bodies(bodies(request=b"word, " * 5_000_000, answer=b"line\n" * 500), AuditSettings(max_body_bytes=2000))
    assert (True, True) == (request.truncated, answer.truncated)
    assert max(len(request.body), len(answer.body)) < 2000
    assert 30_000_000 == request.bytes
    assert not kept_bodies(bodies(policy=AuditPolicy.METADATA, request=b"x" * 9000), AuditSettings(max_body_bytes=2000))[0].truncated


def test_a_stream_is_kept_as_the_texts_in_it() -> None:
    """Joined, so that nothing hides between pieces."""
    stream = b'data: {"choices":[{"delta":{"content":"sk-abcdefgh"}}]}\n\ndata: {"choices":[{"delta":{"content":"ijklmnop1234"}}]}\n\n'
    assert '{"choices":[{"index":0,"content":"[key]"}]}' == kept_bodies(bodies(answer=stream, is_stream=True), SETTINGS)[1].body


def test_what_has_no_answer_has_one_line_and_a_vector_no_text() -> None:
    """The client left before anything was sent; embeddings are numbers."""
    assert ["request"] == [body.kind for body in kept_bodies(bodies(answer=None), SETTINGS)]
    assert '{"status":200}' == kept_bodies(bodies(operation="embedding"), SETTINGS)[1].body


def test_bodies_are_on_file_soon_for_the_owner_only(tmp_path: Path) -> None:
    """Two lines for each request, in a file that nobody else can read; nothing is counted as waiting any more."""
    with recording(tmp_path) as (recorder, _):
        recorder.configure(SETTINGS)
        for number in range(3):
            recorder.keep(bodies(number), set_aside=0)
        wait_until(lambda: recorder.statistics().written == 6)
        assert [("req-0", "request"), ("req-0", "response"), ("req-1", "request")] == [(b.request_id, b.kind) for b in kept(tmp_path)[:3]]
        assert 0o600 == stat.S_IMODE((tmp_path / "records" / "audit-0.jsonl").stat().st_mode)
        wait_until(lambda: recorder.statistics().queued_bytes == 0)
    assert "BodyRecorder(" in repr(recorder)


def test_a_line_becomes_a_row_of_the_tables(tmp_path: Path) -> None:
    """With every column that is not where the line stood."""
    with recording(tmp_path) as (recorder, _):
        recorder.configure(SETTINGS)
        recorder.keep(bodies(), set_aside=0)
    line = (tmp_path / "records" / "audit-0.jsonl").read_bytes().splitlines()[0]
    rows = to_rows("here")["audit"](line, "source", 0)
    assert rows is not None
    (row,) = rows[BODIES.name]
    assert set(BODIES.names) == set(row)
    assert ("request", "redacted", len(REQUEST)) == (row["kind"], row["policy"], row["bytes"])


def test_files_are_rotated(tmp_path: Path) -> None:
    """No file grows beyond its bound."""
    with recording(tmp_path, max_file_bytes=4096) as (recorder, _):
        recorder.configure(SETTINGS)
        for number in range(100):
            recorder.keep(bodies(number), set_aside=0)
    assert 200 == len(kept(tmp_path))
    assert all(path.stat().st_size <= 4096 for path in (tmp_path / "records").iterdir())


def test_without_a_policy_there_is_no_thread_and_a_reload_may_bring_one(tmp_path: Path) -> None:
    """What keeps nothing costs nothing."""
    with recording(tmp_path) as (recorder, _):
        recorder.configure(AuditSettings())
        assert AuditPolicy.OFF is recorder.policy("acme", "m")
        assert recorder.close()
    assert not (tmp_path / "records").exists()
    with recording(tmp_path) as (recorder, _):
        recorder.configure(AuditSettings(rules=AuditRules(rules=(AuditRule(AuditPolicy.FULL, tenant="a*"),)), max_body_bytes=7))
        assert (AuditPolicy.FULL, AuditPolicy.OFF, 7) == (recorder.policy("acme", "m"), recorder.policy("b", "m"), recorder.max_body_bytes)
        recorder.configure(EVERYTHING)
        recorder.keep(bodies(), set_aside=0)
    assert 2 == len(kept(tmp_path))


def test_the_queue_is_bounded_in_bytes_and_drops_are_counted_and_told_once(tmp_path: Path) -> None:
    """While the directory cannot be written bodies wait; what finds no room is dropped; when it can be, what waited is there, once."""
    (tmp_path / "records").write_text("a file in the way of the directory")
    room_for_two = 2 * (len(REQUEST) + len(ANSWER) + OVERHEAD_BYTES)
    with recording(tmp_path, queue_bytes=room_for_two + 100) as (recorder, log):
        recorder.configure(SETTINGS)
        for number in range(50):
            recorder.keep(bodies(number), set_aside=0)
        recorder.keep(bodies(50, answer=None, request=REQUEST * 9), set_aside=0)
        wait_until(lambda: "audit.dropping" in log.read_text())
        statistics = recorder.statistics()
        assert (True, room_for_two, 97) == (statistics.stuck, statistics.queued_bytes, statistics.dropped)
        (tmp_path / "records").unlink()
        wait_until(lambda: "audit.dropped" in log.read_text())
        wait_until(lambda: recorder.statistics().written == 4)
    assert ["req-0", "req-0", "req-1", "req-1"] == [body.request_id for body in kept(tmp_path)]
    events = [line.split()[2] for line in log.read_text().splitlines()]
    assert {"audit.stuck": 1, "audit.dropping": 1, "audit.resumed": 1, "audit.dropped": 1} == {name: events.count(name) for name in events}


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no device that is always full")
def test_on_a_full_disk_nothing_is_kept_or_repeated_and_the_end_says_what_was_lost(tmp_path: Path) -> None:
    """The gateway goes on; at its end the rest is counted as dropped."""
    (tmp_path / "records").mkdir()
    (tmp_path / "records" / "audit-0.jsonl").symlink_to("/dev/full")
    with recording(tmp_path) as (recorder, log):
        recorder.configure(SETTINGS)
        recorder.keep(bodies(0), set_aside=0)
        recorder.keep(bodies(1, answer=None), set_aside=0)
        wait_until(lambda: recorder.statistics().stuck)
        recorder.close()
        assert (0, 0, 3) == (recorder.statistics().written, recorder.statistics().queued_bytes, recorder.statistics().dropped)
    assert 1 == log.read_text().count("audit.stuck")
    assert "audit.lost bodies=3" in log.read_text()


def test_an_end_that_may_not_take_long_counts_what_is_left(tmp_path: Path) -> None:
    """Every body is either on file or among the dropped."""
    with recording(tmp_path) as (recorder, _):
        recorder.configure(SETTINGS)
        for number in range(200):
            recorder.keep(bodies(number, request=REQUEST * 200), set_aside=0)
        recorder.close(deadline_s=0.0)
        wait_until(lambda: recorder.statistics().queued_bytes == 0)
        wait_until(lambda: recorder.statistics().written + recorder.statistics().dropped == 400)
        assert recorder.statistics().dropped > 0
    assert recorder.statistics().written == len(kept(tmp_path))


def test_room_is_set_aside_for_streams_that_run(tmp_path: Path) -> None:
    """What they gathered counts as waiting, and is not counted twice when it is handed over."""
    with recording(tmp_path, queue_bytes=5000) as (recorder, _):
        assert recorder.set_aside(3000)
        assert not recorder.set_aside(2001)
        recorder.give_back(3000)
        assert recorder.set_aside(len(ANSWER))
        recorder.keep(bodies(), set_aside=len(ANSWER))
        assert len(REQUEST) + len(ANSWER) + OVERHEAD_BYTES == recorder.statistics().queued_bytes
        recorder.set_aside(3000)
        recorder.keep(bodies(request=b"x" * 5000), set_aside=3000)
        assert (len(REQUEST) + len(ANSWER) + OVERHEAD_BYTES, 2) == (recorder.statistics().queued_bytes, recorder.statistics().dropped)
        recorder.configure(SETTINGS)
        wait_until(lambda: recorder.statistics().queued_bytes == 0)


def test_a_fault_costs_one_requests_bodies_and_says_nothing_of_them(tmp_path: Path) -> None:
    """The thread goes on with the next."""

    class Failing(Masker):
        def mask(self, text: str) -> str:
            if "fatal" in text:
                raise ValueError(text)
            return text

    with recording(tmp_path) as (recorder, log):
        recorder.configure(AuditSettings(rules=AuditRules(AuditPolicy.REDACTED), masker=Failing()))
        recorder.keep(bodies(0, request=b"fatal"), set_aside=0)
        recorder.keep(bodies(1), set_aside=0)
        wait_until(lambda: recorder.statistics().written == 2)
        assert 2 == recorder.statistics().dropped
    assert "audit.unreadable request_id=req-0 error=ValueError" in log.read_text()
    assert "fatal" not in log.read_text()
