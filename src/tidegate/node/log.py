"""How a process of Tidegate logs: one line per event on standard error, secrets masked, never waiting for the reader.

Modules use the standard `logging`; this decides what becomes of their records. A traceback becomes a few words at the end of its line:
which error, and the innermost frames that raised it.
"""

from __future__ import annotations

import logging
import traceback

from tidegate.adapters.records.lines import LogFormat, Value, line_format, masked
from tidegate.adapters.records.sink import LogSink

FRAMES = 6
"""Innermost frames named of a traceback: enough to find the place, short enough for one line."""


class LoggedLines(logging.Handler):
    """Writes each record as one line to a sink. Installed once per process by `configure_logging`."""

    def __init__(self, sink: LogSink, log_format: LogFormat, fields: dict[str, Value]) -> None:
        super().__init__()
        self._sink = sink
        self._line = line_format(log_format)
        self._fields = fields

    def emit(self, record: logging.LogRecord) -> None:
        try:
            fields = dict(self._fields)
            if record.exc_info is not None and record.exc_info[1] is not None:
                fields |= describe(record.exc_info[1])
            self._sink.write([self._line(record.created, record.levelname.lower(), masked(one_line(record.getMessage())), fields)])
        except Exception:  # noqa: BLE001  `logging` asks for it: a fault in a log call must not become one of the program
            self.handleError(record)


def configure_logging(log_format: LogFormat, *, level: int = logging.INFO, **fields: Value) -> None:
    """Make this process log lines with these fields added to each; for a process's `main`, once."""
    lines = LoggedLines(LogSink(), log_format, fields)
    logging.basicConfig(level=level, handlers=[lines], force=True)
    logging.captureWarnings(True)
    logging.getLogger("uvicorn").setLevel(logging.WARNING)  # its start and stop are the node's


def one_line(text: str) -> str:
    """Escape what would break a line or a terminal."""
    return text if text.isprintable() else "".join(char if char.isprintable() else f"\\u{ord(char):04x}" for char in text)


def describe(error: BaseException) -> dict[str, Value]:
    """Say in two fields what an exception is and where it came from, outermost frame first."""
    frames = traceback.extract_tb(error.__traceback__)[-FRAMES:]
    places = " > ".join(f"{frame.filename.rpartition('/')[2]}:{frame.lineno} {frame.name}" for frame in frames)
    return {"exception": masked(one_line(repr(error))), "raised_at": places or None}
