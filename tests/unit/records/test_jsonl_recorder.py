"""The recorder: never waits, loses nothing it can keep, counts what it cannot, tells each change once."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import pytest

from tidegate.adapters.records.files import LOOK_EVERY_S
from tidegate.adapters.records.jsonl import PAUSE_S, WAKE_AT, JsonLinesRecorder, RecorderState
from tidegate.adapters.records.sink import LogSink
from tidegate.domain.outcome import Outcome
from tidegate.domain.record import RequestRecord

DEADLINE_S = 10.0


def record(number: int, *, key_id: str = "key") -> RequestRecord:
    return RequestRecord(
        request_id=f"req-{number}",
        started_at=1_700_000_000.0,
        operation="chat",
        outcome=Outcome.OK,
        status=200,
        duration_s=0.5,
        key_id=key_id,
    )


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < deadline, "the condition did not come true in time"
        time.sleep(0.005)


@contextmanager
def recording(directory: Path, *, queue_records: int = 10_000, max_file_bytes: int = 1_000_000) -> Iterator[tuple[JsonLinesRecorder, Path]]:
    """Run a recorder whose log lines go to `directory/log`; closed at the end."""
    log = directory / "log"
    descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    recorder = JsonLinesRecorder(
        directory / "records",
        worker=0,
        spill_directory=directory / "spill",
        max_file_bytes=max_file_bytes,
        keep_files=1000,
        queue_records=queue_records,
        sink=LogSink(descriptor),
        clock=lambda: 1_700_000_001.0,
        retry_s=0.05,
    )
    recorder.start()
    try:
        yield recorder, log
    finally:
        recorder.close()
        os.close(descriptor)


def recorded(directory: Path) -> list[str]:
    """Read the ids of all records on file, oldest first."""
    files = sorted((directory / "records").glob("*.jsonl.*"), key=lambda path: -int(path.suffix[1:]))
    lines = [
        line for path in (*files, directory / "records" / "requests-0.jsonl") if path.exists() for line in path.read_bytes().splitlines()
    ]
    return [msgspec.json.decode(line, type=RequestRecord).request_id for line in lines]


def ids(count: int) -> list[str]:
    return [f"req-{number}" for number in range(count)]


def test_a_backlog_is_written_with_pauses(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between two batches the writer sleeps, so that an event loop on the same core is not kept waiting for all of them."""
    pauses: list[float] = []

    def sleep(seconds: float, really: Callable[[float], None] = time.sleep) -> None:
        if threading.current_thread().name == "recorder-0":
            pauses.append(seconds)
        really(seconds)

    monkeypatch.setattr(time, "sleep", sleep)
    blocked = tmp_path / "records"
    blocked.write_text("not a directory")
    (tmp_path / "spill").write_text("nor this")
    with recording(tmp_path) as (recorder, _):
        for number in range(400):
            recorder.record(record(number))
        wait_until(lambda: recorder.statistics().state is RecorderState.STUCK)
        (tmp_path / "spill").unlink()
        blocked.unlink()
        wait_until(lambda: recorder.statistics().written >= 400 - WAKE_AT)
        assert pauses.count(PAUSE_S) == len(pauses) >= 3  # one more when the first batch was a short one
    assert recorded(tmp_path) == ids(400)


def test_records_are_on_file_soon_without_closing(tmp_path: Path) -> None:
    """A record is written a moment after it is handed over."""
    with recording(tmp_path) as (recorder, _):
        recorder.record(record(0))
        wait_until(lambda: recorder.statistics().written == 1)
        assert recorded(tmp_path) == ["req-0"]


def test_close_writes_everything_waiting_across_rotations(tmp_path: Path) -> None:
    """No record is lost or doubled however often the file is rotated."""
    with recording(tmp_path, max_file_bytes=4096) as (recorder, _):
        for number in range(2000):
            recorder.record(record(number))
        assert recorder.close()
    assert recorded(tmp_path) == ids(2000)
    assert len(list((tmp_path / "records").iterdir())) > 3


def test_each_record_is_one_log_line(tmp_path: Path) -> None:
    """The log has one structured line per request, with what an operator greps for."""
    with recording(tmp_path) as (recorder, log):
        recorder.record(record(7))
        recorder.close()
        line = log.read_text()
    assert line.count("\n") == 1
    assert line.startswith("2023-11-14T22:13:20.500Z info request.finished request_id=req-7 operation=chat outcome=ok status=200 ")
    assert " duration_ms=500.0 " in line


def test_a_directory_that_fails_spills_and_comes_back_in_order(tmp_path: Path) -> None:
    """While the directory cannot be written nothing is lost, and afterwards everything is there once, in order."""
    with recording(tmp_path) as (recorder, log):
        recorder.record(record(0))
        wait_until(lambda: recorder.statistics().written == 1)
        shutil.move(tmp_path / "records", tmp_path / "aside")
        (tmp_path / "records").write_text("a file where the directory was")
        moved_at = time.monotonic()
        wait_until(lambda: time.monotonic() >= moved_at + LOOK_EVERY_S)
        for number in range(1, 500):
            recorder.record(record(number))
        wait_until(lambda: recorder.statistics().state is RecorderState.SPILLING and recorder.statistics().written == 500)
        (tmp_path / "records").unlink()
        shutil.move(tmp_path / "aside", tmp_path / "records")
        wait_until(lambda: recorder.statistics().state is RecorderState.WRITING)
        for number in range(500, 600):
            recorder.record(record(number))
        recorder.close()
        events = [line.split()[2] for line in log.read_text().splitlines()]
    assert recorded(tmp_path) == ids(600)
    assert (events.count("records.spilling"), events.count("records.resumed"), events.count("request.finished")) == (1, 1, 600)
    assert recorder.statistics().dropped == 0
    assert not list((tmp_path / "spill").iterdir())


def test_a_full_disk_spills(tmp_path: Path) -> None:
    """A disk without room is a directory that cannot be written."""
    (tmp_path / "records").mkdir()
    (tmp_path / "records" / "requests-0.jsonl").symlink_to("/dev/full")
    with recording(tmp_path) as (recorder, _):
        recorder.record(record(0))
        wait_until(lambda: recorder.statistics().state is RecorderState.SPILLING)
        (tmp_path / "records" / "requests-0.jsonl").unlink()
        wait_until(lambda: recorder.statistics().state is RecorderState.WRITING)
    assert recorded(tmp_path) == ["req-0"]


def test_when_both_fail_the_queue_holds_and_then_counts(tmp_path: Path) -> None:
    """Nothing is dropped that memory can hold; what it cannot is counted and told; the rest is written when a file works again."""
    (tmp_path / "records").write_text("in the way")
    (tmp_path / "spill").write_text("in the way")
    with recording(tmp_path, queue_records=100) as (recorder, log):
        recorder.record(record(0))
        wait_until(lambda: recorder.statistics().state is RecorderState.STUCK)
        for number in range(1, 151):
            recorder.record(record(number))
        wait_until(lambda: "records.dropping" in log.read_text())
        assert recorder.statistics().dropped == 50
        (tmp_path / "records").unlink()
        wait_until(lambda: recorder.statistics().state is RecorderState.WRITING)
        wait_until(lambda: recorder.statistics().written == 101)
        events = [line.split()[2] for line in log.read_text().splitlines()]
    assert recorded(tmp_path) == ids(101)
    assert (events.count("records.stuck"), events.count("records.dropping"), events.count("records.resumed")) == (1, 1, 1)


def test_strangers_do_not_cost_callers_their_records(tmp_path: Path) -> None:
    """What nobody's key is behind fills half of the queue at most, however much comes."""
    (tmp_path / "records").write_text("in the way")
    (tmp_path / "spill").write_text("in the way")
    with recording(tmp_path, queue_records=100) as (recorder, _):
        recorder.record(record(0))
        wait_until(lambda: recorder.statistics().state is RecorderState.STUCK)
        for number in range(1, 151):
            recorder.record(record(number, key_id=""))
        assert recorder.statistics().dropped == 100
        for number in range(151, 201):
            recorder.record(record(number))
        assert recorder.statistics().dropped == 100
        (tmp_path / "records").unlink()
        wait_until(lambda: recorder.statistics().written == 101)
    assert recorded(tmp_path) == [*ids(51), *(f"req-{number}" for number in range(151, 201))]


def test_closing_while_both_fail_tells_what_is_lost(tmp_path: Path) -> None:
    """A shutdown that cannot write says how many records it takes with it."""
    (tmp_path / "records").write_text("in the way")
    (tmp_path / "spill").write_text("in the way")
    with recording(tmp_path) as (recorder, log):
        recorder.record(record(0))
        recorder.close()
        assert recorder.statistics().dropped == 1
        assert "records.lost records=1" in log.read_text()


def test_a_restart_takes_over_the_spill_of_the_process_before(tmp_path: Path) -> None:
    """A process that ended while spilling leaves its records to the next one."""
    (tmp_path / "records").write_text("in the way")
    with recording(tmp_path) as (recorder, _):
        for number in range(10):
            recorder.record(record(number))
    (tmp_path / "records").unlink()
    with recording(tmp_path) as (recorder, _):
        recorder.record(record(10))
    assert recorded(tmp_path) == ids(11)


def test_kill_loses_at_most_the_queue(tmp_path: Path) -> None:
    """After SIGKILL every record reported as written is on file, whole, once, and the next process writes after it."""
    program = textwrap.dedent(
        """
        import os, sys, time
        from pathlib import Path
        from tidegate.adapters.records.jsonl import JsonLinesRecorder
        from tidegate.adapters.records.sink import LogSink
        from tidegate.domain.outcome import Outcome
        from tidegate.domain.record import RequestRecord
        root = Path(sys.argv[1])
        sink = LogSink(os.open("/dev/null", os.O_WRONLY))
        recorder = JsonLinesRecorder(root / "records", worker=0, spill_directory=root / "spill", max_file_bytes=100_000, keep_files=1000,
                                     queue_records=100_000, sink=sink, clock=lambda: 0.0)
        recorder.start()
        number = 0
        while True:
            for _ in range(200):
                recorder.record(
                    RequestRecord(request_id=f"req-{number}", started_at=0.0, operation="chat", outcome=Outcome.OK, status=200,
                    duration_s=0.1)
                )
                number += 1
            print(recorder.statistics().written, flush=True)
            time.sleep(0.005)
        """
    )
    process = subprocess.Popen([sys.executable, "-c", program, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    with process, process.stdout as reports:
        written = 0
        while written < 2000:
            written = int(reports.readline())
        process.send_signal(signal.SIGKILL)
    with recording(tmp_path) as (recorder, _):
        recorder.record(record(999_999))
    files = sorted((tmp_path / "records").glob("*.jsonl.*"), key=lambda path: -int(path.suffix[1:]))
    lines = [line for path in (*files, tmp_path / "records" / "requests-0.jsonl") for line in path.read_bytes().splitlines()]
    whole = [line for line in lines if line.endswith(b"}")]
    found = [msgspec.json.decode(line, type=RequestRecord).request_id for line in whole]
    assert len(lines) - len(whole) <= 1
    assert found == [*ids(len(found) - 1), "req-999999"]
    assert len(found) > written


def test_a_record_that_cannot_be_encoded_costs_only_itself(tmp_path: Path) -> None:
    """A lone surrogate from a client does not stop the records of others."""
    with recording(tmp_path) as (recorder, log):
        recorder.record(msgspec.structs.replace(record(0), model="\ud800"))
        recorder.record(record(1))
        recorder.close()
        assert recorded(tmp_path) == ["req-1"]
        assert recorder.statistics().dropped == 1
        assert "records.unencodable" in log.read_text()


def test_recording_does_not_wait_for_a_stopped_reader_of_the_log(tmp_path: Path) -> None:
    """A collector that stops reading the log costs log lines, which are counted, and no record."""
    reader, writer = os.pipe()
    recorder = JsonLinesRecorder(
        tmp_path / "records",
        worker=0,
        spill_directory=tmp_path / "spill",
        max_file_bytes=100_000_000,
        keep_files=1,
        queue_records=10_000,
        sink=LogSink(writer),
        clock=lambda: 0.0,
    )
    recorder.start()
    for number in range(3000):
        recorder.record(record(number))
    assert recorder.close()
    assert recorded(tmp_path) == ids(3000)
    assert recorder.statistics().log_lines_dropped > 0
    os.close(reader)
    os.close(writer)
