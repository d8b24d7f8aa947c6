"""Carries a few requests out in the test's own process: a dispatcher, a real pool, a scripted upstream."""

import time
from collections.abc import Sequence

import msgspec

from tidegate.bench.dispatch import Dispatcher, Share
from tidegate.bench.plan import PlannedRequest, Scenario, Stage, Target
from tidegate.bench.sample import ClientReport, Sample
from tidegate.http.client import PoolSettings, UpstreamPool
from tidegate.testing import Script, ScriptedUpstream

WORDS = Scenario("words", texts=("The tide comes in and the tide goes out.",))


def requests(count: int, *, every_s: float = 0.0, stage: int = 0) -> list[PlannedRequest]:
    """Make requests of equal distances."""
    return [PlannedRequest(number, number * every_s, stage, WORDS.name, number, prompt_tokens=8) for number in range(count)]


def pool_for(target: Target) -> UpstreamPool:
    return UpstreamPool(PoolSettings(target.base_url, connect_timeout_s=target.connect_timeout_s))


async def carry_out(
    share: Share | Sequence[PlannedRequest], target: Target, *, scenario: Scenario = WORDS
) -> tuple[list[Sample], ClientReport]:
    """Carry out a share; give its samples in the order in which they ended."""
    if not isinstance(share, Share):
        share = Share(share, (Stage("all", 0.0, 10.0),), length_s=10.0, places=None)
    samples: list[Sample] = []
    pool = pool_for(target)
    try:
        dispatcher = Dispatcher(share, target, {scenario.name: scenario}, client=pool, on_sample=samples.append)
        await dispatcher.run(time.monotonic())
        assert 0 == dispatcher.in_flight
        return samples, dispatcher.report()
    finally:
        await pool.aclose()


async def ask_once(script: Script | Sequence[Script], *, scenario: Scenario = WORDS, **target: object) -> Sample:
    """Ask an upstream with this script (or these, in turn) once, and give the sample."""
    async with ScriptedUpstream() as upstream:
        upstream.script(*([script] if isinstance(script, Script) else script))
        given: dict[str, object] = {"timeout_s": 5.0} | target
        wanted = msgspec.convert({"base_url": upstream.base_url, "model": "m"} | given, Target)
        samples, _ = await carry_out(requests(1), wanted, scenario=scenario)
        (sample,) = samples
        return sample
