"""The failover drill: two upstreams under load, half streams; the primary is killed, frozen, fails, becomes slow, and comes back.

    python -m benchmarks.drill [--rate 200] [--seconds 25] [--workers 1] [--only frozen]

For each trouble one JSON line: errors that clients saw before the commit point (aim: none), streams that broke after it, the time from the
trouble until at most one in fifty of the requests that fall due within a second suffers (an error, a broken stream, or more than a
second above the calm median), the longest that a client waited, and the upstream calls beyond one for each request. Where the primary
comes back: the time until it has its traffic again.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from benchmarks.errors import BenchmarkError
from benchmarks.machine import usable_cores
from benchmarks.processes import ROOT, LoadProcess
from tidegate.testing import GatewayProcess

_SCRIPT: dict[str, dict[str, Any]] = {
    "default": {
        "first_token_s": {"lognormal": [0.03, 0.3]},
        "per_token_s": {"normal": [0.01, 0.003]},
        "output_tokens": {"uniform": [5, 40]},
    }
}
_SLOW_S = 8.0
_SUFFERING_S = 1.0
_STEP_S = 0.25
_WINDOW_S = 1.0  # long enough for a share of 2 % to be more than a probe or two of a breaker
_BAD_SHARE = 0.02
_READY_S = 20.0
_CALM_GAP_S = 0.5  # before the trouble: what fell due later may have met it


class Mock:
    """A `tidegate mock` process on a free port; `place` keeps its script and its log."""

    def __init__(self, name: str, place: Path, *, script: Mapping[str, Any] = _SCRIPT) -> None:
        self._script = place / f"{name}.json"
        self._script.write_text(json.dumps(script))
        self._log = place / f"{name}.log"
        self.port = 0
        self.process = self._start()

    def _start(self) -> subprocess.Popen[bytes]:
        command = (sys.executable, "-m", "tidegate.cli.main", "mock", "--quiet", "--script", str(self._script), "--port", str(self.port))
        with self._log.open("wb") as output:
            process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, cwd=ROOT)
        try:
            self.port = self._wait_for_port(process)
        except BaseException:
            process.kill()
            process.wait()
            raise
        return process

    def _wait_for_port(self, process: subprocess.Popen[bytes]) -> int:
        deadline = time.monotonic() + _READY_S
        while process.poll() is None and time.monotonic() < deadline:
            found = re.search(r"127\.0\.0\.1:(\d+)", self._log.read_text(errors="replace"))
            if found is not None:
                return int(found[1])
            time.sleep(0.05)
        raise BenchmarkError(f"the mock did not start: {self._log.read_text(errors='replace')}")

    @property
    def base_url(self) -> str:
        return f"http://127.0.0.1:{self.port}/v1"

    def load(self, script: Mapping[str, Any]) -> None:
        """Follow this script from now on."""
        content = json.dumps(script).encode()
        request = urllib.request.Request(f"http://127.0.0.1:{self.port}/mock/script", data=content, method="PUT")
        with urllib.request.urlopen(request, timeout=5):  # noqa: S310  loopback
            pass

    def freeze(self) -> None:
        """Stop all of it, with its connections open, until `thaw`."""
        self.process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        self.process.send_signal(signal.SIGCONT)

    def restart(self) -> None:
        """Come up again on the same port after `process.kill()`."""
        self.process.wait()
        self.process = self._start()

    def end(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            self.thaw()
            self.process.kill()
        self.process.wait()


@dataclass(frozen=True)
class Plan:
    """How a drill is run; times in seconds since the first request."""

    rate_per_s: float = 200.0
    seconds: float = 25.0
    trouble_at_s: float = 5.0
    back_at_s: float = 13.0
    """When a primary that comes back does so."""
    workers: int = 1
    settings: Mapping[str, Any] | None = None
    """More sections of the gateway's configuration."""


@dataclass(frozen=True)
class Verdict:
    """What one trouble did to the clients."""

    trouble: str
    requests: int
    errors_before_commit: int
    broken_streams: int
    """Ended with an error event."""
    cut_streams: int
    """Ended without a word."""
    recovery_s: float
    longest_s: float
    longest_answered_s: float
    """Without those that ended in an error."""
    extra_calls_ratio: float
    moved_ratio: float
    """The part of those extra calls whose first was on a replica that was found dead: nobody had served them."""
    from_standby: int
    back_s: float | None
    """From the primary's return until it had its traffic again; None: it did not come back, or did not get it."""
    said: tuple[str, ...]


@dataclass(frozen=True)
class Trouble:
    """What befalls the primary, and how that ends, if it does."""

    begin: Callable[[Mock], None]
    end: Callable[[Mock], None] | None = None


def _kill(mock: Mock) -> None:
    mock.process.kill()


def _fail(mock: Mock) -> None:
    mock.load({"default": _SCRIPT["default"] | {"status": 500}})


def _slow_down(mock: Mock) -> None:
    mock.load({"default": _SCRIPT["default"] | {"first_token_s": _SLOW_S}})


def _mend(mock: Mock) -> None:
    mock.load(_SCRIPT)


TROUBLES = {
    "killed": Trouble(_kill),
    "frozen": Trouble(Mock.freeze),
    "failing": Trouble(_fail),
    "slow": Trouble(_slow_down),
    "killed_and_back": Trouble(_kill, Mock.restart),
    "frozen_and_back": Trouble(Mock.freeze, Mock.thaw),
    "failing_and_back": Trouble(_fail, _mend),
    "slow_and_back": Trouble(_slow_down, _mend),
}


@contextlib.contextmanager
def _mocks(place: Path) -> Iterator[tuple[Mock, Mock]]:
    mocks: list[Mock] = []
    try:
        mocks.append(Mock("primary", place))
        mocks.append(Mock("standby", place))
        yield mocks[0], mocks[1]
    finally:
        for mock in mocks:
            mock.end()


def drill(name: str, plan: Plan) -> Verdict:
    """Run one trouble and judge it."""
    with tempfile.TemporaryDirectory(prefix="tidegate-drill-") as folder, _mocks(Path(folder)) as (primary, standby):
        configuration = {
            "server": {"workers": plan.workers},
            "upstreams": {
                name: {"dialect": "vllm", "base_url": mock.base_url} for name, mock in (("primary", primary), ("standby", standby))
            },
            "routes": [{"model": "*", "targets": [{"upstream": "primary"}, {"upstream": "standby"}]}],
            **(plan.settings or {}),
        }
        gateway = GatewayProcess(configuration, state_directory=Path(folder) / "state")
        key = gateway.create_key()
        with gateway:
            gateway.wait_for_key(key)
            port = int(gateway.api_url.rpartition(":")[2])
            task = {"port": port, "key": key.reveal(), "model": "scripted", "prompt": "request # of the drill"}
            task |= {"rate_per_s": plan.rate_per_s, "seconds": plan.seconds}
            with LoadProcess("drill_client", usable_cores(), task) as client:
                begun = float(client.hear()["begun_monotonic_s"])
                trouble = TROUBLES[name]
                _wait_until(begun + plan.trouble_at_s)
                trouble.begin(primary)
                if trouble.end is not None:
                    _wait_until(begun + plan.back_at_s)
                    trouble.end(primary)
                back_at_s = time.monotonic() - begun if trouble.end is not None else None
                ends = client.hear()["requests"]
        records = _records(gateway.state_directory)
    return _judge(name, ends, records, trouble_at_s=plan.trouble_at_s, back_at_s=back_at_s)


def _wait_until(instant: float) -> None:
    time.sleep(max(0.0, instant - time.monotonic()))


def _records(state_directory: Path) -> list[dict[str, Any]]:
    lines = [line for path in (state_directory / "records").glob("*.jsonl") for line in path.read_text().splitlines()]
    return [record for record in map(json.loads, lines) if record["operation"] == "chat"]


def _judge(
    trouble: str, ends: list[dict[str, Any]], records: list[dict[str, Any]], *, trouble_at_s: float, back_at_s: float | None
) -> Verdict:
    calm = statistics.median(end["took_s"] for end in ends if end["due_s"] < trouble_at_s - _CALM_GAP_S)
    attempts = [attempt for record in records for attempt in record.get("attempts", ())]
    bad = [(end["due_s"], end["end"] != "ok" or end["took_s"] > calm + _SUFFERING_S) for end in ends]
    away = [(end["due_s"], bool(end["degraded"])) for end in ends]
    return Verdict(
        trouble,
        requests=len(ends),
        errors_before_commit=sum(end["end"] == "error" for end in ends),
        broken_streams=sum(end["end"] == "broken" for end in ends),
        cut_streams=sum(end["end"] == "cut" for end in ends),
        recovery_s=_over_after(bad, trouble_at_s),
        longest_s=round(max(end["took_s"] for end in ends), 2),
        longest_answered_s=round(max(end["took_s"] for end in ends if end["end"] == "ok"), 2),
        extra_calls_ratio=round(len(attempts) / len(records) - 1.0, 4),
        moved_ratio=round(sum(attempt["result"] == "lost" for attempt in attempts) / len(records), 4),
        from_standby=sum(end["degraded"] for end in ends),
        back_s=None if back_at_s is None else _settled_after(away, back_at_s),
        said=tuple(sorted({end["said"] for end in ends if end["end"] in ("error", "cut")}))[:3],
    )


def _over_after(marks: list[tuple[float, bool]], since_s: float) -> float:
    """Give the time from `since_s` until no window of a second that begins later has more than one mark in fifty."""
    last = max(due_s for due_s, _ in marks)
    over = since_s
    for step in range(int((last - since_s) / _STEP_S) + 1):
        begin = since_s + step * _STEP_S
        window = [marked for due_s, marked in marks if begin <= due_s < begin + _WINDOW_S]
        if sum(window) > _BAD_SHARE * len(window):
            over = begin + _STEP_S
    return round(over - since_s, 2)


def _settled_after(marks: list[tuple[float, bool]], since_s: float) -> float | None:
    """As `_over_after`, but None when it was not over within the drill, less a window."""
    after_s = _over_after(marks, since_s)
    return after_s if since_s + after_s < max(due_s for due_s, _ in marks) - _WINDOW_S else None


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rate", type=float, default=200.0, help="requests a second")
    parser.add_argument("--seconds", type=float, default=25.0)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--only", choices=sorted(TROUBLES), action="append", help="may be given several times")
    options = parser.parse_args()
    plan = Plan(rate_per_s=options.rate, seconds=options.seconds, workers=options.workers)
    try:
        for trouble in options.only or TROUBLES:
            print(json.dumps(asdict(drill(trouble, plan))), flush=True)
    except BenchmarkError as problem:
        print(problem, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
