"""Check an upstream as a pool: its replicas, how one is picked, when breakers trip."""

from __future__ import annotations

from collections.abc import Iterator

from tidegate.config.problem import Path, Problem, Severity
from tidegate.config.schema import AffinityName, LeaveName, UpstreamSection
from tidegate.config.source import Source
from tidegate.config.words import split_url


def addresses(name: str, upstream: UpstreamSection) -> list[tuple[Path, str]]:
    """List the addresses of an upstream, each with its place in the file."""
    path: Path = ("upstreams", name)
    more: list[tuple[Path, str]] = [
        ((*path, "replicas", index, "base_url"), replica.base_url) for index, replica in enumerate(upstream.replicas)
    ]
    return [((*path, "base_url"), upstream.base_url), *more]


def check_pool(name: str, upstream: UpstreamSection, source: Source) -> Iterator[Problem]:
    yield from _check_twice(name, upstream, source)
    yield from _check_idle_settings(name, upstream, source)
    yield from _check_breaker(name, upstream, source)


def _check_twice(name: str, upstream: UpstreamSection, source: Source) -> Iterator[Problem]:
    seen: dict[tuple[str, str], Path] = {}
    for path, address in addresses(name, upstream):
        parts = split_url(address)
        if isinstance(parts, str):
            continue  # reported by itself
        same = (parts.netloc.lower(), parts.path.rstrip("/"))
        if same in seen:
            message = f"{name} has the address {address} twice: its breakers would each see only a part of its failures"
            yield source.problem(path, message, "delete one of them, and give the other more weight if it is to get more")
        seen[same] = path


def _check_idle_settings(name: str, upstream: UpstreamSection, source: Source) -> Iterator[Problem]:
    """Find what is set and does nothing."""
    path: Path = ("upstreams", name)
    if not upstream.replicas:
        for setting in ("pick", "weight", "priority"):
            if source.mentions((*path, setting)):
                message = f"{setting} does nothing: {name} has one address"
                yield source.problem((*path, setting), message, "add replicas, or delete it", severity=Severity.WARNING)
        if upstream.affinity is AffinityName.SESSION:
            message = f"affinity does nothing: {name} has one address"
            yield source.problem((*path, "affinity"), message, "add replicas, or delete it", severity=Severity.WARNING)
    if source.mentions((*path, "drain_s")) and upstream.on_client_leave is not LeaveName.DRAIN:
        message = f"drain_s does nothing: on_client_leave is {upstream.on_client_leave}"
        yield source.problem((*path, "drain_s"), message, "set on_client_leave: drain, or delete it", severity=Severity.WARNING)


def _check_breaker(name: str, upstream: UpstreamSection, source: Source) -> Iterator[Problem]:
    path: Path = ("upstreams", name, "breaker")
    breaker, clocks = upstream.breaker, upstream.timeouts
    if not breaker.enabled:
        return
    if breaker.cooldown_s > breaker.max_cooldown_s:
        message = (
            f"the breaker of {name} cannot pause for cooldown_s ({breaker.cooldown_s:g} s): max_cooldown_s is {breaker.max_cooldown_s:g} s"
        )
        yield source.problem(_written(path, "cooldown_s", "max_cooldown_s", source), message, "lower cooldown_s or raise max_cooldown_s")
    if breaker.slow_ratio >= breaker.failure_ratio:
        message = f"the slow trip of {name} comes too late: the fast one trips at failure_ratio ({breaker.failure_ratio:g}) already"
        where = _written(path, "slow_ratio", "failure_ratio", source)
        yield source.problem(where, message, "set slow_ratio below failure_ratio", severity=Severity.WARNING)
    if breaker.slow_window_s < breaker.window_s:
        message = f"the slow trip of {name} looks at {breaker.slow_window_s:g} s, the fast one at {breaker.window_s:g} s"
        where = _written(path, "slow_window_s", "window_s", source)
        yield source.problem(where, message, "make slow_window_s the longer one", severity=Severity.WARNING)
    if breaker.ttft_s is not None and breaker.ttft_s >= clocks.first_token_s:
        written = source.mentions((*path, "ttft_s"))
        message = (
            f"no first token of {name} can be slow: after first_token_s ({clocks.first_token_s:g} s) the call has failed, so "
            f"breaker.ttft_s ({breaker.ttft_s:g} s{'' if written else ', its default'}) never trips"
        )
        where = (*path, "ttft_s") if written else ("upstreams", name, "timeouts", "first_token_s")
        hint = f"write breaker: {{ttft_s: …}} with less than {clocks.first_token_s:g}s, or ttft_s: null for no such trip"
        yield source.problem(where, message, hint, severity=Severity.WARNING)


def _written(path: Path, first: str, second: str, source: Source) -> Path:
    """Point at the one of two settings that the file has."""
    return (*path, first) if source.mentions((*path, first)) else (*path, second)
