"""Encodes an error as the JSON body that OpenAI's SDKs understand.

Shape: `{"error": {"message", "type", "param", "code"}}`; all four keys are always there. Only the four public
attributes of the error are sent, never its cause or traceback.
"""

from __future__ import annotations

import msgspec

from tidegate.errors import TidegateError


def error_body(error: TidegateError) -> bytes:
    """Encode `error` as a response body of type `application/json`."""
    return msgspec.json.encode({"error": {"message": error.message, "type": error.type, "param": error.param, "code": error.code}})
