"""Judges the machine and this node on it: configuration, ports, clock, state directory, whether the node serves, the local model."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from statistics import median
from typing import Final

import msgspec

from tidegate.doctor.finding import Check, bad, ok, warning
from tidegate.doctor.phrases import joined, say

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
    place = name or say("the defaults, without a file")
    found = [
        (bad if problem.refused else warning)(
            "configuration",
            joined(": ", (problem.place, problem.sentence)),
            say("Change {place} there.", place=name or say("the environment")),
            command,
        )
        for problem in problems
    ]
    found += [warning("configuration", note, "Unset the variable, or write the upstream into the file.", command) for note in notes]
    return found or [ok("configuration", say("{place}: no problem.", place=place), command=command)]


def port(name: str, address: str, *, ours: bool = False, configured: int | None = None, trouble: str = "") -> Check:
    """Judge one address that the node listens on; `trouble` is why nobody can, `configured` the port of a file that ours does not go by."""
    if ours:
        told = [say("Our own node listens on {address}.", address=address)]
        if configured is not None:
            told.append(say("It was started so: the configuration looked at here says port {configured}.", configured=configured))
        return ok(name, joined(" ", told))
    if trouble:
        return bad(
            name,
            trouble,
            say("Stop who holds it, or choose another address for the {name}.", name=name),
            f"ss -ltnp 'sport = :{address.rpartition(':')[2]}'",
        )
    return ok(name, "A free one is taken at start." if address.endswith(":0") else say("{address} is free.", address=address))


def clock(skews_s: Mapping[str, float], *, stepped_s: float) -> list[Check]:
    """Judge the wall clock by the `Date` of upstreams' answers (ours less theirs), and how far it moved beside the monotonic clock."""
    command = "timedatectl timesync-status"
    mend = "Let NTP keep this machine's clock: tokens, budgets and records go by it."
    found = []
    if abs(stepped_s) > STEP_S:
        sentence = say("The wall clock moved by {stepped_s:+.1f} s beside the monotonic one while this was looked at.", stepped_s=stepped_s)
        found.append(warning("clock", sentence, mend, command))
    if not skews_s:
        return [*found, ok("clock", "No upstream told the time, so it is compared with nothing.")]
    middle = median(skews_s.values())
    where = say("beside {n} upstream addresses", n=len(skews_s)) if len(skews_s) > 1 else say("beside 1 upstream address")
    way = "It is {off_s:.0f} s fast {where}." if middle > 0 else "It is {off_s:.0f} s slow {where}."
    told = say(way, off_s=abs(middle), where=where)
    if abs(middle) > MOST_SKEW_S:
        found.append(bad("clock", told, mend, command))
    elif abs(middle) > SKEW_S:
        found.append(warning("clock", told, mend, command))
    else:
        found.append(ok("clock", say("It agrees with others to within {most_s:g} s ({where}).", most_s=SKEW_S, where=where)))
    others = [name for name, skew in skews_s.items() if abs(skew - middle) > MOST_SKEW_S]
    if others and len(skews_s) > 2:  # noqa: PLR2004  of two nobody can say which is wrong
        told = say("The clocks of {names} are far from the others'.", names=", ".join(others))
        found.append(warning("clock", told, "Tell whoever runs them.", command))
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
        what = "{path} cannot be written by this user." if found.exists else "{path} is not there, and cannot be made by this user."
        yield bad(name, say(what, path=path), "Change its owner, or set state_directory.", f"ls -ld {path}")
        return
    if found.exists and found.mode & 0o077:
        told = say("{path} is open to other users (mode {mode:o}); keys and records lie in it.", path=path, mode=found.mode & 0o777)
        yield warning(name, told, say("Unless that is meant: chmod 700 {path}", path=path), f"ls -ld {path}")
    free = found.free_bytes / 2**30
    if found.free_bytes < LEAST_SPACE_BYTES:
        told = say("{path}: {free:,.1f} GiB free, so records and books will fail to be written.", path=path, free=free)
        yield bad(name, told, "Make room.", f"df -h {path}")
    elif found.free_bytes < found.wanted_bytes:
        growth = found.wanted_bytes / 2**30
        told = say(
            "{path}: {free:,.1f} GiB free, and record files may still grow by {growth:,.1f} GiB.", path=path, free=free, growth=growth
        )
        yield warning(name, told, "Make room, or lower records.keep_files or records.max_file_bytes.", f"df -h {path}")
    else:
        yield ok(
            name,
            say("{path}: {free:,.1f} GiB free." if found.exists else "{path} will be made; {free:,.1f} GiB free.", path=path, free=free),
        )


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
        yield bad("node", say("It says that it serves, and does not answer on {admin}.", admin=admin), fix, command)
    if state is None:
        if not silent:
            yield ok("node", "It does not run.", command="tidegate serve")
        return
    unwell = [say("worker {index} is {phase}", index=index, phase=phase) for index, phase in state.workers.items() if phase != "ready"]
    upstreams = [(name, phase) for name, phase in state.upstreams.items() if phase not in {"ready", "unused"}]
    unwell += [say("upstream {name} is {phase}", name=name, phase=phase) for name, phase in upstreams]
    unwell += [say("{name} is drained", name=name) for name in state.drained]
    stores = (("the shared store: {how}", state.shared), ("limits: {how}", state.limits))
    unwell += [say(what, how=how) for what, how in stores if how not in {None, *_WELL}]
    lacks = joined("; ", unwell)
    if not is_ready:
        told = say("It runs and is not ready: {lacks}.", lacks=lacks or say("no upstream can be used"))
        yield bad("node", told, "See the upstreams below.", command)
    elif unwell:
        fix = "See below; drained ones come back by hand only." if state.drained else "See the lines below."
        yield warning("node", say("It serves, but {lacks}.", lacks=lacks), fix, command)
    else:
        n = len(state.workers)
        yield ok("node", say("It serves with 1 worker." if n == 1 else "It serves with {n} workers.", n=n), command=command)


def engine(*, enabled: bool, trouble: str = "") -> Check:
    """Judge whether the local model can be started; running it takes `tidegate doctor engine`."""
    if not enabled:
        return ok("local model", "Turned off.")
    command = "tidegate doctor engine"
    if trouble:
        return bad("local model", trouble, "Or turn it off: local_engine.enabled: false", command)
    return ok("local model", "It can be started; the command measures it.", command=command)
