"""What clients say of their business: read tolerantly, bounded, and kept from upstreams."""

from __future__ import annotations

import pytest

from tidegate.wire.business_context import MAX_CHARS, MAX_MEMBERS, color_of, feature_of, parse_business_context, session_of
from tidegate.wire.headers import upstream_request_headers


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (b"feature=code_completion; user_tier=vip", {"feature": "code_completion", "user_tier": "vip"}),
        (b'{"feature": "code_completion", "user_tier": "vip"}', {"feature": "code_completion", "user_tier": "vip"}),
        (b' { "Feature":"faq","retries":2,"beta":true,"dark":false} ', {"feature": "faq", "retries": "2", "beta": "true", "dark": "false"}),
        (b"Feature = faq ;; =x; y= ,tier=vip", {"feature": "faq", "tier": "vip"}),
        (b'feature="meeting notes"', {"feature": "meeting notes"}),
        ("feature=客服".encode(), {"feature": "客服"}),
        (b"feature=a;feature=b", {"feature": "a"}),
        (b"feature=a=b", {"feature": "a=b"}),
        (b"faq", {}),
        (b"", {}),
        (b'{"feature": "faq"', {}),
        (b'{"feature": ["faq"], "tier": null, "x": {}, "y": ""}', {}),
        (b"\xff\xfe=\xff", {"\ufffd\ufffd": "\ufffd"}),
        (b"fea\x00ture=f\x1ba\xe2\x80\xaeq", {"feature": "faq"}),
        (b'{"feature": "f\\u0007a\\ud800q\\n"}', {"feature": "faq"}),
    ],
)
def test_both_forms_are_read_and_the_unreadable_left_out(value: bytes, expected: dict[str, str]) -> None:
    """Names in lower case, the first of equals, nothing invisible; never an error."""
    assert expected == parse_business_context(value)


def test_members_and_their_sizes_are_bounded() -> None:
    """A client cannot fill records: what is too long is cut, what is too much left out."""
    many = parse_business_context(b";".join(b"n%d=v" % number for number in range(500)))
    assert MAX_MEMBERS == len(many)
    assert {"f" * MAX_CHARS: "v" * MAX_CHARS} == parse_business_context(b"f" * 1_000 + b"=" + b"v" * 1_000)
    assert {} == parse_business_context(b" " * 5_000 + b"feature=faq")


def test_a_request_has_one_feature_and_one_session() -> None:
    """Empty without the header, and bounded with it."""
    assert ("", "") == (feature_of(None), session_of(None))
    assert ("", "faq") == (feature_of(b"user_tier=vip"), feature_of(b"feature=faq"))
    assert "order-7" == session_of(b" order-7\x00 ")
    assert 128 == len(session_of(b"s" * 9_000))


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (None, ""),
        (b"", ""),
        (b"bench", "bench"),
        (b"Load-Test_7.b", "Load-Test_7.b"),
        (b"c" * 64, "c" * 64),
        (b"c" * 65, ""),
        (b"bench test", ""),
        (b"bench\x00", ""),
        (b"bench\n", ""),
        (b"bench, bench", ""),
        ("测试".encode(), ""),
        (b"\xb2", ""),
    ],
)
def test_a_color_is_one_plain_word_or_nothing(value: bytes | None, expected: str) -> None:
    """It is never cut or mended, since what remained could be another one."""
    assert expected == color_of(value)


def test_what_is_said_to_the_gateway_stays_there() -> None:
    """No upstream sees the business of the caller, nor any header that is Tidegate's own."""
    client = (
        (b"x-business-context", b"feature=faq"),
        (b"x-tidegate-resumable", b"1"),
        (b"x-tidegate-color", b"bench"),
        (b"x-tidegate-degraded", b"L2"),
        (b"x-tidegate-whatever", b"1"),
        (b"x-session-id", b"order-7"),
    )
    assert ((b"content-type", b"application/json"), (b"x-session-id", b"order-7")) == upstream_request_headers(client)
