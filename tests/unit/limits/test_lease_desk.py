"""What the ledger process knows of spending from before its start, and what it leaves to the workers to tell."""

from __future__ import annotations

import asyncio

import msgspec

from tidegate.adapters.books.spent_before import SpentBefore
from tidegate.domain.leases import LeaseAnswer, LeaseBatch, LeaseClaim
from tidegate.domain.limits import CounterSpec, Meter, Period
from tidegate.node.ledger import ASK_BOOKS_S, LeaseDesk, begin
from tidegate.policy.metering.leases.ledger import LeaseLedger
from tidegate.testing import ManualClock

DAY = CounterSpec(Meter.CALENDAR, 1_000, period=Period.DAY)
SPENT = (SpentBefore("day", DAY, 20, "gone"), SpentBefore("day", DAY, 3, "living"))


class Desk:
    """A process that has just come in place of a killed one."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.asked = 0
        ledger = LeaseLedger(epoch=1, now=self.clock())
        begin(ledger, [SpentBefore("day", DAY, 100)], now=self.clock())
        self.desk = LeaseDesk(ledger, clock=self.clock, of_workers=self.of_workers)

    async def of_workers(self) -> tuple[SpentBefore, ...]:
        """Answer as the books do, after a while."""
        self.asked += 1
        await asyncio.sleep(0)
        return SPENT

    def available(self, worker: str, sequence: int, *, owed: int = 0) -> int:
        """Say as a worker what it used; give what the counter has left."""
        told = ((0.0, owed),) if owed else ()
        return asyncio.run(self.answer(worker, sequence, told))

    async def answer(self, worker: str, sequence: int, told: tuple[tuple[float, int], ...] = ()) -> int:
        claim = LeaseClaim(counter="day", spec=DAY, sequence=sequence, life=0, spent=0, held=0, spare=0, want=0, owed=told)
        answer = await self.desk.answer(msgspec.msgpack.encode(LeaseBatch(worker, (claim,))))
        return msgspec.msgpack.decode(answer, type=LeaseAnswer).grants[0].available


def test_what_nobody_tells_is_charged_once_everybody_had_the_time_to_tell() -> None:
    """Before the node's start: at once. Of a worker that lives: by itself. Of one that is gone: when the others may lease."""
    process = Desk()
    assert 897 == process.available("living", 1, owed=3)
    process.clock.advance(ASK_BOOKS_S)
    assert 877 == process.available("living", 2)
    process.clock.advance(ASK_BOOKS_S)
    assert 877 == process.available("another", 1), "only once"
    assert repr(process.desk).endswith("is_settled=True)")


def test_all_workers_may_be_gone() -> None:
    """Then those in their place begin with all that the books have; they are asked once, and everybody waits for the answer."""
    process = Desk()
    process.clock.advance(ASK_BOOKS_S)

    async def both() -> list[int]:
        first, second = await asyncio.gather(process.answer("new", 1), process.answer("newer", 1))
        return [first, second]

    assert [877, 877] == asyncio.run(both())
    assert 1 == process.asked
