"""`tidegate query`, over tables and over record files; the examples of the page for people."""

from __future__ import annotations

import csv
import gc
import io
import json
import re
import shlex
from pathlib import Path

import msgspec
import pytest
from benchmarks.records import Traffic, fill

from tidegate.adapters.analytics.chdb_store import ChdbStore
from tidegate.adapters.wall_clock import wall_clock
from tidegate.analytics.asking import Value
from tidegate.analytics.rows import timestamp
from tidegate.cli.main import main
from tidegate.cli.query import instant
from tidegate.domain.outcome import Outcome
from tidegate.domain.record import AttemptRecord, RequestRecord
from tidegate.domain.usage import Evidence, Usage
from tidegate.errors import ConfigurationError

NOW = wall_clock()
PAGE = Path(__file__).resolve().parents[3] / "docs" / "query.md"
EXAMPLES = [
    line
    for block in re.findall(r"^```sh\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
    for line in block.splitlines()
]


@pytest.fixture(scope="module")
def state(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two hours of traffic; one replica is slow for one feature since half an hour ago."""
    directory = tmp_path_factory.mktemp("state")
    store = ChdbStore(directory / "analytics", keep_days=3650)
    store.create_tables()
    fill(store, Traffic(rows=60_000, until=NOW, span_s=7200.0, slow_since=NOW - 1800.0))
    old: dict[str, Value] = {"request_id": "req_0123456789abcdef", "started_at": "2026-11-04 10:00:00.000", "duration_s": 1.0}
    store.insert("requests", [old])
    store.close()
    return directory


def run(capsys: pytest.CaptureFixture[str], state: Path, *arguments: str, status: int = 0) -> tuple[str, str]:
    assert status == main(["query", *arguments, "--state-directory", str(state)])
    return capsys.readouterr()


def rows(text: str, section: int = 0) -> list[dict[str, object]]:
    found: list[dict[str, object]] = json.loads(text)["sections"][section]["rows"]
    return found


@pytest.mark.parametrize("line", EXAMPLES)
def test_the_examples_of_the_page_run(line: str, state: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """As they stand there."""
    out, _ = run(capsys, state, *shlex.split(line)[2:])
    assert out


def test_the_page_names_every_question() -> None:
    """And no other."""
    from tidegate.analytics.questions import BY_NAME

    assert list(BY_NAME) == re.findall(r"^\| `([a-z0-9-]+)` \|", PAGE.read_text(encoding="utf-8"), re.MULTILINE)


def test_a_regression_of_one_replica_for_one_feature_is_found(state: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The planted one, with the words that a person reads."""
    out, _ = run(capsys, state, "why-p99", "--since", "30m")
    assert "why P99: group, sure" in out
    [cause] = re.findall(r"P99 rose from [\d.]+ s to [\d.]+ s\. (.*) has", out)
    assert {"feature=code_completion", "replica=gpu-a/1"} == set(cause.split(", "))
    quiet, _ = run(capsys, state, "why-p99", "--since", "30m", "--feature", "chat")
    assert "no rise" in quiet
    nothing, _ = run(capsys, state, "why-p99", "--since", "2020-01-01", "--until", "2020-01-02")
    assert "too few" in nothing


def test_the_question_of_the_article(state: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Its figures are those of a plain join, second by second."""
    since, until = timestamp(NOW - 5400.0), timestamp(NOW - 60.0)
    span = ("--since", since, "--until", until)
    out, _ = run(capsys, state, "slow-vip-code", *span, "--slow-ms", "2500", "--format", "json")
    [row] = rows(out)
    plain = f"""
        SELECT uniqExact(request_id) AS n FROM (
          SELECT request_id, replica, toUnixTimestamp(addMilliseconds(started_at, toInt64(duration_s * 1000))) AS last,
            arrayJoin(range(toUnixTimestamp(started_at), last + 1)) AS second
          FROM requests WHERE prefill_s + decode_s > 2.5 AND tier = 'vip' AND feature = 'code_completion'
          AND started_at >= '{since}' AND started_at < '{until}'
        ) AS spent
        JOIN (
          SELECT replica, toUnixTimestamp(at) AS second FROM samples WHERE metric = 'gpu.memory_bandwidth_ratio' AND value >= 0.9
        ) AS full USING (replica, second)"""  # noqa: S608  our own
    expected, _ = run(capsys, state, plain, "--format", "json")
    assert rows(expected)[0]["n"] == row["slow_while_saturated"]
    assert row["slow_while_saturated"] != 0
    none, _ = run(capsys, state, "slow-vip-code", "--tier", "nobody")
    assert "There were no requests of tier nobody and feature code_completion" in none


@pytest.mark.parametrize("question", ["top-users", "cost", "content-filter", "cache", "replicas", "errors", "slowest"])
@pytest.mark.parametrize("form", ["table", "json", "csv"])
def test_each_question_is_answered_in_each_form(question: str, form: str, state: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """With as many rows as wanted."""
    out, err = run(capsys, state, question, "--limit", "3", "--format", form)
    assert "" == err
    if form == "json":
        assert 0 < len(rows(out)) <= 3
    elif form == "csv":
        assert 1 < len(list(csv.reader(io.StringIO(out)))) <= 4
    else:
        assert len(out.splitlines()) > 3


def test_a_row_of_what_is_piped_stays_on_its_line(state: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The whole id is there for `grep`."""
    ids = [str(row["request_id"]) for row in rows(run(capsys, state, "slowest", "--limit", "3", "--format", "json")[0])]
    lines = run(capsys, state, "slowest", "--limit", "3")[0].splitlines()
    assert [1, 1, 1] == [sum(each in line for line in lines) for each in ids]
    assert 3 == len([line for line in lines if any(each in line for each in ids)])


def test_a_request_is_shown_with_its_attempts_and_samples(state: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Three sections; what is empty is left out."""
    chosen, _ = run(capsys, state, "slowest", "--format", "json", "--limit", "1")
    [slowest] = rows(chosen)
    out, _ = run(capsys, state, "request", str(slowest["request_id"]), "--format", "json")
    fields = {row["field"]: row["value"] for row in rows(out)}
    assert (slowest["request_id"], slowest["duration_s"]) == (fields["request_id"], fields["duration_s"])
    assert "feature=code_completion" in str(fields["context"])
    assert [slowest["replica"]] == [row["replica"] for row in rows(out, 1)]
    assert {"gpu.memory_bandwidth_ratio", "gpu.utilization_ratio"} == {row["metric"] for row in rows(out, 2)}


def test_an_answer_says_when_there_is_more(state: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """On standard error, so that programs are not disturbed."""
    out, err = run(capsys, state, "SELECT request_id FROM requests", "--max-rows", "2", "--format", "csv")
    assert 3 == len(out.splitlines())
    assert "more rows than the 2 shown" in err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("topusers",), 'Did you mean "top-users"?'),
        (("zzz",), "There are: slow-vip-code, why-p99"),
        (("cost", "--by", "planet"), "by one of: tenant, feature"),
        (("slowest", "--by", "tenant"), "as a whole only"),
        (("replicas", "--tenant", "acme"), "Leave out --tenant"),
        (("request",), "tidegate query request ID"),
        (("cost", "req_1"), "tidegate query request ID"),
        (("request", "nobody"), "No request 'nobody' is recorded"),
        (("cost", "--since", "soon"), "write 90s, 30m, 1h or 7d"),
        (("cost", "--since", "1h", "--until", "2h"), "--since is not before --until"),
        (("cost", "--limit", "0"), "--limit is from 1"),
        (("cost", "--max-rows", "0"), "--max-rows is from 1"),
        (("cost", "--deadline", "0"), "--deadline is a number"),
        (("SELECT tenat FROM requests",), "Did you mean tenant?"),
        (("SELECT * FROM file('x')",), "no table of records"),
        (("SELECT feature, count() FROM requests",), "GROUP BY"),
    ],
)
def test_a_wrong_question_is_told_what_to_do(
    arguments: tuple[str, ...], said: str, state: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Exit status 2, on standard error."""
    _, err = run(capsys, state, *arguments, status=2)
    assert said in err


def test_names_reach_the_store_as_values(state: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A tenant with a quote in its name is a tenant that does not exist, not SQL."""
    out, _ = run(capsys, state, "cost", "--tenant", "' OR 1 = 1 --", "--format", "json")
    assert [] == rows(out)


# ── without tables ────────────────────────────────────────────────────────────


def record(number: int, outcome: Outcome = Outcome.OK, **fields: object) -> RequestRecord:
    attempt = AttemptRecord(1, f"pool/{number % 2}", "ok" if outcome is Outcome.OK else "status_503", duration_s=2.0, first_token_s=0.5)
    made = RequestRecord(
        f"r{number}",
        NOW - 60.0 - number,
        "chat",
        outcome,
        200,
        float(number),
        tenant="acme" if number % 2 else "b",
        user=f"u{number % 3}",
        feature="chat",
        usage=Usage(100 * number, 50, cached_tokens=40 * number),
        evidence=Evidence.REPORTED,
        cost_micro=1_000_000 * number,
        attempts=(attempt,),
    )
    return msgspec.structs.replace(made, **fields)


@pytest.fixture
def files(tmp_path: Path) -> Path:
    """A state directory with record files, whose configuration keeps no tables."""
    (tmp_path / "tidegate.yaml").write_text("analytics: {enabled: false}\nlocal_engine: {enabled: true}\n")
    records = tmp_path / "records"
    records.mkdir()
    made = [record(number) for number in range(1, 7)]
    made += [record(7, Outcome.CONTENT_FILTER), record(8, Outcome.FAILED_UPSTREAM, error_code="upstream_unavailable", cause="reset")]
    made.append(record(9, Outcome.SERVED_FROM_CACHE, attempts=()))
    lines = [msgspec.json.encode(each) + b"\n" for each in made]
    (records / "requests-0.jsonl").write_bytes(b"".join(lines) + b"half a li")
    old = msgspec.structs.replace(record(10), started_at=NOW - 90_000.0, duration_s=1.0)
    (records / "requests-1.jsonl").write_bytes(msgspec.json.encode(old) + b"\n")
    return tmp_path


def of_files(capsys: pytest.CaptureFixture[str], files: Path, *arguments: str, status: int = 0) -> tuple[str, str]:
    return run(capsys, files, *arguments, "--config", str(files / "tidegate.yaml"), "--format", "json", status=status)


def test_record_files_give_the_same_figures_as_tables(files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Every question that groups or sorts: the same rows, up to half a per cent of a percentile."""
    from tidegate.analytics.groupings import GROUPINGS
    from tidegate.analytics.rows import request_rows

    gc.collect()  # chDB opens one directory at a time, and a question that failed may still hold another
    store = ChdbStore(files / "tables" / "analytics", keep_days=3650)
    store.create_tables()
    for number, line in enumerate((files / "records" / "requests-0.jsonl").read_bytes().splitlines()[:-1]):
        made = request_rows(line, node="n", source="s", offset=number)
        assert made is not None
        for table, some in made.items():
            if some:
                store.insert(table, some)
    store.close()
    for question in (*GROUPINGS, "slowest"):
        out, err = of_files(capsys, files, question)
        assert "out of the record files" in err
        assert "1 lines of the record files cannot be read" in err
        tables, _ = run(capsys, files / "tables", question, "--format", "json")
        for mine, theirs in zip(rows(out), rows(tables), strict=True):
            for name, value in mine.items():
                expected = theirs[name]
                assert value == (pytest.approx(expected, rel=0.005) if isinstance(expected, float) else expected), (question, name)


def test_what_needs_tables_names_the_extra(files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """And what there is without it."""
    for what in (["why-p99"], ["slow-vip-code"], ["request", "r1"], ["SELECT 1"]):
        _, err = of_files(capsys, files, *what, status=1)
        assert "pip install 'tidegate[analytics]'" in err
        assert "top-users, cost" in err


def test_record_files_can_be_filtered_and_grouped(files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """As tables can."""
    out, _ = of_files(capsys, files, "cost", "--by", "user", "--tenant", "acme", "--limit", "1")
    assert [{"user": "u0", "requests": 2, "cost": 12.0}] == [
        {name: row[name] for name in ("user", "requests", "cost")} for row in rows(out)
    ]
    _, err = of_files(capsys, files, "cost", "--by", "planet", status=2)
    assert "by one of" in err


def test_no_record_files_are_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """With what to do."""
    (tmp_path / "tidegate.yaml").write_text("analytics: {enabled: false}\n")
    _, err = of_files(capsys, tmp_path, "cost", status=2)
    assert "There are no request records" in err


def test_too_many_records_are_not_held_in_memory(files: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """It says so, and what to do."""
    monkeypatch.setattr("tidegate.analytics.plain.MOST_ROWS", 3)
    _, err = of_files(capsys, files, "cost", status=1)
    assert "more than 3 records" in err


@pytest.mark.parametrize(
    ("text", "expected"),
    [("90s", 910.0), ("1.5m", 910.0), ("1970-01-01", 0.0), ("1970-01-01T00:10", 600.0), ("1970-01-01T01:00+01:00", 0.0)],
)
def test_times_are_read(text: str, expected: float) -> None:
    """A time ago, a day, a time with or without its zone."""
    assert expected == instant(text, 1000.0)


def test_other_times_are_refused() -> None:
    """With an example."""
    with pytest.raises(ConfigurationError, match="write 90s"):
        instant("yesterday", 1000.0)
    for text in ("99999999999999999999d", "0001-01-01", "9999-12-31"):
        with pytest.raises(ConfigurationError, match="1970"):
            instant(text, 1000.0)


@pytest.mark.parametrize(("option", "value"), [("--deadline", "inf"), ("--deadline", "0"), ("--slow-ms", "nan"), ("--saturated", "1.5")])
def test_numbers_that_make_no_question_are_refused(option: str, value: str, capsys: pytest.CaptureFixture[str]) -> None:
    """In words, with the option."""
    assert 2 == main(["query", "slow-vip-code", option, value])
    assert option in capsys.readouterr().err


def test_what_is_not_utf8_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    """Of any command: it could be neither asked nor written down."""
    assert 2 == main(["query", "top-users", "--tenant", "\udcff"])
    assert "UTF-8" in capsys.readouterr().err
