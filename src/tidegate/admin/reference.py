"""Writes `metrics.md`, the page of all metrics: `python -m tidegate.admin.reference DIRECTORY`."""

from __future__ import annotations

import sys
from pathlib import Path

from tidegate.admin.metrics import METRICS

FILE_NAME = "metrics.md"

_HEAD = """\
# Metrics

Generated from `tidegate.admin.metrics` by `make docs`; a test keeps it current.

`GET /metrics` on the admin port gives them in Prometheus' text format (or OpenMetrics, where the client asks for it), summed over the
node's workers. It is open to whoever can reach the admin port, which therefore belongs on a private address.

Where OpenMetrics is asked for, as Prometheus does, each bucket of a time carries an exemplar: the trace id of the latest request in it
(`--enable-feature=exemplar-storage` keeps them). `tidegate query` finds the request by it, and so does a trace backend.

Label values are bounded: routes and upstreams are those of the configuration, everything else is a fixed list. A value that is neither,
such as a model name a client made up, counts as `other`; a request that reached no route or upstream counts as `none`. Tenants,
keys, features and models are in the records, not here.

| metric | kind | labels | meaning |
|---|---|---|---|
"""


def page() -> str:
    """Give the whole page."""
    rows = [
        f"| `{spec.name}` | {spec.kind} | {', '.join(f'`{label}`' for label in spec.labels) or '–'} | {spec.meaning} |\n"
        for spec in METRICS
    ]
    return _HEAD + "".join(rows)


def main() -> int:
    if len(sys.argv) != 2:  # noqa: PLR2004  the program and its one argument
        sys.stderr.write("usage: python -m tidegate.admin.reference DIRECTORY\n")
        return 2
    directory = Path(sys.argv[1])
    directory.mkdir(parents=True, exist_ok=True)
    (directory / FILE_NAME).write_text(page())
    return 0


if __name__ == "__main__":
    sys.exit(main())
