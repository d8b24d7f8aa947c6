"""What a run will do, decided before it begins: which requests, and when each is due.

A plan is made once, from one seed, and then shared out by index; nobody draws anything again. So the same seed gives the same load, and the
arrivals are what they claim to be however many processes send them. Instants are seconds from the run's origin.
"""

from __future__ import annotations

from enum import StrEnum

import msgspec


class Endpoint(StrEnum):
    """Which API is called."""

    CHAT = "chat"
    COMPLETIONS = "completions"

    @property
    def path(self) -> str:
        return "/chat/completions" if self is Endpoint.CHAT else "/completions"


class PlannedRequest(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One request. Its prompt is made from `seed` when it is due to be sent: plans of a million requests stay small."""

    index: int
    """From 0, in the order of the plan; `index % clients` is the client process that sends it."""
    due_s: float
    """0 in a closed loop, where a request is due when a place is free."""
    stage: int
    scenario: str
    seed: int
    prompt_tokens: int
    """Wanted length of the prompt, about; 0 where the scenario has texts of its own."""
    completion_tokens: int | None = None
    """Sent as the cap, and what the answer is judged by; None: the model decides, nothing is expected."""
    prefix: int | None = None
    """Requests with the same number begin with the same text, `prefix_tokens` long: what a prefix cache can use."""
    prefix_tokens: int = 0


class Stage(msgspec.Struct, frozen=True):
    """A part of the run that is reported by itself. `rate_per_s` is the mean that was asked for; None in a closed loop."""

    name: str
    begins_s: float
    length_s: float
    rate_per_s: float | None = None
    concurrency: int | None = None
    """Requests at once, in a closed loop."""


class CurvePoint(msgspec.Struct, frozen=True):
    """The rate that the plan followed at one instant, to be drawn beside what was achieved."""

    at_s: float
    rate_per_s: float


class Plan(msgspec.Struct, frozen=True):
    """All of a run. Open loop unless `concurrency` is given; requests are in order of `due_s`."""

    seed: int
    load: str
    """In words, for the report: `poisson, 20/s for 60 s`."""
    requests: tuple[PlannedRequest, ...]
    stages: tuple[Stage, ...]
    length_s: float
    """In a closed loop nothing is begun after it."""
    concurrency: int | None = None
    curve: tuple[CurvePoint, ...] = ()
    time_factor: float = 1.0
    """How much faster than the original the run is: 1440 plays a day in a minute."""


class Scenario(msgspec.Struct, frozen=True):
    """A kind of request, and what a good answer to it is."""

    name: str
    system: str = ""
    texts: tuple[str, ...] = ()
    """Prompts of its own are drawn from these passages, cut or joined to the wanted length."""
    feature: str = ""
    """Said in `X-Business-Context`."""
    prompt_tokens: tuple[int, int] = (64, 512)
    """Least and most; drawn evenly, unless the load says more."""
    completion_tokens: tuple[int, int] | None = (32, 256)
    response_format: str | None = None
    """JSON text of the member that is sent."""
    require: str | None = None
    """A regular expression that a good answer matches."""
    json_schema: str | None = None
    """JSON Schema text that a good answer's JSON satisfies; `{}` asks for JSON of any kind."""
    lines: tuple[str, ...] = ()
    """The requests of the user's own file, read, checked and masked (`scenarios.own`), each a JSON object; sent instead of `texts`."""


class Target(msgspec.Struct, frozen=True):
    """Whom to ask, and how; everything that a client process needs beside its share of the plan."""

    base_url: str
    """With the `/v1`."""
    model: str
    key: str = ""
    """Never shown and never written to a report."""
    endpoint: Endpoint = Endpoint.CHAT
    stream: bool = True
    headers: tuple[tuple[str, str], ...] = ()
    color: str = ""
    """Sent as `X-Tidegate-Color`: test traffic that records can be told apart by."""
    extra_body: str = "{}"
    """JSON members that every request gets, over its own."""
    ask_usage: bool = True
    """Send `stream_options: {include_usage: true}` with streams."""
    cap_field: str = "max_tokens"
    """Under which name the cap is sent."""
    retries: int = 0
    """Tries after the first one, of requests that a 429, 503 or a connection failure ended before any output."""
    timeout_s: float = 120.0
    connect_timeout_s: float = 5.0
    max_in_flight: int = 4_096
    """Requests at once of one client process; when it is reached the run is no longer an open loop, and says so."""
    verify_tls: bool = True
