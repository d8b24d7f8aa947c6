"""Through the gateway a stream has exactly the bytes of a direct one, however it was cut on the way."""

from __future__ import annotations

import httpx
import msgspec
import pytest

from tidegate.testing import Endpoint, Script, ThreadedUpstream, ToolCall, UsagePlace, missing_done, split_every

TEXT = ("潮", "水 is 🌊", "👩‍👩‍👧‍👦", ' "quoted" \\ ', "\u2028 end")
OPTIONS = [pytest.param({}, id="unasked"), pytest.param({"stream_options": {"include_usage": True}}, id="asked")]


def direct_and_through(
    through: Endpoint, upstream: ThreadedUpstream, script: Script, extra: dict[str, object], *, path: str = "/chat/completions"
) -> tuple[bytes, bytes]:
    request: dict[str, object] = {"model": "scripted", "stream": True, "prompt": "x", "messages": [{"role": "user", "content": "x"}]}
    request |= extra
    upstream.set_default(script)
    bodies = []
    for endpoint in (upstream.endpoint, through):
        answer = httpx.post(endpoint.base_url + path, json=request, headers=endpoint.headers, timeout=10.0)
        assert answer.status_code == 200, answer.text
        bodies.append(answer.content)
    return bodies[0], bodies[1]


SCRIPTS = [
    pytest.param(Script(pieces=TEXT), id="plain"),
    pytest.param(Script(pieces=TEXT, role_first=False), id="no-role-chunk"),
    pytest.param(Script(pieces=TEXT, usage=UsagePlace.WITH_FINISH), id="usage-with-finish"),
    pytest.param(Script(pieces=TEXT, usage=UsagePlace.ABSENT), id="usage-absent"),
    pytest.param(Script(pieces=TEXT, usage=UsagePlace.EARLY), id="usage-early"),
    pytest.param(Script(reasoning=("hm", "嗯"), pieces=TEXT), id="reasoning"),
    pytest.param(Script(tool_calls=(ToolCall(name="f", arguments='{"城市": "杭州"}'),)), id="tools"),
    pytest.param(Script(pieces=TEXT, fault=missing_done()), id="missing-done"),
    pytest.param(Script(pieces=TEXT, comment="PROCESSING"), id="comments"),
    pytest.param(Script(pieces=TEXT, newline="\r\n"), id="crlf"),
    pytest.param(Script(pieces=TEXT, newline="\r"), id="cr"),
    pytest.param(Script(pieces=TEXT, space_after_colon=False), id="no-space"),
    pytest.param(Script(pieces=TEXT, multi_line=True), id="multi-line"),
    pytest.param(Script(pieces=("x" * 70_000, *TEXT)), id="long-line"),
]


@pytest.mark.parametrize("extra", OPTIONS)
@pytest.mark.parametrize("script", SCRIPTS)
def test_a_stream_has_the_bytes_of_a_direct_one(
    through: Endpoint, upstream: ThreadedUpstream, script: Script, extra: dict[str, object]
) -> None:
    """Not a byte differs, whether the client asked for usage or not."""
    direct, relayed = direct_and_through(through, upstream, script, extra)
    assert relayed == direct


@pytest.mark.parametrize("size", [1, 2, 3, 7, 64, 1021])
@pytest.mark.parametrize(
    "script", [Script(pieces=TEXT), Script(pieces=TEXT, newline="\r\n"), Script(pieces=TEXT, newline="\r")], ids=["lf", "crlf", "cr"]
)
def test_where_the_network_cuts_makes_no_difference(through: Endpoint, upstream: ThreadedUpstream, script: Script, size: int) -> None:
    """Chinese and emoji cut at every byte come out whole, with any line end."""
    direct, _ = direct_and_through(through, upstream, script, {})
    _, relayed = direct_and_through(through, upstream, msgspec.structs.replace(script, split=split_every(size)), {})
    assert relayed == direct


def test_completions_stream_the_same_bytes(through: Endpoint, upstream: ThreadedUpstream) -> None:
    """The older endpoint too, with several choices."""
    asked: dict[str, object] = {"n": 2, "stream_options": {"include_usage": True}}
    plain: dict[str, object] = {"n": 2}
    for extra in (plain, asked):
        direct, relayed = direct_and_through(through, upstream, Script(pieces=TEXT), extra, path="/completions")
        assert relayed == direct
