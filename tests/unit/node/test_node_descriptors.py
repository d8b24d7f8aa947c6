"""A worker makes room for its connections, and says so when it cannot."""

from __future__ import annotations

import subprocess
import sys
import textwrap

from tidegate.config.schema import Configuration, ServerSection
from tidegate.node.descriptors import OWN_FILES, shortage, wanted_files


def limits_after(soft: int, hard: int, wanted: int) -> list[int]:
    """Run `allow_files` in a process with these limits; give what it said, and the limits after it."""
    program = textwrap.dedent(f"""
        import resource
        from tidegate.node.descriptors import allow_files
        resource.setrlimit(resource.RLIMIT_NOFILE, ({soft}, {hard}))
        print(allow_files({wanted}), *resource.getrlimit(resource.RLIMIT_NOFILE))
    """)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=20)
    return [int(word) for word in done.stdout.split()]


def test_the_soft_limit_is_raised_as_far_as_the_hard_one_permits() -> None:
    """Never lowered, never beyond what is wanted."""
    assert limits_after(256, 1000, 600) == [600, 600, 1000]
    assert limits_after(256, 1000, 5000) == [1000, 1000, 1000]
    assert limits_after(900, 1000, 600) == [900, 900, 1000]


def test_a_limit_below_the_configured_connections_is_explained() -> None:
    """Both figures and both ways out are named."""
    configuration = Configuration(server=ServerSection(max_connections=500))

    assert wanted_files(configuration) == 500 + OWN_FILES
    assert shortage(configuration, 500) is None
    message = shortage(configuration, 400)
    assert message is not None
    for words in ("400 files", "server.max_connections is 500", "LimitNOFILE"):
        assert words in message
