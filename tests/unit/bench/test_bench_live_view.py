"""What is seen while a run goes, on a terminal and in a log."""

from __future__ import annotations

import io

import msgspec
from rich.console import Console
from tests.unit.bench.runs import LENIENT, answer, failure, plan, planned

from tidegate.bench.figures import Figures, Snapshot
from tidegate.bench.live_view import LINE_EVERY_S, PANEL_EVERY_S, LiveView, RunProgress, line
from tidegate.bench.outcome import judge
from tidegate.testing import ManualClock


def snapshot(answers: int = 3, failures: int = 0) -> Snapshot:
    figures = Figures(plan())
    for index in range(answers):
        figures.add(judge(answer(index, due_at=index / 10), planned(index, due_s=index / 10), LENIENT))
    for index in range(failures):
        figures.add(judge(failure(index), planned(index), LENIENT))
    return figures.snapshot()


PROGRESS = RunProgress(title="poisson <b>", elapsed_s=5.0, length_s=10.0, planned=100, in_flight=2, snapshot=snapshot(), rate_per_s=10.0)


def written(progress: RunProgress, *, terminal: bool) -> str:
    text = io.StringIO()
    with LiveView(Console(file=text, force_terminal=terminal, width=100, color_system=None), ManualClock()) as view:
        view.show(progress)
    return text.getvalue()


def test_a_log_gets_a_line() -> None:
    """With all that one asks during a run."""
    assert "5 of 10 s, 3 of 100 requests, 2 under way, ok 100 %, ttft p50 200 ms, p99 200 ms, e2e p99 1 s\n" == written(
        PROGRESS, terminal=False
    )


def test_a_terminal_gets_a_panel() -> None:
    """The same, with rates and outcomes, and what is planned as it was given."""
    text = written(msgspec.structs.replace(PROGRESS, snapshot=snapshot(3, failures=1)), terminal=True)
    for expected in ("poisson <b>", "5 of 10 s", "4 of 100 requests, 2 under way", "asked 10/s", "ok 3", "transport 1", "valid so far"):
        assert expected in text


def test_doubts_are_seen_while_there_is_time_to_stop() -> None:
    """In both forms."""
    doubtful = msgspec.structs.replace(PROGRESS, doubts=("the client is too slow",), stopping=True)
    assert "NOT VALID: the client is too slow" in line(doubtful)
    panel = written(doubtful, terminal=True)
    assert "NOT VALID: the client is too slow" in panel
    assert "stopping" in panel


def test_a_run_without_an_answer_yet_and_a_closed_loop() -> None:
    """Dashes, not noughts; no number of requests where only time ends it."""
    empty = msgspec.structs.replace(PROGRESS, elapsed_s=0.0, snapshot=snapshot(0), planned=None, rate_per_s=None)
    assert "0 of 10 s, 0 requests, 2 under way, ok –, ttft p50 –, p99 –, e2e p99 –" == line(empty)
    assert "closed loop" in written(empty, terminal=True)
    assert line(msgspec.structs.replace(empty, elapsed_s=12.0)).startswith("12 s, waiting for answers")


def test_progress_is_the_further_of_time_and_number() -> None:
    """A run ends by either."""
    assert 0.5 == PROGRESS.ratio
    assert 0.75 == msgspec.structs.replace(PROGRESS, planned=4).ratio
    assert 1.0 == msgspec.structs.replace(PROGRESS, elapsed_s=99.0, planned=None).ratio
    assert 0.03 == msgspec.structs.replace(PROGRESS, length_s=0.0).ratio


def test_it_is_drawn_no_more_often_than_is_of_use() -> None:
    """Logs every few seconds, terminals several times a second."""
    for terminal, every_s in ((False, LINE_EVERY_S), (True, PANEL_EVERY_S)):
        clock = ManualClock()
        with LiveView(Console(file=io.StringIO(), force_terminal=terminal), clock) as view:
            seen = [view.is_due]
            view.show(PROGRESS)
            seen.append(view.is_due)
            clock.advance(every_s)
            assert [True, False, True] == [*seen, view.is_due]
