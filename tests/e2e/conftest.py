"""One gateway process and one scripted upstream for the whole end-to-end part."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack

import openai
import pytest

from tidegate.domain.principal import Limits
from tidegate.domain.units import Secret
from tidegate.testing import Endpoint, GatewayProcess, ThreadedUpstream

UPSTREAM_KEY = "sk-upstream-canary"
HEALTHY = ("scripted", "second", "say-tools", "say-reasoning", "say-long")
SICK = ("limited", "busy", "broken", "cut", "hanging", "mute", "stalling", "strange", "picky", "locked")
"""Models that tests make fail; each is an upstream of its own, so that setting one aside touches no other test."""


@pytest.fixture(autouse=True)
def _no_proxies(monkeypatch: pytest.MonkeyPatch) -> None:
    """SDKs follow proxy variables, and every address here is this machine's."""
    for name in ("http_proxy", "https_proxy", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)


@pytest.fixture(scope="session")
def upstream_server() -> Iterator[ThreadedUpstream]:
    with ThreadedUpstream(models=(*HEALTHY, *SICK), api_key=UPSTREAM_KEY) as server:
        yield server


@pytest.fixture
def upstream(upstream_server: ThreadedUpstream) -> ThreadedUpstream:
    """The session's upstream, healthy, with nothing scripted and nothing received."""
    upstream_server.reset()
    return upstream_server


def configuration(upstream_base_url: str) -> dict[str, object]:
    """All models on one scripted server, through several upstreams; `down` is where nothing listens."""
    timeouts = {"connect_s": 5.0, "first_byte_s": 1.0, "first_token_s": 1.0, "stall_s": 1.0, "total_s": 10.0}
    health = {"enabled": False}  # what the server received is what tests sent, and `down` is found out by calls
    same = {"dialect": "openai", "base_url": upstream_base_url, "api_key": UPSTREAM_KEY, "timeouts": timeouts, "health": health}
    upstreams: dict[str, object] = {"healthy": same | {"models": list(HEALTHY)}}
    upstreams |= {f"{model}-server": same | {"models": [model]} for model in SICK}
    upstreams["locked-server"] = same | {"models": ["locked"], "api_key": "sk-not-the-upstreams-key"}
    upstreams["down-server"] = same | {"models": ["down"], "base_url": "http://127.0.0.1:9/v1"}
    return {"upstreams": upstreams, "server": {"drain_timeout_s": 2.0}}


@pytest.fixture(scope="session")
def gateway(upstream_server: ThreadedUpstream) -> Iterator[GatewayProcess]:
    with GatewayProcess(configuration(upstream_server.base_url)) as process:
        yield process


@pytest.fixture(scope="session")
def keys(gateway: GatewayProcess) -> dict[str, Secret]:
    """API keys by what they may do: `metered` has limits that no test reaches, `single` one request a minute."""
    made = {
        "free": gateway.create_key(name="free"),
        "metered": gateway.create_key(name="metered", limits=Limits(tokens_per_minute=1_000_000, requests_per_minute=5000)),
        "second-only": gateway.create_key(name="second-only", models=("second",)),
        "single": gateway.create_key(name="single", limits=Limits(requests_per_minute=1)),
    }
    gateway.wait_for_key(made["free"])
    gateway.wait_for_key(made["second-only"])
    return made


@pytest.fixture
def through(gateway: GatewayProcess, keys: dict[str, Secret]) -> Endpoint:
    """The gateway, with a key that may do everything."""
    return gateway.endpoint(keys["free"])


@pytest.fixture(params=["direct", "gateway"])
def endpoint(request: pytest.FixtureRequest, upstream: ThreadedUpstream) -> Endpoint:
    """Both ends of the promise: what works against the upstream itself works the same through the gateway."""
    if request.param == "direct":
        return upstream.endpoint
    through: Endpoint = request.getfixturevalue("through")
    return through


@pytest.fixture
def sdk() -> Iterator[Callable[[Endpoint], openai.OpenAI]]:
    """Make clients that are closed after the test."""
    with ExitStack() as stack:

        def make(endpoint: Endpoint) -> openai.OpenAI:
            made = openai.OpenAI(base_url=endpoint.base_url, api_key=endpoint.api_key.reveal(), max_retries=0, timeout=10.0)
            return stack.enter_context(made)

        yield make


@pytest.fixture
def client(endpoint: Endpoint, sdk: Callable[[Endpoint], openai.OpenAI]) -> openai.OpenAI:
    return sdk(endpoint)


@pytest.fixture
def gateway_client(through: Endpoint, upstream: ThreadedUpstream, sdk: Callable[[Endpoint], openai.OpenAI]) -> openai.OpenAI:
    """A client of the gateway, for stories that only it can tell; nothing is scripted yet."""
    del upstream
    return sdk(through)
