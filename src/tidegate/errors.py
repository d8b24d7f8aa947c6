"""Every way Tidegate can fail, as one tree.

TidegateError
├── ClientError                  the request itself is at fault; sending it again unchanged cannot help
│   ├── InvalidHttp              400  the bytes are not one unambiguous HTTP/1.1 request
│   ├── InvalidJson              400  the body is not JSON
│   ├── InvalidParameter         400  a field is missing, of the wrong type or out of range
│   ├── ContextLengthExceeded    400  the prompt cannot fit the model
│   ├── Unauthenticated          401  no usable key or token
│   ├── Forbidden                403  a good key that may not do this
│   ├── PathNotFound             404  no such path
│   ├── ModelNotFound            404  no route serves that model
│   ├── StreamNotFound           404  the caller has no such stream to resume
│   ├── KeyNotFound              404  no active key has that id
│   ├── ReplicaNotFound          404  no upstream or replica has that name
│   ├── RecordNotFound           404  the tables have no such request
│   ├── MethodNotAllowed         405  the path exists, the method does not
│   ├── RequestTimeout           408  the client sent its request too slowly
│   ├── StreamTailLost           410  a resumable stream is there, but not its part that the client lacks
│   ├── BodyTooLarge             413  the body is over the limit
│   ├── UnsupportedEncoding      415  the body is compressed
│   ├── ExpectationFailed        417  an `expect` header other than `100-continue`
│   ├── HeadersTooLarge          431  the head is over the limit
│   └── LimitUnreachable         429  the request is larger than its limit can ever give
├── Refused                      the request is fine, this moment is not; a later try may succeed
│   ├── RateLimited              429  tokens or requests of the window are used up
│   ├── ConcurrencyLimited       429  too many calls at once
│   ├── BudgetExceeded           429  the money of the period is spent
│   ├── Overloaded               503  the gateway protects itself
│   ├── Draining                 503  this process is shutting down
│   └── NoReplica                503  nothing can serve the model at this moment
├── UpstreamError                the model server failed
│   ├── UpstreamRejected         as sent by the upstream (4xx): its verdict on the request
│   ├── UpstreamCredentials      502  the upstream refused Tidegate's own key
│   ├── UpstreamUnavailable      502  no connection, a reset, an unreadable answer, or a 5xx
│   ├── UpstreamRateLimited      429  the upstream's own limit
│   ├── UpstreamTimeout          504  one of the five clocks ran out
│   └── StreamInterrupted        502  the answer broke after its first byte went out
├── StoreError                   503  the store of the records cannot be read or written at this moment
├── InternalError                500  a fault of Tidegate
└── ConfigurationError           not sent to clients: a file, key or setting needs a person

Each class carries the HTTP `status`, the stable `code` and OpenAI's `type` of the error object, and whether a
client that repeats the same request later can succeed (`retryable`). Messages say what happened, to what, and what to do next.
Instances compare by class and contents, so that they can travel as values in actions and events.
"""

from __future__ import annotations

from typing import ClassVar


class TidegateError(Exception):
    """Base of all of them; `message` is for people, `param` names the field at fault."""

    status: int = 500
    code: ClassVar[str] = "internal_error"
    type: ClassVar[str] = "api_error"
    retryable: ClassVar[bool] = False

    def __init__(self, message: str, *, param: str | None = None, retry_after_s: float | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.param = param
        self.retry_after_s = retry_after_s

    def _identity(self) -> tuple[object, ...]:
        return (type(self), self.status, self.message, self.param, self.retry_after_s)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TidegateError) and self._identity() == other._identity()

    def __hash__(self) -> int:
        return hash(self._identity())


class ClientError(TidegateError):
    status = 400
    code = "invalid_request"
    type = "invalid_request_error"


class InvalidHttp(ClientError):
    code = "invalid_http"


class InvalidJson(ClientError):
    code = "invalid_json"


class InvalidParameter(ClientError):
    code = "invalid_parameter"


class ContextLengthExceeded(ClientError):
    code = "context_length_exceeded"


class Unauthenticated(ClientError):
    """`why` is for operators: it stands in the record and the log. The client is told the same whatever it was."""

    status = 401
    code = "invalid_api_key"
    type = "authentication_error"

    def __init__(self, message: str, *, why: str | None = None) -> None:
        super().__init__(message)
        self.why = why


class Forbidden(ClientError):
    status = 403
    code = "forbidden"
    type = "permission_error"


class PathNotFound(ClientError):
    status = 404
    code = "unknown_path"


class ModelNotFound(ClientError):
    status = 404
    code = "model_not_found"


class StreamNotFound(ClientError):
    status = 404
    code = "stream_not_found"


class KeyNotFound(ClientError):
    """Met by those who manage keys, never by a request to a model."""

    status = 404
    code = "key_not_found"


class ReplicaNotFound(ClientError):
    """Met by those who drain replicas, never by a request to a model."""

    status = 404
    code = "replica_not_found"


class RecordNotFound(ClientError):
    """Met by those who ask questions of the records, never by a request to a model."""

    status = 404
    code = "record_not_found"


class MethodNotAllowed(ClientError):
    """`allow` is the value of the header that says which methods the path has."""

    status = 405
    code = "method_not_allowed"

    def __init__(self, message: str, *, allow: str = "") -> None:
        super().__init__(message)
        self.allow = allow


class RequestTimeout(ClientError):
    status = 408
    code = "request_timeout"
    retryable = True


class StreamTailLost(ClientError):
    status = 410
    code = "stream_tail_lost"


class BodyTooLarge(ClientError):
    status = 413
    code = "body_too_large"


class UnsupportedEncoding(ClientError):
    status = 415
    code = "unsupported_encoding"


class ExpectationFailed(ClientError):
    status = 417
    code = "expectation_failed"


class HeadersTooLarge(ClientError):
    status = 431
    code = "headers_too_large"


class LimitUnreachable(ClientError):
    status = 429
    code = "request_exceeds_limit"
    type = "rate_limit_error"


class Refused(TidegateError):
    status = 503
    code = "refused"
    type = "server_error"
    retryable = True


class RateLimited(Refused):
    status = 429
    code = "rate_limit_exceeded"
    type = "rate_limit_error"


class ConcurrencyLimited(Refused):
    status = 429
    code = "concurrency_limit_exceeded"
    type = "rate_limit_error"


class BudgetExceeded(Refused):
    """Not worth a retry of its own accord: a period of the calendar is long, and people may have to decide."""

    status = 429
    code = "budget_exceeded"
    type = "insufficient_quota"
    retryable = False


class Overloaded(Refused):
    code = "overloaded"


class Draining(Refused):
    code = "shutting_down"


class NoReplica(Refused):
    code = "no_replica_available"


class UpstreamError(TidegateError):
    status = 502
    code = "upstream_error"
    type = "server_error"


class UpstreamRejected(UpstreamError):
    """The upstream's own 4xx, status kept, so that the client's SDK raises the class it expects."""

    code = "upstream_rejected"
    type = "invalid_request_error"

    def __init__(self, message: str, *, status: int = 400, param: str | None = None, upstream_code: str | None = None) -> None:
        super().__init__(message, param=param)
        self.status = status
        self.upstream_code = upstream_code


class UpstreamCredentials(UpstreamError):
    code = "upstream_credentials_rejected"


class UpstreamUnavailable(UpstreamError):
    code = "upstream_unavailable"
    retryable = True


class UpstreamRateLimited(UpstreamError):
    status = 429
    code = "upstream_rate_limited"
    type = "rate_limit_error"
    retryable = True


class UpstreamTimeout(UpstreamError):
    status = 504
    code = "upstream_timeout"
    retryable = True


class StreamInterrupted(UpstreamError):
    code = "stream_interrupted"
    retryable = True


class StoreError(TidegateError):
    """Met by those who ask questions of the records, never by a request to a model."""

    status = 503
    code = "record_store_unavailable"
    type = "server_error"
    retryable = True


class InternalError(TidegateError):
    """A fault of Tidegate itself; the log line with the same request id has the details."""


class ConfigurationError(TidegateError):
    code = "configuration_error"
