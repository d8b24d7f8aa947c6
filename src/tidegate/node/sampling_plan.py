"""What a node samples: what its configuration says, and the local engine as it runs at the moment."""

from __future__ import annotations

import importlib.util
import shutil

from tidegate.adapters.engine.settings import EngineState
from tidegate.adapters.samplers.plan import (
    DcgmSource,
    DmonSource,
    NvmlSource,
    ProcessSource,
    SamplingPlan,
    ServerSource,
    Source,
    TritonSource,
)
from tidegate.analytics.exposition import ServerKind
from tidegate.config.schema import Configuration, DialectName, UpstreamSection
from tidegate.config.schema_sampling import GpuName, SamplingSection
from tidegate.config.words import is_loopback
from tidegate.http.origin import Origin
from tidegate.wiring.parts import LOCAL_REPLICA, bearer, members_of, upstream_headers


def sampling_plan(configuration: Configuration, engine: EngineState | None) -> SamplingPlan:
    """Say what is to be sampled now."""
    sampling = configuration.sampling
    if not sampling.enabled:
        return SamplingPlan()
    sources: list[Source] = [*_gpu(sampling), *(DcgmSource(url) for url in sampling.dcgm)]
    for name, section in configuration.upstreams.items():
        if section.dialect is DialectName.VLLM if sampling.scrape is None else name in sampling.scrape:
            sources += _servers(name, section)
    sources += [TritonSource(each.path, each.replica) for each in sampling.triton]
    if engine is not None and sampling.local_engine:
        sources += _engine(engine)
    return SamplingPlan(sampling.every_s, sampling.gpus, _only_replica_here(configuration), tuple(sources))


def _gpu(sampling: SamplingSection) -> list[Source]:
    match sampling.gpu:
        case GpuName.NVML:
            return [NvmlSource(is_expected=True)]
        case GpuName.DMON:
            return [DmonSource(sampling.dmon_file, is_expected=True)]
        case GpuName.AUTO if importlib.util.find_spec("pynvml") is not None:
            return [NvmlSource(is_expected=False)]
        case GpuName.AUTO if shutil.which("nvidia-smi") is not None:
            return [DmonSource(None, is_expected=False)]
        case _:
            return []


def _servers(name: str, section: UpstreamSection) -> list[Source]:
    kind, headers = ServerKind(section.dialect), upstream_headers(section)
    members = ((replica, _metrics_url(each.base_url)) for replica, each in members_of(name, section))
    return [ServerSource(kind, replica, url, headers, section.verify_tls) for replica, url in members]


def _engine(engine: EngineState) -> list[Source]:
    sources: list[Source] = [ProcessSource(engine.pid, LOCAL_REPLICA)] if engine.pid is not None else []
    if engine.base_url is not None:
        sources.append(ServerSource(ServerKind.LLAMACPP, LOCAL_REPLICA, _metrics_url(engine.base_url), bearer(engine.api_key)))
    return sources


def _metrics_url(base_url: str) -> str:
    """Give where a server's figures are: beside its `/v1`."""
    origin = Origin.parse(base_url)
    return f"{origin.label}{origin.prefix.removesuffix('/v1')}/metrics"


def _only_replica_here(configuration: Configuration) -> str:
    """Give whose the GPUs of this machine are when nobody says so: the one replica that it runs, if that is clear."""
    if configuration.sampling.gpus:
        return ""
    here = [
        replica
        for name, section in configuration.upstreams.items()
        for replica, each in members_of(name, section)
        if is_loopback(Origin.parse(each.base_url).host)
    ]
    return here[0] if len(here) == 1 else ""
