"""Check what is measured beside requests, and that all of it belongs to somebody."""

from __future__ import annotations

from collections.abc import Iterator

from tidegate.config.environment import LOCAL
from tidegate.config.problem import Path, Problem, Severity
from tidegate.config.schema import Configuration, DialectName
from tidegate.config.schema_sampling import GpuName
from tidegate.config.source import Source
from tidegate.config.words import split_url

READABLE = (DialectName.VLLM, DialectName.LLAMACPP)
"""Dialects whose `/metrics` is understood."""


def replica_names(configuration: Configuration) -> list[str]:
    """List what replicas are called in records."""
    names = [f"{name}/{index}" for name, section in configuration.upstreams.items() for index in range(1 + len(section.replicas))]
    return [*names, f"{LOCAL}/0"] if configuration.local_engine.enabled else names


def check_sampling(configuration: Configuration, source: Source) -> Iterator[Problem]:
    sampling = configuration.sampling
    for number, url in enumerate(sampling.dcgm):
        address = split_url(url)
        if isinstance(address, str):
            hint = "write it like http://10.0.0.5:9400/metrics"
            yield source.problem(("sampling", "dcgm", number), f"sampling.dcgm {address}", hint)
    for number, name in enumerate(sampling.scrape or ()):
        yield from _check_scraped(configuration, source, name, ("sampling", "scrape", number))
    owners: list[tuple[Path, str]] = [(("sampling", "gpus", gpu), replica) for gpu, replica in sampling.gpus.items()]
    owners += [(("sampling", "triton", number, "replica"), each.replica) for number, each in enumerate(sampling.triton)]
    known = replica_names(configuration)
    for path, replica in owners:
        if replica not in known:
            hint = f"write one of {', '.join(known[:8])}" if known else "configure an upstream first"
            yield source.problem(path, f"there is no replica {replica[:64]!r}", hint)
    if sampling.dmon_file is not None and sampling.gpu is not GpuName.DMON:
        message = f"sampling.dmon_file is not read with gpu: {sampling.gpu}"
        yield source.problem(("sampling", "dmon_file"), message, "write gpu: dmon, or delete it", severity=Severity.WARNING)
    if configuration.analytics.enabled is False and source.mentions(("sampling",)) and sampling.enabled:
        message = "nothing is sampled, since analytics.enabled is false"
        yield source.problem(("sampling",), message, "delete this section, or keep tables", severity=Severity.WARNING)


def _check_scraped(configuration: Configuration, source: Source, name: str, path: Path) -> Iterator[Problem]:
    upstream = configuration.upstreams.get(name)
    if upstream is None:
        names = ", ".join(configuration.upstreams) or "none"
        yield source.problem(path, f"there is no upstream {name[:64]!r}", f"upstreams are: {names}")
    elif upstream.dialect not in READABLE:
        message = f"{name} is of the dialect {upstream.dialect}, whose figures are not understood"
        yield source.problem(path, message, "only vllm and llamacpp have a page that is")
