"""Several processes on one key database: a revoked key stops everywhere within a second."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

from tidegate.adapters.keys.store import KeyStore
from tidegate.domain.units import KeyId

DEADLINE_S = 20.0
REVOKED_WITHIN_S = 1.0

GATEWAY = """
import asyncio, sys, time
from pathlib import Path
from tidegate.adapters.keys.snapshot import KeySnapshot
from tidegate.adapters.keys.watcher import KeyWatcher
from tidegate.domain.principal import Principal
from tidegate.domain.units import Secret
from tidegate.gateway.authenticate import CachedAuthenticator

async def ask_until(authenticator, credential, accepted):
    async with asyncio.timeout(15):
        while isinstance(authenticator.known(credential, now=time.monotonic()), Principal) != accepted:
            await asyncio.sleep(0.005)
    print("accepted" if accepted else "refused", time.monotonic(), flush=True)

async def main():
    credential = Secret(sys.stdin.readline().strip())
    authenticator = CachedAuthenticator(keys=KeySnapshot({}, version=0), wall_clock=lambda: 1.0)
    watcher = KeyWatcher(Path(sys.argv[1]), loop=asyncio.get_running_loop(), on_snapshot=authenticator.adopt_keys)
    watcher.start()
    try:
        await ask_until(authenticator, credential, True)
        await ask_until(authenticator, credential, False)
    finally:
        watcher.close()

asyncio.run(main())
"""

WRITER = """
import sys
from pathlib import Path
from tidegate.adapters.keys.store import KeyStore

with KeyStore(Path(sys.argv[1]), busy_timeout_s=15) as store:
    for turn in range(10):
        created = store.create(name=sys.argv[2], tenant="t", user="u", now=1.0)
        if turn % 2:
            assert store.revoke(created.key_id, 2.0)
        else:
            assert store.rotate(created.key_id, 2.0, 0.0) is not None
        print(created.key_id, created.token.reveal(), flush=True)
"""


def start_python(program: str, *arguments: str) -> subprocess.Popen[str]:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    command = [sys.executable, "-c", program, *arguments]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment)


def test_a_revoked_key_stops_in_every_process_within_a_second(tmp_path: Path) -> None:
    """Two gateway processes answer from warm caches; a third revokes; both refuse within a second."""
    path = tmp_path / "keys.db"
    with KeyStore(path) as store:
        created = store.create(name="n", tenant="t", user="u", now=1.0)
        gateways = [start_python(GATEWAY, str(path)) for _ in range(2)]
        try:
            for gateway in gateways:
                assert gateway.stdin is not None
                gateway.stdin.write(created.token.reveal() + "\n")
                gateway.stdin.flush()
            for gateway in gateways:
                assert gateway.stdout is not None
                assert gateway.stdout.readline().startswith("accepted ")

            revoked_at = time.monotonic()
            assert store.revoke(created.key_id, 1.0)
            answers = [gateway.communicate(timeout=DEADLINE_S)[0].split() for gateway in gateways]
        finally:
            for gateway in gateways:
                gateway.kill()
                gateway.communicate()

    assert [answer[0] for answer in answers] == ["refused", "refused"]
    assert max(float(answer[1]) for answer in answers) - revoked_at <= REVOKED_WITHIN_S


def test_four_processes_may_write_at_once_from_the_very_beginning(tmp_path: Path) -> None:
    """Four processes create the database together and each create, rotate and revoke keys: nothing is lost or refused."""
    path = tmp_path / "state" / "keys.db"
    writers = [start_python(WRITER, str(path), f"writer-{number}") for number in range(4)]
    try:
        printed = [writer.communicate(timeout=DEADLINE_S)[0] for writer in writers]
    finally:
        for writer in writers:
            writer.kill()
            writer.communicate()

    assert [writer.returncode for writer in writers] == [0, 0, 0, 0]
    lines = [line.split() for output in printed for line in output.splitlines()]
    with KeyStore(path, create_file=False) as store:
        keys = {key.key_id: key for key in store.list()}
        snapshot = store.snapshot()
    assert len(keys) == len(lines) == 40
    assert sum(key.revoked_at is not None for key in keys.values()) == 20
    assert sum(key.rotated_at is not None for key in keys.values()) == 20
    assert all(snapshot.match(token, wall_now=3.0) is None for _, token in lines)
    assert {len(snapshot[KeyId(key_id)].secrets) for key_id, _ in lines} == {1}
