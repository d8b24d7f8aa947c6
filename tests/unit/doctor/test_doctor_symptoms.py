"""People's words find the table's lines; its SQL runs; what comes back is said in a sentence."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
from benchmarks.records import Traffic, fill

from tidegate.adapters.analytics.chdb_store import ChdbStore
from tidegate.analytics.asking import QueryAnswer
from tidegate.analytics.rows import Row, timestamp
from tidegate.analytics.safe_sql import checked
from tidegate.analytics.scope import Scope
from tidegate.cli.main import build_app
from tidegate.config.reference import configuration_page
from tidegate.doctor import evidence
from tidegate.doctor.causes import SYMPTOMS
from tidegate.doctor.symptoms import RecordEvidence, Shown, Statement, figure, judged, matching, question

NOW = 1_793_780_000.0
SPAN = Scope(since=NOW - 3600.0, until=NOW, filters={"tenant": "somebody"})
CAUSES = {cause for symptom in SYMPTOMS for cause in symptom.causes}
EVIDENCE = {name: value for name, value in vars(evidence).items() if isinstance(value, RecordEvidence)}


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("latency jitters between 200 ms and 3 s", "Latency jitters."),
        ("响应时间忽高忽低", "Latency jitters."),
        ("Broken JSON, a missing bracket", "JSON comes broken."),
        ("JSON 输出格式错乱", "JSON comes broken."),
        ("words come split: ma chine", "Words come split, or characters garbled."),
        ("英文单词被拆碎", "Words come split, or characters garbled."),
        ("long-context misreference", "Answers refer to the wrong part of a long text."),
        ("长文本中后半部分信息引用错误", "Answers refer to the wrong part of a long text."),
        ("memory exhaustion in batches", "Memory runs out when requests come in batches."),
        ("批量请求时显存爆满", "Memory runs out when requests come in batches."),
        ("slow first call", "The first call is slow."),
        ("冷启动：首次调用为何慢得离谱", "The first call is slow."),
        ("content filter read as empty success", "Answers are empty although the call succeeded."),
        ("返回 200 但是空回答", "Answers are empty although the call succeeded."),
        ("429 although below the limit", "429 comes although the limit is not reached."),
        ("没到上限就被限流", "429 comes although the limit is not reached."),
        ("rising cost with the same requests", "The same requests cost more."),
        ("请求一样但成本上涨", "The same requests cost more."),
        ("TTFT up in one replica", "The first token takes longer on one replica."),
        ("某个副本首字变慢", "The first token takes longer on one replica."),
        ("streams that end without [DONE]", "Streams end without [DONE]."),
        ("流式中断", "Streams end without [DONE]."),
        ("everything slow at a peak", "Everything is slow at a peak."),
        ("晚高峰都很慢", "Everything is slow at a peak."),
        ("wrong token counts", "Token counts are wrong."),
        ("token 计数不准", "Token counts are wrong."),
        ("retries multiply the traffic", "Retries multiply the traffic."),
        ("重试把流量放大", "Retries multiply the traffic."),
        ("the model became stupid", "Answers became worse."),
        ("回答错误", "Answers became worse."),
        ("answers are cut off", "Answers are cut off."),
        ("it stopped in the middle of the sentence", "Answers are cut off."),
        ("说到一半就没了", "Answers are cut off."),
        ("首字慢", "The first token comes late."),
        ("slow TTFT", "The first token comes late."),
        ("ＴＴＦＴ　很高", "The first token comes late."),
        ("gpu idle", "The GPU is idle while requests are slow."),
        ("显卡利用率很低", "The GPU is idle while requests are slow."),
        ("it times out", "Requests fail or time out."),
        ("502 bad gateway", "Requests fail or time out."),
        ("连不上", "Requests fail or time out."),
        ("401", "Keys are refused."),
        ("密钥无效", "Keys are refused."),
        ("it is slow", "Everything is slow at a peak."),
        ("why is everything so slow tonight", "Everything is slow at a peak."),
        ("很慢", "Everything is slow at a peak."),
        ("429", "429 comes although the limit is not reached."),
        ("预算用完了", "429 comes although the limit is not reached."),
        ("太贵了", "The same requests cost more."),
    ],
)
def test_words_in_either_language_find_the_symptom(text: str, name: str) -> None:
    """The likeliest comes first."""
    assert name == matching(text, SYMPTOMS)[0].name


def test_every_symptom_is_found_by_its_own_name_and_nothing_by_the_weather() -> None:
    """At most three are taken to be meant."""
    assert [each.name for each in SYMPTOMS] == [matching(each.name, SYMPTOMS)[0].name for each in SYMPTOMS]
    assert [] == matching("the weather", SYMPTOMS)
    assert 3 == len(matching("json, 429, peak, cost", SYMPTOMS))
    assert [] == [*matching("my coffee is cold", SYMPTOMS), *matching("the queue at the bakery is slow", SYMPTOMS)]
    assert [] == [*matching("the door fails to open", SYMPTOMS), *matching("the price of eggs", SYMPTOMS)]
    assert "The first call is slow." == matching("cold", SYMPTOMS)[0].name
    assert [] == matching("unjson", SYMPTOMS)  # a word begins where it begins


@pytest.mark.parametrize("command", sorted({cause.command for cause in CAUSES}))
def test_commands_can_be_typed(command: str) -> None:
    """Each is one of ours, with options that it has; SQL is read-only, and of our tables."""
    program, *words = shlex.split(command)
    assert "tidegate" == program
    app = build_app()
    if words[-1] != "--help":
        app.parse_args(words, exit_on_error=False, print_error=False)
    if words[0] == "query" and " " in words[1]:
        assert checked(words[1])


def test_settings_that_are_named_exist() -> None:
    """What a fix names with a dot is in the reference of the configuration."""
    page = configuration_page()
    known = {*re.findall(r"`([a-z_.]+)`", page), "upstreams.idle_timeout_s", "upstreams.tokenizer"}
    sections = {name.partition(".")[0] for name in known}
    named = {name for cause in CAUSES for name in re.findall(r"\b([a-z_]+\.[a-z_]+)\b", cause.fix) if name.partition(".")[0] in sections}
    leaves = {name.rpartition(".")[2] for name in known}
    assert [] == [name for name in sorted(named) if name.partition(".")[2] not in leaves]


def test_the_records_are_asked_and_answer(tmp_path: Path) -> None:
    """Every statement runs over nothing and over traffic, gives one row, and its sentence has all its figures."""
    store = ChdbStore(tmp_path, keep_days=3650)
    store.create_tables()
    for shown in (False, True):
        if shown:
            fill(store, Traffic(rows=20_000, until=NOW, span_s=7200.0, slow_since=NOW - 1800.0))
        said = {}
        for name, each in EVIDENCE.items():
            answer = store.query(question(each, SPAN))
            assert ("", 1) == (answer.error, len(answer.rows)), name
            said[name] = judged(each, answer, span="the last 1h")
        if not shown:
            assert {Shown.UNKNOWN} == {statement.shown for statement in said.values()}
    store.close()
    assert (Shown.YES, Shown.YES, Shown.NO) == (said["CACHE_MISSES"].shown, said["TRUNCATED"].shown, said["RETRIED"].shown)
    assert re.fullmatch(
        r"Yes, this is what your records of the last 1h show: \d\.\d % of [\d,]+ answers \(\d+\) were cut at an output limit\.",
        said["TRUNCATED"].sentence,
    )
    assert said["RETRIED"].sentence.startswith("Your records of the last 1h do not show it: 0.0 % of 10,000 requests")


@pytest.mark.parametrize(("slow_s", "shown"), [(0.3, Shown.YES), (0.1, Shown.NO)])
def test_a_slow_replica_is_one_that_is_slow_for_what_it_was_asked(slow_s: float, shown: Shown, tmp_path: Path) -> None:
    """One that has longer prompts, or a larger model, is not: each attempt is compared with its like."""
    store = ChdbStore(tmp_path, keep_days=3650)
    store.create_tables()
    kinds = [("a/0", "m", 100, slow_s), ("a/1", "m", 100, 0.1), ("a/2", "m", 100, 0.1), ("b/0", "m", 9000, 5.0), ("c/0", "large", 100, 2.0)]
    rows: list[Row] = [
        {"started_at": timestamp(NOW - 60.0), "replica": replica, "model": model, "prompt_tokens": tokens, "first_token_s": first}
        for replica, model, tokens, first in kinds
        for _ in range(30)
    ]
    store.insert("attempts", rows)
    said = judged(evidence.SLOW_REPLICA, store.query(question(evidence.SLOW_REPLICA, SPAN)), span="now")
    store.close()
    assert (shown, shown is Shown.YES) == (
        said.shown,
        "of 5 replicas a/0 is the slowest: its first outputs take 3.00 times" in said.sentence,
    )


def test_every_statement_belongs_to_a_cause() -> None:
    """None is asked for nothing."""
    assert set(EVIDENCE.values()) == {cause.evidence for cause in CAUSES} - {None}


def test_a_rise_is_looked_for_in_twice_the_time() -> None:
    """The half before is as long; samples have another column of time."""
    asked = question(evidence.LONGER_PROMPTS, SPAN)
    assert ("2026-11-04 06:13:20.000", "2026-11-04 07:13:20.000") == (asked.parameters["since"], asked.parameters["middle"])
    assert "at >= {since" in question(evidence.SATURATED, SPAN).sql
    assert "tenant" not in question(evidence.RETRIED, SPAN).sql


def test_without_rows_nothing_is_said() -> None:
    """No row, or none to judge by."""
    unknown = Statement(Shown.UNKNOWN, "Your records of today have nothing to judge it by: that takes requests with an attempt.")
    assert unknown == judged(evidence.RETRIED, QueryAnswer(), span="today")
    assert unknown == judged(evidence.RETRIED, QueryAnswer(("seen", "share"), ("UInt64", "Float64"), ((0, 0.0),)), span="today")
    few = judged(evidence.SLOW_REPLICA, QueryAnswer(("seen", "most"), ("UInt64", "UInt64"), ((0, 17),)), span="today")
    assert few.sentence.endswith("that takes 20 attempts of one replica that came to a first output, and the busiest has 17.")
    half = judged(evidence.LONGER_ANSWERS, QueryAnswer(("seen", "seen_before"), ("UInt64", "UInt64"), ((9, 0),)), span="today")
    assert half.sentence.endswith("answers in that time and in as long a time before, and there are 9 and 0.")


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("share", 0.0345, "3.5 %"),
        ("share", 0.345, "34 %"),
        ("wait_s", 0.25, "250 ms"),
        ("wait_s", 2.5, "2.5 s"),
        ("factor", 1.5, "1.50"),
        ("seen", 12_345, "12,345"),
        ("worst", "gpu-a/1", "gpu-a/1"),
        ("wait_s", None, "unknown"),
        ("wait_s", float("nan"), "unknown"),
    ],
)
def test_figures_are_written_by_their_names(name: str, value: float | str | None, text: str) -> None:
    """What is not known is said to be so."""
    assert text == figure(name, value)
