"""What `tidegate bench` does with its options: check every one before anything is sent, run, print, and choose the exit status."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from urllib.parse import urlsplit

import msgspec
import uvloop
from rich.console import Console

from tidegate.bench.assertions import judge_assertion, parse_assertion
from tidegate.bench.bodies import UnusableRequestsError
from tidegate.bench.day_curve import LONGEST_S
from tidegate.bench.fleet import ClientProcessError
from tidegate.bench.histogram import MOST_S
from tidegate.bench.live_view import LiveView
from tidegate.bench.load_options import Load, LoadOptions
from tidegate.bench.outcome import Criteria
from tidegate.bench.outputs import Outputs
from tidegate.bench.plan import Scenario, Target
from tidegate.bench.run_report import Report, report_json
from tidegate.bench.running import BenchOptions, Run
from tidegate.bench.scenarios import built_in, own
from tidegate.cli import bench_text
from tidegate.cli.bench_options import JudgingChoice, LoadChoice, LoadName, OutputChoice, RequestChoice, SendingChoice
from tidegate.config.check_prices import check_price_list
from tidegate.config.explain import render_problems
from tidegate.config.load import load_prices
from tidegate.config.problem import Severity, did_you_mean
from tidegate.config.schema import Configuration
from tidegate.errors import ConfigurationError, InternalError
from tidegate.node.exits import Exit
from tidegate.policy.billing.pricing import Pricing
from tidegate.wiring.prices import price_book_of

_KEY_VARIABLES = ("TIDEGATE_KEY", "OPENAI_API_KEY")
_MOST_CLIENTS = 256
"""Far more than one machine has cores for."""
_MOST_RETRIES = 100
_MOST_IN_FLIGHT = 1_000_000
"""Of one client process: more than it has descriptors and memory for."""
_SHORTEST_S = 0.001
_SWEEP_LENGTH_S = 10.0
_USED_BY: Mapping[str, frozenset[LoadName]] = {
    "rate": frozenset(LoadName) - {LoadName.STEPS, LoadName.CONCURRENCY, LoadName.TRACE},
    "to_rate": frozenset({LoadName.RAMP, LoadName.SWEEP}),
    "burstiness": frozenset({LoadName.GAMMA}),
    "step": frozenset({LoadName.STEPS}),
    "concurrency": frozenset({LoadName.CONCURRENCY}),
    "trace": frozenset({LoadName.TRACE}),
    "speedup": frozenset({LoadName.TRACE}),
    "curve": frozenset({LoadName.DAY}),
    "compress": frozenset({LoadName.DAY}),
    "requests": frozenset(LoadName) - {LoadName.SWEEP},
}
"""Which loads an option means something to."""
_IMPLIED = (
    *(("concurrency", LoadName.CONCURRENCY), ("trace", LoadName.TRACE), ("step", LoadName.STEPS), ("curve", LoadName.DAY)),
    *(("compress", LoadName.DAY), ("burstiness", LoadName.GAMMA), ("to_rate", LoadName.RAMP)),
)


def run(options: BenchOptions, assertions: Sequence[str], output: OutputChoice) -> int:
    """Run, print and write; give the exit status."""
    parsed = [parse_assertion(text) for text in assertions]
    progress = Console(stderr=True)
    with Outputs(output.out) as outputs:
        report = _measured(options, progress, outputs)
        verdicts = [judge_assertion(assertion, report) for assertion in parsed]
        if output.json:
            sys.stdout.write(report_json(report).decode())
        else:
            bench_text.print_report(report)
        for verdict in verdicts:
            progress.print(
                f"{'holds' if verdict.holds else 'FAILED'}  {verdict.assertion}  ({verdict.explanation})",
                markup=False,
                highlight=False,
                soft_wrap=True,
            )
        for sentence in outputs.finish(report, verdicts):
            progress.print(sentence, markup=False, highlight=False, soft_wrap=True)
    if report.interrupted_s is not None:
        return Exit.INTERRUPTED
    if not report.valid:
        return Exit.INVALID
    return Exit.OK if all(verdict.holds for verdict in verdicts) and not outputs.trouble else Exit.FAILED


def _measured(options: BenchOptions, progress: Console, outputs: Outputs) -> Report:
    async def measure() -> Report:
        with LiveView(progress, asyncio.get_running_loop().time) as view:
            return await Run(options, view, outputs).run()

    try:
        return uvloop.run(measure())
    except UnusableRequestsError as error:
        raise ConfigurationError(str(error)) from error
    except ClientProcessError as error:
        raise InternalError(str(error)) from error
    except asyncio.CancelledError:  # a second Ctrl-C, or one before anything was measured
        raise KeyboardInterrupt from None


# ── from options to what the run is told ──────────────────────────────────────


def options(
    url: str,
    model: str,
    *,
    load: LoadChoice,
    requests: RequestChoice,
    sending: SendingChoice,
    judging: JudgingChoice,
    environ: Mapping[str, str],
) -> BenchOptions:
    """Check all options that a plan does not; `ConfigurationError` says which to change."""
    chosen = _load_name(load)
    key, key_from = _key(sending.key_env, environ)
    clients = sending.clients if sending.clients is not None else max(1, (os.cpu_count() or 1) - 1)
    if not 1 <= clients <= _MOST_CLIENTS:
        raise ConfigurationError(f"--clients {clients} cannot be: give from 1 to {_MOST_CLIENTS}.")
    return BenchOptions(
        target=_target(url, model, key=key, requests=requests, sending=sending),
        key_from=key_from,
        load=_load(chosen, load, requests),
        sweep=chosen is LoadName.SWEEP,
        clients=clients,
        warm_up_s=_bounded("--warmup-s", load.warmup_s, least=0, most=LONGEST_S),
        criteria=_criteria(judging, stream=requests.stream),
        pricing=None if judging.prices is None else _pricing(judging.prices, environ),
        probe=sending.probe,
        given=_given(load, requests, sending, judging),
    )


def _load_name(load: LoadChoice) -> LoadName:
    """Give the load that is named or implied; refuse an option that would mean nothing to it."""
    implied = next((name for option, name in _IMPLIED if getattr(load, option)), LoadName.POISSON)
    chosen = load.load or implied
    for option, loads in _USED_BY.items():
        if getattr(load, option) not in (None, ()) and chosen not in loads:
            raise ConfigurationError(
                f"--{option.replace('_', '-')} means nothing to --load {chosen}: it is for {', '.join(sorted(loads))}. Leave it out."
            )
    if chosen is LoadName.RAMP and load.to_rate is None:
        raise ConfigurationError("Where does the ramp end? Say it with --to-rate.")
    if chosen is LoadName.SWEEP and load.warmup_s:
        raise ConfigurationError("--warmup-s means nothing to a sweep: its first rates warm the server up. Leave it out.")
    return chosen


def _load(chosen: LoadName, load: LoadChoice, requests: RequestChoice) -> LoadOptions:
    is_sweep = chosen is LoadName.SWEEP
    defaults = LoadOptions()
    return LoadOptions(
        load=Load.POISSON if is_sweep else Load(chosen.value),
        rate_per_s=load.rate if load.rate is not None else defaults.rate_per_s,
        to_rate_per_s=load.to_rate,
        length_s=load.length_s if load.length_s is not None or not is_sweep else _SWEEP_LENGTH_S,
        burstiness=load.burstiness if load.burstiness is not None else defaults.burstiness,
        steps=tuple(_step(text) for text in load.step),
        concurrency=load.concurrency if load.concurrency is not None else defaults.concurrency,
        requests=load.requests,
        trace=load.trace,
        speedup=load.speedup if load.speedup is not None else defaults.speedup,
        curve=load.curve,
        compress=load.compress if load.compress is not None else defaults.compress,
        mix=_mix(requests),
        prompt_tokens=_range("--prompt-tokens", requests.prompt_tokens),
        completion_tokens=_range("--completion-tokens", requests.completion_tokens),
        seed=load.seed,
    )


def _target(url: str, model: str, *, key: str, requests: RequestChoice, sending: SendingChoice) -> Target:
    if not _is_address(url):
        raise ConfigurationError(f'"{url}" is not an address: write it with its scheme and version, like http://127.0.0.1:8080/v1')
    _bounded("--retries", sending.retries, least=0, most=_MOST_RETRIES)
    _bounded("--timeout-s", sending.timeout_s, least=_SHORTEST_S, most=MOST_S)
    _bounded("--connect-timeout-s", sending.connect_timeout_s, least=_SHORTEST_S, most=MOST_S)
    _bounded("--max-in-flight", sending.max_in_flight, least=1, most=_MOST_IN_FLIGHT)
    return Target(
        base_url=url.rstrip("/"),
        model=model,
        key=key,
        endpoint=requests.endpoint,
        stream=requests.stream,
        headers=tuple(_header(text) for text in sending.header),
        color=sending.color,
        extra_body=_json_object(requests.extra_body),
        ask_usage=requests.ask_usage,
        cap_field=requests.cap_field,
        retries=sending.retries,
        timeout_s=sending.timeout_s,
        connect_timeout_s=sending.connect_timeout_s,
        max_in_flight=sending.max_in_flight,
        verify_tls=not sending.insecure,
    )


def _key(named: str | None, environ: Mapping[str, str]) -> tuple[str, str]:
    """Give the key, and say where it came from."""
    if named is not None and not environ.get(named):
        raise ConfigurationError(f"--key-env names the variable {named}, and it is not set: export the key in it, or leave the option out.")
    for variable in _KEY_VARIABLES if named is None else (named,):
        key = environ.get(variable, "")
        if key:
            return key, f"It was taken from the variable {variable}."
    return "", f"No key was sent: neither {' nor '.join(_KEY_VARIABLES)} is set."


def _mix(requests: RequestChoice) -> tuple[tuple[Scenario, float], ...]:
    known = built_in()
    weights = dict(_weight(text) for text in requests.scenario)
    if requests.prompts is not None:
        theirs = own(requests.prompts) if requests.mask else own(requests.prompts, mask=None)
        known[theirs.name] = theirs
        weights.setdefault(theirs.name, 1.0)
    for name in weights:
        if name not in known:
            raise ConfigurationError(
                f'There is no scenario "{name}": {did_you_mean(name, known) or "there are " + ", ".join(sorted(known))}'
            )
    return tuple((known[name], weight) for name, weight in weights.items())


def _weight(text: str) -> tuple[str, float]:
    name, _, weight = text.partition("=")
    return name, _number(weight, f'--scenario "{text}" does not say how often: write NAME=WEIGHT, like support_chat=3') if weight else 1.0


def _step(text: str) -> tuple[float, float]:
    rate, _, length = text.partition(":")
    wrong = f'--step "{text}" cannot be read: write RATE:SECONDS, like 20:30 for 20/s during 30 s'
    return _number(rate, wrong), _number(length, wrong)


def _range(option: str, text: str | None) -> tuple[int, int] | None:
    if text is None:
        return None
    least, dash, most = text.partition("-")
    if not least.isdecimal() or (dash and not most.isdecimal()):
        raise ConfigurationError(f'{option} "{text}" cannot be read: write one number, or the least and the most, like 100-400.')
    return int(least), int(most or least)


def _header(text: str) -> tuple[str, str]:
    name, colon, value = text.partition(":")
    if not colon or not name.strip() or not (name.strip() + value).isprintable():
        raise ConfigurationError("A --header cannot be read: write it as `Name: value`.")  # its value may be a secret: not repeated
    return name.strip(), value.strip()


def _json_object(text: str) -> str:
    try:
        msgspec.json.decode(text, type=dict[str, object])
    except msgspec.DecodeError as error:
        raise ConfigurationError(f"--extra-body is no JSON object ({error}): write it like '{{\"temperature\": 0}}'.") from error
    return text


def _number(text: str, wrong: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise ConfigurationError(f"{wrong}.") from None


def _is_address(text: str) -> bool:
    try:
        parts = urlsplit(text)
        return parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:  # a port that is none
        return False


def _bounded(option: str, value: float, *, least: float, most: float) -> float:
    """Refuse a number that is out of all bounds, or is none: against NaN every answer would be good in time."""
    if not least <= value <= most:
        raise ConfigurationError(f"{option} {value:g} cannot be: give from {least:g} to {most:,.0f}.")
    return value


def _criteria(judging: JudgingChoice, *, stream: bool) -> Criteria:
    for option, limit in (
        *(("--short-ratio", judging.short_ratio), ("--ttft-limit-s", judging.ttft_limit_s), ("--e2e-limit-s", judging.e2e_limit_s)),
        *(("--slo-ttft-s", judging.slo_ttft_s), ("--slo-tpot-s", judging.slo_tpot_s), ("--slo-e2e-s", judging.slo_e2e_s)),
    ):
        _bounded(option, limit or 0.0, least=0, most=MOST_S)
    return Criteria(
        stream=stream,
        short_ratio=judging.short_ratio or None,
        ttft_s=judging.ttft_limit_s or None,
        e2e_s=judging.e2e_limit_s or None,
        slo_ttft_s=judging.slo_ttft_s,
        slo_tpot_s=judging.slo_tpot_s,
        slo_e2e_s=judging.slo_e2e_s,
    )


def _pricing(path: Path, environ: Mapping[str, str]) -> Pricing:
    """Read a price list. Whose prices they are is not asked: there is one upstream here, and it may have any name."""
    loaded = load_prices(path, environ)
    if isinstance(loaded, list):
        raise ConfigurationError(f"The price list is refused.\n{render_problems(loaded, name=str(path))}")
    prices, places = loaded
    configuration = Configuration()
    configuration = msgspec.structs.replace(
        configuration, prices=msgspec.structs.replace(configuration.prices, **msgspec.structs.asdict(prices))
    )
    problems = [
        problem
        for problem in check_price_list(configuration, places, ())
        if problem.severity is Severity.ERROR and not problem.path.endswith(".upstream")
    ]
    if problems:
        raise ConfigurationError(f"The price list is refused.\n{render_problems(problems, name=str(path))}")
    book = price_book_of(configuration)
    return Pricing(msgspec.structs.replace(book, entries=tuple(msgspec.structs.replace(entry, upstream="*") for entry in book.entries)))


def _given(*choices: object) -> dict[str, str]:
    """Give the options that differ from their defaults, for the report; of headers only the names, as their values may be secret."""
    given: dict[str, str] = {}
    for choice in choices:
        for field in fields(choice):  # type: ignore[arg-type]  # each is one of our dataclasses
            value = getattr(choice, field.name)
            if value == field.default:
                continue
            shown = [text.partition(":")[0] for text in value] if field.name == "header" else value
            text = ", ".join(map(str, shown)) if isinstance(shown, (tuple, list)) else str(shown)
            given[f"--{field.name.strip('_').replace('_', '-')}"] = text
    return given
