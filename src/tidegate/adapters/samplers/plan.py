"""What is to be sampled, as the supervisor tells the recorder process: at its start, and again whenever the configuration or the local
engine changes. Each source is described by a value, so that one which stays the same goes on undisturbed."""

from __future__ import annotations

from typing import Final

import msgspec

from tidegate.analytics.exposition import ServerKind

SAMPLING: Final = "sampling"
"""The kind of frames that bring a `SamplingPlan`; the answer is `SamplingStatistics`."""


class NvmlSource(msgspec.Struct, frozen=True, tag="nvml"):
    """The GPUs of this machine, asked of the driver."""

    is_expected: bool
    """That there is no driver is a failure, and not just how it is."""


class DmonSource(msgspec.Struct, frozen=True, tag="dmon"):
    """The GPUs of this machine, as `nvidia-smi dmon` prints them."""

    path: str | None
    """A file or pipe that somebody has it write to; None: it is started."""
    is_expected: bool


class DcgmSource(msgspec.Struct, frozen=True, tag="dcgm"):
    url: str


class ServerSource(msgspec.Struct, frozen=True, tag="server"):
    """A model server's `/metrics`."""

    kind: ServerKind
    replica: str
    url: str
    headers: tuple[tuple[bytes, bytes], ...] = ()
    verify_tls: bool = True

    def __repr__(self) -> str:
        return f"ServerSource({self.kind}, {self.replica!r})"  # headers hold a key


class TritonSource(msgspec.Struct, frozen=True, tag="triton"):
    path: str
    replica: str


class ProcessSource(msgspec.Struct, frozen=True, tag="process"):
    """A process of this machine: the local engine."""

    pid: int
    replica: str


Source = NvmlSource | DmonSource | DcgmSource | ServerSource | TritonSource | ProcessSource


class SamplingPlan(msgspec.Struct, frozen=True):
    """Everything that is sampled, each `every_s` seconds."""

    every_s: float = 1.0
    gpus: dict[str, str] = {}
    """Replicas by GPU; see `analytics.samples.GpuOwners`."""
    gpus_otherwise: str = ""
    sources: tuple[Source, ...] = ()


class SourceState(msgspec.Struct, frozen=True):
    """One source at one instant."""

    name: str
    samples: int = 0
    trouble: str = ""
    """Why it gives nothing; empty while it does."""
    is_absent: bool = False
    """There is no such thing here, and it is not asked again."""


class SamplingStatistics(msgspec.Struct, frozen=True):
    sources: tuple[SourceState, ...] = ()
