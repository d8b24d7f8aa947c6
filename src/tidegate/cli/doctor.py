"""`tidegate doctor`: checks of a node and its surroundings, causes of a symptom, and the story of one request."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import msgspec
from cyclopts import App, Parameter

from tidegate.cli.configured import Overrides, effective, find_file
from tidegate.errors import ConfigurationError, InvalidParameter, TidegateError
from tidegate.language import Language, of_environment
from tidegate.node.exits import Exit

if TYPE_CHECKING:  # what is not asked for is not imported
    from rich.console import Console

    from tidegate.analytics.asking import QueryAnswer
    from tidegate.analytics.rows import Row
    from tidegate.config.schema import Configuration
    from tidegate.doctor.finding import Check
    from tidegate.doctor.story import Story
    from tidegate.doctor.symptoms import Cause, Statement, Symptom

_WIDE = 140
"""Columns of what is not written to a terminal."""

ConfigFile = Annotated[Path | None, Parameter(name=["--config", "-c"], help="The gateway's configuration file.")]


def build_doctor() -> App:
    """Declare the commands."""
    app = App(name="doctor")
    app.default(doctor)
    app.command(engine)
    return app


def doctor(
    *,
    symptom: Annotated[
        str | None, Parameter(help='What you see, in your words, English or Chinese: "latency jitters", "流式中断". Says why it can be so.')
    ] = None,
    request: Annotated[str | None, Parameter(help="A request's id (`x-request-id`): tells what became of it, and why.")] = None,
    ask: Annotated[
        bool,
        Parameter(negative="", show_default=False, help="Ask each upstream for one token as well; it may cost a fraction of a cent each."),
    ] = False,
    since: Annotated[str, Parameter(help="For `--symptom`: records from then on, said as in `tidegate query`.")] = "1h",
    timeout_s: Annotated[float, Parameter(help="Longest wait for one answer.")] = 10.0,
    json: Annotated[bool, Parameter(name="--json", negative="", show_default=False, help="Print JSON on standard output.")] = False,
    language: Annotated[
        Literal["en", "zh"] | None,
        Parameter(help="Language of sentences. Default: Chinese where LC_ALL, LC_MESSAGES or LANG says `zh`, else English."),
    ] = None,
    config: ConfigFile = None,
    state_directory: Annotated[Path | None, Parameter(help="The gateway's state directory, instead of the configured one.")] = None,
) -> int:
    """Find out what is wrong, and what to do: with a node and all around it, with what you see, or with one request.

    Without an option it checks configuration, ports, clock, disk, upstreams, stores, recorder, local model and extras, whether the gateway
    runs or not. It changes nothing.

    Exits with 0 when all is well, with 1 when something could be better, with 2 when something does not work. With `--symptom`: 1 when the
    records show one of its causes, else 0. With `--request`: 0, or 2 when no record has that id.
    """
    if symptom is not None and request is not None:
        raise ConfigurationError("--symptom and --request are two questions: ask one at a time.")
    if timeout_s <= 0:
        raise ConfigurationError("--timeout-s is a number of seconds above 0.")
    file = find_file(config)
    shape = _Shape(Language(language) if language is not None else of_environment(os.environ), as_json=json)
    if symptom is not None:
        return _symptom(symptom, effective(file, Overrides(state_directory=state_directory)), shape, since=since)
    if request is not None:
        return _request(request, effective(file, Overrides(state_directory=state_directory)), shape)
    from tidegate.cli.doctor_checks import look
    from tidegate.cli.doctor_upstreams import Looking

    return _print_checks(asyncio.run(look(file, Looking(state_directory, ask=ask, timeout_s=timeout_s))), shape)


def engine(*, config: ConfigFile = None) -> int:
    """Start the local model once, measure it, and say what is wrong. Can be run beside a gateway."""
    from tidegate.adapters.engine.doctor import render, run_doctor
    from tidegate.node.engine import engine_settings

    report = asyncio.run(run_doctor(engine_settings(effective(find_file(config)))))
    print(render(report))
    return Exit.OK if report.healthy else Exit.FAILED


class _Shape(msgspec.Struct, frozen=True):
    """How what was found is written."""

    language: Language
    as_json: bool


# ── checks ────────────────────────────────────────────────────────────────────


def _print_checks(found: Sequence[Check], shape: _Shape) -> int:
    from tidegate.doctor.finding import Verdict, worst
    from tidegate.doctor.phrases import in_language, said

    checks, verdict = in_language(found, shape.language), worst(found)
    if shape.as_json:
        print(_json({"verdict": verdict, "checks": checks}))
    else:
        from rich.table import Table
        from rich.text import Text

        table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
        for check in checks:
            lines = [_line(check.sentence), *([f"→ {_line(check.fix)}"] if check.fix else [])]
            if check.command and check.verdict is not Verdict.OK:
                lines.append(f"$ {_line(check.command)}")
            style = {Verdict.OK: "green", Verdict.WARNING: "yellow", Verdict.BAD: "bold red"}[check.verdict]
            table.add_row(Text(said(check.verdict, shape.language), style=style), Text(_line(check.name)), Text("\n".join(lines)))
        _console().print(table)
    return {Verdict.OK: Exit.OK, Verdict.WARNING: Exit.FAILED, Verdict.BAD: Exit.USAGE}[verdict]


# ── a symptom ─────────────────────────────────────────────────────────────────


def _symptom(text: str, configuration: Configuration, shape: _Shape, *, since: str) -> int:
    from tidegate.doctor.causes import SYMPTOMS
    from tidegate.doctor.phrases import in_language
    from tidegate.doctor.symptoms import Shown, matching, nothing_like

    found = matching(text, SYMPTOMS)
    if not found:
        raise InvalidParameter(nothing_like(text, SYMPTOMS, shape.language), param="symptom")
    causes = list(dict.fromkeys(cause for symptom in found for cause in symptom.causes))
    said = asyncio.run(_statements(causes, configuration, since=since))
    if shape.as_json:
        print(_json({"symptoms": [in_language(_symptom_document(symptom, said), shape.language) for symptom in found]}))
    else:
        _console().print("\n".join(_symptom_lines(found, said, shape.language)), markup=False, soft_wrap=True)
    return Exit.FAILED if any(statement.shown is Shown.YES for statement in said.values()) else Exit.OK


async def _statements(causes: Sequence[Cause], configuration: Configuration, *, since: str) -> dict[Cause, Statement]:
    """Put each cause to the records, one after another; nobody there is an answer, too."""
    from tidegate.adapters.analytics.client import open_asker
    from tidegate.adapters.analytics.opening import DIRECTORY
    from tidegate.adapters.wall_clock import wall_clock
    from tidegate.analytics.answers import advice
    from tidegate.analytics.scope import Scope
    from tidegate.cli.query import instant
    from tidegate.doctor.phrases import say
    from tidegate.doctor.symptoms import Shown, Statement, judged, question
    from tidegate.node.recorder_settings import keeps_tables

    now = wall_clock()
    scope = Scope(since=instant(since, now), until=now)
    if scope.since >= scope.until:
        raise ConfigurationError("--since is not before now.")
    span = say("the last {since}" if since[-1:].isalpha() else "the time since {since}", since=since)
    shown_by = [cause for cause in causes if cause.evidence is not None]
    state = Path(configuration.state_directory)
    if not keeps_tables(configuration):
        nobody = "Records are not kept in tables here, so they cannot say: pip install 'tidegate[analytics]'."
        return dict.fromkeys(shown_by, Statement(Shown.UNKNOWN, nobody))
    if configuration.analytics.clickhouse is None and not (state / DIRECTORY).is_dir():  # opening it would make it
        return dict.fromkeys(shown_by, Statement(Shown.UNKNOWN, say("There are no records in {state} yet.", state=state)))
    asker = open_asker(configuration, state)
    said = {}
    for cause in shown_by:
        assert cause.evidence is not None
        try:
            answer: QueryAnswer = await asker.ask(question(cause.evidence, scope))
        except (TidegateError, OSError) as error:
            said[cause] = Statement(Shown.UNKNOWN, say("The records cannot be asked: {trouble}", trouble=error))
            continue
        failed = Statement(Shown.UNKNOWN, say("The records cannot be asked: {trouble}", trouble=advice(answer.error)))
        said[cause] = failed if answer.error else judged(cause.evidence, answer, span=span)
    return said


def _symptom_lines(found: Sequence[Symptom], said: dict[Cause, Statement], language: Language) -> Iterator[str]:
    from tidegate.doctor.phrases import said as spoken
    from tidegate.doctor.symptoms import Shown

    told = set()
    for symptom in found:
        yield spoken(symptom.name, language)
        for number, cause in enumerate(symptom.causes, 1):
            statement = said.get(cause)
            mark = "✔ " if statement is not None and statement.shown is Shown.YES else "  "
            yield f"{mark}{number}. {spoken(cause.sentence, language)}"
            if cause in told:
                yield f"     {spoken('See above.', language)}"
                continue
            told.add(cause)
            if statement is not None:
                yield f"     {_line(spoken(statement.sentence, language))}"
            yield f"     → {spoken(cause.fix, language)}"
            yield f"     $ {cause.command}"
        yield ""


def _symptom_document(symptom: Symptom, said: dict[Cause, Statement]) -> dict[str, object]:
    causes = [{"cause": cause.sentence, "records": said.get(cause), "fix": cause.fix, "command": cause.command} for cause in symptom.causes]
    return {"symptom": symptom.name, "causes": causes}


# ── a request ─────────────────────────────────────────────────────────────────


def _request(request_id: str, configuration: Configuration, shape: _Shape) -> int:
    from tidegate.adapters.records.lines import masked
    from tidegate.doctor.phrases import in_language, said, say
    from tidegate.doctor.story import explain

    request_id = masked(request_id)  # as it stands in records, should it be a key
    found = _of_store(request_id, configuration) or _of_files(request_id, configuration)
    if found is None:
        nowhere = "No request {id!r} is recorded. It may not have ended, its record may be deleted, or another node has it."
        raise InvalidParameter(said(say(nowhere, id=request_id), shape.language), param="request")
    story = in_language(explain(*found), shape.language)
    if shape.as_json:
        print(_json(story))
    else:
        _console().print("\n".join(_story_lines(story, shape.language)), markup=False, soft_wrap=True)
    return Exit.OK


Found = tuple["Row", Sequence["Row"], Sequence["Row"]]
"""A request, its attempts, and what was sampled around it."""


def _of_store(request_id: str, configuration: Configuration) -> Found | None:
    """Ask the tables; None where they cannot say."""
    from tidegate.adapters.analytics.client import open_asker
    from tidegate.adapters.analytics.opening import DIRECTORY
    from tidegate.analytics.questions import asked
    from tidegate.analytics.scope import Scope
    from tidegate.cli.query import answered
    from tidegate.node.recorder_settings import keeps_tables

    state = Path(configuration.state_directory)
    if not keeps_tables(configuration) or (configuration.analytics.clickhouse is None and not (state / DIRECTORY).is_dir()):
        return None
    scope = Scope(since=0.0, until=0.0, request_id=request_id)
    try:
        sections = asyncio.run(answered(asked("request", scope), open_asker(configuration, state)))
    except (TidegateError, OSError):
        return None  # it is in no table, or not yet; the files may have it all the same
    rows = [[dict(zip(section.answer.columns, row, strict=True)) for row in section.answer.rows] for section in sections]
    request: Row = {str(row["field"]): row["value"] for row in rows[0]}
    return request, rows[1], rows[2]


def _of_files(request_id: str, configuration: Configuration) -> Found | None:
    """Look through the record files of every worker; of several requests with that id the latest counts."""
    from tidegate.analytics.rows import request_rows
    from tidegate.wiring.records import records_directory

    named = msgspec.json.encode(request_id)
    found = []
    for path in sorted(records_directory(configuration, Path(configuration.state_directory)).glob("requests-*.jsonl*")):
        try:
            with path.open("rb") as file:
                rows = [request_rows(line, node="", source="", offset=0) for line in file if named in line]
        except FileNotFoundError:
            continue  # rotated away since it was listed
        found += [each for each in rows if each is not None and each["requests"][0].get("request_id") == request_id]
    if not found:
        return None
    latest = max(found, key=lambda each: str(each["requests"][0]["started_at"]))
    return latest["requests"][0], latest["attempts"], []


def _story_lines(story: Story, language: Language) -> Iterator[str]:
    from tidegate.doctor.phrases import said, say

    yield f"{_line(story.request_id)}: {_line(story.ending)}"
    yield said(say("The client was told: {told}", told=_line(story.told)), language)
    for number, attempt in enumerate(story.attempts, 1):
        yield "  " + said(say("attempt {number}: {attempt}", number=number, attempt=_line(attempt)), language)
    whole = sum(spent.seconds for spent in story.times)
    for spent in story.times:
        yield f"  {spent.seconds * 1000:9,.1f} ms  {spent.seconds / whole * 100:3.0f} %  {spent.what}"
    for note in story.notes:
        yield f"  {_line(note)}"
    if story.fix:
        yield f"→ {story.fix}"
    yield f"$ {story.command}"


def _line(text: str) -> str:
    """Give a text on one line, with nothing in it that steers a terminal."""
    from tidegate.billing.layout import plain

    return plain(" ".join(text.split()))


def _json(document: object) -> str:
    return msgspec.json.format(msgspec.json.encode(document)).decode()


def _console() -> Console:
    from rich.console import Console

    return Console(file=sys.stdout, width=None if sys.stdout.isatty() else _WIDE, highlight=False)
