"""What is asked of the records for each cause: SQL over the tables of `analytics.schema`, and the sentence that tells its row.

Every statement gives one row and never fails for lack of rows: a figure without any is null. Thresholds are where a person would begin to
care, and stand in the SQL beside what they are for.
"""

from __future__ import annotations

from typing import Final

from tidegate.doctor.symptoms import RecordEvidence

_MIDDLE: Final = "{middle:DateTime64(3, 'UTC')}"


def _share(
    condition: str, told: str, *, of: str = "1", wants: str = "", least: float = 0.01, table: str = "requests", more: str = ""
) -> RecordEvidence:
    """Ask which share of some rows is such; from `least` on it shows."""
    sql = (
        f"SELECT countIf({of}) AS seen, countIf(({of}) AND ({condition})) AS found, if(seen = 0, 0, found / seen) AS share, "  # noqa: S608
        f"share >= {least} AS holds{', ' + more if more else ''} FROM {table} WHERE $span"
    )
    return RecordEvidence(sql, told, wants or table)


def _rise(figure: str, told: str, *, of: str, wants: str, least: float = 1.1) -> RecordEvidence:
    """Ask by which factor a figure rose beside as long a time before."""
    sql = (
        f"WITH started_at >= {_MIDDLE} AS late SELECT countIf(late AND ({of})) AS seen, countIf(NOT late AND ({of})) AS "  # noqa: S608
        f"seen_before, "
        f"{figure.replace('$half', f'late AND ({of})')} AS after, {figure.replace('$half', f'NOT late AND ({of})')} AS before, "
        f"if(seen_before = 0 OR before = 0, NULL, after / before) AS factor, ifNull(factor >= {least}, 0) AS holds FROM "
        f"requests WHERE $span"
    )
    both = f"{wants} in that time and in as long a time before, and there are {{seen}} and {{seen_before}}"
    return RecordEvidence(sql, told, both, compared=True)


ANSWERED: Final = "outcome IN ('ok', 'truncated')"
CACHE_MISSES: Final = RecordEvidence(
    "WITH cached_tokens < 0.1 * prompt_tokens AS missed SELECT count() AS seen, if(seen = 0, 0, countIf(missed) / seen) AS share, "
    "quantileIf(0.5)(ttft_s, missed) AS missed_s, quantileIf(0.5)(ttft_s, NOT missed) AS found_s, "
    "ifNull(share >= 0.1 AND share < 1 AND missed_s >= 1.5 * found_s, 0) AS holds "
    "FROM requests WHERE $span AND prompt_tokens >= 1024 AND isNotNull(ttft_s)",
    "{share} of {seen} streams with long prompts found next to nothing in the prefix cache; half of those waited {missed_s} or more for "
    "their first output, half of the others {found_s} or more.",
    "streams with prompts of 1,024 tokens or more",
)
QUEUE_TAIL: Final = RecordEvidence(
    "SELECT count(queue_s) AS seen, quantile(0.5)(queue_s) AS usual_s, quantile(0.99)(queue_s) AS longest_s, "
    "ifNull(longest_s >= 0.2 AND longest_s >= 10 * usual_s, 0) AS holds FROM requests WHERE $span",
    "of {seen} requests whose model server tells its queue, half waited {usual_s} or more, one in a hundred {longest_s} or more.",
    "requests whose model server tells its queue",
)
_WAITED_S: Final = "greatest(ifNull(queue_s, if(attempts = 1, duration_s - gateway_s - prefill_s - decode_s, NULL)), 0)"
"""A server that tells no queue (llama.cpp) is believed its own reading and writing; the rest of the attempt was waiting, or the way."""
QUEUE_SHARE: Final = RecordEvidence(
    f"SELECT count({_WAITED_S}) AS seen, if(sumIf(duration_s, isNotNull({_WAITED_S})) = 0, 0, "  # noqa: S608
    f"sum({_WAITED_S}) / sumIf(duration_s, isNotNull({_WAITED_S}))) AS share, avg({_WAITED_S}) AS mean_s, "
    "(SELECT maxOrNull(value) FROM samples WHERE $sampled "
    "AND metric IN ('vllm.requests_waiting', 'llamacpp.requests_waiting')) AS waiting, "
    "ifNull(share >= 0.2, 0) AS holds FROM requests WHERE $span",
    "{share} of the time of {seen} requests was waiting for the model server, {mean_s} each; at most {waiting} waited at once.",
    "requests whose model server tells how long it worked on them",
)
SATURATED: Final = RecordEvidence(
    "SELECT count() AS seen, if(seen = 0, 0, countIf(value >= 0.9) / seen) AS share, max(value) AS most_share, share >= 0.2 AS holds "
    "FROM samples WHERE $sampled AND metric = 'gpu.memory_bandwidth_ratio'",
    "in {share} of {seen} samples the GPU's memory bandwidth was at 90 % or more.",
    "samples of a GPU's memory bandwidth (sampling.gpu)",
)
CACHE_FULL: Final = RecordEvidence(
    "SELECT countIf(metric = 'vllm.kv_cache_ratio') AS seen, if(seen = 0, 0, countIf(metric = 'vllm.kv_cache_ratio' AND "
    "value >= 0.95) / seen) "
    "AS share, sumIf(value, metric = 'vllm.preemptions') AS preempted, share >= 0.05 OR preempted > 0 AS holds "
    "FROM samples WHERE $sampled AND metric IN ('vllm.kv_cache_ratio', 'vllm.preemptions')",
    "in {share} of {seen} samples the KV cache was full (95 % or more), and {preempted} requests were thrown out of a "
    "batch for lack of it.",
    "samples of vLLM's KV cache (sampling.scrape)",
)
LARGE_FAIL: Final = RecordEvidence(
    "SELECT count() AS seen, if(seen = 0, 0, countIf(failed) / seen) AS share, quantileIf(0.5)(prompt_tokens, failed) AS failed_tokens, "
    "quantileIf(0.5)(prompt_tokens, NOT failed) AS usual_tokens, ifNull(share > 0 AND failed_tokens >= 2 * usual_tokens, 0) AS holds "
    "FROM (SELECT prompt_tokens, startsWith(outcome, 'failed_') OR outcome = 'model_error' AS failed FROM requests WHERE $span "
    "AND prompt_tokens > 0)",
    "{share} of {seen} requests failed at the model; half of those had {failed_tokens} prompt tokens or more, of the "
    "others {usual_tokens}.",
    "requests with prompt tokens",
)
GATEWAY_SHARE: Final = RecordEvidence(
    "SELECT count() AS seen, if(sum(duration_s) = 0, 0, sum(gateway_s) / sum(duration_s)) AS share, "
    "quantile(0.99)(gateway_s) AS longest_s, "
    "share >= 0.1 AS holds FROM requests WHERE $span AND attempts > 0",
    "{share} of the time of {seen} requests passed while no attempt was running (pauses before retries too); for one in a "
    "hundred {longest_s}.",
    "requests with an attempt",
)
COLD: Final = RecordEvidence(
    "SELECT countIf(idle) AS seen, quantileIf(0.5)(first_token_s, idle) AS cold_s, quantileIf(0.5)(first_token_s, NOT idle) AS warm_s, "
    "ifNull(cold_s >= 2 * warm_s, 0) AS holds FROM (SELECT first_token_s, started_at > addSeconds(before, 300) AS idle FROM ("
    "SELECT first_token_s, started_at, lagInFrame(started_at) OVER replicas AS before, row_number() OVER replicas AS place FROM attempts "
    "WHERE $span AND isNotNull(first_token_s) WINDOW replicas AS (PARTITION BY replica ORDER BY started_at ROWS BETWEEN "
    "UNBOUNDED PRECEDING "
    "AND CURRENT ROW)) WHERE place > 1)",
    "{seen} attempts came to a replica that had been idle for five minutes: half of them waited {cold_s} or more, half of "
    "the others {warm_s}.",
    "attempts at a replica that had been idle for five minutes",
)
CONNECTING: Final = RecordEvidence(
    "SELECT count(connect_s) AS seen, if(sum(first_token_s) = 0, 0, sumIf(connect_s, isNotNull(first_token_s)) / "
    "sum(first_token_s)) AS share, "
    "quantile(0.99)(connect_s) AS longest_s, ifNull(share >= 0.2, 0) AS holds FROM attempts WHERE $span",
    "connecting made up {share} of the time to the first output; for one attempt in a hundred it took {longest_s}.",
    "attempts that opened a connection",
)
SLOW_REPLICA: Final = RecordEvidence(
    "SELECT countIf(n >= 20) AS seen, argMaxIf(replica, ratio, n >= 20) AS worst, maxIf(ratio, n >= 20) AS factor, max(n) AS most, "
    "seen >= 2 AND factor >= 1.5 AS holds FROM (SELECT replica, count() AS n, quantile(0.5)(first_token_s / usual_s) AS ratio FROM ("
    "SELECT replica, model, toUInt8(2 * log2(prompt_tokens + 1)) AS size, first_token_s FROM attempts "
    "WHERE $span AND first_token_s > 0) AS one INNER JOIN (SELECT model, toUInt8(2 * log2(prompt_tokens + 1)) AS size, "
    "quantile(0.5)(first_token_s) AS usual_s FROM attempts WHERE $span AND first_token_s > 0 "
    "GROUP BY model, size) AS usual USING (model, size) GROUP BY replica)",
    "of {seen} replicas {worst} is the slowest: its first outputs take {factor} times as long as usual for their model and prompt length.",
    "20 attempts of one replica that came to a first output, and the busiest has {most}",
)
CROWDED_REPLICA: Final = RecordEvidence(
    "SELECT sum(n) AS seen, count() AS replicas, argMax(replica, n) AS busiest, if(seen = 0, 0, max(n) / seen) AS share, "
    "replicas > 1 AND share * replicas >= 2 AS holds FROM (SELECT replica, count() AS n FROM attempts WHERE $span GROUP BY replica)",
    "{busiest} has {share} of {seen} attempts on {replicas} replicas.",
    "attempts",
)
RETRIED: Final = RecordEvidence(
    "SELECT countIf(attempts > 0) AS seen, if(seen = 0, 0, countIf(attempts > 1) / seen) AS share, sum(attempts) / "
    "greatest(seen, 1) AS factor, "
    "factor >= 1.1 AS holds FROM requests WHERE $span",
    "{share} of {seen} requests needed more than one attempt: {factor} attempts for each.",
    "requests with an attempt",
)
BURSTS: Final = RecordEvidence(
    "SELECT sum(refused) AS seen, max(n) AS most, avg(n) AS mean, seen > 0 AND most >= 3 * mean AS holds FROM (SELECT "
    "toUnixTimestamp(started_at) AS second, count() AS n, countIf(outcome = 'rejected_rate_limit') AS refused FROM requests WHERE $span "
    "GROUP BY second)",
    "{seen} requests were refused for a limit; the busiest second had {most} requests, beside {mean} in others.",
    "requests that were refused for a limit",
)
HELD_TOO_MUCH: Final = RecordEvidence(
    "SELECT count() AS seen, sum(reserved_tokens) / greatest(sum(prompt_tokens + completion_tokens), 1) AS factor, factor >= 1.5 AS holds "
    "FROM requests WHERE $span AND reserved_tokens > 0 AND prompt_tokens > 0",
    "{seen} requests held {factor} times the tokens that they used in the end.",
    "requests that held tokens of a limit",
)
WASTED: Final = RecordEvidence(
    "SELECT count() AS seen, if(sum(cost_micro) = 0, 0, sumIf(cost_micro, result != 'ok') / sum(cost_micro)) AS share, "
    "share >= 0.02 AS holds "
    "FROM attempts WHERE $span AND cost_micro > 0",
    "{share} of what {seen} attempts cost went into those that gave no whole answer.",
    "attempts that cost something",
)
OVERLOADED: Final = _share("outcome = 'rejected_overload'", "{share} of {seen} requests were refused because the gateway was full.")
SPENT: Final = _share(
    "outcome = 'rejected_budget'", "{share} of {seen} requests ({found}) were refused because a budget was spent.", least=0.001
)
FAILED: Final = _share("outcome = 'failed_upstream'", "{share} of {seen} requests ({found}) failed at every attempt.", least=0.001)
TIMED_OUT: Final = _share("outcome = 'failed_timeout'", "{share} of {seen} requests ({found}) ended because a clock ran out.", least=0.001)
NO_REPLICA: Final = _share(
    "outcome = 'rejected_no_replica'", "{share} of {seen} requests ({found}) found no replica that could be used.", least=0.001
)
KEYS_REFUSED: Final = _share(
    "outcome IN ('rejected_unauthenticated', 'rejected_forbidden')",
    "{share} of {seen} requests ({found}) were refused for their key.",
    least=0.001,
)
UPSTREAM_KEYS: Final = _share(
    "error_code = 'upstream_credentials_rejected'",
    "for {share} of {seen} requests ({found}) an upstream refused the gateway's key.",
    least=0.001,
)
FEW_AT_ONCE: Final = RecordEvidence(
    "SELECT count() AS seen, avg(value) AS mean_factor, max(value) AS most, ifNull(mean_factor < 1.5, 0) AS holds FROM samples "
    "WHERE $sampled AND metric IN ('vllm.requests_running', 'llamacpp.requests_running')",
    "in {seen} samples {mean_factor} requests were at work at a replica on average, at most {most}.",
    "samples of how many requests a model server works on (sampling.scrape)",
)
FILTERED: Final = _share(
    "outcome = 'content_filter'",
    "{share} of {seen} requests ({found}) got an answer that the provider withheld.",
    of="status < 400",
    wants="requests that were answered",
)
THOUGHT_OUT: Final = _share(
    "outcome = 'truncated' AND reasoning_tokens > 0 AND reasoning_tokens >= 0.95 * completion_tokens",
    "{share} of {seen} answers ({found}) were all thought: the limit was used up before a word of the answer.",
    of=ANSWERED,
    wants="answers",
)
MODEL_ERRORS: Final = _share(
    "outcome = 'model_error'", "{share} of {seen} requests ({found}) got a 200 whose body says that generation failed.", least=0.001
)
TRUNCATED: Final = _share(
    "outcome = 'truncated'", "{share} of {seen} answers ({found}) were cut at an output limit.", of=ANSWERED, wants="answers"
)
SHORTENED: Final = _share(
    "position(degraded, 'reason=shortened') > 0 OR position(degraded, 'reason=over_budget') > 0",
    "for {share} of {seen} requests ({found}) the gateway itself lowered the limit, to fit a budget or in a retry.",
)
BROKEN_STREAMS: Final = _share(
    "outcome = 'failed_mid_stream'",
    "{share} of {seen} streams ({found}) broke after they had begun.",
    of="stream",
    wants="streams",
    least=0.001,
)
STALLED: Final = _share(
    "result = 'timeout_stall'",
    "{share} of {seen} attempts ({found}) were given up because a stream fell silent.",
    table="attempts",
    least=0.001,
)
LEFT: Final = _share(
    "outcome = 'client_cancelled'",
    "in {share} of {seen} streams ({found}) the client left before the end, half of them after {after_s} or more.",
    of="stream",
    wants="streams",
    least=0.02,
    more="quantileIf(0.5)(duration_s, stream AND outcome = 'client_cancelled') AS after_s",
)
LONG_PROMPTS: Final = _share(
    "prompt_tokens >= 32000",
    "{share} of {seen} requests ({found}) have 32,000 prompt tokens or more; the longest has {most}.",
    of="prompt_tokens > 0",
    wants="requests with prompt tokens",
    least=0.02,
    more="max(prompt_tokens) AS most",
)
TOO_LONG: Final = _share(
    "error_code = 'context_length_exceeded'", "{share} of {seen} requests ({found}) were too long for their model.", least=0.001
)
UPSTREAM_LIMIT: Final = _share(
    "result = 'status_429'", "{share} of {seen} attempts ({found}) were refused by the upstream's own limit.", table="attempts", least=0.001
)
NOT_REPORTED: Final = _share(
    "evidence != 'reported'",
    "of {seen} answers, {share} ({found}) have figures that no upstream reported.",
    of=ANSWERED,
    wants="answers",
    least=0.02,
)
CLIENT_RETRIES: Final = _share("client_retry > 0", "{share} of {seen} requests ({found}) are a client's own second try or later.")
DEGRADED: Final = _share("degraded != ''", "{share} of {seen} requests ({found}) got less than they asked for (X-Tidegate-Degraded).")
LONGER_PROMPTS: Final = _rise(
    "avgIf(prompt_tokens, $half)",
    "prompts have {after} tokens, {before} before: a factor of {factor}.",
    of="prompt_tokens > 0",
    wants="requests with prompt tokens",
)
LONGER_ANSWERS: Final = _rise(
    "avgIf(completion_tokens, $half)", "answers have {after} tokens, {before} before: a factor of {factor}.", of=ANSWERED, wants="answers"
)
FEWER_HITS: Final = _rise(
    "1 - sumIf(cached_tokens, $half) / sumIf(prompt_tokens, $half)",
    "the part of prompt tokens that is not in the prefix cache rose by a factor of {factor}.",
    of="prompt_tokens > 0",
    wants="requests with prompt tokens",
)
DEARER_TOKENS: Final = _rise(
    "sumIf(cost_micro, $half) / sumIf(prompt_tokens + completion_tokens, $half)",
    "a token costs {factor} times what it did before: dearer models or another price list.",
    of="cost_micro > 0",
    wants="requests that cost something",
)
