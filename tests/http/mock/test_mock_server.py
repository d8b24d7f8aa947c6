"""The scripted upstream as a server: control endpoints, departures, engine and metrics, cold starts, windows, counted prompts."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import httpx
import pytest
import uvloop
from prometheus_client.parser import text_string_to_metric_families

from tidegate.mock import read_settings
from tidegate.testing import (
    ColdStart,
    EngineSettings,
    MockSettings,
    ReceivedRequest,
    Script,
    ScriptedUpstream,
    ThreadedUpstream,
    Window,
    stall_after,
    uniform,
)

T = TypeVar("T")
CHAT: dict[str, Any] = {"model": "m", "messages": [{"role": "user", "content": "four byte words"}]}
STREAM = CHAT | {"stream": True}


def with_mock(body: Callable[[ScriptedUpstream, httpx.AsyncClient], Awaitable[T]], **arguments: Any) -> T:
    async def main() -> T:
        async with ScriptedUpstream(**arguments) as upstream, httpx.AsyncClient(timeout=5.0) as client:
            client.base_url = upstream.base_url.removesuffix("/v1")
            return await body(upstream, client)

    return uvloop.run(main())


async def accepting(upstream: ScriptedUpstream) -> None:
    """Wait until it listens again."""
    async with asyncio.timeout(5.0):
        while not upstream.statistics()["accepting"]:  # noqa: ASYNC110  no event tells of it
            await asyncio.sleep(0.005)


def said(response: httpx.Response) -> str:
    return str(response.json()["choices"][0]["message"]["content"])


def asking(text: str, **fields: object) -> dict[str, object]:
    return {"model": "m", "messages": [{"role": "user", "content": text}], **fields}


# ── control ──


def test_a_script_can_be_put_while_it_runs() -> None:
    """YAML is followed from then on and shown again; a mistake changes nothing and is named."""

    async def body(upstream: ScriptedUpstream, client: httpx.AsyncClient) -> None:
        assert (
            await client.put("/mock/script", content="default: {pieces: [one]}\nscripts: {m2: {pieces: [two]}}\nmodels: [m2]")
        ).json() == {"scripts": ["m2"]}
        assert said(await client.post("/v1/chat/completions", json=CHAT)) == "one"
        assert said(await client.post("/v1/chat/completions", json=CHAT | {"model": "m2"})) == "two"
        shown = (await client.get("/mock/script")).json()
        assert (shown["default"]["pieces"], shown["models"], shown["api_key"]) == (["one"], ["m2"], None)
        wrong = await client.put("/mock/script", content="default: {falt: x}")
        assert wrong.status_code == 400
        assert 'script:1:11: unknown key "falt" in default (did you mean "fault"?)' in wrong.json()["error"]["message"]
        assert said(await client.post("/v1/chat/completions", json=CHAT)) == "one"
        assert upstream.models == ("m2",)

    with_mock(body)


def test_named_scripts_and_the_queue_can_be_changed() -> None:
    """One entry is set and forgotten; the queue is used up call by call."""

    async def body(_: ScriptedUpstream, client: httpx.AsyncClient) -> None:
        assert (await client.put("/mock/scripts/m", json={"status": 418})).json() == {"scripts": ["m"]}
        assert (await client.post("/v1/chat/completions", json=CHAT)).status_code == 418
        assert (await client.delete("/mock/scripts/m")).json() == {"scripts": []}
        assert (await client.post("/mock/next", json=["503", {"status": 404}])).json() == {"queued": 2}
        assert [(await client.post("/v1/chat/completions", json=CHAT)).status_code for _ in range(3)] == [503, 404, 200]
        assert (await client.put("/mock/scripts/x", json={"statsu": 1})).status_code == 400
        assert "not JSON" in (await client.post("/mock/next", content="[")).json()["error"]["message"]
        assert (await client.post("/mock/nothing")).status_code == 404
        index = (await client.get("/mock")).json()
        assert "GET /mock/requests" in index["paths"]
        assert "stall" in index["faults"]

    with_mock(body)


def test_requests_are_reported_with_what_became_of_them() -> None:
    """An answered call and one whose client left after two chunks: at which piece, how long after."""
    departures: list[str] = []

    async def body(upstream: ScriptedUpstream, client: httpx.AsyncClient) -> None:
        await client.post("/v1/chat/completions", json=asking("[[mock:ok]]"))
        async with client.stream("POST", "/v1/chat/completions", json=asking("[[mock:stall@2]]", stream=True)) as response:
            pieces = response.aiter_raw()
            await anext(pieces)
            await asyncio.sleep(0.05)  # the time that the report must show
        await upstream.wait_for(lambda: upstream.departures == 1, 2.0)
        reports = (await client.get("/mock/requests")).json()["requests"]
        assert [(one["number"], one["ended"], one["script"], one["fault"]) for one in reports] == [
            (1, "answered", "ok", None),
            (2, "client_left", "stall@2", "stall"),
        ]
        assert (reports[1]["pieces"], reports[1]["pieces_sent"], reports[1]["status"]) == (2, 2, 200)
        assert 0.04 <= reports[1]["client_left_after_s"] < 2.0
        assert reports[0]["answered_after_s"] < 1.0
        assert len((await client.get("/mock/requests?ended=client_left")).json()["requests"]) == 1
        assert (await client.get("/mock/requests?limit=1")).json()["requests"][0]["number"] == 2
        assert (await client.get("/mock/requests?limit=x")).status_code == 400
        assert (await client.get("/mock/statistics")).json()["departures"] == 1
        await client.delete("/mock/requests")
        assert (await client.get("/mock/requests")).json() == {"requests": []}

    with_mock(body, default=Script(), on_departure=lambda request: departures.append(request.departure()))
    [line] = departures
    assert line.startswith("client left  #2 POST /v1/chat/completions model=m script=stall@2  after 2 of 2 pieces, ")


@pytest.mark.parametrize("how", ["closed", "backlog"])
def test_a_refusal_by_control_ends_by_itself(how: str) -> None:
    """Connecting fails, or nobody answers; what is open may be broken too; then all is as before."""

    async def body(upstream: ScriptedUpstream, client: httpx.AsyncClient) -> None:
        left = asyncio.ensure_future(client.post("/v1/chat/completions", json=asking("[[mock:hang_before_headers]]")))
        await upstream.wait_for(lambda: len(upstream.requests) == 1, 2.0)
        async with httpx.AsyncClient(timeout=0.1) as other:
            refused = await other.post(f"{client.base_url}/mock/refuse", json={"for_s": 0.4, "how": how, "reset": True})
            assert refused.json() == {"refuses_for_s": 0.4}
            with pytest.raises((httpx.ReadError, httpx.RemoteProtocolError)):
                await left
            assert upstream.departures == 0, "we broke it off, the client did not leave"
            with pytest.raises(httpx.ConnectError if how == "closed" else httpx.ReadTimeout):
                await other.get(f"{client.base_url}/health")
        await accepting(upstream)
        assert (await client.get("/health")).status_code == 200
        assert (await client.post("/mock/refuse", json={"for_s": 0})).status_code == 400

    with_mock(body)


@pytest.mark.parametrize(
    ("control", "local", "status"), [("loopback", True, 200), ("nobody", True, 403), ("loopback", False, 403), ("anyone", False, 200)]
)
def test_who_may_use_the_control_endpoints(control: str, local: bool, status: int) -> None:
    """Loopback only, unless opened; an API key is not asked for there."""

    async def body(upstream: ScriptedUpstream, client: httpx.AsyncClient) -> None:
        assert (await client.get("/v1/models")).status_code == 401
        if local:
            assert (await client.get("/mock")).status_code == status
            return
        request = ReceivedRequest(method="GET", url=b"/mock", headers=[], body=b"", connection=1, reused=False, local=False)
        assert upstream.answer(request).status == status

    with_mock(body, control=control, api_key="sesame")


# ── time ──


def test_a_cold_start_loads_and_then_serves() -> None:
    """503 "Loading model" on every path as llama.cpp, until its time is over; it can begin again."""

    async def body(_: ScriptedUpstream, client: httpx.AsyncClient) -> None:
        loading = [await client.get("/health"), await client.post("/v1/chat/completions", json=CHAT)]
        assert [answer.status_code for answer in loading] == [503, 503]
        assert loading[0].json()["error"]["message"] == "Loading model"
        began = time.monotonic()
        while (await client.get("/health")).status_code == 503:
            assert time.monotonic() - began < 5.0
            await asyncio.sleep(0.01)
        assert (await client.post("/v1/chat/completions", json=CHAT)).status_code == 200
        await client.post("/mock/restart")
        assert (await client.get("/health")).status_code == 503

    with_mock(body, settings=MockSettings(cold_start=ColdStart(for_s=0.3)))


@pytest.mark.parametrize(
    "settings",
    [
        MockSettings(failures=(Window(from_s=0.1, to_s=0.4, play={"fault": "refuse"}),)),
        MockSettings(failures=(Window(from_s=0, to_s=0.3, play="refuse"),)),
        MockSettings(cold_start=ColdStart(for_s=0.3, how="refuse")),
    ],
)
def test_the_port_closes_in_a_window_of_refusal(settings: MockSettings) -> None:
    """It closes at the window's beginning and opens at its end, by itself."""

    async def body(upstream: ScriptedUpstream, client: httpx.AsyncClient) -> None:
        seen: list[bool] = []
        began = time.monotonic()
        while seen[-2:] != [False, True]:
            assert time.monotonic() - began < 5.0
            accepting = bool(upstream.statistics()["accepting"])
            seen += [accepting] if seen[-1:] != [accepting] else []
            await asyncio.sleep(0.005)
        assert (await client.get("/health")).status_code == 200

    with_mock(body, settings=settings)


# ── lengths and counts ──


def test_output_lengths_are_drawn_and_the_same_for_the_same_request() -> None:
    """Made-up words, as many as drawn; the cap cuts with `length`; `ignore_eos` fills it."""

    async def body(_: ScriptedUpstream, client: httpx.AsyncClient) -> None:
        async def ask(**fields: object) -> dict[str, Any]:
            answer = (await client.post("/v1/chat/completions", json=CHAT | fields)).json()
            return {
                "tokens": answer["usage"]["completion_tokens"],
                "finish": answer["choices"][0]["finish_reason"],
                "text": said_in(answer),
            }

        def said_in(answer: dict[str, Any]) -> str:
            return str(answer["choices"][0]["message"]["content"])

        first = await ask()
        assert first == await ask()
        assert 20 <= first["tokens"] <= 40
        lengths = {(await ask(model=f"m{number}"))["tokens"] for number in range(20)}
        assert len(lengths) > 5
        cut = await ask(max_tokens=7)
        assert (cut["tokens"], cut["finish"]) == (7, "length")
        assert first["text"].startswith(cut["text"])
        assert (await ask(max_tokens=100, ignore_eos=True))["tokens"] == 100
        assert (await ask(min_tokens=60))["tokens"] == 60

    with_mock(body, default=Script(output_tokens=uniform(20, 40)))


@pytest.mark.parametrize(
    ("path", "request_body", "tokens"),
    [
        ("/v1/chat/completions", CHAT, 4),
        ("/v1/chat/completions", asking("x") | {"messages": [{"role": "user", "content": [{"type": "text", "text": "12345"}]}]}, 2),
        ("/v1/completions", {"model": "m", "prompt": "12345678"}, 2),
        ("/v1/completions", {"model": "m", "prompt": [1, 2, 3, 4, 5, 6, 7, 8, 9]}, 3),
        ("/v1/embeddings", {"model": "m", "input": ["1234", "1234"]}, 2),
    ],
)
def test_prompts_are_counted_when_asked(path: str, request_body: dict[str, Any], tokens: int) -> None:
    """`prompt_tokens: null` counts the text by `bytes_per_token`, as `/tokenize` does."""

    async def body(_: ScriptedUpstream, client: httpx.AsyncClient) -> None:
        assert (await client.post(path, json=request_body)).json()["usage"]["prompt_tokens"] == tokens
        counted = (await client.post("/tokenize", json={"prompt": "12345"})).json()
        assert (counted["count"], len(counted["tokens"]), counted["max_model_len"]) == (2, 2, 99)

    with_mock(body, settings=MockSettings(default=Script(prompt_tokens=None), bytes_per_token=4, context_tokens=99))


@pytest.mark.parametrize(
    "request_body",
    [{}, {"messages": 3}, {"messages": [3]}, {"n": "x", "max_tokens": "y", "stream_options": 1}, {"messages": [], "n": -1}, {"n": 10**9}],
)
def test_odd_requests_are_answered(request_body: dict[str, Any]) -> None:
    """Being strict is the gateway's business: nothing a client sends breaks the mock."""

    async def body(_: ScriptedUpstream, client: httpx.AsyncClient) -> None:
        for path in ("/v1/chat/completions", "/v1/completions", "/v1/embeddings"):
            assert (await client.post(path, json=request_body)).status_code == 200
            assert (await client.post(path, content=b"[1")).status_code == 400
        assert (await client.post("/tokenize", content=b"[")).status_code == 400

    with_mock(body)


def test_an_offer_of_another_protocol_is_ignored() -> None:
    """A client that offers HTTP/2 in clear text gets its answer in HTTP/1.1."""

    async def body(_: ScriptedUpstream, client: httpx.AsyncClient) -> int:
        offer = {"upgrade": "h2c", "connection": "upgrade, http2-settings", "http2-settings": "AAMAAABkAAQAAP__"}
        return (await client.get("/health", headers=offer)).status_code

    assert with_mock(body) == 200


def test_an_unknown_marker_is_answered_with_what_was_meant() -> None:
    """400 with the nearest name, not a healthy answer."""

    async def body(_: ScriptedUpstream, client: httpx.AsyncClient) -> str:
        answer = await client.post("/v1/chat/completions", json=asking("[[mock:stal@3]]"))
        assert answer.status_code == 400
        return str(answer.json()["error"]["message"])

    assert 'did you mean "stall"?' in with_mock(body)


def test_an_echo_leaves_the_marker_out() -> None:
    """What comes back is the text around it."""

    async def body(_: ScriptedUpstream, client: httpx.AsyncClient) -> str:
        return said(await client.post("/v1/chat/completions", json=asking('say [[mock:{"echo": true}]] this')))

    assert with_mock(body) == "say  this"


# ── engine and metrics ──

ENGINE = EngineSettings(decode_tokens_per_s=400, single_tokens_per_s=200, batch=4, prefill_tokens_per_s=10_000, max_waiting=2)


def test_load_slows_the_engine_and_the_total_stays_within_its_speed() -> None:
    """Twelve streams of 20 tokens: each slower than one alone, and never more than 400 tokens per second in all."""

    async def body(_: ScriptedUpstream, client: httpx.AsyncClient) -> tuple[float, float]:
        async def call(stream: bool) -> None:
            answer = await client.post("/v1/chat/completions", json=STREAM if stream else CHAT)
            assert answer.status_code == 200

        began = time.monotonic()
        await call(stream=True)
        alone = time.monotonic() - began
        began = time.monotonic()
        await asyncio.gather(*(call(stream=number % 2 == 0) for number in range(6)))
        return alone, time.monotonic() - began

    alone, together = with_mock(body, settings=MockSettings(engine=ENGINE, default=Script(output_tokens=20)))
    assert alone >= 20 / 200 * 0.95
    assert together >= 6 * 20 / 400 * 0.9
    assert together > alone * 1.5


def test_metrics_show_the_engine_under_vllms_names() -> None:
    """Running, waiting and cache while streams are under way; counters and histograms afterwards."""
    settings = MockSettings(engine=ENGINE, default=Script(output_tokens=30, prompt_tokens=100, cached_tokens=10), models=("qwen",))

    async def body(upstream: ScriptedUpstream, client: httpx.AsyncClient) -> None:
        async def metrics() -> dict[str, float]:
            page = await client.get("/metrics")
            assert page.headers["content-type"].startswith("text/plain")
            samples = [sample for family in text_string_to_metric_families(page.text) for sample in family.samples]
            assert all(sample.labels["model_name"] == "qwen" for sample in samples)
            return {f"{sample.name}{sample.labels.get('finished_reason', '')}": sample.value for sample in samples}

        calls = [asyncio.ensure_future(client.post("/v1/chat/completions", json=STREAM)) for _ in range(5)]
        left = asyncio.ensure_future(client.post("/v1/chat/completions", json=STREAM | {"model": "left"}))
        await upstream.wait_for(lambda: len(upstream.requests) == 6, 2.0)
        refused = await client.post("/v1/chat/completions", json=CHAT)
        busy = await metrics()
        while busy["vllm:num_requests_running"] < 4:  # those that came during a step join at its end
            busy = await metrics()
        assert refused.status_code == 503
        assert (busy["vllm:num_requests_running"], busy["vllm:num_requests_waiting"]) == (4, 2)
        assert 0 < busy["vllm:kv_cache_usage_perc"] < 1
        left.cancel()
        await asyncio.gather(*calls)
        await upstream.wait_for(lambda: all(request.answered_at or request.client_left_at for request in upstream.requests), 2.0)
        idle = await metrics()
        assert (idle["vllm:num_requests_running"], idle["vllm:num_requests_waiting"], idle["vllm:kv_cache_usage_perc"]) == (0, 0, 0)
        assert idle["vllm:generation_tokens_total"] >= 150
        assert idle["vllm:request_success_totalstop"] == 5
        assert idle["vllm:request_success_totalabort"] == 1
        assert idle["vllm:time_to_first_token_seconds_count"] >= 5
        assert idle["vllm:inter_token_latency_seconds_count"] >= 5 * 29
        assert idle["vllm:prefix_cache_hits_total"] == 60

    with_mock(body, settings=settings)


def test_an_overfull_engine_refuses() -> None:
    """Beyond batch and waiting room: 503."""

    async def body(_: ScriptedUpstream, client: httpx.AsyncClient) -> list[int]:
        calls = [asyncio.ensure_future(client.post("/v1/chat/completions", json=CHAT)) for _ in range(12)]
        return sorted([answer.status_code for answer in await asyncio.gather(*calls)])

    statuses = with_mock(body, settings=MockSettings(engine=ENGINE, default=Script(output_tokens=30)))
    assert statuses == [200] * 6 + [503] * 6


def test_metrics_without_an_engine() -> None:
    """What is being answered counts as running."""

    async def body(upstream: ScriptedUpstream, client: httpx.AsyncClient) -> float:
        left = asyncio.ensure_future(client.post("/v1/chat/completions", json=STREAM))
        await upstream.wait_for(lambda: len(upstream.requests) == 1, 2.0)
        page = (await client.get("/metrics")).text
        left.cancel()
        [running] = [
            family.samples[0].value for family in text_string_to_metric_families(page) if family.name == "vllm:num_requests_running"
        ]
        return running

    assert with_mock(body, default=Script(fault=stall_after(2))) == 1


def test_embeddings_wait_for_the_prompt_to_be_read() -> None:
    """With an engine an answer without output takes the time of its prompt."""

    async def body(_: ScriptedUpstream, client: httpx.AsyncClient) -> float:
        began = time.monotonic()
        assert (await client.post("/v1/embeddings", json={"model": "m", "input": "x"})).status_code == 200
        return time.monotonic() - began

    assert with_mock(body, settings=MockSettings(engine=ENGINE, default=Script(prompt_tokens=1000))) >= 0.09


def test_a_threaded_mock_follows_a_script_file() -> None:
    """`settings` and `load`, and a timed refusal, from another thread."""
    settings = read_settings("default: {pieces: [file]}\nmodels: [a]")
    assert isinstance(settings, MockSettings)
    with ThreadedUpstream(settings=settings) as upstream, httpx.Client(base_url=upstream.base_url, timeout=2.0) as client:
        assert said(client.post("/chat/completions", json=CHAT)) == "file"
        upstream.load(MockSettings(default=Script(pieces=("loaded",))))
        assert said(client.post("/chat/completions", json=CHAT)) == "loaded"
        upstream.refuse_for(0.2)
        upstream.wait_for(lambda: upstream.open_connections == 0, 1.0)
        with pytest.raises(httpx.ConnectError):
            client.get("/models")


def test_a_threaded_mock_returns_to_its_settings_of_the_start() -> None:
    """`reset` takes back everything that was loaded, set, queued or named since: default, scripts, models, windows and the closed port."""
    settings = read_settings("default: {pieces: [file]}\nscripts: {m2: {pieces: [named]}}\nmodels: [m, m2]")
    assert isinstance(settings, MockSettings)
    with ThreadedUpstream(settings=settings) as upstream, httpx.Client(base_url=upstream.base_url, timeout=2.0) as client:
        upstream.load(MockSettings(default=Script(pieces=("loaded",)), models=("x",), failures=(Window(play="500"),)))
        upstream.set_default(Script(pieces=("set",)))
        upstream.script(Script(pieces=("queued",)))
        upstream.scripts["m"] = Script(pieces=("since",))
        upstream.refuse()
        upstream.reset()
        assert said(client.post("/chat/completions", json=CHAT)) == "file"
        assert said(client.post("/chat/completions", json=CHAT | {"model": "m2"})) == "named"
        assert [model["id"] for model in client.get("/models").json()["data"]] == ["m", "m2"]
        assert [request.status for request in upstream.requests] == [200, 200, 200]


def test_a_port_that_is_taken_is_taken_back_when_it_is_free() -> None:
    """A refusal whose port somebody else has meanwhile ends when they let go."""

    async def body(upstream: ScriptedUpstream, client: httpx.AsyncClient) -> None:
        port = int(upstream.base_url.rsplit(":", 1)[1].removesuffix("/v1"))
        upstream.refuse_for(0.1)
        thief = await asyncio.start_server(lambda *_: None, "127.0.0.1", port)
        await asyncio.sleep(0.25)
        assert not upstream.statistics()["accepting"]
        thief.close()
        await accepting(upstream)
        assert (await client.get("/health")).status_code == 200

    with_mock(body)


def test_the_key_is_not_shown() -> None:
    """`GET /mock/script` says that there is a key, not which."""

    async def body(_: ScriptedUpstream, client: httpx.AsyncClient) -> httpx.Response:
        return await client.get("/mock/script")

    shown = with_mock(body, api_key="sesame")
    assert shown.json()["api_key"] == "****"
    assert "sesame" not in shown.text
