"""Laws of the readers of samples: how a text is cut changes nothing, and no text breaks them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.analytics.dmon import DmonLines
from tidegate.analytics.exposition import ModelServerPages, ServerKind
from tidegate.analytics.samples import GpuOwners, Sample
from tidegate.analytics.triton_trace import TritonTrace

Reader = Callable[[], Callable[[bytes], Sequence[Sample]]]
OWNERS = GpuOwners({}, node="here")
DMON = b"#Date Time gpu sm mem\n#YYYYMMDD HH:MM:SS Idx % %\n 20261104 10:00:00 0 99 96\n 20261104 10:00:01 0 98 -\n"
TRITON = (
    '[{"id":1,"model_name":"模型","model_version":1},{"id":1,"timestamps":[{"name":"QUEUE_START","ns":5},'
    '{"name":"COMPUTE_START","ns":9}]},\n{"id":1,"timestamps":[{"name":"REQUEST_END","ns":10}]}]'
).encode()


def dmon() -> Callable[[bytes], Sequence[Sample]]:
    return DmonLines(OWNERS, to_epoch=lambda at: at.replace(tzinfo=UTC).timestamp()).feed


def triton() -> Callable[[bytes], Sequence[Sample]]:
    return TritonTrace(replica="r").feed


@pytest.mark.parametrize(("reader", "text"), [(dmon, DMON), (triton, TRITON)])
@given(cuts=st.lists(st.integers(0, 300), max_size=20))
def test_law_any_split_gives_the_same_samples(reader: Reader, text: bytes, cuts: list[int]) -> None:
    """Whatever pieces it comes in."""
    feed = reader()
    places = [0, *sorted(min(cut, len(text)) for cut in cuts), len(text)]
    pieces = [text[begin:end] for begin, end in pairwise(places)]
    assert list(reader()(text)) == [sample for piece in pieces for sample in feed(piece)]
    assert reader()(text)


@pytest.mark.parametrize("reader", [dmon, triton])
@given(pieces=st.lists(st.binary(max_size=60) | st.sampled_from([b"# gpu sm\n", b"0 99\n", b'{"id":1', b"}", b"[", b"\n", b'"'])))
def test_law_no_bytes_break_a_reader(reader: Reader, pieces: list[bytes]) -> None:
    """Whatever somebody's file holds."""
    feed = reader()
    for piece in pieces:
        feed(piece)


@given(
    totals=st.lists(st.tuples(st.integers(0, 10**6), st.floats(0, 1e6), st.floats(0.01, 5.0)), min_size=2, max_size=20),
)
def test_law_no_figure_of_a_model_server_is_negative(totals: list[tuple[int, float, float]]) -> None:
    """Counters that fall were begun anew, and tell nothing that time."""
    pages, now = ModelServerPages(ServerKind.VLLM, replica="r", longest_s=3.0), 0.0
    for count, seconds, pause_s in totals:
        now += pause_s
        name = "vllm:time_to_first_token_seconds"
        text = f"{name}_count {count}\n{name}_sum {seconds}\nvllm:num_requests_running 1\nvllm:prompt_tokens_total {count}\n"
        assert all(sample.value >= 0 for sample in pages.take(text, now=now))


@given(at=st.datetimes(datetime(2020, 1, 1), datetime(2040, 1, 1)))  # noqa: DTZ001  as dmon prints it: without a zone
def test_law_a_line_of_dmon_has_the_time_that_it_says(at: datetime) -> None:
    """To the second."""
    [sample] = dmon()(f"#Date Time gpu sm\n {at:%Y%m%d %H:%M:%S} 0 5\n".encode())
    assert at.replace(microsecond=0, tzinfo=UTC).timestamp() == sample.at
