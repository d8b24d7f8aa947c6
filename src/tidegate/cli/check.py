"""`tidegate check`: every problem with its line, then the configuration as the gateway would use it."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from tidegate.cli.extras import installed, needed
from tidegate.config.environment import left_alone
from tidegate.config.explain import explain, render_problems
from tidegate.config.prepare import prepare, readable_file
from tidegate.errors import ConfigurationError
from tidegate.node.exits import Exit
from tidegate.node.state_directory import read_endpoints
from tidegate.wiring.parts import degradation_of


def check(file: Path | None) -> int:
    """Give 0 without problems, 1 with warnings only, 2 when the configuration is refused."""
    prepared = prepare(file, os.environ, file_exists=readable_file)
    name = str(file) if file is not None else ""
    sys.stderr.write(render_problems(prepared.problems, name=name))
    if prepared.configuration is None:
        return Exit.USAGE
    try:
        degradation_of(prepared.configuration)  # reads the file of rules, which the configuration only names
    except ConfigurationError as error:
        sys.stderr.write(f"{name or 'configuration'} error: {error.message}\n")
        return Exit.USAGE
    print(f"{name or 'No file: the defaults, and what the environment adds.'}\n")
    print(explain(prepared.configuration), end="")
    for sentence in left_alone(prepared.configuration, os.environ):
        print(f"note: {sentence}")
    node = read_endpoints(Path(prepared.configuration.state_directory))
    if node is not None:
        print(
            f"note: a node of {prepared.configuration.state_directory} says that it listens on {node.api}, and on {node.admin} for admin."
        )
    wanting = needed(prepared.configuration)
    missing = [name for name in wanting if name not in installed()]
    for name in missing:
        sys.stderr.write(f"warning: {wanting[name]} needs the extra {name}, which is not installed: pip install 'tidegate[{name}]'\n")
    return Exit.FAILED if prepared.problems or missing else Exit.OK
