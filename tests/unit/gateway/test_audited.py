"""What the driver of a request hands over for audit."""

from __future__ import annotations

import hashlib

import msgspec
import pytest
from tests.unit.gateway.one_gateway import BODY, END, Client, OneGateway, event, run

from tidegate.domain.audit import AuditPolicy
from tidegate.domain.request import Operation
from tidegate.domain.units import Secret
from tidegate.flow.facts import RequestFacts
from tidegate.flow.request_flow import RequestFlow
from tidegate.gateway.audited import SLICE_BYTES, AuditedExchange
from tidegate.gateway.stream_settings import StreamSettings
from tidegate.ports import AuditedBodies


class Keeper:
    """A `ports.Auditor` that remembers."""

    def __init__(self, policy: AuditPolicy = AuditPolicy.REDACTED, *, room: int = 10**9, max_body_bytes: int = 65_536) -> None:
        self.max_body_bytes = max_body_bytes
        self.kept: list[AuditedBodies] = []
        self.asked: list[tuple[str, str]] = []
        self.aside = 0
        self.answer = policy
        self._room = room

    def policy(self, tenant: str, route: str) -> AuditPolicy:
        self.asked.append((tenant, route))
        return self.answer

    def set_aside(self, size: int) -> bool:
        if self.aside + size > self._room:
            return False
        self.aside += size
        return True

    def give_back(self, size: int) -> None:
        self.aside -= size

    def keep(self, bodies: AuditedBodies, *, set_aside: int) -> None:
        self.aside -= set_aside
        self.kept.append(bodies)


async def begun(keeper: Keeper, client: Client | None = None) -> tuple[OneGateway, Client]:
    """A gateway that keeps bodies, and a client whose request has gone to the upstream."""
    one, client = OneGateway(StreamSettings(heartbeat_s=None)), client or Client()
    one.gateway.replace_services(msgspec.structs.replace(one.gateway.services, auditor=keeper))
    await one.call(client)
    return one, client


def test_a_stream_is_handed_over_as_the_client_got_it() -> None:
    """Request, status, and every byte that was sent; the room that was set aside is given to the queue."""

    async def story() -> None:
        keeper = Keeper()
        one, client = await begun(keeper)
        one.upstream.answer(event("a"), event("b"))
        assert SLICE_BYTES == keeper.aside
        one.upstream.end()
        (kept,) = keeper.kept
        assert (one.records[0].request_id, one.records[0].started_at) == (kept.request_id, kept.started_at)
        assert (BODY, 200, client.text, len(client.text), "", True) == (
            kept.request,
            kept.status,
            kept.answer,
            kept.answer_bytes,
            kept.answer_sha256,
            kept.is_stream,
        )
        assert {("key", "m")} == set(keeper.asked)
        assert 0 == keeper.aside

    run(story)


@pytest.mark.parametrize(("before", "after", "kept"), [("redacted", "off", 1), ("off", "redacted", 0)])
def test_a_reload_in_the_middle_of_a_stream_keeps_no_half(before: str, after: str, kept: int) -> None:
    """What was decided when the response began holds to its end: all of the exchange, or nothing."""

    async def story() -> None:
        keeper = Keeper(AuditPolicy(before))
        one, client = await begun(keeper)
        one.upstream.answer(event("a"))
        keeper.answer = AuditPolicy(after)
        one.upstream.end()
        assert [(BODY, client.text, AuditPolicy.REDACTED)] * kept == [(each.request, each.answer, each.policy) for each in keeper.kept]
        assert (1, 0) == (len(keeper.asked), keeper.aside)

    run(story)


@pytest.mark.parametrize(("bound", "room", "gathered"), [(100, 10**9, 100), (65_536, 80, 0), (65_536, 5_000, SLICE_BYTES)])
def test_of_a_long_stream_the_beginning_is_kept_and_the_whole_hashed(bound: int, room: int, gathered: int) -> None:
    """Up to the bound, or as far as there is room; the client gets it all the same."""

    async def story() -> None:
        keeper = Keeper(max_body_bytes=bound, room=room)
        one, client = await begun(keeper)
        one.upstream.answer(*(event("word") for _ in range(50)))
        one.upstream.end()
        (kept,) = keeper.kept
        assert kept.answer is not None
        assert client.text.startswith(kept.answer)
        assert gathered == len(kept.answer)
        assert (len(client.text), hashlib.sha256(client.text).hexdigest()) == (kept.answer_bytes, kept.answer_sha256)
        assert event("word") * 50 + END == client.text

    run(story)


def test_an_answer_that_is_no_stream_is_handed_over_whole() -> None:
    """A refusal of the gateway's own, too, also of a body that is no request."""

    async def story() -> None:
        keeper = Keeper()
        _, client = await begun(keeper, Client(body=b"no json"))
        (kept,) = keeper.kept
        assert (b"no json", 400, client.text, len(client.text), False) == (
            kept.request,
            kept.status,
            kept.answer,
            kept.answer_bytes,
            kept.is_stream,
        )
        assert [("key", "")] == keeper.asked

    run(story)


def test_a_request_whose_body_was_not_read_leaves_nothing() -> None:
    """Whoever is not let in does not fill the disk."""

    async def story() -> None:
        keeper = Keeper()
        _, client = await begun(keeper, Client("nobody"))
        assert (401, []) == (client.status, keeper.kept)

    run(story)


def test_what_the_policy_keeps_nothing_of_is_not_gathered() -> None:
    """Another tenant's requests are kept, so this one was looked at; none of its bytes are held."""

    async def story() -> None:
        keeper = Keeper(AuditPolicy.OFF)
        one, client = await begun(keeper)
        one.upstream.answer(event("a"))
        assert 0 == keeper.aside
        one.upstream.end()
        assert (event("a") + END, []) == (client.text, keeper.kept)

    run(story)


def test_a_client_that_leaves_early_has_no_answer() -> None:
    """There is a request, and nothing was sent; later, there is what was sent until then."""

    async def story() -> None:
        keeper = Keeper()
        _, client = await begun(keeper)
        client.leave()
        assert (0, None, 0) == (keeper.kept[0].status, keeper.kept[0].answer, keeper.kept[0].answer_bytes)
        one, client = await begun(keeper)
        one.upstream.answer(event("a"))
        client.leave()
        assert (event("a"), 0) == (keeper.kept[1].answer, keeper.aside)

    run(story)


def test_a_resumable_stream_is_kept_without_its_numbers() -> None:
    """What the upstream said, not how it is numbered for this client; the client's return is no request with a body of its own."""

    async def story() -> None:
        keeper = Keeper()
        one, client = await begun(keeper, Client(headers=((b"x-tidegate-resumable", b"1"),)))
        one.upstream.answer(event("a"))
        one.upstream.end()
        assert b"id: " in client.text
        assert [event("a") + END] == [kept.answer for kept in keeper.kept]

    run(story)


def test_after_a_fault_of_our_own_no_room_stays_taken() -> None:
    """The request is dropped, its record is kept, and what was gathered is handed over or given back."""

    async def story() -> None:
        keeper = Keeper()
        one, client = await begun(keeper)
        one.upstream.answer(event("a"))
        client.finished = True  # so that the end itself fails
        one.upstream.end()
        assert 0 == keeper.aside
        assert 1 == len(one.records)

    run(story)


def test_it_says_whose_bodies_it_notes() -> None:
    """For people who debug."""

    async def story() -> None:
        one, client = await begun(Keeper())
        flow = RequestFlow(RequestFacts("req-1", Operation.CHAT, Secret("k"), 0.0), one.gateway.services.policies)
        assert "AuditedExchange(RequestFlow(req-1, chat, waits for authentication))" == repr(AuditedExchange(client, flow, Keeper()))
        client.leave()

    run(story)
