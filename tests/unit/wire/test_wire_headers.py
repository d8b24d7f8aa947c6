"""Headers: the allow-lists, what limits say, and when to come back."""

from __future__ import annotations

import pytest

from tidegate.http.client_request import OWNED
from tidegate.ports import LimitState, WindowState
from tidegate.testing.header_fields import fields_of
from tidegate.wire.headers import (
    client_response_headers,
    go_duration,
    limit_lines,
    parse_go_duration,
    parse_retry_after,
    retry_after_value,
    upstream_request_headers,
)

NOW = 784_111_777.0 - 30
"""Thirty seconds before Sun, 06 Nov 1994 08:49:37 GMT."""


def test_the_upstream_sees_what_changes_its_answer_and_nothing_of_the_caller() -> None:
    """Credentials, cookies, forwarding and internal headers stay; the body is called JSON whatever the client called it."""
    client = (
        (b"authorization", b"Bearer sk-client"),
        (b"cookie", b"a=b"),
        (b"x-forwarded-for", b"10.0.0.1"),
        (b"x-api-key", b"k"),
        (b"accept-encoding", b"gzip"),
        (b"content-type", b"application/x-www-form-urlencoded"),
        (b"accept", b"text/event-stream"),
        (b"accept", b"second"),
        (b"x-session-id", b"order-7"),
    )

    assert upstream_request_headers(client) == (
        (b"content-type", b"application/json"),
        (b"accept", b"text/event-stream"),
        (b"x-session-id", b"order-7"),
    )


def test_no_client_says_where_its_request_to_the_upstream_ends() -> None:
    """What passes is put into finished lines, which the pool does not look through again."""
    assert upstream_request_headers(tuple((name, b"1") for name in sorted(OWNED))) == ((b"content-type", b"application/json"),)


def test_the_client_sees_what_describes_its_answer_and_nothing_of_our_account() -> None:
    """Cookies, rate limits and server names of the upstream stay."""
    upstream = (
        (b"content-type", b"text/event-stream"),
        (b"set-cookie", b"s=1"),
        (b"server", b"uvicorn"),
        (b"x-ratelimit-remaining-tokens", b"5"),
        (b"openai-organization", b"acme"),
        (b"x-request-id", b"theirs"),
        (b"content-encoding", b"gzip"),
        (b"x-generation-id", b"gen-1"),
    )

    assert client_response_headers(upstream) == ((b"content-type", b"text/event-stream"), (b"x-generation-id", b"gen-1"))


def test_limits_are_said_in_both_dialects() -> None:
    """OpenAI's six headers with Go durations, and the IETF draft's two lists."""
    requests, tokens = WindowState(60, 12, 3.25, "key-requests"), WindowState(100_000, -5, 360.0, "day", 86_400)
    state = LimitState(requests, tokens, (requests, tokens))

    assert dict(fields_of(limit_lines(state))) == {
        b"x-ratelimit-limit-requests": b"60",
        b"x-ratelimit-remaining-requests": b"12",
        b"x-ratelimit-reset-requests": b"4s",
        b"x-ratelimit-limit-tokens": b"100000",
        b"x-ratelimit-remaining-tokens": b"0",
        b"x-ratelimit-reset-tokens": b"6m0s",
        b"ratelimit-policy": b'"key-requests";q=60;w=60, "day";q=100000;w=86400',
        b"ratelimit": b'"key-requests";r=12;t=4, "day";r=0;t=360',
    }


def test_a_rule_may_be_called_anything_but_what_ends_its_line() -> None:
    """A `%` in its name is one; a line end is a fault of whoever let it in."""
    window = WindowState(10, 9, 1.0, "50% of 灯")

    assert dict(fields_of(limit_lines(LimitState(window, None, (window,)))))[b"ratelimit"] == '"50% of 灯";r=9;t=1'.encode()
    with pytest.raises(AssertionError, match="CR, LF or NUL"):
        limit_lines(LimitState(window, None, (WindowState(10, 9, 1.0, "a\r\nx: y"),)))


def test_a_window_without_a_ceiling_is_not_mentioned() -> None:
    """No limit, no header."""
    window = WindowState(10, 9, 0.0, "r")

    assert limit_lines(LimitState(None, None)) == b""
    shown = ((b"ratelimit-policy", b'"r";q=10;w=60'), (b"ratelimit", b'"r";r=9;t=0'))
    assert fields_of(limit_lines(LimitState(window, None, (window,))))[-2:] == shown
    assert fields_of(limit_lines(LimitState(None, window, (window,))))[-2:] == shown


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [
        (0.012, "12ms"),
        (0.0, "0s"),
        (-1.0, "0s"),
        (1.0, "1s"),
        (1.5, "1.5s"),
        (0.0001, "1ms"),
        (0.9999, "1s"),
        (59.9, "59.9s"),
        (60.0, "1m0s"),
        (360.0, "6m0s"),
        (90.25, "1m30.25s"),
        (3600.0, "1h0m0s"),
        (3723.004, "1h2m3.004s"),
    ],
)
def test_durations_are_written_as_go_writes_them(seconds: float, expected: str) -> None:
    """Rounded up to the millisecond, trailing zeros cut."""
    assert expected == go_duration(seconds)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("12ms", 0.012),
        ("1s", 1.0),
        ("6m0s", 360.0),
        ("1h2m3.5s", 3723.5),
        ("0", 0.0),
        (".5s", 0.5),
        ("3µs", 3e-6),
        ("3μs", 3e-6),
        ("", None),
        ("1", None),
        ("-1s", None),
        ("1s ", None),
        ("s", None),
        ("9" * 80 + "s", None),
        ("١s", None),
    ],
)
def test_go_durations_are_read_or_refused(text: str, expected: float | None) -> None:
    """All of Go's units; nothing else, and nothing negative."""
    assert parse_go_duration(text) == (None if expected is None else pytest.approx(expected))


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        ({}, None),
        ({b"retry-after-ms": b"1500", b"retry-after": b"9"}, 1.5),
        ({b"retry-after": b"2.5"}, 2.5),
        ({b"retry-after": b" 0 "}, 0.0),
        ({b"retry-after": b"86400"}, 3600.0),
        ({b"retry-after": b"Sun, 06 Nov 1994 08:49:37 GMT"}, 30.0),
        ({b"retry-after": b"Sun, 06 Nov 1993 08:49:37 GMT"}, 0.0),
        ({b"retry-after": b"Sun, 06 Foo 1994 08:49:37 GMT"}, None),
        ({b"retry-after": b"Sun, 00 Nov 1994 08:49:37 GMT"}, None),
        ({b"retry-after": b"Sun, 06 Nov 0000 08:49:37 GMT"}, None),
        ({b"retry-after": b"soon"}, None),
        ({b"retry-after": b"-3"}, None),
        ({b"retry-after": b"nan", b"x-ratelimit-reset-tokens": b"6m0s"}, 360.0),
        ({b"x-ratelimit-reset-requests": b"1s", b"x-ratelimit-reset-tokens": b"2m0s", b"x-ratelimit-remaining-tokens": b"40"}, 1.0),
        ({b"x-ratelimit-reset-requests": b"1s", b"x-ratelimit-reset-tokens": b"2m0s", b"x-ratelimit-remaining-tokens": b"0"}, 120.0),
        ({b"x-ratelimit-reset": b"784111777000"}, 3600.0),
        ({b"x-ratelimit-reset": b"20"}, 20.0),
        ({b"x-ratelimit-reset": b"1m0s"}, 60.0),
        ({b"x-ratelimit-reset": b"later"}, None),
        ({b"ratelimit": b'"default";r=0;t=2'}, 2.0),
        ({b"ratelimit": b'"burst";r=0;t=2, "daily"; r=0; t=30, "tokens";r=5;t=60'}, 30.0),
        ({b"ratelimit": b'"default";r=5;t=60'}, None),
        ({b"ratelimit": b"limit=1"}, None),
    ],
)
def test_the_upstreams_wish_is_read_from_wherever_it_is(headers: dict[bytes, bytes], expected: float | None) -> None:
    """In order of precision; garbage is ignored, an hour is the most."""
    assert expected == parse_retry_after(tuple(headers.items()), NOW)


def test_an_epoch_reset_is_read_in_seconds_and_milliseconds() -> None:
    """OpenRouter's `X-RateLimit-Reset` is milliseconds since the epoch; others write seconds."""
    now = 1_790_000_000.0

    assert parse_retry_after(((b"x-ratelimit-reset", b"1790000042000"),), now) == pytest.approx(42.0)
    assert parse_retry_after(((b"x-ratelimit-reset", b"1790000042"),), now) == pytest.approx(42.0)


def test_without_a_clock_dates_are_ignored() -> None:
    """A relative wish needs no clock, an absolute one does."""
    assert parse_retry_after(((b"retry-after", b"Sun, 06 Nov 1994 08:49:37 GMT"),), None) is None
    assert parse_retry_after(((b"x-ratelimit-reset", b"1790000042"),), None) is None
    assert parse_retry_after(((b"retry-after", b"3"), (b"retry-after", b"9")), None) == 3.0


def test_retry_after_is_whole_seconds_of_at_least_one() -> None:
    """OpenAI's SDKs ignore a zero."""
    assert [retry_after_value(seconds) for seconds in (0.0, 0.2, 1.0, 1.1, 59.0)] == [b"1", b"1", b"1", b"2", b"59"]
