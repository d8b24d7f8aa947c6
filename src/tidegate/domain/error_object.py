"""The one way an error is written for a client: OpenAI's error object, on every port and from every layer.

Shape: `{"error": {"message", "type", "param", "code"}}`; all four keys are always there. Only public attributes are
written, never a cause or traceback. A path of Anthropic's API answers in that API's shape instead, for its SDKs:
`{"type": "error", "error": {"type", "message"}}`.
"""

from __future__ import annotations

from http import HTTPStatus

import msgspec

from tidegate.domain.request import Operation
from tidegate.errors import TidegateError, UpstreamRejected

ANTHROPIC_PATHS = "/v1/messages"
"""What the paths of Anthropic's API begin with."""
_ANTHROPIC_TYPES: dict[int, str] = {
    HTTPStatus.UNAUTHORIZED: "authentication_error",
    HTTPStatus.FORBIDDEN: "permission_error",
    HTTPStatus.NOT_FOUND: "not_found_error",
    HTTPStatus.REQUEST_ENTITY_TOO_LARGE: "request_too_large",
    HTTPStatus.TOO_MANY_REQUESTS: "rate_limit_error",
    HTTPStatus.SERVICE_UNAVAILABLE: "overloaded_error",
    HTTPStatus.GATEWAY_TIMEOUT: "timeout_error",
}


def encode_error(error: TidegateError) -> bytes:
    """Encode a response body of type `application/json`; an upstream's own code stands where it sent one."""
    code = error.upstream_code if isinstance(error, UpstreamRejected) and error.upstream_code else error.code
    shown = {"message": _encodable(error.message), "type": error.type, "param": error.param and _encodable(error.param), "code": code}
    return msgspec.json.encode({"error": shown})


def encode_error_for(operation: Operation, error: TidegateError) -> bytes:
    """Encode an error as clients of the operation expect it."""
    return encode_anthropic_error(error) if operation is Operation.COUNT_MESSAGES else encode_error(error)


def encode_anthropic_error(error: TidegateError) -> bytes:
    """Encode a response body in the shape of Anthropic's API; its kinds of errors follow the status."""
    kind = _ANTHROPIC_TYPES.get(error.status, "invalid_request_error" if error.status < HTTPStatus.INTERNAL_SERVER_ERROR else "api_error")
    return msgspec.json.encode({"type": "error", "error": {"type": kind, "message": _encodable(error.message)}})


def _encodable(message: str) -> str:
    """Replace lone surrogates, which JSON in UTF-8 cannot carry."""
    return message.encode("utf-8", "replace").decode("utf-8")
