"""Settings of what is measured beside requests: GPUs, model servers, the local engine."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

from msgspec import Meta

from tidegate.config.section import Section


class GpuName(StrEnum):
    """Who is asked for the GPUs of this machine."""

    AUTO = "auto"
    NVML = "nvml"
    DMON = "dmon"
    OFF = "off"


class TritonSection(Section, frozen=True, kw_only=True):
    """A trace file of a Triton server."""

    path: Annotated[str, Meta(min_length=1, description="What `--trace-config triton,file=` says; numbered files beside it count, too.")]
    replica: Annotated[str, Meta(description="Whose it is, like `there/0`: an upstream, and which of its addresses.")]


class SamplingSection(Section, frozen=True, kw_only=True):
    """What is measured beside requests, for questions that join both by replica and second. It is kept where tables are (`analytics`)."""

    enabled: Annotated[bool, Meta(description="Measure, where tables are kept.")] = True
    every_s: Annotated[float, Meta(ge=0.2, le=60, description="From one reading to the next.")] = 1.0
    gpu: Annotated[
        GpuName,
        Meta(
            description="GPUs of this machine: `nvml` asks the driver (extra `gpu`), `dmon` runs `nvidia-smi dmon`, `auto` takes the first "
            "of them that is there, and is content without a GPU."
        ),
    ] = GpuName.AUTO
    dmon_file: Annotated[
        str | None, Meta(description="With `gpu: dmon`: a file or pipe that `nvidia-smi dmon -o DT` already writes to.")
    ] = None
    dcgm: Annotated[
        tuple[str, ...], Meta(description="Pages of DCGM exporters, like `http://10.0.0.5:9400/metrics`; their GPUs may be elsewhere.")
    ] = ()
    scrape: Annotated[
        tuple[str, ...] | None,
        Meta(description="Upstreams (vLLM, llama.cpp) whose `/metrics` is read; without it, every one of the dialect `vllm`."),
    ] = None
    triton: Annotated[tuple[TritonSection, ...], Meta(description="Trace files of Triton servers.")] = ()
    local_engine: Annotated[bool, Meta(description="CPU, memory and queue of the local engine.")] = True
    gpus: Annotated[
        dict[str, str],
        Meta(
            description="Which replica computes on which GPU, such as `{'0': there/0}`. A GPU is named by its UUID, `host/index`, index "
            "(on this machine), or its host; without any, those of this machine are of the one replica that runs here, if it is one."
        ),
    ] = {}
