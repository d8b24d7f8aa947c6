"""The console over a fake node and a real key store, with an asker that answers from a list."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from tidegate.adapters.keys.store import KeyStore
from tidegate.admin.app import AdminApp
from tidegate.admin.console.console import Console
from tidegate.admin.view import NodePhase, NodeSnapshot, WorkerSnapshot
from tidegate.analytics.asking import Asker, QueryAnswer, QueryRequest
from tidegate.config.load import Loaded, load_text
from tidegate.config.schema import Configuration
from tidegate.domain.statistics import LimitLevel, UpstreamStatistics, WorkerStatistics
from tidegate.domain.units import ReplicaId, UpstreamName
from tidegate.domain.upstream import BreakerPhase, ReplicaPhase, ReplicaStatus
from tidegate.errors import ReplicaNotFound

NOW = 1_700_000_000.0
LEVEL = LimitLevel("tenant-tokens;tenant=acme", "tenant-tokens", "tenant=acme", "tokens", "sliding", 1000, 250, 60, is_shadow=False)


def replica(name: str, **more: Any) -> ReplicaStatus:
    return ReplicaStatus(ReplicaId(name), UpstreamName(name.partition("/")[0]), ReplicaPhase.READY, 1, None, **more)


class FakeAsker:
    """Notes what it is asked; answers in order, then with nothing."""

    def __init__(self) -> None:
        self.asked: list[QueryRequest] = []
        self.answers: list[QueryAnswer | Exception] = []

    async def ask(self, request: QueryRequest) -> QueryAnswer:
        self.asked.append(request)
        answer = self.answers.pop(0) if self.answers else QueryAnswer()
        if isinstance(answer, Exception):
            raise answer
        return answer


class FakeDesk:
    """A node with one upstream of two replicas, seen by two workers."""

    def __init__(self) -> None:
        views = (
            replica("a/0"),
            replica("a/1", breaker=BreakerPhase.OPEN, available=False, why="left alone"),
            replica("a/0"),
            replica("a/1"),
        )
        worker = WorkerSnapshot(index=0, phase="ready", pid=1, restarts=0, responsive=True, serving=True)
        statistics = WorkerStatistics(upstreams=(UpstreamStatistics("a", ready=True, replicas=views),))
        self.shown = NodeSnapshot(version="1", phase=NodePhase.RUNNING, started_at=NOW, workers=(worker,), statistics=statistics)
        self.fake_asker: FakeAsker | None = FakeAsker()
        self.configuration: Configuration = configuration()
        self.api_url = ""
        self.told: list[tuple[str, bool]] = []
        self.looks = 0

    @property
    def asker(self) -> Asker | None:
        return self.fake_asker

    async def snapshot(self) -> NodeSnapshot:
        self.looks += 1
        return self.shown

    async def limit_levels(self) -> tuple[LimitLevel, ...]:
        return (LEVEL,)

    async def drain(self, name: str, *, drained: bool) -> None:
        if name not in {"a", "a/0", "a/1"}:
            raise ReplicaNotFound("There is none of that name.")
        self.told.append((name, drained))


def configuration() -> Configuration:
    text = """
    upstreams: {a: {dialect: openai, base_url: "http://127.0.0.1:9/v1", models: [m]}}
    routes: [{model: "*", targets: [{upstream: a}]}]
    local_engine: {enabled: false}
    """
    loaded = load_text(text, {})
    assert isinstance(loaded, Loaded), loaded
    return loaded.configuration


class Bench:
    """The console under test, with an admin key and one that may look only."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.now = NOW
        self.desk = FakeDesk()
        self.store = KeyStore(directory / "keys.sqlite")
        self.console = Console(self.desk, self.store, state_directory=directory, wall_clock=lambda: self.now)
        app = AdminApp(self.desk, self.store, wall_clock=lambda: self.now, door=self.console.door, more=self.console.routes())
        self.client = TestClient(app.build(), raise_server_exceptions=False, follow_redirects=False, base_url="http://console")
        self.key = self._key("root", read_only=False)
        self.reader = self._key("reader", read_only=True)

    def _key(self, name: str, *, read_only: bool) -> str:
        return self.store.create(name=name, tenant="ops", user="ops", now=NOW, admin=True, read_only=read_only).token.reveal()

    def call(self, method: str, path: str, body: Any = None, *, key: str | None = None) -> Any:
        self.client.cookies.clear()
        return self.client.request(method, path, json=body, headers={"authorization": f"Bearer {key or self.key}"})

    def sign_in(self, key: str | None = None) -> str:
        """Begin a session; give its token for changes."""
        answer = self.client.post("/console/login", content=f"key={key or self.key}")
        assert answer.status_code == 303, answer.text
        page = self.client.get("/console/overview").text
        return page.partition('name="csrf" content="')[2].partition('"')[0]


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    under_test = Bench(tmp_path)
    with under_test.client as client:  # one event loop for all that a test asks
        yield under_test
        assert client.portal is not None
        client.portal.call(under_test.console._playground.aclose)
    under_test.store.close()
