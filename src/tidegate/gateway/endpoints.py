"""Which path is which operation."""

from __future__ import annotations

from urllib.parse import unquote

import msgspec

from tidegate.domain.request import Operation
from tidegate.errors import MethodNotAllowed, PathNotFound, TidegateError

HEALTH_PATHS = frozenset({"/livez", "/readyz"})

_POST = {
    "/v1/chat/completions": Operation.CHAT,
    "/v1/completions": Operation.COMPLETION,
    "/v1/embeddings": Operation.EMBEDDING,
    "/tokenize": Operation.TOKENIZE,
    "/v1/messages/count_tokens": Operation.COUNT_MESSAGES,
    "/v1/responses/input_tokens": Operation.COUNT_RESPONSES,
    "/v1/estimate": Operation.ESTIMATE,
}
_GET = {"/v1/models": Operation.MODELS}
_MODEL_PREFIX = "/v1/models/"

UPSTREAM_PATHS = {
    Operation.CHAT: "/chat/completions",
    Operation.COMPLETION: "/completions",
    Operation.EMBEDDING: "/embeddings",
}


class Endpoint(msgspec.Struct, frozen=True, gc=False):
    operation: Operation
    argument: str = ""


_ENDPOINTS = {
    **{("POST", path): Endpoint(operation) for path, operation in _POST.items()},
    **{(method, path): Endpoint(operation) for path, operation in _GET.items() for method in ("GET", "HEAD")},
}


def find_endpoint(method: str, path: str) -> Endpoint | TidegateError:
    """Give the endpoint, or the error a client can act on: a wrong method, a missing `/v1`, an unknown path."""
    endpoint = _ENDPOINTS.get((method, path))
    if endpoint is not None:
        return endpoint
    if path.startswith(_MODEL_PREFIX) and len(path) > len(_MODEL_PREFIX):
        if method in ("GET", "HEAD"):
            return Endpoint(Operation.MODEL, unquote(path[len(_MODEL_PREFIX) :]))
        return MethodNotAllowed(f"{path} answers GET, not {method}.", allow="GET, HEAD")
    if path in _POST:
        return MethodNotAllowed(f"{path} answers POST, not {method}.", allow="POST")
    if path in _GET or path in HEALTH_PATHS:
        return MethodNotAllowed(f"{path} answers GET, not {method}.", allow="GET, HEAD")
    known = f"/v1{path.rstrip('/')}"
    if known in _POST or known in _GET:
        return PathNotFound(f"There is no {path}. Did you mean {known}? Set your SDK's base_url to end in /v1.")
    return PathNotFound(f"There is no {path[:200]}. Served are {', '.join((*_POST, *_GET))}.")
