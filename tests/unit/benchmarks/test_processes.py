"""The processes of a measurement: those that are not asked stand still meanwhile."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

from benchmarks.processes import paused


def test_paused_processes_stand_still_and_go_on_afterwards() -> None:
    """One that is gone already is passed over."""
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait(30)
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        with paused([gone.pid, process.pid]):
            stopped = os.waitid(os.P_PID, process.pid, os.WSTOPPED)
            assert stopped is not None
            assert signal.SIGSTOP == stopped.si_status
        continued = os.waitid(os.P_PID, process.pid, os.WCONTINUED)
        assert continued is not None
        assert os.CLD_CONTINUED == continued.si_code
        process.communicate(b"\n", timeout=30)
        assert process.returncode == 0
