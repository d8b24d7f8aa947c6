"""The one way an error is written for a client: OpenAI's error object, on every port and from every layer.

Shape: `{"error": {"message", "type", "param", "code"}}`; all four keys are always there. Only public attributes are
written, never a cause or traceback.
"""

from __future__ import annotations

import msgspec

from tidegate.errors import TidegateError, UpstreamRejected


def encode_error(error: TidegateError) -> bytes:
    """Encode a response body of type `application/json`; an upstream's own code stands where it sent one."""
    code = error.upstream_code if isinstance(error, UpstreamRejected) and error.upstream_code else error.code
    shown = {"message": _encodable(error.message), "type": error.type, "param": error.param and _encodable(error.param), "code": code}
    return msgspec.json.encode({"error": shown})


def _encodable(message: str) -> str:
    """Replace lone surrogates, which JSON in UTF-8 cannot carry."""
    return message.encode("utf-8", "replace").decode("utf-8")
