"""The words of a refusal: what happened, to what, and what to do next."""

from __future__ import annotations

import math
from collections.abc import Sequence
from difflib import get_close_matches
from typing import assert_never

from tidegate.domain.upstream import UpstreamFailure
from tidegate.errors import (
    ConcurrencyLimited,
    Draining,
    Forbidden,
    InternalError,
    LimitUnreachable,
    ModelNotFound,
    NoReplica,
    RateLimited,
    TidegateError,
    UpstreamRateLimited,
)
from tidegate.ports import Denied, LimitName

_SHOWN_MODELS = 8
_SHOWN_NAME = 100  # a client's model name is echoed up to here


def limit_refusal(denied: Denied, *, capped: bool = True) -> TidegateError:
    """Say which limit refused; `capped` False for a request whose answer has no length to lower."""
    match denied.limit:
        case LimitName.CONCURRENCY:
            message = f"This key already has {denied.ceiling} requests running, its limit. Wait for one to end, or ask for a higher limit."
            return ConcurrencyLimited(message, retry_after_s=denied.retry_after_s)
        case LimitName.REQUESTS:
            message = f"This key has used its {denied.ceiling} requests per minute. Try again in {_seconds(denied.retry_after_s)} s."
            return RateLimited(message, retry_after_s=denied.retry_after_s)
        case LimitName.TOKENS:
            asked = f"The request needs {denied.requested} tokens and the key's limit is {denied.ceiling} tokens per minute"
            shorter = "lower max_tokens or shorten the prompt" if capped else "send less text at once"
            if denied.retry_after_s is None:
                message = f"{asked}: it can never fit. Please {shorter}, or ask for a higher limit."
                return LimitUnreachable(message, param="max_tokens" if capped else None)
            wait = _seconds(denied.retry_after_s)
            message = f"{asked}, of which {denied.remaining} are left now. Try again in {wait} s, or {shorter}."
            return RateLimited(message, retry_after_s=denied.retry_after_s)
        case _:
            assert_never(denied.limit)


def _seconds(wait_s: float | None) -> int:
    return math.ceil(wait_s or 0.0)


def model_unknown(model: str, listed: Sequence[str]) -> ModelNotFound:
    shown = model[:_SHOWN_NAME]
    near = get_close_matches(shown, listed, n=1)
    if near:
        hint = f"Did you mean '{near[0]}'?"
    elif listed:
        more = "" if len(listed) <= _SHOWN_MODELS else " and more (GET /v1/models)"
        hint = f"Available: {', '.join(listed[:_SHOWN_MODELS])}{more}."
    else:
        hint = "No model is configured: add an upstream or a route to tidegate.yaml."
    return ModelNotFound(f"No route serves the model '{shown}'. {hint}", param="model")


def model_forbidden(model: str) -> Forbidden:
    shown = model[:_SHOWN_NAME]
    return Forbidden(
        f"This key may not use the model '{shown}'. GET /v1/models lists those it may; or ask for a key that can.", param="model"
    )


def no_replica(model: str, failure: UpstreamFailure) -> TidegateError:
    """Nothing of the route is available: because its upstreams asked for a pause (a 429, so that SDKs wait), or for any other reason."""
    shown = model[:_SHOWN_NAME]
    wait_s = failure.retry_after_s
    if failure.rate_limited and wait_s is not None:
        message = f"Every upstream that serves '{shown}' has reached a rate limit of its own. Try again in {_seconds(wait_s)} s."
        return UpstreamRateLimited(message, retry_after_s=wait_s)
    if wait_s is not None:
        message = f"Every upstream that serves '{shown}' failed a moment ago and is left alone. Try again in {_seconds(wait_s)} s."
        return NoReplica(message, retry_after_s=wait_s)
    return NoReplica(
        f"Nothing can serve '{shown}' at this moment: every upstream of its route is starting or down. "
        "Try again shortly, or look at /readyz.",
        retry_after_s=1.0,
    )


def draining() -> Draining:
    return Draining("This gateway process is shutting down. Send the request again: another process will take it.", retry_after_s=1.0)


def internal_fault() -> InternalError:
    return InternalError("A fault of the gateway ended this request. The gateway's log has the details under the same x-request-id.")
