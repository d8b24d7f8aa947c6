"""Installs the peer that is a Python package into a throw-away environment, so that ours stays as it is."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from benchmarks.errors import BenchmarkError

PEER_VENV = ".bench-venv"
"""In the project's root; git ignores it, and it may be deleted at any time."""
ROUTER = "vllm-router"
ROUTER_VERSION = "0.1.17"
_INSTALL_S = 300.0


def install_router(venv: Path) -> Path:
    """Give the path of the vllm-router command, which is installed if it is not there in the pinned version."""
    command = venv / "bin" / ROUTER
    python = venv / "bin" / "python"
    if command.exists() and _installed_version(python) == ROUTER_VERSION:
        return command
    sys.stderr.write(f"Installing {ROUTER} {ROUTER_VERSION} into {venv.name} (once) …\n")
    try:
        subprocess.run((sys.executable, "-m", "venv", "--clear", str(venv)), check=True, capture_output=True, timeout=_INSTALL_S)
        install = (str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", f"{ROUTER}=={ROUTER_VERSION}")
        subprocess.run(install, check=True, capture_output=True, timeout=_INSTALL_S)
    except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as problem:
        output = problem.stderr.decode(errors="replace")[-500:] if problem.stderr else ""
        raise BenchmarkError(
            f"{ROUTER} {ROUTER_VERSION} could not be installed; measure --without-peers, or see why: {output}"
        ) from problem
    return command


def _installed_version(python: Path) -> str:
    question = f"import importlib.metadata; print(importlib.metadata.version('{ROUTER}'))"
    return subprocess.run((str(python), "-c", question), capture_output=True, text=True, check=False, timeout=30).stdout.strip()
