"""The tables that records are kept in, each column declared once: its name, its type, where it stands in a record, what it says.

Statements that make the tables, rows (`analytics.rows`) and the page for people all come from here. A record of another version may lack
a field or have more: what it lacks is the type's nothing. Invariant: columns are only ever added, so that an older store can be added to.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import msgspec

DATABASE: Final = "tidegate"
_FEW: Final = "LowCardinality(String)"
"""For words of which there are few different ones."""
_TEXT: Final = "String"
_COUNT: Final = "UInt32"
_TIME: Final = "DateTime64(3, 'UTC')"
_SECONDS: Final = "Float64"
_MAYBE_SECONDS: Final = "Nullable(Float64)"


class Column(msgspec.Struct, frozen=True):
    """One column. `path` is where its value stands in the record, with dots; empty for what `rows` computes."""

    name: str
    type: str
    sentence: str
    path: str = ""

    @property
    def declaration(self) -> str:
        return f"{self.name} {self.type}"


class Table(msgspec.Struct, frozen=True):
    """One table. `time` is the column that orders it, parts it by day, and says when a row is past keeping."""

    name: str
    time: str
    sentence: str
    columns: tuple[Column, ...]

    def create(self, *, keep_days: int) -> str:
        """Give the statement that makes it where it is not. A row goes with its whole part, so that nothing is rewritten for that."""
        columns = ",\n  ".join(column.declaration for column in self.columns)
        index = ",\n  INDEX by_source source TYPE set(64) GRANULARITY 4" if self.is_followed else ""
        return (
            f"CREATE TABLE IF NOT EXISTS {self.name} (\n  {columns}{index}\n) ENGINE = MergeTree PARTITION BY toDate({self.time}) "
            f"ORDER BY {self.time} {self.ttl(keep_days=keep_days)}\n"
            "SETTINGS ttl_only_drop_parts = 1, non_replicated_deduplication_window = 1000, fsync_after_insert = 1, fsync_part_directory = 1"
        )

    def ttl(self, *, keep_days: int) -> str:
        """Give the clause that says how long rows stay: a day longer than none older is put in, so that none is gone as it comes."""
        return f"TTL toDateTime({self.time}) + toIntervalDay({keep_days + 1})"

    def add_columns(self, present: set[str]) -> str:
        """Give the statement that adds the columns which are not `present`; empty when none is missing."""
        missing = [f"ADD COLUMN IF NOT EXISTS {column.declaration}" for column in self.columns if column.name not in present]
        return f"ALTER TABLE {self.name} {', '.join(missing)}" if missing else ""

    @property
    def names(self) -> list[str]:
        return [column.name for column in self.columns]

    @property
    def is_followed(self) -> bool:
        """Its rows come from lines of files, and say which."""
        return "offset" in self.names


_SOURCE: Final = (
    Column("source", _FEW, "The file that its line stood in: a hash of the first line there."),
    Column("offset", "UInt64", "Where in that file its line began, in bytes."),
)

REQUESTS: Final = Table(
    "requests",
    "started_at",
    "One row for each request that HTTP could read.",
    (
        Column("node", _FEW, "Host name of the gateway."),
        Column("request_id", _TEXT, "As the client was told it (`x-request-id`).", "request_id"),
        Column("trace_id", _TEXT, "Of the trace that it is part of.", "trace_id"),
        Column("started_at", _TIME, "When it was received."),
        Column("operation", _FEW, "What was asked for: `chat`, `embeddings` and so on.", "operation"),
        Column("outcome", _FEW, "How it ended; exactly one of a fixed set.", "outcome"),
        Column("status", "UInt16", "HTTP status sent to the client; 0 when it left before.", "status"),
        Column("error_code", _FEW, "Code of the error sent; empty without one.", "error_code"),
        Column("cause", _TEXT, "Why it failed, in words for operators.", "cause"),
        Column("duration_s", _SECONDS, "From received to ended.", "duration_s"),
        Column("ttft_s", _MAYBE_SECONDS, "From received to the first output, seen by the gateway; streams only.", "ttft_s"),
        Column("upstream_s", _SECONDS, "Time in which an attempt was running.", "upstream_s"),
        Column("gateway_s", _SECONDS, "The rest of its duration: no attempt was running."),
        Column("queue_s", _MAYBE_SECONDS, "The last attempt's time in the model server's queue, as that server says."),
        Column("prefill_s", _MAYBE_SECONDS, "The last attempt's time of reading the prompt, as the model server says."),
        Column("decode_s", _MAYBE_SECONDS, "The last attempt's time of writing the answer, as the model server says."),
        Column("tpot_s", _MAYBE_SECONDS, "Time per output token after the first; streams only."),
        Column("key_id", _FEW, "Of the API key; empty for a token of an issuer.", "key_id"),
        Column("tenant", _FEW, "Whose request it was.", "tenant"),
        Column("user", _TEXT, "The user within the tenant.", "user"),
        Column("tier", _FEW, "Of the key or token.", "tier"),
        Column("feature", _FEW, "The business feature that the client named.", "feature"),
        Column("context", f"Map({_FEW}, String)", "All that the client said about its business, by name."),
        Column("color", _FEW, "The colour that the client gave its traffic.", "color"),
        Column("unbilled", "Bool", "Nobody owes what it cost.", "unbilled"),
        Column("model", _FEW, "The model name that the client asked for.", "model"),
        Column("route", _FEW, "The route's pattern.", "route"),
        Column("upstream", _FEW, "Who answered.", "upstream"),
        Column("upstream_model", _FEW, "The model name that the upstream was sent.", "upstream_model"),
        Column("replica", _FEW, "The last attempt's."),
        Column("stream", "Bool", "The client asked for a stream.", "stream"),
        Column("finish_reason", _FEW, "As the upstream said it.", "finish_reason"),
        Column("chunks", _COUNT, "Of a stream; not tokens.", "chunks"),
        Column("prompt_tokens", _COUNT, "Cached ones included.", "usage.prompt_tokens"),
        Column("cached_tokens", _COUNT, "Prompt tokens that the upstream had in its cache.", "usage.cached_tokens"),
        Column("cache_write_tokens", _COUNT, "Prompt tokens that it put there.", "usage.cache_write_tokens"),
        Column("completion_tokens", _COUNT, "Thought included.", "usage.completion_tokens"),
        Column("reasoning_tokens", _COUNT, "Completion tokens of thought.", "usage.reasoning_tokens"),
        Column("evidence", _FEW, "How the figures are known: `reported`, `counted`, `estimated`.", "evidence"),
        Column("reserved_tokens", _COUNT, "Held of limits when it was admitted.", "reserved_tokens"),
        Column("cost_micro", "Int64", "Of all attempts, in millionths of the price book's currency.", "cost_micro"),
        Column("price_version", _FEW, "Of the price book; empty where there was no price.", "price_version"),
        Column("traffic_bytes", "UInt64", "Of the request's body and the answer's, as far as known.", "traffic_bytes"),
        Column("degraded", _FEW, "`X-Tidegate-Degraded`, if one was sent.", "degraded"),
        Column("rule", _FEW, "The routing rule that chose the target.", "rule"),
        Column("confidence", _FEW, "`low` for an answer that stands in for a failing kind of prompt.", "confidence"),
        Column("attempts", "UInt8", "How many there were."),
        Column("client_retry", "UInt16", "As OpenAI's SDKs count theirs.", "client_retry"),
        Column("resumed", "Bool", "A client came back for the rest of a stream.", "resumed"),
        Column("cache", _FEW, "What the gateway's own cache did.", "cache"),
        Column("span_id", _TEXT, "Of its span in the trace.", "span_id"),
        Column("parent_span_id", _TEXT, "Of the caller's span.", "parent_span_id"),
        Column("sampled", "Bool", "Its trace is kept by others, too.", "sampled"),
        *_SOURCE,
    ),
)

ATTEMPTS: Final = Table(
    "attempts",
    "started_at",
    "One row for each attempt on a replica.",
    (
        Column("request_id", _TEXT, "The request's."),
        Column("started_at", _TIME, "When the request was received."),
        Column("attempt", "UInt8", "From 1.", "attempt"),
        Column("replica", _FEW, "Whom it went to.", "replica"),
        Column("upstream", _FEW, "The pool of that replica."),
        Column("model", _FEW, "The model name that it was sent.", "model"),
        Column("step", _FEW, "What it was beside the one before; empty for the first.", "step"),
        Column("result", _FEW, "`ok`, `cancelled`, `lost`, or the failure in a word.", "result"),
        Column("status", "UInt16", "The upstream's HTTP status; 0 without one.", "status"),
        Column("began_s", _SECONDS, "Its start, since the request was received.", "began_s"),
        Column("connect_s", _MAYBE_SECONDS, "From its start until connected.", "connect_s"),
        Column("first_byte_s", _MAYBE_SECONDS, "From its start to the status line.", "first_byte_s"),
        Column("first_token_s", _MAYBE_SECONDS, "From its start to the first output.", "first_token_s"),
        Column("queue_s", _MAYBE_SECONDS, "In the model server's queue, as that server says.", "queue_s"),
        Column("prefill_s", _MAYBE_SECONDS, "Reading the prompt, as the model server says.", "prefill_s"),
        Column("decode_s", _MAYBE_SECONDS, "Writing the answer, as the model server says.", "decode_s"),
        Column("duration_s", _SECONDS, "From its start to its end.", "duration_s"),
        Column("upstream_request_id", _TEXT, "The provider's own name for it.", "upstream_request_id"),
        Column("prompt_tokens", _COUNT, "Of the request for the attempt that answered, else as reported.", "usage.prompt_tokens"),
        Column("cached_tokens", _COUNT, "Likewise.", "usage.cached_tokens"),
        Column("completion_tokens", _COUNT, "Likewise.", "usage.completion_tokens"),
        Column("cost_micro", "Int64", "Its part of the request's.", "cost_micro"),
        *_SOURCE,
    ),
)

SAMPLES: Final = Table(
    "samples",
    "at",
    "What machines and model servers measured, about once a second.",
    (
        Column("at", _TIME, "When it was measured."),
        Column("node", _FEW, "Host name of the gateway that asked."),
        Column("replica", _FEW, "Whose figure it is; empty for the gateway's machine."),
        Column("source", _FEW, "Who measured: `nvml`, `dmon`, `dcgm`, `vllm`, `llamacpp`, `triton`, `cpu`."),
        Column("metric", _FEW, "What was measured, with its unit at the end."),
        Column("device", _FEW, "Which one of several."),
        Column("value", "Float64", "The figure."),
    ),
)

BODIES: Final = Table(
    "bodies",
    "started_at",
    "What was asked and answered, where the audit policy keeps it.",
    (
        Column("request_id", _TEXT, "The request's.", "request_id"),
        Column("started_at", _TIME, "When the request was received."),
        Column("kind", _FEW, "`request` or `response`.", "kind"),
        Column("policy", _FEW, "`metadata`, `redacted` or `full`.", "policy"),
        Column("body", _TEXT, "The text, after the policy.", "body"),
        Column("truncated", "Bool", "There was more.", "truncated"),
        Column("bytes", "UInt64", "Of the whole body, as it came or went.", "bytes"),
        Column("sha256", _TEXT, "Of the whole body, as it came or went.", "sha256"),
        *_SOURCE,
    ),
)

TABLES: Final = (REQUESTS, ATTEMPTS, SAMPLES, BODIES)
BY_NAME: Final = {table.name: table for table in TABLES}


def page() -> Iterator[str]:
    """Give the lines of the page that documents every column."""
    for table in TABLES:
        yield from ("", f"## {table.name}", "", table.sentence, "", "| column | type | |", "|---|---|---|")
        yield from (f"| `{column.name}` | `{column.type}` | {column.sentence} |" for column in table.columns)
