"""Check what the settings mean together, after their types are right. Returns every problem, each with its place in the file.

Takes the effective configuration (see `environment`) and the source it came from. The file system is asked through `file_exists`, so that
checking itself does no I/O. Errors refuse the configuration; warnings tell of something that works, but probably not as meant.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from tidegate.config.check_analytics import check_analytics
from tidegate.config.check_audit import check_audit
from tidegate.config.check_books import check_books
from tidegate.config.check_degradation import check_degradation
from tidegate.config.check_health import check_health
from tidegate.config.check_jwt import check_jwt
from tidegate.config.check_limits import check_limits
from tidegate.config.check_prices import check_prices
from tidegate.config.check_routes import check_routes
from tidegate.config.check_rules import check_rules
from tidegate.config.check_sampling import check_sampling
from tidegate.config.check_targets import check_targets
from tidegate.config.check_tracing import check_tracing
from tidegate.config.check_upstreams import check_upstreams
from tidegate.config.problem import Problem, Severity
from tidegate.config.schema import Configuration
from tidegate.config.source import Source
from tidegate.config.words import is_loopback, is_name

FileExists = Callable[[str], bool]
"""Tells whether a path, relative to the working directory, is a file that can be read."""

_EVERY_ADDRESS = frozenset({"", "0.0.0.0", "::", "*"})  # noqa: S104  compared with, never bound


def check(configuration: Configuration, source: Source, *, file_exists: FileExists) -> list[Problem]:
    """Find every problem, in the order of the file; those without a line come first."""
    problems = [
        *_check_addresses(configuration, source),
        *_check_bodies(configuration, source),
        *_check_files(configuration, source, file_exists),
        *check_upstreams(configuration, source),
        *check_health(configuration, source),
        *_check_engine(configuration, source),
        *check_routes(configuration, source),
        *check_targets(configuration, source),
        *check_rules(configuration, source),
        *check_limits(configuration, source),
        *_check_tiers(configuration, source),
        *check_jwt(configuration, source, file_exists=file_exists),
        *check_degradation(configuration, source, file_exists=file_exists),
        *check_prices(configuration, source),
        *check_books(configuration, source),
        *check_analytics(configuration, source),
        *check_audit(configuration, source),
        *check_tracing(configuration, source),
        *check_sampling(configuration, source),
    ]
    return sorted(problems, key=lambda problem: (problem.line, problem.column))


def _check_addresses(configuration: Configuration, source: Source) -> Iterator[Problem]:
    server, admin = configuration.server, configuration.admin
    for section, host in (("server", server.host), ("admin", admin.host)):
        if not host.strip() or host != host.strip():
            yield source.problem(
                (section, "host"), f'{section}.host is not an address: "{host}"', "write 127.0.0.1, 0.0.0.0 or a host name"
            )
    meet = server.host == admin.host or server.host in _EVERY_ADDRESS or admin.host in _EVERY_ADDRESS
    if server.port == admin.port != 0 and meet:
        path = ("admin", "port") if source.mentions(("admin", "port")) else ("server", "port")
        yield source.problem(path, f"server and admin both listen on port {admin.port}", "give one of them another port")
    if not is_loopback(admin.host):
        yield source.problem(
            ("admin", "host"),
            f"the admin API listens on {admin.host}, which other machines may reach",
            "metrics and health need no key there: listen on 127.0.0.1, or let a firewall admit operators only",
            severity=Severity.WARNING,
        )
    if not configuration.state_directory.strip():
        yield source.problem(("state_directory",), "state_directory is empty", "name a folder, or delete the line to use .tidegate")


def _check_bodies(configuration: Configuration, source: Source) -> Iterator[Problem]:
    server = configuration.server
    if server.max_body_bytes > server.max_buffered_bytes:
        path = ("server", "max_body_bytes") if source.mentions(("server", "max_body_bytes")) else ("server", "max_buffered_bytes")
        yield source.problem(
            path,
            f"max_body_bytes ({server.max_body_bytes:,}) is more than max_buffered_bytes ({server.max_buffered_bytes:,}), "
            "so the largest bodies would always be refused",
            "raise max_buffered_bytes to a few times max_body_bytes",
        )


def _check_files(configuration: Configuration, source: Source, file_exists: FileExists) -> Iterator[Problem]:
    tls, engine = configuration.server.tls, configuration.local_engine
    paths: list[tuple[tuple[str, ...], str, str]] = []
    if tls is not None:
        paths += [
            (("server", "tls", "certificate"), tls.certificate, "PEM certificate"),
            (("server", "tls", "key"), tls.key, "PEM private key"),
        ]
    if engine.enabled and engine.model_path is not None:
        paths.append((("local_engine", "model_path"), engine.model_path, "GGUF model"))
    for path, file, kind in paths:
        if not file_exists(file):
            yield source.problem(
                path, f'the {kind} "{file}" is not a file that can be read', "relative paths start at the working directory"
            )


def _check_engine(configuration: Configuration, source: Source) -> Iterator[Problem]:
    engine = configuration.local_engine
    if not engine.enabled:
        if not configuration.upstreams:
            yield source.problem(
                ("local_engine", "enabled"),
                "nothing can answer: there is no upstream and the local engine is disabled",
                "add an upstream, set OPENROUTER_API_KEY or DASHSCOPE_API_KEY, or enable the local engine",
            )
        elif not configuration.routes:
            yield source.problem(
                ("upstreams",),
                "nothing can answer: no upstream lists its models, and there are no routes",
                "add models to an upstream, or a route",
                at_key=True,
            )
        return
    if not engine.model_name.strip() or any(character in engine.model_name for character in "*?[ "):
        yield source.problem(("local_engine", "model_name"), "model_name is not a plain name", "use letters, digits, dots and dashes")


def _check_tiers(configuration: Configuration, source: Source) -> Iterator[Problem]:
    for name, limits in configuration.tiers.items():
        path = ("tiers", name)
        if not is_name(name):
            yield source.problem(path, f'"{name}" cannot name a tier', "use letters, digits, dots, dashes and underscores", at_key=True)
        if limits.tokens_per_minute is None and limits.requests_per_minute is None and limits.concurrency is None:
            yield source.problem(
                path,
                f"the tier {name} sets no limit, so its keys have none",
                "set at least one of tokens_per_minute, requests_per_minute and concurrency",
                severity=Severity.WARNING,
                at_key=True,
            )
