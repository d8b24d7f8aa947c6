"""A worker's whole data plane with books: what a client's call cost is settled in the ledger process's database."""

from __future__ import annotations

import asyncio
import socket
import time
from pathlib import Path

import msgspec
import pytest

from tidegate.adapters.books.desk import Desk
from tidegate.adapters.books.opening import open_books
from tidegate.adapters.frame_server import FrameServer
from tidegate.adapters.frames import LEASE, POST
from tidegate.adapters.keys.store import KeyStore
from tidegate.config.schema import Configuration, LocalEngineSection
from tidegate.config.schema_books import BooksSection
from tidegate.domain.leases import LeaseBatch
from tidegate.domain.outcome import Outcome
from tidegate.domain.record import AttemptRecord, RequestRecord
from tidegate.domain.request import Operation
from tidegate.domain.usage import Usage
from tidegate.policy.metering.leases.ledger import LeaseLedger
from tidegate.wiring.worker import KEYS_FILE, open_worker


def test_a_finished_request_is_in_the_books(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The record is what is settled from, by the time the worker has closed."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    KeyStore(tmp_path / KEYS_FILE).close()
    database = str(tmp_path / "books.sqlite")
    finished = RequestRecord(
        request_id="req-1",
        started_at=1_000.0,
        operation=Operation.CHAT,
        outcome=Outcome.OK,
        status=200,
        duration_s=1.0,
        tenant="acme",
        usage=Usage(10, 20),
        cost_micro=30,
        attempts=(AttemptRecord(1, "there/0", "ok", cost_micro=30),),
    )

    ledger = LeaseLedger(epoch=1, now=time.monotonic())

    async def leases(payload: bytes) -> bytes:
        return msgspec.msgpack.encode(ledger.exchange(msgspec.msgpack.decode(payload, type=LeaseBatch), now=time.monotonic()))

    async def run() -> None:
        desk = Desk(lambda: open_books(database), clock=lambda: 1_001.0)
        desk.start()
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(str(tmp_path / "ledger.sock"))
        server = FrameServer(listener, {POST: desk.post, LEASE: leases})
        configuration = Configuration(books=BooksSection(enabled=True), local_engine=LocalEngineSection(enabled=True))
        worker = await open_worker(
            configuration,
            index=0,
            workers=1,
            state_directory=tmp_path,
            engine=None,
            counter_socket=None,
            ledger_socket=tmp_path / "ledger.sock",
        )
        worker.record(finished)
        assert 0.0 == worker.statistics().levels["books.alone"]
        await worker.aclose()
        server.close()
        await desk.aclose()

    asyncio.run(run())
    books = open_books(database)
    try:
        [settled] = books.settled_calls(since=0.0, until=2_000.0)
        assert ("acme", 30, Usage(10, 20), "there") == (settled.tenant, settled.amount_micro, settled.usage, settled.dimensions.upstream)
    finally:
        books.close()
