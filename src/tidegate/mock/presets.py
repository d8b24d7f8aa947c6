"""Ready-made scripts: what real providers answer, by name. Each is given as fields over the script that the call would have got."""

from __future__ import annotations

from typing import Final


def _error(message: str, kind: str, code: str | int | None) -> dict[str, object]:
    return {"message": message, "type": kind, "param": None, "code": code}


PRESETS: Final[dict[str, dict[str, object]]] = {
    "ok": {"fault": None, "status": 200, "retry_after": None, "body": None},
    "content_filter": {"pieces": ["I", " am", " afraid"], "finish_reason": "content_filter"},
    "data_inspection": {
        "status": 400,
        "error": _error(
            "Output data may contain inappropriate content. For details, see: error-code#inappropriate-content",
            "data_inspection_failed",
            "data_inspection_failed",
        ),
    },
    "rate_limited": {"retry_after": {"dialect": "seconds", "after_s": 1}},
    "burst_rate": {
        "status": 429,
        "error": _error(
            "Request rate increased too quickly. To ensure system stability, please adjust your client logic to scale requests "
            "more smoothly over time.",
            "limit_burst_rate",
            "limit_burst_rate",
        ),
    },
    "insufficient_quota": {
        "status": 429,
        "error": _error("You exceeded your current quota of tokens per minute.", "insufficient_quota", "insufficient_quota"),
    },
    "out_of_credit": {
        "status": 429,
        "error": _error(
            "You exceeded your current quota, please check your plan and billing details.", "insufficient_quota", "insufficient_quota"
        ),
    },
    "arrearage": {
        "status": 400,
        "error": _error("Access denied, please make sure your account is in good standing.", "Arrearage", "Arrearage"),
    },
    "wrong_key": {"status": 401, "error": _error("Incorrect API key provided.", "invalid_request_error", "invalid_api_key")},
    "context_length": {
        "status": 400,
        "error": _error(
            "This model's maximum context length is 4096 tokens. However, your messages resulted in 5000 tokens. Please reduce the "
            "length of the messages.",
            "invalid_request_error",
            "context_length_exceeded",
        ),
    },
    "loading": {"status": 503, "error": {"code": 503, "message": "Loading model", "type": "unavailable_error"}},
    "overloaded": {
        "status": 529,
        "error": {"code": 529, "message": "Provider is overloaded.", "metadata": {"error_type": "provider_overloaded"}},
    },
    "error_in_200": {
        "fault": {"kind": "error_event", "after": 0},
        "error": {"code": 502, "message": "Provider returned error", "metadata": {"error_type": "provider_unavailable"}},
    },
    "html_502": {
        "status": 502,
        "content_type": "text/html",
        "body": "<html>\r\n<head><title>502 Bad Gateway</title></head>\r\n<body><h1>502 Bad Gateway</h1></body>\r\n</html>\r\n",
    },
}
