"""The GPUs of this machine, asked of NVIDIA's driver through NVML (the package `nvidia-ml-py`, extra `gpu`)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from tidegate.adapters.samplers.source import SourceAbsent, SourceFailed
from tidegate.analytics.samples import (
    MEMORY_BANDWIDTH,
    MEMORY_CLOCK,
    MEMORY_USED,
    POWER,
    SM_CLOCK,
    TEMPERATURE,
    UTILIZATION,
    GpuOwners,
    Sample,
)

MAX_GPUS: Final = 64
_PERCENT: Final = 0.01
_MILLIWATT: Final = 1e-3


def nvml_library() -> Any:
    """Give the module that speaks to the driver; `SourceAbsent` without it."""
    try:
        import pynvml
    except ImportError:
        raise SourceAbsent("the package nvidia-ml-py is not installed: pip install 'tidegate[gpu]'") from None
    return pynvml


class NvmlReader:
    """Reads every GPU. The driver is opened at the first reading, and anew after one that failed."""

    def __init__(self, owners: GpuOwners, *, library: Callable[[], Any] = nvml_library) -> None:
        self._owners = owners
        self._load = library
        self._library: Any = None
        self._gpus: list[tuple[str, str, Any]] = []
        """Index, UUID and the driver's handle of each."""

    def __repr__(self) -> str:
        return f"NvmlReader(gpus={len(self._gpus)})"

    def read(self) -> list[Sample]:
        """Give the figures that each GPU has. `SourceAbsent` without a driver or a GPU, `SourceFailed` when one does not answer."""
        if self._library is None:
            self._open()
        library = self._library
        samples = []
        for index, uuid, handle in self._gpus:
            for figures in (self._utilization, self._memory, self._power, self._temperature, self._clocks):
                try:
                    found = figures(library, handle)
                except library.NVMLError_NotSupported:
                    continue  # this GPU does not have it
                except library.NVMLError as error:
                    self.close()
                    raise SourceFailed(f"the driver could not read GPU {index} ({error}); look at nvidia-smi and dmesg") from error
                samples += [self._owners.sample(metric, float(value), index=index, uuid=uuid) for metric, value in found]
        return samples

    def close(self) -> None:
        if self._library is not None:
            library, self._library, self._gpus = self._library, None, []
            try:
                library.nvmlShutdown()
            except library.NVMLError:
                return  # it is gone already

    def _open(self) -> None:
        library = self._load()
        try:
            library.nvmlInit()
        except library.NVMLError as error:
            raise SourceAbsent(f"there is no driver ({error})") from error
        self._library = library
        try:
            for number in range(min(library.nvmlDeviceGetCount(), MAX_GPUS)):
                handle = library.nvmlDeviceGetHandleByIndex(number)
                self._gpus.append((str(number), str(library.nvmlDeviceGetUUID(handle)), handle))
        except library.NVMLError as error:
            self.close()
            raise SourceFailed(f"the driver could not list its GPUs ({error}); look at nvidia-smi") from error
        if not self._gpus:
            self.close()
            raise SourceAbsent("the driver has no GPU")

    def _utilization(self, library: Any, handle: Any) -> Sequence[tuple[str, float]]:
        rates = library.nvmlDeviceGetUtilizationRates(handle)
        return (UTILIZATION, rates.gpu * _PERCENT), (MEMORY_BANDWIDTH, rates.memory * _PERCENT)

    def _memory(self, library: Any, handle: Any) -> Sequence[tuple[str, float]]:
        return ((MEMORY_USED, library.nvmlDeviceGetMemoryInfo(handle).used),)

    def _power(self, library: Any, handle: Any) -> Sequence[tuple[str, float]]:
        return ((POWER, library.nvmlDeviceGetPowerUsage(handle) * _MILLIWATT),)

    def _temperature(self, library: Any, handle: Any) -> Sequence[tuple[str, float]]:
        return ((TEMPERATURE, library.nvmlDeviceGetTemperature(handle, library.NVML_TEMPERATURE_GPU)),)

    def _clocks(self, library: Any, handle: Any) -> Sequence[tuple[str, float]]:
        kinds = ((SM_CLOCK, library.NVML_CLOCK_SM), (MEMORY_CLOCK, library.NVML_CLOCK_MEM))
        return [(metric, library.nvmlDeviceGetClockInfo(handle, kind)) for metric, kind in kinds]
