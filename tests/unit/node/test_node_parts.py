"""The small parts of a node: addresses, restarts, the state directory, log lines, and what a worker imports."""

from __future__ import annotations

import json
import logging
import os
import resource
import socket
import stat
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.adapters.records.lines import LogFormat, masked
from tidegate.adapters.records.sink import LogSink
from tidegate.config.schema import Configuration
from tidegate.errors import ConfigurationError
from tidegate.node.log import LoggedLines
from tidegate.node.restarts import RestartPolicy, Restarts
from tidegate.node.sockets import Address, close_all, open_shared, open_single, port_of
from tidegate.node.state_directory import Endpoints, held, make_private, write_endpoints
from tidegate.node.supervisor import NodeOptions

LOCAL = Address("127.0.0.1", 0, "server")
COMMANDS = NodeOptions(load=Configuration, version="0", started_at=0.0, keys_file="keys.sqlite")

# ── addresses ─────────────────────────────────────────────────────────────────


def test_workers_get_sockets_of_one_port() -> None:
    """Port 0 is chosen once, for all of them."""
    sockets = open_shared(LOCAL, 3)
    assert len({port_of(each) for each in sockets}) == 1
    close_all(sockets)


def test_a_port_shared_by_another_program_counts_as_in_use() -> None:
    """SO_REUSEPORT on both sides would split the clients between two gateways; the first try without it prevents that."""
    with socket.socket() as other:
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        other.bind(("127.0.0.1", 0))
        other.listen()
        with pytest.raises(ConfigurationError, match=r"in use .* server\.port") as refused:
            open_shared(Address("127.0.0.1", port_of(other), "server"), 2)
    assert refused.value.param == "server.port"


def test_the_admin_port_in_use_names_its_own_setting() -> None:
    """The message leads to the right line of the file."""
    first = open_single(Address("127.0.0.1", 0, "admin"))
    with pytest.raises(ConfigurationError, match=r"admin\.port"):
        open_single(Address("127.0.0.1", port_of(first), "admin"))
    first.close()


@pytest.mark.parametrize(("host", "words"), [("no-such-host.invalid", "cannot be resolved"), ("203.0.113.7", "no address of this machine")])
def test_a_host_that_is_not_ours_is_explained(host: str, words: str) -> None:
    """A wrong `server.host` is told as that."""
    with pytest.raises(ConfigurationError, match=words):
        open_shared(Address(host, 0, "server"), 1)


@pytest.mark.parametrize(
    ("host", "url"),
    [
        ("127.0.0.1", "http://127.0.0.1:1"),
        ("0.0.0.0", "http://127.0.0.1:1"),  # noqa: S104  shown, not bound
        ("", "http://127.0.0.1:1"),
        ("*", "http://127.0.0.1:1"),
        ("::", "http://[::1]:1"),
        ("::1", "http://[::1]:1"),
        ("gw", "http://gw:1"),
    ],
)
def test_addresses_are_shown_as_a_client_here_would_use_them(host: str, url: str) -> None:
    """`every address` is no address one can call."""
    assert Address(host, 0, "server").url(1) == url


# ── restarts ──────────────────────────────────────────────────────────────────


def test_pauses_double_and_start_over_after_a_healthy_life() -> None:
    """A process that dies now and then is back at once."""
    restarts = Restarts(RestartPolicy(first_pause_s=1, longest_pause_s=5, healthy_s=30, give_up_after=None))
    assert [restarts.died(lived_s=0, now=0) for _ in range(5)] == [1, 2, 4, 5, 5]
    assert restarts.died(lived_s=31, now=100) == 1


def test_five_deaths_in_thirty_seconds_are_given_up() -> None:
    """Four are not, nor are five in a longer time."""
    policy = RestartPolicy(give_up_after=5, within_s=30)
    quick, slow = Restarts(policy), Restarts(policy)
    assert [quick.died(lived_s=0, now=now) is None for now in (0, 7, 14, 21, 28)] == [False, False, False, False, True]
    assert [slow.died(lived_s=0, now=now) is None for now in (0, 8, 16, 24, 32)] == [False] * 5


@given(st.lists(st.tuples(st.floats(0, 1000), st.floats(0, 100))))
def test_pauses_stay_within_their_bounds(deaths: list[tuple[float, float]]) -> None:
    """Law: whatever happens, a pause is at least the first and at most the longest."""
    restarts = Restarts(RestartPolicy(first_pause_s=0.5, longest_pause_s=30, give_up_after=None))
    now = 0.0
    for lived_s, gap_s in deaths:
        now += gap_s
        pause_s = restarts.died(lived_s=lived_s, now=now)
        assert pause_s is not None
        assert 0.5 <= pause_s <= 30
    assert restarts.count == len(deaths)


# ── state directory ───────────────────────────────────────────────────────────


def test_the_state_directory_is_made_for_its_owner_only(tmp_path: Path) -> None:
    """Keys lie in it."""
    make_private(tmp_path / "a" / "state")
    assert stat.S_IMODE((tmp_path / "a" / "state").stat().st_mode) == 0o700


def test_a_state_directory_that_cannot_be_made_is_explained(tmp_path: Path) -> None:
    """The message names the setting."""
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigurationError, match="state_directory"):
        make_private(tmp_path / "file" / "state")


def test_only_one_holds_the_state_directory(tmp_path: Path) -> None:
    """The second is told which process is the first; afterwards it is free again."""
    with held(tmp_path), pytest.raises(ConfigurationError, match=f"process {os.getpid()}"), held(tmp_path):
        pass
    with held(tmp_path):
        pass


def test_endpoints_are_readable_json(tmp_path: Path) -> None:
    """Scripts read it."""
    write_endpoints(tmp_path, Endpoints(api="http://127.0.0.1:1", admin="http://127.0.0.1:2"))
    assert json.loads((tmp_path / "endpoints.json").read_text()) == {"api": "http://127.0.0.1:1", "admin": "http://127.0.0.1:2"}
    assert [path.name for path in tmp_path.iterdir()] == ["endpoints.json"]


# ── log lines ─────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("key tg-abcdefghij-" + "A" * 49 + " came", "key tg-abcdefghij-**** came"),
        ("Authorization: Bearer abc.def-123456", "Authorization: Bearer ****"),
        ("sk-proj-0123456789abcdef failed", "sk-**** failed"),
        ("eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.c2lnbmF0dXJl", "****"),
        ("http://user:pass@proxy:3128/x", "http://****@proxy:3128/x"),
        ("worker.started index=0 pid=12", "worker.started index=0 pid=12"),
    ],
)
def test_what_looks_like_a_credential_is_masked(text: str, expected: str) -> None:
    """A secret that reached a log call does not reach the log."""
    assert masked(text) == expected


def test_an_exception_is_one_masked_line() -> None:
    """A traceback becomes two fields: what, and the way to it."""
    reader, writer = os.pipe()
    handler = LoggedLines(LogSink(writer), LogFormat.LOGFMT, {"worker": 1})
    logger = logging.getLogger("tests.one_line")
    logger.propagate = False
    logger.addHandler(handler)
    try:
        int("line one\nwith sk-0123456789abcdef")
    except ValueError:
        logger.exception("something.failed id=%d\n", 7)
    logger.removeHandler(handler)
    line = os.read(reader, 65_536).decode()
    os.close(reader)
    os.close(writer)
    assert line.count("\n") == 1
    assert "error something.failed id=7\\u000a worker=1 exception=" in line
    assert "sk-****" in line
    assert f"{Path(__file__).name}:" in line
    assert "0123456789abcdef" not in line


# ── imports ───────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    "command", [COMMANDS.worker_command, COMMANDS.counting_command, COMMANDS.ledger_command, COMMANDS.recorder_command]
)
def test_files_of_the_working_directory_are_no_modules_of_ours(command: Sequence[str], tmp_path: Path) -> None:
    """A gateway starts wherever its configuration lies; a `msgspec.py` there, or a `jwt.py`, must not be taken for the package."""
    (tmp_path / "msgspec.py").write_text("raise SystemExit('taken from the working directory')\n")
    result = subprocess.run([*command, "--help"], cwd=tmp_path, capture_output=True, text=True, timeout=30, check=False)
    assert (result.returncode, result.stderr) == (0, "")


def test_a_worker_imports_little() -> None:
    """Memory and start time of every worker: nothing of the admin port, the command line or the file format is in it."""
    heavy = ["starlette", "uvicorn", "prometheus_client", "yaml", "cyclopts", "rich", "jwt", "cryptography", "h11"]
    program = (
        "import sys, tidegate.node.worker, tidegate.node.listen, tidegate.wiring.worker\n"
        f"print([name for name in {heavy!r} if name in sys.modules])"
    )
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=30, check=True)
    assert result.stdout.strip() == "[]"


def test_a_full_disk_is_no_reason_not_to_start(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The lock holds without its number, and the node serves without the file that tells where; a warning says so."""
    with held(tmp_path), open_files_of_at_most(0):
        write_endpoints(tmp_path, Endpoints("http://127.0.0.1:1", "http://127.0.0.1:2"))
    with open_files_of_at_most(0), held(tmp_path):
        pass

    assert "cannot be written" in caplog.text
    assert not (tmp_path / "endpoints.json").exists()


@contextmanager
def open_files_of_at_most(size: int) -> Iterator[None]:
    """Make every write beyond `size` bytes fail, as on a full disk; the signal of that limit is ignored by Python."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
