"""The scripted upstream: a model server without a model that takes its time and misbehaves exactly as told.

Shipped as `tidegate mock` and, for tests in Python, through `tidegate.testing`. Reading order: `script` (what can be asked for),
`chooser` (which script a call gets), `answers` and `staging` (script to bytes, pauses and ending), `connection` (plays them), `engine`
(how load slows it), `server`. It shares no code with `tidegate.http` and knows nothing of the gateway, which knows nothing of it.
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
from tidegate.mock.script_file import describe, read_settings
from tidegate.mock.server import ScriptedUpstream
from tidegate.mock.settings import ColdStart, MockSettings, Window
from tidegate.mock.threaded import ThreadedUpstream

__all__ = [
    "ColdStart",
    "Distribution",
    "Endpoint",
    "EngineSettings",
    "Fault",
    "FaultKind",
    "MockSettings",
    "ReceivedRequest",
    "RetryAfter",
    "RetryDialect",
    "Script",
    "ScriptedUpstream",
    "Split",
    "ThreadedUpstream",
    "ToolCall",
    "UsagePlace",
    "Window",
    "cut_after",
    "describe",
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
    "read_settings",
    "refuse_for",
    "reset_after",
    "reset_before_headers",
    "split_at",
    "split_every",
    "stall_after",
    "uniform",
    "words",
]
