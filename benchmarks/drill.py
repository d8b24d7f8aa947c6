"""The failover drill: two upstreams under steady load, half of it streams; the primary is killed, frozen, made to fail and made slow.

    python -m benchmarks.drill [--rate 200] [--seconds 20] [--json]

For each trouble: errors that clients saw before the commit point (aim: none), streams that broke after it, the time from the trouble until
fewer than one in fifty of the requests that fall due suffers (an error, a broken stream, or more than a second above the calm median), the
longest that a client waited, and the upstream calls beyond one for each request.
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
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.machine import usable_cores
from benchmarks.processes import ROOT, LoadProcess
from tidegate.testing import GatewayProcess

_SCRIPT = {
    "default": {
        "first_token_s": {"lognormal": [0.03, 0.3]},
        "per_token_s": {"normal": [0.01, 0.003]},
        "output_tokens": {"uniform": [5, 40]},
    }
}
_TROUBLE_AT_S = 5.0
_SLOW_S = 8.0
_SUFFERING_S = 1.0
_SLICE_S = 0.25
_BAD_SHARE = 0.02
_READY_S = 20.0


class Mock:
    """A `tidegate mock` process."""

    def __init__(self, name: str, place: Path, port: int = 0) -> None:
        self._script = place / f"{name}.json"
        self._script.write_text(json.dumps(_SCRIPT))
        self._log = place / f"{name}.log"
        self.port = port
        self.process = self._start()

    def _start(self) -> subprocess.Popen[bytes]:
        command = (sys.executable, "-m", "tidegate.cli.main", "mock", "--script", str(self._script), "--port", str(self.port))
        with self._log.open("wb") as output:
            process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, cwd=ROOT)
        deadline = time.monotonic() + _READY_S
        while time.monotonic() < deadline:
            found = re.search(r"127\.0\.0\.1:(\d+)", self._log.read_text(errors="replace"))
            if found is not None:
                self.port = int(found[1])
                return process
            time.sleep(0.05)
        process.kill()
        raise SystemExit(f"the mock did not start: {self._log.read_text(errors='replace')}")

    @property
    def base_url(self) -> str:
        return f"http://127.0.0.1:{self.port}/v1"

    def put(self, default: dict[str, Any]) -> None:
        """Change how it behaves from now on."""
        content = json.dumps({"default": default}).encode()
        request = urllib.request.Request(f"http://127.0.0.1:{self.port}/mock/script", data=content, method="PUT")
        with urllib.request.urlopen(request, timeout=5):  # noqa: S310  loopback
            pass

    def end(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            self.process.send_signal(signal.SIGCONT)
            self.process.kill()
        self.process.wait()


@dataclass(frozen=True)
class Verdict:
    """What one trouble did to the clients."""

    trouble: str
    requests: int
    errors_before_commit: int
    broken_streams: int
    recovery_s: float
    longest_s: float
    extra_calls_ratio: float
    from_standby: int
    said: tuple[str, ...]


def _kill(mock: Mock) -> None:
    mock.process.kill()


def _freeze(mock: Mock) -> None:
    mock.process.send_signal(signal.SIGSTOP)


def _fail(mock: Mock) -> None:
    mock.put(_SCRIPT["default"] | {"status": 500})


def _slow_down(mock: Mock) -> None:
    mock.put(_SCRIPT["default"] | {"first_token_s": _SLOW_S})


TROUBLES: dict[str, Callable[[Mock], None]] = {"killed": _kill, "frozen": _freeze, "failing": _fail, "slow": _slow_down}


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


def drill(trouble: str, *, rate_per_s: float, seconds: float) -> Verdict:
    """Run one trouble and judge it."""
    with tempfile.TemporaryDirectory(prefix="tidegate-drill-") as folder, _mocks(Path(folder)) as (primary, standby):
        configuration = {
            "upstreams": {
                name: {"dialect": "vllm", "base_url": mock.base_url} for name, mock in (("primary", primary), ("standby", standby))
            },
            "routes": [{"model": "*", "targets": [{"upstream": "primary"}, {"upstream": "standby"}]}],
        }
        gateway = GatewayProcess(configuration, state_directory=Path(folder) / "state")
        key = gateway.create_key()
        with gateway:
            gateway.wait_for_key(key)
            port = int(gateway.api_url.rpartition(":")[2])
            task = {"port": port, "key": key.reveal(), "model": "scripted", "prompt": "request # of the drill"}
            with LoadProcess("drill_client", usable_cores(), task | {"rate_per_s": rate_per_s, "seconds": seconds}) as client:
                begun = float(client.hear()["begun_monotonic_s"])
                time.sleep(max(0.0, begun + _TROUBLE_AT_S - time.monotonic()))
                TROUBLES[trouble](primary)
                ends = client.hear()["requests"]
        records = _records(gateway.state_directory)
    return _judge(trouble, ends, records)


def _records(state_directory: Path) -> list[dict[str, Any]]:
    lines = [line for path in (state_directory / "records").glob("*.jsonl") for line in path.read_text().splitlines()]
    return [record for record in map(json.loads, lines) if record["operation"] == "chat"]


def _judge(trouble: str, ends: list[dict[str, Any]], records: list[dict[str, Any]]) -> Verdict:
    calm = statistics.median(end["took_s"] for end in ends if end["due_s"] < _TROUBLE_AT_S - 1.0)
    longest = max(end["took_s"] for end in ends)
    attempts = sum(len(record.get("attempts", ())) for record in records)
    return Verdict(
        trouble,
        requests=len(ends),
        errors_before_commit=sum(end["end"] == "error" for end in ends),
        broken_streams=sum(end["end"] == "broken" for end in ends),
        recovery_s=_recovery_s(ends, calm),
        longest_s=round(longest, 2),
        extra_calls_ratio=round(attempts / len(records) - 1.0, 4),
        from_standby=sum(end["degraded"] for end in ends),
        said=tuple(sorted({end["said"] for end in ends if end["end"] == "error"}))[:3],
    )


def _recovery_s(ends: list[dict[str, Any]], calm: float) -> float:
    """Give the time after the trouble when the last bad slice of requests fell due."""
    slices: dict[int, list[bool]] = {}
    for end in ends:
        bad = end["end"] != "ok" or end["took_s"] > calm + _SUFFERING_S
        slices.setdefault(int((end["due_s"] - _TROUBLE_AT_S) // _SLICE_S), []).append(bad)
    worst = [number for number, bad in slices.items() if number >= 0 and sum(bad) > _BAD_SHARE * len(bad)]
    return round((max(worst) + 1) * _SLICE_S, 2) if worst else 0.0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rate", type=float, default=200.0, help="requests a second")
    parser.add_argument("--seconds", type=float, default=25.0)
    parser.add_argument("--only", choices=sorted(TROUBLES))
    options = parser.parse_args()
    for trouble in TROUBLES if options.only is None else (options.only,):
        print(json.dumps(drill(trouble, rate_per_s=options.rate, seconds=options.seconds).__dict__), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
