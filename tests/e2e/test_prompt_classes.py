"""A model that fails at one kind of prompt: that kind goes to the fallback, marked, until the model can answer it again."""

from __future__ import annotations

import http.server
import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import openai

from tidegate.testing import GatewayProcess

TABLE = "Sum this up.\n\n| name | amount |\n|------|--------|\n| a | 1 |\n| b | 2 |\n| c | 3 |\n"
PLAIN = "Tell me a story about the sea, please."
DIVERTED = "L1; reason=prompt_class; class=table; confidence=low"


class _Model(http.server.BaseHTTPRequestHandler):
    """Answers with the model's name; while `sick`, the large one fails at tables."""

    sick = True

    def do_POST(self) -> None:
        request = json.loads(self.rfile.read(int(self.headers["content-length"])))
        fails = _Model.sick and request["model"] == "large" and "|---" in request["messages"][-1]["content"]
        message = {"role": "assistant", "content": request["model"]}
        answer: dict[str, object] = {"choices": [{"index": 0, "message": message, "finish_reason": "stop"}]}
        answer |= {"id": "c", "object": "chat.completion", "created": 1, "model": request["model"]}
        body = json.dumps({"error": {"message": "out of memory", "code": 500}} if fails else answer).encode()
        self.send_response(500 if fails else 200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None: ...


@contextmanager
def model_server() -> Iterator[str]:
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Model)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/v1"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def ask(client: openai.OpenAI, prompt: str) -> tuple[str | None, str | None]:
    """Give which model answered and what the header says of it; the status and None for an error."""
    try:
        raw = client.chat.completions.with_raw_response.create(model="large", messages=[{"role": "user", "content": prompt}])
    except openai.InternalServerError as error:
        return str(error.status_code), None
    return raw.parse().choices[0].message.content, raw.headers.get("x-tidegate-degraded")


def test_a_failing_kind_of_prompt_is_diverted_and_comes_back() -> None:
    """Plain prompts never leave the large model; tables do after a few failures, and return to it when it is well."""
    _Model.sick = True
    with model_server() as base_url:
        same = {"dialect": "openai", "base_url": base_url, "breaker": {"enabled": False}, "health": {"enabled": False}}
        classes = {"fallback": {"upstream": "small", "model": "small"}, "min_calls": 5, "recover_after_s": 0.5}
        settings = {
            "upstreams": {"large": same, "small": same},
            "routes": [{"model": "large", "targets": [{"upstream": "large"}], "classes": classes}],
            "retry": {"max_attempts": 1},
        }
        with GatewayProcess(settings) as gateway:
            key = gateway.create_key()
            gateway.wait_for_key(key)
            with openai.OpenAI(base_url=gateway.base_url, api_key=key.reveal(), max_retries=0, timeout=10.0) as client:
                assert {("large", None)} == {ask(client, PLAIN) for _ in range(20)}
                failures = 0
                while (answer := ask(client, TABLE)) == ("502", None):
                    failures += 1
                    assert failures <= 10
                assert ("small", DIVERTED) == answer
                assert failures >= 5
                assert ("large", None) == ask(client, PLAIN)
                _Model.sick = False
                until = time.monotonic() + 10.0
                while (answer := ask(client, TABLE)) != ("large", None):
                    assert ("small", DIVERTED) == answer
                    assert time.monotonic() < until, "tables stayed with the fallback"
                    time.sleep(0.05)
                assert {("large", None)} == {ask(client, TABLE) for _ in range(3)}
