"""The test kit that ships with Tidegate: clocks that do as they are told, a model server that follows a script, a gateway to start.

Our own tests use exactly this; it is a public interface. Nothing here is imported by the gateway itself.
"""

from tidegate.testing.endpoint import Endpoint
from tidegate.testing.gateway_process import GatewayProcess
from tidegate.testing.manual_clock import ManualClock
from tidegate.testing.script import (
    Fault,
    FaultKind,
    Script,
    Split,
    ToolCall,
    UsagePlace,
    cut_after,
    end_after,
    error_event_after,
    hang_before_first_token,
    hang_before_headers,
    malformed_event_at,
    missing_done,
    reset_after,
    reset_before_headers,
    split_at,
    split_every,
    stall_after,
    words,
)
from tidegate.testing.scripted_upstream import ScriptedUpstream
from tidegate.testing.threaded_upstream import ThreadedUpstream
from tidegate.testing.upstream_connection import ReceivedRequest
from tidegate.testing.virtual_time import VirtualDeadlockError, VirtualTimeLoop, run_virtual

__all__ = [
    "Endpoint",
    "Fault",
    "FaultKind",
    "GatewayProcess",
    "ManualClock",
    "ReceivedRequest",
    "Script",
    "ScriptedUpstream",
    "Split",
    "ThreadedUpstream",
    "ToolCall",
    "UsagePlace",
    "VirtualDeadlockError",
    "VirtualTimeLoop",
    "cut_after",
    "end_after",
    "error_event_after",
    "hang_before_first_token",
    "hang_before_headers",
    "malformed_event_at",
    "missing_done",
    "reset_after",
    "reset_before_headers",
    "run_virtual",
    "split_at",
    "split_every",
    "stall_after",
    "words",
]
