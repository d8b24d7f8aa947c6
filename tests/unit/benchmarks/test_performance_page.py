"""The page of measurements: what two runs make together, what is said of a peer that is missing, and how a target is judged."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from benchmarks.errors import BenchmarkError
from benchmarks.kept import Run, read, together, write
from benchmarks.machine import Description
from benchmarks.measure.rounds import alternate, summarised
from benchmarks.report import all_rows, figure_table, page, peer_table, target_table
from benchmarks.rows import Figures, Row
from benchmarks.subjects import Subject

MACHINE = Description("a processor", 2, 8.0, "6.1", {"tidegate": "0.1.0"})
COSTS = {"tidegate (pure)": 50.0, "nginx": 10.0, "litellm": 10_000.0}


def _requests(absent: dict[str, str]) -> list[Row]:
    rounds: dict[str, list[Figures]] = {name: [{"cpu_us": cost, "wrong": 0}] for name, cost in COSTS.items()}
    return summarised("requests", rounds, absent)


def _run(began: str, **rows: list[Row]) -> Run:
    return Run("python -m benchmarks.run", began, MACHINE, rows, {})


def test_the_target_about_litellm_is_judged_by_its_cost_over_ours() -> None:
    """10 ms beside 50 µs is 200 times, and 100 are asked for."""
    table = target_table(_requests({}))
    assert "| LiteLLM's CPU per request, over ours | tidegate (pure) | 200 × | ≥ 100 × |  | ✔ must met |" in table


def test_the_table_of_peers_gives_each_figure_and_how_many_times_ours_it_is() -> None:
    """What nobody measured is a dash."""
    assert "| nginx | 10 (0.2 ×) | – |" in peer_table(_requests({}))


def test_a_peer_that_is_missing_has_no_column_and_its_reason_below() -> None:
    """The reader is told why, on one line."""
    table = figure_table(_requests({"portkey": "npm is not\non the PATH"}))
    assert "portkey |" not in table
    assert table.endswith("* portkey: not measured: npm is not on the PATH")


def test_a_peer_that_fails_is_left_out_and_the_others_go_on() -> None:
    """It fails in its second round; nothing of it is kept."""

    def measure(subject: Subject) -> Figures:
        turns.append(subject.name)
        if subject.name == "weak" and turns.count("weak") > 1:
            raise BenchmarkError("it served nothing")
        return {"cpu_us": 1.0}

    turns: list[str] = []
    absent: dict[str, str] = {}
    results = alternate((Subject("strong", 1), Subject("weak", 2)), 3, measure, absent=absent)
    assert {"strong": [{"cpu_us": 1.0}] * 3} == results
    assert {"weak": "it served nothing"} == absent


def test_two_runs_make_one_page_and_the_later_figure_counts(tmp_path: Path) -> None:
    """Kept in a file and read again."""
    file = tmp_path / "build" / "runs.json"
    first = _run(
        "2026-01-01 10:00", requests=[Row("requests", "nginx", {"cpu_us": 1.0})], gaps=[Row("gaps", "direct", {"gap_p50_ms": 20.0})]
    )
    again = _run("2026-01-01 10:07", requests=[Row("requests", "nginx", {"cpu_us": 2.0})])
    assert [] == read(file)
    write(file, [first])
    runs = together(read(file), again)
    assert [("gaps", "direct"), ("requests", "nginx")] == [(row.measurement, row.subject) for row in all_rows(runs)]
    assert {"cpu_us": 2.0} == all_rows(runs)[-1].figures
    assert "2026-01-01 10:00 and 2026-01-01 10:07 UTC" in page(runs)


def test_runs_of_different_machines_or_versions_are_not_put_together() -> None:
    """Their microseconds have nothing in common."""
    other = replace(_run("2026-01-01 10:00", gaps=[]), machine=replace(MACHINE, versions={"tidegate": "0.0.9"}))
    with pytest.raises(BenchmarkError, match=r"tidegate 0\.0\.9, now 0\.1\.0"):
        together([other], _run("2026-01-01 11:00", requests=[]))


def test_a_file_that_is_something_else_is_not_overwritten(tmp_path: Path) -> None:
    """The reader is told to name another."""
    file = tmp_path / "notes"
    file.write_text("shopping list")
    with pytest.raises(BenchmarkError, match="is not a file of kept runs"):
        read(file)
