"""Puts the console together: who may come in, the live feed, the figures, the pages."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from starlette.routing import BaseRoute

from tidegate import __version__
from tidegate.adapters.keys.store import KeyStore
from tidegate.admin.access import Door
from tidegate.admin.console.api import Api
from tidegate.admin.console.asking import Questions
from tidegate.admin.console.feed import ConsoleFeed
from tidegate.admin.console.pages import Pages
from tidegate.admin.console.relay import Playground
from tidegate.admin.sessions import Sessions, signing_secret
from tidegate.admin.view import NodeDesk


class Console:
    """The console of one node. `run` keeps its feed alive; `close` ends what is being watched."""

    def __init__(self, desk: NodeDesk, store: KeyStore, *, state_directory: Path, wall_clock: Callable[[], float]) -> None:
        self.door = Door(store, wall_clock=wall_clock, sessions=Sessions(signing_secret(state_directory)))
        self._feed = ConsoleFeed(desk, wall_clock=wall_clock)
        self._api = Api(desk, self.door, self._feed, wall_clock=wall_clock)
        self._questions = Questions(desk, self.door, wall_clock=wall_clock)
        self._playground = Playground(desk, self.door, state_directory=state_directory)
        self._pages = Pages(
            desk, self.door, wall_clock=wall_clock, version=__version__, has_development_key=self._playground.has_development_key
        )

    def routes(self) -> list[BaseRoute]:
        return [*self._api.routes(), *self._questions.routes(), *self._playground.routes(), *self._pages.routes()]

    async def run(self) -> None:
        try:
            await self._feed.run()
        finally:
            await self._playground.aclose()

    def close(self) -> None:
        self._feed.close()
