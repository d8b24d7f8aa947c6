"""A node with stand-in workers and a stand-in counting process: `python stand_in_node.py CONFIGURATION`. Started by the tests."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

from tidegate.adapters.records.lines import LogFormat
from tidegate.config.prepare import prepare, readable_file
from tidegate.config.schema import Configuration
from tidegate.errors import ConfigurationError, TidegateError
from tidegate.node.log import configure_logging
from tidegate.node.supervisor import NodeOptions, Supervisor


def load() -> Configuration:
    prepared = prepare(Path(sys.argv[1]), os.environ, file_exists=readable_file)
    if prepared.configuration is None:
        raise ConfigurationError(" ".join(problem.message for problem in prepared.problems))
    return prepared.configuration


async def main() -> int:
    options = NodeOptions(
        load=load,
        version="0-test",
        started_at=1.0,
        keys_file="keys.sqlite",
        worker_command=(sys.executable, str(Path(__file__).with_name("stand_in_worker.py"))),
        counting_command=(sys.executable, "-c", "import sys; sys.stdin.read()"),
    )
    return await Supervisor(load(), options).run()


if __name__ == "__main__":
    configure_logging(LogFormat.LOGFMT)
    try:
        sys.exit(asyncio.run(main()))
    except TidegateError as error:
        sys.stderr.write(f"{error.message}\n")
        sys.exit(2)
