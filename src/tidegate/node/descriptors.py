"""Lets a worker open as many files as its connections need: the usual default of 1,024 ends in resets that no log explains."""

from __future__ import annotations

import resource

from tidegate.config.schema import Configuration

OWN_FILES = 64
"""Listener, control channel, records, key database, counting process, and a margin."""


def wanted_files(configuration: Configuration) -> int:
    """Give the most open files that a worker can come to need."""
    return OWN_FILES + configuration.server.max_connections + sum(each.max_connections for each in configuration.upstreams.values())


def allow_files(wanted: int) -> int:
    """Raise this process's soft limit on open files to `wanted`, as far as the hard one permits; give the limit in force."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    allowed = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    if soft != resource.RLIM_INFINITY and soft < allowed:
        resource.setrlimit(resource.RLIMIT_NOFILE, (allowed, hard))
        return allowed
    return wanted if soft == resource.RLIM_INFINITY else soft


def shortage(configuration: Configuration, allowed: int) -> str | None:
    """Say what to do when the limit is below the connections that are configured; None when it is not."""
    connections = configuration.server.max_connections
    if allowed >= connections:
        return None
    return (
        f"This process may open {allowed} files, and server.max_connections is {connections}: connections beyond the limit are reset. "
        "Raise the hard limit (`ulimit -Hn`, LimitNOFILE= in a systemd unit, --ulimit nofile= for a container), or lower the setting."
    )
