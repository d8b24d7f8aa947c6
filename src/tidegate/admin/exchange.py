"""How the admin port reads bodies and writes answers: JSON, bounded, never kept by caches."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from tidegate.domain.error_object import encode_error
from tidegate.errors import BodyTooLarge, PathNotFound, TidegateError

MAX_BODY_BYTES = 65_536
"""The largest ordinary request is a key with its model patterns, or a question in SQL."""


async def read_body(request: Request, *, limit: int = MAX_BODY_BYTES) -> bytes:
    """Read the body within its bound."""
    body = bytearray()
    try:
        async for piece in request.stream():
            body += piece
            if len(body) > limit:
                raise BodyTooLarge(f"The body is larger than {limit} bytes; nothing that this path takes is.")
    except ClientDisconnect:
        raise PathNotFound("The client left.") from None  # nobody reads it
    return bytes(body)


def json_answer(body: object, *, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    kept_nowhere = {"cache-control": "no-store", "x-content-type-options": "nosniff", **(headers or {})}
    return Response(msgspec.json.encode(body) + b"\n", status_code=status, media_type="application/json", headers=kept_nowhere)


def error_answer(error: TidegateError) -> Response:
    headers = {"www-authenticate": "Bearer"} if error.status == 401 else None  # noqa: PLR2004  RFC 9110, 15.5.2
    return Response(encode_error(error), status_code=error.status, headers=headers, media_type="application/json")
