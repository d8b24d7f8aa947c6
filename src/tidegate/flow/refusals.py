"""The words of a refusal: what happened, to what, and what to do next."""

from __future__ import annotations

import math
from collections.abc import Sequence
from difflib import get_close_matches
from typing import assert_never

from tidegate.domain.limits import CounterSpec, Meter, Period, Resource
from tidegate.domain.money import money_text
from tidegate.domain.upstream import UpstreamFailure
from tidegate.errors import (
    BudgetExceeded,
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
from tidegate.ports import Denied

_LESS = {
    Resource.TOKENS: "lower max_tokens or shorten the prompt",
    Resource.INPUT_TOKENS: "shorten the prompt",
    Resource.OUTPUT_TOKENS: "lower max_tokens",
}
_PERIODS = {
    Period.HOUR: (3600, "at the next full hour"),
    Period.DAY: (86_400, "at midnight UTC"),
    Period.MONTH: (2_678_400, "on the first of the next month (UTC)"),
}
_MOMENT_S = 1.0  # as long as a limit's store is waited for
_LONGEST_RETRY_S = 3600.0  # a client that waits for longer than this has been forgotten by whoever started it
_SHOWN_MODELS = 8
_SHOWN_NAME = 100  # a client's model name is echoed up to here


def limit_refusal(denied: Denied, *, capped: bool = True) -> TidegateError:
    """Say which limit refused, and whose it is; `capped` False for a request whose answer has no length to lower."""
    limit, wait_s = f'the limit "{denied.rule}" of {denied.whose}', denied.retry_after_s
    match denied.resource:
        case Resource.CONCURRENCY:
            running = "1 request runs" if denied.ceiling == 1 else f"{denied.ceiling} requests run"
            message = f"{running} already, as many as {limit} allows. Wait for one to end, or ask for a higher limit."
            return ConcurrencyLimited(message, retry_after_s=wait_s)
        case Resource.REQUESTS:
            used_up = "1 request" if denied.ceiling == 1 else f"{denied.ceiling} requests"
            verb = "is" if denied.ceiling == 1 else "are"
            message = f"The {used_up} {_window(denied.spec)} of {limit} {verb} used up. {_again(wait_s)}"
            return RateLimited(message, retry_after_s=wait_s)
        case Resource.COST:
            return _budget_refusal(denied)
        case Resource.TOKENS | Resource.INPUT_TOKENS | Resource.OUTPUT_TOKENS:
            unit = denied.resource.replace("_", " ")
            asked = f"The request needs {denied.requested} {unit} and {limit} is {denied.ceiling} {unit} {_window(denied.spec)}"
            less = _LESS[denied.resource] if capped else "send less text at once"
            if wait_s is None:
                message = f"{asked}: it can never fit. Please {less}, or ask for a higher limit."
                return LimitUnreachable(message, param="max_tokens" if capped and denied.resource is not Resource.INPUT_TOKENS else None)
            return RateLimited(f"{asked}, of which {denied.remaining} are left now. {_again(wait_s, less)}", retry_after_s=wait_s)
        case _:
            assert_never(denied.resource)


def _budget_refusal(denied: Denied) -> TidegateError:
    """A budget is not waited for: say when its period ends, and let SDKs wait only where that is within the hour.

    Unless it is a moment: then the store that keeps the budget did not answer, and nobody knows that it is spent.
    """
    if denied.retry_after_s is not None and denied.retry_after_s <= _MOMENT_S:
        message = f'What is left of the budget "{denied.rule}" of {denied.whose} is not known at this moment. Try again in 1 s.'
        return RateLimited(message, retry_after_s=_MOMENT_S)
    of_which = f"{_amount(denied.remaining)} of the {_amount(denied.ceiling)} {_window(denied.spec)}"
    asked = f'The request may cost {_amount(denied.requested)} and the budget "{denied.rule}" of {denied.whose} has {of_which} left'
    wait_s = denied.retry_after_s
    if wait_s is None:
        return BudgetExceeded(f"{asked}: it can never fit. Please lower max_tokens or shorten the prompt, or ask for a higher budget.")
    length_s, begins = _PERIODS[denied.spec.period]
    when = f"{begins}, in {_duration(wait_s)}" if wait_s <= length_s else f"in {_duration(wait_s)}, for what was spent beyond it"
    message = f"{asked}. It begins anew {when}; or ask for a higher budget."
    return BudgetExceeded(message, retry_after_s=wait_s if wait_s <= _LONGEST_RETRY_S else None)


def _window(spec: CounterSpec) -> str:
    match spec.meter:
        case Meter.SLIDING:
            return f"in any {spec.span_s:g} s"
        case Meter.GCRA:
            return f"per {spec.span_s:g} s ({max(1, spec.burst)} at once)"
        case Meter.CALENDAR:
            return f"per {spec.period}"
        case Meter.PLACES:
            return "at once"
        case _:
            assert_never(spec.meter)


def _again(wait_s: float | None, otherwise: str = "ask for a higher limit") -> str:
    return f"Try again in {_duration(wait_s or 0.0)}, or {otherwise}."


def _duration(seconds: float) -> str:
    """Write a wait in the words of people, rounded up."""
    whole = math.ceil(seconds)
    for unit, length, least in (("d", 86_400, 2), ("h", 3600, 2), ("min", 60, 2)):
        if whole >= least * length:
            return f"{-(-whole // length)} {unit}"
    return f"{whole} s"


def _amount(micro: int) -> str:
    return money_text(micro, grouped=True)


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
