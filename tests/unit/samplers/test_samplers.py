"""Each source of samples, as far as it can be had without a GPU: processes, files, pipes, pages and a driver that is made up."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pynvml
import pytest

from tidegate.adapters.samplers.cpu import ProcessReader
from tidegate.adapters.samplers.dcgm import DcgmSampler
from tidegate.adapters.samplers.dmon import DmonChild, DmonFile
from tidegate.adapters.samplers.nvml import NvmlReader, nvml_library
from tidegate.adapters.samplers.opening import open_source
from tidegate.adapters.samplers.pages import MAX_PAGE_BYTES
from tidegate.adapters.samplers.plan import DcgmSource, DmonSource, NvmlSource, ProcessSource, ServerSource, Source, TritonSource
from tidegate.adapters.samplers.source import SourceAbsent, SourceFailed
from tidegate.adapters.samplers.tail import Tail
from tidegate.adapters.samplers.triton import TritonFiles
from tidegate.adapters.samplers.vllm_metrics import ModelServerSampler
from tidegate.analytics.exposition import ServerKind
from tidegate.analytics.samples import GpuOwners, Sample
from tidegate.testing import ScriptedUpstream

OWNERS = GpuOwners({"GPU-1": "gpu/0"}, node="here")
HEADER = "# gpu sm\\n"


class Driver:
    """NVML as the package `pynvml` has it, with two GPUs, the second of which knows little. The errors are the package's own."""

    NVMLError = pynvml.NVMLError
    NVMLError_NotSupported = pynvml.NVMLError_NotSupported
    NVML_TEMPERATURE_GPU = pynvml.NVML_TEMPERATURE_GPU
    NVML_CLOCK_SM = pynvml.NVML_CLOCK_SM
    NVML_CLOCK_MEM = pynvml.NVML_CLOCK_MEM

    def __init__(self, gpus: int = 2) -> None:
        self.gpus = gpus
        self.fails_at = ""
        self.begun = self.ended = 0

    def __getattr__(self, name: str) -> Callable[..., Any]:
        """Every function that is not written out below does nothing but fail where it is to."""
        raise AssertionError(name)

    def nvmlInit(self) -> None:  # noqa: N802  the library's names
        self._fail("init", pynvml.NVML_ERROR_LIBRARY_NOT_FOUND)
        self.begun += 1

    def nvmlShutdown(self) -> None:  # noqa: N802
        self.ended += 1
        self._fail("shutdown", pynvml.NVML_ERROR_UNINITIALIZED)

    def nvmlDeviceGetCount(self) -> int:  # noqa: N802
        self._fail("count", pynvml.NVML_ERROR_UNKNOWN)
        return self.gpus

    def nvmlDeviceGetHandleByIndex(self, index: int) -> int:  # noqa: N802
        return index

    def nvmlDeviceGetUUID(self, handle: int) -> str:  # noqa: N802
        return f"GPU-{handle}"

    def nvmlDeviceGetUtilizationRates(self, handle: int) -> SimpleNamespace:  # noqa: N802
        self._fail("read", pynvml.NVML_ERROR_GPU_IS_LOST)
        return SimpleNamespace(gpu=99 - handle, memory=96)

    def nvmlDeviceGetMemoryInfo(self, handle: int) -> SimpleNamespace:  # noqa: N802
        return SimpleNamespace(used=2**30 + handle)

    def nvmlDeviceGetPowerUsage(self, handle: int) -> int:  # noqa: N802
        if handle == 1:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)
        return 412_500

    def nvmlDeviceGetTemperature(self, handle: int, kind: int) -> int:  # noqa: N802
        assert pynvml.NVML_TEMPERATURE_GPU == kind
        return 61 + handle

    def nvmlDeviceGetClockInfo(self, handle: int, kind: int) -> int:  # noqa: N802
        del handle
        return {pynvml.NVML_CLOCK_SM: 1980, pynvml.NVML_CLOCK_MEM: 2619}[kind]

    def _fail(self, place: str, code: int) -> None:
        if self.fails_at == place:
            raise pynvml.NVMLError(code)


def test_every_gpu_is_read_through_nvml() -> None:
    """A figure that one of them does not have is missing for that one."""
    samples = NvmlReader(OWNERS, library=Driver).read()
    assert {("0", ""), ("1", "gpu/0")} == {(sample.device, sample.replica) for sample in samples}
    first = {sample.metric: round(sample.value, 6) for sample in samples if sample.device == "0"}
    assert {
        "gpu.utilization_ratio": 0.99,
        "gpu.memory_bandwidth_ratio": 0.96,
        "gpu.memory_used_bytes": 2.0**30,
        "gpu.power_w": 412.5,
        "gpu.temperature_c": 61.0,
        "gpu.sm_clock_mhz": 1980.0,
        "gpu.memory_clock_mhz": 2619.0,
    } == first
    assert first.keys() - {"gpu.power_w"} == {sample.metric for sample in samples if sample.device == "1"}


@pytest.mark.parametrize(("place", "gpus", "failure"), [("init", 1, SourceAbsent), ("", 0, SourceAbsent), ("count", 1, SourceFailed)])
def test_no_driver_and_no_gpu_are_no_faults(place: str, gpus: int, failure: type[SourceFailed]) -> None:
    """They are how a machine is; a driver that does not answer is one."""
    driver = Driver(gpus)
    driver.fails_at = place
    with pytest.raises(SourceFailed) as caught:
        NvmlReader(OWNERS, library=lambda: driver).read()
    assert failure is type(caught.value)
    assert driver.begun == driver.ended


def test_a_gpu_that_is_lost_is_told_and_looked_for_again() -> None:
    """The driver is opened anew: what it knew of is gone."""
    driver = Driver()
    reader = NvmlReader(OWNERS, library=lambda: driver)
    driver.fails_at = "read"
    with pytest.raises(SourceFailed, match="could not read GPU 0"):
        reader.read()
    driver.fails_at = ""
    assert reader.read()
    assert "gpus=2" in repr(reader)
    driver.fails_at = "shutdown"
    reader.close()
    reader.close()
    assert (2, 2) == (driver.begun, driver.ended)


def test_the_real_library_is_asked_where_there_is_one() -> None:
    """Here it has a driver or it has none; both are answers."""
    reader = NvmlReader(OWNERS)
    try:
        found = reader.read()
    except SourceAbsent:
        found = []
    assert (len(reader._gpus) > 0) == (len(found) > 0)
    reader.close()


def test_without_the_package_there_is_no_source(monkeypatch: pytest.MonkeyPatch) -> None:
    """What to install is said."""
    monkeypatch.setitem(sys.modules, "pynvml", None)
    with pytest.raises(SourceAbsent, match=r"tidegate\[gpu\]"):
        nvml_library()


# ── dmon ──────────────────────────────────────────────────────────────────────


async def until(sampler: DmonChild, *, now: float = 0.0) -> list[Sample]:
    while True:
        samples = list(await sampler.sample(now=now))
        if samples:
            return samples
        await asyncio.sleep(0.01)


def test_dmon_is_started_read_and_ended() -> None:
    """It is told the interval, at least a second."""

    async def story() -> None:
        script = f"printf '{HEADER}0 50\\n'; [ \"$1 $2\" = '-d 1' ] && printf '1 60\\n'; exec sleep 60"
        child = DmonChild(OWNERS, every_s=0.2, command=("sh", "-c", script, "dmon"))
        found: list[Sample] = []
        while len(found) < 2:
            found += await until(child)
        assert [("0", 0.5, ""), ("1", 0.6, "")] == [(each.device, each.value, each.replica) for each in found]
        assert [] == await child.sample(now=0.0)
        process = child._process
        assert process is not None
        await child.aclose()
        assert process.returncode is not None

    asyncio.run(story())


def test_dmon_that_ends_is_started_again() -> None:
    """Its last words say why; what it printed before counts."""

    async def story() -> None:
        child = DmonChild(OWNERS, every_s=1.0, command=("sh", "-c", f"printf '{HEADER}0 50\\nNo devices were found\\n'"))
        for _ in range(2):
            assert 1 == len(await until(child))
            with pytest.raises(SourceFailed, match="sh ended: No devices were found"):
                await until(child)
        silent = DmonChild(OWNERS, every_s=1.0, command=("sh", "-c", "exit 9"))
        with pytest.raises(SourceFailed, match="sh ended: status 9"):
            await until(silent)
        assert "running=False" in repr(silent)

    asyncio.run(story())


def test_without_nvidia_smi_there_is_nothing_to_start() -> None:
    """Most machines have none."""

    async def story() -> None:
        with pytest.raises(SourceAbsent, match="there is no nvidia-none here"):
            await DmonChild(OWNERS, every_s=1.0, command=("nvidia-none",)).sample(now=0.0)

    asyncio.run(story())


def test_dmon_is_read_out_of_a_file_and_a_pipe(tmp_path: Path) -> None:
    """That somebody else has it write to."""
    path, pipe = tmp_path / "dmon.txt", tmp_path / "pipe"
    path.write_text("# gpu sm\n0 10\n")
    file = DmonFile(path, OWNERS)
    assert [] == file.read(0.0)
    with path.open("a") as writer:
        writer.write("# gpu sm\n0 20\n")
    assert [0.2] == [sample.value for sample in file.read(0.0)]
    file.close()
    os.mkfifo(pipe)
    piped = DmonFile(pipe, OWNERS)
    assert [] == piped.read(0.0)
    writing = os.open(pipe, os.O_WRONLY)
    assert [] == piped.read(0.0)
    os.write(writing, b"# gpu sm\n1 30\n")
    assert [0.3] == [sample.value for sample in piped.read(0.0)]
    os.close(writing)
    piped.close()


def test_a_file_that_is_replaced_or_cut_is_read_from_its_start(tmp_path: Path) -> None:
    """And one that comes later is read whole."""
    path = tmp_path / "log"
    tail = Tail(path)
    with pytest.raises(FileNotFoundError):
        tail.read()
    path.write_bytes(b"one")
    assert (b"one", True) == (tail.read(), tail.began_anew)
    assert (b"", False) == (tail.read(), tail.began_anew)
    path.write_bytes(b"2")
    assert (b"2", True) == (tail.read(), tail.began_anew)
    other = tmp_path / "other"
    other.write_bytes(b"three")
    other.rename(path)
    assert (b"three", True) == (tail.read(), tail.began_anew)
    assert "log" in repr(tail)
    tail.close()
    tail.close()


# ── triton ────────────────────────────────────────────────────────────────────

TIMES = '[{"name":"QUEUE_START","ns":0},{"name":"COMPUTE_START","ns":2000000},{"name":"REQUEST_END","ns":9}]'
TRACE = '{"id":%d,"model_name":"m","timestamps":' + TIMES + "}"


def test_a_trace_that_grows_is_followed(tmp_path: Path) -> None:
    """From now on; begun anew it is another."""
    path = tmp_path / "trace.json"
    path.write_text("[" + TRACE % 1)
    files = TritonFiles(path, replica="triton/0")
    assert [] == files.read()
    with path.open("a") as writer:
        writer.write("," + TRACE % 2 + ',{"id":3,')
    found = {sample.metric: sample.value for sample in files.read()}
    assert {"triton.requests": 1.0, "triton.queue_mean_s": 0.002} == found
    path.write_text("[" + TRACE % 4)
    assert 1.0 == files.read()[0].value
    files.close()


def test_numbered_traces_are_read_when_they_are_whole(tmp_path: Path) -> None:
    """Those that were there before are not; a file that is not there at all is a failure."""
    path = tmp_path / "trace.json"
    files = TritonFiles(path, replica="triton/0")
    with pytest.raises(FileNotFoundError):
        files.read()
    for number in (8, 9):
        (tmp_path / f"trace.json.{number}").write_text(f"[{TRACE % number}]")
    (tmp_path / "trace.json.bak").write_text("")
    late = TritonFiles(path, replica="triton/0")
    assert [] == late.read()
    (tmp_path / "trace.json.10").write_text(f"[{TRACE % 10},{TRACE % 11}")
    assert [] == late.read()
    (tmp_path / "trace.json.10").write_text(f"[{TRACE % 10},{TRACE % 11}]\n")
    assert 2.0 == late.read()[0].value
    assert [] == late.read()
    assert "trace.json" in repr(late)
    late.close()


# ── processes and pages ───────────────────────────────────────────────────────


def test_this_process_takes_cpu_and_memory() -> None:
    """As the kernel says; one that is gone is told."""
    reader = ProcessReader(ProcessSource(os.getpid(), "local/0"))
    first = {sample.metric: sample.value for sample in reader.read(100.0)}
    assert first["cpu.memory_bytes"] > 2**20
    assert first["cpu.threads"] >= 1
    assert {"cpu.used_cores"} == {sample.metric for sample in reader.read(101.0)} - first.keys()
    with pytest.raises(SourceFailed, match="the process ended"):
        ProcessReader(ProcessSource(2**22 + 1, "local/0")).read(0.0)


def test_the_page_of_a_model_server_is_read_over_and_over() -> None:
    """From the scripted upstream, which words it as vLLM does, on one connection."""

    async def story() -> None:
        async with ScriptedUpstream(models=("m",)) as upstream:
            url = f"{upstream.base_url.removesuffix('/v1')}/metrics"
            sampler = ModelServerSampler(ServerSource(ServerKind.VLLM, "there/0", url), every_s=1.0, deadline_s=5.0)
            for now in (1.0, 2.0):
                samples = {sample.metric: sample.value for sample in await sampler.sample(now=now)}
            assert (0.0, 0.0) == (samples["vllm.requests_waiting"], samples["vllm.generation_tokens_per_s"])
            assert 1 == upstream.connections_opened
            await sampler.aclose()
            foreign = ModelServerSampler(ServerSource(ServerKind.LLAMACPP, "there/0", url), every_s=1.0, deadline_s=5.0)
            with pytest.raises(SourceFailed, match=r"is not understood: there is no metric on it that begins with llamacpp:"):
                await foreign.sample(now=1.0)
            await foreign.aclose()

    asyncio.run(story())


async def page_server(content: bytes, status: str = "200 OK") -> tuple[asyncio.Server, str]:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(f"HTTP/1.1 {status}\r\ncontent-length: {len(content)}\r\nconnection: close\r\n\r\n".encode() + content)
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    return server, f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/metrics"


DCGM = b'DCGM_FI_DEV_MEM_COPY_UTIL{gpu="0",UUID="GPU-1",Hostname="gpu-7"} 61\n'


@pytest.mark.parametrize(
    ("content", "status", "words"),
    [
        (DCGM, "200 OK", ""),
        (b"no figures\n", "200 OK", "is not understood: there is no metric"),
        (b"", "404 Not Found", "answers with status 404"),
        (b"x" * (MAX_PAGE_BYTES + 1), "200 OK", "longer than"),
    ],
)
def test_the_page_of_a_dcgm_exporter_is_read_or_refused(content: bytes, status: str, words: str) -> None:
    """In words that name the page."""

    async def story() -> None:
        server, url = await page_server(content, status)
        sampler = DcgmSampler(url, OWNERS, deadline_s=5.0)
        if words:
            with pytest.raises(SourceFailed, match=f"{url}.*{words}"):
                await sampler.sample(now=0.0)
        else:
            assert [Sample("gpu.memory_bandwidth_ratio", 0.61, "gpu-7/0", "gpu/0")] == await sampler.sample(now=0.0)
        assert url in repr(sampler)
        await sampler.aclose()
        server.close()
        await server.wait_closed()

    asyncio.run(story())


@pytest.mark.parametrize(
    ("source", "name"),
    [
        (NvmlSource(is_expected=False), "nvml"),
        (DmonSource(None, is_expected=False), "dmon"),
        (DmonSource("/run/dmon", is_expected=True), "dmon /run/dmon"),
        (DcgmSource("http://h:9400/metrics"), "dcgm http://h:9400/metrics"),
        (ServerSource(ServerKind.VLLM, "gpu/0", "http://h:8000/metrics"), "vllm gpu/0"),
        (TritonSource("t.json", "triton/0"), "triton t.json"),
        (ProcessSource(1, "local/0"), "cpu local/0"),
    ],
)
def test_every_source_of_a_plan_can_be_opened(source: Source, name: str) -> None:
    """What is called so in logs names the `source` of its samples first."""

    async def story() -> None:
        sampler = open_source(source, OWNERS, every_s=1.0)
        assert name == sampler.name
        await sampler.aclose()

    asyncio.run(story())
