"""`tidegate conformance`: run the fault matrix against a gateway and print what held."""

from __future__ import annotations

import asyncio
import secrets
import sys
from collections import Counter
from fnmatch import fnmatchcase
from urllib.parse import urlsplit

import msgspec
from rich.console import Console
from rich.table import Table

from tidegate.conformance.cases import Case, cases
from tidegate.conformance.observe import End, Target, ask
from tidegate.conformance.run import Result, Settings, is_left_out, run_cases
from tidegate.errors import ConfigurationError
from tidegate.node.exits import Exit

_KEY_WORKS_WITHIN_S = 2.0
"""A gateway may take a moment to learn of a key that was made just now; ours a second."""
_ASK_AGAIN_S = 0.2
_REFUSED = (401, 403)


def conformance(url: str, key: str, *, model: str, mock_url: str | None, patience_s: float, only: tuple[str, ...], as_json: bool) -> int:
    """Run the chosen cases; 0 when all hold, 1 when some do not. Those that need a scripted upstream that is not named are left out."""
    if not _is_address(url, ("http", "https")):
        raise ConfigurationError(f'"{url}" is not an address: write it with its scheme and version, like http://127.0.0.1:8080/v1')
    if mock_url is not None and not _is_address(mock_url, ("http",)):
        raise ConfigurationError(f'--mock-url "{mock_url}" is not an address: write it with its scheme, like http://127.0.0.1:9100')
    chosen = [case for case in cases() if not only or any(fnmatchcase(case.name, pattern) for pattern in only)]
    if not chosen:
        raise ConfigurationError(f"No case matches {', '.join(only)}. `tidegate conformance --list` shows them all.")
    left_out = [case for case in chosen if is_left_out(case, mock_url)]
    if len(left_out) == len(chosen):
        names = ", ".join(case.name for case in left_out)
        raise ConfigurationError(f"Nothing to run: only the scripted upstream can judge {names}. Name it with --mock-url.")
    settings = Settings(Target(url.rstrip("/"), key), model, mock_url, patience_s, secrets.token_hex(4))
    results = asyncio.run(_run(chosen, settings))
    sys.stderr.write("\n")
    if left_out:
        sys.stderr.write(f"{len(left_out)} cases were left out: they need --mock-url (who left, only the upstream can tell).\n")
    order = {case.name: position for position, case in enumerate(chosen)}
    results.sort(key=lambda result: (order[result.case], result.way))
    if as_json:
        sys.stdout.write(msgspec.json.encode(results).decode() + "\n")
    else:
        _print(results)
    return Exit.FAILED if any(result.complaint for result in results) else Exit.OK


async def _run(chosen: list[Case], settings: Settings) -> list[Result]:
    await _reach(settings)
    return await run_cases(chosen, settings, told=_dot)


async def _reach(settings: Settings) -> None:
    """Refuse to run hundreds of cases against nothing, or with a key that does not work: all would fail alike."""
    loop, url = asyncio.get_running_loop(), settings.target.base_url
    until = loop.time() + _KEY_WORKS_WITHIN_S
    while True:
        seen = await ask(settings.target, "/chat/completions", b"{}", deadline_s=settings.patience_s)
        if seen.end is not End.CLEAN:
            raise ConfigurationError(
                f"{url} gives no answer ({seen.end}). Start the gateway under test, or name another address with --url."
            )
        if seen.status not in _REFUSED:
            return
        if loop.time() > until:
            raise ConfigurationError(
                f"{url} refuses the key (status {seen.status}). Make one there, at a Tidegate with `tidegate keys create`, for --key."
            )
        await asyncio.sleep(_ASK_AGAIN_S)


def list_cases() -> int:
    """Print every case with what is right."""
    table = Table("case", "kind", "upstream plays", "right behaviour", "asked as", box=None, pad_edge=False)
    for case in cases():
        table.add_row(case.name, case.kind, case.play, case.right, ", ".join(case.ways))
    Console().print(table)
    return Exit.OK


def _is_address(text: str, schemes: tuple[str, ...]) -> bool:
    try:
        parts = urlsplit(text)
        return parts.scheme in schemes and bool(parts.hostname) and parts.port != 0
    except ValueError:  # a port that is none
        return False


def _dot(result: Result) -> None:
    """Show that it goes on: the whole matrix takes about a minute."""
    sys.stderr.write("F" if result.complaint else ".")
    sys.stderr.flush()


def _print(results: list[Result]) -> None:
    console = Console()
    table = Table("case", "kind", "pass", "fail", "right behaviour", box=None, pad_edge=False)
    for name in dict.fromkeys(result.case for result in results):
        mine = [result for result in results if result.case == name]
        failed = [result for result in mine if result.complaint]
        table.add_row(name, mine[0].kind, str(len(mine) - len(failed)), str(len(failed) or "-"), mine[0].right)
    console.print(table)
    for result in results:
        if result.complaint:
            console.print(f"FAIL {result.case} as {result.way}: {result.complaint}", markup=False, highlight=False)
    count = Counter(bool(result.complaint) for result in results)
    console.print(f"{count[False]} held, {count[True]} did not.", highlight=False)
