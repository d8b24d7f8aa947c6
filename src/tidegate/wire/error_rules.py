"""What a vendor's error means to us, as tables: first the vendor's own rules, then what words mean anywhere, then the status.

Never by status alone: `insufficient_quota` is a full minute window at DashScope and an empty account at OpenAI, both with 429.

How to read a verdict. `retryable`: the same request at the same upstream may succeed, now or later. `scope`: how far away one must go
for another try to make sense: REQUEST nowhere (though another vendor's content filter may differ), KEY to another account, MODEL to
another model, REPLICA to another replica.
"""

from __future__ import annotations

import msgspec

from tidegate.domain.upstream import FailureScope
from tidegate.wire.vendor_errors import VendorError


class ErrorVerdict(msgspec.Struct, frozen=True):
    scope: FailureScope
    retryable: bool = False
    rate_limited: bool = False
    credentials: bool = False
    content_filter: bool = False


REQUEST_AT_FAULT = ErrorVerdict(FailureScope.REQUEST)
FILTERED = ErrorVerdict(FailureScope.REQUEST, content_filter=True)
CREDENTIALS = ErrorVerdict(FailureScope.KEY, credentials=True)
"""Our key, or the account behind it: unknown, not permitted, or out of money. An operator's matter."""
RATE_LIMITED = ErrorVerdict(FailureScope.KEY, retryable=True, rate_limited=True)
MODEL_MISSING = ErrorVerdict(FailureScope.MODEL)
BROKEN = ErrorVerdict(FailureScope.REPLICA, retryable=True)


class ErrorRule(msgspec.Struct, frozen=True):
    """A rule holds when each of its non-empty conditions does."""

    verdict: ErrorVerdict
    words: frozenset[str] = frozenset()
    """Any of these (lower case) is the error's code, type or `metadata.error_type`."""
    phrases: tuple[str, ...] = ()
    """Any of these (lower case) is part of the message."""
    statuses: frozenset[int] = frozenset()

    def holds(self, error: VendorError, status: int | None) -> bool:
        if self.words and self.words.isdisjoint(error.words):
            return False
        if self.statuses and status not in self.statuses:
            return False
        if not self.phrases:
            return True
        message = error.message.lower()
        return any(phrase in message for phrase in self.phrases)


def _words(names: str) -> frozenset[str]:
    return frozenset(names.split())


DASHSCOPE_RULES = (
    ErrorRule(
        CREDENTIALS,
        words=_words("insufficient_quota throttling.allocationquota"),
        phrases=("free allocated quota", "free quota", "free tier"),
    ),
    ErrorRule(
        CREDENTIALS, words=_words("arrearage prepaidbilloverdue postpaidbilloverdue commoditynotpurchased allocationquota.freetieronly")
    ),
    ErrorRule(
        RATE_LIMITED,
        words=_words(
            "insufficient_quota limit_requests limitrequests limit_burst_rate throttling throttling.user "
            "throttling.ratequota throttling.burstrate throttling.allocationquota"
        ),
    ),
    ErrorRule(CREDENTIALS, words=_words("access_denied accessdenied model.accessdenied invalidapikey")),
    ErrorRule(BROKEN, words=_words("requesttimeout internal_error internalerror modelservingerror modelunavailable")),
)

OPENROUTER_RULES = (
    ErrorRule(FILTERED, words=_words("moderation")),
    ErrorRule(CREDENTIALS, words=_words("authentication payment_required permission_denied")),
    ErrorRule(MODEL_MISSING, words=_words("not_found")),
    ErrorRule(BROKEN, words=_words("provider_overloaded provider_unavailable server timeout unmapped")),
)

LLAMACPP_RULES = (
    ErrorRule(BROKEN, phrases=("loading model",), statuses=frozenset({503})),
    ErrorRule(MODEL_MISSING, words=_words("not_supported_error")),
    # Its 500 for a picture or a sound without an encoder for it. Taken as a breakdown, it would be retried and held against the engine.
    ErrorRule(MODEL_MISSING, phrases=("image input is not supported", "audio input is not supported"), statuses=frozenset({500})),
)

GENERAL_RULES = (
    ErrorRule(
        FILTERED,
        words=_words(
            "content_filter content_policy_violation data_inspection_failed datainspectionfailed refusal responsibleaipolicyviolation"
        ),
    ),
    ErrorRule(CREDENTIALS, words=_words("invalid_api_key insufficient_quota billing_hard_limit_reached account_deactivated")),
    ErrorRule(RATE_LIMITED, words=_words("rate_limit_exceeded too_many_requests")),
    ErrorRule(MODEL_MISSING, words=_words("model_not_found model_not_supported")),
    ErrorRule(
        REQUEST_AT_FAULT,
        words=_words(
            "context_length_exceeded exceed_context_size_error max_tokens_exceeded token_limit_exceeded string_too_long "
            "string_above_max_length invalid_prompt unprocessable payload_too_large"
        ),
    ),
    # From here by status, where there is one.
    ErrorRule(CREDENTIALS, statuses=frozenset({401, 402, 403})),
    ErrorRule(MODEL_MISSING, statuses=frozenset({404})),
    ErrorRule(BROKEN, statuses=frozenset({408, 409, 425})),
    ErrorRule(RATE_LIMITED, statuses=frozenset({429})),
    ErrorRule(REQUEST_AT_FAULT, statuses=frozenset(range(400, 500))),
    ErrorRule(BROKEN, statuses=frozenset(range(500, 600))),
    # An error inside a 200 that names no number.
    ErrorRule(
        REQUEST_AT_FAULT, words=_words("invalid_request_error invalid_request invalid_parameter_error invalidparameter badrequesterror")
    ),
)


def judge(rules: tuple[ErrorRule, ...], error: VendorError, status: int | None) -> ErrorVerdict:
    """Give the verdict of the first rule that holds; without any, the upstream is taken as broken."""
    for rule in (*rules, *GENERAL_RULES):
        if rule.holds(error, status):
            return rule.verdict
    return BROKEN
