"""The table from what people see to why, what to change, and the command that shows it.

It gathers what operators of large model services meet again and again. Settings are ours, or those that the servers' own manuals have:
vLLM's (paging is always on there, prefix caching unless it is turned off), llama.cpp's, Kubernetes'. `symptoms` says how terms are found.
"""

from __future__ import annotations

from typing import Final

from tidegate.doctor import evidence, words
from tidegate.doctor.symptoms import Cause, Symptom

_RETRIES: Final = Cause(
    "First attempts fail, and the retry's time is added.",
    "Find the failing replica; lower breaker.failure_ratio or retry.max_attempts, or raise the clock that is too short.",
    "tidegate query errors --by replica",
    evidence.RETRIED,
)
_ONE_REPLICA: Final = Cause(
    "One replica is slower than the others: other hardware, a neighbour on its GPU, heat, a fault.",
    "Look at its GPU beside the others'; set pick: peak_ewma and breaker.ttft_s, so that requests go around it; drain it in the console.",
    "tidegate query replicas",
    evidence.SLOW_REPLICA,
)
_CACHE: Final = Cause(
    "Some prompts are found in the prefix cache and others are computed anew.",
    "Begin prompts with what is always the same, put times and names last; set affinity: session, so that a conversation stays where its "
    'cache is. OpenRouter and DashScope want cache_control: {"type": "ephemeral"} in the message; llama.cpp takes cache_prompt.',
    "tidegate query cache --by route",
    evidence.CACHE_MISSES,
)
_QUEUE: Final = Cause(
    "Requests wait in the model server's queue: there are more than it takes at once.",
    "Add replicas, or limit who floods them (limits.rules, of: concurrency); vLLM: --max-num-seqs, while its KV cache has room.",
    "tidegate query slowest",
    evidence.QUEUE_SHARE,
)
_BANDWIDTH: Final = Cause(
    "The GPU's memory bandwidth is full: every token of every answer reads the weights.",
    "Fewer requests at once, a quantised model, or more GPUs; vLLM: --kv-cache-dtype fp8.",
    "tidegate query slow-vip-code",
    evidence.SATURATED,
)
_OVER_LIMIT: Final = Cause(
    "The answer was cut at the output limit (finish_reason: length).",
    "Set max_completion_tokens to 1.2 times the longest answer you expect; thought counts, too. A JSON schema "
    "(response_format: json_schema) keeps answers short.",
    "tidegate query \"SELECT feature, countIf(outcome = 'truncated') / count() AS share FROM requests GROUP BY feature\"",
    evidence.TRUNCATED,
)
_BROKEN: Final = Cause(
    "The model server, or something between, closed the stream after it had begun.",
    "Look at that server's log at that time (out of memory, restart, deadline); give it time to end when it is replaced "
    "(terminationGracePeriodSeconds).",
    "tidegate query errors --by replica",
    evidence.BROKEN_STREAMS,
)
_THOUGHT: Final = Cause(
    "The model thought until the limit was reached, and never came to the answer.",
    "Raise max_completion_tokens, which counts thought, or set reasoning_effort or thinking_budget.",
    "tidegate query \"SELECT model, avg(reasoning_tokens) FROM requests WHERE outcome = 'truncated' GROUP BY model\"",
    evidence.THOUGHT_OUT,
)
_MODEL_ERROR: Final = Cause(
    "The model server answered 200 and said in the body that generation failed.",
    "Such answers are counted as model_error and tried again elsewhere: look at that server's log.",
    "tidegate query errors --by model",
    evidence.MODEL_ERRORS,
)
_DRIFT: Final = Cause(
    "The vocabulary that we count with is not the model's: Qwen3.5 and later have 248 thousand entries, earlier ones 152 thousand.",
    "Correct upstreams.NAME.tokenizer, or leave it out; the doctor compares a count with what the upstream reports.",
    "tidegate doctor --ask",
)
_LONG: Final = Cause(
    "Prompts are so long that the model attends little to their middle.",
    "Say first what is asked, then the passages that matter (32,000 tokens or fewer), background last; send fewer passages. A rule with "
    "min_prompt_tokens can send long prompts to a model made for them.",
    'tidegate query "SELECT feature, quantile(0.9)(prompt_tokens) FROM requests GROUP BY feature"',
    evidence.LONG_PROMPTS,
)
_CACHE_FULL: Final = Cause(
    "The KV cache is full: batches hold more tokens than it has room for.",
    "vLLM: lower --max-num-seqs, --max-num-batched-tokens or --max-model-len, or set --kv-cache-dtype fp8; here: limits.rules with "
    "of: concurrency for long prompts' route.",
    "tidegate query \"SELECT replica, max(value) FROM samples WHERE metric = 'vllm.kv_cache_ratio' GROUP BY replica\"",
    evidence.CACHE_FULL,
)
_SHORTENED: Final = Cause(
    "The gateway made the answer shorter: a route's budget, or a step of its ladder.",
    "Raise the route's budget.tokens or shortest_answer_tokens, or ladder.output_ratio.",
    "tidegate query \"SELECT route, degraded, count() FROM requests WHERE degraded != '' GROUP BY route, degraded\"",
    evidence.SHORTENED,
)
_SHORT_BEHIND_LONG: Final = Cause(
    "Short requests wait behind long prompts in the same batch.",
    "Send long prompts to a pool of their own (a rule with min_prompt_tokens); vLLM: a lower --max-num-batched-tokens.",
    "tidegate query slowest",
    evidence.QUEUE_TAIL,
)
_COLD: Final = Cause(
    "The replica is cold: it loads weights and compiles kernels at its first request.",
    "Send one request for one token after its start, and call it ready only then (Kubernetes: startupProbe); `tidegate doctor "
    "--ask` sends such a one. Raise timeouts.first_token_s if it is given up before.",
    "tidegate query replicas",
    evidence.COLD,
)
_CONNECTING: Final = Cause(
    "Connections are opened anew: name, TCP, TLS.",
    "Raise upstreams.NAME.idle_timeout_s, as long as that server keeps its side open.",
    'tidegate query "SELECT replica, quantile(0.99)(connect_s) FROM attempts GROUP BY replica"',
    evidence.CONNECTING,
)
_CROWDED: Final = Cause(
    "It gets more than its share, by weights or by conversations that stay with it.",
    "Set pick: least_in_flight or peak_ewma; look at weight; with affinity: session, see whether one session is very busy.",
    "tidegate query replicas",
    evidence.CROWDED_REPLICA,
)
_GATEWAY: Final = Cause(
    "Time is lost beside the attempts: pauses before retries, limits that are waited for, a gateway without a free core.",
    "Look at the gateway's CPU; set server.workers to its cores; lower retry.max_attempts.",
    "tidegate query why-p99",
    evidence.GATEWAY_SHARE,
)
_OVERLOADED: Final = Cause(
    "The gateway refuses what would not fit into its memory.",
    "Raise server.max_buffered_bytes or workers; smaller bodies help most.",
    "tidegate query errors",
    evidence.OVERLOADED,
)
_NO_REPLICA: Final = Cause(
    "No replica may be used: breakers are open, health checks fail, or somebody drained them.",
    "See each upstream's line, mend what it names, and enable again in the console what was drained.",
    "tidegate doctor",
    evidence.NO_REPLICA,
)

SYMPTOMS: Final = (
    Symptom(
        "Latency jitters.",
        words.JITTER,
        (
            _CACHE,
            _SHORT_BEHIND_LONG,
            _ONE_REPLICA,
            _RETRIES,
        ),
    ),
    Symptom(
        "JSON comes broken.",
        words.JSON,
        (
            _OVER_LIMIT,
            _SHORTENED,
            _BROKEN,
            Cause(
                "The model was not held to JSON.",
                'Send response_format: {"type": "json_schema", …} where the upstream takes it, and check answers before use.',
                "tidegate bench --help",
            ),
        ),
    ),
    Symptom(
        "Words come split, or characters garbled.",
        words.GARBLED,
        (
            Cause(
                "The client decodes each piece of the stream by itself, and a piece may end within a character.",
                "Decode with an incremental decoder, or use an SDK. Tidegate passes whole events on, and bytes within them as they came.",
                "tidegate conformance --list",
            ),
            Cause(
                "The client takes a chunk for a token or a word, and joins chunks with spaces or trims them.",
                "Join the contents of all chunks with nothing between; a word may come in several.",
                'tidegate query "SELECT upstream, sum(completion_tokens) / sum(chunks) FROM requests WHERE chunks > 0 GROUP BY upstream"',
            ),
            Cause(
                "The model server runs with the tokenizer of another model.",
                "vLLM: start it without --tokenizer, so that the model's own is used; llama.cpp: make the GGUF file again.",
                "tidegate doctor --ask",
            ),
        ),
    ),
    Symptom(
        "Answers refer to the wrong part of a long text.",
        words.LONG_TEXT,
        (
            _LONG,
            Cause(
                "The end of the text never reached the model: it was too long, and someone shortened it.",
                "vLLM: raise --max-model-len; in the client, count before sending (/tokenize), and cut by sections.",
                "tidegate query errors",
                evidence.TOO_LONG,
            ),
            _OVER_LIMIT,
        ),
    ),
    Symptom(
        "Memory runs out when requests come in batches.",
        words.MEMORY,
        (
            _CACHE_FULL,
            Cause(
                "A few very long prompts need all of it.",
                "vLLM: --max-model-len, --max-num-batched-tokens; here: a rule with min_prompt_tokens to a pool of its own, and a limit of "
                "concurrency for it.",
                "tidegate query errors --by upstream",
                evidence.LARGE_FAIL,
            ),
            _MODEL_ERROR,
            Cause(
                "The local model has less memory than its slots and context want.",
                "Lower local_engine.slots or context_tokens, or raise memory_limit_bytes.",
                "tidegate doctor engine",
            ),
        ),
    ),
    Symptom(
        "The first call is slow.",
        words.COLD,
        (
            _COLD,
            _CONNECTING,
        ),
    ),
    Symptom(
        "Answers are empty although the call succeeded.",
        words.EMPTY,
        (
            Cause(
                "The provider's content filter withheld the answer: 200, no text, finish_reason: content_filter.",
                "Read finish_reason before the text, and tell the user. It is no error to retry: have those who write the prompts look at "
                "what is asked.",
                "tidegate query content-filter --by feature",
                evidence.FILTERED,
            ),
            _THOUGHT,
            _MODEL_ERROR,
        ),
    ),
    Symptom(
        "429 comes although the limit is not reached.",
        words.LIMITED,
        (
            Cause(
                "Requests come in bursts: a limit of a minute is used up in some of its seconds.",
                "Let clients wait as Retry-After says, and spread jobs; a rule with burst lets a steady rate through.",
                'tidegate query "SELECT toStartOfSecond(started_at) AS second, count() AS n FROM requests GROUP BY second ORDER BY n DESC"',
                evidence.BURSTS,
            ),
            Cause(
                "It is not our limit but the upstream's: a burst rate, or the account's.",
                "Add an account or a second upstream to the route; spread requests; ask the provider for more.",
                "tidegate query errors --by upstream",
                evidence.UPSTREAM_LIMIT,
            ),
            Cause(
                "Requests hold far more tokens than they use, because of a high max_tokens.",
                "Set reserve.method: learned, and lower max_tokens in clients.",
                'tidegate query "SELECT feature, avg(reserved_tokens), avg(completion_tokens) FROM requests GROUP BY feature"',
                evidence.HELD_TOO_MUCH,
            ),
            Cause(
                "It is a budget that is spent, not a limit: that is answered with 429, too, and the code budget_exceeded.",
                "Raise the ceiling of its rule (limits.rules), or wait for its period's end.",
                "tidegate usage",
                evidence.SPENT,
            ),
            Cause(
                "The store that shares limits is away, and each process keeps to its share.",
                "See the store's line of the doctor; on_store_down says what holds meanwhile.",
                "tidegate doctor",
            ),
        ),
    ),
    Symptom(
        "The same requests cost more.",
        words.COST,
        (
            Cause(
                "Prompts became longer: whole pages with their HTML, more history, more passages.",
                "Strip what is not text, shorten the history; a route's budget stops the worst.",
                "tidegate query cost --by feature",
                evidence.LONGER_PROMPTS,
            ),
            Cause(
                "Fewer prompt tokens come out of the prefix cache, which is cheaper.",
                "See what changed at the beginning of prompts: a time, a name, the order of tools.",
                "tidegate query cache --by feature",
                evidence.FEWER_HITS,
            ),
            Cause(
                "Answers became longer, thought included.",
                "Set max_completion_tokens; reasoning_effort or enable_thinking: false.",
                "tidegate query cost --by model",
                evidence.LONGER_ANSWERS,
            ),
            Cause(
                "Tokens became dearer: a dearer model answers, or the price list changed.",
                "See which target answers, and why: a fallback, a rule, another price version.",
                "tidegate query cost --by price_version",
                evidence.DEARER_TOKENS,
            ),
            Cause(
                "Attempts that gave no answer are paid for, too.",
                "Find what fails late; on_client_leave: cancel ends calls whose client left.",
                "tidegate query errors --by replica",
                evidence.WASTED,
            ),
        ),
    ),
    Symptom(
        "The first token takes longer on one replica.",
        words.ONE_REPLICA,
        (
            _ONE_REPLICA,
            _CROWDED,
            _BANDWIDTH,
        ),
    ),
    Symptom(
        "Streams end without [DONE].",
        words.NO_DONE,
        (
            _BROKEN,
            Cause(
                "The stream fell silent for longer than it may, and was given up.",
                "Raise timeouts.stall_s if that model pauses (thought, tools), else look at its load.",
                "tidegate query errors --by upstream",
                evidence.STALLED,
            ),
            Cause(
                "It was the client's side that closed: a proxy's idle timeout, a page that was left, an SDK's deadline.",
                "Set streams.heartbeat_s below the proxy's timeout and turn its buffering off; clients can come back with "
                "X-Tidegate-Resumable: 1.",
                "tidegate query \"SELECT round(duration_s) AS s, count() FROM requests WHERE outcome = 'client_cancelled' GROUP BY s\"",
                evidence.LEFT,
            ),
        ),
    ),
    Symptom(
        "Everything is slow at a peak.",
        words.SLOW,
        (
            _QUEUE,
            _BANDWIDTH,
            _GATEWAY,
            _OVERLOADED,
            _RETRIES,
        ),
    ),
    Symptom(
        "Token counts are wrong.",
        words.COUNTS,
        (
            _DRIFT,
            Cause(
                "The upstream does not report usage, or the client left before it came, so it is counted or estimated.",
                "The gateway asks for it; on_client_leave: drain waits for it. See whether a proxy strips stream_options.",
                'tidegate query "SELECT upstream, evidence, count() FROM requests GROUP BY upstream, evidence"',
                evidence.NOT_REPORTED,
            ),
            Cause(
                "What is held before a request is compared with what it used: it is meant to be more.",
                "Limits and money go by what was used; nothing is lost.",
                'tidegate query "SELECT sum(reserved_tokens), sum(prompt_tokens + completion_tokens) FROM requests"',
                evidence.HELD_TOO_MUCH,
            ),
        ),
    ),
    Symptom(
        "Retries multiply the traffic.",
        words.RETRIES,
        (
            Cause(
                "The gateway tries again often.",
                "Lower retry.max_attempts or retry.budget_ratio, which bounds them all; let breakers open sooner.",
                "tidegate query errors --by replica",
                evidence.RETRIED,
            ),
            Cause(
                "Clients retry on top of it: their tries and ours multiply.",
                "Set max_retries=0 in the clients' SDKs (the gateway retries where that helps), or let them keep to Retry-After.",
                'tidegate query "SELECT user, sum(client_retry) AS tries FROM requests GROUP BY user ORDER BY tries DESC"',
                evidence.CLIENT_RETRIES,
            ),
        ),
    ),
    Symptom(
        "Answers became worse.",
        words.WORSE,
        (
            Cause(
                "Some answers come from a smaller or a standby model, or were made shorter.",
                "The header X-Tidegate-Degraded says so: raise the budget, or mend the first target.",
                'tidegate query "SELECT degraded, rule, upstream_model, count() FROM requests GROUP BY degraded, rule, upstream_model"',
                evidence.DEGRADED,
            ),
            _LONG,
            Cause(
                "People ask other things than before, and the model was tuned for those.",
                "Compare the questions of both times (an audit policy keeps them), and measure with answers that are known.",
                "tidegate query why-p99",
                evidence.LONGER_PROMPTS,
            ),
        ),
    ),
    Symptom("Answers are cut off.", words.CUT, (_OVER_LIMIT, _SHORTENED, _THOUGHT, _BROKEN)),
    Symptom("The first token comes late.", words.FIRST_TOKEN, (_QUEUE, _CACHE, _SHORT_BEHIND_LONG, _COLD, _CONNECTING)),
    Symptom(
        "The GPU is idle while requests are slow.",
        words.IDLE,
        (
            Cause(
                "Too few requests are at work at once: clients send one after another, or a limit holds them back.",
                "Let clients send more at once; raise limits of concurrency here, and vLLM's --max-num-seqs or local_engine.slots there.",
                "tidegate query \"SELECT replica, avg(value) FROM samples WHERE metric LIKE '%requests_running' GROUP BY replica\"",
                evidence.FEW_AT_ONCE,
            ),
            _GATEWAY,
            _CROWDED,
            _NO_REPLICA,
            _BANDWIDTH,
            Cause(
                "The model server computes on the CPU: no driver, a build without CUDA, or layers that were not put on the GPU.",
                "Its log says so at start. llama.cpp: a build with CUDA and --n-gpu-layers 99; vLLM: see its device line.",
                "tidegate doctor --ask",
            ),
        ),
    ),
    Symptom(
        "Requests fail or time out.",
        words.FAILING,
        (
            Cause(
                "The model server is away, breaks connections, or answers with 5xx.",
                "Look at that server's log, and whether it was restarted; a second target in the route takes over meanwhile.",
                "tidegate query errors --by replica",
                evidence.FAILED,
            ),
            Cause(
                "A clock runs out before the answer is there.",
                "See where the time goes (tidegate doctor --request ID): a queue wants replicas, a long answer a higher timeouts.total_s, "
                "a long prompt a higher timeouts.first_token_s.",
                "tidegate query errors --by model",
                evidence.TIMED_OUT,
            ),
            _NO_REPLICA,
            _OVERLOADED,
            _MODEL_ERROR,
        ),
    ),
    Symptom(
        "Keys are refused.",
        words.KEYS,
        (
            Cause(
                "The client's key is wrong, revoked or expired, or may not use that model.",
                "Look it up in the list; make another, or widen this one. The client's base_url must be this gateway's.",
                "tidegate keys list --all",
                evidence.KEYS_REFUSED,
            ),
            Cause(
                "The upstream refuses the gateway's own key.",
                "Correct upstreams.NAME.api_key (wrong, expired, of another provider or region), and reload.",
                "tidegate doctor --ask",
                evidence.UPSTREAM_KEYS,
            ),
        ),
    ),
)
