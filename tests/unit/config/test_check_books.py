"""What `tidegate check` says of the books."""

from __future__ import annotations

from pathlib import Path

import pytest

from tidegate.config.prepare import prepare


def messages(text: str, folder: Path) -> list[str]:
    file = folder / "tidegate.yaml"
    file.write_text(text, encoding="utf-8")
    return [problem.message for problem in prepare(file, {}, file_exists=lambda _: True).problems]


@pytest.mark.parametrize(
    ("database", "message"),
    [
        ("books.sqlite", None),
        ("postgresql://ann:secret@10.0.0.7/books", None),
        ("postgresql:///books", "books.database names no server"),
        ("postgresql://[/books", "books.database names no server"),
        ("mysql://10.0.0.7/books", "books.database is neither a file nor a PostgreSQL server"),
    ],
)
def test_a_database_is_a_file_or_a_server(database: str, message: str | None, tmp_path: Path) -> None:
    """What is neither is refused, and no message repeats a password."""
    found = messages(f"books: {{database: '{database}'}}\n", tmp_path)
    assert ([] if message is None else [message]) == found


def test_a_hold_outlives_its_request(tmp_path: Path) -> None:
    """A warning tells of holds that end while attempts may still run; the default does not earn one."""
    upstream = "upstreams: {there: {dialect: openai, base_url: 'http://127.0.0.1:1/v1', models: [m], timeouts: {total_s: 600s}}}\n"
    assert [] == messages(upstream, tmp_path)
    assert ["holds end after 60 s, while 4 attempts of 600 s may still run"] == messages(
        f"{upstream}books: {{hold_expiry_s: 60s}}\n", tmp_path
    )


def test_budgets_without_books_are_warned_of(tmp_path: Path) -> None:
    """They would begin anew with every start."""
    prices = "prices: {version: '1', models: [{model: '*', input: 1, output: 1}]}\nbudgets: [{name: a, amount: 5}]\n"
    assert [] == messages(prices, tmp_path)
    expected = ["without books every restart forgets what was spent of the budgets"]
    assert expected == messages(f"{prices}books: {{enabled: no}}\n", tmp_path)
