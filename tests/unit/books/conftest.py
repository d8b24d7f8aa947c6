"""The two databases that keep books: a fresh file, and a fresh schema of one real PostgreSQL server for all tests of a process."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tidegate.adapters.books.ledger import Books
from tidegate.adapters.books.opening import open_books
from tidegate.testing import PostgresServer

_names = itertools.count(1)


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    if not PostgresServer.is_installed():
        pytest.skip("PostgreSQL is not installed: apt-get install postgresql")
    with PostgresServer() as server:
        yield server


def fresh_database(server: PostgresServer) -> str:
    """Make an empty database; give its address."""
    asyncpg = pytest.importorskip("asyncpg")
    name = f"books_{next(_names)}"

    async def make() -> None:
        connection = await asyncpg.connect(server.url)
        await connection.execute(f"CREATE DATABASE {name}")
        await connection.close()

    asyncio.run(make())
    return server.url.removesuffix("postgres") + name


@pytest.fixture(params=["sqlite", "postgres"])
def database(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """What `books.database` takes: each kind in turn, empty."""
    if request.param == "sqlite":
        return str(tmp_path / "books.sqlite")
    return fresh_database(request.getfixturevalue("postgres"))


@pytest.fixture
def opened(database: str) -> Iterator[Callable[[], Books]]:
    """Open the books once more; all are closed at the end."""
    connections: list[Books] = []

    def open_once_more() -> Books:
        connections.append(open_books(database))
        return connections[-1]

    yield open_once_more
    for books in connections:
        books.close()


@pytest.fixture
def books(opened: Callable[[], Books]) -> Books:
    return opened()
