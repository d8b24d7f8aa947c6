"""What sources of samples print, as figures."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from tidegate.adapters.samplers.dmon import credible
from tidegate.analytics.dmon import MAX_LINE_BYTES, DmonLines
from tidegate.analytics.exposition import MAX_GPUS, ModelServerPages, ServerKind, dcgm_samples, read_page
from tidegate.analytics.process_stat import ProcessFigures, read_stat
from tidegate.analytics.samples import METRICS, GpuOwners, Sample, page, sample_row
from tidegate.analytics.schema import SAMPLES
from tidegate.analytics.triton_trace import MAX_MODELS, MAX_OBJECT_CHARS, MAX_OPEN, TritonTrace

NOBODY = GpuOwners({}, node="here")
VLLM = """\
# HELP vllm:num_requests_running Number of requests in model execution batches.
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{{engine="0",model_name="qwen"}} 3.0
vllm:num_requests_running{{engine="1",model_name="qwen"}} 2.0
# TYPE vllm:num_requests_waiting gauge
vllm:num_requests_waiting{{engine="0",model_name="qwen"}} 7.0
# TYPE vllm:kv_cache_usage_perc gauge
vllm:kv_cache_usage_perc{{engine="0",model_name="qwen"}} 0.41
vllm:kv_cache_usage_perc{{engine="1",model_name="qwen"}} 0.93
# TYPE vllm:prefix_cache_queries_total counter
vllm:prefix_cache_queries_total{{engine="0",model_name="qwen"}} {queries}
# TYPE vllm:prefix_cache_queries_created gauge
vllm:prefix_cache_queries_created{{engine="0",model_name="qwen"}} 1.7e+09
vllm:prefix_cache_hits_total{{engine="0",model_name="qwen"}} {hits}
vllm:num_preemptions_total{{engine="0",model_name="qwen"}} {preemptions}
vllm:generation_tokens_total{{engine="0",model_name="qwen"}} {tokens}
# TYPE vllm:time_to_first_token_seconds histogram
vllm:time_to_first_token_seconds_bucket{{engine="0",le="0.1",model_name="qwen"}} 1.0
vllm:time_to_first_token_seconds_bucket{{engine="0",le="+Inf",model_name="qwen"}} {count}
vllm:time_to_first_token_seconds_count{{engine="0",model_name="qwen"}} {count}
vllm:time_to_first_token_seconds_sum{{engine="0",model_name="qwen"}} {ttft}
vllm:time_per_output_token_seconds_count{{engine="0",model_name="qwen"}} {count}
vllm:time_per_output_token_seconds_sum{{engine="0",model_name="qwen"}} {ttft}
python_gc_objects_collected_total{{generation="0"}} 12084.0
"""
BEGINNING = {"queries": 1000.0, "hits": 400.0, "preemptions": 2.0, "tokens": 9000.0, "count": 10.0, "ttft": 2.5}
LATER = {"queries": 1200.0, "hits": 550.0, "preemptions": 3.0, "tokens": 9500.0, "count": 14.0, "ttft": 4.5}
DMON = b"""\
#Date       Time        gpu    pwr  gtemp  mtemp     sm    mem    enc    dec    jpg    ofa   mclk   pclk     fb   bar1   ccpm
#YYYYMMDD   HH:MM:SS    Idx      W      C      C      %      %      %      %      %      %    MHz    MHz     MB     MB     MB
 20261104   10:00:00      0    412     61     70     99     96      0      0      0      0   2619   1980  70144      5      0
 20261104   10:00:00      1     72     31      -      0      0      0      0      0      0   2619    345      4      1      0
 20261104   10:00:01      0    4
"""
DCGM = """\
# HELP DCGM_FI_DEV_SM_CLOCK SM clock frequency (in MHz).
# TYPE DCGM_FI_DEV_SM_CLOCK gauge
DCGM_FI_DEV_SM_CLOCK{gpu="0",UUID="GPU-1f",pci_bus_id="00000000:18:00.0",device="nvidia0",modelName="NVIDIA H100",Hostname="gpu-7"} 1980
DCGM_FI_DEV_FB_USED{gpu="0",UUID="GPU-1f",device="nvidia0",modelName="NVIDIA H100",Hostname="gpu-7"} 70144
DCGM_FI_DEV_MEM_COPY_UTIL{gpu="0",UUID="GPU-1f",device="nvidia0",modelName="NVIDIA H100",Hostname="gpu-7"} 61
DCGM_FI_DEV_MEM_COPY_UTIL{gpu="1",UUID="GPU-2f",device="nvidia1",modelName="NVIDIA H100",Hostname="gpu-7"} 50
DCGM_FI_PROF_DRAM_ACTIVE{gpu="0",UUID="GPU-1f",device="nvidia0",modelName="NVIDIA H100",Hostname="gpu-7"} 0.953
DCGM_FI_DEV_XID_ERRORS{gpu="0",UUID="GPU-1f",device="nvidia0",modelName="NVIDIA H100",Hostname="gpu-7"} 0
DCGM_FI_DEV_GPU_UTIL{gpu="0",UUID="GPU-1f",GPU_I_ID="3",Hostname="gpu-7"} 40
"""


def figures(samples: list[Sample]) -> dict[str, float]:
    return {sample.metric: round(sample.value, 9) for sample in samples}


def test_a_page_of_vllm_tells_levels_at_once_and_the_rest_beside_the_page_before() -> None:
    """Engines are added up, the fullest cache counts, and means are of the interval alone."""
    pages = ModelServerPages(ServerKind.VLLM, replica="gpu/1", longest_s=3.0)
    levels = {"vllm.requests_running": 5.0, "vllm.requests_waiting": 7.0, "vllm.kv_cache_ratio": 0.93}
    first = pages.take(VLLM.format(**BEGINNING), now=100.0)
    assert levels == figures(first)
    assert {"gpu/1"} == {sample.replica for sample in first}
    expected = levels | {
        "vllm.prefix_cache_hit_ratio": 0.75,
        "vllm.preemptions": 1.0,
        "vllm.generation_tokens_per_s": 250.0,
        "vllm.ttft_mean_s": 0.5,
        "vllm.itl_mean_s": 0.5,
    }
    assert expected == figures(pages.take(VLLM.format(**LATER), now=102.0))


def test_nothing_is_said_of_an_interval_that_nothing_happened_in() -> None:
    """No mean without requests; a count of none is a count."""
    pages = ModelServerPages(ServerKind.VLLM, replica="gpu/0", longest_s=3.0)
    pages.take(VLLM.format(**LATER), now=100.0)
    again = figures(pages.take(VLLM.format(**LATER), now=101.0))
    assert (0.0, 0.0) == (again["vllm.preemptions"], again["vllm.generation_tokens_per_s"])
    assert not again.keys() & {"vllm.ttft_mean_s", "vllm.prefix_cache_hit_ratio"}


@pytest.mark.parametrize(("now", "values"), [(101.0, BEGINNING), (104.0, LATER), (100.0, LATER)])
def test_no_increase_is_told_that_cannot_be_of_this_second(now: float, values: dict[str, float]) -> None:
    """The server began anew, nobody asked for long, or no time went by."""
    pages = ModelServerPages(ServerKind.VLLM, replica="gpu/0", longest_s=3.0)
    pages.take(VLLM.format(**LATER if values is BEGINNING else BEGINNING), now=100.0)
    told = figures(pages.take(VLLM.format(**values), now=now))
    assert {"vllm.requests_running", "vllm.requests_waiting", "vllm.kv_cache_ratio"} == told.keys()


def test_older_names_of_vllm_are_known() -> None:
    """Versions before the second engine called some of them otherwise."""
    pages = ModelServerPages(ServerKind.VLLM, replica="", longest_s=3.0)
    assert {"vllm.kv_cache_ratio": 0.5} == figures(pages.take('vllm:gpu_cache_usage_perc{model_name="m"} 0.5\n', now=0.0))


def test_a_page_of_llama_cpp_is_read() -> None:
    """Its counters become rates."""
    counted = "llamacpp:prompt_tokens_total {}\nllamacpp:tokens_predicted_total 50\n"
    text = counted + "llamacpp:requests_processing 2\nllamacpp:requests_deferred 1\n"
    pages = ModelServerPages(ServerKind.LLAMACPP, replica="local/0", longest_s=3.0)
    levels = {"llamacpp.requests_running": 2.0, "llamacpp.requests_waiting": 1.0}
    assert levels == figures(pages.take(text.format(10), now=1.0))
    rates = {"llamacpp.prompt_tokens_per_s": 40.0, "llamacpp.generation_tokens_per_s": 0.0}
    assert levels | rates == figures(pages.take(text.format(30), now=1.5))


@pytest.mark.parametrize("text", ["", "<html>404</html>", "vllm:num_requests_running{ 3", 'up{job="x"} 1'])
def test_what_is_no_page_of_a_model_server_is_refused(text: str) -> None:
    """So that it is told, and not kept as nothing."""
    with pytest.raises(ValueError, match=r".+"):
        ModelServerPages(ServerKind.VLLM, replica="", longest_s=3.0).take(text, now=0.0)


def test_figures_that_are_no_numbers_are_passed_over() -> None:
    """A column of numbers has no place for them in a mean."""
    assert [2.0] == [reading.value for reading in read_page("a:x NaN\na:y +Inf\na:z 2\n", "a:")]


def test_dcgm_says_whose_gpu_it_is() -> None:
    """The better figure of bandwidth counts; GPUs of other machines are named with their host, parts of one with their number."""
    owners = GpuOwners({"GPU-1f": "gpu/0", "gpu-7/1": "gpu/1"}, node="here", otherwise="local/0")
    found = {(sample.metric, sample.device): (sample.value, sample.replica) for sample in dcgm_samples(DCGM, owners)}
    assert {
        ("gpu.memory_bandwidth_ratio", "gpu-7/0"): (0.953, "gpu/0"),
        ("gpu.memory_bandwidth_ratio", "gpu-7/1"): (0.5, "gpu/1"),
        ("gpu.memory_used_bytes", "gpu-7/0"): (70144.0 * 2**20, "gpu/0"),
        ("gpu.sm_clock_mhz", "gpu-7/0"): (1980.0, "gpu/0"),
        ("gpu.utilization_ratio", "gpu-7/0:3"): (0.4, "gpu/0"),
    } == found


def test_a_page_with_too_many_gpus_is_cut_and_one_without_any_refused() -> None:
    """Devices are words of a column that has few of them."""
    lines = "".join(f'DCGM_FI_DEV_GPU_UTIL{{gpu="{number}"}} 1\n' for number in range(9 * MAX_GPUS))
    assert 8 * MAX_GPUS == len(dcgm_samples(lines, NOBODY))
    with pytest.raises(ValueError, match="DCGM_FI_DEV"):
        dcgm_samples("DCGM_FI_DEV_XID_ERRORS 0\n", NOBODY)


def test_lines_of_dmon_are_read_by_the_names_of_their_columns() -> None:
    """A dash is no figure, and half a line is none yet."""
    lines = DmonLines(GpuOwners({"0": "gpu/0"}, node="here"), to_epoch=lambda at: at.replace(tzinfo=UTC).timestamp())
    samples = lines.feed(DMON[:-1])
    at = datetime(2026, 11, 4, 10, tzinfo=UTC).timestamp()
    assert {(at, "0", "gpu/0"), (at, "1", "")} == {(sample.at, sample.device, sample.replica) for sample in samples}
    assert {
        "gpu.memory_bandwidth_ratio": 0.96,
        "gpu.utilization_ratio": 0.99,
        "gpu.memory_used_bytes": 70144.0 * 2**20,
        "gpu.power_w": 412.0,
        "gpu.temperature_c": 61.0,
        "gpu.sm_clock_mhz": 1980.0,
        "gpu.memory_clock_mhz": 2619.0,
    } == figures([sample for sample in samples if sample.device == "0"])
    assert [] == lines.feed(b"\n")


def test_dmon_may_print_other_columns_and_other_things() -> None:
    """Without date and time its figures are of now; what was cut off, or is too long, is passed over."""
    lines = DmonLines(NOBODY, to_epoch=datetime.timestamp)
    assert [] == lines.feed(b"0 99\nGPU is lost\n# something else\n# gpu sm\n# Idx %\n")
    assert [Sample("gpu.utilization_ratio", 0.5, "1")] == lines.feed(b"  1  50\n")
    assert [] == lines.feed(b"x" * (MAX_LINE_BYTES + 1))
    assert [Sample("gpu.utilization_ratio", 0.25, "0")] == lines.feed(b"yyy\n 0 25\n" + b"z" * (MAX_LINE_BYTES + 1) + b"\n")


def test_a_time_that_cannot_be_meant_is_left_out() -> None:
    """The machine's zone is another than this process's."""
    near, far, timeless = Sample("m", 1.0, "0", "r", 95.0), Sample("m", 1.0, "0", "r", 3700.0), Sample("m", 1.0, "0", "r")
    assert [near, timeless] == credible([near, timeless], now=100.0)
    assert [timeless] == credible([far], now=100.0)


@pytest.mark.parametrize(
    ("owners", "index", "uuid", "host", "replica", "device"),
    [
        ({"GPU-a": "x/0", "0": "y/0"}, "0", "GPU-a", "", "x/0", "0"),
        ({"here/0": "x/0", "0": "y/0"}, "0", "", "", "x/0", "0"),
        ({"0": "y/0", "here": "z/0"}, "0", "", "here", "y/0", "0"),
        ({"0": "y/0"}, "0", "", "there", "", "there/0"),
        ({"there": "z/0"}, "0", "", "there", "z/0", "there/0"),
        ({}, "0", "", "", "only/0", "0"),
    ],
)
def test_a_gpu_belongs_to_whom_it_is_given_most_exactly(
    owners: dict[str, str], index: str, uuid: str, host: str, replica: str, device: str
) -> None:
    """By UUID, then by host and index, then by index on this machine, then by host."""
    sample = GpuOwners(owners, node="here", otherwise="only/0").sample("m", 1.0, index=index, uuid=uuid, host=host)
    assert (replica, device) == (sample.replica, sample.device)


def triton(number: int, *, model: str = "qwen", base: int = 2_259_961_222_771_924) -> str:
    names = ("REQUEST_START", "QUEUE_START", "COMPUTE_START", "COMPUTE_INPUT_END", "COMPUTE_OUTPUT_START", "COMPUTE_END", "REQUEST_END")
    times = ",".join(f'{{"name":"{name}","ns":{base + step * 1_000_000}}}' for step, name in enumerate(names))
    return f'{{"id":{number},"model_name":"{model}","model_version":1,"request_id":""}},{{"id":{number},"timestamps":[{times}]}}'


def test_traces_of_triton_become_means() -> None:
    """Of the requests that ended in a piece, by model."""
    trace = TritonTrace(replica="triton/0")
    samples = trace.feed(f"[{triton(1)},{triton(2)},{triton(3, model='small')}".encode())
    assert {("qwen", 2.0), ("small", 1.0)} == {(each.device, each.value) for each in samples if each.metric == "triton.requests"}
    of_qwen = [each for each in samples if each.device == "qwen"]
    assert {
        "triton.requests": 2.0,
        "triton.queue_mean_s": 0.001,
        "triton.compute_mean_s": 0.003,
        "triton.request_mean_s": 0.006,
    } == figures(of_qwen)
    assert [] == trace.feed(b"]")


def test_older_traces_are_one_object_with_other_words() -> None:
    """They were written in lower case, with spaces."""
    times = b'{"name":"queue start","ns":5},{"name":"compute start","ns":1000000005},{"name":"request end","ns":9}'
    text = b'[{"model_name":"m","id":1,"timestamps":[' + times + b"]}]"
    assert {"triton.requests": 1.0, "triton.queue_mean_s": 1.0} == figures(TritonTrace(replica="").feed(text))


def test_what_is_no_trace_is_passed_over() -> None:
    """Broken, foreign or endless text holds nothing for long."""
    trace = TritonTrace(replica="")
    assert [] == trace.feed(b'[1,{"id":"x"},{"id":3,"timestamps":[7,{"name":"A"}]},{"id":4,"timestamps":')
    trace.begin_anew()
    assert [] == trace.feed(b'{"a":' + b"[" * 5000)
    assert [] == trace.feed(b"x" * MAX_OBJECT_CHARS)
    assert 4 == len(trace.feed(triton(9).encode()))


def test_open_requests_and_models_are_bounded() -> None:
    """A server that never writes an end costs no memory."""
    trace = TritonTrace(replica="")
    trace.feed("".join(f'{{"id":{number},"model_name":"m"}}' for number in range(MAX_OPEN + 5)).encode())
    assert MAX_OPEN == len(trace._open)
    many = ",".join(triton(MAX_OPEN + 10 + number, model=f"m{number}") for number in range(MAX_MODELS + 3))
    assert MAX_MODELS == len({sample.device for sample in trace.feed(many.encode())})


STAT = "4242 (llama (server) x) S 1 4242 4242 0 -1 4194304 9 0 0 0 {utime} {stime} 0 0 20 0 17 0 {started} 3221225472 {pages} 1844674 1 1 0"


def test_cpu_time_is_of_the_interval() -> None:
    """Ticks since the reading before, in cores; memory and threads as they are."""
    process = ProcessFigures(replica="local/0", ticks_per_s=100, page_bytes=4096)
    stat = {"utime": 1000, "stime": 20, "started": 77, "pages": 1000}
    still = {"cpu.memory_bytes": 4_096_000.0, "cpu.threads": 17.0}
    assert still == figures(process.take(STAT.format(**stat), now=10.0))
    assert {**still, "cpu.used_cores": 1.5} == figures(process.take(STAT.format(**stat | {"utime": 1300}), now=12.0))
    assert still == figures(process.take(STAT.format(**stat | {"started": 99, "utime": 2000}), now=13.0))
    assert still == figures(process.take(STAT.format(**stat | {"started": 99, "utime": 1999}), now=14.0))


def test_another_text_is_no_process() -> None:
    """Too few fields, or words for numbers."""
    for text in ("", "1 (x) S 1", STAT.format(utime="x", stime=1, started=1, pages=1)):
        with pytest.raises(ValueError, match=r".+"):
            read_stat(text)


def test_a_row_has_the_columns_of_the_table() -> None:
    """Its time is the source's own where that has one."""
    row = sample_row(Sample("gpu.power_w", 70.5, "0", "gpu/0"), source="nvml", node="here", at=1_762_250_400.25)
    assert set(SAMPLES.names) == set(row)
    assert "2025-11-04 10:00:00.250" == row["at"]
    assert "2025-11-04 10:00:01.000" == sample_row(Sample("m", 1.0, at=1_762_250_401.0), source="dmon", node="", at=0.0)["at"]


def test_metrics_have_units_and_stand_in_the_page() -> None:
    """Nothing is measured that is not declared."""
    assert len(METRICS) + 2 == len(list(page()))
    counted = ("requests", "_running", "_waiting", "_finished", "preemptions", "threads", "cores")
    units = ("_ratio", "_bytes", "_s", "_w", "_c", "_mhz", *counted)
    assert [] == [name for name in METRICS if not name.endswith(units)]
