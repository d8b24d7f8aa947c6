"""Opens the sources of a plan."""

from __future__ import annotations

from pathlib import Path
from typing import Final, assert_never

from tidegate.adapters.samplers.cpu import ProcessReader
from tidegate.adapters.samplers.dcgm import DcgmSampler
from tidegate.adapters.samplers.dmon import DmonChild, DmonFile
from tidegate.adapters.samplers.nvml import NvmlReader
from tidegate.adapters.samplers.plan import DcgmSource, DmonSource, NvmlSource, ProcessSource, ServerSource, Source, TritonSource
from tidegate.adapters.samplers.source import BlockingSampler, Sampler
from tidegate.adapters.samplers.triton import TritonFiles
from tidegate.adapters.samplers.vllm_metrics import ModelServerSampler
from tidegate.analytics.samples import GpuOwners

DEADLINE_SHARE: Final = 0.8
"""Of the interval: one reading is over before the next is due."""


def open_source(source: Source, owners: GpuOwners, *, every_s: float) -> Sampler:
    """Make what reads it; whether it is there is seen at the first reading."""
    deadline_s = DEADLINE_SHARE * every_s
    match source:
        case NvmlSource():
            gpus = NvmlReader(owners)
            return BlockingSampler("nvml", lambda _: gpus.read(), close=gpus.close)
        case DmonSource(path=None):
            return DmonChild(owners, every_s=every_s)
        case DmonSource(path=path):
            assert path is not None
            lines = DmonFile(Path(path), owners)
            return BlockingSampler(f"dmon {path}", lines.read, close=lines.close)
        case DcgmSource():
            return DcgmSampler(source.url, owners, deadline_s=deadline_s)
        case ServerSource():
            return ModelServerSampler(source, every_s=every_s, deadline_s=deadline_s)
        case TritonSource():
            files = TritonFiles(Path(source.path), replica=source.replica)
            return BlockingSampler(f"triton {source.path}", lambda _: files.read(), close=files.close)
        case ProcessSource():
            return BlockingSampler(f"cpu {source.replica}", ProcessReader(source).read)
        case _:
            assert_never(source)
