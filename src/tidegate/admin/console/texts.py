"""Every text of the console, in English and in Chinese. Pages and scripts name them by key; a test asserts that none is missing.

What comes from elsewhere (reasons of upstreams, errors of the API, records) stays in the language that it is in.
"""

from __future__ import annotations

from typing import Final

from tidegate.language import Language

COOKIE: Final = "tidegate_language"


def language_of(chosen: str | None, accept: str) -> Language:
    """Give the language that was chosen, else the one of ours that the browser wants most."""
    if chosen in tuple(Language):
        return Language(chosen)
    best, best_weight = Language.ENGLISH, 0.0
    for part in accept.split(",")[:20]:
        name, _, weight_text = part.strip().partition(";q=")
        language = next((each for each in Language if name.lower().partition("-")[0] == each), None)
        try:
            weight = float(weight_text or 1.0)
        except ValueError:
            continue
        if language is not None and weight > best_weight:
            best, best_weight = language, weight
    return best


def texts_of(language: Language) -> dict[str, str]:
    column = 0 if language is Language.ENGLISH else 1
    return {key: both[column] for key, both in TEXTS.items()}


TEXTS: Final[dict[str, tuple[str, str]]] = {
    # ── everywhere ──
    "title": ("Tidegate console", "Tidegate 控制台"),
    "skip": ("Skip to content", "跳到正文"),
    "pages": ("Pages", "页面"),
    "language": ("中文", "English"),
    "language_label": ("Show this page in Chinese", "用英文显示此页"),
    "theme": ("Light or dark", "浅色或深色"),
    "sign_out": ("Sign out", "退出登录"),
    "signed_in_as": ("Signed in with key {key}", "已用密钥 {key} 登录"),
    "read_only": ("read-only", "只读"),
    "read_only_note": ("This key may look, and change nothing.", "此密钥只能查看，不能更改。"),
    "live": ("live", "实时"),
    "not_live": ("connection lost, trying again", "连接中断，正在重试"),
    "loading": ("Loading…", "加载中……"),
    "nothing": ("Nothing to show.", "没有可显示的内容。"),
    "failed": ("That did not work: {reason}", "操作失败：{reason}"),
    "curl": ("The same figures by curl", "用 curl 取同样的数据"),
    "of": ("of", "/"),
    "truncated": ("There are more rows than are shown.", "还有更多行未显示。"),
    "per_second": ("per second", "每秒"),
    "per_hour": ("per hour", "每小时"),
    "analytics_off": (
        "No tables of past requests are kept here. `pip install 'tidegate[analytics]'`, leave `analytics.enabled` unset, restart.",
        "本页无可查询：未保存历史请求的数据表。请执行 `pip install 'tidegate[analytics]'`，不设置 `analytics.enabled`，然后重启。",
    ),
    # ── login ──
    "login": ("Sign in", "登录"),
    "login_how": (
        "With an admin key, made on the gateway's machine: `tidegate keys create --admin --name you` (`--read-only`: it may only look).",
        "请使用管理密钥登录。在网关所在机器上创建：`tidegate keys create --admin --name you`；加 `--read-only` 则只能查看。",
    ),
    "admin_key": ("Admin key", "管理密钥"),
    "login_refused": ("That is no working admin key.", "这不是有效的管理密钥。"),
    "login_ordinary": (
        "That key works for requests, and is no admin key. Make one: `tidegate keys create --admin --name you`.",
        "该密钥可用于调用接口，但不是管理密钥。请创建：`tidegate keys create --admin --name you`。",
    ),
    "login_wait": ("Too many failed attempts. Try again in {seconds} s.", "失败次数过多，请在 {seconds} 秒后重试。"),
    "login_ended": ("The session has ended. Sign in again.", "会话已结束，请重新登录。"),
    # ── overview ──
    "page_overview": ("Overview", "总览"),
    "tokens_in": ("Tokens in", "输入 token"),
    "tokens_out": ("Tokens out", "输出 token"),
    "tokens_cached": ("of them cached", "其中命中缓存"),
    "requests": ("Requests", "请求"),
    "running": ("running now", "正在处理"),
    "errors": ("Errors", "错误"),
    "refused": ("refused", "被拒绝"),
    "cost": ("Cost", "费用"),
    "ttft": ("First token (TTFT)", "首 token 延迟 (TTFT)"),
    "per_token": ("Between tokens", "token 间隔"),
    "e2e": ("Whole request", "整个请求"),
    "last_minute": (
        "Figures of the last 60 seconds; requests count when they end.",
        "为最近 60 秒的数值；请求在结束时计入。",
    ),
    "errors_hint": (
        "Errors are failures, and refusals for want of a replica or of room.",
        "错误包括失败，以及因无可用副本或容量不足而被拒绝的请求。",
    ),
    "latency_now": (
        "Latencies are of requests that were served: refused and failed ones are not in them. First token and between tokens: of streams.",
        "延迟只计得到服务的请求，不含被拒绝或失败的；首 token 延迟与 token 间隔只计流式请求。",
    ),
    "chart_tokens": ("Tokens per second", "每秒 token 数"),
    "chart_requests": ("Requests per second", "每秒请求数"),
    "chart_latency": ("Latency, 95th percentile", "延迟（95 百分位）"),
    "outcomes": ("How requests ended", "请求结果"),
    "outcome": ("Outcome", "结果"),
    "count": ("Count", "数量"),
    "share": ("Share", "占比"),
    "workers": ("Workers ready", "就绪的工作进程"),
    "trouble": ("Needs a look", "需要关注"),
    "in_flight": ("In flight", "处理中"),
    "state": ("State", "状态"),
    "ready": ("ready", "就绪"),
    "not_ready": ("not ready", "未就绪"),
    "drained": ("out of service", "已停用"),
    "not_available": ("not available", "不可用"),
    "available": ("available", "可用"),
    "upstream": ("Upstream", "上游"),
    "no_such_page": ("There is no such page.", "没有这个页面。"),
    # ── groups and spans ──
    "by": ("By", "分组"),
    "by_tenant": ("Tenant", "租户"),
    "by_feature": ("Feature", "业务功能"),
    "by_model": ("Model", "模型"),
    "by_user": ("User", "用户"),
    "by_key": ("Key", "密钥"),
    "by_tier": ("Tier", "等级"),
    "by_route": ("Route", "路由"),
    "by_upstream": ("Upstream", "上游"),
    "by_replica": ("Replica", "副本"),
    "by_outcome": ("Outcome", "结果"),
    "by_color": ("Colour", "颜色"),
    "since": ("Since", "时间范围"),
    "span_5m": ("5 minutes", "5 分钟"),
    "span_15m": ("15 minutes", "15 分钟"),
    "span_1h": ("1 hour", "1 小时"),
    "span_6h": ("6 hours", "6 小时"),
    "span_1d": ("1 day", "1 天"),
    "span_7d": ("7 days", "7 天"),
    "span_30d": ("30 days", "30 天"),
    # ── traffic, requests ──
    "tokens": ("Tokens in + out", "输入 + 输出 token"),
    "total": ("Total", "合计"),
    "other": ("other", "其他"),
    "served_hint": (
        "Latencies are those of served requests only; shares are of the cost, or of the tokens where nothing has a price.",
        "延迟只计成功服务的请求；占比按费用计算，没有价格时按 token 计算。",
    ),
    "page_traffic": ("Traffic", "流量"),
    "page_requests": ("Requests", "请求"),
    "slower_than": ("Slower than (s)", "耗时超过（秒）"),
    "follow": ("Follow", "持续刷新"),
    "requests_hint": (
        "Requests that have ended, at most 100; a request is here about a second after its end.",
        "已结束的请求，最多 100 条；请求结束约一秒后出现在此处。",
    ),
    "started": ("Started", "开始时间"),
    # ── one request ──
    "page_request": ("Request", "请求"),
    "level_business": ("Business", "业务"),
    "level_gateway": ("Gateway", "网关"),
    "level_server": ("Model servers", "模型服务"),
    "level_gpu": ("Machines and GPUs around it", "当时的机器与 GPU"),
    "timeline_hint": (
        "Beginnings and durations are measured; what is before, between and after the attempts is the gateway's.",
        "起点与时长均为实测；各次尝试之前、之间和之后的时间属于网关。",
    ),
    "whole": ("Whole", "总计"),
    "in_gateway": ("In the gateway", "网关内"),
    "attempt": ("Attempt", "尝试"),
    "connect": ("Connecting", "建立连接"),
    "queue": ("Queue", "排队"),
    "prefill": ("Prefill", "预填充"),
    "decode": ("Decode", "解码"),
    "until_first_token": ("Until the first token", "首 token 之前"),
    "after_first_token": ("After the first token", "首 token 之后"),
    "no_samples": (
        "Nothing was sampled around this request. Turn samplers on in the configuration.",
        "此请求前后没有采样。请在配置中启用采样器。",
    ),
    "reached_none": (
        "This request reached no replica, so no model server and no GPU worked for it.",
        "此请求未到达任何副本，因此没有模型服务或 GPU 为其工作。",
    ),
    "machine": ("gateway's machine", "网关所在机器"),
    "status": ("HTTP status", "HTTP 状态码"),
    "cause": ("Cause", "原因"),
    "error": ("Error", "错误"),
    "rule": ("Decided by", "决定者"),
    "degraded": ("Degraded", "降级"),
    "evidence": ("Counted by", "计数依据"),
    "trace": ("Trace", "追踪"),
    "upstream_request": ("Their request id", "上游请求号"),
    # ── limits ──
    "page_limits": ("Limits and budgets", "限额与预算"),
    "limits_hint": (
        "Limits in use, the fullest first, as the worker with the least left sees them. Budgets are limits in money by day or month.",
        "最近几分钟内用到的限额，最满的在前，以余量最少的工作进程所见为准。预算即按天或按月以金额计的限额。",
    ),
    "no_limits": ("No limit was asked for lately.", "最近没有用到任何限额。"),
    "limit": ("Limit", "限额"),
    "whose": ("Whose", "归属"),
    "resource": ("Of", "资源"),
    "resource_tokens": ("tokens", "token"),
    "resource_input_tokens": ("input tokens", "输入 token"),
    "resource_output_tokens": ("output tokens", "输出 token"),
    "resource_requests": ("requests", "请求"),
    "resource_concurrency": ("running at once", "并发"),
    "resource_cost_micro": ("money", "金额"),
    "window": ("In", "窗口"),
    "at_once": ("at once", "同时"),
    "used": ("Used", "已用"),
    "full": ("Full", "占用率"),
    "mode": ("Mode", "模式"),
    "shadow": ("shadow", "仅观察"),
    "enforced": ("enforced", "强制"),
    # ── upstreams ──
    "page_upstreams": ("Upstreams", "上游"),
    "drain_hint": (
        "Draining takes it out of service: what runs there ends, and nothing begins. It lasts through reloads, not through a restart.",
        "停用会使上游或副本退出服务：正在处理的请求会完成，不再接收新请求。停用在重新加载后仍有效，直到重新启用或网关重启。",
    ),
    "drain": ("Drain", "停用"),
    "enable": ("Enable", "启用"),
    "drain_sure": (
        "Drain {name}? Nothing of this upstream is in service then: requests that have no other target are refused with 503.",
        "停用 {name}？停用后该上游将没有任何副本提供服务：没有其他目标的请求会被拒绝 (503)。",
    ),
    "breaker": ("Breaker", "熔断器"),
    "trips": ("Trips", "熔断次数"),
    "why": ("Why", "原因"),
    "action": ("Action", "操作"),
    # ── keys ──
    "page_keys": ("Keys", "密钥"),
    "make_key": ("Make a key", "创建密钥"),
    "key_name": ("Name", "名称"),
    "like_name": ("like the name", "与名称相同"),
    "models": ("Models", "模型"),
    "models_hint": (
        "Names or patterns of models, with spaces between: `*` is every model. What is left open comes from the tier.",
        "模型名称或通配模式，用空格分隔；`*` 表示全部模型。未填写的限额取自等级。",
    ),
    "tokens_per_minute": ("tokens/min", "token/分钟"),
    "requests_per_minute": ("requests/min", "请求/分钟"),
    "concurrency": ("at once", "并发"),
    "of_tier": ("of its tier", "取自等级"),
    "expires_in_days": ("Expires in days", "有效天数"),
    "never": ("never", "永不过期"),
    "admin": ("admin", "管理"),
    "show_ended": ("Show revoked and expired keys too", "同时显示已吊销和已过期的密钥"),
    "the_key": ("The key", "密钥"),
    "once": ("This is the only time it is shown. Keep it where secrets are kept.", "仅显示这一次，请妥善保管。"),
    "copy": ("Copy", "复制"),
    "done": ("Done", "完成"),
    "cancel": ("Cancel", "取消"),
    "rotate": ("Rotate", "轮换"),
    "revoke": ("Revoke", "吊销"),
    "rotate_sure": ("Give {name} another key? The old one works for another hour.", "为 {name} 更换密钥？旧密钥还可使用一小时。"),
    "revoke_sure": ("Revoke {name}? It stops at once, for good.", "吊销 {name}？它将立即永久失效。"),
    "state_active": ("active", "有效"),
    "state_expired": ("expired", "已过期"),
    "state_revoked": ("revoked", "已吊销"),
    "created": ("Created", "创建时间"),
    # ── explain ──
    "page_explain": ("Explain a route", "路由解释"),
    "explain_hint": (
        "Where a request would go, and why. Nothing is sent; replicas are as after a start.",
        "请求会发往哪里，以及原因。不会真正发送；副本状态视同刚启动。",
    ),
    "request_json": ("Request (JSON)", "请求 (JSON)"),
    "explain": ("Explain", "解释"),
    "rules": ("Rules", "规则"),
    "holds": ("holds", "成立"),
    "does_not_hold": ("does not hold", "不成立"),
    "as_listed": ("as the route lists its targets", "按路由所列目标的顺序"),
    "first_replica": ("Would go to", "将发往"),
    "prompt_at_most": ("Prompt tokens, at most", "提示 token 上限"),
    "body_changes": ("Sent otherwise than it came:", "发送时的改动："),
    # ── query ──
    "page_query": ("Query", "查询"),
    "named_questions": ("Questions with names", "常用问题"),
    "question": ("Question", "问题"),
    "request_id": ("Request id", "请求号"),
    "filters": ("Only", "筛选"),
    "ask": ("Ask", "查询"),
    "sql_hint": (
        "One SELECT over requests, attempts and samples, in ClickHouse's SQL; Ctrl+Enter asks.",
        "对 requests、attempts、samples 的单条 SELECT（ClickHouse SQL）；Ctrl+Enter 执行。",
    ),
    "rows_read": ("{rows} rows read in {ms} ms", "读取 {rows} 行，用时 {ms} 毫秒"),
    # ── playground ──
    "page_playground": ("Playground", "试验场"),
    "api_key": ("API key", "API 密钥"),
    "development_key": ("the development key", "使用开发密钥"),
    "key_hint": (
        "Your key is sent with this request only and kept nowhere. Left empty, the development key is used, where there is one.",
        "密钥仅随本次请求发送，不会保存。留空则使用开发密钥（若有）。",
    ),
    "system_message": ("System message", "系统消息"),
    "prompt": ("Prompt", "提示"),
    "stream": ("Stream", "流式"),
    "send": ("Send", "发送"),
    "stop": ("Stop", "停止"),
    "answer": ("Answer", "回答"),
    "what_it_took": ("What it took", "耗用"),
    "headers": ("Headers of the answer", "响应头"),
}
