"""Failures of an attempt that no upstream put into words: a broken connection, a cut stream, an answer of the wrong form."""

from __future__ import annotations

from tidegate.domain.upstream import FailureScope, UpstreamFailure
from tidegate.ports import CallFailure, CallFailureKind


def from_call_failure(failure: CallFailure) -> UpstreamFailure:
    """The connection could not be had, or died. An answer that is too large would be so again."""
    return _fault(failure.message, retryable=failure.kind is not CallFailureKind.TOO_LARGE)


def stream_cut() -> UpstreamFailure:
    return _fault("the upstream's stream ended before the answer was finished")


def stream_never_began(held_bytes: int) -> UpstreamFailure:
    return _fault(f"the upstream sent {held_bytes} bytes of a stream without any output")


def not_a_stream() -> UpstreamFailure:
    return _fault("the upstream answered a stream request without a stream")


def answer_too_large(limit_bytes: int) -> UpstreamFailure:
    return _fault(f"the upstream's answer is larger than {limit_bytes} bytes", retryable=False)


def _fault(message: str, *, retryable: bool = True) -> UpstreamFailure:
    return UpstreamFailure(FailureScope.REPLICA, retryable=retryable, message=message)
