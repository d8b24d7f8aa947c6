"""`tidegate query`: SQL of people, and questions that have names, over the records."""

from __future__ import annotations

import asyncio
import re
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn

from cyclopts import Parameter

from tidegate.cli.configured import Overrides, effective, find_file
from tidegate.cli.report_choices import ReportForm
from tidegate.errors import ConfigurationError, InvalidParameter, StoreError
from tidegate.node.exits import Exit

if TYPE_CHECKING:  # what answers is imported when there is something to answer
    from tidegate.analytics.asking import Asker
    from tidegate.analytics.scope import Plan, Scope, Section
    from tidegate.config.schema import Configuration

_SPAN = re.compile(r"(\d+(?:\.\d+)?)\s*([smhdw])")
_UNIT_S = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0, "w": 604_800.0}
_EARLIEST, _LATEST = 0.0, 4_102_444_800.0
"""Years 1970 and 2100: the tables have no other days."""
_LONGEST_DEADLINE_S = 3_600.0
_LONGEST_MS = 86_400_000.0
_WIDE = 100_000
"""Columns of a table that is not written to a terminal: whoever reads it can scroll, and a row stays on its line for `grep` and `awk`."""


def query(
    what: Annotated[str | None, Parameter(help="SQL in quotes, or the name of a question. Without it, the questions are listed.")] = None,
    name: Annotated[str | None, Parameter(help="The request's id, for `tidegate query request ID`.")] = None,
    /,
    *,
    since: Annotated[str, Parameter(help="From then on: a time ago (`90s`, `30m`, `1h`, `7d`), or a day or time (UTC).")] = "1h",
    until: Annotated[str | None, Parameter(help="Up to then, said in the same ways; without it, up to now.")] = None,
    by: Annotated[str, Parameter(help="What to group by, for questions that group.", show_default=False)] = "",
    limit: Annotated[int, Parameter(help="Groups or requests shown.")] = 20,
    tenant: Annotated[str | None, Parameter(help="Only this tenant.")] = None,
    user: Annotated[str | None, Parameter(help="Only this user.")] = None,
    tier: Annotated[str | None, Parameter(help="Only this tier.")] = None,
    feature: Annotated[str | None, Parameter(help="Only this feature.")] = None,
    model: Annotated[str | None, Parameter(help="Only this model name.")] = None,
    route: Annotated[str | None, Parameter(help="Only this route.")] = None,
    slow_ms: Annotated[float, Parameter(help="For `slow-vip-code`: inference of more milliseconds is slow.")] = 500.0,
    saturated: Annotated[float, Parameter(help="For `slow-vip-code`: the share of memory bandwidth that counts as full.")] = 0.9,
    max_rows: Annotated[int, Parameter(help="Rows that an answer has at most; it says when there were more.")] = 10_000,
    deadline: Annotated[float, Parameter(help="Seconds that one statement may take.")] = 10.0,
    form: Annotated[ReportForm, Parameter(name="--format", help="How it is written: for people, for spreadsheets, for programs.")] = (
        ReportForm.TABLE
    ),
    config: Annotated[Path | None, Parameter(name=["--config", "-c"], help="The gateway's configuration file.")] = None,
    state_directory: Annotated[Path | None, Parameter(help="The gateway's state directory, instead of the configured one.")] = None,
) -> int:
    """Ask the records: with SQL, read-only, or by the name of a question.

    A running gateway's recorder answers; without one, the store is opened here. Where the extra `analytics` is not installed, questions
    that only group or sort records are answered out of the record files.
    """
    from tidegate.adapters.wall_clock import wall_clock
    from tidegate.analytics.scope import Scope

    if what is None or what == "columns":
        _print_sections(what or "questions", (_listed() if what is None else _columns()), form)
        return Exit.OK
    now = wall_clock()
    filters = {"tenant": tenant, "user": user, "tier": tier, "feature": feature, "model": model, "route": route}
    scope = Scope(
        since=instant(since, now),
        until=instant(until, now) if until is not None else now,
        by=by,
        limit=_within("--limit", limit, 1, 1_000_000),
        request_id=name or "",
        filters={column: value for column, value in filters.items() if value is not None},
        slow_s=_between("--slow-ms", slow_ms, 0.0, _LONGEST_MS) / 1000,
        saturated_ratio=_between("--saturated", saturated, 0.0, 1.0),
        max_rows=_within("--max-rows", max_rows, 1, 1_000_000),
        deadline_s=_between("--deadline", deadline, 0.0, _LONGEST_DEADLINE_S) or _refuse("--deadline is a number of seconds above 0."),
    )
    _answer(what, scope, Overrides(state_directory=state_directory), file=find_file(config), form=form)
    return Exit.OK


def _answer(what: str, scope: Scope, overrides: Overrides, *, file: Path | None, form: ReportForm) -> None:
    """Refuse what makes no sense, ask, and print."""
    from tidegate.analytics import answers, questions

    if scope.since >= scope.until:
        _refuse("--since is not before --until.")
    is_sql = re.match(r"\s*(?:/\*|--|\(|\w+\s)", what) is not None
    if not is_sql and what not in questions.BY_NAME:
        _refuse(f'There is no question "{what}". {answers.nearest(what, [*questions.BY_NAME, "columns"])}')
    if (what == "request") != bool(scope.request_id):
        _refuse("Write the request's id after `request`, and after nothing else: tidegate query request ID.")
    sections = _of_store(what, scope, effective(file, overrides), is_sql=is_sql)
    _print_sections("sql" if is_sql else what, sections, form)


async def answered(plan: Plan, asker: Asker) -> tuple[Section, ...]:
    """Put the questions of a plan one after another; `InvalidParameter` when one cannot be answered, with what to do."""
    from tidegate.analytics.answers import advice

    try:
        request = next(plan)
        while True:
            answer = await asker.ask(request)
            if answer.error:
                raise InvalidParameter(advice(answer.error))
            request = plan.send(answer)
    except StopIteration as stop:
        sections: tuple[Section, ...] = stop.value
        return sections


def instant(text: str, now: float) -> float:
    """Read a time ago, a day or a time."""
    ago = _SPAN.fullmatch(text.strip())
    if ago is not None:
        return _dated(text, now - float(ago[1]) * _UNIT_S[ago[2]])
    try:
        read = datetime.fromisoformat(text)
        at = (read.replace(tzinfo=UTC) if read.tzinfo is None else read).timestamp()
    except (ValueError, OverflowError):
        raise ConfigurationError(
            f'"{text}" is neither a time ago nor a time: write 90s, 30m, 1h or 7d, or 2026-11-30 or 2026-11-30T08:00.'
        ) from None
    return _dated(text, at)


def _dated(text: str, at: float) -> float:
    return at if _EARLIEST <= at <= _LATEST else _refuse(f'"{text}" is not between the years 1970 and 2100.')


def _of_store(what: str, scope: Scope, configuration: Configuration, *, is_sql: bool) -> tuple[Section, ...]:
    from tidegate.analytics.questions import asked
    from tidegate.node.recorder_settings import keeps_tables

    if not keeps_tables(configuration):
        return _of_files(what, scope, configuration, is_sql=is_sql)
    from tidegate.adapters.analytics.client import open_asker

    plan = _sql(what, scope) if is_sql else asked(what, scope)
    return asyncio.run(answered(plan, open_asker(configuration, Path(configuration.state_directory))))


def _sql(what: str, scope: Scope) -> Plan:
    from tidegate.analytics.scope import Section

    try:
        from tidegate.analytics.safe_sql import checked
    except ImportError as error:
        raise StoreError("SQL needs the extra: pip install 'tidegate[analytics]'. Named questions may do without.") from error
    return (Section("answer", (yield scope.request(checked(what)))),)


def _of_files(what: str, scope: Scope, configuration: Configuration, *, is_sql: bool) -> tuple[Section, ...]:
    """Answer out of the record files, where that can be done."""
    from tidegate.adapters.records.reader import RecordReader
    from tidegate.analytics import plain, questions
    from tidegate.wiring.records import records_directory

    question = None if is_sql else questions.BY_NAME[what]
    if question is None or (question.grouping is None and what != "slowest"):
        raise StoreError(
            f"{'SQL' if is_sql else what} needs the records in tables, which are not kept here: pip install 'tidegate[analytics]', and "
            "leave `analytics.enabled` alone. Out of the record files there are: "
            f"{', '.join(each.name for each in questions.QUESTIONS if each.grouping is not None)}, slowest."
        )
    questions.asked(what, scope).close()  # refuses what it cannot be asked by
    directory = records_directory(configuration, Path(configuration.state_directory))
    if not directory.is_dir():
        raise ConfigurationError(f"There are no request records in {directory}: name the gateway's configuration with --config.")
    reader = RecordReader(directory)
    records = reader.records(since=scope.since, until=float("inf"))
    grouping = question.grouping
    sections = plain.slowest(records, scope) if grouping is None else plain.grouped(records, scope, grouping, title=what)
    sys.stderr.write("note: no tables are kept, so this is out of the record files, of which old ones are deleted.\n")
    if reader.unreadable:
        sys.stderr.write(f"note: {reader.unreadable} lines of the record files cannot be read and were passed over.\n")
    return sections


def _print_sections(name: str, sections: tuple[Section, ...], form: ReportForm) -> None:
    from tidegate.analytics.answers import csv_of, json_text

    if form is ReportForm.JSON:
        print(json_text(name, sections))
    elif form is ReportForm.CSV:
        print(csv_of(sections), end="")
    else:
        _print_tables(sections)
    for section in sections:
        if section.answer.truncated:
            shown = f"{len(section.answer.rows):,}"
            sys.stderr.write(f"note: {section.title} has more rows than the {shown} shown; allow more with --max-rows.\n")


def _print_tables(sections: tuple[Section, ...]) -> None:
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from tidegate.analytics.answers import cell, is_figure

    console = Console(file=sys.stdout, width=None if sys.stdout.isatty() else _WIDE, highlight=False)
    for section in sections:
        answer = section.answer
        if len(sections) > 1 or section.sentence:
            console.print(Text(section.title, style="bold"))
        if section.sentence:
            console.print(Text(section.sentence), soft_wrap=True)
        if answer.columns and (answer.rows or not section.sentence):
            table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
            for column, kind in zip(answer.columns, answer.types, strict=True):
                table.add_column(Text(column), justify="right" if is_figure(kind) else "left", overflow="fold")
            for row in answer.rows:
                table.add_row(*(Text(cell(column, value)) for column, value in zip(answer.columns, row, strict=True)))
            console.print(table)


def _listed() -> tuple[Section, ...]:
    from tidegate.analytics.asking import QueryAnswer
    from tidegate.analytics.questions import QUESTIONS
    from tidegate.analytics.scope import Section

    rows = [(each.name, ", ".join(each.by), each.sentence) for each in QUESTIONS]
    rows.append(("columns", "", "Tables and columns that SQL can read."))
    rows.append(('"SELECT …"', "", "SQL of ClickHouse, read-only."))
    return (Section("questions", QueryAnswer(("question", "by", "what_it_tells"), ("String",) * 3, tuple(rows))),)


def _columns() -> tuple[Section, ...]:
    from tidegate.analytics.asking import QueryAnswer
    from tidegate.analytics.schema import BODIES, TABLES
    from tidegate.analytics.scope import Section

    def rows() -> Iterator[tuple[str, ...]]:
        for table in TABLES:
            if table is not BODIES:
                yield from ((table.name, column.name, column.type, column.sentence) for column in table.columns)

    return (Section("columns", QueryAnswer(("table", "column", "type", "what_it_says"), ("String",) * 4, tuple(rows()))),)


def _within(option: str, value: int, least: int, most: int) -> int:
    return value if least <= value <= most else _refuse(f"{option} is from {least:,} to {most:,}.")


def _between(option: str, value: float, least: float, most: float) -> float:
    return value if least <= value <= most else _refuse(f"{option} is from {least:g} to {most:,.0f}.")


def _refuse(sentence: str) -> NoReturn:
    raise ConfigurationError(sentence)
