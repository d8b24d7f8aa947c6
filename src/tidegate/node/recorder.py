"""The recorder process: `python -m tidegate.node.recorder --socket PATH`.

One per node. It follows the files that the workers write their records to, puts them into the store, and answers questions about them on
a Unix socket that only this user can open. It is started by the supervisor and ends with it. No worker knows of it: while it is stopped,
killed, or its store is away, records wait in their files. Where the store is, is in the environment, for the address may hold a password.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import signal
import socket
import sys
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Final, Protocol

import msgspec
import uvloop

from tidegate import __version__
from tidegate.adapters.analytics.client import SOCKET_FILE
from tidegate.adapters.analytics.desk import QUERY, STATUS, QueryDesk
from tidegate.adapters.analytics.feed import Feed, ToRows
from tidegate.adapters.analytics.opening import StoreSettings, open_store
from tidegate.adapters.analytics.positions import PositionFile
from tidegate.adapters.counting.process import bind
from tidegate.adapters.engine import lifeline
from tidegate.adapters.frame_server import FrameServer, Serve
from tidegate.adapters.otlp.opening import open_span_feed
from tidegate.adapters.records.lines import LogFormat
from tidegate.adapters.samplers.plan import SAMPLING
from tidegate.adapters.samplers.sampling import Sampling
from tidegate.adapters.wall_clock import wall_clock
from tidegate.analytics.rows import Rows, body_rows, request_rows
from tidegate.analytics.span_figures import SPANS
from tidegate.node.log import configure_logging
from tidegate.node.recorder_settings import SETTINGS_VARIABLE, RecorderSettings

CLOSE_S: Final = 1.5
"""For the last batch at the end. What is not in by then waits in its file for the next process."""
LIFELINE_S: Final = 60.0
NICENESS: Final = 10
"""A tenth of a worker's share of a core that both want: records can wait, requests cannot."""

_LOG = logging.getLogger("tidegate.recorder")
_encode = msgspec.msgpack.Encoder().encode


def to_rows(node: str) -> dict[str, ToRows]:
    """Give what makes rows of the lines of each kind of file."""

    def of_request(line: bytes, source: str, offset: int) -> Rows | None:
        return request_rows(line, node=node, source=source, offset=offset)

    def of_body(line: bytes, source: str, offset: int) -> Rows | None:
        return body_rows(line, source=source, offset=offset)

    return {"requests": of_request, "audit": of_body}


class Steps(Protocol):
    """A feed, whatever it feeds."""

    def step(self, *, now: float) -> float: ...

    def close(self) -> None: ...


class FeedThread:
    """Runs a feed until `aclose`."""

    def __init__(self, feed: Steps) -> None:
        self._feed = feed
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name="feed", daemon=True)

    def __repr__(self) -> str:
        return f"FeedThread({self._feed!r})"

    def start(self) -> None:
        self._thread.start()

    async def aclose(self) -> None:
        """Put in what there is, for a short while, and stop."""
        self._closing.set()
        await asyncio.to_thread(self._thread.join, CLOSE_S)

    def _run(self) -> None:
        pause_s = 0.0
        while not self._closing.wait(pause_s):
            pause_s = self._step()
        while self._step() == 0.0:
            pass  # what came in since the last batch
        self._feed.close()

    def _step(self) -> float:
        try:
            return self._feed.step(now=wall_clock())
        except Exception:  # noqa: BLE001  the thread's outermost frame: a fault of ours must not be taken for peace
            _LOG.exception("recorder.failed")
            os._exit(1)  # another one is started, and begins where the store left off


async def serve(path: str, settings: RecorderSettings) -> None:
    """Serve until standard input ends or SIGTERM comes."""
    loop = asyncio.get_running_loop()
    leaving = asyncio.Event()
    loop.add_signal_handler(signal.SIGTERM, leaving.set)
    feeds: list[Steps] = []
    answers: dict[str, Serve] = {}
    desk: QueryDesk | None = None
    sampling: Sampling | None = None
    if settings.store is not None:
        feed = _table_feed(settings.store, Path(settings.records))
        feeds.append(feed)
        desk = QueryDesk(partial(open_store, settings.store, is_read_only=True))
        sampling = Sampling(feed.write_samples, node=socket.gethostname(), clock=wall_clock)
        answers |= {QUERY: desk.answer, STATUS: _telling(feed.statistics), SAMPLING: sampling.answer}
    if settings.tracing is not None:
        spans = open_span_feed(settings.tracing, Path(settings.records), resource=_resource())
        feeds.append(spans)
        answers[SPANS] = _telling(spans.statistics)
    server = FrameServer(bind(path), answers)
    if settings.store is not None:
        _say_where(Path(settings.store.directory), path)
    threading.Thread(target=_watch_parent, args=(loop, leaving), name="lifeline", daemon=True).start()
    threads = [FeedThread(each) for each in feeds]
    for thread in threads:
        thread.start()
    await leaving.wait()
    server.close()
    if sampling is not None:
        await sampling.aclose()
    await asyncio.gather(*(thread.aclose() for thread in threads))
    if desk is not None:
        desk.close()
    _take_away(path)


def _table_feed(store: StoreSettings, records: Path) -> Feed:
    return Feed(
        records,
        PositionFile(Path(store.directory)),
        partial(open_store, store),
        to_rows=to_rows(socket.gethostname()),
        keep_days=store.keep_days,
    )


def _resource() -> dict[str, str]:
    """Say what OpenTelemetry's resource attributes say of this process."""
    return {"host.name": socket.gethostname(), "service.version": __version__}


def _telling(statistics: Callable[[], object]) -> Serve:
    """Give what answers a question with figures."""

    async def tell(_: bytes) -> bytes:
        return _encode(statistics())

    return tell


def _take_away(path: str) -> None:
    Path(path).unlink(missing_ok=True)


def _say_where(directory: Path, path: str) -> None:
    """Write down where questions are answered; without that, other programs here do not find it."""
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        (directory / SOCKET_FILE).write_text(path)
    except OSError as error:
        _LOG.warning("recorder.directory_unwritable %s cannot be written (%s). Check owner and free space.", directory, error.strerror)


def _watch_parent(loop: asyncio.AbstractEventLoop, leaving: asyncio.Event) -> None:
    lifeline.wait_for_parent_to_leave(sys.stdin.fileno(), every_s=LIFELINE_S, tick=lambda: None)
    loop.call_soon_threadsafe(leaving.set)


def main() -> None:
    os.nice(NICENESS)
    lifeline.tie_to_parent()  # also when it is stopped: it would hold the tables of a gateway that is gone
    parser = argparse.ArgumentParser(prog="tidegate-recorder", description="Puts one node's records into tables, and answers questions.")
    parser.add_argument("--socket", required=True, help="path of the Unix socket to serve on")
    parser.add_argument("--log-format", default=LogFormat.LOGFMT, choices=[str(each) for each in LogFormat])
    arguments = parser.parse_args()
    configure_logging(LogFormat(arguments.log_format))
    settings = msgspec.json.decode(os.environ[SETTINGS_VARIABLE], type=RecorderSettings)
    uvloop.run(serve(arguments.socket, settings))
    sys.stdout.flush()
    os._exit(0)  # a question or an insert may hang in its thread; nothing that matters is left to do


if __name__ == "__main__":
    main()
