"""What a request leaves behind: what it used, by the best evidence there is, and its one record."""

from __future__ import annotations

import msgspec

from tidegate.domain.outcome import Outcome
from tidegate.domain.principal import Principal
from tidegate.domain.record import RequestRecord
from tidegate.domain.request import ParsedRequest
from tidegate.domain.usage import Evidence, Usage
from tidegate.errors import TidegateError
from tidegate.flow.call_flow import CallFlow
from tidegate.flow.charges import Charges
from tidegate.flow.degrade import is_low_confidence
from tidegate.flow.facts import CallResult, RequestFacts
from tidegate.flow.outcomes import cause_of
from tidegate.flow.refusals import internal_fault
from tidegate.policy.metering.estimate import guess_tokens

_OK = 200


class Use(msgspec.Struct, frozen=True):
    """What the last attempt used, and how well that is known."""

    usage: Usage = Usage()
    evidence: Evidence = Evidence.ESTIMATED


class Asked(msgspec.Struct, frozen=True):
    """How a request was dealt with before its call."""

    route: str
    """The pattern that matched; empty when none did."""
    rule: str
    """The routing rule that chose the target."""
    reserved_tokens: int
    duration_s: float
    received_at: float
    """On the flow's clock."""
    unbilled: bool = False


class Ended(msgspec.Struct, frozen=True):
    """How it ended. `prepared` is the label of a prepared answer, if one was given."""

    outcome: Outcome
    status: int
    error: TidegateError | None
    result: CallResult | None
    prepared: str | None


def used_by(
    call: CallFlow | None, request: ParsedRequest | None, result: CallResult | None, *, prompt_tokens: int, counted: Evidence
) -> Use:
    """Give what a call used. `prompt_tokens` were counted with the evidence `counted`; 0: they were not.

    A call may end between two attempts: then it is what the last of them is known to have used.
    """
    if call is None or request is None or not call.attempts:
        return Use()
    if result is not None and result.usage is not None:
        return Use(result.usage, Evidence.REPORTED)
    before = call.attempts[-1].usage
    if before.total_tokens:
        return Use(before, Evidence.REPORTED)
    if result is None:
        return Use()
    if call.first_output_at is None and (result.failure is not None or result.denied is not None):
        return Use()  # the upstream produced nothing: nothing is charged
    prompt = prompt_tokens or guess_tokens(len(request.body))
    completion = call.progress.tokens or guess_tokens(result.output_bytes)
    return Use(Usage(prompt_tokens=prompt, completion_tokens=completion), counted)


def record_of(
    facts: RequestFacts,
    *,
    principal: Principal | None,
    request: ParsedRequest | None,
    call: CallFlow | None,
    asked: Asked,
    ended: Ended,
    use: Use,
    charges: Charges,
) -> RequestRecord:
    """Join everything that is known of a request that is over."""
    choice = call.choice if call is not None else None
    degraded = ended.prepared or (call.degraded if call is not None and ended.status == _OK else None)
    first_output_at = call.first_output_at if call is not None else None
    return RequestRecord(  # by place, in the order of its fields: given by name, each of its names is compared with the others
        facts.request_id,
        facts.started_at,
        facts.operation,
        ended.outcome,
        ended.status,
        asked.duration_s,
        principal.key_id if principal is not None else "",
        principal.tenant if principal is not None else "",
        principal.user if principal is not None else "",
        principal.tier if principal is not None else "",
        request.model if request is not None else facts.path_argument,
        asked.route,
        choice.replica.upstream if choice is not None else "",
        choice.model if choice is not None else "",  # upstream_model
        request.stream if request is not None else False,
        ended.error.code if ended.error is not None else None,
        cause_of(ended.error, ended.result, request),
        first_output_at - asked.received_at if first_output_at is not None else None,  # ttft_s
        _upstream_s(call),
        use.usage,
        use.evidence,
        asked.reserved_tokens,
        charges.amount_micro,
        charges.version,
        _traffic_bytes(call, request, ended.result),
        request.prompt_tokens_bound if request is not None else 0,
        ended.result.finish_reason if ended.result is not None else None,
        call.progress.chunks if call is not None else 0,
        degraded,
        asked.rule,
        facts.feature,
        facts.color,
        asked.unbilled,
        "low" if is_low_confidence(degraded) else "",  # confidence
        charges.attempts,
        facts.trace_id,
        facts.client_retry,
        False,  # resumed
        facts.span_id,
        facts.parent_span_id,
        facts.sampled,
        facts.business_context,
    )


def bare_record(facts: RequestFacts, principal: Principal | None, request: ParsedRequest | None, *, duration_s: float) -> RequestRecord:
    """Say what is certain of a request whose end has failed: who asked for what, and that the fault is ours."""
    fault = internal_fault()
    return RequestRecord(
        request_id=facts.request_id,
        started_at=facts.started_at,
        operation=facts.operation,
        outcome=Outcome.FAILED_INTERNAL,
        status=fault.status,
        duration_s=duration_s,
        key_id=principal.key_id if principal is not None else "",
        tenant=principal.tenant if principal is not None else "",
        user=principal.user if principal is not None else "",
        tier=principal.tier if principal is not None else "",
        model=request.model if request is not None else facts.path_argument,
        error_code=fault.code,
        cause=fault.message,
        feature=facts.feature,
        color=facts.color,
        trace_id=facts.trace_id,
        client_retry=facts.client_retry,
        span_id=facts.span_id,
        parent_span_id=facts.parent_span_id,
        sampled=facts.sampled,
        business_context=facts.business_context,
    )


def _upstream_s(call: CallFlow | None) -> float:
    running_s = 0.0
    if call is not None:
        for attempt in call.attempts:
            running_s += attempt.duration_s
    return running_s


def _traffic_bytes(call: CallFlow | None, request: ParsedRequest | None, result: CallResult | None) -> int:
    if call is None or request is None:
        return 0
    answer_bytes = 0 if result is None else result.output_bytes
    return len(request.body) + (answer_bytes or call.progress.text_bytes)
