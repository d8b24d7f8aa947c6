"""Looks at what `tidegate doctor` judges: each look has a deadline, changes nothing, and finds out by trying where it can.

A port is tried by listening on it for a moment, an upstream by asking it for its models. Nothing that is found here holds a key.
"""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import msgspec

from tidegate.adapters.wall_clock import wall_clock
from tidegate.cli.doctor_upstreams import ConfiguredReplica, Looking, ask_replica, exchange, replicas_of
from tidegate.cli.extras import installed, needed
from tidegate.config.bookkeeping import POSTGRES_SCHEMES, books_are_kept
from tidegate.config.environment import left_alone
from tidegate.config.prepare import Prepared, prepare, readable_file
from tidegate.config.problem import Severity
from tidegate.config.schema import Configuration
from tidegate.doctor import machine, services, upstreams
from tidegate.doctor.finding import Check
from tidegate.doctor.phrases import say
from tidegate.domain.units import Headers, Secret
from tidegate.errors import ConfigurationError, TidegateError
from tidegate.node.sockets import Address, open_single
from tidegate.node.state_directory import Endpoints, read_endpoints
from tidegate.ports import UpstreamRequest
from tidegate.wiring.records import records_directory

MOST_AT_ONCE: Final = 8
"""Upstream addresses that are asked at the same time: a doctor is no load test."""


async def look(file: Path | None, looking: Looking) -> list[Check]:
    """Look at everything; a configuration that is refused is all that can be judged."""
    loop = asyncio.get_running_loop()
    began, began_wall = loop.time(), wall_clock()
    prepared = prepare(file, os.environ, file_exists=readable_file)
    checks = machine.configuration(str(file) if file is not None else "", _problems(prepared), _notes(prepared))
    if prepared.configuration is None:
        return checks
    configuration = prepared.configuration
    if looking.state_directory is not None:
        configuration = msgspec.structs.replace(configuration, state_directory=str(looking.state_directory))
    state = Path(configuration.state_directory)
    endpoints = read_endpoints(state)
    node, runs = await _node(endpoints, looking)
    checks += [*_ports(configuration, endpoints if runs else None), *machine.state_directory(_directory(configuration, state)), *node]
    asked, skews = await _upstreams(configuration, looking)
    stepped = (wall_clock() - began_wall) - (loop.time() - began)
    checks += [*machine.clock(skews, stepped_s=stepped), *asked]
    checks += [
        await _engine(configuration),
        *await _issuers(configuration, looking),
        *await _stores(configuration, looking),
        await _books(configuration, state),
    ]
    checks += [
        *services.recorder(await _recorder(configuration, state, node_runs=runs)),
        *services.extras(installed(), needed(configuration)),
    ]
    return checks


# ── configuration, machine, node ──────────────────────────────────────────────


def _problems(prepared: Prepared) -> list[machine.Problem]:
    found = []
    for problem in prepared.problems:
        place = say("line {line}", line=problem.line) if problem.line else problem.path or say("the file")
        hint = f" ({problem.hint})" if problem.hint else ""
        found.append(machine.Problem(place, f"{problem.message}{hint}", problem.severity is Severity.ERROR))
    return found


def _notes(prepared: Prepared) -> tuple[str, ...]:
    return tuple(left_alone(prepared.configuration, os.environ)) if prepared.configuration is not None else ()


async def _node(endpoints: Endpoints | None, looking: Looking) -> tuple[list[Check], bool]:
    if endpoints is None:
        return list(machine.node(None, admin="")), False
    answer = await _get(endpoints.admin, "/readyz", (), looking, verify_tls=True)
    if answer.failure:
        return list(machine.node(None, admin=endpoints.admin, silent=True)), False
    try:
        state = msgspec.json.decode(answer.body, type=machine.NodeState)
    except msgspec.MsgspecError:
        return list(machine.node(None, admin=endpoints.admin, silent=True)), False
    return list(machine.node(state, admin=endpoints.admin, is_ready=answer.status == 200)), True  # noqa: PLR2004


def _ports(configuration: Configuration, endpoints: Endpoints | None) -> Iterator[Check]:
    server, admin = configuration.server, configuration.admin
    for name, address, ours in (
        ("api port", Address(server.host, server.port, "server"), endpoints.api if endpoints is not None else ""),
        ("admin port", Address(admin.host, admin.port, "admin"), endpoints.admin if endpoints is not None else ""),
    ):
        if ours:
            place = urlsplit(ours)
            yield machine.port(name, place.netloc, ours=True, configured=address.port if address.port not in {0, place.port} else None)
            continue
        trouble = ""
        try:
            open_single(address).close()
        except ConfigurationError as error:
            trouble = error.message
        yield machine.port(name, f"{address.host}:{address.port}", trouble=trouble)


def _directory(configuration: Configuration, state: Path) -> machine.Directory:
    nearest = next(path for path in (state.absolute(), *state.absolute().parents) if path.exists())
    records = configuration.records
    kept = sum(path.stat().st_size for path in records_directory(configuration, state).glob("requests-*.jsonl*"))
    return machine.Directory(
        path=str(state),
        exists=nearest == state.absolute(),
        writable=nearest.is_dir() and os.access(nearest, os.W_OK | os.X_OK),
        mode=nearest.stat().st_mode,
        free_bytes=shutil.disk_usage(nearest).free,
        wanted_bytes=max(0, records.max_file_bytes * (records.keep_files + 1) * configuration.server.workers - kept),
    )


async def _engine(configuration: Configuration) -> Check:
    from tidegate.adapters.engine.supervisor import preflight
    from tidegate.node.engine import engine_settings

    if not configuration.local_engine.enabled:
        return machine.engine(enabled=False)
    try:
        await asyncio.to_thread(preflight, engine_settings(configuration))
    except (TidegateError, OSError) as error:
        return machine.engine(enabled=True, trouble=str(error))
    return machine.engine(enabled=True)


# ── upstreams ─────────────────────────────────────────────────────────────────


async def _upstreams(configuration: Configuration, looking: Looking) -> tuple[list[Check], dict[str, float]]:
    """Ask every replica; give what was found, and by how much our clock is ahead of each of theirs."""
    turns = asyncio.Semaphore(MOST_AT_ONCE)

    async def in_turn(replica: ConfiguredReplica) -> tuple[list[Check], float | None]:
        async with turns:
            return await ask_replica(replica, looking)

    replicas = list(replicas_of(configuration))
    found = await asyncio.gather(*(in_turn(replica) for replica in replicas))
    skews = {replica.address.name: skew for replica, (_, skew) in zip(replicas, found, strict=True) if skew is not None}
    return [check for checks, _ in found for check in checks], skews


async def _get(origin: str, path: str, headers: Headers, looking: Looking, *, verify_tls: bool) -> upstreams.Answer:
    return await exchange(origin, UpstreamRequest("GET", path, headers, b""), looking, verify_tls=verify_tls)


# ── stores, books, recorder, extras ───────────────────────────────────────────


async def _issuers(configuration: Configuration, looking: Looking) -> list[Check]:
    places = [(section.issuer, section.jwks) for section in configuration.jwt if section.jwks is not None]
    return [services.key_source(await _key_source(issuer, place, looking)) for issuer, place in places]


async def _key_source(issuer: str, place: str, looking: Looking) -> services.KeySource:
    from tidegate.adapters.jwt.key_set import parse_key_set
    from tidegate.wiring.parts import fetch_key_set

    try:
        async with asyncio.timeout(looking.timeout_s):
            document = await fetch_key_set(place) if "://" in place else await asyncio.to_thread(Path(place).read_bytes)
        parse_key_set(document, source=place)
    except TimeoutError:
        return services.KeySource(issuer, place, f"no answer within {looking.timeout_s:g} s")
    except (OSError, TidegateError) as error:
        return services.KeySource(issuer, place, error.message if isinstance(error, TidegateError) else error.strerror or str(error))
    return services.KeySource(issuer, place)


async def _stores(configuration: Configuration, looking: Looking) -> list[Check]:
    named: list[tuple[str, Secret]] = []
    if configuration.limits.store is not None:
        named.append(("limits.store", configuration.limits.store))
    if configuration.shared is not None:
        named.append(("shared.redis_url", configuration.shared.redis_url))
    found = [services.store(await _store(setting, url, looking)) for setting, url in named]
    return found if configuration.limits.store is not None else [*found, services.no_store(workers=configuration.server.workers)]


async def _store(setting: str, url: Secret, looking: Looking) -> services.Store:
    try:
        from tidegate.adapters.health.redis_link import RedisLink
    except ModuleNotFoundError:
        return services.Store(setting, "the package redis is not installed: pip install 'tidegate[redis]'")
    from tidegate.adapters.health.share import LinkLost

    loop = asyncio.get_running_loop()
    began = loop.time()
    try:
        link = await RedisLink.open(url, "tidegate:doctor", timeout_s=looking.timeout_s)
    except (LinkLost, ConfigurationError) as error:
        return services.Store(setting, str(error))
    answered_s = loop.time() - began
    await link.aclose()
    return services.Store(setting, answered_s=answered_s)


async def _books(configuration: Configuration, state: Path) -> Check:
    from tidegate.adapters.books.opening import open_books
    from tidegate.wiring.books import books_database

    if not books_are_kept(configuration):
        return services.books(kept=False)
    database = books_database(configuration, state)

    def tenants() -> int | None:
        if not database.startswith(POSTGRES_SCHEMES) and not Path(database).exists():
            return None
        with closing(open_books(database, create=False)) as books:
            return len(books.balances())

    try:
        return services.books(kept=True, tenants=await asyncio.to_thread(tenants))
    except (TidegateError, OSError) as error:
        return services.books(kept=True, trouble=str(error))


async def _recorder(configuration: Configuration, state: Path, *, node_runs: bool) -> services.RecorderReport:
    from tidegate.adapters.analytics.client import SOCKET_FILE, RecorderAsker
    from tidegate.adapters.analytics.opening import store_settings
    from tidegate.node.recorder_settings import is_recorder_wanted

    if not is_recorder_wanted(configuration):
        return services.RecorderReport(running=False, wanted=False)
    try:
        path = (Path(store_settings(configuration, state).directory) / SOCKET_FILE).read_text()
        feed = await RecorderAsker(Path(path)).status()
    except (OSError, TidegateError):
        return services.RecorderReport(running=False, node_runs=node_runs)
    return services.RecorderReport(
        running=True,
        node_runs=node_runs,
        trouble=feed.trouble,
        backlog_bytes=feed.backlog_bytes,
        lag_s=feed.lag_s,
        lost_bytes=feed.lost_bytes,
        unreadable=feed.unreadable,
        rows=feed.rows,
    )
