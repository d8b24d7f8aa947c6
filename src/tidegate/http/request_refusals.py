"""What a server says of a request that it does not hand to its application, or whose body it does not give it."""

from __future__ import annotations

from tidegate.errors import BodyTooLarge, ExpectationFailed, HeadersTooLarge, Overloaded, RequestTimeout, UnsupportedEncoding


def head_too_large(limit: int) -> HeadersTooLarge:
    return HeadersTooLarge(
        f"The request head is larger than this gateway's limit of {limit} bytes. "
        "Send fewer or shorter header fields, or ask the operator to raise server.max_header_bytes."
    )


def head_too_slow(limit_s: float) -> RequestTimeout:
    return RequestTimeout(f"The request head was not complete {limit_s:g} s after its first byte. Check the network, then retry.")


def unknown_expectation() -> ExpectationFailed:
    return ExpectationFailed("The only expectation supported is 100-continue. Send the request without an expect header.")


def body_too_large(limit: int) -> BodyTooLarge:
    return BodyTooLarge(
        f"The request body is larger than this gateway's limit of {limit} bytes. "
        "Send a shorter prompt or fewer attachments, or ask the operator to raise server.max_body_bytes."
    )


def coded_body() -> UnsupportedEncoding:
    return UnsupportedEncoding(
        "The request has a content-encoding, and this gateway does not decompress bodies. "
        "Send the JSON uncompressed, without that header field."
    )


def over_memory() -> Overloaded:
    return Overloaded(
        "The gateway holds as many request bytes as it may at this moment. Retry in a few seconds, "
        "or ask the operator to raise server.max_buffered_bytes.",
        retry_after_s=2.0,
    )


def body_too_slow(pause_s: float, total_s: float) -> RequestTimeout:
    return RequestTimeout(
        f"The request body came too slowly: a pause may last {pause_s:g} s, and all of it {total_s:g} s. Check the network, then retry."
    )
