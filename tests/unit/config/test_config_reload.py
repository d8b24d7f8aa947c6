"""Reload: which changes a running gateway refuses, and that it can take up all others."""

from __future__ import annotations

import pytest

from tidegate.config.load import Loaded, load_text
from tidegate.config.reload import reload_obstacles
from tidegate.config.schema import Configuration


def configuration(text: str) -> Configuration:
    loaded = load_text(text, {})
    assert isinstance(loaded, Loaded), loaded
    return loaded.configuration


@pytest.mark.parametrize(
    ("text", "sentences"),
    [
        ("server: {port: 9000}", ["server.port cannot change from 8080 to 9000 without a restart: the API port is already open."]),
        (
            "server: {host: 0.0.0.0}",
            ['server.host cannot change from "127.0.0.1" to "0.0.0.0" without a restart: the API port is already open.'],
        ),
        ("server: {workers: 4}", ["server.workers cannot change from 1 to 4 without a restart: the worker processes are already running."]),
        (
            "server: {tls: {certificate: c, key: k}}",
            ["server.tls cannot change from nothing to a section without a restart: the certificate is loaded when the API port opens."],
        ),
        (
            "server: {max_body_bytes: 1MiB}",
            ["server.max_body_bytes cannot change from 33,554,432 to 1,048,576 without a restart: the counting process was started"],
        ),
        ("admin: {port: 1, host: h}", ["admin.host cannot change", "admin.port cannot change"]),
        ("state_directory: /x", ["state_directory cannot change"]),
        (
            "local_engine: {enabled: no, slots: 2}",
            ["local_engine.enabled cannot change from true to false", "local_engine.slots cannot change"],
        ),
        ("records: {keep_files: 2}", ["records.keep_files cannot change"]),
    ],
)
def test_what_is_built_into_sockets_processes_and_files_needs_a_restart(text: str, sentences: list[str]) -> None:
    """Each such change is told in a sentence with the setting, both values and the reason."""
    obstacles = reload_obstacles(Configuration(), configuration(text))
    assert len(sentences) == len(obstacles)
    for expected, sentence in zip(sentences, obstacles, strict=True):
        assert sentence.startswith(expected)
        assert sentence.endswith(".")


def test_the_first_price_needs_a_restart_and_the_second_none() -> None:
    """Books are kept from a start on; what is in them, and whether anything still has a price, is for every reload to say."""
    free = Configuration()
    one, two = (configuration(f"budgets: [{', '.join(f'{{name: {name}, amount: 1}}' for name in names)}]") for names in ("a", "ab"))
    assert ["The first price or budget cannot come without a restart: no process keeps books yet."] == reload_obstacles(free, one)
    assert [] == reload_obstacles(one, two)
    assert [] == reload_obstacles(two, free)


def test_one_path_of_a_certificate_is_one_obstacle() -> None:
    """Within a section that stays, only what changed is named."""
    old, update = (configuration(f"server: {{tls: {{certificate: {name}, key: k}}}}") for name in ("c", "d"))
    assert (reload_obstacles(old, update)) == [
        'server.tls.certificate cannot change from "c" to "d" without a restart: the certificate is loaded when the API port opens.'
    ]


def test_everything_else_can_be_reloaded() -> None:
    """Upstreams, routes, limits, issuers and the clocks of the server change while it runs."""
    text = """
server: {max_header_bytes: 8KiB, header_timeout_s: 1s, idle_timeout_s: 1s, drain_timeout_s: 1s, max_connections: 5}
upstreams: {a: {dialect: vllm, base_url: 'http://h/v1'}}
routes: [{model: m, targets: [{upstream: a}]}]
limits: {concurrency: 1}
tiers: {vip: {concurrency: 2}}
jwt: [{issuer: i, audience: a, jwks: x}]
"""
    assert reload_obstacles(Configuration(), configuration(text)) == []


def test_no_change_is_no_obstacle() -> None:
    """A reload of the same file is always possible."""
    assert reload_obstacles(configuration("server: {port: 9000}"), configuration("server: {port: 9000}")) == []
