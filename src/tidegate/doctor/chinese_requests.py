"""The Chinese of the story of one request, by the English that stands in `story`, `outcomes` and the advice of each error code."""

from __future__ import annotations

from typing import Final

TEXTS: Final = (
    ("It was answered.", "它得到了回答。"),
    ("The answer was cut at a length limit.", "回答在长度上限处被截断。"),
    ("Raise max_completion_tokens in the client, which bounds thought, too.", "在客户端调高 max_completion_tokens，它也包括思考。"),
    ("The provider withheld the answer: 200 without a text.", "提供商扣下了回答：200，没有文本。"),
    ("Read finish_reason in the client, and have the prompt looked at.", "在客户端读取 finish_reason，并请人检查提示词。"),
    ("Look at that server's log at that time.", "查看该服务器当时的日志。"),
    ("The client left before the end.", "客户端在结束之前离开。"),
    (
        ("If it did not mean to: look at its own deadline, and at the idle timeout of proxies between; streams.heartbeat_s helps."),
        "如果并非有意：检查它自己的时限，以及中间代理的空闲超时；streams.heartbeat_s 有帮助。",
    ),
    ("It was answered out of the gateway's own cache.", "由网关自己的缓存回答。"),
    ("No model could answer: the client got a prepared answer.", "没有模型能回答：客户端得到了预备的回答。"),
    ("Mend the targets of its route; the attempts say why.", "修复其路由的目标；各次尝试说明了原因。"),
    ("The request itself was refused as wrong.", "请求本身有误，被拒绝。"),
    ("Correct it in the client.", "在客户端更正它。"),
    ("It came without a usable key.", "它没有可用的密钥。"),
    ("Its key is good, and may not do this.", "它的密钥有效，但没有这项权限。"),
    ("The gateway was full, and refused it before any work.", "网关已满，在处理之前就拒绝了它。"),
    ("Raise server.max_buffered_bytes or workers, or send smaller bodies.", "调高 server.max_buffered_bytes 或 workers，或减小请求体。"),
    ("A limit of tokens, requests or concurrency was used up.", "token、请求或并发的限额已用完。"),
    ("Wait as Retry-After says, or raise that limit.", "按 Retry-After 等待，或调高该限额。"),
    ("The money of the period was spent.", "本周期的预算已用完。"),
    ("Raise that budget, or wait for the period's end.", "调高该预算，或等待周期结束。"),
    ("No replica could be used at that moment.", "当时没有可用的副本。"),
    ("See what took them out: breakers, health checks, or a person.", "看是什么使它们不可用：熔断器、健康检查，或人为操作。"),
    ("The upstream judged the request itself to be wrong.", "上游认为请求本身有误。"),
    ("Its words say what; the model may lack a parameter.", "它的话说明了原因；模型可能不支持某个参数。"),
    ("Every attempt failed at the model server.", "每次尝试都在模型服务器处失败。"),
    ("The attempts say how.", "各次尝试说明了经过。"),
    ("A clock ran out before an answer was there.", "在回答到来之前时限已到。"),
    (
        "See where the time went: a queue wants replicas, a long answer a longer clock (timeouts).",
        "看时间花在哪里：排队需要更多副本，回答长需要更长的时限（timeouts）。",
    ),
    ("The stream broke after it had begun, so it could not be tried again.", "流在开始之后中断，因此无法重试。"),
    (
        ("Look at that server's log; clients can come back for the rest with X-Tidegate-Resumable: 1, while the gateway has it."),
        "查看该服务器的日志；只要网关还保留着，客户端可用 X-Tidegate-Resumable: 1 取回其余部分。",
    ),
    ("A fault of Tidegate.", "Tidegate 的故障。"),
    ("Please report it with the log lines of this request id.", "请附上该请求 ID 的日志行进行报告。"),
    (
        (
            "Look at what stands between the client and Tidegate: a proxy that mixes up framing is the usual cause. The "
            "connection is closed."
        ),
        "检查客户端与 Tidegate 之间的设备：通常是代理弄乱了报文的分界。连接会被关闭。",
    ),
    (
        "Send one JSON object in UTF-8, with `Content-Type: application/json`. The message says where reading stopped.",
        "用 UTF-8 发送一个 JSON 对象，并带 `Content-Type: application/json`。错误信息说明读到何处为止。",
    ),
    ("Correct the field that `param` names.", "更正 `param` 指出的字段。"),
    (
        "Shorten the prompt or use a model with a longer context; `POST /tokenize` counts before you send.",
        "缩短提示词，或使用上下文更长的模型；`POST /tokenize` 可在发送前计数。",
    ),
    (
        (
            "Send `Authorization: Bearer <key>`. Make a key with `tidegate keys create`; a revoked or expired one does not come "
            "back. All causes look the same to the client, on purpose. For the operator: the log line with the request id says which "
            "it was."
        ),
        (
            "发送 `Authorization: Bearer <key>`。用 `tidegate keys create` 创建密钥；吊销或过期的密钥不会恢复。对客户端而言，所有原因"
            "看起来都一样，这是有意的。运维者：日志中该请求 id 的那一行会说明是哪一种。"
        ),
    ),
    (
        "Use a key that may use this model or operation, or let an operator widen this one.",
        "使用可以用此模型或操作的密钥，或请管理员扩大此密钥的权限。",
    ),
    (
        "Set `base_url` to the address that ends in `/v1`, without an endpoint after it.",
        "把 `base_url` 设为以 `/v1` 结尾的地址，后面不带端点。",
    ),
    (
        "Choose a name from `GET /v1/models`, or add a route for this one and reload.",
        "从 `GET /v1/models` 中选一个名称，或为它增加路由并重新加载。",
    ),
    ("Use the method that the `Allow` header names.", "使用 `Allow` 头指出的方法。"),
    (
        (
            "Send the original request again, without `Last-Event-ID`. A stream waits `streams.resume_window_s` for its client, "
            "and only the key that began it can resume it."
        ),
        ("重新发送原来的请求，不带 `Last-Event-ID`。流等待客户端的时间是 `streams.resume_window_s`，且只有发起它的密钥可以继续。"),
    ),
    (
        (
            "Send the original request again, without `Last-Event-ID`; or raise `streams.resume_buffer_bytes` and "
            "`streams.resume_total_bytes`."
        ),
        "重新发送原来的请求，不带 `Last-Event-ID`；或调高 `streams.resume_buffer_bytes` 和 `streams.resume_total_bytes`。",
    ),
    (
        (
            "Look the id up with `tidegate keys list` or `GET /admin/keys`. A key that was revoked or has expired does not come "
            "back: make another."
        ),
        "用 `tidegate keys list` 或 `GET /admin/keys` 查找 id。吊销或过期的密钥不会恢复：请另建一把。",
    ),
    (
        "Take a name from `GET /admin/upstreams`: an upstream's, or a replica's as `upstream/0`.",
        "从 `GET /admin/upstreams` 中取名称：上游的名称，或 `upstream/0` 这样的副本名称。",
    ),
    (
        (
            "A request comes into the tables about a second after it ends, and goes with its day (`analytics.keep_days`). Look "
            "for it with `GET /admin/requests`."
        ),
        "请求在结束约一秒后进入数据表，并随其日期一起删除（`analytics.keep_days`）。用 `GET /admin/requests` 查找。",
    ),
    (
        "Send again over a better connection, or raise `server.header_timeout_s` or `server.body_timeout_s`.",
        "用更好的连接重新发送，或调高 `server.header_timeout_s` 或 `server.body_timeout_s`。",
    ),
    ("Send less, or raise `server.max_body_bytes`.", "减少发送的内容，或调高 `server.max_body_bytes`。"),
    (
        (
            "Send the JSON uncompressed, without a `Content-Encoding` header: turn request compression off in the client or in "
            "the proxy before Tidegate."
        ),
        "发送未压缩的 JSON，不带 `Content-Encoding` 头：在客户端或 Tidegate 之前的代理中关闭请求压缩。",
    ),
    (
        "Send the request without an `Expect` header, or with `Expect: 100-continue`.",
        "发送请求时不带 `Expect` 头，或带 `Expect: 100-continue`。",
    ),
    ("Send fewer or shorter headers, or raise `server.max_header_bytes`.", "减少或缩短请求头，或调高 `server.max_header_bytes`。"),
    (
        (
            "The budget begins anew with its period; `Retry-After` says when, if that is within the hour. To go on before, raise "
            "the `amount` of the budget that the message names."
        ),
        "预算随其周期重新开始；如果在一小时之内，`Retry-After` 会说明时间。要提前继续，调高错误信息所指预算的 `amount`。",
    ),
    (
        "Waiting does not help: lower `max_completion_tokens` or the prompt, or have the limit raised.",
        "等待没有用：调低 `max_completion_tokens` 或缩短提示词，或请人调高该限额。",
    ),
    (
        (
            "Wait for `Retry-After`, as the SDKs do. If it happens all the time, raise `tokens_per_minute` or "
            "`requests_per_minute` of the key, its tier, or `limits`."
        ),
        ("像 SDK 那样按 `Retry-After` 等待。如果一直发生，调高该密钥、其等级或 `limits` 的 `tokens_per_minute` 或 `requests_per_minute`。"),
    ),
    (
        "Send fewer requests at the same time, or raise `concurrency` of the key, its tier, or `limits`.",
        "减少同时发送的请求，或调高该密钥、其等级或 `limits` 的 `concurrency`。",
    ),
    (
        (
            "Wait and try again. For the operator: more `server.workers`, or a higher `server.max_buffered_bytes` or "
            "`server.max_connections` if memory allows."
        ),
        "请稍候重试。运维者：增加 `server.workers`；内存允许时调高 `server.max_buffered_bytes` 或 `server.max_connections`。",
    ),
    (
        "Try again: another process takes over. For the operator: `server.drain_timeout_s` is how long running requests get.",
        "请重试：由另一个进程接替。运维者：`server.drain_timeout_s` 是留给进行中请求的时间。",
    ),
    (
        (
            "Wait and try again. For the operator: `/readyz` shows the state of each upstream; a second target in the route "
            "would have taken over."
        ),
        "请稍候重试。运维者：`/readyz` 显示每个上游的状态；路由中若有第二个目标就会接替。",
    ),
    (
        (
            "Correct the request: the message is the model server's own, and so is `code` where it sent one. The same request to "
            "another model may be accepted."
        ),
        "更正请求：信息是模型服务器自己的，它给出错误码时 `code` 也是。同样的请求换一个模型也许会被接受。",
    ),
    (
        "For the operator: the upstream's `api_key` is wrong, expired or of another region. Correct it and reload.",
        "运维者：上游的 `api_key` 错误、过期或属于其他地域。更正它并重新加载。",
    ),
    (
        (
            "Try again. For the operator: the log line with the request id names the upstream and what failed, `/readyz` its state; "
            "look at the model server's log."
        ),
        "请重试。运维者：请求 id 相同的日志行指出了上游和故障，`/readyz` 显示其状态；查看模型服务器的日志。",
    ),
    (
        "Wait for `Retry-After`. For the operator: the account's quota at the provider is used up; add a second target.",
        "按 `Retry-After` 等待。运维者：提供商处的账户额度已用完；增加第二个目标。",
    ),
    (
        (
            "The message names the clock that ran out. For the operator: raise that one under the upstream's `timeouts`, or find "
            "out why the model server is slow."
        ),
        "错误信息指出了到时的时限。运维者：在该上游的 `timeouts` 中调高它，或查明模型服务器为何慢。",
    ),
    (
        "Discard or keep what came, then send the request again. What was generated is counted.",
        "丢弃或保留已收到的部分，然后重新发送请求。已生成的部分会计入。",
    ),
    (
        (
            "Ask again later. For the operator: the log lines that begin with `recorder.` say what is wrong; records wait in "
            "their files meanwhile."
        ),
        "请稍后再问。运维者：以 `recorder.` 开头的日志行说明了问题；此期间记录保存在文件中。",
    ),
    (
        "Report it with the request id. For the operator: the log line with that id has the details.",
        "请附上请求 ID 进行报告。运维者：带该 ID 的日志行有详情。",
    ),
    (
        "Run `tidegate check`: it shows the file, the line and what to write instead.",
        "运行 `tidegate check`：它显示文件、行号以及应改成什么。",
    ),
    (
        "Limits that were waited for, a slow upload, or a gateway without a free core: tidegate query why-p99",
        "等待限额、上传慢，或网关没有空闲的 CPU 核心：tidegate query why-p99",
    ),
    ("Find what fails there: tidegate query errors --by replica", "查明那里失败的原因：tidegate query errors --by replica"),
    (
        (
            "There were more requests than it takes at once: more slots (local_engine.slots; vLLM: --max-num-seqs) or replicas, "
            "or limits of concurrency."
        ),
        "请求多于它同时能处理的数量：增加槽位（local_engine.slots；vLLM：--max-num-seqs）或副本，或限制并发。",
    ),
    ("the same again", "原样再试"),
    ("asking for a shorter answer", "要求更短的回答"),
    ("on a smaller model", "改用较小的模型"),
    ("on the next target", "改用下一个目标"),
    ("it answered", "已回答"),
    ("it was given up, because the client had left or another answer was there", "被放弃，因为客户端已离开或已有另一个回答"),
    ("its replica was found dead", "发现其副本已失效"),
    ("no connection, or one that broke", "没有连接，或连接中断"),
    ("its answer broke off", "它的应答中途断开"),
    ("in the model server's queue", "在模型服务器的队列中"),
    ("waiting for the model server, or on the way", "等待模型服务器，或在途中"),
    ("reading the prompt", "读提示词"),
    ("writing the answer", "写回答"),
    ("until the first output", "首次输出之前"),
    ("waiting for the whole answer", "等待完整的回答"),
    (
        "Far away, overloaded, or a connection that was opened anew: upstreams.NAME.idle_timeout_s.",
        "太远、过载，或重新建立了连接：upstreams.NAME.idle_timeout_s。",
    ),
    (
        "A long prompt that was not in the prefix cache: tidegate query cache --by route",
        "长提示词没有命中前缀缓存：tidegate query cache --by route",
    ),
    (
        "A long answer or a busy GPU: max_completion_tokens, fewer requests at once.",
        "回答长或 GPU 繁忙：max_completion_tokens，减少同时的请求。",
    ),
    (
        "Queue and prompt; the model server does not tell them apart. Sampling its /metrics does (sampling.scrape).",
        "排队和读提示词；模型服务器没有区分。采集它的 /metrics 可以区分（sampling.scrape）。",
    ),
    ("Not a stream, so nothing is known of its parts: a long answer, or a queue.", "不是流，因此无法知道各部分：回答长，或排队。"),
    ("another target answered in the first one's place", "由另一个目标代替第一个回答"),
    ("a retry asked for a shorter answer", "重试时要求了更短的回答"),
    ("a retry went to a smaller model", "重试时改用了较小的模型"),
    ("the request was over its route's budget, and was made cheaper", "请求超过路由的预算，改用了更便宜的方式"),
    ("prompts of this kind fail at the first target, so another model answered", "这一类提示词在第一个目标处失败，因此由另一个模型回答"),
    ("no model could answer, and a prepared sentence was sent", "没有模型能回答，发送了预备的句子"),
    ("no model could answer, and the rules did", "没有模型能回答，由规则回答"),
    ("no model could answer, and the user was pointed to a person", "没有模型能回答，把用户转给了人工"),
    ("It ended as {outcome}.", "它的结局是 {outcome}。"),
    ("Nothing: it left before an answer began.", "没有答复：它在回答开始之前离开。"),
    (
        "{status}, and after the answer had begun an error event with the code {code}; then the stream ended without [DONE].",
        "{status}，并在回答开始之后得到错误码为 {code} 的错误事件；随后流结束，没有 [DONE]。",
    ),
    ("{where}: {result} after {after}.", "{where}：{result}，用时 {after}。"),
    (
        "Prompt: {prompt:,} tokens, {share:.0f} % of them in the upstream's cache; figures are {evidence}.",
        "提示词：{prompt:,} 个 token，其中 {share:.0f} % 命中上游的缓存；数据来源：{evidence}。",
    ),
    ("{status} with the code {code}.", "{status}，错误码为 {code}。"),
    ("{status}, finish_reason: {finish}.", "{status}，finish_reason: {finish}。"),
    ("{where} ({how})", "{where}（{how}）"),
    ("the clock timeouts.{clock}_s ran out", "时限 timeouts.{clock}_s 已到"),
    ("it answered with {status}", "它的应答是 {status}"),
    ("the answer is less than what was asked for", "得到的少于所要求的"),
    ("The answer is marked as of low confidence.", "该回答标记为低置信度。"),
    (
        "The client came back for the rest of a stream; the request that began it has a record of its own.",
        "客户端回来取流的其余部分；开始它的请求另有一条记录。",
    ),
    ("nobody knows how it ended", "没有人知道它如何结束"),
    ("in the gateway, before an attempt", "在网关中，第一次尝试之前"),
    ("Degraded ({degraded}): {why}.", "已降级（{degraded}）：{why}。"),
    ("Its target was chosen by {rule}.", "它的目标由 {rule} 选定。"),
    ("Limits: it held {reserved:,} tokens and used {used:,}.", "限额：占用了 {reserved:,} 个 token，使用了 {used:,} 个。"),
    ("It is the client's own try number {number}.", "这是客户端自己的第 {number} 次尝试。"),
    ("Up to 1 was waiting at {replica} while it ran", "期间最多有 1 个请求在 {replica} 等待"),
    ("Up to {waiting:.0f} were waiting at {replica} while it ran", "期间最多有 {waiting:.0f} 个请求在 {replica} 等待"),
    ("nobody knows what", "没有人知道是什么"),
    ("Their id: {theirs}.", "对方的 ID：{theirs}。"),
    ("pause before attempt {number}", "第 {number} 次尝试之前的停顿"),
    ("in the gateway, after the last attempt", "在网关中，最后一次尝试之后"),
    ("in the gateway", "在网关中"),
    ("on the way, or not told", "在途中，或没有报告"),
    ("this machine", "本机"),
    ("Meanwhile {metric} of {where} rose to {most:.0f} %.", "期间 {where} 的 {metric} 升到 {most:.0f} %。"),
    ("attempt {number}, which failed", "第 {number} 次尝试，已失败"),
    ("{crowd}, beside {running:.0f} at work.", "{crowd}，同时处理 {running:.0f} 个。"),
    ("connecting", "建立连接"),
    ("output", "输出"),
    ("{status}.", "{status}。"),
    ("{crowd}.", "{crowd}。"),
)
