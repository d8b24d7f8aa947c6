"""Long soaks: run with `make soak`. Every fault of the scripted upstream, and 50,000 requests of which many clients leave.

Whatever happens, each client gets a well-formed end, each request one record, and the gateway is afterwards as it was before: nothing
running, reserved or open, no more memory, no line in the log that tells of a fault of its own.
"""

from __future__ import annotations

import itertools
import json
import random
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
import uvloop
from benchmarks.drill import Mock
from tests.e2e.soak_client import End, Question, Seen, ask_all, some_leaving
from tests.e2e.soak_judge import Levels, complaint_about, complaints_about_records, records_of, was_answered

from tidegate.conformance.expect import TEXT, Way
from tidegate.domain.units import Secret
from tidegate.mock.presets import PRESETS
from tidegate.testing import FaultKind, GatewayProcess, RetryDialect, UsagePlace

pytestmark = [pytest.mark.soak, pytest.mark.timeout(600)]

SEED = 11
AT_ONCE = 200
REQUESTS = 50_000
WARM_UP = 8_000
LEAVERS_RATIO = 0.44  # some have their answer before they leave: three in ten do leave
FAULTY_RATIO = 0.1
SHOWN = 30
RESUMABLE_RATIO = 0.05
OTHER_TEXT = "content_filter"
"""The ready-made script that says something else."""
ABOUT_AS_BEFORE_BYTES = 8 << 20
"""The worker's memory after a warm-up of the same kind: by then caches of routes, keys and connections are full, and the allocator keeps
some arenas of a busy moment (4 MB after 50,000 requests, and no page more after 250,000). 170 bytes kept of each would be found."""
LEFT_OUT = "missing_done"
SETTING_ASIDE = ("429", "rate_limited", "burst_rate", "insufficient_quota", "out_of_credit")
"""A server that asks for a pause gets one, for a second at least: with both set aside the rest of a soak would be refusals."""
AFTER = {
    FaultKind.STALL,
    FaultKind.CUT,
    FaultKind.END,
    FaultKind.RESET,
    FaultKind.BAD_FRAMING,
    FaultKind.ERROR_EVENT,
    FaultKind.FINISH_ERROR,
}
"""Faults that happen at some event: before any output, at the first, after some."""
OURS = re.compile(r"Traceback|crashed|abandoned|late_fault|exception=|never (?:awaited|retrieved)")
CLOCKS = {"connect_s": 1.0, "first_byte_s": 0.4, "first_token_s": 0.4, "stall_s": 0.4, "total_s": 1.5}


def plays() -> list[str | dict[str, Any]]:
    """Everything that a marker may ask for by name, and the fields that change how an answer looks."""
    faults = [f"{kind}@{after}" for kind in FaultKind for after in ((0, 1, 3) if kind in AFTER else (2,))]
    quick = {"refuse@2": {"kind": "refuse", "for_s": 0.05}, "drip_headers@2": {"kind": "drip_headers", "pause_s": 0.0005}}
    fields: list[dict[str, Any]] = [{"fault": quick[fault]} for fault in faults if fault in quick]
    fields += [{"usage": place, "usage_delay_s": 0.1} for place in UsagePlace]
    fields += [{"retry_after": {"dialect": dialect, "after_s": 0.05}} for dialect in RetryDialect]
    fields += [{"newline": newline} for newline in ("\r\n", "\r")]
    fields += [{"split": {"every": 1}}, {"split": {"every": 7, "pause_s": 0.001}}, {"multi_line": True}, {"comment": "processing"}]
    fields += [{"space_after_colon": False}, {"role_first": False}, {"role_waits": True}, {"keep_alive": False}, {"usage_unasked": True}]
    fields += [{"reject_stream_options": True}, {"body": "<html>", "content_type": "text/html"}, {"body": ""}, {"body": "{}"}]
    fields += [{"finish_reason": "length"}, {"finish_reason": "content_filter"}, {"finish_reason": "error"}, {"pieces": []}]
    statuses = ["400", "401", "402", "403", "404", "408", "409", "413", "418", "422", "429", "500", "501", "502", "503", "504", "529"]
    return [*(fault for fault in faults if fault not in quick), *PRESETS, *statuses, *fields]


def befalling() -> list[str | dict[str, Any]]:
    """Those of them that may befall any call: they do not change what a whole answer says, and keep no other call from the server."""
    named = [play for play in plays() if isinstance(play, str) and play not in {OTHER_TEXT, "ok", f"{LEFT_OUT}@2", *SETTING_ASIDE}]
    other = {"pieces", "body", "retry_after"}
    fields = [play for play in plays() if isinstance(play, dict) and not play.keys() & other and "refuse" not in str(play)]
    return [*named, *fields]


def upstream(mock: Mock, **settings: object) -> dict[str, object]:
    return {"dialect": "openai", "base_url": mock.base_url, "timeouts": CLOCKS, "idle_timeout_s": 1.0, **settings}


def open_key(gateway: GatewayProcess) -> Secret:
    """A key with the node's ceiling, which none of these tests reaches."""
    key = gateway.create_key(name="soak")
    gateway.wait_for_key(key)
    return key


def port_of(gateway: GatewayProcess) -> int:
    return int(gateway.api_url.rpartition(":")[2])


@pytest.fixture
def mock(tmp_path: Path) -> Iterator[Mock]:
    """A healthy scripted upstream in a process of its own."""
    made = Mock("mock", tmp_path, script={})
    yield made
    made.end()


@pytest.fixture
def steady(tmp_path: Path) -> Iterator[Mock]:
    """Another one, which plays no faults: whoever refuses connections refuses them to all."""
    made = Mock("steady", tmp_path, script={})
    yield made
    made.end()


def nobody(seen: Seen) -> None:
    """Listen to a client of a warm-up."""


def strange_labels(gateway: GatewayProcess) -> set[str]:
    """Give the routes and upstreams that metrics name and the configuration does not: none, whatever clients and servers say."""
    configured = json.loads(gateway.configuration_path.read_text())
    known = {"none", "other", *configured["upstreams"], *(route["model"] for route in configured["routes"])}
    return set(re.findall(r'(?:route|upstream)="([^"]*)"', gateway.metrics())) - known


class Before:
    """A gateway as it was, to compare it with."""

    def __init__(self, gateway: GatewayProcess, levels: Levels) -> None:
        self._gateway = gateway
        self._levels = levels
        self.memory_bytes: int = levels.worker.memory_info().rss
        self.files: int = levels.worker.num_fds()
        self.sockets = levels.sockets()
        self.heads = levels.counter("server.requests")
        self.written = levels.counter("records.written")

    def check(self) -> None:
        """Nothing of the requests since then is left: no level, file or socket, no memory, no label; all are recorded."""
        levels = self._levels
        assert {} == levels.wait_until_zero(10.0)
        assert self.files + 2 >= levels.worker.num_fds(), levels.worker.net_connections("tcp")
        assert self.sockets + 2 >= levels.sockets()
        assert self.memory_bytes + ABOUT_AS_BEFORE_BYTES > levels.worker.memory_info().rss
        assert 0 == levels.counter("records.dropped")
        assert levels.counter("server.requests") - self.heads == levels.counter("records.written") - self.written
        assert OURS.search(self._gateway.log()) is None
        assert set() == strange_labels(self._gateway)
        assert psutil.STATUS_ZOMBIE != levels.worker.status()


def test_every_fault_at_every_endpoint_ends_well_and_leaves_nothing_behind(mock: Mock, steady: Mock) -> None:
    """The whole matrix in several rounds, with breakers and without: a good end for each client, one record for each request."""
    upstreams: dict[str, object] = {}
    routes: list[dict[str, object]] = []
    for number, play in enumerate(plays()):  # what one play does to a replica must not keep the others from it
        leave: dict[str, object] = {"on_client_leave": "drain", "drain_s": 0.5} if number % 2 else {}
        leave |= {"health": {"enabled": False}}  # hundreds of them would ask all the time
        for name in (f"guarded-{number}", *(f"bare-{number}-{way.name}" for way in Way)):
            settings = leave if name.startswith("guarded") else leave | {"breaker": {"enabled": False}}
            server = upstream(steady if play == "ok" else mock, **settings)
            upstreams |= {name: server, f"{name}-standby": server}
            routes.append({"model": name, "targets": [{"upstream": name}, {"upstream": f"{name}-standby"}]})
    sections = {
        "retry": {"budget_floor": 10_000, "max_retry_after_s": 0.1},
        "streams": {"heartbeat_s": 0.1, "resume_window_s": 1.0},
        "limits": {"tokens_per_minute": 1_000_000_000},
    }
    seen: list[Seen] = []
    with GatewayProcess({"upstreams": upstreams, "routes": routes, **sections}) as gateway:
        key = open_key(gateway)
        levels = Levels(gateway)

        def questions(rounds: int, name: str) -> Iterator[Question]:
            chance = random.Random(f"{SEED} {name}")
            matrix = list(itertools.product(enumerate(plays()), Way, (False, True), (False, True)))
            for turn in range(rounds):
                chance.shuffle(matrix)
                for number, ((play_number, play), way, guarded, leaves) in enumerate(matrix):
                    marker = play if isinstance(play, str) else json.dumps(play)
                    yield Question(
                        f"{name}-{turn}-{number}",
                        way,
                        f"guarded-{play_number}" if guarded else f"bare-{play_number}-{way.name}",
                        f"{name}-{turn}-{number} [[mock:{marker}]]",
                        key.reveal(),
                        keeps_connection=chance.random() < 0.5,
                        leaving=some_leaving(chance) if leaves else None,
                        headers={"x-tidegate-resumable": "1"} if chance.random() < RESUMABLE_RATIO else {},
                    )

        uvloop.run(ask_all(port_of(gateway), questions(1, "warm"), at_once=60, told=nobody))
        assert {} == levels.wait_until_zero(10.0)
        before = Before(gateway, levels)
        uvloop.run(ask_all(port_of(gateway), questions(3, "matrix"), at_once=60, told=seen.append))
        before.check()
        records = list(records_of(gateway, "matrix-"))

    complaints = [
        f"{one.question.way} {one.question.text} to {one.question.model}: {complaint}"
        for one in seen
        if one.end is not End.LEFT
        and (complaint := complaint_about(one, _expected(one), done=LEFT_OUT not in one.question.text)) is not None
    ]
    assert not complaints, "\n".join(complaints[:SHOWN])
    complaints = complaints_about_records(records, seen)
    assert not complaints, "\n".join(complaints[:SHOWN])
    healthy = [one for one in seen if one.end is End.COMPLETE and "[[mock:ok]]" in one.question.text]
    assert set(Way) == {one.question.way for one in healthy if was_answered(one)}, "a healthy upstream's answers come through"
    assert not [one for one in healthy if one.question.model.startswith("bare-") and not was_answered(one)]
    reached = {record["request_id"] for record in records if record.get("attempts")}
    tried = {one.question.model for one in seen if one.question.request_id in reached}
    missed = {str(route["model"]) for route in routes} - tried
    assert not missed, "each fault was met in each way"


def _expected(seen: Seen) -> str | None:
    """Give what the upstream says to this request; None: something of its own."""
    play = seen.question.text
    return None if f"[[mock:{OTHER_TEXT}]]" in play or '"pieces"' in play or '"body"' in play else TEXT


def test_fifty_thousand_requests_whose_clients_leave_cost_nothing_afterwards(mock: Mock) -> None:
    """Three in ten leave at any point, one in ten meets a fault: the others get their own words, and everything is given back."""
    befalls = befalling()
    ratio = 1.0 - (1.0 - FAULTY_RATIO) ** (1.0 / len(befalls))
    mock.load(
        {
            "seed": SEED,
            "default": {"echo": True, "per_token_s": {"exponential": 0.002}, "first_token_s": {"exponential": 0.003}},
            "failures": [{"ratio": ratio, "play": play} for play in befalls],
        }
    )
    models = ("ordinary", "drained")
    upstreams = {
        "ordinary": upstream(mock),
        "drained": upstream(mock, on_client_leave="drain", drain_s=0.5),
        "standby": upstream(mock),
    }
    routes = [{"model": model, "targets": [{"upstream": model}, {"upstream": "standby"}]} for model in models]
    sections = {"streams": {"heartbeat_s": 0.2, "resume_window_s": 1.0}, "limits": {"tokens_per_minute": 1_000_000_000}}
    seen: list[Seen] = []
    with GatewayProcess({"upstreams": upstreams, "routes": routes, **sections}) as gateway:
        key = open_key(gateway)
        levels = Levels(gateway)

        def questions(count: int, name: str) -> Iterator[Question]:
            chance = random.Random(f"{SEED} {name}")
            ways = (
                Way.CHAT_STREAM,
                Way.COMPLETION_STREAM,
                Way.CHAT,
                Way.CHAT,
                Way.CHAT_STREAM,
                Way.COMPLETION,
                Way.EMBEDDING,
                Way.CHAT_STREAM,
            )
            for number in range(count):
                yield Question(
                    f"{name}-{number}",
                    ways[number % len(ways)],
                    chance.choice(models),
                    f"the words of {name} number {number} and of nobody else",
                    key.reveal(),
                    keeps_connection=chance.random() < 0.7,
                    leaving=some_leaving(chance) if chance.random() < LEAVERS_RATIO else None,
                    headers={"x-tidegate-resumable": "1"} if chance.random() < RESUMABLE_RATIO else {},
                )

        uvloop.run(ask_all(port_of(gateway), questions(WARM_UP, "warm"), at_once=AT_ONCE, told=nobody))
        assert {} == levels.wait_until_zero(10.0)
        before = Before(gateway, levels)
        uvloop.run(ask_all(port_of(gateway), questions(REQUESTS, "soak"), at_once=AT_ONCE, told=seen.append))
        before.check()
        records = list(records_of(gateway, "soak-"))

    stayed = [one for one in seen if one.end is not End.LEFT]
    complaints = [
        f"{one.question.request_id} {one.question.way}: {complaint}"
        for one in stayed
        if (complaint := complaint_about(one, one.question.text)) is not None
    ]
    assert not complaints, "\n".join(complaints[:SHOWN])
    complaints = complaints_about_records(records, seen)
    assert not complaints, "\n".join(complaints[:SHOWN])
    outcomes = Counter(was_answered(one) for one in stayed)
    assert REQUESTS == len(seen)
    assert len(seen) - len(stayed) > 0.3 * REQUESTS
    assert outcomes[True] > 0.9 * outcomes.total()
