"""Writes `cli.md`, the page of all commands: `python -m tidegate.cli.reference DIRECTORY`. Generated from the commands themselves."""

from __future__ import annotations

import inspect
import sys
from pathlib import Path

from cyclopts import App

from tidegate.cli.main import build_app

FILE_NAME = "cli.md"

_HEAD = """\
# Command line

Generated from the commands by `make docs`; a test keeps it current. `tidegate COMMAND --help` says the same.

Every command fails with one message on standard error that says what happened and what to do next.

| exit code | meaning |
|---|---|
| 0 | it worked; for `up` and `serve`: stopped in order |
| 1 | it ran, and the answer is bad: a second signal cut requests, a worker kept dying, `check` found warnings |
| 2 | an option, the configuration or the machine (a port in use) needs a person first |
| 3 | `bench` only: it ran, and does not count, because the load tester was the bottleneck |
| 130 | interrupted |

"""


def page() -> str:
    """Give the whole page."""
    return _HEAD + "\n".join(_sections(build_app(), ("tidegate",)))


def _sections(app: App, path: tuple[str, ...]) -> list[str]:
    sections: list[str] = []
    for name in app:
        if name.startswith("-"):
            continue
        command = app[name]
        here = (*path, name)
        children = _sections(command, here)
        if children and command.default_command is not None:
            sections += [_command(command, here), *children]
        elif children:
            sections += [f"## `{' '.join(here)}`\n\n{command.help}\n", *children]
        else:
            sections.append(_command(command, here))
    return sections


def _command(command: App, path: tuple[str, ...]) -> str:
    rows = []
    for argument in command.assemble_argument_collection(parse_docstring=True):
        if not argument.show:  # a group of options, which follow
            continue
        parameter = argument.parameter
        names = [name for name in argument.names if name.startswith("-")]
        negatives = [name for name in names if name.startswith("--no-")]
        shown = ", ".join(f"`{name}`" for name in names if name not in negatives) or f"`{argument.names[0].upper()}`"
        if negatives:
            shown += f" / `{negatives[0]}`"
        needed = " Required." if argument.required and names else ""
        rows.append(f"| {shown} | {parameter.help}{needed} |\n")
    table = "\n| option | meaning |\n|---|---|\n" + "".join(rows) if rows else ""
    text = inspect.cleandoc(command.help)
    level = "#" * len(path)
    return f"{level} `{' '.join(path)}`\n\n{text}\n{table}"


def main() -> int:
    if len(sys.argv) != 2:  # noqa: PLR2004  the program and its one argument
        sys.stderr.write("usage: python -m tidegate.cli.reference DIRECTORY\n")
        return 2
    directory = Path(sys.argv[1])
    directory.mkdir(parents=True, exist_ok=True)
    (directory / FILE_NAME).write_text(page())
    return 0


if __name__ == "__main__":
    sys.exit(main())
