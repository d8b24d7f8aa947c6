"""The command's options: what each becomes, and what is refused before anything is sent."""

from __future__ import annotations

import json
import math
from pathlib import Path

import msgspec
import pytest
from tests.unit.bench.runs import steady_report

from tidegate.bench.load_options import Load
from tidegate.bench.outcome import Criteria
from tidegate.bench.run_report import Report, report_json
from tidegate.bench.running import BenchOptions
from tidegate.cli import bench_run, bench_text
from tidegate.cli.bench_options import JudgingChoice, LoadChoice, LoadName, RequestChoice, SendingChoice
from tidegate.cli.main import main
from tidegate.domain.usage import Usage
from tidegate.errors import ConfigurationError

URL = "http://127.0.0.1:9/v1"
Capture = pytest.CaptureFixture[str]


def options(
    *,
    url: str = URL,
    load: LoadChoice | None = None,
    requests: RequestChoice | None = None,
    sending: SendingChoice | None = None,
    judging: JudgingChoice | None = None,
    environ: dict[str, str] | None = None,
) -> BenchOptions:
    return bench_run.options(
        url,
        "m",
        load=load or LoadChoice(),
        requests=requests or RequestChoice(),
        sending=sending or SendingChoice(),
        judging=judging or JudgingChoice(),
        environ=environ or {},
    )


# ── load ──────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("choice", "load"),
    [
        (LoadChoice(), Load.POISSON),
        (LoadChoice(concurrency=3), Load.CONCURRENCY),
        (LoadChoice(trace=Path("t.csv")), Load.TRACE),
        (LoadChoice(step=("5:10", "10:2.5")), Load.STEPS),
        (LoadChoice(curve=Path("c.yaml")), Load.DAY),
        (LoadChoice(compress=720.0), Load.DAY),
        (LoadChoice(burstiness=0.5), Load.GAMMA),
        (LoadChoice(to_rate=50.0), Load.RAMP),
        (LoadChoice(load=LoadName.CONSTANT, rate=7.0), Load.CONSTANT),
    ],
)
def test_a_load_is_named_or_implied(choice: LoadChoice, load: Load) -> None:
    """By the option that only it has."""
    assert load is options(load=choice).load.load


def test_the_steps_and_defaults_of_loads() -> None:
    """A sweep has shorter steps than a run is long."""
    assert ((5.0, 10.0), (10.0, 2.5)) == options(load=LoadChoice(step=("5:10", "10:2.5"))).load.steps
    sweep = options(load=LoadChoice(load=LoadName.SWEEP, rate=2.0, to_rate=9.0))
    assert (True, 10.0, 2.0, 9.0) == (sweep.sweep, sweep.load.length_s, sweep.load.rate_per_s, sweep.load.to_rate_per_s)
    assert options().load.length_s is None
    assert (3.0, 8) == (options(load=LoadChoice(warmup_s=3.0)).warm_up_s, options(load=LoadChoice(seed=8)).load.seed)


@pytest.mark.parametrize(
    ("choice", "said"),
    [
        (LoadChoice(rate=5.0, concurrency=3), "--rate means nothing to --load concurrency"),
        (LoadChoice(load=LoadName.CONSTANT, to_rate=3.0), "--to-rate means nothing"),
        (LoadChoice(load=LoadName.RAMP), "--to-rate"),
        (LoadChoice(load=LoadName.SWEEP, warmup_s=1.0), "--warmup-s"),
        (LoadChoice(step=("5",)), "RATE:SECONDS"),
        (LoadChoice(step=("fast:5",)), "RATE:SECONDS"),
    ],
)
def test_options_that_mean_nothing_together_are_refused(choice: LoadChoice, said: str) -> None:
    """Rather than passed over."""
    with pytest.raises(ConfigurationError, match=said):
        options(load=choice)


# ── requests ──────────────────────────────────────────────────────────────────


def test_scenarios_and_prompts_are_mixed_by_weight(tmp_path: Path) -> None:
    """Masked, unless that is not wanted; without any of them the load chooses."""
    file = tmp_path / "mine.jsonl"
    file.write_text('{"prompt":"Call 13812345678"}\n')
    masked = options(requests=RequestChoice(scenario=("support_chat=3", "legal_text"), prompts=file)).load.mix
    assert [("support_chat", 3.0), ("legal_text", 1.0), ("mine", 1.0)] == [(scenario.name, weight) for scenario, weight in masked]
    assert "13812345678" not in masked[2][0].lines[0]
    plain = options(requests=RequestChoice(prompts=file, mask=False, scenario=("mine=2",))).load.mix
    assert ("13812345678" in plain[0][0].lines[0], 2.0) == (True, plain[0][1])
    assert () == options().load.mix


def test_lengths_are_one_number_or_two() -> None:
    """The least and the most."""
    chosen = options(requests=RequestChoice(prompt_tokens="100", completion_tokens="5-20")).load
    assert ((100, 100), (5, 20)) == (chosen.prompt_tokens, chosen.completion_tokens)


@pytest.mark.parametrize(
    ("choice", "said"),
    [
        (RequestChoice(scenario=("suport_chat",)), 'did you mean "support_chat"'),
        (RequestChoice(scenario=("qqq",)), "there are code_comments"),
        (RequestChoice(scenario=("support_chat=often",)), "NAME=WEIGHT"),
        (RequestChoice(prompt_tokens="many"), "--prompt-tokens"),
        (RequestChoice(completion_tokens="5-many"), "--completion-tokens"),
        (RequestChoice(extra_body="[]"), "--extra-body"),
        (RequestChoice(prompts=Path("nowhere.jsonl")), "nowhere.jsonl"),
    ],
)
def test_requests_that_cannot_be_made_are_refused(choice: RequestChoice, said: str) -> None:
    """With what to write instead."""
    with pytest.raises(ConfigurationError, match=said):
        options(requests=choice)


# ── sending ───────────────────────────────────────────────────────────────────


def test_the_key_comes_from_the_first_variable_that_is_set() -> None:
    """Or from the one that is named; the sentence says which."""
    both = {"TIDEGATE_KEY": "a", "OPENAI_API_KEY": "b", "MINE": "c"}
    assert "a" == options(environ=both).target.key
    assert "b" == options(environ={"OPENAI_API_KEY": "b"}).target.key
    named = options(environ=both, sending=SendingChoice(key_env="MINE"))
    assert ("c", "It was taken from the variable MINE.") == (named.target.key, named.key_from)
    assert ("", True) == (options().target.key, "No key was sent" in options().key_from)


def test_headers_are_sent_and_their_values_not_reported() -> None:
    """A value may be a secret."""
    chosen = options(sending=SendingChoice(header=("X-Team: secret-1",), retries=2))
    assert (("X-Team", "secret-1"),) == chosen.target.headers
    assert {"--header": "X-Team", "--retries": "2"} == chosen.given


@pytest.mark.parametrize(
    ("url", "choice", "said"),
    [
        ("127.0.0.1:8080/v1", SendingChoice(), "is not an address"),
        ("http://127.0.0.1:port/v1", SendingChoice(), "is not an address"),
        (URL, SendingChoice(key_env="NOPE"), "NOPE"),
        (URL, SendingChoice(header=("nothing",)), "--header"),
        (URL, SendingChoice(header=("a: b\nc: d",)), "--header"),
        (URL, SendingChoice(clients=0), "--clients"),
        (URL, SendingChoice(retries=-1), "--retries"),
        (URL, SendingChoice(timeout_s=math.nan), "--timeout-s nan"),
        (URL, SendingChoice(connect_timeout_s=math.inf), "--connect-timeout-s inf"),
        (URL, SendingChoice(max_in_flight=0), "--max-in-flight 0"),
    ],
)
def test_what_cannot_be_sent_is_refused(url: str, choice: SendingChoice, said: str) -> None:
    """Before a process is started."""
    with pytest.raises(ConfigurationError, match=said):
        options(url=url, sending=choice)


# ── judging ───────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("limit", [math.nan, -1.0, math.inf])
def test_a_limit_that_all_would_keep_is_refused(limit: float) -> None:
    """Nothing is longer than NaN."""
    with pytest.raises(ConfigurationError, match="--ttft-limit-s"):
        options(judging=JudgingChoice(ttft_limit_s=limit))
    with pytest.raises(ConfigurationError, match="--warmup-s"):
        options(load=LoadChoice(warmup_s=limit))


def test_nought_switches_a_criterion_off() -> None:
    """And what is no stream has no first token to be waited for."""
    chosen = options(
        judging=JudgingChoice(short_ratio=0.0, ttft_limit_s=0.0, e2e_limit_s=0.0, slo_ttft_s=0.2), requests=RequestChoice(stream=False)
    )
    assert Criteria(short_ratio=None, ttft_s=None, e2e_s=None, slo_ttft_s=0.2, stream=False) == chosen.criteria
    assert Criteria() == options().criteria


def test_a_price_list_prices_the_model_whatever_its_upstream(tmp_path: Path) -> None:
    """The first entry that matches counts, as there is one upstream here."""
    file = tmp_path / "prices.yaml"
    file.write_text(
        'version: "1"\ncurrency: USD\nmodels:\n'
        '  - {upstream: one, model: "m*", input: 1.0, output: 2.0}\n'
        '  - {upstream: two, model: "m*", input: 9.0, output: 9.0}\n'
    )
    pricing = options(judging=JudgingChoice(prices=file)).pricing
    assert pricing is not None
    assert 3_000_000 == pricing.settled("x", "m1", Usage(prompt_tokens=1_000_000, completion_tokens=1_000_000), at=0.0).amount_micro


@pytest.mark.parametrize("text", ["models: 3\n", 'version: ""\nmodels:\n  - {upstream: o, model: m, input: 1.0, output: 2.0}\n'])
def test_a_price_list_that_is_wrong_is_refused_with_its_line(text: str, tmp_path: Path) -> None:
    """As the gateway would."""
    file = tmp_path / "prices.yaml"
    file.write_text(text)
    with pytest.raises(ConfigurationError, match=r"prices\.yaml"):
        options(judging=JudgingChoice(prices=file))


def test_a_wrong_assertion_is_refused_before_anything_is_sent(capsys: Capture) -> None:
    """With the nearest name; nothing listens at the address."""
    assert 2 == main(["bench", URL, "--model", "m", "--assert", "tft.p99<5ms"])
    assert 'did you mean "ttft.p99"' in capsys.readouterr().err


# ── what is printed ───────────────────────────────────────────────────────────


def kept(folder: Path, report: Report, name: str = "report.json") -> str:
    path = folder / name
    path.write_bytes(report_json(report))
    return str(path)


def test_a_report_in_a_terminal_begins_with_what_must_be_read_first(capsys: Capture) -> None:
    """Invalid, closed loop, then the figures."""
    report = msgspec.structs.replace(
        steady_report(failures=3), invalid=("too slow",), remarks=("be careful",), errors={"no route": 3, "b": 1, "c": 1, "d": 1}
    )
    bench_text.print_report(report)
    text = capsys.readouterr().out
    for expected in ("NOT VALID: too slow", "note: be careful", "ttft from due", "failed e2e from sent", "transport 3", "97 %", "no route"):
        assert expected in text
    assert "error, 1 times: d" not in text
    assert "valid: " not in text
    whole = msgspec.structs.replace(report.whole, outcomes={"ok": 2, "semantic": 3}, reasons={"slow_ttft": 3, "slow_e2e": 1})
    bench_text.print_report(msgspec.structs.replace(report, invalid=(), whole=whole, criteria=Criteria()))
    lines = capsys.readouterr().out.splitlines()
    assert lines[1].startswith("valid: ")
    assert "(--ttft-limit-s) or an answer after 5 s (--e2e-limit-s)" in lines[2]


def test_two_reports_are_compared(tmp_path: Path, capsys: Capture) -> None:
    """As a table, or as JSON; unlike ones with a word of warning."""
    before, after = kept(tmp_path, steady_report(), "a.json"), kept(tmp_path, steady_report(ttft_s=0.4), "b.json")
    assert 0 == main(["bench", "compare", before, after])
    text = capsys.readouterr().out
    assert "ttft.p50" in text
    assert "worse" in text
    other = kept(tmp_path, msgspec.structs.replace(steady_report(), load="another"), "c.json")
    assert 0 == main(["bench", "compare", before, other])
    assert "not alike" in capsys.readouterr().out
    assert 0 == main(["bench", "compare", before, after, "--json"])
    assert "rows" in json.loads(capsys.readouterr().out)


def test_a_file_that_is_no_report_is_said_to_be_none(tmp_path: Path, capsys: Capture) -> None:
    """Missing, or something else."""
    (tmp_path / "x.json").write_text("[]")
    for name in ("x.json", "nowhere.json"):
        assert 2 == main(["bench", "compare", str(tmp_path / name), str(tmp_path / name)])
        assert name in capsys.readouterr().err


@pytest.mark.parametrize(
    ("place", "lie"),
    [
        (("whole", "requests"), -1),
        (("whole", "requests"), 10**400),
        (("whole", "outcomes", "semantic"), 10**400),
        (("whole", "success_ratio"), -1),
        (("whole", "e2e", "due", "n"), 10**400),
        (("whole", "e2e", "due", "sd"), 1e308),
        (("whole", "e2e", "due", "buckets", "total"), 10**400),
    ],
)
def test_a_report_that_lies_is_an_answer_in_words(place: tuple[str, ...], lie: object, tmp_path: Path, capsys: Capture) -> None:
    """It is damaged, or compared as it stands: never a traceback."""
    content = json.loads(report_json(steady_report()))
    member = content
    for name in place[:-1]:
        member = member[name]
    member[place[-1]] = lie
    (tmp_path / "x.json").write_text(json.dumps(content))
    assert main(["bench", "compare", str(tmp_path / "x.json"), str(tmp_path / "x.json")]) in {0, 2}
    assert "Traceback" not in capsys.readouterr().err


def test_a_baseline_is_made_held_to_and_replaced(tmp_path: Path, capsys: Capture) -> None:
    """0 while nothing regresses, 1 when it does, 0 when the worse is accepted."""
    good, bad = kept(tmp_path, steady_report(), "good.json"), kept(tmp_path, steady_report(ttft_s=0.6, e2e_s=2.0), "bad.json")
    baseline = str(tmp_path / "baseline.json")
    assert 0 == main(["bench", "regress", good, "--baseline", baseline])
    assert "is now what" in capsys.readouterr().out
    assert 0 == main(["bench", "regress", good, "--baseline", baseline])
    assert "Nothing regressed." in capsys.readouterr().out
    assert 1 == main(["bench", "regress", bad, "--baseline", baseline])
    assert "REGRESSED" in capsys.readouterr().out
    assert 1 == main(["bench", "regress", bad, "--baseline", baseline, "--json", "--tolerance", "ttft.p50=1%"])
    assert "held" in json.loads(capsys.readouterr().out)
    assert 0 == main(["bench", "regress", bad, "--baseline", baseline, "--accept"])
    assert 0 == main(["bench", "regress", bad, "--baseline", baseline])


def test_runs_that_cannot_be_compared_are_not(tmp_path: Path, capsys: Capture) -> None:
    """Another load is a mistake of the caller's, an invalid run is invalid."""
    baseline = str(tmp_path / "baseline.json")
    assert 0 == main(["bench", "regress", kept(tmp_path, steady_report()), "--baseline", baseline])
    other = kept(tmp_path, msgspec.structs.replace(steady_report(), load="another"), "other.json")
    assert 2 == main(["bench", "regress", other, "--baseline", baseline])
    assert "--accept" in capsys.readouterr().out
    invalid = kept(tmp_path, msgspec.structs.replace(steady_report(), invalid=("slow",)), "invalid.json")
    assert 3 == main(["bench", "regress", invalid, "--baseline", baseline])
    assert 2 == main(["bench", "regress", kept(tmp_path, steady_report()), "--baseline", str(tmp_path / "no" / "folder" / "b.json")])
