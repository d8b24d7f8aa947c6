"""The fault matrix: what the scripted upstream plays, and what a client must see. The ids are those of the kinds of fault
(S1 leaving clients, S2 usage, S3 cut streams, S4 silence, S5 errors on streams, S6 encoding)."""

from __future__ import annotations

import msgspec

from tidegate.conformance.expect import (
    CHAT_WAYS,
    STREAMS,
    WAYS,
    Expectation,
    Way,
    complete,
    either,
    interrupted,
    refused,
    with_usage,
    without_usage,
)

_UNREACHABLE = (500, 502, 503, 504)


class Case(msgspec.Struct, frozen=True):
    """One behaviour of the upstream in some ways of asking."""

    name: str
    """Unique; letters, digits and hyphens."""
    kind: str
    play: str
    """What the prompt's marker says to the scripted upstream: `[[mock:<play>]]`."""
    right: str
    """The right behaviour in words."""
    expect: Expectation
    ways: tuple[Way, ...] = WAYS
    asks_usage: bool = False
    leaves_after_s: float | None = None
    """The client goes away after this time: the upstream must see it go soon after."""


def cases() -> tuple[Case, ...]:
    """Give the whole matrix, in the order it is run."""
    return (*_plain(), *_before_output(), *_after_output(), *_statuses(), *_rate_limits(), *_leaving())


def _plain() -> tuple[Case, ...]:
    same = "the answer, unharmed"
    return (
        Case("plain", "S2", "ok", "the answer, and no usage that was not asked for", without_usage()),
        Case("usage-asked", "S2", "ok", "the answer with its usage", with_usage(), (*STREAMS, Way.CHAT), asks_usage=True),
        *(
            Case(f"usage-{usage}", "S2", f'{{"usage":"{usage}"}}', "no usage that was not asked for", without_usage(), STREAMS)
            for usage in ("absent", "early", "with_finish", "null_everywhere", "cumulative", "doubled", "after_done")
        ),
        Case("usage-late", "S2", '{"usage":"late","usage_delay_s":0.3}', "no usage that was not asked for", without_usage(), STREAMS),
        Case(
            "no-stream-options", "S2", '{"reject_stream_options":true}', "the option is given up, the client sees nothing", without_usage()
        ),
        Case("newline-crlf", "S6", '{"newline":"crlf"}', same, complete(), STREAMS),
        Case("newline-cr", "S6", '{"newline":"cr"}', same, complete(), STREAMS),
        Case("no-space-after-colon", "S6", '{"space_after_colon":false}', same, complete(), STREAMS),
        Case("multi-line", "S6", '{"multi_line":true}', same, complete(), STREAMS),
        Case("comments", "S6", '{"comment":"processing"}', same, complete(comments=True), STREAMS),
        Case("huge-event", "S6", "huge_event@2", same, complete(), STREAMS),
        Case("cut-at-every-byte", "S6", '{"pieces":["会议","纪要 🙂","。"],"split":{"every":1}}', same, complete("会议纪要 🙂。"), STREAMS),
        Case("malformed-event", "S3", "malformed_event@2", "the event is left out, the rest is unharmed", complete(), STREAMS),
        Case("missing-done", "S3", "missing_done", "a finished stream is complete without [DONE]", complete(done=False), STREAMS),
        Case("close-after", "S4", "close_after", "a connection closed unannounced hurts nobody", complete()),
        Case("drip-headers", "S4", '{"fault":{"kind":"drip_headers","pause_s":0.001}}', same, complete()),
        Case(
            "finish-content-filter",
            "A7",
            "content_filter",
            "a withheld answer is passed on as one",
            complete("I am afraid", finish_reason="content_filter"),
            (Way.CHAT, Way.CHAT_STREAM),
        ),
        Case(
            "finish-length",
            "A7",
            '{"finish_reason":"length"}',
            "a truncated answer is passed on as one",
            complete(finish_reason="length"),
            (Way.CHAT, Way.CHAT_STREAM),
        ),
    )


def _before_output() -> tuple[Case, ...]:
    """Each fault once (another try must be made, unseen) and always (a clear error must come, in time)."""
    faults = (
        *("refuse", "reset_before_headers", "close_before_headers", "hang_before_headers", "garbage", "cut_headers"),
        *("error_in_200", "503", "html_502", "loading"),
    )
    mute = ("hang_before_first_token", "end@1", "cut@1", "reset@1")  # headers and the role, then trouble
    once = [
        Case(f"{_slug(fault)}-once", "S4", f"{fault},ok", "tried again, and the client sees only the answer", complete())
        for fault in faults
        if fault != "refuse"
    ]
    once += [
        Case(
            f"{_slug(fault)}-once", "S4", f"{fault},ok", "tried again, and the client sees only the answer", complete(), (Way.CHAT_STREAM,)
        )
        for fault in mute
    ]
    always = [
        Case(f"{_slug(fault)}-always", "S5", fault, "an error with a status of its own, in time", refused(*_UNREACHABLE))
        for fault in faults
    ]
    always += [
        Case(
            f"{_slug(fault)}-always", "S5", fault, "an error with a status of its own, in time", refused(*_UNREACHABLE), (Way.CHAT_STREAM,)
        )
        for fault in mute
    ]
    return (*once, *always)


def _after_output() -> tuple[Case, ...]:
    right = "an error event after what came, no [DONE]; a whole answer fails with a status"
    faults = ("stall@3", "cut@3", "end@3", "reset@3", "bad_framing@3", "error_event@3")
    ways = (Way.CHAT_STREAM, Way.COMPLETION_STREAM, Way.CHAT)
    return (
        *(Case(_slug(fault), "S3", fault, right, interrupted(), ways) for fault in faults),
        Case("finish-error", "S3", '{"fault":"finish_error@3"}', right, interrupted(), (Way.CHAT_STREAM,)),
    )


def _statuses() -> tuple[Case, ...]:
    theirs = "the request's own fault keeps its status"
    ours = "the gateway's account is the operator's trouble, never the client's 401"
    return (
        Case("status-400", "S5", "400", theirs, refused(400)),
        Case("status-422", "S5", "422", theirs, refused(422, 400)),
        Case("context-length", "S5", "context_length", theirs, refused(400), CHAT_WAYS),
        Case("data-inspection", "A7", "data_inspection", "a withheld answer is a 400", refused(400), CHAT_WAYS),
        Case("wrong-key", "S5", "wrong_key", ours, refused(*_UNREACHABLE), CHAT_WAYS),
        Case("out-of-credit", "S5", "out_of_credit", ours, either(refused(*_UNREACHABLE), refused(429)), CHAT_WAYS),
        Case(
            "429-insufficient-quota",
            "S5",
            "insufficient_quota",
            "an empty account, or a full minute at DashScope",
            either(refused(*_UNREACHABLE), refused(429)),
            CHAT_WAYS,
        ),
        Case(
            "arrearage", "S5", "arrearage", f"{ours}, where the dialect tells it", either(refused(*_UNREACHABLE), refused(400)), CHAT_WAYS
        ),
        Case("status-500", "S5", "500", "a server's failure is one", refused(*_UNREACHABLE)),
        Case("status-529", "S5", "overloaded", "a server's failure is one", refused(*_UNREACHABLE), CHAT_WAYS),
    )


def _rate_limits() -> tuple[Case, ...]:
    told = ("seconds", "float", "date", "ms", "both", "openai", "reset_seconds", "reset_epoch", "reset_epoch_ms", "ietf")
    untold = ("none", "garbage")
    right = "429, and when to come back"
    return (
        *(
            Case(
                f"429-{_slug(dialect)}",
                "A7",
                f'{{"retry_after":{{"dialect":"{dialect}","after_s":1.2}}}}',
                right,
                refused(429, retry_after=True),
                CHAT_WAYS,
            )
            for dialect in told
        ),
        *(
            Case(
                f"429-{dialect}",
                "A7",
                f'{{"retry_after":{{"dialect":"{dialect}","after_s":1.2}}}}',
                "429, in OpenAI's form",
                refused(429),
                CHAT_WAYS,
            )
            for dialect in untold
        ),
        Case("429-burst-rate", "A7", "burst_rate", "429, in OpenAI's form", refused(429), CHAT_WAYS),
    )


def _leaving() -> tuple[Case, ...]:
    right = "the upstream sees the client go within 250 ms"
    return (
        Case("leave-before-headers", "S1", "hang_before_headers", right, _anything, leaves_after_s=0.2),
        Case("leave-before-first-token", "S1", "hang_before_first_token", right, _anything, STREAMS, leaves_after_s=0.2),
        Case("leave-mid-stream", "S1", "stall@3", right, _anything, STREAMS, leaves_after_s=0.2),
    )


def _anything(*_: object) -> None:
    """Accept whatever came: what counts is what the upstream saw."""


def _slug(play: str) -> str:
    return play.replace("_", "-").replace("@", "-")
