"""The local engine as a worker reaches it: whichever process it is, and whatever configuration a request began with."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from tidegate.adapters.engine.settings import EnginePhase, EngineState
from tidegate.adapters.keys.store import KeyStore
from tidegate.config.schema import Configuration, LocalEngineSection
from tidegate.domain.units import Secret
from tidegate.errors import UpstreamUnavailable
from tidegate.http.client import Response, fetch
from tidegate.ports import UpstreamClient, UpstreamRequest
from tidegate.testing import Script, ThreadedUpstream, stall_after
from tidegate.wiring.parts import LOCAL_REPLICA
from tidegate.wiring.worker import KEYS_FILE, LiveWorker, open_worker

DEADLINE_S = 5.0
CONFIGURATION = Configuration(local_engine=LocalEngineSection(enabled=True))


def state_of(engine: ThreadedUpstream, key: str, phase: EnginePhase = EnginePhase.READY) -> EngineState:
    return EngineState(phase=phase, base_url=engine.base_url, api_key=Secret(key))


async def ask(client: UpstreamClient) -> Response:
    body = b'{"model":"m","messages":[{"role":"user","content":"x"}]}'
    request = UpstreamRequest("POST", "/chat/completions", ((b"content-type", b"application/json"),), body)
    return await fetch(client, request, deadline_s=DEADLINE_S, max_bytes=65_536)


def in_a_worker(directory: Path, engine: EngineState | None, story: Callable[[LiveWorker], Awaitable[None]]) -> None:
    KeyStore(directory / KEYS_FILE).close()

    async def run() -> None:
        worker = await open_worker(
            CONFIGURATION, index=0, workers=1, state_directory=directory, engine=engine, counter_socket=None, ledger_socket=None
        )
        try:
            await story(worker)
        finally:
            await worker.aclose()

    asyncio.run(run())


def test_a_request_of_an_older_configuration_reaches_the_engine_that_runs(tmp_path: Path) -> None:
    """It began before a reload, and tries the engine after that was started again at another address with another key."""
    with ThreadedUpstream(api_key="one") as first, ThreadedUpstream(api_key="two") as second:

        async def story(worker: LiveWorker) -> None:
            older = worker.gateway.services.endpoints[LOCAL_REPLICA].client
            assert (await ask(older)).status == 200
            worker.commit(await worker.prepare(CONFIGURATION))
            worker.set_engine(EngineState(phase=EnginePhase.FAILED))
            worker.set_engine(state_of(second, "two"))
            await asyncio.sleep(0)
            assert (await ask(older)).status == 200
            assert (await ask(worker.gateway.services.endpoints[LOCAL_REPLICA].client)).status == 200

        in_a_worker(tmp_path, state_of(first, "one"), story)
        assert (1, 2) == (len(first.requests), len(second.requests))


def test_a_call_under_way_ends_with_the_process_it_went_to(tmp_path: Path) -> None:
    """It is not cut because the engine has moved, and not told that the gateway is stopping."""
    with ThreadedUpstream(api_key="one", default=Script(pieces=("a", "b"), per_token_s=0.3)) as first, ThreadedUpstream() as second:

        async def story(worker: LiveWorker) -> None:
            client = worker.gateway.services.endpoints[LOCAL_REPLICA].client
            asking = asyncio.ensure_future(ask(client))
            async with asyncio.timeout(DEADLINE_S):
                while not first.requests:  # noqa: ASYNC110  the other thread has no event of this loop
                    await asyncio.sleep(0.01)
            worker.set_engine(state_of(second, "two"))
            assert (await asking).status == 200

        in_a_worker(tmp_path, state_of(first, "one"), story)


def test_the_end_of_a_worker_closes_what_is_left_of_a_former_process(tmp_path: Path) -> None:
    """Also a call that a process, gone by then, has not answered."""
    with ThreadedUpstream(api_key="one", default=Script(fault=stall_after(0))) as first, ThreadedUpstream() as second:
        outcomes: list[object] = []

        async def story(worker: LiveWorker) -> None:
            client = worker.gateway.services.endpoints[LOCAL_REPLICA].client
            asking = asyncio.ensure_future(ask(client))
            asking.add_done_callback(lambda asked: outcomes.append(asked.exception()))
            async with asyncio.timeout(DEADLINE_S):
                while not first.requests:  # noqa: ASYNC110  as above
                    await asyncio.sleep(0.01)
            worker.set_engine(state_of(second, "two"))

        in_a_worker(tmp_path, state_of(first, "one"), story)
        assert [type(outcome) for outcome in outcomes] == [UpstreamUnavailable]


def test_before_the_engine_has_an_address_a_call_fails(tmp_path: Path) -> None:
    """In a later turn of the loop, as with every client; and not at all once it is cancelled."""

    async def story(worker: LiveWorker) -> None:
        client = worker.gateway.services.endpoints[LOCAL_REPLICA].client
        with pytest.raises(UpstreamUnavailable, match="has not started"):
            await ask(client)

    in_a_worker(tmp_path, None, story)
