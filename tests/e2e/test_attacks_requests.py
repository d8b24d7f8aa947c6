"""Hostile clients at the real port: what one of them sends reaches nobody else, and each is told what is wrong."""

from __future__ import annotations

import asyncio
import gzip
import itertools
import json
import re
import urllib.parse
from collections.abc import Iterator

import pytest

from tidegate.testing import Endpoint, GatewayProcess, Script, ThreadedUpstream
from tidegate.testing.raw_http import RawResponse, raw_client

MESSAGES = [{"role": "user", "content": "hi"}]
CHAT = {"model": "scripted", "messages": MESSAGES}
INVENTED = 300


@pytest.fixture(scope="module")
def impatient(upstream_server: ThreadedUpstream) -> Iterator[GatewayProcess]:
    """A gateway that waits for half a second where others wait for minutes."""
    server = {"idle_timeout_s": 0.5, "header_timeout_s": 0.5, "body_timeout_s": 0.5, "drain_timeout_s": 1.0}
    upstreams = {"main": {"dialect": "openai", "base_url": upstream_server.base_url, "models": ["scripted"]}}
    with GatewayProcess({"upstreams": upstreams, "server": server}) as process:
        yield process


def port_of(address: str) -> int:
    port = urllib.parse.urlsplit(address).port
    assert port is not None
    return port


def post(key: str, body: dict[str, object] | bytes, *fields: str, path: str = "/v1/chat/completions") -> bytes:
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    head = [f"POST {path} HTTP/1.1", "host: x", f"authorization: Bearer {key}", f"content-length: {len(content)}", *fields]
    return ("\r\n".join(head) + "\r\n\r\n").encode() + content


def get(path: str, *fields: str) -> bytes:
    return ("\r\n".join([f"GET {path} HTTP/1.1", "host: x", *fields]) + "\r\n\r\n").encode()


def send_all(address: str, requests: list[bytes]) -> list[RawResponse]:
    """Send all in one write over one connection; give the answers in order."""

    async def main() -> list[RawResponse]:
        async with raw_client(port_of(address)) as client:
            client.send(b"".join(requests))
            return [await client.read_response() for _ in requests]

    return asyncio.run(main())


def code(response: RawResponse) -> str:
    found: str = json.loads(response.body)["error"]["code"]
    return found


def test_pipelined_requests_keep_their_own_identity(gateway: GatewayProcess, through: Endpoint, upstream: ThreadedUpstream) -> None:
    """Keys do not rub off on the next request of a connection: each is judged by its own."""
    upstream.set_default(Script(echo=True))
    narrow = gateway.create_key(name="narrow", models=("none",))
    gateway.wait_for_key(narrow)
    keys = [through.api_key.reveal(), narrow.reveal(), "tg-unknown", through.api_key.reveal()] * 10
    texts = [f"<{number}>" for number in range(len(keys))]
    bodies: list[dict[str, object]] = [{"model": "scripted", "messages": [{"role": "user", "content": text}]} for text in texts]

    answers = send_all(gateway.api_url, [post(key, body) for key, body in zip(keys, bodies, strict=True)])

    assert [200, 403, 401, 200] * 10 == [answer.status for answer in answers]
    assert all(text.encode() in answer.body for text, answer in zip(texts, answers, strict=True) if answer.status == 200)


def test_tenants_at_the_same_time_get_their_own_answers(gateway: GatewayProcess, upstream: ThreadedUpstream) -> None:
    """No token of one tenant's stream appears in another's."""
    upstream.set_default(Script(echo=True, per_token_s=0.002))
    keys = [gateway.create_key(name=name, tenant=name).reveal() for name in ("ocean", "river")]
    waiting = gateway.create_key(name="waiting")
    gateway.wait_for_key(waiting)

    async def play(number: int) -> bytes:
        words = " ".join([f"<{number}>"] * 20)
        async with raw_client(port_of(gateway.api_url)) as client:
            body = {"model": "scripted", "stream": True, "messages": [{"role": "user", "content": words}]}
            client.send(post(keys[number % 2], body))
            return (await client.read_response()).body

    async def main() -> list[bytes]:
        return await asyncio.gather(*(play(number) for number in range(60)))

    for number, body in enumerate(asyncio.run(main())):
        assert [str(number).encode()] * 20 == re.findall(rb"<(\d+)>", body)


def test_a_compressed_body_is_refused_by_its_name(gateway: GatewayProcess, through: Endpoint, upstream: ThreadedUpstream) -> None:
    """415 with the reason, not a complaint about byte 1; the connection goes on only when nothing is left to misread."""
    del upstream
    packed = gzip.compress(json.dumps(CHAT).encode())
    (refused,) = send_all(gateway.api_url, [post(through.api_key.reveal(), packed, "content-encoding: gzip")])
    (plain,) = send_all(gateway.api_url, [post(through.api_key.reveal(), dict(CHAT), "content-encoding: identity")])

    assert (415, 200) == (refused.status, plain.status)
    assert b"content-encoding" in refused.body
    assert b"uncompressed" in refused.body


def test_a_body_with_a_million_members_or_prompts_is_refused_and_holds_nobody_up(
    gateway: GatewayProcess, through: Endpoint, upstream: ThreadedUpstream
) -> None:
    """Shapes that take seconds to build as Python values are refused before they are built."""
    del upstream
    key = through.api_key.reveal()
    members = b'{"model":"scripted","messages":[{"role":"user","content":"hi"}]' + b"".join(b',"k%d":1' % n for n in range(100_000)) + b"}"
    lists = b'{"model":"scripted","input":[' + b",".join([b"[1]"] * 1_000_000) + b"]}"

    async def main() -> tuple[RawResponse, float]:
        loop = asyncio.get_running_loop()
        async with raw_client(port_of(gateway.api_url)) as hostile, raw_client(port_of(gateway.api_url)) as watching:
            hostile.send(post(key, lists, path="/v1/embeddings"))
            answer = asyncio.create_task(hostile.read_response())
            slowest = 0.0
            while not answer.done():
                began = loop.time()
                watching.send(get("/livez"))
                await watching.read_response()
                slowest = max(slowest, loop.time() - began)
            return await answer, slowest

    too_many, slowest_s = asyncio.run(main())
    (too_wide,) = send_all(gateway.api_url, [post(key, members)])

    assert [(400, "invalid_parameter")] * 2 == [(answer.status, code(answer)) for answer in (too_many, too_wide)]
    assert b"10000" in too_many.body
    assert b"1000" in too_wide.body
    assert slowest_s < 0.25, f"/livez took {slowest_s:.3f} s beside a body of {len(lists)} bytes"


def test_empty_lines_keep_no_connection_open(impatient: GatewayProcess) -> None:
    """A client that drips CR and LF one by one is idle, and closed like one."""

    async def main() -> float:
        loop = asyncio.get_running_loop()
        async with raw_client(port_of(impatient.api_url)) as client:
            began = loop.time()
            closed = asyncio.create_task(client.read_to_end())
            for piece in itertools.cycle((b"\r", b"\n")):
                client.send(piece)
                await asyncio.wait([closed], timeout=0.02)
                if closed.done():
                    return loop.time() - began
                assert loop.time() - began < 4.0, "the connection is still open"
        raise AssertionError("unreachable")

    assert asyncio.run(main()) < 3.0


def test_invented_models_and_paths_add_no_metric_series(gateway: GatewayProcess, through: Endpoint, upstream: ThreadedUpstream) -> None:
    """Names that clients choose never become labels."""
    del upstream
    key = through.api_key.reveal()
    first: dict[str, object] = {"model": "invented", "messages": MESSAGES}
    send_all(gateway.api_url, [post(key, first), get("/invented"), get("/v1/models/invented", f"authorization: Bearer {key}")])
    before = series(gateway.metrics())

    requests = [post(key, {"model": f"invented-{number}", "messages": MESSAGES}) for number in range(INVENTED)]
    requests += [get(f"/invented-{number}", f"x-request-id: invented-{number}") for number in range(INVENTED)]
    requests += [get(f"/v1/models/invented-{number}", f"authorization: Bearer {key}") for number in range(INVENTED)]
    answers = [answer for start in range(0, len(requests), 100) for answer in send_all(gateway.api_url, requests[start : start + 100])]

    assert {404} == {answer.status for answer in answers}
    assert before == series(gateway.metrics())


def series(page: str) -> set[str]:
    return {line.rpartition(" ")[0] for line in page.splitlines() if line and not line.startswith("#")}
