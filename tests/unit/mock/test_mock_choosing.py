"""Which script a call gets: header, marker, queue, model, default; then windows, turns and ratios."""

from __future__ import annotations

import json

import msgspec
import pytest

from tidegate.mock.chooser import Call, Chooser
from tidegate.mock.marker import find_marker, marked_text
from tidegate.mock.script import Fault, FaultKind, Script, Scripts
from tidegate.mock.scripting import Misfit, fault_of, play_of, script_over
from tidegate.mock.settings import ColdStart, Window
from tidegate.testing import uniform

BASE = Script(pieces=("base",), first_token_s=0.5)
SCRIPTS: Scripts = {
    "slow": Script(headers_s=3.0),
    "vip-*": Script(pieces=("vip",)),
    "vip-one": Script(pieces=("one",)),
    "*": Script(pieces=("any",)),
    "flaky": (Script(status=500), Script()),
}


def chosen(
    call: Call,
    scripts: Scripts | None = None,
    *,
    chooser: Chooser | None = None,
    failures: tuple[Window, ...] = (),
    cold_start: ColdStart | None = None,
    elapsed_s: float = 0.0,
) -> Script:
    known = SCRIPTS if scripts is None else scripts
    return (chooser or Chooser(0)).choose(call, known, BASE, failures=failures, cold_start=cold_start, elapsed_s=elapsed_s).script


def marked(said: object) -> Call:
    text = said if isinstance(said, str) else json.dumps(said)
    return Call("m", f"hi [[mock:{text}]]", marked=f"hi [[mock:{text}]]")


def test_exact_models_come_before_patterns_and_patterns_in_order() -> None:
    """`vip-one` is exact, `vip-two` a pattern, everything else the last pattern; without any, the default."""
    assert [chosen(Call(model, "")).pieces for model in ("vip-one", "vip-two", "other")] == [("one",), ("vip",), ("any",)]
    assert chosen(Call("other", ""), {}) is BASE


def test_a_header_wins_over_a_marker_and_a_marker_over_the_queue() -> None:
    """The order of docs/mock.md; what loses is not used up."""
    chooser = Chooser(0)
    chooser.push(Script(pieces=("queued",)))
    both = Call("m", "", header='{"pieces": ["header"]}', marked='[[mock:{"pieces": ["marker"]}]]')
    assert chosen(both, {}, chooser=chooser).pieces == ("header",)
    assert chosen(msgspec.structs.replace(both, header=None), {}, chooser=chooser).pieces == ("marker",)
    assert chosen(Call("m", ""), {}, chooser=chooser).pieces == ("queued",)
    assert chosen(Call("m", ""), {}, chooser=chooser) is BASE


def test_a_marker_lays_its_fields_over_what_the_call_would_have_got() -> None:
    """Fields that are not given stay as in the model's script."""
    script = chosen(marked({"fault": "stall@2", "headers": {"x-a": 1}}), {"m": Script(pieces=("m",), prompt_tokens=77)})
    assert (script.pieces, script.prompt_tokens, script.fault) == (("m",), 77, Fault(FaultKind.STALL, 2))
    assert script.headers == (("x-a", "1"),)


@pytest.mark.parametrize(
    ("said", "field", "value"),
    [
        ("slow", "headers_s", 3.0),
        ("stall@3", "fault", Fault(FaultKind.STALL, 3)),
        ("reset", "fault", Fault(FaultKind.RESET)),
        ("503", "status", 503),
        ("content_filter", "finish_reason", "content_filter"),
        ("ok", "fault", None),
    ],
)
def test_words_of_a_marker(said: str, field: str, value: object) -> None:
    """A name of the file, a fault, a status, a ready-made script."""
    assert getattr(chosen(marked(said)), field) == value


def test_several_are_played_in_turn_for_each_message() -> None:
    """The retry of a message gets the next, the last one stays, another message begins anew."""
    chooser = Chooser(0)
    statuses = [chosen(marked("500,429,ok"), chooser=chooser).status for _ in range(4)]
    assert statuses == [500, 429, 200, 200]
    as_list = [chosen(marked([{"status": 400}, "503", {}]), chooser=chooser).status for _ in range(3)]
    assert as_list == [400, 503, 200]
    assert [chosen(Call("flaky", text), chooser=chooser).status for text in ("a", "a", "b", "a", "b")] == [500, 200, 500, 200, 200]


def test_turns_are_not_remembered_without_end() -> None:
    """Ten thousand other messages make the first one new."""
    chooser = Chooser(0)
    assert chosen(Call("flaky", "first"), chooser=chooser).status == 500
    for number in range(10_000):
        chosen(Call("flaky", str(number)), chooser=chooser)
    assert chosen(Call("flaky", "first"), chooser=chooser).status == 500
    assert len(chooser._turns) == 10_000


def test_a_window_is_open_in_its_time_for_its_model() -> None:
    """From `from_s` up to `to_s`, for models that match, over what the call would have got."""
    window = Window(from_s=10, to_s=20, model="v*", play={"fault": "cut@1"})

    def fault_at(elapsed_s: float, model: str = "vip-one") -> Fault | None:
        return chosen(Call(model, ""), failures=(window,), elapsed_s=elapsed_s).fault

    assert [fault_at(at) is not None for at in (9.9, 10, 19.9, 20)] == [False, True, True, False]
    assert fault_at(15, "other") is None
    assert chosen(Call("vip-one", ""), failures=(window,), elapsed_s=15).pieces == ("one",)
    assert chosen(marked("ok"), failures=(window,), elapsed_s=15).fault is None


def test_ratios_are_kept_and_seeded() -> None:
    """About so many calls of a window and of a fault fail, the same ones with the same seed."""

    def failures(seed: int) -> tuple[list[bool], list[bool]]:
        chooser = Chooser(seed)
        window = (Window(ratio=0.3, play="503"),)
        rare: Scripts = {"m": Script(fault=Fault(FaultKind.RESET, ratio=0.2))}
        return (
            [chosen(Call("x", ""), {}, chooser=chooser, failures=window).status == 503 for _ in range(2000)],
            [chosen(Call("m", ""), rare, chooser=chooser).fault is not None for _ in range(2000)],
        )

    first, second = failures(1)
    assert sum(first) / 2000 == pytest.approx(0.3, abs=0.04)
    assert sum(second) / 2000 == pytest.approx(0.2, abs=0.04)
    assert failures(1) == (first, second)
    assert failures(2) != (first, second)


def test_a_cold_start_slows_first_tokens_for_its_time() -> None:
    """`slow` adds its time, drawn or not, and then nothing."""
    cold = ColdStart(for_s=5, how="slow", extra_s=2.0)
    assert [chosen(Call("x", ""), {}, cold_start=cold, elapsed_s=at).first_token_s for at in (4.9, 5.0)] == [2.5, 0.5]
    drawn = ColdStart(for_s=5, how="slow", extra_s=uniform(1, 2))
    first_token_s = chosen(Call("x", ""), {}, cold_start=drawn).first_token_s
    assert isinstance(first_token_s, float)
    assert 1.5 <= first_token_s <= 2.5


@pytest.mark.parametrize(
    ("said", "why"),
    [
        ("stal@3", 'no script, fault or status is called "stal@3"; did you mean "stall"?'),
        ("slwo", 'did you mean "slow"?'),
        ({"falt": "reset"}, 'unknown key "falt"; did you mean "fault"?'),
        ({"fault": "rset"}, 'no such fault: "rset" in fault; did you mean "reset"?'),
        ({"fault": {"kind": "stal"}}, '"stal" is not possible here in fault.kind; did you mean "stall"?'),
        ({"fault": {"after": 3}}, 'missing key "kind" in fault'),
        ({"usage": "lst"}, 'did you mean "last"?'),
        ({"first_token_s": {"unifrom": [1, 2]}}, 'did you mean "uniform"?'),
        ({"first_token_s": -1}, "in first_token_s"),
        ([{"status": 500}, {"statsu": 200}], 'unknown key "statsu" in [1]'),
        ([], "a list of nothing"),
        ('{"a": ', "holds no valid JSON"),
        ('{"status": 500} x', "does not end behind its JSON"),
        ({"error": {"code": {"deep": [1]}}, "newline": "nl"}, "in newline; one of lf, crlf, cr"),
    ],
)
def test_what_a_marker_may_not_say(said: object, why: str) -> None:
    """What is wrong, where, and what was probably meant."""
    with pytest.raises(Misfit) as misfit:
        chosen(marked(said))
    assert why in str(misfit.value)


def test_a_header_that_is_no_json_is_refused() -> None:
    """And so is a marker without an end, or one that is nothing."""
    with pytest.raises(Misfit, match="x-script holds no valid JSON"):
        chosen(Call("m", "", header="{nope"))
    with pytest.raises(Misfit, match="does not end"):
        find_marker("[[mock:stall")
    with pytest.raises(Misfit, match="expected a name"):
        play_of(None, BASE, {})
    with pytest.raises(Misfit, match="expected the fields of a script"):
        script_over(BASE, 1.5)
    with pytest.raises(Misfit, match="no such fault"):
        fault_of("stall@x")


@pytest.mark.parametrize(
    ("path", "body", "text"),
    [
        ("/v1/chat/completions", {"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]}, "a"),
        ("/v1/chat/completions", {"messages": [{"role": "user", "content": [{"type": "text", "text": "p"}, {"type": "image_url"}]}]}, "p"),
        ("/v1/chat/completions", {"messages": [{"role": "system", "content": "s"}, 7]}, ""),
        ("/v1/chat/completions", {"messages": "odd"}, ""),
        ("/v1/completions", {"prompt": ["first", "second"]}, "first"),
        ("/v1/embeddings", {"input": "in"}, "in"),
        ("/v1/embeddings", {"input": [1, 2]}, ""),
    ],
)
def test_where_a_marker_is_looked_for(path: str, body: dict[str, object], text: str) -> None:
    """The last user message's text, or the first prompt or input."""
    assert marked_text(path, body) == text


def test_a_marker_is_cut_out_of_the_text() -> None:
    """JSON with brackets of its own is found whole; no marker is none."""
    assert find_marker('a [[mock:{"headers": [["x", "]]"]]}]] b') == ({"headers": [["x", "]]"]]}, "a  b")
    assert find_marker("[[mock]] no") is None


def test_a_script_in_full_can_be_sent_back() -> None:
    """What msgspec makes of any script is read as the same script."""
    script = Script(first_token_s=uniform(1, 2), fault=Fault(FaultKind.CUT, 3), headers=(("a", "b"),), newline="\r\n", output_tokens=3)
    assert chosen(Call("m", "", header=msgspec.json.encode(script).decode())) == script
