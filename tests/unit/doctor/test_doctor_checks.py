"""What is found of the machine, the node and what stands beside it is judged as a person would."""

from __future__ import annotations

import pytest

from tidegate.doctor import machine, services
from tidegate.doctor.finding import Check, Verdict, bad, ok, warning, worst
from tidegate.doctor.machine import Directory, NodeState, Problem
from tidegate.doctor.services import EXTRAS, RecorderReport, Store

OK, WARNING, BAD = Verdict.OK, Verdict.WARNING, Verdict.BAD
SPACE = Directory(path="state", exists=True, writable=True, mode=0o40700, free_bytes=2**40, wanted_bytes=2**30)


def verdicts(checks: list[Check]) -> list[Verdict]:
    return [check.verdict for check in checks]


def test_the_worst_verdict_counts() -> None:
    """One bad line is enough; without any line all is well."""
    one, two, three = ok("a", "b"), warning("a", "b", "c"), bad("a", "b", "c")
    assert (BAD, WARNING, OK, OK) == (worst([one, three, two]), worst([two, one]), worst([one]), worst([]))


def test_problems_of_the_configuration_are_lines_each() -> None:
    """Refused ones are bad, the rest warnings; where there is none, that is said."""
    problems = [Problem("line 3", "is no port"), Problem("line 4", "is old", refused=False)]
    assert [BAD, WARNING, WARNING] == verdicts(machine.configuration("t.yaml", problems, ["a key is left alone"]))
    [fine] = machine.configuration("", [], [])
    assert (OK, "the defaults, without a file: no problem.", "tidegate check") == (fine.verdict, fine.sentence, fine.command)
    assert "tidegate check --config t.yaml" == machine.configuration("t.yaml", [], [])[0].command


def test_a_port_is_free_ours_or_in_the_way() -> None:
    """Who holds it can be looked up."""
    assert "h:8080 is free." == machine.port("api port", "h:8080").sentence
    assert "A free one is taken at start." == machine.port("api port", "h:0").sentence
    assert "Our own node listens on h:8080." == machine.port("api port", "h:8080", ours=True).sentence
    assert machine.port("api port", "h:8080", ours=True, configured=80).sentence.endswith("the configuration looked at here says port 80.")
    taken = machine.port("api port", "h:8080", trouble="It is in use.")
    assert (BAD, "It is in use.", "ss -ltnp 'sport = :8080'") == (taken.verdict, taken.sentence, taken.command)


@pytest.mark.parametrize(
    ("skews", "stepped", "expected"),
    [
        ({}, 0.0, [OK]),
        ({"a": 0.4}, 0.0, [OK]),
        ({"a": 6.0}, 0.0, [WARNING]),
        ({"a": -31.0, "b": -33.0}, 0.0, [BAD]),
        ({"a": 0.1}, -3.0, [WARNING, OK]),
        ({"a": 0.1, "b": 0.2, "c": 90.0}, 0.0, [OK, WARNING]),
        ({"a": 0.1, "b": 90.0}, 0.0, [BAD]),
    ],
)
def test_the_clock_is_compared_with_those_of_upstreams(skews: dict[str, float], stepped: float, expected: list[Verdict]) -> None:
    """The middle one counts, so that one wrong server among several is named instead; a jump meanwhile is told, too."""
    assert expected == verdicts(machine.clock(skews, stepped_s=stepped))


def test_the_clock_says_which_way_it_is_wrong() -> None:
    """Fast or slow, beside how many."""
    assert "It is 31 s slow beside 1 upstream address." == machine.clock({"a": -31.0}, stepped_s=0.0)[0].sentence
    assert "It is 7 s fast beside 2 upstream addresses." == machine.clock({"a": 7.0, "b": 7.0}, stepped_s=0.0)[0].sentence


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, [OK]),
        ({"exists": False}, [OK]),
        ({"writable": False}, [BAD]),
        ({"writable": False, "exists": False}, [BAD]),
        ({"mode": 0o40755}, [WARNING, OK]),
        ({"free_bytes": 2**20}, [BAD]),
        ({"free_bytes": 2**29}, [WARNING]),
    ],
)
def test_the_state_directory_is_private_writable_and_has_room(changes: dict[str, int], expected: list[Verdict]) -> None:
    """Each lack has what to do about it."""
    found = list(machine.state_directory(Directory(**{**{n: getattr(SPACE, n) for n in SPACE.__struct_fields__}, **changes})))
    assert expected == verdicts(found)
    assert all(check.fix for check in found if check.verdict is not OK)


def test_a_node_serves_lacks_something_or_is_silent() -> None:
    """A node that says that it runs and does not answer is bad; one that does not run is not."""
    well = NodeState(workers={"0": "ready"}, upstreams={"there": "ready"}, shared="connected", limits="shared")
    assert ["It serves with 1 worker."] == [check.sentence for check in machine.node(well, admin="http://h")]
    two = NodeState(workers={"0": "ready", "1": "ready"})
    assert ["It serves with 2 workers."] == [check.sentence for check in machine.node(two, admin="")]
    unwell = NodeState(
        workers={"0": "unresponsive"}, upstreams={"there": "failing"}, drained=("there/1",), limits="store lost by 1 workers"
    )
    [check] = machine.node(unwell, admin="")
    told = "worker 0 is unresponsive; upstream there is failing; there/1 is drained; limits: store lost by 1 workers"
    assert (WARNING, f"It serves, but {told}.") == (check.verdict, check.sentence)
    assert "drained ones come back by hand only" in check.fix
    [check] = machine.node(NodeState(upstreams={"local": "warming: it is starting"}), admin="")
    assert "See the lines below." == check.fix
    assert [BAD] == verdicts(list(machine.node(NodeState(), admin="", is_ready=False)))
    assert [BAD] == verdicts(list(machine.node(None, admin="", silent=True)))
    assert [OK] == verdicts(list(machine.node(None, admin="")))


def test_the_local_model_is_off_ready_or_lacks_something() -> None:
    """What it lacks is said in its own words."""
    assert "Turned off." == machine.engine(enabled=False).sentence
    assert OK is machine.engine(enabled=True).verdict
    assert (BAD, "no model") == ((found := machine.engine(enabled=True, trouble="no model")).verdict, found.sentence)


def test_stores_answer_slowly_or_not_at_all() -> None:
    """Without one, it is said who shares limits."""
    assert [OK, WARNING, BAD] == verdicts(
        [services.store(found) for found in (Store("s", answered_s=0.01), Store("s", answered_s=0.2), Store("s", "refused"))]
    )
    assert "one worker" in services.no_store(workers=1).sentence
    assert "ledger process" in services.no_store(workers=2).sentence


@pytest.mark.parametrize(
    ("place", "trouble", "expected"),
    [
        ("keys.json", "", (OK, "Its key set can be used.", "")),
        ("keys.json", "No such file", (BAD, "Its key set at keys.json cannot be used: No such file.", "ls -l keys.json")),
        ("https://a/k", "status 404.", (BAD, "Its key set at https://a/k cannot be used: status 404.", "curl -sS https://a/k")),
    ],
)
def test_the_key_set_of_an_issuer_can_be_had_or_not(place: str, trouble: str, expected: tuple[Verdict, str, str]) -> None:
    """Without it, all tokens of that issuer are refused."""
    found = services.key_source(services.KeySource("https://login", place, trouble))
    assert ("issuer https://login", *expected) == (found.name, found.verdict, found.sentence, found.command)


def test_books_are_kept_begun_and_readable_or_not() -> None:
    """The command that checks every entry goes with them."""
    assert "None are kept: nothing has a price or a budget." == services.books(kept=False).sentence
    assert BAD is services.books(kept=True, trouble="no server").verdict
    assert "They are begun with the first request that has a price." == services.books(kept=True).sentence
    assert "They can be read; 1 tenant. The command checks every entry." == services.books(kept=True, tenants=1).sentence
    assert "They can be read; 2 tenants. The command checks every entry." == services.books(kept=True, tenants=2).sentence


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (RecorderReport(running=False, wanted=False), [OK]),
        (RecorderReport(running=False), [OK]),
        (RecorderReport(running=False, node_runs=True), [BAD]),
        (RecorderReport(running=True), [OK]),
        (RecorderReport(running=True, lost_bytes=1), [BAD]),
        (RecorderReport(running=True, trouble="disk full", lag_s=60.0), [BAD, WARNING]),
        (RecorderReport(running=True, backlog_bytes=2**30), [WARNING, OK]),
        (RecorderReport(running=True, unreadable=1), [WARNING, OK]),
    ],
)
def test_the_recorder_runs_keeps_up_and_loses_nothing(found: RecorderReport, expected: list[Verdict]) -> None:
    """What was lost is bad whatever else is well."""
    assert expected == verdicts(list(services.recorder(found)))


def test_extras_are_there_wanted_or_would_be_nice() -> None:
    """Only one that a setting needs is missed; of the others it is said what they would give."""
    names = frozenset(extra.name for extra in EXTRAS)
    assert [OK] == verdicts(list(services.extras(names, {"redis": "limits.store"})))
    found = {check.name: check for check in services.extras(frozenset(), {"redis": "limits.store"})}
    assert len(EXTRAS) == len(found)
    assert (BAD, "pip install 'tidegate[redis]'") == (found["extra redis"].verdict, found["extra redis"].fix)
    assert (OK, "pip install 'tidegate[gpu]'") == (found["extra gpu"].verdict, found["extra gpu"].fix)
