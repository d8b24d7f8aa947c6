"""The gateways that ours is measured beside: how each is started, and how much load it can take.

Each is a context manager that gives a `Subject`; `all_subjects` starts them beside Tidegate. A peer that cannot be installed or started
is left out, and why is told with the results.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from http import HTTPStatus
from pathlib import Path

from benchmarks.content import MODEL, PATH, chat_body, stream_number
from benchmarks.errors import BenchmarkError
from benchmarks.install import NGINX
from benchmarks.machine import Cores, pinned
from benchmarks.options import Options
from benchmarks.processes import free_port, post, running
from benchmarks.subjects import Load, Subject, answering, nginx, tidegate

_KEY = "sk-bench"
_LITELLM_LOAD = Load(connections=4, streams=8, held_streams=100)
"""A request takes it 10 to 30 ms of a core and a chunk more than 1 ms: 8 streams of 50 chunks a second are half of what it can do."""
_PORTKEY_LOAD = Load(connections=16, streams=50, held_streams=500)


@dataclass(frozen=True)
class Site:
    """Where a peer is started: what its files are written to, what it relays to, on which cores."""

    directory: Path
    upstream_port: int
    cores: Cores
    streams: bool = False
    """Whether it will be asked for streams; one that cannot give them is left out."""


@contextlib.contextmanager
def nginx_proxy(_: Path, site: Site) -> Iterator[Subject]:
    """nginx as a plain reverse proxy with kept upstream connections."""
    port = free_port()
    server = f"""
    upstream bench {{ server 127.0.0.1:{site.upstream_port}; keepalive 512; keepalive_requests 100000000; }}
    server {{
      listen 127.0.0.1:{port} backlog=4096;
      location / {{ proxy_pass http://bench; proxy_http_version 1.1; proxy_set_header Connection ""; proxy_buffering off; }}
    }}"""
    with nginx(site.directory, "proxy", server, site.cores.gateway) as (pid, log):
        yield answering(Subject("nginx", port, pid=pid), log)


@contextlib.contextmanager
def envoy(command: Path, site: Site) -> Iterator[Subject]:
    """Envoy as a plain reverse proxy with one worker thread; its bounds on connections and time are out of the way."""
    port = free_port()
    router = {"name": "envoy.filters.http.router", "typed_config": {"@type": _envoy_type("filters.http.router.v3.Router")}}
    route = {"match": {"prefix": "/"}, "route": {"cluster": "bench", "timeout": "0s"}}
    connections = {
        "@type": _envoy_type("filters.network.http_connection_manager.v3.HttpConnectionManager"),
        "stat_prefix": "bench",
        "stream_idle_timeout": "0s",
        "http_filters": [router],
        "route_config": {"virtual_hosts": [{"name": "bench", "domains": ["*"], "routes": [route]}]},
    }
    chain = {"filters": [{"name": "envoy.filters.network.http_connection_manager", "typed_config": connections}]}
    endpoint = {"lb_endpoints": [{"endpoint": {"address": _envoy_address(site.upstream_port)}}]}
    bounds = {"max_connections": 20_000, "max_pending_requests": 20_000, "max_requests": 20_000}
    cluster = {
        "name": "bench",
        "type": "STATIC",
        "connect_timeout": "5s",
        "circuit_breakers": {"thresholds": [bounds]},
        "load_assignment": {"cluster_name": "bench", "endpoints": [endpoint]},
    }
    listener = {"name": "bench", "address": _envoy_address(port), "filter_chains": [chain]}
    configuration = site.directory / "envoy.json"
    configuration.write_text(json.dumps({"static_resources": {"listeners": [listener], "clusters": [cluster]}}))
    arguments = ("-c", str(configuration), "--concurrency", "1", "--use-dynamic-base-id", "--log-level", "warning")
    with _started(Subject("envoy", port), site, (str(command), *arguments)) as subject:
        yield subject


@contextlib.contextmanager
def vllm_router(command: Path, site: Site) -> Iterator[Subject]:
    """vllm-router in front of one server, taking turns."""
    port = free_port()
    arguments = (*_router_arguments(port, site), "--max-concurrent-requests", "100000")
    with _started(Subject("vllm-router", port), site, (str(command), *arguments)) as subject:
        yield subject


@contextlib.contextmanager
def sglang_router(command: Path, site: Site) -> Iterator[Subject]:
    """sglang-router in front of one server, taking turns."""
    port = free_port()
    with _started(Subject("sglang-router", port), site, (str(command), "launch", *_router_arguments(port, site))) as subject:
        yield subject


@contextlib.contextmanager
def litellm(command: Path, site: Site) -> Iterator[Subject]:
    """LiteLLM's proxy with one worker and a master key, in its production mode, logging errors only, and without a database."""
    port = free_port()
    target = {"model": f"openai/{MODEL}", "api_base": f"http://127.0.0.1:{site.upstream_port}/v1", "api_key": "sk-none"}
    configuration = site.directory / "litellm.json"
    models = [{"model_name": MODEL, "litellm_params": target}]
    configuration.write_text(json.dumps({"model_list": models, "general_settings": {"master_key": _KEY}}))
    environment = {
        "HOME": str(site.directory),
        "LITELLM_MODE": "PRODUCTION",
        "LITELLM_LOG": "ERROR",
        "LITELLM_LOCAL_MODEL_COST_MAP": "True",  # the other is fetched from outside
    }
    arguments = ("--config", str(configuration), "--host", "127.0.0.1", "--port", str(port), "--num_workers", "1", "--telemetry", "False")
    subject = Subject("litellm", port, key=_KEY, load=_LITELLM_LOAD)
    with _started(subject, site, (str(command), *arguments), environment) as running_subject:
        yield running_subject


@contextlib.contextmanager
def portkey(command: Path, site: Site) -> Iterator[Subject]:
    """Portkey's open gateway, told by headers of each request which upstream it is for."""
    port = free_port()
    more = {"x-portkey-provider": "openai", "x-portkey-custom-host": f"http://127.0.0.1:{site.upstream_port}/v1"}
    subject = Subject("portkey", port, load=_PORTKEY_LOAD, more_headers=more)
    environment = {"NODE_ENV": "production", "HOME": str(site.directory)}
    with _started(subject, site, (str(command), "--headless", f"--port={port}"), environment) as running_subject:
        yield running_subject


PEERS: dict[str, Callable[[Path, Site], AbstractContextManager[Subject]]] = {
    NGINX: nginx_proxy,
    "envoy": envoy,
    "vllm-router": vllm_router,
    "sglang-router": sglang_router,
    "litellm": litellm,
    "portkey": portkey,
}


@contextlib.contextmanager
def all_subjects(options: Options, site: Site, absent: dict[str, str]) -> Iterator[list[Subject]]:
    """Ours (each variant) and the peers; why one could not be started is put into `absent`."""
    with contextlib.ExitStack() as stack:
        subjects = [stack.enter_context(tidegate(variant, site.upstream_port, site.cores)) for variant in options.variants]
        for name, command in options.peers.items():
            try:
                subjects.append(stack.enter_context(peer(name, command, site)))
            except (BenchmarkError, OSError) as problem:
                absent[name] = str(problem)
        yield subjects


@contextlib.contextmanager
def peer(name: str, command: Path, site: Site) -> Iterator[Subject]:
    """Start one peer; see that it streams, where it must."""
    with PEERS[name](command, site) as subject:
        if site.streams:
            status, answer = post(subject.port, PATH, subject.headers, chat_body(stream=True).numbered(stream_number(1, 2)))
            if status != HTTPStatus.OK or b"[DONE]" not in answer:
                raise BenchmarkError(f"it answers a request for a stream with status {status}: {answer[:120]!r}")
        yield subject


@contextlib.contextmanager
def _started(subject: Subject, site: Site, command: tuple[str, ...], environment: Mapping[str, str] | None = None) -> Iterator[Subject]:
    """Run a peer on the gateway's cores; give it with its process once it answers."""
    log = site.directory / f"{subject.name}.log"
    with running((*pinned(site.cores.gateway), *command), log=log, environment=environment) as process:
        yield answering(replace(subject, pid=process.pid), log)


def _router_arguments(port: int, site: Site) -> tuple[str, ...]:
    """Give the options that vllm-router and sglang-router share."""
    address = ("--host", "127.0.0.1", "--port", str(port), "--prometheus-port", str(free_port()))
    return (*address, "--policy", "round_robin", "--worker-urls", f"http://127.0.0.1:{site.upstream_port}")


def _envoy_address(port: int) -> dict[str, object]:
    return {"socket_address": {"address": "127.0.0.1", "port_value": port}}


def _envoy_type(name: str) -> str:
    return f"type.googleapis.com/envoy.extensions.{name}"
