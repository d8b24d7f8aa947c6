"""What can be said to `tidegate bench`: its options, in the groups that its help shows."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Annotated

from cyclopts import Group, Parameter

from tidegate.bench.plan import Endpoint

_LOAD = Group("Load", sort_key=1)
_REQUESTS = Group("Requests", sort_key=2)
_SENDING = Group("Sending", sort_key=3)
_JUDGING = Group("Judging", sort_key=4)
_OUTPUT = Group("Output", sort_key=5)


class LoadName(StrEnum):
    """How requests arrive: `load_options.Load`, and the sweep, which is several runs."""

    CONSTANT = "constant"
    POISSON = "poisson"
    GAMMA = "gamma"
    RAMP = "ramp"
    STEPS = "steps"
    SWEEP = "sweep"
    CONCURRENCY = "concurrency"
    TRACE = "trace"
    DAY = "day"


@Parameter(name="*", group=_LOAD)
@dataclass(frozen=True, kw_only=True)
class LoadChoice:
    """When requests are due."""

    load: Annotated[
        LoadName | None,
        Parameter(help="How requests arrive. Without it, what the other options imply: `--concurrency`, `--trace` …; else `poisson`."),
    ] = None
    rate: Annotated[
        float | None, Parameter(help="Requests per second, 10 unless said otherwise; of a day the mean; of a ramp and a sweep the first.")
    ] = None
    to_rate: Annotated[float | None, Parameter(help="Requests per second at the end of a ramp; the highest that a sweep tries.")] = None
    length_s: Annotated[
        float | None, Parameter(help="Seconds of load: 60, a whole trace or day, or 10 for each rate of a sweep, unless said otherwise.")
    ] = None
    requests: Annotated[int | None, Parameter(help="At most so many requests.")] = None
    burstiness: Annotated[float | None, Parameter(help="Shape of `gamma`: 1 is Poisson, below it requests come in bursts.")] = None
    step: Annotated[tuple[str, ...], Parameter(help="`RATE:SECONDS` of `steps`; may be repeated.", negative="", show_default=False)] = ()
    concurrency: Annotated[int | None, Parameter(help="Requests at once in a closed loop, where a slow server is asked less.")] = None
    trace: Annotated[Path | None, Parameter(help="CSV or JSON Lines of times, input and output tokens, to be replayed.")] = None
    speedup: Annotated[float | None, Parameter(help="How much faster than it was recorded a trace is replayed.")] = None
    curve: Annotated[Path | None, Parameter(help="YAML file of a day's rates and requests, instead of the built-in day.")] = None
    compress: Annotated[float | None, Parameter(help="How much faster a `day` goes: 1440, a minute, unless said otherwise.")] = None
    warmup_s: Annotated[float, Parameter(help="Requests due in the first so many seconds are in no figure but the time series.")] = 0.0
    seed: Annotated[int, Parameter(help="Of everything drawn at random: the same seed gives the same load.")] = 0


@Parameter(name="*", group=_REQUESTS)
@dataclass(frozen=True, kw_only=True)
class RequestChoice:
    """What is asked."""

    scenario: Annotated[
        tuple[str, ...],
        Parameter(
            help="`NAME` or `NAME=WEIGHT` of a kind of request: `support_chat`, `product_copy`, `legal_text`, `code_comments`, or the name "
            "of the `--prompts` file; may be repeated. Without it and `--prompts`, all four alike.",
            negative="",
            show_default=False,
        ),
    ] = ()
    prompts: Annotated[
        Path | None,
        Parameter(help="JSON Lines of your own requests: each a body, or with `messages` or `prompt`. The kind is called as the file."),
    ] = None
    mask: Annotated[
        bool, Parameter(help="Phone, card and identity numbers and e-mail addresses in `--prompts` are replaced before they are sent.")
    ] = True
    prompt_tokens: Annotated[str | None, Parameter(help="Length of prompts, about: `N` or `LEAST-MOST`, instead of the scenario's.")] = None
    completion_tokens: Annotated[
        str | None, Parameter(help="Cap and expected length of answers: `N` or `LEAST-MOST`, instead of the scenario's.")
    ] = None
    extra_body: Annotated[str, Parameter(help="JSON members that every request gets, over its own.")] = "{}"
    endpoint: Annotated[Endpoint, Parameter(help="The API that is called.")] = Endpoint.CHAT
    stream: Annotated[bool, Parameter(help="Ask for streams. Without them there is no time to first token.")] = True
    ask_usage: Annotated[bool, Parameter(help="Ask for `usage` in streams.")] = True
    cap_field: Annotated[str, Parameter(help="Under which name the cap is sent: newer models want `max_completion_tokens`.")] = "max_tokens"


@Parameter(name="*", group=_SENDING)
@dataclass(frozen=True, kw_only=True)
class SendingChoice:
    """How it is sent."""

    key_env: Annotated[str | None, Parameter(help="The variable with the API key; without it `TIDEGATE_KEY`, then `OPENAI_API_KEY`.")] = (
        None
    )
    header: Annotated[
        tuple[str, ...], Parameter(help="`Name: value` of a header of every request; may be repeated.", negative="", show_default=False)
    ] = ()
    color: Annotated[str, Parameter(help="Sent as `X-Tidegate-Color`, by which records tell test traffic apart; empty: not sent.")] = (
        "bench"
    )
    retries: Annotated[int, Parameter(help="Tries after the first, of requests that a 429, 503 or failed connection ended.")] = 0
    timeout_s: Annotated[float, Parameter(help="Longest wait for a whole answer.")] = 120.0
    connect_timeout_s: Annotated[float, Parameter(help="Longest wait for a connection.")] = 5.0
    clients: Annotated[int | None, Parameter(help="Processes that send; without it, the machine's cores but one.")] = None
    max_in_flight: Annotated[int, Parameter(help="Requests at once of each process; a run that reaches it does not count.")] = 4_096
    insecure: Annotated[bool, Parameter(help="Accept any TLS certificate.", negative="", show_default=False)] = False
    probe: Annotated[bool, Parameter(help="Send one request first, to find a wrong address, key or model before loading.")] = True


@Parameter(name="*", group=_JUDGING)
@dataclass(frozen=True, kw_only=True)
class JudgingChoice:
    """What is good."""

    assert_: Annotated[
        tuple[str, ...],
        Parameter(
            name="--assert",
            help="What must hold, else the exit status is 1: `ttft.p99<500ms`, `success>=99.9%`; several, or repeated.",
            negative="",
            show_default=False,
            consume_multiple=True,
        ),
    ] = ()
    short_ratio: Annotated[float, Parameter(help="An answer below this share of its expected length is a failure; 0: any is good.")] = 0.8
    ttft_limit_s: Annotated[float, Parameter(help="A first token later than this is a failure; 0: never.")] = 1.5
    e2e_limit_s: Annotated[float, Parameter(help="An answer that takes longer than this is a failure; 0: never.")] = 5.0
    slo_ttft_s: Annotated[float | None, Parameter(help="Goodput counts only answers whose first token came within it.")] = None
    slo_tpot_s: Annotated[float | None, Parameter(help="Goodput counts only answers with at most this mean time per token.")] = None
    slo_e2e_s: Annotated[float | None, Parameter(help="Goodput counts only answers that were whole within it.")] = None
    prices: Annotated[
        Path | None, Parameter(help="A price list (YAML, as `prices.file`) to reckon the cost by; the first entry for the model counts.")
    ] = None


@Parameter(name="*", group=_OUTPUT)
@dataclass(frozen=True, kw_only=True)
class OutputChoice:
    """What is written."""

    out: Annotated[Path | None, Parameter(help="Folder for `report.json`, `requests.csv` and `report.html`; made if it is not there.")] = (
        None
    )
    json: Annotated[bool, Parameter(help="Print the report as JSON on standard output.", negative="", show_default=False)] = False
