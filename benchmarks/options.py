"""The command line that all measurements share."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.errors import BenchmarkError
from benchmarks.install import PEER_NAMES, install
from benchmarks.machine import raise_file_limit, require_tools
from benchmarks.rows import Row

ROOT = Path(__file__).resolve().parent.parent
COMPILED = ROOT / "build" / "compiled"


@dataclass(frozen=True)
class Options:
    """What is measured, and how long."""

    quick: bool
    variants: tuple[str, ...]
    """`pure`, `compiled`, or both."""
    peers: Mapping[str, Path]
    """The commands of the peers that are measured too, by name."""
    absent: Mapping[str, str]
    """Why a peer that was asked for is not among them."""
    file_limit: int

    @property
    def main_variant(self) -> str:
        """The variant that is measured where one is enough."""
        return self.variants[-1]


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--quick", action="store_true", help="shorter and fewer rounds: to see that it works, not to quote")
    names = ", ".join(PEER_NAMES)
    parser.add_argument(
        "--peers", nargs="*", choices=PEER_NAMES, default=PEER_NAMES, metavar="PEER", help=f"only these of {names}; --peers alone: none"
    )
    parser.add_argument("--pure", action="store_true", help="measure Tidegate as installed (the default)")
    parser.add_argument("--compiled", action="store_true", help=f"measure the copy in {COMPILED.relative_to(ROOT)} too, and mostly")


def prepare(arguments: argparse.Namespace) -> Options:
    """Check that everything needed is there, and install the peers."""
    require_tools("nginx", "wrk")
    if arguments.compiled and not any(COMPILED.rglob("*.so")):
        raise BenchmarkError(f"There is no compiled copy in {COMPILED}. Make it: python tools/compile_hot_modules.py build/compiled")
    variants = ("pure", "compiled") if arguments.compiled else ("pure",)
    peers, absent = {}, {}
    for name in arguments.peers:
        try:
            peers[name] = install(name)
        except BenchmarkError as problem:
            absent[name] = str(problem)
    return Options(quick=arguments.quick, variants=variants, peers=peers, absent=absent, file_limit=raise_file_limit())


def run_alone(measure: Callable[[Options], list[Row]], arguments: Sequence[str] | None = None) -> int:
    """Be the command of one measurement: print its rows as JSON lines; give the exit status."""
    parser = argparse.ArgumentParser(description=(measure.__doc__ or "").strip())
    add_options(parser)
    try:
        for row in measure(prepare(parser.parse_args(arguments))):
            print(row.line(), flush=True)
    except BenchmarkError as error:
        parser.exit(1, f"{error}\n")
    return 0
