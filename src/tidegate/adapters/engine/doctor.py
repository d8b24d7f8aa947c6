"""Starts the engine once, measures it, ends it, and says what is wrong and what to do: `tidegate doctor engine`.

Runs beside a live gateway: its engine has its own process, port, key and log.
"""

from __future__ import annotations

import asyncio
import secrets
from pathlib import Path

import msgspec

from tidegate.adapters.engine.child import EngineChild
from tidegate.adapters.engine.probe import EngineEndpoint, HttpProbe
from tidegate.adapters.engine.settings import EngineSettings, find_model
from tidegate.adapters.engine.supervisor import EngineTiming, preflight
from tidegate.domain.units import Secret
from tidegate.errors import TidegateError, UpstreamTimeout

SPEED_TOKENS = 64
END_GRACE_S = 1.0
SLOW_TOKENS_PER_S = 5.0
"""Below it, an answer of a paragraph takes a minute and clients give up."""


class EngineReport(msgspec.Struct, frozen=True, kw_only=True):
    """What was found; None where a failure came first. Times in seconds, by the doctor's clock."""

    model_name: str
    slots: int
    context_tokens: int
    threads: int | None
    memory_limit_bytes: int
    model_path: str | None = None
    model_bytes: int | None = None
    load_s: float | None = None
    cold_ttft_s: float | None = None
    warm_ttft_s: float | None = None
    tokens_per_s: float | None = None
    peak_rss_bytes: int | None = None
    failure: str | None = None
    """What happened, to what, and what to do next."""

    @property
    def healthy(self) -> bool:
        return self.failure is None


async def run_doctor(settings: EngineSettings, *, timing: EngineTiming | None = None) -> EngineReport:
    """Start, measure and end one engine. Never raises for a fault of the engine: the report carries it."""
    settings = msgspec.structs.replace(settings, log_file=f"doctor-{settings.log_file}")
    report = EngineReport(
        model_name=settings.model_name,
        slots=settings.slots,
        context_tokens=settings.context_tokens,
        threads=settings.threads,
        memory_limit_bytes=settings.memory_limit_bytes,
    )
    try:
        await asyncio.to_thread(preflight, settings)
        model = await asyncio.to_thread(find_model, settings)
        size = (await asyncio.to_thread(model.stat)).st_size
        report = msgspec.structs.replace(report, model_path=str(model), model_bytes=size)
        return await _measure(settings, report, timing if timing is not None else EngineTiming())
    except (TidegateError, OSError) as error:
        return msgspec.structs.replace(report, failure=str(error))


async def _measure(settings: EngineSettings, report: EngineReport, timing: EngineTiming) -> EngineReport:
    loop = asyncio.get_running_loop()
    api_key = Secret(secrets.token_urlsafe(24))
    probe = HttpProbe()
    began = loop.time()
    child = await EngineChild.spawn(settings, api_key)
    try:
        try:
            async with asyncio.timeout(timing.start_s):
                endpoint = EngineEndpoint(origin=await child.listening(), api_key=api_key)
        except TimeoutError as error:
            raise UpstreamTimeout(
                f"The model was not loaded in {timing.start_s:.0f} s. See {settings.log_path}; a smaller model or a faster disk helps."
            ) from error
        report = msgspec.structs.replace(report, load_s=loop.time() - began)
        cold = await probe.first_token(endpoint, max_tokens=1, deadline_s=timing.first_answer_s)
        warm = await probe.first_token(endpoint, max_tokens=1, deadline_s=timing.first_answer_s)
        long = await probe.first_token(endpoint, max_tokens=SPEED_TOKENS, deadline_s=timing.first_answer_s)
        generating_s = long.e2e_s - long.ttft_s
        return msgspec.structs.replace(
            report,
            cold_ttft_s=cold.ttft_s,
            warm_ttft_s=warm.ttft_s,
            tokens_per_s=(long.completion_tokens - 1) / generating_s if generating_s > 0 else None,
            peak_rss_bytes=await asyncio.to_thread(_peak_rss_bytes, child.pid),
        )
    except (TidegateError, OSError) as error:
        return msgspec.structs.replace(report, failure=str(error))
    finally:
        await child.end(grace_s=END_GRACE_S)


def render(report: EngineReport) -> str:
    """Lay the report out for a terminal, one figure a line."""
    rows = [
        ("model", report.model_name),
        ("file", _or_dash(report.model_path)),
        ("file size", _bytes(report.model_bytes)),
        ("slots", f"{report.slots} × {report.context_tokens} tokens"),
        ("threads", str(report.threads) if report.threads is not None else "all cores"),
        ("memory limit", f"{_bytes(report.memory_limit_bytes)} of address space"),
        ("load time", _seconds(report.load_s)),
        ("cold TTFT", _seconds(report.cold_ttft_s)),
        ("warm TTFT", _seconds(report.warm_ttft_s)),
        ("speed", f"{report.tokens_per_s:.0f} tokens/s, one stream" if report.tokens_per_s is not None else "–"),
        ("peak memory", f"{_bytes(report.peak_rss_bytes)} resident"),
    ]
    lines = [f"{name:<13} {value}" for name, value in rows]
    return "\n".join([*lines, "", _verdict(report)])


def _verdict(report: EngineReport) -> str:
    if report.failure is not None:
        return f"FAILED: {report.failure}"
    if report.tokens_per_s is not None and report.tokens_per_s < SLOW_TOKENS_PER_S:
        return (
            f"SLOW: under {SLOW_TOKENS_PER_S:.0f} tokens/s clients give up waiting. "
            "Use a smaller or more strongly quantised model, or give the engine more cores (local_engine.threads)."
        )
    return "OK: the engine loads, answers and is warm after its first request."


def _peak_rss_bytes(pid: int) -> int | None:
    """Read the kernel's high-water mark; None where there is no `/proc`."""
    try:
        for line in Path(f"/proc/{pid}/status").read_text(encoding="ascii").splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    except OSError:
        return None
    return None


def _or_dash(text: str | None) -> str:
    return text if text is not None else "–"


def _seconds(value: float | None) -> str:
    return f"{value:.3f} s" if value is not None else "–"


def _bytes(value: int | None) -> str:
    return f"{value / 1_048_576:,.0f} MiB" if value is not None else "–"
