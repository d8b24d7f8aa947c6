"""Judges the machine and this node on it: configuration, ports, clock, state directory, whether the node serves, the local model."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from statistics import median
from typing import Final

import msgspec

from tidegate.doctor.finding import Check, bad, ok, warning

LEAST_SPACE_BYTES: Final = 256 * 2**20
"""Below it records, books and logs fail within minutes of a busy node."""
SKEW_S: Final = 5.0
"""A `Date` is whole seconds and the answer took a while, so less than this is nothing."""
MOST_SKEW_S: Final = 30.0
"""The leeway that tokens are given by default: beyond it they are refused, or accepted after their end."""
_WELL: Final = frozenset({"connected", "shared"})
"""What `/readyz` says of a store that is there."""
STEP_S: Final = 0.5
"""By which the wall clock may move beside the monotonic one while the doctor looks: a clock that is slewed moves far less."""


class Problem(msgspec.Struct, frozen=True):
    """One problem of the configuration: where, what, and whether it is refused for it."""

    place: str
    sentence: str
    refused: bool = True


def configuration(name: str, problems: Sequence[Problem], notes: Sequence[str]) -> list[Check]:
    """Judge what loading the configuration told."""
    command = f"tidegate check --config {name}" if name else "tidegate check"
    place = name or "the defaults, without a file"
    found = [
        (bad if problem.refused else warning)(
            "configuration", f"{problem.place}: {problem.sentence}", f"Change {name or 'the environment'} there.", command
        )
        for problem in problems
    ]
    found += [warning("configuration", note, "Unset the variable, or write the upstream into the file.", command) for note in notes]
    return found or [ok("configuration", f"{place}: no problem.", command=command)]


def port(name: str, address: str, *, ours: bool = False, configured: int | None = None, trouble: str = "") -> Check:
    """Judge one address that the node listens on; `trouble` is why nobody can, `configured` the port of a file that ours does not go by."""
    if ours:
        other = f" It was started so: the configuration looked at here says port {configured}." if configured is not None else ""
        return ok(name, f"Our own node listens on {address}.{other}")
    if trouble:
        return bad(
            name,
            trouble,
            f"Stop who holds it, or choose another address for the {name}.",
            f"ss -ltnp 'sport = :{address.rpartition(':')[2]}'",
        )
    return ok(name, "A free one is taken at start." if address.endswith(":0") else f"{address} is free.")


def clock(skews_s: Mapping[str, float], *, stepped_s: float) -> list[Check]:
    """Judge the wall clock by the `Date` of upstreams' answers (ours less theirs), and how far it moved beside the monotonic clock."""
    command = "timedatectl timesync-status"
    mend = "Let NTP keep this machine's clock: tokens, budgets and records go by it."
    found = []
    if abs(stepped_s) > STEP_S:
        sentence = f"The wall clock moved by {stepped_s:+.1f} s beside the monotonic one while this was looked at."
        found.append(warning("clock", sentence, mend, command))
    if not skews_s:
        return [*found, ok("clock", "No upstream told the time, so it is compared with nothing.")]
    middle = median(skews_s.values())
    where = f"beside {len(skews_s)} upstream address{'es' if len(skews_s) > 1 else ''}"
    told = f"It is {abs(middle):.0f} s {'fast' if middle > 0 else 'slow'} {where}."
    if abs(middle) > MOST_SKEW_S:
        found.append(bad("clock", told, mend, command))
    elif abs(middle) > SKEW_S:
        found.append(warning("clock", told, mend, command))
    else:
        found.append(ok("clock", f"It agrees with others to within {SKEW_S:g} s ({where})."))
    others = [name for name, skew in skews_s.items() if abs(skew - middle) > MOST_SKEW_S]
    if others and len(skews_s) > 2:  # noqa: PLR2004  of two nobody can say which is wrong
        found.append(warning("clock", f"The clocks of {', '.join(others)} are far from the others'.", "Tell whoever runs them.", command))
    return found


class Directory(msgspec.Struct, frozen=True):
    """What there is at the state directory's path, or (`exists` False) of the nearest directory above it."""

    path: str
    exists: bool
    writable: bool
    mode: int
    free_bytes: int
    wanted_bytes: int
    """What record files may still grow to."""


def state_directory(found: Directory) -> Iterator[Check]:
    name, path = "state directory", found.path
    if not found.writable:
        what = "cannot be written" if found.exists else "is not there, and cannot be made"
        yield bad(name, f"{path} {what} by this user.", "Change its owner, or set state_directory.", f"ls -ld {path}")
        return
    if found.exists and found.mode & 0o077:
        told = f"{path} is open to other users (mode {found.mode & 0o777:o}); keys and records lie in it."
        yield warning(name, told, f"Unless that is meant: chmod 700 {path}", f"ls -ld {path}")
    free = f"{found.free_bytes / 2**30:,.1f} GiB free"
    if found.free_bytes < LEAST_SPACE_BYTES:
        yield bad(name, f"{path}: {free}, so records and books will fail to be written.", "Make room.", f"df -h {path}")
    elif found.free_bytes < found.wanted_bytes:
        told = f"{path}: {free}, and record files may still grow by {found.wanted_bytes / 2**30:,.1f} GiB."
        yield warning(name, told, "Make room, or lower records.keep_files or records.max_file_bytes.", f"df -h {path}")
    else:
        yield ok(name, f"{path}: {free}." if found.exists else f"{path} will be made; {free}.")


class NodeState(msgspec.Struct, frozen=True):
    """What `/readyz` of a running node says; the body of that answer, as far as it matters here."""

    workers: dict[str, str] = {}
    upstreams: dict[str, str] = {}
    engine: str | None = None
    shared: str | None = None
    drained: tuple[str, ...] = ()
    limits: str | None = None


def node(state: NodeState | None, *, admin: str, is_ready: bool = True, silent: bool = False) -> Iterator[Check]:
    """Judge a node: `state` None when none runs, or (`silent`) when one says that it runs and does not answer."""
    command = f"curl -s {admin}/readyz"
    if silent:
        fix = "Look at its log; when its process is gone, start it again."
        yield bad("node", f"It says that it serves, and does not answer on {admin}.", fix, command)
    if state is None:
        if not silent:
            yield ok("node", "It does not run.", command="tidegate serve")
        return
    unwell = [f"worker {index} is {phase}" for index, phase in state.workers.items() if phase != "ready"]
    unwell += [f"upstream {name} is {phase}" for name, phase in state.upstreams.items() if phase not in {"ready", "unused"}]
    unwell += [f"{name} is drained" for name in state.drained]
    unwell += [
        f"{what}: {how}" for what, how in (("the shared store", state.shared), ("limits", state.limits)) if how not in {None, *_WELL}
    ]
    if not is_ready:
        yield bad(
            "node", f"It runs and is not ready: {'; '.join(unwell) or 'no upstream can be used'}.", "See the upstreams below.", command
        )
    elif unwell:
        yield warning("node", f"It serves, but {'; '.join(unwell)}.", "See below; drained ones come back by hand only.", command)
    else:
        yield ok("node", f"It serves with {len(state.workers)} worker{'s' if len(state.workers) != 1 else ''}.", command=command)


def engine(*, enabled: bool, trouble: str = "") -> Check:
    """Judge whether the local model can be started; running it takes `tidegate doctor engine`."""
    if not enabled:
        return ok("local model", "Turned off.")
    command = "tidegate doctor engine"
    if trouble:
        return bad("local model", trouble, "Or turn it off: local_engine.enabled: false", command)
    return ok("local model", "It can be started; the command measures it.", command=command)
