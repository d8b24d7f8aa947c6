"""Starts what is measured: Tidegate with everything on, and the upstreams behind it and the peers (`benchmarks.peers`).

A `Subject` is somewhere to send a request and, but for `direct`, a family of processes whose cost is measured. All stay up during a
measurement, so that rounds can alternate; one that is not being asked uses next to nothing.
"""

from __future__ import annotations

import contextlib
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.content import PATH, Body, answer, chat_body
from benchmarks.errors import BenchmarkError
from benchmarks.machine import Cores, pinned
from benchmarks.options import COMPILED
from benchmarks.processes import LoadProcess, free_port, running, wait_answering
from tidegate.domain.principal import Limits
from tidegate.testing.gateway_process import GatewayProcess

CEILING = 2_000_000_000
"""Limits are on, and nothing reaches them: tokens a minute, requests a minute, requests at once."""
MAX_UPSTREAM_CONNECTIONS = 20_000


@dataclass(frozen=True)
class Load:
    """How much is asked of a subject at once; less of one that would only queue it."""

    connections: int = 64
    streams: int = 200
    held_streams: int = 1_000


FULL_LOAD = Load()


@dataclass(frozen=True)
class Subject:
    """Where a request is sent, and whose CPU time that costs (None: nobody's, it goes straight to the upstream)."""

    name: str
    port: int
    key: str = "sk-none"
    pid: int | None = None
    gateway: GatewayProcess | None = None
    """Tidegate itself, for its `/metrics`."""
    load: Load = FULL_LOAD
    more_headers: Mapping[str, str] = field(default_factory=dict)
    """Header fields that a peer wants of every request."""

    @property
    def ours(self) -> bool:
        return self.gateway is not None

    @property
    def headers(self) -> dict[str, str]:
        usual = {"host": "127.0.0.1", "content-type": "application/json", "authorization": f"Bearer {self.key}"}
        return usual | dict(self.more_headers)

    def head(self, body: Body) -> bytes:
        """Give the request head that goes before a body."""
        lines = [f"POST {PATH} HTTP/1.1", *(f"{name}: {value}" for name, value in self.headers.items()), f"content-length: {body.size}"]
        return "\r\n".join((*lines, "", "")).encode()

    def metrics(self) -> str:
        """Give Tidegate's `/metrics` page."""
        assert self.gateway is not None, "only Tidegate has metrics here"
        return self.gateway.metrics()


@contextlib.contextmanager
def workplace() -> Iterator[Path]:
    """A temporary directory for configurations and logs."""
    with tempfile.TemporaryDirectory(prefix="tidegate-bench-") as name:
        path = Path(name)
        path.chmod(0o755)  # nginx's worker may be another user
        yield path


@contextlib.contextmanager
def fixed_upstream(directory: Path, cores: Cores, *, before: Sequence[str] = ()) -> Iterator[int]:
    """An nginx that gives every request the same answer; gives its port. `before` begins its command line."""
    port = free_port()
    location = f"default_type application/json; return 200 '{answer().decode()}';"
    server = f"server {{ listen 127.0.0.1:{port} backlog=4096; location / {{ {location} }} }}"
    with nginx(directory, "upstream", server, cores.load, before=before) as (_, log):
        wait_answering(port, PATH, {}, b"{}", name="the fixed upstream (nginx)", log=log)
        yield port


@contextlib.contextmanager
def stream_upstream(cores: Cores, *, tick_s: float, phases: int = 1) -> Iterator[int]:
    """An upstream that sends every open stream a chunk each `tick_s`, all at once or in so many turns; gives its port."""
    with LoadProcess("sse_upstream", cores.load, {"tick_s": tick_s, "phases": phases}) as process:
        port: int = process.hear()["port"]
        yield port


@contextlib.contextmanager
def tidegate(
    variant: str, upstream_port: int, cores: Cores, *, workers: int = 1, tokens_per_minute: int = CEILING, pin: bool = True
) -> Iterator[Subject]:
    """Tidegate as a user runs it, in a state directory of its own: keys, limits, records, metrics and log lines on."""
    upstream = {
        "dialect": "vllm",
        "base_url": f"http://127.0.0.1:{upstream_port}/v1",
        "models": ["bench-*"],
        "tokenizer": "qwen3.6",
        "max_connections": MAX_UPSTREAM_CONNECTIONS,
    }
    environment = {"PYTHONPATH": str(COMPILED) if variant == "compiled" else ""}
    interpreter = (sys.executable, "-m", "tidegate.cli.main", "serve")
    gateway = GatewayProcess(
        {"server": {"workers": workers}, "upstreams": {"bench": upstream}},
        environment=environment,
        command=(*pinned(cores.gateway), *interpreter) if pin else interpreter,
    )
    key = gateway.create_key(limits=Limits(tokens_per_minute=tokens_per_minute, requests_per_minute=CEILING, concurrency=CEILING))
    with gateway:
        gateway.wait_for_key(key)
        port = int(gateway.api_url.rsplit(":", 1)[1])
        subject = Subject(f"tidegate ({variant})", port, key.reveal(), gateway.pid, gateway)
        yield answering(subject)


def answering(subject: Subject, log: Path | None = None) -> Subject:
    """Wait until a subject gives its first good answer."""
    wait_answering(subject.port, PATH, subject.headers, chat_body().numbered(1), name=subject.name, log=log)
    return subject


@contextlib.contextmanager
def nginx(directory: Path, name: str, server: str, cores: tuple[int, ...], *, before: Sequence[str] = ()) -> Iterator[tuple[int, Path]]:
    """Run nginx with a `server`; give its process and its log. `before` begins its command line."""
    home = directory / f"nginx-{name}"
    home.mkdir()
    log = home / "output.log"
    scratch = " ".join(f"{kind}_temp_path {home}/{kind};" for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi"))
    common = "access_log off; keepalive_requests 100000000; client_body_buffer_size 64k; client_max_body_size 64m;"
    configuration = home / "nginx.conf"
    configuration.write_text(
        f"worker_processes 1; daemon off; error_log {log}; pid {home}/pid; worker_rlimit_nofile 16384;\n"
        f"events {{ worker_connections 8192; }}\nhttp {{ {common} {scratch}\n{server}\n}}\n"
    )
    command = (*before, *pinned(cores), "nginx", "-p", str(home), "-e", str(log), "-c", str(configuration))
    with running(command, log=home / "start.log") as process:
        if process.poll() is not None:
            raise BenchmarkError(f"nginx ({name}) ended at once: {log.read_text(errors='replace')[-500:]}")
        yield process.pid, log
