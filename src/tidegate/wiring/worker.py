"""One worker's data plane, made of a configuration.

A reload builds everything afresh and keeps what must outlive it: the limits in use, the state of replicas that stay, the key book,
the recorder. Requests that run keep what they began with; pools they no longer need are closed once they are idle.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Collection
from pathlib import Path
from random import Random
from urllib.parse import urlsplit

from tidegate.adapters.counting.client import ProcessTokenCounter
from tidegate.adapters.counting.service import ENGINE, TokenCountService
from tidegate.adapters.engine.settings import EnginePhase, EngineState
from tidegate.adapters.keys.snapshot import KeySnapshot
from tidegate.adapters.keys.watcher import KeyWatcher
from tidegate.adapters.metrics.estimate_errors import EstimateErrors
from tidegate.adapters.metrics.tally import RecordTally
from tidegate.adapters.records.audit import BodyRecorder
from tidegate.adapters.records.jsonl import JsonLinesRecorder
from tidegate.adapters.records.lines import LogFormat
from tidegate.adapters.wall_clock import wall_clock
from tidegate.config.environment import LOCAL
from tidegate.config.schema import Configuration
from tidegate.domain.books import INCARNATION_CHARS
from tidegate.domain.header_lines import field_lines
from tidegate.domain.record import RequestRecord
from tidegate.domain.statistics import LimitLevel, WorkerStatistics
from tidegate.domain.units import ModelName
from tidegate.errors import ConfigurationError
from tidegate.flow.facts import Policies
from tidegate.gateway.authenticate import CachedAuthenticator
from tidegate.gateway.calibration import Calibration
from tidegate.gateway.gateway import Gateway
from tidegate.gateway.services import Services, UpstreamEndpoint
from tidegate.http.client import fetch
from tidegate.http.client_request import OWNED
from tidegate.http.outbox import Outbox
from tidegate.policy.caching.off import look_up
from tidegate.policy.metering.coefficients import Coefficients
from tidegate.policy.metering.limiter import Limiter
from tidegate.policy.routing.fleet import Fleet
from tidegate.policy.routing.routes import RouteTable
from tidegate.policy.shaping.identity import shape
from tidegate.ports import Application, UpstreamRequest
from tidegate.wire.dialects import DIALECTS
from tidegate.wire.trace_context import share_threshold
from tidegate.wiring.books import WorkerBooks, worker_books
from tidegate.wiring.engine_client import EngineClient
from tidegate.wiring.health import Lookout, watch_plan
from tidegate.wiring.leases import WorkerLimits, worker_limits
from tidegate.wiring.limits import limit_rules_of
from tidegate.wiring.parts import (
    LOCAL_REPLICA,
    classes_of,
    degradation_of,
    fleet_pools,
    ladders_of,
    limits_resolver,
    listed_models,
    members_of,
    pool_of,
    retry_budget_of,
    retry_policy_of,
    route_of,
    router_of,
    token_keys,
    upstream_headers,
)
from tidegate.wiring.prepared import Prepared
from tidegate.wiring.prices import pricing_of, unbilled_colors
from tidegate.wiring.records import audit_settings, body_recorder, request_recorder
from tidegate.wiring.reserve import forecast_of
from tidegate.wiring.streams import leave_policies, other_workers, peer_socket, stream_settings
from tidegate.wiring.worker_statistics import WorkerFigures

KEYS_FILE = "keys.sqlite"
_FIRST_KEYS_S = 10.0
_FIRST_LEASES_S = 3.0  # the ledger process starts beside the workers; without a store, `on_store_down` decides
_COUNT_ANSWER_BYTES = 16_777_216  # the ids of a long text, as JSON
_OWN_SERVERS = frozenset({"vllm", "llamacpp"})
_JSON = (b"content-type", b"application/json")
_RETIRE_LOOK_S = 1.0


class LiveWorker:
    """One worker's data plane; see `node.worker.Worker` for what each method promises."""

    def __init__(
        self,
        *,
        index: int,
        workers: int,
        state_directory: Path,
        sockets: Path | None,
        counter: ProcessTokenCounter | None,
        recorder: JsonLinesRecorder,
        bodies: BodyRecorder,
        limits: WorkerLimits,
        books: WorkerBooks | None = None,
    ) -> None:
        self._state_directory = state_directory
        self.outbox = Outbox(asyncio.get_running_loop())
        self._books = books
        self._shared_limits = limits
        self._limits = Limiter(limits.source)
        self._counter = counter
        self._recorder = recorder
        self._bodies = bodies
        self._tally = RecordTally()
        self._coefficients = Coefficients()
        self._estimate_errors = EstimateErrors()
        self._keys = KeySnapshot({}, version=0)
        self._keys_arrived = asyncio.Event()
        self._watcher = KeyWatcher(state_directory / KEYS_FILE, loop=asyncio.get_running_loop(), on_snapshot=self._adopt_keys)
        self._drained: tuple[str, ...] = ()
        self._engine: EngineState | None = None
        self._engine_client = EngineClient(self.outbox)
        self._gateway: Gateway | None = None
        self._lookout: Lookout | None = None
        self._active: Prepared | None = None
        self._index = index
        self._peers = {} if sockets is None else other_workers(sockets, index, workers)
        self.peer_socket = None if sockets is None or workers == 1 else peer_socket(sockets, index)
        """Where this worker serves the others of its node."""
        self._figures = WorkerFigures(
            tally=self._tally,
            estimate_errors=self._estimate_errors,
            recorder=recorder,
            bodies=bodies,
            limits=self._limits,
            shared_limits=limits,
            books=books,
            watcher=self._watcher,
            engine=self._engine_client,
        )

    @property
    def gateway(self) -> Gateway:
        assert self._gateway is not None, "a worker is used after it was opened"
        return self._gateway

    @property
    def application(self) -> Application:
        return self.gateway.application

    async def open(self, configuration: Configuration, engine: EngineState | None) -> None:
        self._recorder.start()
        if self._shared_limits.keeper is not None:
            self._shared_limits.keeper.start()
        if self._books is not None:
            self._books.journal.start()
        self._watcher.start()
        try:
            async with asyncio.timeout(_FIRST_KEYS_S):
                await self._keys_arrived.wait()
        except TimeoutError:
            raise ConfigurationError(
                f"the key database {self._state_directory / KEYS_FILE} could not be read within {_FIRST_KEYS_S:g} s; "
                "check that it exists and belongs to the user that runs the gateway"
            ) from None
        self._engine = engine
        if self._shared_limits.keeper is not None:
            await self._shared_limits.keeper.wait_connected(deadline_s=_FIRST_LEASES_S)
        prepared = await self.prepare(configuration)
        rng = Random(os.urandom(32))  # noqa: S311  names of requests, not secrets
        self._gateway = Gateway(prepared.services, clock=time.monotonic, rng=rng, worker=self._index, peers=self._peers)
        self._lookout = Lookout(self._gateway, clock=time.monotonic, rng=rng)
        self.commit(prepared)

    async def prepare(self, configuration: Configuration) -> Prepared:
        before = self._active.services.policies if self._active is not None else None
        rng = Random(os.urandom(32))  # noqa: S311  jitter, and draws between replicas
        members = [
            (replica, section, each.base_url)
            for name, section in configuration.upstreams.items()
            for replica, each in members_of(name, section)
        ]
        pools = {replica: pool_of(section, base_url, self.outbox) for replica, section, base_url in members}
        endpoints = {
            replica: UpstreamEndpoint(
                pools[replica], DIALECTS[section.dialect], field_lines(upstream_headers(section), OWNED), section.dialect in _OWN_SERVERS
            )
            for replica, section, _ in members
        }
        if configuration.local_engine.enabled:
            endpoints[LOCAL_REPLICA] = UpstreamEndpoint(self._engine_client, DIALECTS["llamacpp"], b"", continues_trace=True)
        routes = tuple(route_of(section) for section in configuration.routes)
        table = RouteTable(routes, listed_models(configuration))
        policies = Policies(
            limits=self._limits,
            routes=table,
            fleet=Fleet(fleet_pools(configuration), before=before.fleet if before is not None else None, rng=rng),
            retry=retry_policy_of(configuration),
            rng=rng,
            shape=shape,
            look_up=look_up,
            models_created_at=int(wall_clock()),
            router=router_of(configuration, routes),
            budget=retry_budget_of(configuration),
            ladders=ladders_of(configuration),
            degradation=degradation_of(configuration, before=before.degradation if before is not None else None),
            classes=classes_of(configuration, before=before.classes if before is not None else None),
            leave=leave_policies(configuration),
            commit_after_s=configuration.streams.commit_after_s,
            coefficients=self._coefficients,
            pricing=pricing_of(configuration),
            unbilled=unbilled_colors(configuration),
            forecast=forecast_of(configuration.reserve, before=before.forecast if before is not None else None),
        )
        audit = audit_settings(configuration)
        tokens = await token_keys(configuration, before=self._active.tokens if self._active is not None else None)
        counter = self._count_service(configuration, table)
        authenticator = CachedAuthenticator(keys=self._keys, wall_clock=wall_clock, tokens=tokens, limits=limits_resolver(configuration))
        services = Services(
            policies=policies,
            endpoints=endpoints,
            authenticator=authenticator,
            counter=counter,
            recorder=self,
            auditor=self._bodies if audit.rules.keep_something else None,
            wall_clock=wall_clock,
            streams=stream_settings(configuration),
            leases=self._shared_limits.keeper,
            costs=self._books.keeper if self._books is not None else None,
            calibration=Calibration(self._coefficients, counter, lambda: self.gateway.tasks, self._estimate_errors.observe),
            trace_threshold=share_threshold(configuration.tracing.sent_ratio),
        )
        return Prepared(configuration, services, pools, authenticator, tokens, counter, watch_plan(configuration), audit)

    def commit(self, prepared: Prepared) -> None:
        retired, self._active = self._active, prepared
        routes = prepared.services.policies.routes.routes
        upstreams = [*prepared.configuration.upstreams, *([LOCAL] if prepared.configuration.local_engine.enabled else [])]
        self._tally.allow(routes=[route.pattern for route in routes], upstreams=upstreams)
        self._limits.configure(limit_rules_of(prepared.configuration))
        prepared.authenticator.adopt_keys(self._keys)  # keys may have changed since it was prepared
        self._bodies.configure(prepared.audit)
        self._recorder.mask_causes(prepared.audit.redacted)
        self.gateway.replace_services(prepared.services)
        prepared.services.policies.fleet.drain(self._drained)
        if self._lookout is not None:
            self._lookout.commit(prepared.watch, prepared.services.policies.fleet)
        if self._engine is not None:
            self.set_engine(self._engine)
        elif prepared.configuration.local_engine.enabled:
            prepared.services.policies.fleet.mark(LOCAL_REPLICA, present=True, warm=False)
        if retired is not None:
            self._figures.carry(retired, self.gateway.services.policies)
            self.gateway.tasks.start(_retire(retired, self.gateway))

    def set_engine(self, state: EngineState) -> None:
        """Follow the local engine's life: a new process has a new address and key."""
        self._engine = state
        active = self._active
        if active is None or not active.configuration.local_engine.enabled:
            return
        self._engine_client.follow(state)
        ready = state.phase is EnginePhase.READY
        present = state.phase not in (EnginePhase.FAILED, EnginePhase.STOPPED)
        self.gateway.services.policies.fleet.mark(LOCAL_REPLICA, present=present, warm=ready, last_error=state.last_error)

    def drain_replicas(self, names: Collection[str]) -> None:
        self._drained = tuple(names)
        self.gateway.services.policies.fleet.drain(self._drained)

    def limit_levels(self) -> tuple[LimitLevel, ...]:
        return self._limits.levels(now=time.monotonic())

    def record(self, record: RequestRecord) -> None:
        """Implement `ports.Recorder`: count it for the metrics, and hand it to the writer."""
        self._tally.record(record)
        self._recorder.record(record)
        if self._books is not None:
            self._books.keeper.end(record)

    def begin_drain(self) -> None:
        self.gateway.begin_drain()

    def interrupt_all(self) -> int:
        return self.gateway.interrupt_all()

    def statistics(self) -> WorkerStatistics:
        assert self._active is not None
        assert self._lookout is not None
        return self._figures.statistics(self.gateway, self._active, self._lookout)

    async def aclose(self) -> None:
        if self._lookout is not None:
            await self._lookout.aclose()
        await self.gateway.aclose()
        await asyncio.to_thread(self._watcher.close)
        await asyncio.gather(asyncio.to_thread(self._recorder.close), asyncio.to_thread(self._bodies.close))
        if self._shared_limits.keeper is not None:
            await self._shared_limits.keeper.aclose()
        if self._books is not None:
            await self._books.journal.aclose()
        if self._active is not None:
            await self._active.aclose()
        await self._engine_client.aclose()
        await asyncio.gather(*(peer.aclose() for peer in self._peers.values()))
        if self._counter is not None:
            await self._counter.aclose()

    def _adopt_keys(self, snapshot: KeySnapshot) -> None:
        self._keys = snapshot
        self._keys_arrived.set()
        if self._active is not None:
            self._active.authenticator.adopt_keys(snapshot)

    def _count_service(self, configuration: Configuration, table: RouteTable) -> TokenCountService:
        def tokenizer_of(model: ModelName) -> str | None:
            route = table.match(model)
            if route is None:
                return None
            first = route.targets[0].upstream
            return ENGINE if first == LOCAL else configuration.upstreams[first].tokenizer

        return TokenCountService(tokenizer_of=tokenizer_of, counter=self._counter, engine=self._ask_engine)

    async def _ask_engine(self, path: str, body: bytes, deadline_s: float) -> tuple[int, bytes]:
        """POST to the engine for the token counter."""
        state = self._engine
        if state is None or state.phase is not EnginePhase.READY or state.base_url is None:
            raise ConnectionRefusedError("the local engine is not ready")
        prefix = urlsplit(state.base_url).path
        relative = path.removeprefix(prefix) if path.startswith(f"{prefix}/") else f"/..{path}"
        request = UpstreamRequest("POST", relative, (_JSON,), body)
        answer = await fetch(self._engine_client, request, deadline_s=deadline_s, max_bytes=_COUNT_ANSWER_BYTES)
        return answer.status, answer.body


async def open_worker(
    configuration: Configuration,
    *,
    index: int,
    workers: int,
    state_directory: Path,
    engine: EngineState | None,
    counter_socket: Path | None,
    log_format: LogFormat = LogFormat.LOGFMT,
    ledger_socket: Path | None = None,
) -> LiveWorker:
    """Build one worker; raises `ConfigurationError` for what a person must mend."""
    counter = None
    if counter_socket is not None:
        counter = ProcessTokenCounter(str(counter_socket), max_body_bytes=configuration.server.max_body_bytes)
    incarnation = os.urandom(INCARNATION_CHARS // 2).hex()  # two digits a byte
    worker = LiveWorker(
        index=index,
        workers=workers,
        state_directory=state_directory,
        sockets=None if counter_socket is None else counter_socket.parent,  # a directory whose paths are short enough for sockets
        counter=counter,
        recorder=request_recorder(configuration, state_directory, worker=index, log_format=log_format),
        bodies=body_recorder(configuration, state_directory, worker=index, log_format=log_format),
        limits=worker_limits(configuration, ledger_socket, incarnation=incarnation, workers=workers),
        books=worker_books(configuration, ledger_socket, state_directory, incarnation=incarnation, worker=index, workers=workers),
    )
    await worker.open(configuration, engine)
    return worker


async def _retire(prepared: Prepared, gateway: Gateway) -> None:
    """Close a configuration that was replaced, once no request of its time runs any more, also one that pauses before a retry."""
    pools = prepared.pools.values()
    policies = prepared.services.policies
    while gateway.uses(policies) or any(pool.statistics().in_use or pool.statistics().waiting for pool in pools):  # noqa: ASYNC110  rare
        await asyncio.sleep(_RETIRE_LOOK_S)  # every request ends by its own clocks
    await prepared.aclose()
