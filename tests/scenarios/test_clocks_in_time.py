"""A clock that is shorter than the alarm that was set for another: both drivers end the attempt when it runs out, not later."""

from __future__ import annotations

import msgspec
import pytest
from tests.scenarios.live_driver import LiveRun
from tests.scenarios.stories import MAIN, STREAM, STREAMED, world
from tests.scenarios.test_scenarios import comparable

from tidegate.domain.upstream import Timeouts
from tidegate.flow.actions import Finish
from tidegate.simulator.driver import simulate
from tidegate.simulator.scenario import Connect, Output, Respond, Script, ScriptedRequest

HEAD: Script = (Connect(0.1), Respond(0.1))
FLOWS: Script = (*HEAD, Output(0.1))


@pytest.mark.parametrize(
    ("clocks", "script", "result", "after_s"),
    [
        (Timeouts(stall_s=1.0), FLOWS, "timeout_stall", 1.3),
        (Timeouts(stall_s=2.0), (*HEAD, Output(2.5)), "timeout_stall", 4.7),
        (Timeouts(stall_s=2.0), (*FLOWS, Output(0.5)), "timeout_stall", 2.8),
        (Timeouts(first_token_s=2.0), HEAD, "timeout_first_token", 2.0),
        (Timeouts(first_token_s=4.0), HEAD, "timeout_first_token", 4.0),
        (Timeouts(first_token_s=4.0, stall_s=1.0), HEAD, "timeout_first_token", 4.0),
        (Timeouts(first_byte_s=2.0), (Connect(0.1),), "timeout_first_byte", 2.0),
        (Timeouts(first_byte_s=4.0), (Connect(3.5),), "timeout_first_byte", 4.0),
    ],
)
def test_a_clock_runs_out_in_time(clocks: Timeouts, script: Script, result: str, after_s: float) -> None:
    """Whatever connection, head and first output did to the alarm before."""
    replica = msgspec.structs.replace(MAIN, timeouts=clocks)
    scenario = world(ScriptedRequest(0.0, STREAM, calls=(script, STREAMED)), replicas=(replica,))
    trace = simulate(scenario)
    assert comparable(trace) == comparable(LiveRun(scenario).run())
    (record,) = [entry.action.record for entry in trace if isinstance(entry.action, Finish)]
    first = record.attempts[0]
    assert (result, after_s) == (first.result, round(first.duration_s, 6))
