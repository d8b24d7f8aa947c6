"""What runs found, kept in a file, so that one page can be made of two runs that are each short enough to be made at once.

Only runs on one machine with one set of versions belong together; of a measurement that was made twice the later one counts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec

from benchmarks.errors import BenchmarkError
from benchmarks.machine import Description
from benchmarks.rows import Row


@dataclass(frozen=True)
class Run:
    """What one command found."""

    command: str
    began: str
    """UTC, to the minute."""
    machine: Description
    rows: dict[str, list[Row]]
    """By measurement; with one row on how much other programs disturbed it."""
    failures: dict[str, str]
    """Why a measurement could not be made."""

    @property
    def measurements(self) -> set[str]:
        return set(self.rows) | set(self.failures)


def read(file: Path) -> list[Run]:
    """Give the runs in a file; none when there is no file."""
    try:
        return msgspec.json.decode(file.read_bytes(), type=list[Run])
    except FileNotFoundError:
        return []
    except msgspec.DecodeError as problem:
        raise BenchmarkError(f"{file} is not a file of kept runs ({problem}); delete it, or name another") from problem


def write(file: Path, runs: Sequence[Run]) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(msgspec.json.format(msgspec.json.encode(runs)))


def together(earlier: Sequence[Run], later: Run) -> list[Run]:
    """Put a run to those before it, without what it measured anew; refuse what was found elsewhere or with other versions."""
    joined = []
    for run in earlier:
        if different := _differences(run.machine, later.machine):
            raise BenchmarkError(
                f"The kept run of {run.began} is not of this machine and these versions ({different}); keep into another file"
            )
        left = replace(
            run,
            rows={name: rows for name, rows in run.rows.items() if name not in later.measurements},
            failures={name: why for name, why in run.failures.items() if name not in later.measurements},
        )
        if left.measurements:
            joined.append(left)
    return [*joined, later]


def _differences(then: Description, now: Description) -> str:
    """Say what differs; a version that only one of them has does not count, for the peers are chosen anew each time."""
    pairs = {name: (getattr(then, name), getattr(now, name)) for name in ("cpu", "cores", "memory_gb", "kernel")}
    pairs |= {name: (then.versions[name], now.versions[name]) for name in then.versions.keys() & now.versions.keys()}
    return ", ".join(f"{name} {old}, now {new}" for name, (old, new) in sorted(pairs.items()) if old != new)
