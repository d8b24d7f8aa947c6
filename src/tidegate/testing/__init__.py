"""The test kit that ships with Tidegate: clocks that do as they are told, a model server that follows a script, a gateway to start.

Our own tests use exactly this; it is a public interface. Nothing here is imported by the gateway itself.
"""

from tidegate.mock.constructors import (
    cut_after,
    drip_headers,
    end_after,
    error_event_after,
    finish_error_after,
    hang_before_first_token,
    hang_before_headers,
    huge_event_at,
    malformed_event_at,
    missing_done,
    rate_limited,
    refuse_for,
    reset_after,
    reset_before_headers,
    split_at,
    split_every,
    stall_after,
    words,
)
from tidegate.mock.distribution import Distribution, exponential, lognormal, normal, uniform
from tidegate.mock.endpoint import Endpoint
from tidegate.mock.engine import EngineSettings
from tidegate.mock.received import ReceivedRequest
from tidegate.mock.script import Fault, FaultKind, RetryAfter, RetryDialect, Script, Split, ToolCall, UsagePlace
from tidegate.mock.server import ScriptedUpstream
from tidegate.mock.settings import ColdStart, MockSettings, Window
from tidegate.mock.threaded import ThreadedUpstream
from tidegate.testing.gateway_process import GatewayProcess
from tidegate.testing.manual_clock import ManualClock
from tidegate.testing.postgres_server import PostgresServer
from tidegate.testing.redis_server import RedisServer
from tidegate.testing.virtual_time import VirtualDeadlockError, VirtualTimeLoop, run_virtual

__all__ = [
    "ColdStart",
    "Distribution",
    "Endpoint",
    "EngineSettings",
    "Fault",
    "FaultKind",
    "GatewayProcess",
    "ManualClock",
    "MockSettings",
    "PostgresServer",
    "ReceivedRequest",
    "RedisServer",
    "RetryAfter",
    "RetryDialect",
    "Script",
    "ScriptedUpstream",
    "Split",
    "ThreadedUpstream",
    "ToolCall",
    "UsagePlace",
    "VirtualDeadlockError",
    "VirtualTimeLoop",
    "Window",
    "cut_after",
    "drip_headers",
    "end_after",
    "error_event_after",
    "exponential",
    "finish_error_after",
    "hang_before_first_token",
    "hang_before_headers",
    "huge_event_at",
    "lognormal",
    "malformed_event_at",
    "missing_done",
    "normal",
    "rate_limited",
    "refuse_for",
    "reset_after",
    "reset_before_headers",
    "run_virtual",
    "split_at",
    "split_every",
    "stall_after",
    "uniform",
    "words",
]
