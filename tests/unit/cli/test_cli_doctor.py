"""`tidegate doctor`: what it looks at is looked at for real: ports, upstreams, a Redis, books, tables, record files."""

from __future__ import annotations

import json
import os
import re
import shlex
import socket
from collections.abc import Iterator, Mapping
from email.utils import formatdate
from pathlib import Path

import msgspec
import pytest
import yaml
from benchmarks.records import Traffic, fill

from tidegate.adapters.analytics.chdb_store import ChdbStore
from tidegate.adapters.wall_clock import wall_clock
from tidegate.cli.doctor_upstreams import skew_of, without_keys
from tidegate.cli.main import main
from tidegate.config.schema import DialectName, UpstreamSection
from tidegate.doctor.upstreams import Answer
from tidegate.domain.outcome import Outcome
from tidegate.domain.record import AttemptRecord, RequestRecord
from tidegate.domain.units import Secret
from tidegate.testing import GatewayProcess, RedisServer, ThreadedUpstream

NOW = wall_clock()
PAGE = Path(__file__).resolve().parents[3] / "docs" / "doctor.md"
EXAMPLES = [
    line
    for block in re.findall(r"^```sh\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
    for line in block.splitlines()
]
Checks = dict[str, list[dict[str, str]]]
RECORD = RequestRecord(
    "req_0123456789abcdef",
    NOW - 60.0,
    "chat",
    Outcome.FAILED_UPSTREAM,
    502,
    1.0,
    error_code="upstream_unavailable",
    cause="there/0: \x1b[2Jconnection refused",
    attempts=(AttemptRecord(1, "there/0", "failed", duration_s=0.9),),
)


@pytest.fixture(autouse=True)
def _english(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the terminal of those who run the tests speaks."""
    monkeypatch.setenv("LC_ALL", "C")


@pytest.fixture
def upstream() -> Iterator[ThreadedUpstream]:
    with ThreadedUpstream(models=("m",), api_key="right") as server:
        yield server


@pytest.fixture(scope="module")
def state(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An hour of traffic in tables, and one request that is in a file only."""
    directory = tmp_path_factory.mktemp("state")
    store = ChdbStore(directory / "analytics", keep_days=3650)
    store.create_tables()
    fill(store, Traffic(rows=20_000, until=NOW, span_s=7200.0))
    store.insert("requests", [{"request_id": "req_in_tables", "started_at": "2026-11-04 10:00:00.000", "outcome": "ok", "status": 200}])
    store.close()
    (directory / "records").mkdir()
    older = msgspec.structs.replace(RECORD, started_at=NOW - 900.0, outcome=Outcome.OK, status=200)
    lines = [msgspec.json.encode(record) for record in (RECORD, older)]
    (directory / "records" / "requests-0.jsonl").write_bytes(b"\n".join((*lines, b'{"torn": "req_0123456789abcdef"')) + b"\n")
    return directory


def told(tmp_path: Path, capsys: pytest.CaptureFixture[str], configuration: Mapping[str, object], *more: str) -> tuple[int, Checks]:
    """Run the checks over a configuration; give its exit status, and the lines by their names."""
    file = tmp_path / "tidegate.yaml"
    free = {"server": {"port": 0}, "admin": {"port": 0}, "local_engine": {"enabled": False}, "state_directory": str(tmp_path / "state")}
    file.write_text(yaml.safe_dump(free | dict(configuration)))
    status = main(["doctor", "--json", "--timeout-s", "2", "--config", str(file), *more])
    found: Checks = {}
    for check in json.loads(capsys.readouterr().out)["checks"]:
        found.setdefault(check["name"], []).append(check)
    return status, found


def there(upstream: ThreadedUpstream, **changes: object) -> dict[str, object]:
    section = {"dialect": "openai", "base_url": upstream.base_url, "api_key": "right", "models": ["m"], "health": {"enabled": False}}
    return {"upstreams": {"there": section | changes}}


def test_a_node_that_is_well_is_told_so(tmp_path: Path, upstream: ThreadedUpstream, capsys: pytest.CaptureFixture[str]) -> None:
    """Upstream, key and model are right, it answers one token and reports usage; no request is sent unless that is asked for."""
    status, found = told(tmp_path, capsys, there(upstream))
    assert (0, "ok") == (status, found["upstream there/0"][0]["verdict"]), found
    assert ["/v1/models"] == [request.path for request in upstream.requests]
    status, found = told(tmp_path, capsys, there(upstream), "--ask")
    assert (0, True) == (status, "reports usage" in found["ask there/0"][0]["sentence"]), found
    [sent] = [json.loads(request.body) for request in upstream.requests if request.path == "/v1/chat/completions"]
    assert ("m", 1) == (sent["model"], sent["max_completion_tokens"])


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"api_key": "wrong"}, "refuses the configured key (401)"),
        ({"api_key": None}, "wants a key (401), and none is configured"),
        ({"base_url": "http://127.0.0.1:1/v1"}, "gave no answer"),
        ({"models": ["n"]}, "does not list the model n"),
    ],
)
def test_an_upstream_that_is_wrong_is_named(
    changes: dict[str, object], words: str, tmp_path: Path, upstream: ThreadedUpstream, capsys: pytest.CaptureFixture[str]
) -> None:
    """Key, address or model."""
    status, found = told(tmp_path, capsys, there(upstream, **changes), "--ask")
    assert (True, True) == (status > 0, words in found["upstream there/0"][0]["sentence"]), found


def test_a_key_that_a_server_repeats_is_not_shown() -> None:
    """Nor another secret that was sent."""
    section = UpstreamSection(dialect=DialectName.OPENAI, base_url="http://h/v1", api_key=Secret("canary"), headers={"x": Secret("bird")})
    answer = without_keys(section, Answer(status=401, body=b"canary is no key, bird neither"))
    assert b"**** is no key, **** neither" == answer.body


def test_a_date_tells_how_far_our_clock_is_ahead() -> None:
    """Half a second for a date of whole ones; what is no date tells nothing."""
    now = wall_clock()
    skew = skew_of(Answer(headers={"date": formatdate(now - 60.0, usegmt=True)}, took_s=0.2))
    assert skew is not None
    assert 60.0 == pytest.approx(skew, abs=1.5)
    assert [None, None] == [skew_of(Answer()), skew_of(Answer(headers={"date": "yesterday"}))]


def test_an_address_without_its_version_is_named(tmp_path: Path, upstream: ThreadedUpstream, capsys: pytest.CaptureFixture[str]) -> None:
    """With the one to write instead."""
    status, found = told(tmp_path, capsys, there(upstream, base_url=upstream.base_url.removesuffix("/v1")))
    assert (2, f"base_url: {upstream.base_url}") == (status, found["upstream there/0"][0]["fix"]), found


def test_without_any_model_nothing_is_asked(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """None is configured but a pattern, and none is listed."""
    with ThreadedUpstream(models=()) as empty:
        status, found = told(tmp_path, capsys, there(empty, models=["*"]), "--ask")
    assert (1, "warning") == (status, found["ask there/0"][0]["verdict"]), found


def test_our_count_is_compared_with_theirs(tmp_path: Path, upstream: ThreadedUpstream, capsys: pytest.CaptureFixture[str]) -> None:
    """The scripted upstream counts bytes, which no vocabulary does."""
    status, found = told(tmp_path, capsys, there(upstream, tokenizer="qwen3.6"), "--ask")
    assert (1, True) == (status, found["ask there/0"][0]["sentence"].startswith("We count ")), found


def test_a_port_that_is_taken_is_named(tmp_path: Path, upstream: ThreadedUpstream, capsys: pytest.CaptureFixture[str]) -> None:
    """With the command that shows who has it."""
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        status, found = told(tmp_path, capsys, {**there(upstream), "server": {"port": port}})
    assert (2, f"ss -ltnp 'sport = :{port}'") == (status, found["api port"][0]["command"]), found


def test_a_configuration_that_is_refused_is_all_there_is(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The line and what to write instead."""
    status, found = told(tmp_path, capsys, {"servre": {}})
    assert (2, ["configuration"]) == (status, list(found))
    assert "servre" in found["configuration"][0]["sentence"]


def test_stores_books_and_recorder_are_looked_at(tmp_path: Path, upstream: ThreadedUpstream, capsys: pytest.CaptureFixture[str]) -> None:
    """A Redis that is there and one that is not; books that were not begun; the state directory's mode."""
    (tmp_path / "state").mkdir(mode=0o755)
    (tmp_path / "state").chmod(0o755)
    with RedisServer() as redis:
        settings = {"limits": {"store": redis.url}, "shared": {"redis_url": "redis://127.0.0.1:1/0"}, "books": {"enabled": True}}
        status, found = told(tmp_path, capsys, {**there(upstream), **settings})
    assert (2, "ok", "bad") == (status, found["limits.store"][0]["verdict"], found["shared.redis_url"][0]["verdict"]), found
    assert "They are begun with the first request that has a price." == found["books"][0]["sentence"]
    assert "warning" == found["state directory"][0]["verdict"]
    assert "It runs when the node does." == found["recorder"][0]["sentence"]


def test_the_key_sets_of_issuers_are_looked_at(tmp_path: Path, upstream: ThreadedUpstream, capsys: pytest.CaptureFixture[str]) -> None:
    """A file that is no key set, one whose host is unknown, and an issuer with a secret, which needs none."""
    (tmp_path / "keys.json").write_text("[]")
    places = {"https://file": str(tmp_path / "keys.json"), "https://far": "https://no-such-host.invalid/keys"}
    issuers = [{"issuer": issuer, "audience": "a", "jwks": place} for issuer, place in places.items()]
    shared = {"issuer": "https://shared", "audience": "a", "algorithms": ["HS256"], "secret": "s" * 48}
    status, found = told(tmp_path, capsys, {**there(upstream), "jwt": [*issuers, shared]})
    assert status == 2
    assert "is no JSON Web Key Set" in found["issuer https://file"][0]["sentence"]
    assert "cannot be resolved" in found["issuer https://far"][0]["sentence"]
    assert "issuer https://shared" not in found


def test_books_that_cannot_be_read_and_a_missing_model_are_bad(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Each in its own words."""
    for name in ("books", "model.gguf"):
        (tmp_path / name).write_bytes(b"neither database nor model" * 1000)
    settings = {
        "books": {"enabled": True, "database": str(tmp_path / "books")},
        "local_engine": {"enabled": True, "model_path": str(tmp_path / "model.gguf")},
        "analytics": {"enabled": False},
    }
    status, found = told(tmp_path, capsys, settings)
    assert (2, "bad", "bad") == (status, found["books"][0]["verdict"], found["local model"][0]["verdict"]), found
    assert "Records are kept as JSON Lines only." == found["recorder"][0]["sentence"]


def test_a_running_node_is_known_as_ours(tmp_path: Path, upstream: ThreadedUpstream, capsys: pytest.CaptureFixture[str]) -> None:
    """Its ports are not taken by another, its recorder answers; killed, it is silent."""
    with GatewayProcess({**there(upstream), "analytics": {"enabled": True}}) as gateway:
        options = ("--state-directory", str(gateway.state_directory))
        status, found = told(tmp_path, capsys, there(upstream), *options)
        assert (0, "It serves with 1 worker.") == (status, found["node"][0]["sentence"]), found
        assert gateway.api_url.rpartition("/")[2] in found["api port"][0]["sentence"]
        assert found["recorder"][0]["sentence"].startswith("It runs; ")
        _, found = told(tmp_path, capsys, {**there(upstream), "server": {"port": 1}}, *options)
        assert found["api port"][0]["sentence"].startswith(
            f"Our own node listens on {gateway.api_url.rpartition('/')[2]}. It was started so"
        )
    (tmp_path / "state").mkdir()
    (tmp_path / "state" / "endpoints.json").write_text('{"api": "http://127.0.0.1:1", "admin": "http://127.0.0.1:1"}')
    assert "bad" == told(tmp_path, capsys, there(upstream))[1]["node"][0]["verdict"]


def test_people_get_lines(tmp_path: Path, upstream: ThreadedUpstream, capsys: pytest.CaptureFixture[str]) -> None:
    """What is wrong comes with what to do (→) and the command that shows it ($)."""
    file = tmp_path / "tidegate.yaml"
    free = {"server": {"port": 0}, "admin": {"port": 0}, "local_engine": {"enabled": False}}
    file.write_text(yaml.safe_dump({**free, **there(upstream, api_key="wrong")}))
    assert 2 == main(["doctor", "--config", str(file), "--state-directory", str(tmp_path / "state")])
    out = capsys.readouterr().out
    assert re.search(r"^bad +upstream there/0 +It refuses the configured key", out, re.MULTILINE)
    assert "→ Correct upstreams.there.api_key" in out
    assert "$ curl -sS" in out
    assert "wrong" not in out.replace("it is wrong", "")


# ── symptoms ──────────────────────────────────────────────────────────────────


def test_a_symptom_is_put_to_the_records(state: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """They say yes or no; yes is an exit status of 1."""
    assert 1 == main(["doctor", "--symptom", "broken JSON", "--state-directory", str(state)])
    out = capsys.readouterr().out
    assert "JSON comes broken." in out
    assert re.search(
        r"✔ 1\. The answer was cut at the output limit.*\n +Yes, this is what your records of the last 1h show: [\d.]+ % of", out
    )
    assert "Your records of the last 1h do not show it: 0.0 % of" in out


def test_programs_get_a_symptom_as_json(state: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Each cause with what the records say of it, if they can say anything; a time in the future is refused."""
    assert 0 == main(["doctor", "--symptom", "重试放大流量", "--json", "--since", "2h", "--state-directory", str(state)])
    [symptom] = json.loads(capsys.readouterr().out)["symptoms"]
    assert ["no", "no"] == [cause["records"]["shown"] for cause in symptom["causes"]]
    assert 2 == main(["doctor", "--symptom", "json", "--since", "2100-01-01", "--state-directory", str(state)])
    assert "--since is not before now" in capsys.readouterr().err


def test_causes_that_two_symptoms_share_are_told_once(state: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The second time it is pointed to."""
    main(["doctor", "--symptom", "json and peak and jitter", "--since", "2026-01-01", "--state-directory", str(state)])
    out = capsys.readouterr().out
    assert 1 == out.count("Find the failing replica;")
    assert "See above." in out
    assert "the time since 2026-01-01" in out


def test_without_tables_the_causes_are_told_all_the_same(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """And why the records cannot say; tables that cannot be opened are told as well."""
    file = tmp_path / "tidegate.yaml"
    off = {"upstreams": {"there": {"dialect": "openai", "base_url": "http://127.0.0.1:1/v1"}}, "state_directory": str(tmp_path)}
    file.write_text(yaml.safe_dump({**off, "analytics": {"enabled": False}}))
    assert 0 == main(["doctor", "--symptom", "429", "--config", str(file)])
    assert "Records are not kept in tables here" in capsys.readouterr().out
    file.write_text(yaml.safe_dump({**off, "analytics": {"clickhouse": "http://127.0.0.1:1/none"}}))
    assert 0 == main(["doctor", "--symptom", "429", "--config", str(file)])
    assert "The records cannot be asked: " in capsys.readouterr().out


def test_a_doctor_makes_no_tables(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Where nothing was recorded yet, that is what is said, and nothing is left behind."""
    for question in (("--symptom", "429"), ("--request", "req_none")):
        main(["doctor", *question, "--state-directory", str(tmp_path / "state")])
    assert f"There are no records in {tmp_path / 'state'} yet." in capsys.readouterr().out
    assert [] == list(tmp_path.iterdir())


def test_words_that_mean_nothing_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    """With everything that is known."""
    assert 2 == main(["doctor", "--symptom", "the weather"])
    assert 'JSON comes broken.  "the JSON has no closing bracket"' in capsys.readouterr().err


def test_the_doctor_speaks_the_language_of_the_terminal(
    state: Path, upstream: ThreadedUpstream, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Or the one that is asked for: checks, symptoms, and a request; keys of JSON, verdicts, names and commands stay."""
    monkeypatch.setenv("LC_ALL", "zh_CN.UTF-8")
    main(["doctor", "--symptom", "太贵了", "--state-directory", str(state)])
    out = capsys.readouterr().out
    assert "同样的请求费用更高。" in out
    assert "你的记录（最近 1h）" in out
    assert "tidegate query cost --by feature" in out
    main(["doctor", "--symptom", "太贵了", "--language", "en", "--state-directory", str(state)])
    assert "The same requests cost more." in capsys.readouterr().out
    assert 2 == main(["doctor", "--symptom", "今天"])
    assert '回答被截断。  "回答被截断"' in capsys.readouterr().err
    main(["doctor", "--request", RECORD.request_id, "--state-directory", str(state)])
    out = capsys.readouterr().out
    assert f"{RECORD.request_id}: 每次尝试都在模型服务器处失败。 there/0: ?[2Jconnection refused" == out.splitlines()[0]
    assert "第 1 次尝试：there/0：没有连接，或连接中断，用时 900 ms。" in out
    _, found = told(tmp_path, capsys, there(upstream))
    assert [("ok", "它没有运行。")] == [(check["verdict"], check["sentence"]) for check in found["node"]]


# ── requests ──────────────────────────────────────────────────────────────────


def test_a_request_is_told_from_its_file(state: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The latest with that id; nothing in it steers the terminal."""
    assert 0 == main(["doctor", "--request", RECORD.request_id, "--state-directory", str(state)])
    out = capsys.readouterr().out
    assert f"{RECORD.request_id}: Every attempt failed at the model server. there/0: ?[2Jconnection refused" == out.splitlines()[0]
    assert "attempt 1: there/0: no connection, or one that broke after 900 ms." in out
    assert re.search(r"900\.0 ms +90 %  waiting for the whole answer", out)


def test_a_request_is_told_from_the_tables(state: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """As JSON for programs."""
    assert 0 == main(["doctor", "--request", "req_in_tables", "--json", "--state-directory", str(state)])
    story = json.loads(capsys.readouterr().out)
    assert ("It was answered.", "200.") == (story["ending"], story["told"])


def test_a_request_that_is_nowhere_is_said_to_be(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """No record, no directory; and two questions at once are refused."""
    file = tmp_path / "tidegate.yaml"
    file.write_text(yaml.safe_dump({"analytics": {"enabled": False}, "state_directory": str(tmp_path)}))
    assert 2 == main(["doctor", "--request", "req_none", "--config", str(file)])
    assert "No request 'req_none' is recorded." in capsys.readouterr().err
    assert 2 == main(["doctor", "--request", "req_none", "--symptom", "json"])
    assert 2 == main(["doctor", "--timeout-s", "0"])


@pytest.mark.parametrize("line", EXAMPLES)
def test_the_examples_of_the_page_run(
    line: str, state: Path, upstream: ThreadedUpstream, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each as it stands there, beside a configuration and records."""
    program, *words = shlex.split(line)
    assert "tidegate" == program
    free = {"server": {"port": 0}, "admin": {"port": 0}, "local_engine": {"enabled": False}, "state_directory": str(state)}
    (tmp_path / "tidegate.yaml").write_text(yaml.safe_dump({**free, **there(upstream)}))
    for name in [name for name in os.environ if name.endswith("_API_KEY")]:
        monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)
    assert main(words) in {0, 1}
    assert capsys.readouterr().out
