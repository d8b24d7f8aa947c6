"""The admin port: open health and metrics, keys behind an admin key, errors in the API's shape."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as openmetrics_families
from prometheus_client.parser import text_string_to_metric_families
from starlette.testclient import TestClient

from tidegate.adapters.keys.store import KeyStore
from tidegate.adapters.metrics.estimate_errors import MAX_SERIES, EstimateErrors
from tidegate.adapters.metrics.figures import figures
from tidegate.adapters.metrics.tally import RecordTally
from tidegate.admin import reference
from tidegate.admin.app import AdminApp
from tidegate.admin.exchange import MAX_BODY_BYTES
from tidegate.admin.metrics import METRICS, Kind
from tidegate.admin.view import (
    BooksSnapshot,
    CountingSnapshot,
    EngineSnapshot,
    LedgerSnapshot,
    NodePhase,
    NodeSnapshot,
    RecorderSnapshot,
    WorkerSnapshot,
)
from tidegate.domain.outcome import Outcome
from tidegate.domain.record import RequestRecord
from tidegate.domain.statistics import UpstreamStatistics, WorkerStatistics
from tidegate.domain.usage import Evidence, Usage

NOW = 1_700_000_000.0
TRACE = "0af7651916cd43dd8448eb211c80319c"
WORKER = WorkerSnapshot(index=0, phase="ready", pid=1, restarts=0, responsive=True, serving=True)
ENGINE = EngineSnapshot(phase="ready", pid=2, restarts=1, cold_ttft_s=0.5, warm_ttft_s=0.1, last_error=None)
NODE = NodeSnapshot(version="1", phase=NodePhase.RUNNING, started_at=NOW, workers=(WORKER,), engine=ENGINE)


class FakeNode:
    """Shows the snapshot it was given."""

    def __init__(self) -> None:
        self.shown = NODE

    async def snapshot(self) -> NodeSnapshot:
        return self.shown


class Admin:
    """The app over a fake node and a real key store."""

    def __init__(self, path: Path) -> None:
        self.node = FakeNode()
        self.store = KeyStore(path / "keys.sqlite")
        self.now = NOW
        self.client = TestClient(AdminApp(self.node, self.store, wall_clock=lambda: self.now).build(), raise_server_exceptions=False)
        self.key = self.store.create(name="root", tenant="ops", user="ops", now=NOW, admin=True).token.reveal()

    def call(self, method: str, path: str, body: Any = None, *, key: str | None = None) -> Any:
        content = body if isinstance(body, bytes) else b"" if body is None else json.dumps(body).encode()
        return self.client.request(method, path, content=content, headers={"authorization": f"Bearer {key or self.key}"})


@pytest.fixture
def admin(tmp_path: Path) -> Iterator[Admin]:
    under_test = Admin(tmp_path)
    yield under_test
    under_test.client.close()
    under_test.store.close()


# ── health ────────────────────────────────────────────────────────────────────


def test_a_live_node_is_live_even_when_not_ready(admin: Admin) -> None:
    """A node without upstreams must not be restarted by its orchestrator."""
    admin.node.shown = msgspec.structs.replace(NODE, workers=())
    assert admin.client.get("/livez").status_code == 200


def test_readiness_tells_workers_upstreams_and_engine(admin: Admin) -> None:
    """One look says what is wrong: which worker, which upstream and why."""
    failing = msgspec.structs.replace(ENGINE, phase="failed", last_error="no model")
    idle = msgspec.structs.replace(WORKER, index=1, serving=False)
    mute = msgspec.structs.replace(WORKER, index=2, serving=False, responsive=False)
    upstreams = (UpstreamStatistics("vllm", ready=False, detail="connection refused"), UpstreamStatistics("local", ready=True))
    statistics = WorkerStatistics(upstreams=upstreams)
    admin.node.shown = msgspec.structs.replace(NODE, workers=(WORKER, idle, mute), statistics=statistics, engine=failing)
    answer = admin.client.get("/readyz")
    assert answer.status_code == 200
    assert answer.json() == {
        "status": "ready",
        "workers": {"0": "ready", "1": "no_upstream", "2": "unresponsive"},
        "upstreams": {"vllm": "connection refused", "local": "ready"},
        "engine": "failed: no model",
    }


@pytest.mark.parametrize(
    ("node", "status"),
    [
        (msgspec.structs.replace(NODE, phase=NodePhase.STARTING), "starting"),
        (msgspec.structs.replace(NODE, phase=NodePhase.DRAINING), "draining"),
        (msgspec.structs.replace(NODE, workers=(msgspec.structs.replace(WORKER, serving=False),)), "not_ready"),
    ],
)
def test_a_node_that_cannot_serve_says_503(admin: Admin, node: NodeSnapshot, status: str) -> None:
    """Load balancers read the status code, people the word."""
    admin.node.shown = node
    answer = admin.client.get("/readyz")
    assert (answer.status_code, answer.json()["status"]) == (503, status)


# ── metrics ───────────────────────────────────────────────────────────────────


def busy_node() -> NodeSnapshot:
    """A node with something of everything."""
    tally = RecordTally(routes=["q*"], upstreams=["vllm"])
    usage = Usage(prompt_tokens=7, completion_tokens=3, cached_tokens=2)
    tally.record(
        RequestRecord(
            request_id="r",
            started_at=NOW,
            operation="chat",
            outcome=Outcome.OK,
            status=200,
            duration_s=0.2,
            ttft_s=0.1,
            upstream_s=0.19,
            trace_id=TRACE,
            route="q*",
            upstream="vllm",
            usage=usage,
            evidence=Evidence.REPORTED,
        )
    )
    flat = dict.fromkeys(_flat_keys(), 1.0)
    upstream = UpstreamStatistics("vllm", ready=True, levels=flat, counters=flat)
    errors = EstimateErrors()
    errors.observe("q*", "qwen", counted=100, estimated=110, reported=100)
    counters = {**flat, "limits.denied.tenant-tokens": 2.0, "limits.would_deny.tenant-tokens": 0.0}
    statistics = WorkerStatistics(
        requests=tally.statistics(), levels=flat, counters=counters, upstreams=(upstream,), estimate_errors=errors.statistics()
    )
    return msgspec.structs.replace(
        NODE,
        statistics=statistics,
        counting=CountingSnapshot(running=True, restarts=0),
        recorder=RecorderSnapshot(running=True, restarts=1, responsive=True, store_available=True, rows=3, lag_s=2.5),
        ledger=LedgerSnapshot(running=True, restarts=0, responsive=True, leased_units=9, books=BooksSnapshot(trouble="the disk is full")),
    )


class _AnyKey(dict[str, float]):
    """Answers every key, and remembers which were asked for."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: set[str] = set()

    def get(self, key: str, default: Any = None) -> Any:
        self.asked.add(key)
        return default

    def __contains__(self, key: object) -> bool:
        self.asked.add(str(key))
        return False


def _flat_keys() -> set[str]:
    """Find the flat keys that the metrics read."""
    asking = _AnyKey()
    upstream = UpstreamStatistics("vllm", ready=True, levels=asking, counters=asking)
    node = msgspec.structs.replace(NODE, statistics=WorkerStatistics(levels=asking, counters=asking, upstreams=(upstream,)))
    for spec in METRICS:
        list(spec.samples(node))
    return asking.asked


def test_every_metric_has_samples_and_its_declared_labels(admin: Admin) -> None:
    """The table is what is exposed: each name, kind and label set, readable by Prometheus' own parser."""
    admin.node.shown = busy_node()
    page = admin.client.get("/metrics").text
    families = {family.name: family for family in text_string_to_metric_families(page)}
    for spec in METRICS:
        family = families[spec.name.removesuffix("_total") if spec.kind is Kind.COUNTER else spec.name]
        assert (family.type, family.documentation) == (str(spec.kind), spec.meaning)
        assert family.samples, spec.name
        assert {tuple(sorted(set(sample.labels) - {"le"})) for sample in family.samples} == {tuple(sorted(spec.labels))}


def test_counts_and_distributions_are_those_of_the_records(admin: Admin) -> None:
    """One request of 7 prompt and 3 completion tokens, 0.2 s long, is shown as that."""
    admin.node.shown = busy_node()
    page = admin.client.get("/metrics").text
    assert 'tidegate_requests_total{operation="chat",outcome="ok",route="q*",upstream="vllm"} 1.0' in page
    assert 'tidegate_tokens_total{class="prompt",evidence="reported",route="q*"} 7.0' in page
    assert 'tidegate_prompt_tokens_bucket{le="50.0",route="q*"} 1.0' in page
    assert 'tidegate_output_input_ratio_bucket{le="0.4",route="q*"} 0.0' in page
    assert 'tidegate_output_input_ratio_bucket{le="0.8",route="q*"} 1.0' in page
    assert 'tidegate_cost_micro_total{route="q*"} 0.0' in page
    assert 'tidegate_request_duration_seconds_bucket{le="0.1",route="q*"} 0.0' in page
    assert 'tidegate_request_duration_seconds_bucket{le="0.25",route="q*"} 1.0' in page
    assert 'tidegate_request_duration_seconds_bucket{le="+Inf",route="q*"} 1.0' in page
    assert 'tidegate_request_duration_seconds_sum{route="q*"} 0.2' in page
    assert 'tidegate_tpot_seconds_bucket{le="0.05",route="q*"} 1.0' in page
    assert 'tidegate_tpot_seconds_sum{route="q*"} 0.05' in page
    assert 'tidegate_reservation_tokens{state="held"} 1.0' in page


def test_the_other_processes_are_shown(admin: Admin) -> None:
    """Recorder and ledger process by their figures, and nothing of them where a node has none."""
    admin.node.shown = busy_node()
    page = admin.client.get("/metrics").text
    assert "tidegate_recorder_rows_total 3.0" in page
    assert "tidegate_recorder_lag_seconds 2.5" in page
    assert "tidegate_ledger_lease_units 9.0" in page
    assert "tidegate_books_up 0.0" in page
    admin.node.shown = NODE
    without = admin.client.get("/metrics").text
    assert not re.search("^tidegate_(recorder|ledger|books)_", without, re.MULTILINE)


def test_openmetrics_is_given_to_those_who_ask(admin: Admin) -> None:
    """Prometheus asks for it by itself."""
    answer = admin.client.get("/metrics", headers={"accept": "application/openmetrics-text; version=1.0.0"})
    assert answer.headers["content-type"].startswith("application/openmetrics-text")
    assert answer.text.endswith("# EOF\n")


def test_times_carry_the_trace_of_a_request_in_each_bucket(admin: Admin) -> None:
    """Of the bucket that it is in and no other; in the format that has room for it."""
    admin.node.shown = busy_node()
    page = admin.client.get("/metrics", headers={"accept": "application/openmetrics-text; version=1.0.0"}).text
    exemplars = {
        (sample.name, sample.labels["le"]): (sample.exemplar.labels, sample.exemplar.value, float(sample.exemplar.timestamp))
        for family in openmetrics_families(page)  # type: ignore[no-untyped-call]  # it has no annotations
        for sample in family.samples
        if sample.exemplar is not None
    }
    assert {
        ("tidegate_request_duration_seconds_bucket", "0.25"): ({"trace_id": TRACE}, 0.2, NOW + 0.2),
        ("tidegate_ttft_seconds_bucket", "0.1"): ({"trace_id": TRACE}, 0.1, NOW + 0.2),
        ("tidegate_tpot_seconds_bucket", "0.05"): ({"trace_id": TRACE}, 0.05, NOW + 0.2),
        ("tidegate_gateway_overhead_seconds_bucket", "0.025"): ({"trace_id": TRACE}, pytest.approx(0.01), NOW + 0.2),
    } == exemplars


def test_ten_thousand_invented_names_add_no_series(admin: Admin) -> None:
    """Whatever of a request a client may name: model, tenant, user, feature, colour, context; and what an upstream calls itself."""
    tally, errors = RecordTally(routes=["q*"], upstreams=["vllm"]), EstimateErrors()
    counts = []
    for number in range(10_000):
        word = f"invented-{number}"
        record = RequestRecord(
            request_id=word,
            started_at=NOW,
            operation="chat" if number % 2 else word,
            outcome=Outcome.OK,
            status=200,
            duration_s=0.2,
            key_id=word,
            tenant=word,
            user=word,
            tier=word,
            model=word,
            upstream=word,
            upstream_model=word,
            feature=word,
            color=word,
            route="q*" if number % 2 else word,
            finish_reason=word,
            price_version=word,
            business_context=f"feature={word}",
            usage=Usage(prompt_tokens=1),
        )
        tally.record(record)
        errors.observe("q*", word, counted=1, estimated=1, reported=1)
        if number in (2 * MAX_SERIES, 9_999):
            statistics = WorkerStatistics(requests=tally.statistics(), estimate_errors=errors.statistics())
            admin.node.shown = msgspec.structs.replace(NODE, statistics=statistics)
            page = admin.client.get("/metrics").text
            counts.append(len([line for line in page.splitlines() if not line.startswith("#")]))
    assert counts[0] == counts[1]
    named = {line.partition("{")[0] for line in page.splitlines() if "invented" in line}
    assert named <= {f"tidegate_estimate_error_ratio_{part}" for part in ("bucket", "count", "sum")}  # the first of them, by what answered


def test_metric_names_follow_the_rules() -> None:
    """Counters end in `_total`, nothing else does; names are unique and carry our prefix."""
    assert len({spec.name for spec in METRICS}) == len(METRICS)
    for spec in METRICS:
        assert spec.name.startswith("tidegate_")
        assert spec.name.endswith("_total") == (spec.kind is Kind.COUNTER)
        assert spec.meaning.endswith(".")


def test_the_page_of_metrics_is_current() -> None:
    """`docs/reference/metrics.md` is what `make docs` would write."""
    committed = Path(__file__).parents[3] / "docs" / "reference" / reference.FILE_NAME
    assert committed.read_text() == reference.page()


def test_figures_of_a_snapshot_are_numbers_only() -> None:
    """Flattening keeps numbers, sums mappings and leaves words out; an unknown level is a fault."""

    class Snapshot(msgspec.Struct):
        open: int
        refused: dict[str, int]
        state: str

    snapshot = Snapshot(open=1, refused={"a": 2, "b": 3}, state="fine")
    assert figures("pool", snapshot, levels=["open"]) == ({"pool.open": 1.0}, {"pool.refused": 5.0})
    with pytest.raises(AssertionError):
        figures("pool", snapshot, levels=["opne"])


# ── keys ──────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    "headers", [{}, {"authorization": "Bearer nonsense"}, {"authorization": "Basic eDp5"}, {"authorization": "Bearer "}]
)
@pytest.mark.parametrize(
    ("method", "path"), [("GET", "/admin/keys"), ("POST", "/admin/keys"), ("DELETE", "/admin/keys/x"), ("GET", "/admin/status")]
)
def test_without_an_admin_key_nothing_is_told(admin: Admin, method: str, path: str, headers: dict[str, str]) -> None:
    """The same 401 for every cause."""
    answer = admin.client.request(method, path, headers=headers)
    assert (answer.status_code, answer.json()["error"]["code"]) == (401, "invalid_api_key")
    assert answer.headers["www-authenticate"] == "Bearer"


def test_an_ordinary_key_is_forbidden(admin: Admin) -> None:
    """A key of an application cannot make keys."""
    plain = admin.store.create(name="app", tenant="a", user="a", now=NOW).token.reveal()
    answer = admin.call("POST", "/admin/keys", {"name": "mine"}, key=plain)
    assert (answer.status_code, answer.json()["error"]["code"]) == (403, "forbidden")


def test_a_key_can_be_made_listed_rotated_and_revoked(admin: Admin) -> None:
    """The life of a key over HTTP; its token is in the first answer only."""
    made = admin.call(
        "POST", "/admin/keys", {"name": "app", "tenant": "acme", "tokens_per_minute": 1000, "models": ["q*"], "expires_in_s": 60}
    )
    assert made.status_code == 201
    key_id, token = made.json()["key_id"], made.json()["key"]
    assert admin.store.snapshot().match(token, wall_now=NOW) is not None
    listed = admin.call("GET", "/admin/keys")
    (shown,) = [key for key in listed.json()["keys"] if key["key_id"] == key_id]
    assert (shown["tenant"], shown["user"], shown["tokens_per_minute"], shown["models"]) == ("acme", "app", 1000, ["q*"])
    assert (shown["state"], shown["expires_at"]) == ("active", NOW + 60)
    assert token not in listed.text
    rotated = admin.call("POST", f"/admin/keys/{key_id}/rotate", {"grace_s": 0}).json()["key"]
    assert admin.store.snapshot().match(token, wall_now=NOW) is None
    assert admin.store.snapshot().match(rotated, wall_now=NOW) is not None
    assert admin.call("DELETE", f"/admin/keys/{key_id}").status_code == 200
    assert admin.store.snapshot().match(rotated, wall_now=NOW) is None


def test_an_expired_key_is_shown_as_that(admin: Admin) -> None:
    """A key's state is as of now."""
    admin.call("POST", "/admin/keys", {"name": "short", "expires_in_s": 60})
    admin.now += 61
    states = {key["name"]: key["state"] for key in admin.call("GET", "/admin/keys").json()["keys"]}
    assert states == {"root": "active", "short": "expired"}


def test_a_revoked_admin_key_stops_at_once(admin: Admin) -> None:
    """The admin API asks the store, not a cache."""
    admin.store.revoke(admin.key, NOW)
    assert admin.call("GET", "/admin/keys").status_code == 401


def test_an_unknown_key_is_404(admin: Admin) -> None:
    """Revoking and rotating say that there is no such key, and how to see those that there are."""
    for method, path in (("DELETE", "/admin/keys/nosuchkey"), ("POST", "/admin/keys/nosuchkey/rotate")):
        answer = admin.call(method, path)
        error = answer.json()["error"]
        assert (answer.status_code, error["code"], error["param"]) == (404, "key_not_found", "key_id")
        assert "no active key 'nosuchkey'" in error["message"]
        assert "GET /admin/keys" in error["message"]


def test_a_whole_token_names_its_key_and_is_never_repeated(admin: Admin, caplog: pytest.LogCaptureFixture) -> None:
    """Neither the answers nor the log have any of the secret; a key that is revoked or has expired is said to be."""
    caplog.set_level("INFO", "tidegate")
    made = admin.call("POST", "/admin/keys", {"name": "app", "expires_in_s": 60}).json()
    secret = made["key"].split("-")[2]
    told = [admin.call("DELETE", f"/admin/keys/{made['key']}") for _ in range(2)]
    told.append(admin.call("POST", f"/admin/keys/{made['key']}/rotate"))
    assert told[0].json() == {"revoked": made["key_id"]}
    assert [answer.json()["error"]["message"] for answer in told[1:]] == [f"Key {made['key_id']} is revoked already."] * 2
    late = admin.call("POST", "/admin/keys", {"name": "late", "expires_in_s": 60}).json()["key_id"]
    admin.now += 61
    told.append(admin.call("POST", f"/admin/keys/{late}/rotate"))
    assert f"Key {late} has expired." in told[-1].text
    logged = "".join(record.getMessage() for record in caplog.records if record.name.startswith("tidegate"))
    assert f"key.revoked key={made['key_id']}" in logged
    assert secret[:6] not in logged + "".join(answer.text for answer in told)


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b"{", "not JSON"),
        ({}, "name"),
        ({"name": 1}, "name"),
        ({"name": "x", "tokens_per_minute": 0}, "tokens_per_minute"),
        ({"name": "x", "limit": 5}, "limit"),
        ({"name": ""}, "name"),
        ({"name": "x", "expires_in_s": -1}, "expires_in_s"),
        ({"name": "x", "models": []}, "model patterns"),
    ],
)
def test_a_body_at_fault_is_told_which_field(admin: Admin, body: Any, words: str) -> None:
    """The message names the field, and nothing is made."""
    answer = admin.call("POST", "/admin/keys", body)
    assert (answer.status_code, answer.json()["error"]["type"]) == (400, "invalid_request_error")
    assert words in answer.json()["error"]["message"]
    assert len(admin.store.list()) == 1


def test_a_large_body_is_refused(admin: Admin) -> None:
    """No request of the admin API is that large."""
    answer = admin.call("POST", "/admin/keys", b" " * (MAX_BODY_BYTES + 1))
    assert (answer.status_code, answer.json()["error"]["code"]) == (413, "body_too_large")


def test_unknown_paths_and_methods_have_the_usual_shape(admin: Admin) -> None:
    """Every error is JSON with the four fields."""
    missing, wrong = admin.client.get("/admin"), admin.client.post("/livez")
    assert (missing.status_code, missing.json()["error"]["code"]) == (404, "unknown_path")
    assert (wrong.status_code, wrong.json()["error"]["code"]) == (405, "method_not_allowed")
    assert "GET" in wrong.headers["allow"]
    assert set(missing.json()["error"]) == {"message", "type", "param", "code"}


def test_a_fault_does_not_leak(admin: Admin, monkeypatch: pytest.MonkeyPatch) -> None:
    """What went wrong inside is in the log, not in the answer."""

    async def broken() -> NodeSnapshot:
        raise KeyError("sk-secret-of-the-house")

    monkeypatch.setattr(admin.node, "snapshot", broken)
    answer = admin.client.get("/readyz")
    assert (answer.status_code, answer.json()["error"]["code"]) == (500, "internal_error")
    assert "secret" not in answer.text


def test_the_status_page_shows_everything_but_secrets(admin: Admin) -> None:
    """The snapshot as it is."""
    body = admin.call("GET", "/admin/status").json()
    assert (body["phase"], body["workers"][0]["pid"], body["engine"]["warm_ttft_s"]) == ("running", 1, 0.1)


def test_a_wrong_method_is_told_all_that_a_path_takes(admin: Admin) -> None:
    """Also where one path serves several methods."""
    answer = admin.call("PUT", "/admin/keys")

    assert (405, "GET, HEAD, POST") == (answer.status_code, answer.headers["allow"])
    assert "GET, HEAD, POST" in answer.json()["error"]["message"]
