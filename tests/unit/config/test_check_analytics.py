"""What `tidegate check` and `tidegate explain` say of the tables of records."""

from __future__ import annotations

from pathlib import Path

import pytest

from tidegate.config.explain import explain
from tidegate.config.prepare import prepare
from tidegate.config.schema import Configuration
from tidegate.config.schema_analytics import AnalyticsSection
from tidegate.domain.units import Secret


def messages(text: str, folder: Path) -> list[str]:
    file = folder / "tidegate.yaml"
    file.write_text(text, encoding="utf-8")
    return [problem.message for problem in prepare(file, {}, file_exists=lambda _: True).problems]


@pytest.mark.parametrize(
    ("address", "message"),
    [
        ("https://ann:canary@10.0.0.8:8443/tidegate", None),
        ("http://ann:canary@127.0.0.1:8123", None),
        ("http://10.0.0.8:8123", None),
        ("http://ann:canary@10.0.0.8", "the password of analytics.clickhouse goes over the network in clear"),
        ("clickhouse://ann:canary@10.0.0.8", "analytics.clickhouse names no server"),
        ("https:///tidegate", "analytics.clickhouse names no server"),
        ("https://10.0.0.8:port/tidegate", "analytics.clickhouse names no server"),
        ("https://10.0.0.8/two/words", "analytics.clickhouse names no database that could be made"),
    ],
)
def test_a_server_has_an_address_and_a_database(address: str, message: str | None, tmp_path: Path) -> None:
    """What is neither is refused, and no message repeats a password."""
    assert ([] if message is None else [message]) == messages(f"analytics: {{clickhouse: '{address}'}}\n", tmp_path)


def test_a_server_that_is_not_used_is_warned_of(tmp_path: Path) -> None:
    """Somebody thinks that rows go there."""
    text = "analytics: {enabled: no, clickhouse: 'https://10.0.0.8/tidegate'}\n"
    assert ["analytics.clickhouse is set, and nothing is kept there"] == messages(text, tmp_path)


@pytest.mark.parametrize(
    ("section", "line"),
    [
        (AnalyticsSection(), "tables   in .tidegate/analytics (chDB), 30 days, where chDB is installed"),
        (AnalyticsSection(enabled=True, keep_days=1), "tables   in .tidegate/analytics (chDB), 1 day"),
        (AnalyticsSection(clickhouse=Secret("https://ann:canary@10.0.0.8/t")), "tables   in a ClickHouse server, 30 days"),
        (AnalyticsSection(enabled=False), None),
    ],
)
def test_it_is_explained_where_tables_are(section: AnalyticsSection, line: str | None) -> None:
    """With how long rows stay, and never a password."""
    text = explain(Configuration(analytics=section))
    assert (line is None) == ("tables" not in text)
    assert line is None or f"  {line}\n" in text
    assert "canary" not in text
