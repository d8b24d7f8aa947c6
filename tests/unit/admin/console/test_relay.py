"""The playground's way to the API, and the end of what is watched."""

from __future__ import annotations

import asyncio

from starlette.requests import Request
from tests.unit.admin.console.conftest import NOW, Bench

from tidegate.admin.console.api import CHECK_EVERY
from tidegate.testing import ThreadedUpstream, rate_limited

QUESTION = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}


def test_an_answer_comes_through_piece_by_piece_with_its_headers(bench: Bench) -> None:
    """The API sees the given key and the business context; nothing else of the browser's headers goes on."""
    with ThreadedUpstream(models=("m",)) as api:
        bench.desk.api_url = api.base_url.removesuffix("/v1")
        csrf = bench.sign_in(bench.reader)
        headers = {"x-tidegate-csrf": csrf, "x-tidegate-key": "tg-own", "x-business-context": '{"feature":"f"}'}
        answer = bench.client.post("/admin/playground", json={**QUESTION, "stream": True}, headers=headers)
        assert 200 == answer.status_code
        assert answer.text.endswith("data: [DONE]\n\n")
        assert answer.headers["content-type"].startswith("text/event-stream")
        [received] = api.requests
        sent = dict(received.headers)
        assert ("Bearer tg-own", '{"feature":"f"}') == (sent["authorization"], sent["x-business-context"])
        assert {"cookie", "x-tidegate-csrf", "x-tidegate-key"}.isdisjoint(sent)


def test_a_refusal_of_the_api_is_passed_on(bench: Bench) -> None:
    """With its status and words; a gateway that is not there is told as such."""
    with ThreadedUpstream(models=("m",)) as api:
        bench.desk.api_url = api.base_url.removesuffix("/v1")
        (bench.directory / "dev-key").write_text("tg-dev\n")
        api.script(rate_limited())
        answer = bench.call("POST", "/admin/playground", QUESTION)
        assert 429 == answer.status_code
        assert "error" in answer.json()
        assert "Bearer tg-dev" == dict(api.requests[-1].headers)["authorization"]
    assert 502 == bench.call("POST", "/admin/playground", QUESTION).status_code


def test_whoever_may_not_watch_any_more_is_shown_no_more(bench: Bench) -> None:
    """A revoked key ends its streams within some beats."""
    headers = [(b"authorization", f"Bearer {bench.reader}".encode())]
    request = Request({"type": "http", "method": "GET", "path": "/admin/events", "headers": headers, "query_string": b""})

    async def scenario() -> int:
        feed = bench.console._feed
        await feed.look()
        seen = 0
        async for _ in bench.console._api._watch(request):
            seen += 1
            if seen == CHECK_EVERY - 2:
                [reader] = [key for key in bench.store.list() if key.name == "reader"]
                bench.store.revoke(reader.key_id, NOW)
            asyncio.get_running_loop().call_soon(asyncio.ensure_future, feed.look())
        return seen

    assert CHECK_EVERY - 1 == asyncio.run(scenario())
