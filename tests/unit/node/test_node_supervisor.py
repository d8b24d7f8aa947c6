"""A whole node with toy workers: it starts, restarts, reloads and ends as promised, and leaves no process behind."""

from __future__ import annotations

import os
import signal
import socket
import urllib.parse
from typing import TYPE_CHECKING, Any

from tidegate.adapters.keys.store import KeyStore

if TYPE_CHECKING:
    from tests.unit.node.conftest import Node
else:
    Node = Any


def test_workers_share_the_port_and_sigterm_leaves_nothing(node: Node) -> None:
    """Two processes answer on one port; SIGTERM ends everything with 0, and no process, socket or endpoints file is left."""
    node.start()
    answers = node.both()
    assert answers[0]["pid"] != answers[1]["pid"]
    assert f"workers=2 pid={node.pid}\n" in node.log()
    assert len(node.children) == 4  # two workers, the counting process and the ledger process
    node.signal(signal.SIGTERM)
    assert node.exit_code() == 0
    assert node.survivors() == []
    assert not (node.state / "endpoints.json").exists()
    assert "Traceback" not in node.log()


def test_sigint_ends_it_too(node: Node) -> None:
    """Ctrl-C reaches the supervisor only, and means the same."""
    node.start()
    assert {os.getsid(child.pid) for child in node.children}.isdisjoint({os.getsid(node.pid)})
    node.signal(signal.SIGINT)
    assert node.exit_code() == 0
    assert node.survivors() == []


def test_running_streams_finish_while_nothing_more_is_accepted(node: Node) -> None:
    """At SIGTERM streams go on to their end, and fresh connections are refused."""
    node.start()
    address = urllib.parse.urlsplit(node.endpoint("api"))
    streams = [node.open_stream(1.0) for _ in range(10)]
    node.signal(signal.SIGTERM)

    def refused() -> bool:
        try:
            socket.create_connection((address.hostname or "", address.port or 0), timeout=1.0).close()
        except ConnectionRefusedError:
            return True
        return False

    node.wait_for(refused, "the port to be closed", deadline_s=1.0)
    assert not node.ended()
    assert [stream.rest().endswith(b"data: [DONE]\n\n") for stream in streams] == [True] * 10
    assert node.exit_code() == 0
    assert "node.stopped interrupted=0" in node.log()


def test_not_ready_comes_before_the_end(node: Node) -> None:
    """While it drains, the admin port answers and says so."""
    node.start()
    assert node.get("/readyz", "admin")[0] == 200
    stream = node.open_stream(1.0)
    node.signal(signal.SIGTERM)
    node.wait_for(lambda: "node.stopping" in node.log(), "the drain")
    status, body = node.get("/readyz", "admin")
    assert (status, b'"draining"' in body) == (503, True)
    stream.rest()
    assert node.exit_code() == 0


def test_what_does_not_finish_in_time_gets_an_error_event(node: Node) -> None:
    """After the drain time every stream still running ends with the error event, and the count is told."""
    node.configure(server={"drain_timeout_s": 0.3})
    node.start()
    streams = [node.open_stream(60.0) for _ in range(50)]
    node.signal(signal.SIGTERM)
    assert [stream.rest().endswith(b"event: error\n\n") for stream in streams] == [True] * 50
    assert node.exit_code() == 0
    assert "node.stopped interrupted=50" in node.log()


def test_a_second_signal_ends_at_once(node: Node) -> None:
    """Whoever signals twice does not want to wait; the exit code tells that requests were cut, and the log how many."""
    node.configure(server={"drain_timeout_s": 60.0})
    node.start()
    for _ in range(3):
        node.open_stream(60.0)
    node.signal(signal.SIGTERM)
    node.wait_for(lambda: "node.stopping" in node.log(), "the drain")
    assert "node.stopping requests_running=3 drain_timeout_s=60 waits for them; a second signal stops at once" in node.log()
    node.signal(signal.SIGTERM)
    assert node.exit_code(deadline_s=5.0) == 1
    assert node.survivors() == []
    assert "node.stopped interrupted=3" in node.log()
    assert "started again" not in node.log(), "nothing is"


def test_killing_the_supervisor_leaves_no_orphan(node: Node) -> None:
    """After SIGKILL of the supervisor its workers interrupt their streams and end, and so does the counting process."""
    node.start()
    stream = node.open_stream(60.0)
    node.signal(signal.SIGKILL)
    assert stream.rest().endswith(b"event: error\n\n")
    assert node.survivors() == []


def test_a_node_starts_again_after_it_was_killed(node: Node) -> None:
    """What a killed supervisor leaves in the state directory is no obstacle."""
    node.start()
    node.signal(signal.SIGKILL)
    assert node.survivors() == []
    node.exit_code()
    (node.state / "endpoints.json").unlink()
    node.start()
    node.signal(signal.SIGTERM)
    assert node.exit_code() == 0


def test_a_worker_that_dies_is_replaced_on_its_socket(node: Node) -> None:
    """The other worker goes on, the port stays open, the log has one line, and counters do not fall."""
    node.start()
    before = node.both()
    counted = node.requests_counted()
    os.kill(before[1]["pid"], signal.SIGKILL)
    node.wait_for(lambda: node.log().count("worker.started index=1") == 2, "the next worker")
    after = node.both()
    assert (after[0]["pid"], after[1]["pid"] != before[1]["pid"]) == (before[0]["pid"], True)
    assert node.log().count("worker.exited index=1 was ended by SIGKILL") == 1
    assert node.requests_counted() >= counted
    node.signal(signal.SIGTERM)
    assert node.exit_code() == 0


def test_workers_that_keep_dying_end_the_node(node: Node) -> None:
    """Five deaths in a short time are a fault that restarts do not mend: the node says so and exits with 1."""
    node.launch(STAND_IN="dies")
    assert node.exit_code() == 1
    assert "giving up" in node.log()
    assert "exited with status 7" in node.log()
    assert "Traceback" not in node.log()


def test_a_configuration_that_workers_refuse_ends_the_start(node: Node) -> None:
    """What only a worker can find out is told as it said it, at once, with the exit code of configuration faults."""
    node.launch(STAND_IN="refuses")
    assert node.exit_code() == 2
    assert "The stand-in was told to refuse." in node.log()


def test_a_port_in_use_is_named_with_its_setting(node: Node) -> None:
    """Nothing is started, and the message says what to change."""
    with socket.create_server(("127.0.0.1", 0)) as occupied:
        port = occupied.getsockname()[1]
        node.configure(server={"port": port})
        node.launch()
        assert node.exit_code() == 2
    assert f"Port {port} on 127.0.0.1 is in use" in node.log()
    assert "server.port" in node.log()


def test_two_nodes_do_not_share_a_state_directory(node: Node) -> None:
    """The second one says who holds it."""
    node.start()
    first = node.process
    node.launch()
    second, node.process = node.process, first
    assert second is not None
    assert second.wait(20.0) == 2
    assert f"Another Tidegate (process {node.pid})" in node.log()


def test_sighup_reloads_without_touching_a_stream(node: Node) -> None:
    """Every worker uses the changed setting, in the same process, and a running stream goes on to its end."""
    node.start()
    before = node.both()
    stream = node.open_stream(1.0)
    node.configure(limits={"tokens_per_minute": 1000})
    node.signal(signal.SIGHUP)
    node.wait_for(lambda: "configuration.reloaded" in node.log(), "the reload")
    after = node.both()
    assert [after[index]["limit"] for index in (0, 1)] == [1000, 1000]
    assert [after[index]["pid"] for index in (0, 1)] == [before[index]["pid"] for index in (0, 1)]
    assert stream.rest().endswith(b"data: [DONE]\n\n")


def test_a_reload_reaches_the_limits_of_the_http_server(node: Node) -> None:
    """A head that begins after the reload has the time which the reloaded file gives, not the ten seconds of the start."""
    node.start()
    node.configure(server={"header_timeout_s": 0.2})
    os.kill(int((node.state / "lock").read_text()), signal.SIGHUP)  # as the reference says
    node.wait_for(lambda: "configuration.reloaded" in node.log(), "the reload")
    address = urllib.parse.urlsplit(node.endpoint("api"))
    with socket.create_connection((address.hostname, address.port), timeout=5.0) as client:
        client.sendall(b"GET /whoami HTTP/1.1\r\n")
        assert client.recv(4096).startswith(b"HTTP/1.1 408 ")


def test_a_reload_that_one_worker_refuses_changes_none(node: Node) -> None:
    """All or nothing: worker 0 had prepared, and keeps what it had."""
    node.start()
    node.configure(limits={"tokens_per_minute": 13})
    node.signal(signal.SIGHUP)
    node.wait_for(lambda: "configuration.reload_refused" in node.log(), "the refusal")
    assert "does not like thirteen" in node.log()
    assert [answer["limit"] for answer in node.both().values()] == [None, None]
    node.configure(limits={"tokens_per_minute": 14})
    node.signal(signal.SIGHUP)
    node.wait_for(lambda: "configuration.reloaded" in node.log(), "the next reload")


def test_a_broken_file_or_a_fixed_setting_is_refused(node: Node) -> None:
    """A file that does not load, or that changes what is built in, leaves the node as it is and says why."""
    node.start()
    node.file.write_text("server: {prot: 1}")
    node.signal(signal.SIGHUP)
    node.wait_for(lambda: node.log().count("configuration.reload_refused") == 1, "the first refusal")
    node.configure(server={"workers": 3})
    node.signal(signal.SIGHUP)
    node.wait_for(lambda: node.log().count("configuration.reload_refused") == 2, "the second refusal")
    assert "server.workers" in node.log()
    assert len(node.both()) == 2


def test_a_worker_restarted_after_a_reload_has_the_reloaded_settings(node: Node) -> None:
    """Restart and reload do not undo each other."""
    node.start()
    node.configure(limits={"tokens_per_minute": 1000})
    node.signal(signal.SIGHUP)
    node.wait_for(lambda: "configuration.reloaded" in node.log(), "the reload")
    os.kill(node.both()[0]["pid"], signal.SIGKILL)
    node.wait_for(lambda: node.log().count("worker.started index=0") == 2, "the next worker")
    assert node.both()[0]["limit"] == 1000


def test_a_frozen_worker_does_not_freeze_the_admin_port(node: Node) -> None:
    """Readiness and metrics answer within the worker's deadline and tell which one is silent."""
    node.start()
    frozen = node.connect()
    frozen.request("GET", "/freeze?s=2.6")
    node.wait_for(lambda: b"unresponsive" in node.get("/readyz", "admin")[1], "the silence to be noticed")
    assert node.get("/metrics", "admin")[0] == 200
    assert frozen.getresponse().read() == b"thawed"
    node.wait_for(lambda: b"unresponsive" not in node.get("/readyz", "admin")[1], "the answers to come again")
    frozen.close()


def test_the_admin_api_is_served_with_its_keys(node: Node) -> None:
    """The key database exists once the node runs, and an admin key opens the status page."""
    node.start()
    store = KeyStore(node.state / "keys.sqlite", create_file=False)
    token = store.create(name="root", tenant="ops", user="ops", now=1.0, admin=True).token.reveal()
    store.close()
    connection = node.connect("admin")
    connection.request("GET", "/admin/status", headers={"authorization": f"Bearer {token}"})
    answer = connection.getresponse()
    body = answer.read()
    connection.close()
    assert (answer.status, b'"phase":"running"' in body) == (200, True)
