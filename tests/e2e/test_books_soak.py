"""A soak of the money: clients that leave, workers and the ledger process killed again and again, and books that add up at the end.

What may be missing is what `docs/decisions/0009-the-books.md` says a kill can lose, and each loss must be explained by a kill: a worker
loses the entries of the turn it was killed in, and what its thread had not yet written to the file while the ledger process was away. So a
call may be missing only if its client saw the end within `NEAR_A_KILL_S` of a worker's kill; and nothing at all may be there twice.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import os
import random
import signal
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import psutil
import pytest
import uvloop
from benchmarks.drill import Mock
from tests.e2e.soak_client import Client, End, Question, Seen, some_leaving
from tests.e2e.soak_judge import was_answered
from tests.e2e.test_budgets import asked, children_of
from tests.e2e.test_shared_limits import prepared

from tidegate.adapters.books.ledger import Books
from tidegate.adapters.books.opening import open_books
from tidegate.adapters.wall_clock import wall_clock
from tidegate.conformance.expect import Way
from tidegate.domain.books import SettledCall
from tidegate.domain.principal import Limits
from tidegate.domain.units import Secret
from tidegate.testing import GatewayProcess
from tidegate.wiring.books import BOOKS_FILE

pytestmark = [pytest.mark.soak, pytest.mark.timeout(180)]

SEED = 5
WORKERS = 3
AT_ONCE = 24
KILLING_S = 40.0
KILL_EVERY_S = 1.8
"""In turns: two workers, each the one that lives longest, and the ledger process. A worker that dies five times in 30 s ends the node."""
NEAR_A_KILL_S = 0.5
"""Between a kill and a client's hearing of the end before it: both processes and this one share the machine."""
MOST_LOST_PER_KILL = 1
"""A turn of a worker ends about one call, and most kills come between two turns."""
LEAVERS_RATIO = 0.25
HOLD_EXPIRY_S = 6.0
REQUEST_MICRO, INPUT_MICRO, OUTPUT_MICRO = 1_000, 20, 50
PRICES = {
    "version": "soak",
    "currency": "CNY",
    "models": [{"upstream": "there", "model": "m", "input": INPUT_MICRO, "output": OUTPUT_MICRO, "request": REQUEST_MICRO / 1_000_000}],
}
AMPLE, TIGHT = "ample", "tight"
TIGHT_MICRO = 5_000_000
"""Some seven hundred calls: used up in the middle of the killing."""
MOST_OWED = 2
"""Calls' worth: what the answers that ran at the end cost beyond what was foreseen of them is owed by the next period."""
MOST_UNTOLD_PER_KILL = 2
"""Calls' worth: what a worker had used since its last exchange, a twentieth of a second before, comes back with its lease."""
SCRIPT = {
    "seed": SEED,
    "default": {
        "first_token_s": {"exponential": 0.01},
        "per_token_s": {"exponential": 0.003},
        "output_tokens": {"uniform": [1, 12]},
        "prompt_tokens": None,
    },
    "failures": [{"ratio": 0.03, "play": "cut@3"}, {"ratio": 0.03, "play": "503"}],
}
WAYS = (Way.CHAT, Way.CHAT_STREAM, Way.COMPLETION, Way.COMPLETION_STREAM)


@pytest.fixture
def mock(tmp_path: Path) -> Iterator[Mock]:
    made = Mock("mock", tmp_path, script=SCRIPT)
    yield made
    made.end()


@dataclass
class Story:
    """What clients saw, when, and who was killed when (by the same clock)."""

    seen: list[tuple[float, Seen]] = field(default_factory=list)
    worker_kills: list[float] = field(default_factory=list)
    ledger_kills: list[float] = field(default_factory=list)


def configuration(mock: Mock) -> dict[str, object]:
    there = {"dialect": "openai", "base_url": mock.base_url, "models": ["m"], "health": {"enabled": False}, "breaker": {"enabled": False}}
    there["timeouts"] = {"connect_s": 1.0, "first_byte_s": 2.0, "first_token_s": 2.0, "stall_s": 2.0, "total_s": 3.0}
    return {
        "upstreams": {"there": there},
        "server": {"workers": WORKERS, "drain_timeout_s": 5.0},
        "limits": {"tokens_per_minute": 1_000_000_000},
        "retry": {"budget_floor": 10_000},
        "prices": PRICES,
        "budgets": [{"name": "month", "scope": {"tenant": TIGHT}, "amount": TIGHT_MICRO / 1_000_000, "per": "month"}],
        "books": {"hold_expiry_s": HOLD_EXPIRY_S},
    }


def questions(keys: dict[str, Secret]) -> Iterator[Question]:
    chance = random.Random(SEED)
    for number in itertools.count():
        tenant = TIGHT if number % 3 == 0 else AMPLE
        yield Question(
            f"{tenant}-{number}",
            WAYS[number % len(WAYS)],
            "m",
            f"the words of request number {number} " * chance.randrange(1, 20),
            keys[tenant].reveal(),
            keeps_connection=chance.random() < 0.5,
            leaving=some_leaving(chance) if chance.random() < LEAVERS_RATIO else None,
        )


async def play(gateway: GatewayProcess, keys: dict[str, Secret], story: Story) -> None:
    """Ask while processes are killed, and a little longer."""
    waiting = questions(keys)
    until = time.monotonic() + KILLING_S + 3.0

    async def place() -> None:
        client = Client(int(gateway.api_url.rpartition(":")[2]))
        while time.monotonic() < until:
            question = next(waiting)
            try:
                seen = await client.ask(question)
            except OSError:  # its listener was that of a worker that is no more
                client = Client(int(gateway.api_url.rpartition(":")[2]))
                continue
            story.seen.append((time.monotonic(), seen))
            if seen.status in (0, 429, 503):
                await asyncio.sleep(0.05)
        client.close()

    async with asyncio.TaskGroup() as tasks:
        for _ in range(AT_ONCE):
            tasks.create_task(place())
        tasks.create_task(kill(gateway, story))


async def kill(gateway: GatewayProcess, story: Story) -> None:
    until = time.monotonic() + KILLING_S
    for turn in itertools.count():
        await asyncio.sleep(KILL_EVERY_S)
        if time.monotonic() >= until:
            return
        if turn % 3 == 2:
            victims, kills = children_of(gateway, "tidegate.node.ledger"), story.ledger_kills
        else:
            victims, kills = sorted(children_of(gateway, "tidegate.node.worker"), key=psutil.Process.create_time), story.worker_kills
        if victims:
            with contextlib.suppress(ProcessLookupError):
                os.kill(victims[0].pid, signal.SIGKILL)
                kills.append(time.monotonic())


def answered_by_id(story: Story) -> dict[str, tuple[float, Seen]]:
    """Give the answers that clients had whole, and when."""
    whole = ((at, seen) for at, seen in story.seen if seen.end is End.COMPLETE and was_answered(seen))
    return {seen.question.request_id: (at, seen) for at, seen in whole}


def price_of(call: SettledCall) -> int:
    return REQUEST_MICRO + call.usage.prompt_tokens * INPUT_MICRO + call.usage.completion_tokens * OUTPUT_MICRO


def test_killed_processes_and_leaving_clients_leave_books_that_add_up(mock: Mock, tmp_path: Path) -> None:
    """Every answer is settled once and at its price, nothing is held at the end, and no budget is spent twice."""
    story = Story()
    place = tmp_path / "state"
    place.mkdir()
    gateway = GatewayProcess(configuration(mock), state_directory=place)
    with gateway:
        keys = {tenant: gateway.create_key(name=tenant, tenant=tenant) for tenant in (AMPLE, TIGHT)}
        prepared(gateway, Limits())
        uvloop.run(play(gateway, keys, story))
        deadline = time.monotonic() + HOLD_EXPIRY_S + 25.0
        while any(each["holds_micro"] for each in asked(gateway, "books", "verify")["balances"]):
            assert time.monotonic() < deadline, "holds of killed workers expire"
            time.sleep(0.5)
    told = asked(gateway, "books", "verify")
    assert [] == told["faults"]
    with contextlib.closing(open_books(str(gateway.state_directory / BOOKS_FILE))) as books:
        calls = list(all_calls(books))
    spent: Counter[str] = Counter()
    for call in calls:
        spent[call.tenant] += call.amount_micro
    for each in told["balances"]:
        assert (each["credited_micro"], 0) == (each["balance_micro"] + each["spent_micro"], each["holds_micro"])
        assert spent[each["tenant"]] == each["spent_micro"]

    answered = answered_by_id(story)
    assert len(answered) > 3_000, "the soak was one"
    complaints = [*complaints_about_calls(calls, answered), *complaints_about_losses(calls, answered, story)]
    assert not complaints, "\n".join(complaints[:30])
    dearest = max(call.amount_micro for call in calls)
    assert TIGHT_MICRO - dearest < spent[TIGHT], "the budget was used up"
    assert spent[TIGHT] <= TIGHT_MICRO + dearest * (MOST_OWED + MOST_UNTOLD_PER_KILL * len(story.worker_kills))


def complaints_about_calls(calls: list[SettledCall], answered: dict[str, tuple[float, Seen]]) -> Iterator[str]:
    """Find what is there twice, and what costs another amount than its client was told, or than its tokens do."""
    attempts = Counter((call.operation_id, call.attempt) for call in calls)
    yield from (f"{operation} attempt {attempt} is there {count} times" for (operation, attempt), count in attempts.items() if count > 1)
    operations: dict[str, set[str]] = {}
    for call in calls:
        request_id = call.operation_id.split(".", 2)[2]
        operations.setdefault(request_id, set()).add(call.operation_id)
        if call.amount_micro != price_of(call):
            yield f"{request_id} costs {call.amount_micro} and not {price_of(call)}"
        told = usage_told(answered[request_id][1]) if request_id in answered else None
        if told is not None and told != (call.usage.prompt_tokens, call.usage.completion_tokens):
            yield f"{request_id}: its client was told {told}, the books {call.usage}"
    yield from (f"{request_id} is settled as {named}" for request_id, named in operations.items() if len(named) > 1)


def complaints_about_losses(calls: list[SettledCall], answered: dict[str, tuple[float, Seen]], story: Story) -> Iterator[str]:
    """Find answers that are not in the books, and that no kill of a worker explains."""
    settled = {call.operation_id.split(".", 2)[2] for call in calls}
    lost = {request_id: at for request_id, (at, _) in answered.items() if request_id not in settled}
    for request_id, at in lost.items():
        if not any(abs(at - kill) < NEAR_A_KILL_S for kill in story.worker_kills):
            yield f"{request_id} is not in the books, and no worker was killed near its end"
    if len(lost) > MOST_LOST_PER_KILL * len(story.worker_kills):
        yield f"{len(lost)} answers are not in the books after {len(story.worker_kills)} kills"


def usage_told(seen: Seen) -> tuple[int, int] | None:
    """Give the prompt's and the answer's tokens as the client saw them; None for a stream, which says nothing of it unasked."""
    if seen.question.way.is_stream:
        return None
    usage = json.loads(seen.body)["usage"]
    return usage["prompt_tokens"], usage["completion_tokens"]


def all_calls(books: Books) -> Iterator[SettledCall]:
    return books.settled_calls(since=0.0, until=wall_clock() + 60.0)
