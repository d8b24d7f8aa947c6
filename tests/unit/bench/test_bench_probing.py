"""What the first request tells, and which of it stops a run."""

from __future__ import annotations

import pytest
from tests.unit.bench.runs import TARGET, answer, failure

from tidegate.bench.probing import finding
from tidegate.bench.sample import End

KEY_FROM = "It was taken from the variable X."


def test_a_good_answer_is_no_finding() -> None:
    """Nor is a probe that was ended before it was sent."""
    assert finding(answer(), TARGET, key_from=KEY_FROM) is None
    assert finding(failure(end=End.NOT_SENT), TARGET, key_from=KEY_FROM) is None


@pytest.mark.parametrize(
    ("end", "status", "said", "stops"),
    [
        (End.TRANSPORT, 0, "Nothing was measured: refused", True),
        (End.TIMEOUT, 0, "--timeout-s", True),
        (End.HTTP_ERROR, 401, KEY_FROM, True),
        (End.HTTP_ERROR, 403, "--key-env", True),
        (End.HTTP_ERROR, 404, 'the model asked for is "m"', True),
        (End.HTTP_ERROR, 400, "--extra-body", True),
        (End.HTTP_ERROR, 429, "limits even the first request", False),
        (End.HTTP_ERROR, 503, "failed at the first request (503", False),
        (End.STREAM_ERROR, 200, "OpenAI-compatible", False),
        (End.TRUNCATED, 200, "not whole", False),
    ],
)
def test_only_what_more_requests_cannot_change_stops_a_run(end: End, status: int, said: str, stops: bool) -> None:
    """A limit or a failing server may be what is to be measured."""
    found = finding(failure(end=end, status=status, error="refused"), TARGET, key_from=KEY_FROM)
    assert found is not None
    assert said in found.message
    assert stops is found.stops
    assert TARGET.key not in found.message
