"""Whatever fails after a request's record was handed over: there is no second one, and the request is over."""

from __future__ import annotations

import msgspec
from tests.unit.gateway.one_gateway import END, Client, OneGateway, event, run

from tidegate.domain.outcome import Outcome
from tidegate.domain.record import RequestRecord
from tidegate.domain.request import ParsedRequest
from tidegate.gateway.calibration import Calibration
from tidegate.gateway.owned_tasks import OwnedTasks
from tidegate.gateway.stream_settings import StreamSettings
from tidegate.policy.metering.coefficients import Coefficients

QUIET = StreamSettings(heartbeat_s=None)


class _Calibration(Calibration):
    """Faults when it is told of a request."""

    def finished(self, record: RequestRecord, request: ParsedRequest | None, *, now: float) -> None:
        raise AssertionError(record, request, now)


class _Recording(OneGateway):
    """Its recorder faults when it has the record."""

    def record(self, record: RequestRecord) -> None:
        super().record(record)
        raise AssertionError(record)


def test_a_fault_of_what_learns_from_a_request_is_not_the_request_s() -> None:
    """The client has its whole answer, and the record says so."""

    async def story() -> None:
        one, client = OneGateway(QUIET), Client()
        calibration = _Calibration(Coefficients(), one, OwnedTasks, lambda *_, **__: None)
        one.gateway.replace_services(msgspec.structs.replace(one.gateway.services, calibration=calibration))
        await one.call(client)
        one.upstream.answer(event("a"))
        one.upstream.end()
        assert [Outcome.OK] == [record.outcome for record in one.records]
        assert (event("a") + END, True, False) == (client.text, client.finished, client.aborted)
        assert one.gateway.statistics().running == 0

    run(story)


def test_a_fault_of_the_recorder_makes_no_second_record() -> None:
    """Part of it may have been kept already."""

    async def story() -> None:
        one, client = _Recording(QUIET), Client()
        await one.call(client)
        one.upstream.answer(event("a"))
        one.upstream.end()
        assert [Outcome.OK] == [record.outcome for record in one.records]
        assert one.gateway.statistics().running == 0

    run(story)
