"""A reload while a request waits to be tried again: it keeps the configuration it began with, to its end."""

from __future__ import annotations

import os
import signal
import threading
import time

import openai

from tidegate.testing import GatewayProcess, RetryAfter, Script, ThreadedUpstream


def test_a_request_that_pauses_before_a_retry_survives_a_reload() -> None:
    """Its pools are not closed under it: between two attempts it holds no connection, and still needs one.

    The answer says that it took two.
    """
    with ThreadedUpstream(models=("m",)) as upstream:
        settings = {
            "upstreams": {"only": {"dialect": "openai", "base_url": upstream.base_url, "models": ["m"], "health": {"enabled": False}}},
            "retry": {"max_retry_after_s": 5.0},
        }
        with GatewayProcess(settings) as process:
            key = process.create_key()
            process.wait_for_key(key)
            upstream.script(Script(retry_after=RetryAfter(after_s=2.0)), Script())
            answers: list[tuple[str | None, str | None]] = []

            def ask() -> None:
                with openai.OpenAI(base_url=process.base_url, api_key=key.reveal(), max_retries=0, timeout=20.0) as client:
                    raw = client.chat.completions.with_raw_response.create(model="m", messages=[{"role": "user", "content": "hi"}])
                    answers.append((raw.parse().choices[0].message.content, raw.headers.get("x-tidegate-attempts")))

            asking = threading.Thread(target=ask)
            asking.start()
            until = time.monotonic() + 10.0
            while len(upstream.requests) < 1:
                assert time.monotonic() < until, "the first attempt did not come"
                time.sleep(0.01)
            os.kill(process.pid, signal.SIGHUP)
            while "configuration.reloaded" not in process.log():
                assert time.monotonic() < until, "the reload did not happen"
                time.sleep(0.01)
            asking.join(15.0)
            assert answers == [("Hello, wide world.", "2")]
