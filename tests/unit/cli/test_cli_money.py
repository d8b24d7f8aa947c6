"""`tidegate usage`, `invoice` and `reconcile`, over records and over books."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest

from tidegate.adapters.books.opening import open_books
from tidegate.adapters.records.reader import RecordReader
from tidegate.cli.main import main
from tidegate.domain.books import Dimensions, OperationId, Settle
from tidegate.domain.outcome import Outcome
from tidegate.domain.record import AttemptRecord, RequestRecord
from tidegate.domain.units import TenantId
from tidegate.domain.usage import Evidence, Usage
from tidegate.wiring.books import settlements

NOVEMBER = 1_793_491_200.0  # 2026-11-01
DAY = 86_400.0


def record(number: int, tenant: str, cost_micro: int, *, at: float = NOVEMBER + 10 * DAY) -> RequestRecord:
    attempt = AttemptRecord(1, "dashscope/0", "ok", model="qwen3.6-plus", duration_s=2.0, cost_micro=cost_micro)
    return RequestRecord(
        f"r{number}",
        at,
        "chat",
        Outcome.OK,
        200,
        2.0,
        tenant=tenant,
        key_id="k",
        usage=Usage(100, 50),
        evidence=Evidence.REPORTED,
        cost_micro=cost_micro,
        price_version="2026-11",
        traffic_bytes=10**9,
        attempts=(attempt,),
    )


RECORDS = [
    record(1, "acme", 800),
    record(2, "b", 200),
    record(3, "acme", 100, at=NOVEMBER + 12 * DAY),
    record(4, "b", 7, at=NOVEMBER - 5.0),
]


COLORED = [
    msgspec.structs.replace(record(5, "load-test", 3_000), color="bench", unbilled=True),
    msgspec.structs.replace(record(6, "acme", 50), color="bench"),
    msgspec.structs.replace(record(7, "load-test", 6, at=NOVEMBER - 5.0), color="bench", unbilled=True),
]


def write_colored(directory: Path) -> None:
    """Add a load test that nobody pays for, and a customer's traffic of the same colour."""
    lines = b"".join(msgspec.json.encode(each) + b"\n" for each in COLORED)
    (directory / "state" / "records" / "requests-2.jsonl").write_bytes(lines)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """Write records of two workers, one of them rotated, and a configuration that keeps no books."""
    directory = tmp_path / "state" / "records"
    directory.mkdir(parents=True)
    lines = [msgspec.json.encode(each) + b"\n" for each in RECORDS]
    (directory / "requests-0.jsonl").write_bytes(lines[0] + b'{"request_id": "half')
    (directory / "requests-0.jsonl.1").write_bytes(lines[1] + b"\n" + lines[3])
    (directory / "requests-1.jsonl").write_bytes(lines[2])
    return configured(tmp_path, "books: {enabled: false}")


def configured(directory: Path, books: str) -> Path:
    path = directory / "tidegate.yaml"
    path.write_text(
        f"state_directory: {directory / 'state'}\n{books}\n"
        "prices:\n  version: '2026-11'\n  currency: CNY\n  models: [{model: '*', input: 2, output: 12}]\n"
        "  hybrid: [{tenant: acme, free_tokens: 150, memory_hour: 0.02, traffic_gb: 0.1}]\n"
    )
    return path


def shown(arguments: list[str], file: Path, capsys: pytest.CaptureFixture[str], *, expected: int = 0) -> tuple[dict[str, object], str]:
    """Run a command with JSON on standard output."""
    assert expected == main([*arguments, "--format", "json", "--config", str(file)])
    captured = capsys.readouterr()
    report = msgspec.json.decode(captured.out, type=dict[str, object])
    return report, captured.err


SPAN = ["--since", "2026-11-01", "--until", "2026-12-01T00:00+00:00"]


def test_usage_comes_from_the_records_where_no_books_are_kept(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Of every worker and every rotated file; half a line is passed over and told of."""
    report, told = shown(["usage", *SPAN], file, capsys)
    assert [("acme", 900, 0.818182), ("b", 200, 0.181818)] == [
        (row["tenant"], row["cost_micro"], row["share"]) for row in json.loads(json.dumps(report["rows"]))
    ]
    assert "out of the request records" in told
    assert "1 lines" in told


def test_usage_can_be_of_one_tenant_and_in_other_forms(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """By several names; a table is for people."""
    assert 0 == main(["usage", *SPAN, "--by", "model", "--by", "key", "--tenant", "b", "--config", str(file)])
    assert ["qwen3.6-plus", "k", "1", "100", "0", "50", "0.0002", "100.0", "%"] == capsys.readouterr().out.splitlines()[2].split()
    assert 0 == main(["usage", *SPAN, "--format", "csv", "--config", str(file)])
    assert "acme,2,200,100,0,0,0,0.0009,CNY,0.818182" == capsys.readouterr().out.splitlines()[1]
    assert 0 == main(["usage", "--config", str(file)])  # this month, whenever that is


def test_an_invoice_has_token_lines_and_hybrid_lines(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Acme used 300 tokens, 150 of them free: it pays for half of its two gigabytes, and of hardly any memory."""
    report, _ = shown(["invoice", "--month", "2026-11"], file, capsys)
    made = json.loads(json.dumps(report["invoices"]))
    assert [("acme", 100_000), ("b", 200)] == [(each["tenant"], each["total_micro"]) for each in made]
    assert ["tokens", "free_tokens", "gpu_memory", "traffic"] == [line["item"] for line in made[0]["lines"]]
    assert 0 == main(["invoice", "--month", "2026-11", "--tenant", "b", "--config", str(file)])
    assert capsys.readouterr().out.endswith("0.0002\n")
    assert 0 == main(["invoice", "--month", "2026-11", "--format", "csv", "--config", str(file)])
    assert "acme,2026-11,tokens,qwen3.6-plus,2026-11,2,200,100,0,0,0,300,tokens,0.00,CNY" == capsys.readouterr().out.splitlines()[1]


def test_a_month_that_runs_is_told_to_be_open(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Its invoice grows."""
    assert 0 == main(["invoice", "--month", "2999-12", "--config", str(file)])
    assert "is not over" in capsys.readouterr().err


def test_a_providers_export_is_compared(file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """0 where it agrees, 1 where it does not."""
    export = tmp_path / "export.csv"
    export.write_text(
        "date,model,prompt_tokens,completion_tokens,cost\n2026-11-11,qwen/Plus,200,100,0.001\n2026-11-13,qwen/Plus,100,50,0.0001\n"
    )
    alias = ["--alias", "plus=qwen3.6-plus"]
    report, _ = shown(["reconcile", str(export), *alias, "--upstream", "dashscope"], file, capsys)
    assert [] == report["beyond"]
    assert 1 == main(["reconcile", str(export), "--config", str(file)])
    assert "2 of 2 models drift" in capsys.readouterr().out
    assert 1 == main(["reconcile", str(export), *alias, "--upstream", "other", "--format", "csv", "--config", str(file)])
    assert "2026-11-11,qwen3.6-plus,300,0,-1.000000,0.001,0.00,-1.000000" == capsys.readouterr().out.splitlines()[1]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["usage", "--since", "yesterday"], "neither a day nor a time"),
        (["usage", "--since", "0001-01-01T00:00+14:00"], "neither a day nor a time"),
        (["usage", "--until", "9999-12-31T23:00-14:00"], "neither a day nor a time"),
        (["invoice", "--month", "11/2026"], "is not a month"),
        (["invoice", "--month", "9999-12"], "is not a month"),
        (["invoice"], "Say which month: tidegate invoice --month 20"),
        (["reconcile", "{}", "--alias", "x"], "--alias THEIRS=OURS"),
        (["reconcile", "/nonexistent.csv"], "cannot be read"),
        (["reconcile", "/dev/zero"], "is larger than 268,435,456 bytes"),
        (["reconcile", "{gbk}"], "is not in UTF-8 (byte 20); export or save it again as CSV in UTF-8."),
        (["reconcile", "{}", "--tolerance", "nan"], "A tolerance of nan cannot be meant"),
        (["reconcile", "{}", "--tolerance", "inf"], "A tolerance of inf cannot be meant"),
        (["reconcile", "{}", "--tolerance", "-0.1"], "A tolerance of -0.1 cannot be meant"),
    ],
)
def test_what_cannot_be_meant_is_a_usage_error(
    arguments: list[str], message: str, file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """One message, exit code 2."""
    (tmp_path / "empty.csv").write_text("date,model,tokens\n")
    (tmp_path / "gbk.csv").write_bytes("date,model,tokens,时间\n".encode("gbk"))
    files = {"{}": str(tmp_path / "empty.csv"), "{gbk}": str(tmp_path / "gbk.csv")}
    given = [files.get(each, each) for each in arguments]
    assert 2 == main([*given, "--config", str(file)])
    assert message in capsys.readouterr().err


def test_without_records_the_directory_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Instead of a report of nothing."""
    assert 2 == main(["usage", "--config", str(configured(tmp_path, "books: {enabled: false}"))])
    assert "There are no request records in" in capsys.readouterr().err


def test_books_are_asked_where_they_are_kept(file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """For usage, invoices and comparisons; what tenants used of memory and traffic is in the records only."""
    books = open_books(str(tmp_path / "state" / "books.sqlite"))
    settled = Settle(
        OperationId("o"), 1, TenantId("acme"), 5000, NOVEMBER + DAY, Evidence.REPORTED, "2026-11", Usage(10, 5), Dimensions(model="max")
    )
    books.post([settled], now=NOVEMBER + DAY)
    books.close()
    configured(tmp_path, "")
    report, told = shown(["usage", *SPAN, "--by", "model"], file, capsys)
    assert [("max", 5000)] == [(row["model"], row["cost_micro"]) for row in json.loads(json.dumps(report["rows"]))]
    assert "" == told
    invoiced, _ = shown(["invoice", "--month", "2026-11"], file, capsys)
    assert [100_000] == [each["total_micro"] for each in json.loads(json.dumps(invoiced["invoices"]))]
    export = tmp_path / "export.csv"
    export.write_text("date,model,tokens\n2026-11-02,max,15\n")
    assert 0 == main(["reconcile", str(export), "--config", str(file)])


def test_what_nobody_is_billed_for_is_in_no_report_but_of_its_color(file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Neither in usage nor on an invoice; by its colour all of it is found, also what was billed."""
    write_colored(tmp_path)
    report, _ = shown(["usage", *SPAN], file, capsys)
    assert [("acme", 950), ("b", 200)] == [(row["tenant"], row["cost_micro"]) for row in json.loads(json.dumps(report["rows"]))]
    report, told = shown(["usage", *SPAN, "--color", "bench"], file, capsys)
    rows = json.loads(json.dumps(report["rows"]))
    assert [("load-test", 3_000), ("acme", 50)] == [(row["tenant"], row["cost_micro"]) for row in rows]
    assert 'requests of the color "bench" came to, billed or not' in told
    report, _ = shown(["usage", *SPAN, "--color", "bench", "--tenant", "acme"], file, capsys)
    assert [50] == [row["cost_micro"] for row in json.loads(json.dumps(report["rows"]))]
    invoiced, _ = shown(["invoice", "--month", "2026-11"], file, capsys)
    assert ["acme", "b"] == [each["tenant"] for each in json.loads(json.dumps(invoiced["invoices"]))]
    invoiced, _ = shown(["invoice", "--month", "2026-11", "--color", "bench"], file, capsys)
    assert ["acme", "load-test"] == [each["tenant"] for each in json.loads(json.dumps(invoiced["invoices"]))]


@pytest.mark.parametrize("kept", [True, False])
def test_a_provider_bills_us_for_tests_too(file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], *, kept: bool) -> None:
    """So a comparison has what the books leave out, from the records; of one colour, only that."""
    write_colored(tmp_path)
    billed = [each for each in (*RECORDS, *COLORED) if not each.unbilled]
    if kept:
        books = open_books(str(tmp_path / "state" / "books.sqlite"))
        for each in billed:
            books.post(list(settlements(each, OperationId(each.request_id))), now=NOVEMBER + DAY)
        books.close()
        configured(tmp_path, "")
    export = tmp_path / "export.csv"
    export.write_text("date,model,tokens,cost\n2026-11-11,qwen3.6-plus,600,0.00405\n2026-11-13,qwen3.6-plus,150,0.0001\n")
    report, _ = shown(["reconcile", str(export)], file, capsys)
    assert [] == report["beyond"]
    export.write_text("date,model,tokens,cost\n2026-11-11,qwen3.6-plus,300,0.00305\n")
    report, _ = shown(["reconcile", str(export), "--color", "bench"], file, capsys)
    assert [] == report["beyond"]


def test_a_file_under_two_names_is_read_once(tmp_path: Path) -> None:
    """As when a worker rotates while a report is made; old files are not opened to be read."""
    (tmp_path / "requests-0.jsonl").write_bytes(msgspec.json.encode(RECORDS[0]) + b"\n")
    (tmp_path / "requests-0.jsonl.1").hardlink_to(tmp_path / "requests-0.jsonl")
    (tmp_path / "requests-0.jsonl.2").symlink_to(tmp_path / "gone")
    reader = RecordReader(tmp_path)
    assert [RECORDS[0]] == list(reader.records(since=NOVEMBER, until=NOVEMBER + 30 * DAY))
    assert [] == list(reader.records(since=9e11, until=9e12))
    assert f"RecordReader({str(tmp_path)!r}, unreadable=0)" == repr(reader)
