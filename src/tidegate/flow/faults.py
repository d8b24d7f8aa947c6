"""Failures of an attempt that no upstream put into words (a broken connection, a cut stream, a clock that ran out, nobody to ask), and
what may be kept of the words of those that one did.
"""

from __future__ import annotations

from tidegate.domain.request import ParsedRequest
from tidegate.domain.units import ModelName, ReplicaId
from tidegate.domain.upstream import Clock, FailureScope, Replica, Route, UpstreamFailure
from tidegate.policy.routing.fleet import Fleet
from tidegate.ports import CallFailure, CallFailureKind
from tidegate.wire.repeated_text import without_request_text

_UNCONNECTED = frozenset({CallFailureKind.DNS, CallFailureKind.CONNECT, CallFailureKind.TLS, CallFailureKind.PROXY})
_OUR_BOUNDS = frozenset({CallFailureKind.POOL_FULL, CallFailureKind.TOO_LARGE})


def from_call_failure(failure: CallFailure) -> UpstreamFailure:
    """The connection could not be had, or died. An answer that is too large would be so again."""
    return UpstreamFailure(
        FailureScope.GATEWAY if failure.kind in _OUR_BOUNDS else FailureScope.REPLICA,
        retryable=failure.kind is not CallFailureKind.TOO_LARGE,
        message=failure.message,
        connect=failure.kind in _UNCONNECTED,
    )


def stream_cut() -> UpstreamFailure:
    return _fault("the upstream's stream ended before the answer was finished")


def stream_never_began(held_bytes: int) -> UpstreamFailure:
    return _fault(f"the upstream sent {held_bytes} bytes of a stream without any output")


def not_a_stream() -> UpstreamFailure:
    return _fault("the upstream answered a stream request without a stream")


def answer_too_large(limit_bytes: int) -> UpstreamFailure:
    message = f"the upstream's answer is larger than {limit_bytes} bytes"
    return UpstreamFailure(FailureScope.GATEWAY, retryable=False, message=message)


def _fault(message: str) -> UpstreamFailure:
    return UpstreamFailure(FailureScope.REPLICA, retryable=True, message=message)


def timed_out(replica: Replica, clock: Clock) -> UpstreamFailure:
    message = f"upstream {replica.upstream} ran out its {clock.replace('_', ' ')} clock ({replica.timeouts.of(clock):g} s)"
    return UpstreamFailure(FailureScope.REPLICA, retryable=True, message=message, clock=clock)


def replica_lost(replica: ReplicaId, reason: str) -> UpstreamFailure:
    return _fault(f"health checks found {replica} dead: {reason}")


def unavailable(fleet: Fleet, route: Route, model: ModelName, *, now: float) -> UpstreamFailure:
    """No replica of the route may be chosen; the words are for operators, one reason for each replica."""
    reasons: list[str] = []
    for target in fleet.explain(route, model, now=now):
        if target.replicas:
            reasons += [f"{each.replica}: {each.why}" for each in target.replicas]
        else:
            reasons.append(f"{target.upstream}: {target.why}")
    return UpstreamFailure(
        FailureScope.MODEL,
        retryable=True,
        message=f"no replica is available ({'; '.join(reasons)})",
        retry_after_s=fleet.wait_s(route, now=now),
        rate_limited=fleet.is_rate_limited(route, now=now),
    )


def tells_of_the_prompt(failure: UpstreamFailure) -> bool:
    """Tell whether the kind of prompt may be to blame: not for a missing connection, a limit, or a verdict on the request or our key."""
    spoken = failure.scope in (FailureScope.REPLICA, FailureScope.MODEL) and not failure.rate_limited and not failure.content_filter
    return spoken and not failure.connect and failure.clock is not Clock.CONNECT


def words_for_operators(failure: UpstreamFailure, request: ParsedRequest) -> str:
    """Give a failure's message as it may be kept: an upstream's own without what it repeats of the request. Clients get it whole."""
    if failure.status is None and not failure.in_band:
        return failure.message
    return without_request_text(failure.message, request.body, model=request.model)
