"""The words by which each symptom is found in what a person types, English and Chinese, and how they are looked for.

A term is one word, or several that must all be there, in any order; several count more than as many apart. A word of Latin letters stands
for all that begin with it; one of Chinese may stand anywhere, since nothing there separates words. A word that is said of anything
(`cold`, `slow`) counts where the text speaks of models or servers as well, or says nothing else. The same text always finds the same.
"""

from __future__ import annotations

import re
import unicodedata
from typing import Final

import msgspec

_WIDE: Final = re.compile(r"[\u3400-\u9fff]")
_LATIN_WORD: Final = re.compile(r"[a-z0-9_]+")
_OF_ANYTHING: Final = frozenset(
    {"after idle", "all slow", "blank", "cold", "done", "down", "duplicate", "empty", "error", "fail", "first slow", "forget", "hang"}
    | {"permission", "price", "rush", "slow", "sometimes slow", "storm", "stuck", "stupid", "twice", "warm", "worse", "wrong part"}
)
"""Terms that alone may be of coffee, weather or people."""
_FILLERS: Final = frozenset(
    {"a", "again", "all", "always", "am", "are", "at", "be", "been", "do", "does", "everything", "getting", "help", "i", "in", "is", "it"}
    | {"just", "keeps", "me", "my", "night", "now", "of", "our", "please", "really", "s", "so", "suddenly", "that", "the", "things"}
    | {"this", "to", "today", "too", "very", "was", "we", "were", "what", "why", "with", "you"}
)
"""Words that say nothing of a subject: a text of these and one more is about what it was typed into."""
_OF_OURS: Final = re.compile(
    r"(?<![a-z0-9])(answer|api|batch|call|chat|chunk|client|completion|engine|gateway|gpt|gpu|inference|json|key|latency|llama|llm|"
    r"load|model|output|p9\d|prompt|qwen|replica|request|respon|server|service|start|stream|token|traffic|ttft|upstream|vllm)|"
    r"[\u3400-\u9fff]|429|50[0234]"
)


class Words(msgspec.Struct, frozen=True):
    """How people say one symptom: what somebody might type, in both languages, and the terms, separated by commas."""

    example: tuple[str, str]
    english: str
    chinese: str


def plain(text: str) -> str:
    """Give a text as terms are compared with it: one width of letters and digits, lower case."""
    return unicodedata.normalize("NFKC", text).casefold()


def score(words: Words, text: str) -> int:
    """Give how much a plain text speaks of a symptom; 0: not at all."""
    is_ours = _OF_OURS.search(text) is not None or len(set(_LATIN_WORD.findall(text)) - _FILLERS) == 1
    terms = (term.strip() for each in (words.english, words.chinese) for term in each.split(","))
    return sum(_weight(term, text) for term in terms if is_ours or term not in _OF_ANYTHING)


def _weight(term: str, text: str) -> int:
    """Give how much a term counts that is in a text: a pair of words says more than two words apart."""
    words = term.split()
    return len(words) ** 2 if all(_contains(text, word) for word in words) else 0


def _contains(text: str, word: str) -> bool:
    return word in text if _WIDE.search(word) else re.search(rf"(?<![a-z0-9]){re.escape(word)}", text) is not None


JITTER: Final = Words(
    ("sometimes it takes 200 ms and sometimes 3 s", "延迟忽高忽低"),
    "jitter, fluctuat, unstable latency, latency unstable, latency up down, spik, sometimes slow, sometimes fast, sometimes takes, "
    "varies latency, inconsistent latency",
    "抖动, 忽高忽低, 延迟 忽高忽低, 波动, 时快时慢, 忽快忽慢, 有时 慢, 毛刺, 延迟 不稳",
)
JSON: Final = Words(
    ("the JSON has no closing bracket", "返回的 JSON 解析失败"),
    "json, broken json, invalid json, json closing, unterminated, missing bracket, parse error",
    "json 格式, json 错, json 解析, 缺少 括号, 缺少 引号, 解析 失败",
)
GARBLED: Final = Words(
    ("characters are garbled", "输出有乱码"),
    "split word, words split, broken word, garbled, mojibake, replacement char, utf-8, utf8, half character, question marks, "
    "tokenizer word",
    "乱码, 拆碎, 拆 单词, 半个 字, 断字, 分词 错, 问号",
)
LONG_TEXT: Final = Words(
    ("it forgets the middle of a long text", "长文本后半部分引用错误"),
    "long context, long text, long document, wrong clause, wrong part, misrefer, lost in the middle, forget, ignores the end, "
    "wrong reference",
    "长文本, 长上下文, 长文档, 引用 错, 后半, 注意力, 条款 错, 遗漏, 忘记 前面",
)
MEMORY: Final = Words(
    ("CUDA out of memory", "批量请求时显存爆满"),
    "out of memory, memory out, memory exhaust, oom, cuda memory, gpu memory, memory full, batch memory, preempt, kv cache full",
    "显存, 内存 溢出, 内存 不足, 爆满, 爆显存, 批量 内存",
)
COLD: Final = Words(
    ("the first call after a pause is slow", "冷启动，第一次调用很慢"),
    "first call, first request, first slow, cold start, cold, after idle, after pause, warm",
    "冷启动, 首次, 第一次 慢, 第一次 调用, 第一次 请求, 预热, 闲置, 刚 启动",
)
EMPTY: Final = Words(
    ("200, but the answer is empty", "返回 200 但是空回答"),
    "empty, blank, no content, empty answer, answer empty, empty success, 200 empty, content filter, content_filter, withheld",
    "空 回, 空白, 空 输出, 空 答, 内容过滤, 内容 安全, 敏感词, 返回 空, 没有 内容, 空的",
)
LIMITED: Final = Words(
    ("429 although below the limit", "没到上限就被限流"),
    "429, rate limit, too many requests, limit not reached, below limit, throttl, quota, budget exceeded, budget refused",
    "限流, 限速, 未 达 上限, 没 到 上限, 请求过多, 请求 太多, 配额, 额度, 余额, 预算 用完, 超 预算",
)
COST: Final = Words(
    ("it became too expensive", "太贵了，账单上涨"),
    "cost, bill, expensive, spend, price, dearer, pricey, money",
    "成本, 费用, 账单, 贵, 涨价, 花费, 花钱, 烧钱, 多花, 费钱",
)
ONE_REPLICA: Final = Words(
    ("TTFT is up on one replica", "某个副本首字变慢"),
    "ttft replica, one replica, slow replica, single replica, one node slow, one server slow, one gpu slow, first token replica",
    "单个 副本, 某个 副本, 副本 慢, 某 节点, 某台, 一个 副本, 一台 慢, 首字 副本, 首 token 副本",
)
NO_DONE: Final = Words(
    ("the stream breaks without [DONE]", "流式输出中断，没有 [DONE]"),
    "done, stream end, stream cut, stream break, stream broke, stream stop, stream abort, incomplete stream, stream disconnect",
    "断流, 流 中断, 流式 中断, 没有 done, 流 提前, 流 断, 流 停",
)
SLOW: Final = Words(
    ("it is slow", "晚高峰都很慢"),
    "peak, everything slow, all slow, busy hour, rush, slow, sluggish, laggy, lag, latency high, high latency, latency up, "
    "takes too long, takes forever, overload, p99",
    "高峰, 峰值, 全部 慢, 都 慢, 整体 慢, 慢, 拥堵, 很卡, 太卡, 好卡, 卡顿, 延迟 高, 延迟 上升, 响应 久",
)
COUNTS: Final = Words(
    ("token counts are wrong", "token 计数不准"),
    "token count, count wrong, wrong count, usage wrong, wrong usage, tokenizer, drift, miscount",
    "token 数, 计数, 计费 不符, 分词器, 词元 数, 用量 不",
)
RETRIES: Final = Words(
    ("retries multiply the traffic", "重试把流量放大了"),
    "retr, retry storm, amplif, multipl, storm, twice, duplicate",
    "重试, 放大, 风暴, 重复 请求, 流量 翻倍",
)
WORSE: Final = Words(
    ("the model became stupid", "回答质量变差"),
    "worse, quality, accuracy, degrad, stupid, dumb, wrong answer, answers wrong, hallucinat",
    "质量, 准确率, 变差, 变笨, 变傻, 退化, 降级, 回答 错, 答非所问, 幻觉, 胡说",
)
CUT: Final = Words(
    ("answers are cut off", "回答被截断"),
    "cut off, cut short, answer cut, truncat, answer incomplete, answer half, answer unfinished, answer stop, answer ends, "
    "mid sentence, midsentence, finish_reason length, ends early, stops early, too short",
    "截断, 被 切, 回答 不完整, 不 完整, 不全, 没 说完, 没 写完, 说 一半, 写 一半, 回答 一半, 变短, 砍了, 戛然而止, 太短",
)
FIRST_TOKEN: Final = Words(
    ("the first token comes late", "首字慢"),
    "first token, first token late, first token slow, ttft, ttft high, ttft slow, ttfb, time to first, first byte, first output, "
    "first word, prefill slow, slow prefill, slow to start",
    "首字, 首字 慢, 首 token, 首 token 慢, 首包, 首字 久, 首词, 第一个 字, 第一个 token, 出字 慢, 迟迟 不, 预填充, 等 很久 才",
)
IDLE: Final = Words(
    ("gpu idle", "GPU 空闲，利用率很低"),
    "gpu idle, idle gpu, gpu unused, gpu utilisation, gpu utilization, gpu nothing, gpu bored, low utilisation, low utilization, underused",
    "gpu 空闲, 显卡 空闲, gpu 闲, 显卡 闲, gpu 空转, 利用率 低, gpu 利用率, 显卡 利用率, gpu 没 用, 吃不满, 跑不满",
)
FAILING: Final = Words(
    ("requests time out or fail with 502", "请求超时、报错"),
    "error, error rate, fail, timeout, time out, timed out, times out, timing out, http 500, error 500, status 500, 500 error, 502, "
    "503, 504, 5xx, down, unavailable, unreachable, connection refused, connection reset, cannot connect, no response, not respond, "
    "no answer, hang, stuck",
    "报错, 错误率, 失败, 超时, 不可用, 连不上, 无法 连接, 连接 拒绝, 挂了, 崩了, 崩溃, 宕机, 转圈, 卡住, 卡死, 没 响应, 无响应, "
    "不 响应, 没 反应, 不通",
)
KEYS: Final = Words(
    ("401: the key is refused", "401，密钥被拒绝"),
    "401, 403, unauthorized, unauthorised, unauthenticated, forbidden, invalid key, wrong key, api key, key refused, key rejected, "
    "key invalid, permission, access denied",
    "密钥, 鉴权, 认证 失败, 未授权, 没有 权限, 无 权限, 无权, 拒绝 访问",
)
