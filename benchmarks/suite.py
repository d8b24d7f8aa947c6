"""Runs every measurement, prints its rows as they come, and then the verdicts; on request writes the page."""

from __future__ import annotations

import argparse
import shlex
import subprocess
import sys
import time
from collections.abc import Callable, Sequence

from benchmarks.errors import BenchmarkError
from benchmarks.machine import Others, describe
from benchmarks.measure import gaps, latency, memory, requests, stall, streams, workers
from benchmarks.options import ROOT, Options, add_options, prepare
from benchmarks.peers import ROUTER, ROUTER_VERSION
from benchmarks.report import others_line, page, target_table
from benchmarks.rows import Row

PAGE = ROOT / "docs" / "performance.md"
MEASUREMENTS: dict[str, Callable[[Options], list[Row]]] = {
    "requests": requests.measure,
    "streams": streams.measure,
    "latency": latency.measure,
    "gaps": gaps.measure,
    "memory": memory.measure,
    "stall": stall.measure,
    "workers": workers.measure,
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run what the command line asks for; 1 when something could not be measured."""
    words = sys.argv[1:] if arguments is None else list(arguments)
    parser = argparse.ArgumentParser(prog="python -m benchmarks.run", description=__doc__)
    add_options(parser)
    parser.add_argument("--only", action="append", choices=list(MEASUREMENTS), help="this measurement alone; may be repeated")
    parser.add_argument("--write", action="store_true", help=f"write {PAGE.relative_to(ROOT)}")
    chosen = parser.parse_args(words)
    if chosen.write and chosen.only:
        parser.error("--write needs all measurements of one run; leave out --only")
    try:
        options = prepare(chosen)
    except BenchmarkError as error:
        parser.exit(2, f"{error}\n")
    began = time.monotonic()
    rows, failures = run(options, chosen.only or list(MEASUREMENTS))
    machine = describe()
    if options.router is not None:
        machine.versions[ROUTER] = ROUTER_VERSION
    print(f"\n{target_table(rows)}\n\n{time.monotonic() - began:.0f} s")
    print(others_line(rows))
    for failure in failures:
        print(f"Not measured: {failure}")
    if chosen.write:
        command = shlex.join(("python", "-m", "benchmarks.run", *words))
        PAGE.write_text(page(rows, machine, command=command, failures=failures))
        print(f"Written: {PAGE.relative_to(ROOT)}")
    return 1 if failures else 0


def run(options: Options, names: Sequence[str]) -> tuple[list[Row], list[str]]:
    """Make the measurements; one that fails is told and does not end the others."""
    rows: list[Row] = []
    failures = []
    for name in names:
        print(f"{name} …", file=sys.stderr, flush=True)
        others = Others()
        try:
            measured = MEASUREMENTS[name](options)
        except (BenchmarkError, AssertionError, OSError, subprocess.SubprocessError) as problem:
            failures.append(f"{name}: {problem}")
            continue
        disturbed = Row("others", name, {"share_of_cores": round(others.share(), 3)})
        rows += [*measured, disturbed]
        for row in (*measured, disturbed):
            print(row.line(), flush=True)
    return rows, failures
