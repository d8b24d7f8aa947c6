"""What vendors' errors mean: by vendor, status, code and message, never by status alone."""

from __future__ import annotations

import json

import pytest

from tidegate.domain.upstream import FailureScope, UpstreamFailure
from tidegate.wire.dialects import DIALECTS, classify, classify_error_object
from tidegate.wire.vendor_errors import MAX_MESSAGE_CHARS, clean_message, read_vendor_error

REQUEST, KEY, MODEL, REPLICA = FailureScope.REQUEST, FailureScope.KEY, FailureScope.MODEL, FailureScope.REPLICA


def judged(dialect: str, status: int, error: object, **headers: str) -> UpstreamFailure:
    fields = tuple((name.replace("_", "-").encode(), value.encode()) for name, value in headers.items())
    return classify(DIALECTS[dialect], status, fields, json.dumps({"error": error}).encode())


def signs(failure: UpstreamFailure) -> str:
    marks = ("retryable", "rate_limited", "credentials", "content_filter")
    return " ".join([failure.scope.value, *(mark for mark in marks if getattr(failure, mark))])


@pytest.mark.parametrize(
    ("dialect", "status", "error", "expected"),
    [
        # DashScope and OpenAI use one word for two things.
        ("dashscope", 429, {"code": "insufficient_quota", "message": "You exceeded your current quota"}, "key retryable rate_limited"),
        ("dashscope", 429, {"code": "insufficient_quota", "message": "Free allocated quota exceeded."}, "key credentials"),
        ("openai", 429, {"code": "insufficient_quota", "message": "You exceeded your current quota"}, "key credentials"),
        ("dashscope", 429, {"code": "limit_burst_rate", "message": "rate rose too fast"}, "key retryable rate_limited"),
        ("dashscope", 429, {"code": "Throttling.AllocationQuota", "message": "x"}, "key retryable rate_limited"),
        ("dashscope", 400, {"code": "Arrearage", "message": "x"}, "key credentials"),
        ("dashscope", 429, {"code": "PrepaidBillOverdue", "message": "x"}, "key credentials"),
        ("dashscope", 400, {"code": "data_inspection_failed", "message": "x"}, "request content_filter"),
        ("dashscope", 400, {"code": "DataInspectionFailed", "message": "x"}, "request content_filter"),
        ("dashscope", 403, {"code": "Model.AccessDenied", "message": "x"}, "key credentials"),
        ("dashscope", 404, {"code": "model_not_found", "message": "x"}, "model"),
        ("dashscope", 500, {"code": "RequestTimeOut", "message": "x"}, "replica retryable"),
        ("dashscope", 503, {"code": "ModelServingError", "message": "x"}, "replica retryable"),
        # OpenRouter: numbers, and a stable word in the metadata.
        ("openrouter", 402, {"code": 402, "message": "credits"}, "key credentials"),
        (
            "openrouter",
            403,
            {"code": 403, "message": "x", "metadata": {"reasons": ["violence"], "flagged_input": "…"}},
            "request content_filter",
        ),
        ("openrouter", 403, {"code": 403, "message": "x", "metadata": {"error_type": "permission_denied"}}, "key credentials"),
        ("openrouter", 400, {"code": 400, "message": "x", "metadata": {"error_type": "context_length_exceeded"}}, "request"),
        (
            "openrouter",
            400,
            {"code": 400, "message": "x", "metadata": {"error_type": "content_policy_violation"}},
            "request content_filter",
        ),
        ("openrouter", 404, {"code": 404, "message": "x", "metadata": {"error_type": "not_found"}}, "model"),
        ("openrouter", 529, {"code": 529, "message": "overloaded"}, "replica retryable"),
        ("openrouter", 524, {"code": 524, "message": "edge timeout"}, "replica retryable"),
        ("openrouter", 429, {"code": 429, "message": "x"}, "key retryable rate_limited"),
        ("openrouter", 503, {"code": 503, "message": "x", "availability": {"retryable": False}}, "replica"),
        ("openrouter", 404, {"code": 404, "message": "x", "availability": {"retryable": True}}, "model retryable"),
        # llama.cpp: the code is the status, the type says more.
        ("llamacpp", 503, {"code": 503, "message": "Loading model", "type": "unavailable_error"}, "replica retryable"),
        ("llamacpp", 503, {"code": 503, "message": "no slot", "type": "unavailable_error"}, "replica retryable"),
        ("llamacpp", 501, {"code": 501, "message": "no embeddings", "type": "not_supported_error"}, "model"),
        ("llamacpp", 500, {"code": 500, "message": "image input is not supported - hint: mmproj", "type": "server_error"}, "model"),
        ("llamacpp", 400, {"code": 400, "message": "x", "type": "exceed_context_size_error"}, "request"),
        # vLLM.
        (
            "vllm",
            400,
            {"code": 400, "message": "This model's maximum context length is 4096", "type": "BadRequestError", "param": None},
            "request",
        ),
        ("vllm", 404, {"code": 404, "message": "The model `x` does not exist.", "type": "NotFoundError"}, "model"),
        ("vllm", 401, "Unauthorized", "key credentials"),
        # By status, where no word is known.
        ("openai", 401, {"code": "invalid_api_key", "message": "x", "type": "invalid_request_error"}, "key credentials"),
        ("openai", 408, {}, "replica retryable"),
        ("openai", 409, {}, "replica retryable"),
        ("openai", 413, {}, "request"),
        ("openai", 422, {}, "request"),
        ("openai", 429, {}, "key retryable rate_limited"),
        ("openai", 500, {}, "replica retryable"),
        ("openai", 599, {}, "replica retryable"),
    ],
)
def test_each_vendors_error_gets_its_own_verdict(dialect: str, status: int, error: object, expected: str) -> None:
    """Scope, whether to repeat, and whose matter it is."""
    failure = judged(dialect, status, error)

    assert expected == signs(failure)
    assert status == failure.status


@pytest.mark.parametrize(
    ("error", "status", "expected", "expected_status"),
    [
        ({"code": 502, "message": "Provider disconnected"}, 200, "replica retryable", 502),
        ({"code": "server_error", "message": "x"}, 200, "replica retryable", None),
        ({"code": "429", "message": "x"}, None, "key retryable rate_limited", 429),
        ({"type": "invalid_request_error", "message": "x"}, None, "request", None),
        ({"message": "x"}, 500, "replica retryable", 500),
        ({"code": 1234, "message": "x", "status": 404}, 200, "model", 404),
        ({"code": True, "message": "x"}, None, "replica retryable", None),
        ("boom", None, "replica retryable", None),
        (True, None, "replica retryable", None),
    ],
)
def test_an_error_inside_a_200_is_judged_by_what_it_says(
    error: object, status: int | None, expected: str, expected_status: int | None
) -> None:
    """The answer's own 200 counts for nothing; a number or word inside does."""
    failure = classify_error_object(DIALECTS["openrouter"], error, status)

    assert expected == signs(failure)
    assert expected_status == failure.status
    assert failure.message


def test_an_error_page_is_described_and_not_quoted() -> None:
    """A proxy's HTML helps nobody, and may hold what is private."""
    page = b"<html><body>502 Bad Gateway secret-internal-host</body></html>"
    failure = classify(DIALECTS["vllm"], 502, ((b"content-type", b"text/html; charset=utf-8"),), page)

    assert signs(failure) == "replica retryable"
    assert "text/html" in failure.message
    assert "secret-internal-host" not in failure.message
    assert "base URL" in failure.message
    assert "something" in classify(DIALECTS["vllm"], 502, (), b"[1]").message
    assert "empty body" in classify(DIALECTS["vllm"], 503, (), b" \n").message
    assert "not a JSON object" in classify(DIALECTS["vllm"], 500, (), b'{"error":{"message":"' + b"x" * 300_000 + b'"}}').message


def test_the_upstreams_wish_comes_from_header_or_body() -> None:
    """The header wins; OpenRouter's `availability.retry_after` stands in."""
    body = {"code": 429, "message": "x", "availability": {"retryable": True, "retry_after": 12}}

    assert judged("openrouter", 429, body, retry_after="3").retry_after_s == 3.0
    assert judged("openrouter", 429, body).retry_after_s == 12.0
    assert judged("openrouter", 429, {"availability": {"retry_after": -1}}).retry_after_s is None
    dated = ((b"retry-after", b"Sun, 06 Nov 1994 08:49:37 GMT"),)
    assert classify(DIALECTS["openai"], 429, dated, b"{}", now_epoch_s=784_111_767.0).retry_after_s == 10.0


def test_a_refused_usage_option_names_its_parameter() -> None:
    """Whoever asked with `stream_options` can see that this upstream refuses it, and ask no more."""
    assert judged("vllm", 400, {"message": "Unknown field: stream_options", "code": 400}).param == "stream_options"
    assert judged("vllm", 400, {"message": "bad", "param": "temperature"}).param == "temperature"


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (b'{"object":"error","message":"too long","type":"BadRequestError","code":400}', "too long"),
        (b'{"detail":"Not Found"}', "Not Found"),
        (b'{"detail":[{"loc":["body"],"msg":"field required"}]}', "field required"),
        (b'{"error":"Input validation error","error_type":"validation"}', "Input validation error"),
        (b'{"error":{"msg":"short"}}', "short"),
        (b'{"detail":[]}', "The upstream answered with status 400 and gave no reason."),
    ],
)
def test_every_shape_of_error_gives_its_message(body: bytes, expected: str) -> None:
    """OpenAI's, older vLLM's, FastAPI's and TGI's."""
    assert expected == classify(DIALECTS["vllm"], 400, (), body).message


@pytest.mark.parametrize(
    ("message", "hidden"),
    [
        ("Incorrect API key provided: sk-proj-abc123DEF. See the page.", "sk-proj-abc123DEF"),
        ("header was Bearer eyJhbGciOi.eyJzdWIi.c2ln", "eyJhbGciOi"),
        ("token eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.abc bad", "eyJzdWIiOiIxIn0"),
        ('{"api_key": "topsecret"}', "topsecret"),
        ("AccessKey LTAI5tAbcdefgh12345", "LTAI5tAbcdefgh12345"),
        ("authorization: hush", "hush"),
        ("x" * 490 + " sk-cutcutcut-in-the-middle-of-it", "sk-cut"),
        ("request headers: authorization: Bearer opaque-words", "opaque-words"),
        ("{'Authorization': 'Basic dXNlcjpwYXNz'}", "dXNlcjpwYXNz"),
    ],
)
def test_anything_like_a_credential_is_masked(message: str, hidden: str) -> None:
    """Vendors quote keys back; we do not, even where the bound cuts through one."""
    shown = clean_message(message)

    assert hidden not in shown
    assert "****" in shown or len(shown) == MAX_MESSAGE_CHARS


def test_a_message_is_one_bounded_line() -> None:
    """It goes into a log line and a JSON body."""
    shown = clean_message("first\r\nsecond\0\udc80" + "x" * 10_000)

    assert shown.startswith("first second x")
    assert len(shown) == MAX_MESSAGE_CHARS
    assert shown.endswith("…")


def test_codes_are_bounded_too() -> None:
    """A code is somebody else's text as well."""
    vendor = read_vendor_error({"code": "c" * 5000, "param": "p" * 5000})

    assert len(vendor.code or "") <= 100
    assert len(vendor.param or "") <= 100
    assert read_vendor_error({"code": 503}).code == "503"
    assert read_vendor_error({}).code is None


def test_every_dialect_is_listed_under_its_own_name() -> None:
    """The mapping is what configuration names."""
    assert {name: dialect.name for name, dialect in DIALECTS.items()} == {
        name: name for name in ("openrouter", "dashscope", "vllm", "llamacpp", "openai")
    }
    assert {value for _, value in DIALECTS["openrouter"].request_headers} >= {b"Tidegate"}
