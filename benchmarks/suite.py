"""Runs every measurement, prints its rows as they come, and then the verdicts; on request writes the page."""

from __future__ import annotations

import argparse
import shlex
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path

from benchmarks.errors import BenchmarkError
from benchmarks.install import PACKAGES
from benchmarks.kept import Run, read, together, write
from benchmarks.machine import Others, describe
from benchmarks.measure import gaps, latency, memory, requests, stall, streams, workers
from benchmarks.options import ROOT, Options, add_options, prepare
from benchmarks.report import all_rows, others_line, page, peer_table, target_table
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

_AS_WRITTEN = argparse.RawDescriptionHelpFormatter
_EXAMPLES = """\
one question beside one peer:
  python -m benchmarks.run --only requests --peers litellm
all of it, in two commands of some five minutes each that write one page:
  python -m benchmarks.run --compiled --keep build/bench.json --only requests streams
  python -m benchmarks.run --compiled --keep build/bench.json --only latency gaps memory stall workers --write
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run what the command line asks for; 1 when something of ours could not be measured."""
    words = sys.argv[1:] if arguments is None else list(arguments)
    parser = argparse.ArgumentParser(prog="python -m benchmarks.run", description=__doc__, epilog=_EXAMPLES, formatter_class=_AS_WRITTEN)
    add_options(parser)
    parser.add_argument(
        "--only", nargs="+", action="extend", choices=list(MEASUREMENTS), metavar="WHAT", help=f"of {', '.join(MEASUREMENTS)}"
    )
    parser.add_argument("--keep", type=Path, metavar="FILE", help="add what is found to FILE; --write takes all that is there")
    parser.add_argument("--write", action="store_true", help=f"write {PAGE.relative_to(ROOT)}")
    chosen = parser.parse_args(words)
    names = list(dict.fromkeys(chosen.only or MEASUREMENTS))
    try:
        earlier = read(chosen.keep) if chosen.keep is not None else []
        missing = set(MEASUREMENTS) - set(names) - {name for each in earlier for name in each.measurements}
        if chosen.write and missing:
            parser.error(f"--write needs all measurements; {', '.join(sorted(missing))} are neither asked for nor kept")
        began = time.monotonic()
        found = run(prepare(chosen), names, command=shlex.join(("python", "-m", "benchmarks.run", *words)))
        runs = together(earlier, found)
        if chosen.keep is not None:
            write(chosen.keep, runs)
    except BenchmarkError as error:
        parser.exit(2, f"{error}\n")
    rows = all_rows(runs)
    print(f"\n{target_table(rows)}\n\n{peer_table(rows)}\n\n{time.monotonic() - began:.0f} s")
    print(others_line(rows))
    for name, why in found.failures.items():
        print(f"Not measured: {name}: {why}")
    if chosen.write:
        PAGE.write_text(page(runs))
        print(f"Written: {PAGE.relative_to(ROOT)}")
    return 1 if found.failures else 0


def run(options: Options, names: Sequence[str], *, command: str) -> Run:
    """Make the measurements; one that fails is told and does not end the others."""
    machine = describe()
    machine.versions.update({name: PACKAGES[name].version for name in options.peers if name in PACKAGES})
    found = Run(command, datetime.now(UTC).strftime("%Y-%m-%d %H:%M"), machine, {}, {})
    for name in names:
        print(f"{name} …", file=sys.stderr, flush=True)
        others = Others()
        try:
            measured = MEASUREMENTS[name](options)
        except (BenchmarkError, AssertionError, OSError, subprocess.SubprocessError) as problem:
            found.failures[name] = str(problem)
            continue
        disturbed = Row("others", name, {"share_of_cores": round(others.share(), 3)})
        found.rows[name] = [*measured, disturbed]
        for row in found.rows[name]:
            print(row.line(), flush=True)
    return found
