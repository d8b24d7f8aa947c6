"""The Chinese of what records say of causes, by the English that stands in `evidence`, `symptoms` and the command."""

from __future__ import annotations

from typing import Final

TEXTS: Final = (
    (
        (
            "{share} of {seen} streams with long prompts found next to nothing in the prefix cache; half of those waited "
            "{missed_s} or more for their first output, half of the others {found_s} or more."
        ),
        (
            "{seen} 个长提示词的流中，{share} 几乎没有命中前缀缓存；它们之中一半等待首次输出 {missed_s} 或更久，其余的一半等待 "
            "{found_s} 或更久。"
        ),
    ),
    ("streams with prompts of 1,024 tokens or more", "提示词有 1,024 个 token 或更多的流"),
    (
        ("of {seen} requests whose model server tells its queue, half waited {usual_s} or more, one in a hundred {longest_s} or more."),
        "{seen} 个由模型服务器报告排队时间的请求中，一半等待 {usual_s} 或更久，百分之一等待 {longest_s} 或更久。",
    ),
    ("requests whose model server tells its queue", "由模型服务器报告排队时间的请求"),
    (
        ("{share} of the time of {seen} requests was waiting for the model server, {mean_s} each; at most {waiting} waited at once."),
        "{seen} 个请求的时间中，{share} 在等待模型服务器，平均每个 {mean_s}；同时等待的最多有 {waiting} 个。",
    ),
    ("requests whose model server tells how long it worked on them", "由模型服务器报告处理时间的请求"),
    (
        "in {share} of {seen} samples the GPU's memory bandwidth was at 90 % or more.",
        "{seen} 个样本中，{share} 的 GPU 显存带宽达到 90 % 或更高。",
    ),
    ("samples of a GPU's memory bandwidth (sampling.gpu)", "GPU 显存带宽的样本（sampling.gpu）"),
    (
        (
            "in {share} of {seen} samples the KV cache was full (95 % or more), and {preempted} requests were thrown out of a "
            "batch for lack of it."
        ),
        "{seen} 个样本中，{share} 的 KV 缓存已满（95 % 或更高），有 {preempted} 个请求因此被移出批次。",
    ),
    ("samples of vLLM's KV cache (sampling.scrape)", "vLLM KV 缓存的样本（sampling.scrape）"),
    (
        (
            "{share} of {seen} requests failed at the model; half of those had {failed_tokens} prompt tokens or more, of the "
            "others {usual_tokens}."
        ),
        "{seen} 个请求中，{share} 在模型处失败；失败的一半有 {failed_tokens} 个提示 token 或更多，其余的为 {usual_tokens}。",
    ),
    ("requests with prompt tokens", "带提示 token 数的请求"),
    (
        (
            "{share} of the time of {seen} requests passed while no attempt was running (pauses before retries too); for one in "
            "a hundred {longest_s}."
        ),
        "{seen} 个请求的时间中，{share} 没有尝试在进行（包括重试前的停顿）；百分之一的请求为 {longest_s}。",
    ),
    ("requests with an attempt", "有过尝试的请求"),
    (
        (
            "{seen} attempts came to a replica that had been idle for five minutes: half of them waited {cold_s} or more, half "
            "of the others {warm_s}."
        ),
        "有 {seen} 次尝试到达空闲五分钟以上的副本：其中一半等待 {cold_s} 或更久，其余的一半等待 {warm_s}。",
    ),
    ("attempts at a replica that had been idle for five minutes", "到达空闲五分钟以上副本的尝试"),
    (
        "connecting made up {share} of the time to the first output; for one attempt in a hundred it took {longest_s}.",
        "建立连接占首次输出之前时间的 {share}；百分之一的尝试用了 {longest_s}。",
    ),
    ("attempts that opened a connection", "新建连接的尝试"),
    (
        (
            "of {seen} replicas {worst} is the slowest: its first outputs take {factor} times as long as usual for their model "
            "and prompt length."
        ),
        "{seen} 个副本中 {worst} 最慢：它的首次输出用时是同一模型、同样提示词长度通常用时的 {factor} 倍。",
    ),
    (
        "20 attempts of one replica that came to a first output, and the busiest has {most}",
        "同一副本有 20 次得到首次输出的尝试，而最忙的副本有 {most} 次",
    ),
    (
        "{busiest} has {share} of {seen} attempts on {replicas} replicas.",
        "{busiest} 承担了 {replicas} 个副本上 {seen} 次尝试的 {share}。",
    ),
    ("attempts", "尝试"),
    (
        "{share} of {seen} requests needed more than one attempt: {factor} attempts for each.",
        "{seen} 个请求中，{share} 需要不止一次尝试：平均每个 {factor} 次。",
    ),
    (
        "{seen} requests were refused for a limit; the busiest second had {most} requests, beside {mean} in others.",
        "有 {seen} 个请求因限额被拒绝；最忙的一秒有 {most} 个请求，平均每秒 {mean} 个。",
    ),
    ("requests that were refused for a limit", "因限额被拒绝的请求"),
    ("{seen} requests held {factor} times the tokens that they used in the end.", "{seen} 个请求占用的 token 是最终使用的 {factor} 倍。"),
    ("requests that held tokens of a limit", "占用了限额 token 的请求"),
    (
        "{share} of what {seen} attempts cost went into those that gave no whole answer.",
        "{seen} 次尝试的费用中，{share} 用在了没有给出完整回答的尝试上。",
    ),
    ("attempts that cost something", "有费用的尝试"),
    ("{share} of {seen} requests were refused because the gateway was full.", "{seen} 个请求中，{share} 因网关已满而被拒绝。"),
    ("requests", "请求"),
    (
        "{share} of {seen} requests ({found}) were refused because a budget was spent.",
        "{seen} 个请求中，{share}（{found} 个）因预算用完而被拒绝。",
    ),
    ("{share} of {seen} requests ({found}) failed at every attempt.", "{seen} 个请求中，{share}（{found} 个）的每次尝试都失败了。"),
    ("{share} of {seen} requests ({found}) ended because a clock ran out.", "{seen} 个请求中，{share}（{found} 个）因时限到了而结束。"),
    (
        "{share} of {seen} requests ({found}) found no replica that could be used.",
        "{seen} 个请求中，{share}（{found} 个）没有找到可用的副本。",
    ),
    ("{share} of {seen} requests ({found}) were refused for their key.", "{seen} 个请求中，{share}（{found} 个）因密钥被拒绝。"),
    (
        "for {share} of {seen} requests ({found}) an upstream refused the gateway's key.",
        "{seen} 个请求中，{share}（{found} 个）遇到上游拒绝网关的密钥。",
    ),
    (
        "in {seen} samples {mean_factor} requests were at work at a replica on average, at most {most}.",
        "{seen} 个样本中，每个副本平均同时处理 {mean_factor} 个请求，最多 {most} 个。",
    ),
    ("samples of how many requests a model server works on (sampling.scrape)", "模型服务器同时处理请求数的样本（sampling.scrape）"),
    (
        "{share} of {seen} requests ({found}) got an answer that the provider withheld.",
        "{seen} 个请求中，{share}（{found} 个）的回答被提供商扣下。",
    ),
    ("requests that were answered", "得到回答的请求"),
    (
        "{share} of {seen} answers ({found}) were all thought: the limit was used up before a word of the answer.",
        "{seen} 个回答中，{share}（{found} 个）全是思考：还没有给出一个字的回答，上限就用完了。",
    ),
    ("answers", "回答"),
    (
        "{share} of {seen} requests ({found}) got a 200 whose body says that generation failed.",
        "{seen} 个请求中，{share}（{found} 个）得到 200，而响应体说生成失败。",
    ),
    ("{share} of {seen} answers ({found}) were cut at an output limit.", "{seen} 个回答中，{share}（{found} 个）在输出上限处被截断。"),
    (
        "for {share} of {seen} requests ({found}) the gateway itself lowered the limit, to fit a budget or in a retry.",
        "{seen} 个请求中，{share}（{found} 个）由网关自己降低了上限，以符合预算或用于重试。",
    ),
    ("{share} of {seen} streams ({found}) broke after they had begun.", "{seen} 个流中，{share}（{found} 个）在开始之后中断。"),
    ("streams", "流"),
    (
        "{share} of {seen} attempts ({found}) were given up because a stream fell silent.",
        "{seen} 次尝试中，{share}（{found} 次）因流静默而被放弃。",
    ),
    (
        "in {share} of {seen} streams ({found}) the client left before the end, half of them after {after_s} or more.",
        "{seen} 个流中，{share}（{found} 个）客户端在结束之前离开，其中一半在 {after_s} 或更久之后。",
    ),
    (
        "{share} of {seen} requests ({found}) have 32,000 prompt tokens or more; the longest has {most}.",
        "{seen} 个请求中，{share}（{found} 个）有 32,000 个提示 token 或更多；最长的有 {most} 个。",
    ),
    ("{share} of {seen} requests ({found}) were too long for their model.", "{seen} 个请求中，{share}（{found} 个）对其模型来说太长。"),
    (
        "{share} of {seen} attempts ({found}) were refused by the upstream's own limit.",
        "{seen} 次尝试中，{share}（{found} 次）因上游自己的限制被拒绝。",
    ),
    (
        "of {seen} answers, {share} ({found}) have figures that no upstream reported.",
        "{seen} 个回答中，{share}（{found} 个）的用量不是上游报告的。",
    ),
    (
        "{share} of {seen} requests ({found}) are a client's own second try or later.",
        "{seen} 个请求中，{share}（{found} 个）是客户端自己的第二次或以后的尝试。",
    ),
    (
        "{share} of {seen} requests ({found}) got less than they asked for (X-Tidegate-Degraded).",
        "{seen} 个请求中，{share}（{found} 个）得到的少于所要求的（X-Tidegate-Degraded）。",
    ),
    ("prompts have {after} tokens, {before} before: a factor of {factor}.", "提示词有 {after} 个 token，之前为 {before}：{factor} 倍。"),
    (
        "requests with prompt tokens in that time and in as long a time before, and there are {seen} and {seen_before}",
        "这段时间和之前同样长的时间内带提示 token 数的请求，而现有 {seen} 个和 {seen_before} 个",
    ),
    ("answers have {after} tokens, {before} before: a factor of {factor}.", "回答有 {after} 个 token，之前为 {before}：{factor} 倍。"),
    (
        "answers in that time and in as long a time before, and there are {seen} and {seen_before}",
        "这段时间和之前同样长的时间内的回答，而现有 {seen} 个和 {seen_before} 个",
    ),
    (
        "the part of prompt tokens that is not in the prefix cache rose by a factor of {factor}.",
        "未命中前缀缓存的提示 token 所占部分变为之前的 {factor} 倍。",
    ),
    (
        "a token costs {factor} times what it did before: dearer models or another price list.",
        "每个 token 的费用是之前的 {factor} 倍：更贵的模型，或另一份价目表。",
    ),
    (
        "requests that cost something in that time and in as long a time before, and there are {seen} and {seen_before}",
        "这段时间和之前同样长的时间内有费用的请求，而现有 {seen} 个和 {seen_before} 个",
    ),
    (
        "Nothing known sounds like {text!r}. Say it in other words, or as one of:\n{known}",
        "没有与 {text!r} 相符的已知症状。请换一种说法，或用下面之一：\n{known}",
    ),
    ("Your records of {span} do not show it: {told}", "你的记录（{span}）没有显示这一点：{told}"),
    ("Your records of {span} have nothing to judge it by: that takes {wanted}.", "你的记录（{span}）不足以判断：这需要{wanted}。"),
    ("Yes, this is what your records of {span} show: {told}", "是的，你的记录（{span}）正是如此：{told}"),
    (
        "Records are not kept in tables here, so they cannot say: pip install 'tidegate[analytics]'.",
        "这里没有把记录保存在数据表中，因此无法判断：pip install 'tidegate[analytics]'。",
    ),
    (
        "No request {id!r} is recorded. It may not have ended, its record may be deleted, or another node has it.",
        "没有请求 {id!r} 的记录。它可能还没有结束，记录可能已删除，或在另一个节点上。",
    ),
    ("the last {since}", "最近 {since}"),
    ("the time since {since}", "自 {since} 以来"),
    ("The records cannot be asked: {trouble}", "无法查询记录：{trouble}"),
    ("The client was told: {told}", "客户端得到的答复：{told}"),
    ("There are no records in {state} yet.", "{state} 中还没有记录。"),
    ("attempt {number}: {attempt}", "第 {number} 次尝试：{attempt}"),
    ("unknown", "未知"),
    ("See above.", "见上。"),
)
