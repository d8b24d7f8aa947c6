"""Compile the modules of the request path with mypyc, into a copy of the package: `python tools/compile_hot_modules.py build/compiled`.

The source tree stays pure Python: tests, coverage and debuggers see it, and it is what runs where there is no C compiler. A process
that finds the copy first (`PYTHONPATH=build/compiled`) runs the same code at about half the cost. Exit status 3 means that this
machine has no compiler.
"""

from __future__ import annotations

import ast
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
HOT = {
    "policy": ("metering/sliding_window", "metering/limit_store", "routing/routes", "routing/fleet", "resilience/retry"),
    "flow": ("request_flow", "call_flow"),
    "wire": ("headers", "lenient", "openai_request", "openai_response", "prompt_bound", "sse", "stream", "trace_context"),
    "gateway": ("attempt", "authenticate", "endpoints", "gateway", "request_driver"),
    "http": (
        "client",
        "client_call",
        "client_connection",
        "client_request",
        "deadlines",
        "framing",
        "request_head",
        "response_head",
        "server_connection",
        "server_exchange",
        "server_socket",
    ),
    "adapters": ("metrics/tally", "records/lines"),
}
SETUP = """
from mypyc.build import mypycify
from setuptools import setup

setup(name="tidegate-hot", ext_modules=mypycify({modules!r}, opt_level="3"))
"""
NO_COMPILER = 3


def make_native(module: Path) -> None:
    """Take out, in the copy, what keeps mypyc from making a class native.

    Slots, which native classes have by themselves, and the base class of asyncio's protocols, which adds nothing: transports only call
    methods.
    """
    text = module.read_text()
    for node in reversed([node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Assign)]):
        if any(isinstance(name, ast.Name) and name.id == "__slots__" for name in node.targets):
            lines = text.splitlines(keepends=True)
            indent = " " * node.col_offset
            lines[node.lineno - 1 : node.end_lineno] = [f"{indent}...\n"]
            text = "".join(lines)
    module.write_text(text.replace("(asyncio.Protocol):", ":"))


def main(target: Path) -> int:
    work = target.with_name(f"{target.name}.part")
    for folder in (work, target):  # first of all: compiled code of another state of the source must never run
        shutil.rmtree(folder, ignore_errors=True)
    compiler = (sysconfig.get_config_var("CC") or "cc").split()[0]
    include = Path(sysconfig.get_path("include")) / "Python.h"
    if shutil.which(compiler) is None or not include.exists():
        print("no C compiler, or no Python headers: the pure form will run", file=sys.stderr)
        return NO_COMPILER
    shutil.copytree(ROOT / "src", work, ignore=shutil.ignore_patterns("__pycache__", "*.so"))
    modules = [f"tidegate/{folder}/{name}.py" for folder, names in HOT.items() for name in names]
    for module in modules:
        make_native(work / module)
    setup = work / "setup.py"
    setup.write_text(SETUP.format(modules=["--ignore-missing-imports", "--follow-imports=silent", *modules]))
    log = target.with_name(f"{target.name}.log")
    command = [sys.executable, "setup.py", "build_ext", "--inplace"]
    with log.open("w") as output:
        outcome = subprocess.run(command, cwd=work, stdout=output, stderr=output, check=False)
    if outcome.returncode != 0:
        print(f"compiling failed, the pure form will run; see {log}", file=sys.stderr)
        shutil.rmtree(work)
        return outcome.returncode
    shutil.rmtree(work / "build")
    setup.unlink()
    work.rename(target)
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]).resolve()))
