"""Settings of resilience: health, breakers, retries, streams, and what nodes share."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from tidegate.config.section import AtLeastOne, Positive, Ratio, Section
from tidegate.domain.units import Secret


class HealthSection(Section, frozen=True, kw_only=True):
    """Each worker asks each replica; one that does not answer is left alone, and calls that wait for it move on."""

    enabled: Annotated[
        bool | None,
        Meta(description="Ask (true) or not (false); without it, servers on plain `http://` are asked and hosted ones are not."),
    ] = None
    path: Annotated[
        str | None,
        Meta(description="Path from the server's root; without it the dialect's: `/health` for vLLM and llama.cpp, else the model list."),
    ] = None
    every_s: Annotated[Positive, Meta(description="Time from one question to the next.")] = 2.0
    timeout_s: Annotated[Positive, Meta(description="Time an answer may take; any HTTP status below 500 is one.")] = 1.5
    failures: Annotated[AtLeastOne, Meta(description="So many failures in a row take a replica out; one answer brings it back.")] = 2


class BreakerSection(Section, frozen=True, kw_only=True):
    """A fast trip refuses calls until probes succeed. A slow trip, or slow first tokens, only lets others go first."""

    enabled: Annotated[bool, Meta(description="Watch failures at all.")] = True
    consecutive_failures: Annotated[
        AtLeastOne, Meta(description="Fast trip: failures in a row, if so many are unlikely at the share that failed before.")
    ] = 5
    connect_failures: Annotated[AtLeastOne, Meta(description="Fast trip: connections in a row that could not be had, likewise.")] = 2
    failure_ratio: Annotated[Ratio, Meta(description="Fast trip: share of failures over `window_s`.")] = 0.5
    window_s: Annotated[Positive, Meta(description="Short window of the fast trip.")] = 10.0
    min_calls: Annotated[AtLeastOne, Meta(description="Calls in the short window below which its ratio means nothing.")] = 10
    slow_ratio: Annotated[Ratio, Meta(description="Slow trip: share of failures in each of three windows in a row.")] = 0.015
    slow_window_s: Annotated[Positive, Meta(description="Length of one of the three windows.")] = 60.0
    slow_min_calls: Annotated[AtLeastOne, Meta(description="Calls in a long window below which its ratio means nothing.")] = 50
    ttft_s: Annotated[
        Positive | None,
        Meta(description="Latency trip: most first tokens of the short window (`min_calls` or more) take longer than this; null: never."),
    ] = 3.0
    cooldown_s: Annotated[Positive, Meta(description="Pause after the first trip; doubles with each trip in a row, with jitter.")] = 1.0
    max_cooldown_s: Annotated[Positive, Meta(description="Longest pause, and the one after a slow trip.")] = 30.0
    probes: Annotated[AtLeastOne, Meta(description="Calls let through at a time while half open; as many successes close it.")] = 2
    slow_start_s: Annotated[Positive, Meta(description="After recovery a replica's share grows to its whole over this time.")] = 10.0


class RetrySection(Section, frozen=True, kw_only=True):
    """Bounds of a request's attempts. Retries beyond the budget are not made: they would make an overload worse."""

    max_attempts: Annotated[int, Meta(ge=1, le=20, description="Attempts of one request in all.")] = 4
    tries_per_replica: Annotated[int, Meta(ge=1, le=10, description="Attempts on one replica, the first included.")] = 2
    base_delay_s: Annotated[
        Positive, Meta(description="The pause before the same replica is tried again is uniform up to this, doubled each time.")
    ] = 0.1
    max_delay_s: Annotated[Positive, Meta(description="Longest such pause.")] = 2.0
    max_retry_after_s: Annotated[
        float,
        Meta(
            ge=0,
            le=60,
            description="An upstream's `Retry-After` up to this is waited for when there is no other; a longer one goes to the client.",
        ),
    ] = 2.0
    budget_ratio: Annotated[Ratio, Meta(description="Extra attempts, as a share of the requests of the last 10 s.")] = 0.2
    budget_floor: Annotated[int, Meta(ge=0, le=10_000, description="Extra attempts in 10 s that are always allowed, for quiet times.")] = 10


class StreamsSection(Section, frozen=True, kw_only=True):
    """What keeps long streams alive. A heartbeat is a comment line, which every SDK skips."""

    heartbeat_s: Annotated[Positive | None, Meta(description="A stream that was silent for this long gets a heartbeat; null: never.")] = (
        15.0
    )
    commit_after_s: Annotated[
        Positive | None,
        Meta(
            description="Answer 200 and begin heartbeats when the first token takes longer than this; what fails later can then not be "
            "retried. null: wait."
        ),
    ] = None
    resumable: Annotated[bool, Meta(description="Let clients ask for resumable streams with `X-Tidegate-Resumable: 1`.")] = True
    resume_window_s: Annotated[Positive, Meta(description="How long a stream waits for its client to come back.")] = 30.0
    resume_buffer_bytes: Annotated[int, Meta(ge=1024, description="What one stream keeps for replay; older events are lost.")] = 1_048_576
    resume_total_bytes: Annotated[int, Meta(ge=1024, description="What all resumable streams of a worker keep.")] = 67_108_864


class SharedSection(Section, frozen=True, kw_only=True):
    """Nodes tell each other when a replica goes down or comes back. Without the store each node finds out by itself."""

    redis_url: Annotated[
        Secret, Meta(description="`redis://` or `rediss://` address; write `${NAME}` to keep its password out of the file.")
    ]
    channel: Annotated[str, Meta(min_length=1, max_length=100, description="Channel that all nodes of one fleet use.")] = "tidegate:health"
    timeout_s: Annotated[Positive, Meta(description="Time one exchange with the store may take.")] = 1.0
