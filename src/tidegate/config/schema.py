"""Every setting of `tidegate.yaml`, declared once: types, defaults, ranges and the sentence that documents each.

The loader, `tidegate check`, and `docs/reference/configuration.md` all read these classes. A field whose name ends in `_s` is a
duration in seconds, one ending in `_bytes` a size in bytes: the loader takes `500ms` and `32MiB` for those. Any value may be written as
`${NAME}`, which takes the environment variable. The docstring of a section is its introduction in the generated page.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

from msgspec import Meta

from tidegate.config.schema_analytics import AnalyticsSection
from tidegate.config.schema_audit import AuditSection
from tidegate.config.schema_books import BooksSection
from tidegate.config.schema_degradation import DegradationSection
from tidegate.config.schema_limits import LimitsSection, TierSection
from tidegate.config.schema_prices import MoneyBudgetSection, PricesSection, UnbilledSection
from tidegate.config.schema_reserve import ReserveSection
from tidegate.config.schema_resilience import BreakerSection, HealthSection, RetrySection, SharedSection, StreamsSection
from tidegate.config.schema_routing import RouteSection, RuleSection
from tidegate.config.schema_sampling import SamplingSection
from tidegate.config.schema_tracing import TracingSection
from tidegate.config.section import AtLeastOne, Port, Positive, Section
from tidegate.domain.units import Secret
from tidegate.domain.upstream import Pick


class TlsSection(Section, frozen=True, kw_only=True):
    """Certificate and key of the API port; both are read at start."""

    certificate: Annotated[str, Meta(description="Path of the PEM certificate chain, relative to the working directory.")]
    key: Annotated[str, Meta(description="Path of the PEM private key.")]


class ServerSection(Section, frozen=True, kw_only=True):
    """The port that applications call."""

    host: Annotated[str, Meta(description="Address to listen on.")] = "127.0.0.1"
    port: Annotated[Port, Meta(description="Port of the API; 0 takes a free one.")] = 8080
    workers: Annotated[int, Meta(ge=1, le=256, description="Worker processes sharing the port; limits are divided among them.")] = 1
    max_connections: Annotated[int, Meta(ge=1, description="Open client connections per worker; more are closed at once.")] = 20_000
    max_header_bytes: Annotated[int, Meta(ge=1024, description="Largest request head (line and headers).")] = 65_536
    max_body_bytes: Annotated[int, Meta(ge=1, description="Largest request body.")] = 33_554_432
    max_buffered_bytes: Annotated[
        int, Meta(ge=1, description="Bodies held by one worker at once; beyond it new bodies are refused with 503.")
    ] = 1_073_741_824
    header_timeout_s: Annotated[Positive, Meta(description="Time a client has to send a complete head.")] = 10.0
    body_timeout_s: Annotated[
        Positive, Meta(description="Longest pause while a client sends a body; the whole body may take ten times as long.")
    ] = 30.0
    idle_timeout_s: Annotated[Positive, Meta(description="Time a connection may stay open without a request.")] = 120.0
    send_timeout_s: Annotated[Positive, Meta(description="Longest time a client may stop reading before it is dropped.")] = 60.0
    half_close_keeps_going: Annotated[
        bool, Meta(description="A client that closes its sending side during a request has left (false), or still wants its answer (true).")
    ] = False
    drain_timeout_s: Annotated[Positive, Meta(description="Time running requests get at shutdown before they are interrupted.")] = 30.0
    tls: Annotated[TlsSection | None, Meta(description="Serve HTTPS with this certificate.")] = None


class AdminSection(Section, frozen=True, kw_only=True):
    """The port of metrics, health and the admin API. Whoever reaches it can read the first two; the admin API wants an admin key."""

    host: Annotated[str, Meta(description="Address of the admin API; keep it private.")] = "127.0.0.1"
    port: Annotated[Port, Meta(description="Port of the admin API; 0 takes a free one.")] = 8081


Weight = Annotated[float, Meta(ge=0.01, le=1000)]
Priority = Annotated[int, Meta(ge=0, le=100)]


class DialectName(StrEnum):
    """Which family of servers an upstream belongs to."""

    OPENROUTER = "openrouter"
    DASHSCOPE = "dashscope"
    VLLM = "vllm"
    LLAMACPP = "llamacpp"
    OPENAI = "openai"


class TimeoutsSection(Section, frozen=True, kw_only=True):
    """The five clocks of one attempt; each but `stall_s` runs from its start until what it waits for has come.

    An answer that does not stream has only two, `connect_s` and `total_s`.
    """

    connect_s: Annotated[Positive, Meta(description="Until a connection is open, TLS included.")] = 5.0
    first_byte_s: Annotated[Positive, Meta(description="Until a stream's status line.")] = 30.0
    first_token_s: Annotated[Positive, Meta(description="Until a stream's first non-empty output.")] = 60.0
    stall_s: Annotated[Positive, Meta(description="Longest gap between two pieces of a stream's body, from the first on.")] = 30.0
    total_s: Annotated[Positive, Meta(description="Until the answer is complete.")] = 600.0


class AffinityName(StrEnum):
    NONE = "none"
    SESSION = "session"


class LeaveName(StrEnum):
    CANCEL = "cancel"
    DRAIN = "drain"
    DETACH = "detach"


class ReplicaSection(Section, frozen=True, kw_only=True):
    """One more address of a pool."""

    base_url: Annotated[str, Meta(description="Address up to and including the version.")]
    weight: Annotated[Weight, Meta(description="Its share of the pool's requests, beside the others' weights.")] = 1.0
    priority: Annotated[Priority, Meta(description="Replicas with a higher number are used only when none below is available.")] = 0


class UpstreamSection(Section, frozen=True, kw_only=True):
    """One model server, or one account at a hosted provider. The name `local` is taken by the local engine."""

    dialect: Annotated[DialectName, Meta(description="How this server differs from OpenAI's.")]
    base_url: Annotated[str, Meta(description="Address up to and including the version, e.g. `http://10.0.0.5:8000/v1`.")]
    api_key: Annotated[Secret | None, Meta(description="Sent as a bearer token; write `${NAME}` to keep it out of the file.")] = None
    headers: Annotated[dict[str, Secret], Meta(description="More headers to send.")] = {}
    models: Annotated[
        tuple[str, ...],
        Meta(
            description="Model names it serves, listed under `/v1/models`; shell-style patterns are routed but not listed. "
            "They become routes when `routes` is empty."
        ),
    ] = ()
    tokenizer: Annotated[str | None, Meta(description="`qwen3.6`, `engine`, or nothing for the stated fallback.")] = None
    max_connections: Annotated[int, Meta(ge=1, description="Open connections per worker; further calls wait for one.")] = 1000
    idle_timeout_s: Annotated[Positive, Meta(description="An unused connection is closed after this time.")] = 30.0
    verify_tls: Annotated[bool, Meta(description="Check the server's certificate. Turn off only for a test.")] = True
    timeouts: Annotated[TimeoutsSection, Meta(description="The five clocks of a call.")] = TimeoutsSection()
    weight: Annotated[Weight, Meta(description="Share of `base_url` in the pool, beside the weights of `replicas`.")] = 1.0
    priority: Annotated[
        Priority, Meta(description="Of `base_url`; replicas with a higher number are used only when none below is available.")
    ] = 0
    replicas: Annotated[
        tuple[ReplicaSection, ...],
        Meta(description="More addresses of the same servers: with `base_url` they are one pool of interchangeable replicas."),
    ] = ()
    pick: Annotated[Pick, Meta(description="How a replica of the pool is picked.")] = Pick.LEAST_IN_FLIGHT
    affinity: Annotated[
        AffinityName, Meta(description="`session`: requests of one conversation go to one replica while it is available, for its KV cache.")
    ] = AffinityName.NONE
    on_client_leave: Annotated[
        LeaveName,
        Meta(
            description="What happens to a call whose client left: `cancel` it, `drain` it for up to `drain_s` so that its usage is "
            "known, or `detach` and let it end by itself. For providers that bill the rest anyway."
        ),
    ] = LeaveName.CANCEL
    drain_s: Annotated[Positive, Meta(description="Longest time a call is drained after its client left.")] = 30.0
    health: Annotated[HealthSection, Meta(description="Asking the servers how they are.")] = HealthSection()
    breaker: Annotated[BreakerSection, Meta(description="When a replica, or the whole pool, is left alone.")] = BreakerSection()


class LocalEngineSection(Section, frozen=True, kw_only=True):
    """The small model that runs beside the gateway, reachable in `routes` as the upstream `local`."""

    enabled: Annotated[bool, Meta(description="Run the local model (llama.cpp) as the last resort, or as the only upstream.")] = True
    model_path: Annotated[str | None, Meta(description="A GGUF file; without it the packaged SmolLM2-135M-Instruct.")] = None
    model_name: Annotated[str, Meta(description="The name under which it is served.")] = "smollm2-135m-instruct"
    slots: Annotated[int, Meta(ge=1, le=64, description="Requests answered in parallel.")] = 4
    context_tokens: Annotated[int, Meta(ge=256, description="Context length of each slot, in tokens.")] = 4096
    threads: Annotated[AtLeastOne | None, Meta(description="CPU threads; without it, all cores.")] = None
    memory_limit_bytes: Annotated[
        int, Meta(ge=1, description="Address space of the engine process; over it the engine fails and restarts.")
    ] = 8_589_934_592


class JwtSection(Section, frozen=True, kw_only=True):
    """One issuer of JSON Web Tokens. Accept either HS256 or RS256/ES256 from an issuer, never both."""

    issuer: Annotated[str, Meta(description="Required `iss`.")]
    audience: Annotated[str, Meta(description="Required `aud`.")]
    algorithms: Annotated[tuple[str, ...], Meta(description="Accepted: HS256, RS256, ES256.")] = ("RS256", "ES256")
    secret: Annotated[Secret | None, Meta(description="Shared secret for HS256, at least 32 bytes.")] = None
    jwks: Annotated[str | None, Meta(description="Path or https URL of the JSON Web Key Set for RS256 and ES256.")] = None
    leeway_s: Annotated[float, Meta(ge=0, le=300, description="Clock difference tolerated.")] = 30.0
    tenant_claim: Annotated[str, Meta(description="Claim naming the tenant.")] = "tenant"
    user_claim: Annotated[str, Meta(description="Claim naming the user.")] = "sub"
    tier_claim: Annotated[str, Meta(description="Claim naming the tier.")] = "tier"


class RecordsSection(Section, frozen=True, kw_only=True):
    """One line of JSON per request, without prompts or answers."""

    directory: Annotated[str | None, Meta(description="Where request records go; without it `records/` in the state directory.")] = None
    max_file_bytes: Annotated[int, Meta(ge=4096, description="A file is rotated at this size.")] = 104_857_600
    keep_files: Annotated[int, Meta(ge=1, description="Rotated files kept per worker.")] = 10
    queue_records: Annotated[int, Meta(ge=1, description="Records waiting to be written; beyond it they are dropped and counted.")] = 50_000


class Configuration(Section, frozen=True, kw_only=True):
    """The whole file. Every section has a default, so that an empty file is a working one."""

    state_directory: Annotated[str, Meta(description="Keys, records and sockets live here.")] = ".tidegate"
    server: Annotated[ServerSection, Meta(description="The API port.")] = ServerSection()
    admin: Annotated[AdminSection, Meta(description="The admin port.")] = AdminSection()
    upstreams: Annotated[dict[str, UpstreamSection], Meta(description="Model servers by name.")] = {}
    local_engine: Annotated[LocalEngineSection, Meta(description="The model that runs beside the gateway.")] = LocalEngineSection()
    routes: Annotated[
        tuple[RouteSection, ...],
        Meta(description="Which models go where, first match wins; without any, every upstream serves its own `models`."),
    ] = ()
    limits: Annotated[LimitsSection, Meta(description="Ceilings of every key that has none of its own, and rules.")] = LimitsSection()
    reserve: Annotated[ReserveSection, Meta(description="What a request holds of a token limit for its answer.")] = ReserveSection()
    prices: Annotated[PricesSection, Meta(description="What calls cost.")] = PricesSection()
    budgets: Annotated[tuple[MoneyBudgetSection, ...], Meta(description="What may be spent by whom; needs `prices`.")] = ()
    unbilled: Annotated[tuple[UnbilledSection, ...], Meta(description="Coloured traffic, such as load tests, that nobody pays for.")] = ()
    books: Annotated[BooksSection, Meta(description="Where it is written down what was spent.")] = BooksSection()
    rules: Annotated[
        tuple[RuleSection, ...], Meta(description="Rules that look at the request and choose its targets; the first that holds wins.")
    ] = ()
    retry: Annotated[RetrySection, Meta(description="When a failed attempt is followed by another.")] = RetrySection()
    degradation: Annotated[DegradationSection, Meta(description="What the client gets when no model can answer.")] = DegradationSection()
    streams: Annotated[StreamsSection, Meta(description="Heartbeats and resumable streams.")] = StreamsSection()
    shared: Annotated[SharedSection | None, Meta(description="A Redis or Valkey through which several nodes share what they know.")] = None
    tiers: Annotated[dict[str, TierSection], Meta(description="Limits and promises by tier; a key's own limits win.")] = {}
    jwt: Annotated[tuple[JwtSection, ...], Meta(description="Accepted token issuers.")] = ()
    records: Annotated[RecordsSection, Meta(description="The request log.")] = RecordsSection()
    audit: Annotated[AuditSection, Meta(description="Bodies of requests and answers.")] = AuditSection()
    analytics: Annotated[AnalyticsSection, Meta(description="Records in tables that answer questions.")] = AnalyticsSection()
    sampling: Annotated[SamplingSection, Meta(description="What is measured beside requests.")] = SamplingSection()
    tracing: Annotated[TracingSection, Meta(description="Requests as spans, for an OpenTelemetry collector.")] = TracingSection()
