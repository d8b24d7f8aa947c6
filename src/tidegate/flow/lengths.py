"""What the forecast of answers' lengths is asked before a call and told after it.

It learns from what an upstream reported of whole answers. An answer that a limit ended is told as that, by what had flowed: were those left
out, only short answers would be learned from where a limit is full, and ever fewer tokens be held.
"""

from __future__ import annotations

from tidegate.domain.limits import LimitSubject
from tidegate.domain.request import Operation, ParsedRequest
from tidegate.flow.call_flow import CallFlow
from tidegate.flow.facts import CallResult
from tidegate.policy.metering.forecast import Forecast


def expected_length(forecast: Forecast | None, subject: LimitSubject, request: ParsedRequest, cap: int | None, *, now: float) -> int | None:
    """Give the output tokens to expect of each choice; None without a forecast."""
    if forecast is None:
        return None
    bound = request.prompt_tokens_bound
    return forecast.expect(subject.tenant, subject.route, subject.model, prompt_tokens=bound, cap=cap, now=now)


def learn_length(
    forecast: Forecast, subject: LimitSubject, request: ParsedRequest, call: CallFlow, result: CallResult, *, now: float
) -> None:
    cut = result.denied is not None and result.committed
    if request.operation is Operation.EMBEDDING or result.failure is not None or (result.usage is None and not cut):
        return
    tokens = call.progress.tokens if result.usage is None else result.usage.completion_tokens
    each = -(-tokens // request.choices)
    bound = request.prompt_tokens_bound
    forecast.observe(subject.tenant, subject.route, subject.model, prompt_tokens=bound, completion_tokens=each, cut=cut, now=now)
