"""The figures behind the pages: flow, feed, upstreams, limits, records, questions, explanations."""

from __future__ import annotations

import asyncio
import json

import msgspec
import pytest
from tests.unit.admin.console.conftest import LEVEL, NOW, Bench, FakeDesk

from tidegate.admin.console import records
from tidegate.admin.console.feed import MOST_WATCHERS, ConsoleFeed
from tidegate.admin.console.flow import Flow, flow_between, is_error, is_refusal, totals_of
from tidegate.admin.view import EngineSnapshot, NodeSnapshot, RecorderSnapshot, ReloadSnapshot
from tidegate.analytics.asking import QueryAnswer
from tidegate.domain.outcome import SERVED, Outcome
from tidegate.domain.statistics import (
    CostTally,
    Histogram,
    RequestStatistics,
    RequestTally,
    RouteHistograms,
    TokenTally,
    UpstreamStatistics,
    WorkerStatistics,
)
from tidegate.errors import InvalidParameter

BOUNDS = (0.1, 1.0)


def _node(scale: int) -> NodeSnapshot:
    """A node that has done this many times ten requests."""
    histogram = Histogram(BOUNDS, (8 * scale, 1 * scale, 1 * scale))
    served = Histogram(BOUNDS, (0, 6 * scale, 1 * scale))
    none = Histogram(BOUNDS, (0, 0, 0))
    counted = RequestStatistics(
        requests=(
            RequestTally("chat", "m", "a", "ok", 7 * scale),
            RequestTally("chat", "m", "a", "failed_upstream", 2 * scale),
            RequestTally("chat", "m", "none", "rejected_rate_limit", scale),
        ),
        tokens=(
            TokenTally("m", "prompt", "reported", 1000 * scale),
            TokenTally("m", "completion", "reported", 300 * scale),
            TokenTally("m", "cached", "reported", 100 * scale),
        ),
        histograms=tuple(
            RouteHistograms(
                route, duration=histogram, served=served, ttft=none, tpot=none, overhead=none, prompt_tokens=none, output_ratio=none
            )
            for route in ("m", "n")
        ),
        costs=(CostTally("m", 5000 * scale),),
    )
    return msgspec.structs.replace(FakeDesk().shown, statistics=WorkerStatistics(requests=counted))


def test_rates_are_what_came_between_two_looks() -> None:
    """By the second; errors are failures, refusals are not; quantiles lie within their bucket."""
    flow = flow_between(totals_of(_node(1), at=100.0), totals_of(_node(2), at=110.0))
    assert (1.0, 0.2, 0.1) == (flow.requests_per_s, flow.errors_per_s, flow.refused_per_s)
    assert (100.0, 10.0, 30.0, 500.0) == (flow.tokens_in_per_s, flow.tokens_cached_per_s, flow.tokens_out_per_s, flow.cost_micro_per_s)
    assert {"ok": 7, "failed_upstream": 2, "rejected_rate_limit": 1} == flow.outcomes
    assert flow.ttft is None
    assert flow.duration is not None
    assert (14, 0.625, 1.0) == (flow.duration.count, flow.duration.p50_s, flow.duration.p95_s)


def test_the_overview_and_traffic_mean_the_same_by_served() -> None:
    """What is neither refused nor an error."""
    assert {each for each in Outcome if not each.startswith("rejected_") and not is_error(each)} == SERVED


def test_an_outage_counts_as_errors() -> None:
    """No replica and no room are the gateway's fault; what a limit or a check refused is not."""
    outcomes = {each for each in Outcome if is_error(each)}
    failed = {each for each in Outcome if each.startswith("failed_")}
    assert {*failed, Outcome.MODEL_ERROR, Outcome.REJECTED_NO_REPLICA, Outcome.REJECTED_OVERLOAD} == outcomes
    assert set() == outcomes & {each for each in Outcome if is_refusal(each)}
    assert is_refusal(Outcome.REJECTED_BUDGET)


def test_without_time_or_requests_nothing_flows() -> None:
    """And nothing is divided by it."""
    same = totals_of(_node(1), at=100.0)
    assert Flow(100.0, 0.0) == flow_between(same, same)
    flow = flow_between(same, totals_of(_node(1), at=101.0))
    assert (0.0, {}, None) == (flow.requests_per_s, flow.outcomes, flow.duration)
    empty = totals_of(FakeDesk().shown, at=1.0)
    assert flow_between(empty, totals_of(FakeDesk().shown, at=2.0)).duration is None


def test_all_who_watch_are_given_the_same_look() -> None:
    """One look is made for three, and the feed ends when it is closed."""
    desk = FakeDesk()

    async def scenario() -> list[list[bytes]]:
        feed = ConsoleFeed(desk, wall_clock=lambda: NOW + desk.looks)
        await feed.look()

        async def take() -> list[bytes]:
            return [event async for event in feed.watch()]

        tasks = [asyncio.ensure_future(take()) for _ in range(3)]
        await asyncio.sleep(0)
        assert 3 == feed.watchers
        await feed.look()
        await asyncio.sleep(0)
        feed.close()
        taken = await asyncio.gather(*tasks)
        assert 0 == feed.watchers
        return taken

    one, *others = asyncio.run(scenario())
    assert all(one == other for other in others)
    assert 2 == desk.looks
    assert b"event: beat\ndata: {" == one[0][:19]


def test_watchers_are_bounded(bench: Bench) -> None:
    """More are told to look by themselves."""
    bench.console._feed.watchers = MOST_WATCHERS
    assert 503 == bench.call("GET", "/admin/events").status_code


def test_the_feed_looks_at_once_for_whoever_comes() -> None:
    """Without anyone it waits for longer."""
    desk = FakeDesk()

    async def scenario() -> int:
        feed = ConsoleFeed(desk, wall_clock=lambda: NOW + desk.looks)
        running = asyncio.ensure_future(feed.run())
        events = feed.watch()
        await anext(events)
        await anext(events)
        running.cancel()
        await events.aclose()  # type: ignore[attr-defined]
        return desk.looks

    assert 2 <= asyncio.run(scenario())


def test_the_overview_tells_what_needs_a_look(bench: Bench) -> None:
    """Every part that is not as it should be, in words."""
    down = UpstreamStatistics("b", ready=False, detail="refused")
    levels = {"limits.store_away": 1.0, "books.alone": 1.0, "records.spilling": 2.0}
    worker = msgspec.structs.replace(bench.desk.shown.workers[0], responsive=False)
    bench.desk.shown = msgspec.structs.replace(
        bench.desk.shown,
        workers=(worker,),
        statistics=WorkerStatistics(upstreams=(down,), levels=levels),
        engine=EngineSnapshot(phase="failed", pid=None, restarts=0, cold_ttft_s=None, warm_ttft_s=None, last_error="no model"),
        recorder=RecorderSnapshot(running=True, restarts=0, responsive=True, store_available=False, trouble="disk full"),
        reloads=ReloadSnapshot(refused=1, last_refusal="line 3"),
        drained=("b",),
    )
    overview = bench.call("GET", "/admin/overview").json()
    trouble = " ".join(overview["latest"]["trouble"])
    assert all(word in trouble for word in ("refused", "worker 0", "no model", "limits", "ledger", "records", "disk full", "line 3"))
    assert (["b"], 1) == (overview["latest"]["drained"], len(overview["history"]))


def test_replicas_are_joined_over_workers(bench: Bench) -> None:
    """With how many workers have the breaker in which phase."""
    bench.desk.shown = msgspec.structs.replace(bench.desk.shown, drained=("a/1",))
    [upstream] = bench.call("GET", "/admin/upstreams").json()["upstreams"]
    first, second = upstream["replicas"]
    assert ("a/0", 2, 2, {"closed": 2}, False) == tuple(
        first[key] for key in ("replica", "in_flight", "available_in", "breakers", "is_drained")
    )
    assert ({"closed": 1, "open": 1}, 1, "left alone", True) == tuple(
        second[key] for key in ("breakers", "available_in", "why", "is_drained")
    )


def test_draining_tells_the_node(bench: Bench) -> None:
    """Both ways, by name; a name that is none answers 404."""
    assert [200, 200, 404] == [
        bench.call(method, f"/admin/drained/{name}").status_code for method, name in (("PUT", "a/1"), ("DELETE", "a/1"), ("PUT", "zz"))
    ]
    assert [("a/1", True), ("a/1", False)] == bench.desk.told


def test_limits_are_shown_as_the_node_says(bench: Bench) -> None:
    """With the currency of budgets."""
    assert msgspec.to_builtins(LEVEL) == bench.call("GET", "/admin/limits").json()["limits"][0]


def test_traffic_asks_by_a_known_column_only(bench: Bench) -> None:
    """What is no column of the list is refused; the span goes as a parameter."""
    assert bench.desk.fake_asker is not None
    bench.desk.fake_asker.answers = [QueryAnswer(columns=("name", "requests"), rows=(("acme", 3),)), QueryAnswer()]
    answer = bench.call("GET", "/admin/traffic?by=feature&since=2h").json()
    assert ([{"name": "acme", "requests": 3}], 120) == (answer["groups"], answer["step_s"])
    assert [{"since": 7200}] * 3 == [each.parameters for each in bench.desk.fake_asker.asked]
    bench.call("GET", "/admin/traffic?by=color&color=blue")
    assert [{"since": 3600, "color": "blue"}] * 3 == [each.parameters for each in bench.desk.fake_asker.asked[3:]]
    for wrong in ("by=tenant;DROP", "since=1y", "since=0s", "since=99d"):
        assert 400 == bench.call("GET", f"/admin/traffic?{wrong}").status_code


def test_requests_are_held_to_what_was_asked(bench: Bench) -> None:
    """Values of people are parameters, never part of the SQL."""
    assert bench.desk.fake_asker is not None
    bench.call("GET", "/admin/requests?tenant=a'b&slower_than=0.5&limit=7&nonsense=1")
    [asked] = bench.desk.fake_asker.asked
    assert {"since": 900, "slower": 0.5, "tenant": "a'b"} == asked.parameters
    assert "a'b" not in asked.sql
    assert "LIMIT 7" in asked.sql
    assert 400 == bench.call("GET", "/admin/requests?slower_than=x").status_code
    assert records.MOST_REQUESTS == records.latest(1, {}, slower_than_s=0.0, limit=9999).max_rows
    with pytest.raises(InvalidParameter):
        records.traffic("nothing", 60, {})


def test_one_request_comes_with_its_attempts_and_the_samples_of_its_replicas(bench: Bench) -> None:
    """Samples of other replicas are left out; a request that is not there answers 404."""
    assert bench.desk.fake_asker is not None
    bench.desk.fake_asker.answers = [
        QueryAnswer(columns=("request_id", "started_at", "duration_s"), rows=(("r1", "2026-11-04 10:00:00.500", 2.0),)),
        QueryAnswer(columns=("attempt", "replica"), rows=((1, "a/0"),)),
        QueryAnswer(columns=("replica", "value"), rows=(("a/0", 1.0), ("a/1", 2.0), ("", 3.0))),
    ]
    answer = bench.call("GET", "/admin/requests/r1?at=1793786400.5").json()
    assert [1.0, 3.0] == [sample["value"] for sample in answer["samples"]]
    asked = bench.desk.fake_asker.asked
    assert [{"id": "r1", "at": 1793786400.5}] * 2 == [each.parameters for each in asked[:2]]
    assert {"begin": 1793786390.5, "end": 1793786412.5} == asked[2].parameters
    assert 404 == bench.call("GET", "/admin/requests/r2").status_code


def test_sql_is_checked_before_it_is_asked(bench: Bench) -> None:
    """One SELECT over our tables; whatever else is refused in words, and an error of the store is the question's."""
    assert bench.desk.fake_asker is not None
    answer = bench.call("POST", "/admin/query", {"sql": "SELECT count() FROM file('/etc/passwd')"})
    assert 400 == answer.status_code
    assert [] == bench.desk.fake_asker.asked
    bench.desk.fake_asker.answers = [
        QueryAnswer(columns=("n",), types=("UInt64",), rows=((3,),)),
        QueryAnswer(error="no memory"),
        OSError("gone"),
    ]
    sections = bench.call("POST", "/admin/query", {"sql": "SELECT count() AS n FROM requests"}).json()["sections"]
    assert [[3]] == sections[0]["answer"]["rows"]
    statuses = [bench.call("POST", "/admin/query", {"sql": "SELECT 1 FROM requests"}).status_code for _ in range(2)]
    assert [400, 503] == statuses


def test_named_questions_are_listed_and_answered(bench: Bench) -> None:
    """By the same plans as on the command line."""
    assert bench.desk.fake_asker is not None
    names = [each["name"] for each in bench.call("GET", "/admin/questions").json()["questions"]]
    assert "slow-vip-code" in names
    bench.desk.fake_asker.answers = [QueryAnswer(columns=("tenant", "cost"), rows=(("acme", 1.5),))]
    sections = bench.call("POST", "/admin/query", {"question": "cost", "by": "tenant", "since": "1h"}).json()["sections"]
    assert [["acme", 1.5]] == sections[0]["answer"]["rows"]
    assert 400 == bench.call("POST", "/admin/query", {"question": "nonsense"}).status_code


def test_explain_decides_as_the_gateway_would(bench: Bench) -> None:
    """And refuses what it would refuse."""
    body = {"request": {"model": "m", "messages": [{"role": "user", "content": "hi"}]}}
    report = bench.call("POST", "/admin/explain", body).json()
    assert ("a", "*") == (report["targets"][0]["view"]["upstream"], report["route"])
    assert 403 == bench.call("POST", "/admin/explain", {**body, "models": ["other"]}).status_code
    assert 400 == bench.call("POST", "/admin/explain", {"request": json.loads("[]")}).status_code


def test_the_playground_needs_a_gateway_and_a_key(bench: Bench) -> None:
    """Each refusal says what is missing."""
    assert 400 == bench.call("POST", "/admin/playground", {}).status_code
    (bench.directory / "dev-key").write_text("tg-x")
    assert 502 == bench.call("POST", "/admin/playground", {}).status_code
