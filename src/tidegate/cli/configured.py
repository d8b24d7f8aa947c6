"""How commands find their configuration: the file named, `tidegate.yaml` in the working directory, or none; then options on top of it.

Problems are shown with their lines, on standard error, and end the command.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar, get_type_hints

import msgspec

from tidegate.config.environment import left_alone
from tidegate.config.explain import render_problems
from tidegate.config.load import load
from tidegate.config.prepare import prepare, readable_file
from tidegate.config.schema import Configuration
from tidegate.domain.principal import DEFAULT_TIER
from tidegate.errors import ConfigurationError

DEFAULT_FILE = Path("tidegate.yaml")

Part = TypeVar("Part", bound=msgspec.Struct)


class Overrides(msgspec.Struct, frozen=True):
    """Options that stand above the file. None: as the file says."""

    host: str | None = None
    port: int | None = None
    admin_port: int | None = None
    workers: int | None = None
    state_directory: Path | None = None
    local_engine: bool | None = None

    def apply(self, configuration: Configuration) -> Configuration:
        """Give the configuration with these settings; `ConfigurationError` when one is out of its range, or nothing is left to serve."""
        server = _replaced(configuration.server, host=self.host, port=self.port, workers=self.workers)
        admin = _replaced(configuration.admin, port=self.admin_port)
        engine = _replaced(configuration.local_engine, enabled=self.local_engine)
        state = None if self.state_directory is None else str(self.state_directory)
        if not engine.enabled and not configuration.upstreams:
            raise ConfigurationError(
                "Without the local model there is nothing to send requests to: leave out --no-engine, add an upstream to tidegate.yaml, or "
                "set OPENROUTER_API_KEY, DASHSCOPE_API_KEY or OPENAI_API_KEY."
            )
        return _replaced(configuration, server=server, admin=admin, local_engine=engine, state_directory=state)


def find_file(named: Path | None) -> Path | None:
    """Give the file to read: the one named, else `tidegate.yaml` here if there is one, else None."""
    if named is not None:
        return named
    return DEFAULT_FILE if DEFAULT_FILE.exists() else None


def effective(file: Path | None, overrides: Overrides | None = None, *, warn: Callable[[str], None] | None = None) -> Configuration:
    """Load, complete and check a configuration; `ConfigurationError` with every problem when it is refused.

    Warnings go to `warn`, one line each; without it they are laid out on standard error.
    """
    prepared = prepare(file, os.environ, file_exists=readable_file)
    name = str(file) if file is not None else ""
    if prepared.configuration is None:
        raise ConfigurationError(f"The configuration is refused.\n{render_problems(prepared.problems, name=name)}")
    notes = left_alone(prepared.configuration, os.environ)
    if warn is not None:
        for line in (*notes, *(f"{name}:{problem.line} {problem.message}" for problem in prepared.problems)):
            warn(line)
    else:
        sys.stderr.write("".join(f"note: {sentence}\n" for sentence in notes) + render_problems(prepared.problems, name=name))
    return (overrides or Overrides()).apply(prepared.configuration)


def state_directory(config: Path | None, chosen: Path | None) -> Path:
    """Find the state directory for a command that needs nothing else of the configuration."""
    if chosen is not None:
        return chosen
    file = find_file(config)
    loaded = load(file, os.environ)
    if isinstance(loaded, list):
        raise ConfigurationError(
            f"{file} cannot be read, so the state directory is not known. Mend it, or name the directory with --state-directory.\n"
            f"{render_problems(loaded, name=str(file))}"
        )
    return Path(loaded.configuration.state_directory)


def warn_of_unknown_tier(config: Path | None, tier: str) -> None:
    """Tell on standard error that a key's tier has no limits of its own here; it may get them later, so the key is made all the same."""
    file = find_file(config)
    loaded = load(file, os.environ)
    if isinstance(loaded, list) or tier == DEFAULT_TIER or tier in loaded.configuration.tiers:
        return
    known = ", ".join(sorted(loaded.configuration.tiers)) or "none"
    sys.stderr.write(
        f"note: {file or 'the configuration'} has no tier {tier!r} (it has: {known}), so the general `limits` apply to this key until "
        f"`tiers.{tier}` is added.\n"
    )


def _replaced(part: Part, **settings: object) -> Part:
    """Replace the settings that are given; each is checked, since `replace` alone would take any value."""
    kinds = get_type_hints(type(part), include_extras=True)
    given = {name: value for name, value in settings.items() if value is not None}
    for name, value in given.items():
        if not isinstance(value, msgspec.Struct):
            _check(name, value, kinds[name])
    return msgspec.structs.replace(part, **given)


def _check(name: str, value: object, kind: type) -> None:
    try:
        msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        raise ConfigurationError(f"The option for `{name}` cannot be {value!r}: {error}.") from error
