"""`tidegate check`: every problem with its line, then the configuration as the gateway would use it."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from tidegate.config.environment import left_alone
from tidegate.config.explain import explain, render_problems
from tidegate.config.prepare import prepare, readable_file
from tidegate.errors import ConfigurationError
from tidegate.node.exits import Exit
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
    return Exit.FAILED if prepared.problems else Exit.OK
