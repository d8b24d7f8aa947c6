"""What wiring makes of the `streams` section."""

from __future__ import annotations

import pytest

from tidegate.config.schema import Configuration, DialectName, TimeoutsSection, UpstreamSection
from tidegate.config.schema_resilience import StreamsSection
from tidegate.wiring.streams import stream_settings


@pytest.mark.parametrize(
    ("clocks", "heartbeat_s", "expected"),
    [
        ([], 15.0, 60.0),
        ([TimeoutsSection(first_token_s=20.0, stall_s=25.0)], 15.0, 25.0),
        ([TimeoutsSection(first_token_s=20.0, stall_s=25.0)], 40.0, 40.0),
        ([TimeoutsSection(), TimeoutsSection(first_token_s=90.0)], None, 90.0),
    ],
)
def test_a_stream_may_be_silent_for_the_longest_of_its_clocks(
    clocks: list[TimeoutsSection], heartbeat_s: float | None, expected: float
) -> None:
    """Of all upstreams, for the stream may be of any; the heartbeat counts where it is longer still."""
    upstreams = {
        f"u{number}": UpstreamSection(dialect=DialectName.OPENAI, base_url="http://127.0.0.1:9/v1", timeouts=each)
        for number, each in enumerate(clocks)
    }
    settings = stream_settings(Configuration(upstreams=upstreams, streams=StreamsSection(heartbeat_s=heartbeat_s)))
    assert expected == settings.peer_silence_s
