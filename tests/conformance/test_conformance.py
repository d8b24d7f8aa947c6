"""Tidegate passes its own conformance suite whole: the fault matrix of `tidegate conformance`, over real sockets.

Each case has a model and so upstreams of its own, with short clocks and without breakers, which would take faults on
purpose for outages. One scripted upstream stands behind all of them, twice: as each route's first target and as its stand-by.
"""

from __future__ import annotations

import asyncio
import re

import pytest

from tidegate.conformance.cases import Case, cases
from tidegate.conformance.expect import Way
from tidegate.conformance.observe import Target
from tidegate.conformance.run import Result, Settings, run_cases
from tidegate.mock.presets import PRESETS
from tidegate.testing import FaultKind, GatewayProcess, RetryDialect, ThreadedUpstream, UsagePlace

_CLOCKS = {"connect_s": 2.0, "first_byte_s": 0.6, "first_token_s": 0.6, "stall_s": 0.6, "total_s": 2.0}


def _configuration(base_url: str) -> dict[str, object]:
    upstream = {"dialect": "openai", "base_url": base_url, "timeouts": _CLOCKS, "health": {"enabled": False}, "breaker": {"enabled": False}}
    upstreams: dict[str, object] = {}
    routes: list[dict[str, object]] = []
    for case in cases():
        names = [f"{case.name}-{role}" for role in ("first", "standby")]
        dialect = "dashscope" if case.play in ("data_inspection", "arrearage") else "openai"
        upstreams |= {name: upstream | {"dialect": dialect} for name in names}
        routes.append({"model": f"mock-{case.name}", "targets": [{"upstream": name} for name in names]})
    return {"upstreams": upstreams, "routes": routes, "retry": {"budget_floor": 10_000, "max_retry_after_s": 0}}


@pytest.fixture(scope="module")
def results() -> dict[tuple[str, str], Result]:
    """Every result of one run over one gateway."""
    with ThreadedUpstream() as upstream, GatewayProcess(_configuration(upstream.base_url)) as gateway:
        key = gateway.create_key()
        gateway.wait_for_key(key)
        target = Target(gateway.base_url, key.reveal())
        settings = Settings(target, "mock-{case}", upstream.base_url.removesuffix("/v1"), patience_s=8.0)
        found = asyncio.run(run_cases(cases(), settings, told=_ignore))
    return {(result.case, result.way): result for result in found}


def _ignore(result: Result) -> None:
    """Nobody watches."""


@pytest.mark.parametrize(("case", "way"), [pytest.param(case, way, id=f"{case.name}-{way}") for case in cases() for way in case.ways])
def test_conforms(results: dict[tuple[str, str], Result], case: Case, way: Way) -> None:
    """The client sees what is right for this misbehaviour of the upstream, asked in this way."""
    assert results[case.name, way].complaint is None


def test_the_matrix_is_whole() -> None:
    """Whatever the scripted upstream can do to a caller by name is asked of the gateway."""
    asked = {word for case in cases() for word in re.findall(r"\w+", case.play)}
    names = {*FaultKind, *PRESETS, *UsagePlace, *RetryDialect} - {"last", "rate_limited"}  # the plain answer, and a 429 in seconds
    assert set() == {str(name) for name in names if name not in asked}


def test_case_names_are_unique() -> None:
    """A case's name is its model name here and its row in the table."""
    names = [case.name for case in cases()]
    assert len(set(names)) == len(names)
