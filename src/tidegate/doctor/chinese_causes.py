"""The Chinese of symptoms and their causes, by the English that stands in `causes`."""

from __future__ import annotations

from typing import Final

TEXTS: Final = (
    ("Latency jitters.", "延迟忽高忽低。"),
    ("Some prompts are found in the prefix cache and others are computed anew.", "有些提示词命中前缀缓存，有些要重新计算。"),
    (
        (
            "Begin prompts with what is always the same, put times and names last; set affinity: session, so that a conversation "
            'stays where its cache is. OpenRouter and DashScope want cache_control: {"type": "ephemeral"} in the message; '
            "llama.cpp takes cache_prompt."
        ),
        (
            "把不变的内容放在提示词开头，时间和姓名放在最后；设置 affinity: session，使会话留在缓存所在的副本。OpenRouter 和 "
            'DashScope 需要在消息里写 cache_control: {"type": "ephemeral"}；llama.cpp 接受 cache_prompt。'
        ),
    ),
    ("Short requests wait behind long prompts in the same batch.", "短请求在同一批次里等待长提示词。"),
    (
        "Send long prompts to a pool of their own (a rule with min_prompt_tokens); vLLM: a lower --max-num-batched-tokens.",
        "把长提示词送到单独的副本池（带 min_prompt_tokens 的规则）；vLLM：调低 --max-num-batched-tokens。",
    ),
    (
        "One replica is slower than the others: other hardware, a neighbour on its GPU, heat, a fault.",
        "有一个副本比其他的慢：硬件不同、GPU 上有别的任务、过热或故障。",
    ),
    (
        (
            "Look at its GPU beside the others'; set pick: peak_ewma and breaker.ttft_s, so that requests go around it; drain it "
            "in the console."
        ),
        "把它的 GPU 与其他的对比；设置 pick: peak_ewma 和 breaker.ttft_s，让请求绕开它；在控制台中将它排空。",
    ),
    ("First attempts fail, and the retry's time is added.", "首次尝试失败，加上了重试的时间。"),
    (
        "Find the failing replica; lower breaker.failure_ratio or retry.max_attempts, or raise the clock that is too short.",
        "找出失败的副本；调低 breaker.failure_ratio 或 retry.max_attempts，或调高过短的时限。",
    ),
    ("JSON comes broken.", "返回的 JSON 格式错误。"),
    ("The answer was cut at the output limit (finish_reason: length).", "回答在输出上限处被截断（finish_reason: length）。"),
    (
        (
            "Set max_completion_tokens to 1.2 times the longest answer you expect; thought counts, too. A JSON schema "
            "(response_format: json_schema) keeps answers short."
        ),
        (
            "把 max_completion_tokens 设为预期最长回答的 1.2 倍；思考过程也计算在内。使用 JSON schema（response_format: "
            "json_schema）可使回答简短。"
        ),
    ),
    (
        "The gateway made the answer shorter: a route's budget, or a step of its ladder.",
        "网关缩短了回答：路由的预算，或降级阶梯中的一步。",
    ),
    (
        "Raise the route's budget.tokens or shortest_answer_tokens, or ladder.output_ratio.",
        "调高路由的 budget.tokens 或 shortest_answer_tokens，或 ladder.output_ratio。",
    ),
    ("The model server, or something between, closed the stream after it had begun.", "模型服务器或中间的设备在流开始之后关闭了它。"),
    (
        (
            "Look at that server's log at that time (out of memory, restart, deadline); give it time to end when it is replaced "
            "(terminationGracePeriodSeconds)."
        ),
        "查看该服务器当时的日志（内存不足、重启、时限）；替换它时给它时间结束（terminationGracePeriodSeconds）。",
    ),
    ("The model was not held to JSON.", "没有要求模型必须输出 JSON。"),
    (
        'Send response_format: {"type": "json_schema", …} where the upstream takes it, and check answers before use.',
        '在上游支持时发送 response_format: {"type": "json_schema", …}，并在使用之前检查回答。',
    ),
    ("Words come split, or characters garbled.", "单词被拆开，或出现乱码。"),
    (
        "The client decodes each piece of the stream by itself, and a piece may end within a character.",
        "客户端单独解码流的每一块，而一块可能在一个字符中间结束。",
    ),
    (
        ("Decode with an incremental decoder, or use an SDK. Tidegate passes whole events on, and bytes within them as they came."),
        "使用增量解码器，或使用 SDK。Tidegate 传递完整的事件，其中的字节保持原样。",
    ),
    (
        "The client takes a chunk for a token or a word, and joins chunks with spaces or trims them.",
        "客户端把一块当作一个 token 或一个单词，拼接时加了空格或去掉了空白。",
    ),
    (
        "Join the contents of all chunks with nothing between; a word may come in several.",
        "把所有块的内容直接拼接，中间不加任何字符；一个单词可能分几块到达。",
    ),
    ("The model server runs with the tokenizer of another model.", "模型服务器使用了另一个模型的分词器。"),
    (
        "vLLM: start it without --tokenizer, so that the model's own is used; llama.cpp: make the GGUF file again.",
        "vLLM：启动时不带 --tokenizer，以使用模型自己的分词器；llama.cpp：重新生成 GGUF 文件。",
    ),
    ("Answers refer to the wrong part of a long text.", "对长文本的引用位置出错。"),
    ("Prompts are so long that the model attends little to their middle.", "提示词太长，模型对中间部分注意不足。"),
    (
        (
            "Say first what is asked, then the passages that matter (32,000 tokens or fewer), background last; send fewer "
            "passages. A rule with min_prompt_tokens can send long prompts to a model made for them."
        ),
        (
            "先说问题，再给重要的段落（不超过 32,000 个 token），背景放最后；少送一些段落。带 min_prompt_tokens 的规则可以把长提示"
            "词送到专用的模型。"
        ),
    ),
    (
        "The end of the text never reached the model: it was too long, and someone shortened it.",
        "文本的结尾没有到达模型：太长，被截短了。",
    ),
    (
        "vLLM: raise --max-model-len; in the client, count before sending (/tokenize), and cut by sections.",
        "vLLM：调高 --max-model-len；在客户端发送前先计数（/tokenize），并按章节切分。",
    ),
    ("Memory runs out when requests come in batches.", "批量请求时显存或内存用尽。"),
    ("The KV cache is full: batches hold more tokens than it has room for.", "KV 缓存已满：批次中的 token 超过了容量。"),
    (
        (
            "vLLM: lower --max-num-seqs, --max-num-batched-tokens or --max-model-len, or set --kv-cache-dtype fp8; here: "
            "limits.rules with of: concurrency for long prompts' route."
        ),
        (
            "vLLM：调低 --max-num-seqs、--max-num-batched-tokens 或 --max-model-len，或设置 --kv-cache-dtype fp8；网关这边：对长"
            "提示词的路由用 limits.rules 限制并发（of: concurrency）。"
        ),
    ),
    ("A few very long prompts need all of it.", "几个很长的提示词占用了全部容量。"),
    (
        (
            "vLLM: --max-model-len, --max-num-batched-tokens; here: a rule with min_prompt_tokens to a pool of its own, and a "
            "limit of concurrency for it."
        ),
        ("vLLM：--max-model-len、--max-num-batched-tokens；网关这边：用带 min_prompt_tokens 的规则送到单独的副本池，并限制其并发。"),
    ),
    ("The model server answered 200 and said in the body that generation failed.", "模型服务器返回 200，但在响应体中说生成失败。"),
    (
        "Such answers are counted as model_error and tried again elsewhere: look at that server's log.",
        "这样的回答记为 model_error，并在别处重试：查看该服务器的日志。",
    ),
    ("The local model has less memory than its slots and context want.", "本地模型的内存少于其槽位和上下文所需。"),
    (
        "Lower local_engine.slots or context_tokens, or raise memory_limit_bytes.",
        "调低 local_engine.slots 或 context_tokens，或调高 memory_limit_bytes。",
    ),
    ("The first call is slow.", "第一次调用很慢。"),
    (
        "The replica is cold: it loads weights and compiles kernels at its first request.",
        "副本是冷的：第一次请求时才加载权重、编译内核。",
    ),
    (
        (
            "Send one request for one token after its start, and call it ready only then (Kubernetes: startupProbe); `tidegate "
            "doctor --ask` sends such a one. Raise timeouts.first_token_s if it is given up before."
        ),
        (
            "启动之后先发送一个只要一个 token 的请求，然后才视为就绪（Kubernetes：startupProbe）；`tidegate doctor --ask` 会发送这样"
            "的请求。如果在此之前就被放弃，调高 timeouts.first_token_s。"
        ),
    ),
    ("Connections are opened anew: name, TCP, TLS.", "连接每次重新建立：域名解析、TCP、TLS。"),
    (
        "Raise upstreams.NAME.idle_timeout_s, as long as that server keeps its side open.",
        "调高 upstreams.NAME.idle_timeout_s，但不超过该服务器保持连接的时间。",
    ),
    ("Answers are empty although the call succeeded.", "调用成功，回答却是空的。"),
    (
        "The provider's content filter withheld the answer: 200, no text, finish_reason: content_filter.",
        "提供商的内容过滤器扣下了回答：200，没有文本，finish_reason: content_filter。",
    ),
    (
        (
            "Read finish_reason before the text, and tell the user. It is no error to retry: have those who write the prompts "
            "look at what is asked."
        ),
        "先读 finish_reason 再读文本，并告知用户。这不是应当重试的错误：请编写提示词的人检查提问内容。",
    ),
    ("The model thought until the limit was reached, and never came to the answer.", "模型一直思考到上限，没有给出回答。"),
    (
        "Raise max_completion_tokens, which counts thought, or set reasoning_effort or thinking_budget.",
        "调高 max_completion_tokens（思考也计算在内），或设置 reasoning_effort 或 thinking_budget。",
    ),
    ("429 comes although the limit is not reached.", "没有到上限却出现 429。"),
    ("Requests come in bursts: a limit of a minute is used up in some of its seconds.", "请求突发：一分钟的额度在几秒之内就用完了。"),
    (
        "Let clients wait as Retry-After says, and spread jobs; a rule with burst lets a steady rate through.",
        "让客户端按 Retry-After 等待，并把任务分散开；带 burst 的规则可以放行平稳的速率。",
    ),
    ("It is not our limit but the upstream's: a burst rate, or the account's.", "这不是我们的限制，而是上游的：突发速率，或账户的额度。"),
    (
        "Add an account or a second upstream to the route; spread requests; ask the provider for more.",
        "为路由增加一个账户或第二个上游；把请求分散开；向提供商申请更多额度。",
    ),
    (
        "Requests hold far more tokens than they use, because of a high max_tokens.",
        "由于 max_tokens 很高，请求占用的 token 远多于实际使用。",
    ),
    ("Set reserve.method: learned, and lower max_tokens in clients.", "设置 reserve.method: learned，并在客户端调低 max_tokens。"),
    (
        "It is a budget that is spent, not a limit: that is answered with 429, too, and the code budget_exceeded.",
        "这是用完的预算，而不是限流：它同样返回 429，错误码为 budget_exceeded。",
    ),
    (
        "Raise the ceiling of its rule (limits.rules), or wait for its period's end.",
        "调高该规则的 ceiling（limits.rules），或等待其周期结束。",
    ),
    ("The store that shares limits is away, and each process keeps to its share.", "共享限额的存储无法访问，每个进程只使用自己的份额。"),
    (
        "See the store's line of the doctor; on_store_down says what holds meanwhile.",
        "看诊断中该存储的一行；on_store_down 说明此期间如何处理。",
    ),
    ("The same requests cost more.", "同样的请求费用更高。"),
    (
        "Prompts became longer: whole pages with their HTML, more history, more passages.",
        "提示词变长了：带 HTML 的整个网页、更多历史、更多段落。",
    ),
    (
        "Strip what is not text, shorten the history; a route's budget stops the worst.",
        "去掉不是文本的内容，缩短历史；路由的预算可以挡住最严重的情况。",
    ),
    ("Fewer prompt tokens come out of the prefix cache, which is cheaper.", "从前缀缓存（更便宜）取得的提示 token 变少了。"),
    (
        "See what changed at the beginning of prompts: a time, a name, the order of tools.",
        "看提示词开头有什么变化：时间、姓名、工具的顺序。",
    ),
    ("Answers became longer, thought included.", "回答变长了，包括思考。"),
    (
        "Set max_completion_tokens; reasoning_effort or enable_thinking: false.",
        "设置 max_completion_tokens；reasoning_effort 或 enable_thinking: false。",
    ),
    ("Tokens became dearer: a dearer model answers, or the price list changed.", "token 变贵了：由更贵的模型回答，或价目表变了。"),
    (
        "See which target answers, and why: a fallback, a rule, another price version.",
        "看是哪个目标在回答以及原因：回退、规则、另一个版本的价格。",
    ),
    ("Attempts that gave no answer are paid for, too.", "没有给出回答的尝试也要付费。"),
    (
        "Find what fails late; on_client_leave: cancel ends calls whose client left.",
        "找出哪里在后期失败；on_client_leave: cancel 会在客户端离开时结束调用。",
    ),
    ("The first token takes longer on one replica.", "某个副本的首字更慢。"),
    (
        "It gets more than its share, by weights or by conversations that stay with it.",
        "由于权重或会话保持，它得到的请求超过了应有的份额。",
    ),
    (
        ("Set pick: least_in_flight or peak_ewma; look at weight; with affinity: session, see whether one session is very busy."),
        "设置 pick: least_in_flight 或 peak_ewma；检查 weight；使用 affinity: session 时，看是否有某个会话特别繁忙。",
    ),
    (
        "The GPU's memory bandwidth is full: every token of every answer reads the weights.",
        "GPU 的显存带宽已满：每个回答的每个 token 都要读一遍权重。",
    ),
    (
        "Fewer requests at once, a quantised model, or more GPUs; vLLM: --kv-cache-dtype fp8.",
        "减少同时的请求、使用量化模型或增加 GPU；vLLM：--kv-cache-dtype fp8。",
    ),
    ("Streams end without [DONE].", "流结束时没有 [DONE]。"),
    ("The stream fell silent for longer than it may, and was given up.", "流静默的时间超过了允许值，被放弃。"),
    (
        "Raise timeouts.stall_s if that model pauses (thought, tools), else look at its load.",
        "如果模型会停顿（思考、工具），调高 timeouts.stall_s；否则查看它的负载。",
    ),
    (
        "It was the client's side that closed: a proxy's idle timeout, a page that was left, an SDK's deadline.",
        "是客户端一侧关闭了连接：代理的空闲超时、用户离开页面、SDK 的时限。",
    ),
    (
        (
            "Set streams.heartbeat_s below the proxy's timeout and turn its buffering off; clients can come back with "
            "X-Tidegate-Resumable: 1."
        ),
        "把 streams.heartbeat_s 设为低于代理的超时，并关闭代理的缓冲；客户端可用 X-Tidegate-Resumable: 1 继续接收。",
    ),
    ("Everything is slow at a peak.", "高峰时一切都慢。"),
    (
        "Requests wait in the model server's queue: there are more than it takes at once.",
        "请求在模型服务器的队列里等待：超过了它同时能处理的数量。",
    ),
    (
        ("Add replicas, or limit who floods them (limits.rules, of: concurrency); vLLM: --max-num-seqs, while its KV cache has room."),
        "增加副本，或限制请求过多的一方（limits.rules，of: concurrency）；vLLM：--max-num-seqs，只要 KV 缓存有余量。",
    ),
    (
        "Time is lost beside the attempts: pauses before retries, limits that are waited for, a gateway without a free core.",
        "时间耗在尝试之外：重试前的停顿、等待限额、网关没有空闲的 CPU 核心。",
    ),
    (
        "Look at the gateway's CPU; set server.workers to its cores; lower retry.max_attempts.",
        "查看网关的 CPU；把 server.workers 设为其核心数；调低 retry.max_attempts。",
    ),
    ("The gateway refuses what would not fit into its memory.", "网关拒绝了内存放不下的请求。"),
    (
        "Raise server.max_buffered_bytes or workers; smaller bodies help most.",
        "调高 server.max_buffered_bytes 或 workers；减小请求体最有效。",
    ),
    ("Token counts are wrong.", "token 计数不对。"),
    (
        ("The vocabulary that we count with is not the model's: Qwen3.5 and later have 248 thousand entries, earlier ones 152 thousand."),
        "计数所用的词表不是该模型的：Qwen3.5 及以后有 24.8 万个词条，之前的有 15.2 万个。",
    ),
    (
        "Correct upstreams.NAME.tokenizer, or leave it out; the doctor compares a count with what the upstream reports.",
        "更正 upstreams.NAME.tokenizer，或不设置它；诊断会把计数与上游的报告相比较。",
    ),
    (
        "The upstream does not report usage, or the client left before it came, so it is counted or estimated.",
        "上游不报告用量，或客户端在用量到达之前离开，因此用量是计数或估算出来的。",
    ),
    (
        "The gateway asks for it; on_client_leave: drain waits for it. See whether a proxy strips stream_options.",
        "网关会请求用量；on_client_leave: drain 会等待它。检查是否有代理去掉了 stream_options。",
    ),
    (
        "What is held before a request is compared with what it used: it is meant to be more.",
        "把请求之前占用的量与实际使用的量相比：前者本来就应当更多。",
    ),
    ("Limits and money go by what was used; nothing is lost.", "限额和费用按实际使用计算，没有损失。"),
    ("Retries multiply the traffic.", "重试使流量成倍增加。"),
    ("The gateway tries again often.", "网关频繁重试。"),
    (
        "Lower retry.max_attempts or retry.budget_ratio, which bounds them all; let breakers open sooner.",
        "调低 retry.max_attempts，或总的上限 retry.budget_ratio；让熔断器更早断开。",
    ),
    ("Clients retry on top of it: their tries and ours multiply.", "客户端也在重试：两边的次数相乘。"),
    (
        "Set max_retries=0 in the clients' SDKs (the gateway retries where that helps), or let them keep to Retry-After.",
        "在客户端 SDK 中设置 max_retries=0（需要时网关会重试），或让它们遵守 Retry-After。",
    ),
    ("Answers became worse.", "回答质量变差。"),
    ("Some answers come from a smaller or a standby model, or were made shorter.", "部分回答来自较小的或备用的模型，或被缩短了。"),
    (
        "The header X-Tidegate-Degraded says so: raise the budget, or mend the first target.",
        "响应头 X-Tidegate-Degraded 会说明：调高预算，或修复第一个目标。",
    ),
    ("People ask other things than before, and the model was tuned for those.", "人们提的问题与以前不同，而模型是为以前的问题调整的。"),
    (
        "Compare the questions of both times (an audit policy keeps them), and measure with answers that are known.",
        "比较两段时间的问题（审计策略会保存它们），并用已知答案进行测量。",
    ),
    ("Answers are cut off.", "回答被截断。"),
    ("The first token comes late.", "首字来得慢。"),
    ("The GPU is idle while requests are slow.", "GPU 空闲，请求却很慢。"),
    (
        "Too few requests are at work at once: clients send one after another, or a limit holds them back.",
        "同时处理的请求太少：客户端一个接一个地发送，或有限制挡住了它们。",
    ),
    (
        ("Let clients send more at once; raise limits of concurrency here, and vLLM's --max-num-seqs or local_engine.slots there."),
        "让客户端同时发送更多；调高网关的并发限制，以及模型服务器的 --max-num-seqs（vLLM）或 local_engine.slots。",
    ),
    (
        "No replica may be used: breakers are open, health checks fail, or somebody drained them.",
        "没有可用的副本：熔断器断开、健康检查失败，或有人将其排空。",
    ),
    (
        "See each upstream's line, mend what it names, and enable again in the console what was drained.",
        "查看每个上游的一行，修复它指出的问题；被排空的在控制台中重新启用。",
    ),
    (
        "The model server computes on the CPU: no driver, a build without CUDA, or layers that were not put on the GPU.",
        "模型服务器在用 CPU 计算：没有驱动、构建时没有 CUDA，或各层没有放到 GPU 上。",
    ),
    (
        "Its log says so at start. llama.cpp: a build with CUDA and --n-gpu-layers 99; vLLM: see its device line.",
        "它的日志在启动时会说明。llama.cpp：使用带 CUDA 的构建和 --n-gpu-layers 99；vLLM：看日志中 device 一行。",
    ),
    ("Requests fail or time out.", "请求失败或超时。"),
    ("The model server is away, breaks connections, or answers with 5xx.", "模型服务器不在、断开连接，或返回 5xx。"),
    (
        "Look at that server's log, and whether it was restarted; a second target in the route takes over meanwhile.",
        "查看该服务器的日志，以及它是否重启过；此期间由路由中的第二个目标接替。",
    ),
    ("A clock runs out before the answer is there.", "在回答到来之前时限已到。"),
    (
        (
            "See where the time goes (tidegate doctor --request ID): a queue wants replicas, a long answer a higher "
            "timeouts.total_s, a long prompt a higher timeouts.first_token_s."
        ),
        (
            "看时间花在哪里（tidegate doctor --request ID）：排队需要更多副本，回答长需要更高的 timeouts.total_s，提示词长需要更"
            "高的 timeouts.first_token_s。"
        ),
    ),
    ("Keys are refused.", "密钥被拒绝。"),
    ("The client's key is wrong, revoked or expired, or may not use that model.", "客户端的密钥错误、已吊销或过期，或不允许使用该模型。"),
    (
        "Look it up in the list; make another, or widen this one. The client's base_url must be this gateway's.",
        "在列表中查找它；另建一个，或扩大它的权限。客户端的 base_url 必须是本网关的地址。",
    ),
    ("The upstream refuses the gateway's own key.", "上游拒绝了网关自己的密钥。"),
    (
        "Correct upstreams.NAME.api_key (wrong, expired, of another provider or region), and reload.",
        "更正 upstreams.NAME.api_key（错误、过期、属于其他提供商或地域），然后重新加载。",
    ),
)
