"""How a request ended: exactly one outcome each, and the outcome is the metric label."""

from __future__ import annotations

from enum import StrEnum
from typing import Final


class Outcome(StrEnum):
    OK = "ok"
    TRUNCATED = "truncated"
    """The answer was cut at a length limit, by the model or, where a token limit ran out, by the gateway (`finish_reason: length`)."""
    CONTENT_FILTER = "content_filter"
    """The provider withheld the answer: a business signal, not an error."""
    MODEL_ERROR = "model_error"
    """The model server answered 200 and said in the body that generation failed."""
    CLIENT_CANCELLED = "client_cancelled"
    SERVED_FROM_CACHE = "served_from_cache"
    DEGRADED = "degraded"
    """No model could answer: the client got a prepared answer, marked as one."""
    REJECTED_INVALID = "rejected_invalid"
    REJECTED_UNAUTHENTICATED = "rejected_unauthenticated"
    REJECTED_FORBIDDEN = "rejected_forbidden"
    REJECTED_OVERLOAD = "rejected_overload"
    REJECTED_RATE_LIMIT = "rejected_rate_limit"
    REJECTED_BUDGET = "rejected_budget"
    REJECTED_NO_REPLICA = "rejected_no_replica"
    REJECTED_UPSTREAM = "rejected_upstream"
    """The upstream judged the request itself to be at fault (4xx)."""
    FAILED_UPSTREAM = "failed_upstream"
    FAILED_TIMEOUT = "failed_timeout"
    FAILED_MID_STREAM = "failed_mid_stream"
    FAILED_INTERNAL = "failed_internal"


SERVED: Final = frozenset(
    {Outcome.OK, Outcome.TRUNCATED, Outcome.CONTENT_FILTER, Outcome.CLIENT_CANCELLED, Outcome.SERVED_FROM_CACHE, Outcome.DEGRADED}
)
"""Neither refused nor failed: how long such a request took says how fast answers are."""


class FinishReason(StrEnum):
    """OpenAI's `finish_reason`; OpenRouter's `error` is in the list because it arrives on the wire."""

    STOP = "stop"
    LENGTH = "length"
    CONTENT_FILTER = "content_filter"
    TOOL_CALLS = "tool_calls"
    FUNCTION_CALL = "function_call"
    ERROR = "error"
