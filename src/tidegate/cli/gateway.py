"""`tidegate up` and `tidegate serve`: become the supervisor of a node."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from pathlib import Path

from tidegate import __version__
from tidegate.adapters.records.lines import LogFormat
from tidegate.adapters.wall_clock import wall_clock
from tidegate.cli.banner import Banner, PatientConsole
from tidegate.cli.configured import Overrides, effective
from tidegate.cli.development_key import FILE_NAME, development_key
from tidegate.config.schema import Configuration
from tidegate.errors import ConfigurationError
from tidegate.node.log import configure_logging
from tidegate.node.state_directory import make_private
from tidegate.node.supervisor import NodeOptions, Supervisor
from tidegate.wiring.worker import KEYS_FILE

_LOG = logging.getLogger("tidegate.cli")


def serve(file: Path | None, overrides: Overrides, *, log_format: LogFormat) -> int:
    """Run a node for production: log lines only."""
    configure_logging(log_format)
    configuration = effective(file, overrides, warn=_warn)
    options = NodeOptions(
        load=_loader(file, overrides), version=__version__, started_at=wall_clock(), keys_file=KEYS_FILE, log_format=log_format
    )
    return _run(configuration, options)


def up(file: Path | None, overrides: Overrides, *, log_format: LogFormat) -> int:
    """Run a node for development: with a key, and everything a person needs on the screen."""
    configuration = effective(file, overrides)
    configure_logging(log_format)
    state_directory = Path(configuration.state_directory)
    make_private(state_directory)
    key = development_key(state_directory, KEYS_FILE, now=wall_clock())
    banner = Banner(PatientConsole(), configuration, key, key_file=state_directory / FILE_NAME, version=__version__)
    options = NodeOptions(
        load=_loader(file, overrides),
        version=__version__,
        started_at=wall_clock(),
        keys_file=KEYS_FILE,
        log_format=log_format,
        on_listening=banner.listening,
        on_engine=banner.engine_changed,
    )
    return _run(configuration, options)


def _run(configuration: Configuration, options: NodeOptions) -> int:
    async def run() -> int:
        return await Supervisor(configuration, options).run()

    return asyncio.run(run())


def _loader(file: Path | None, overrides: Overrides) -> Callable[[], Configuration]:
    """Give what a reload calls: the same file and options again. The log takes one line, so problems are joined."""

    def load() -> Configuration:
        try:
            return effective(file, overrides, warn=_warn)
        except ConfigurationError as error:
            raise ConfigurationError(" | ".join(error.message.splitlines())) from error

    return load


def _warn(line: str) -> None:
    _LOG.warning("configuration.warned %s", line)
