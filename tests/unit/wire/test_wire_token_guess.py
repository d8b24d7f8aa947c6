"""The guess of a prompt's tokens beside the real tokenizer, on a small mixed corpus."""

from __future__ import annotations

import json
from functools import cache

import pytest

from tidegate.adapters.counting.vocabulary import QWEN, Encode, VocabularyMissingError, load_vocabulary
from tidegate.domain.request import Operation, ParsedRequest
from tidegate.wire.features import read_features
from tidegate.wire.openai_request import parse_request

CORPUS = {
    "english": "I ordered a pair of running shoes two weeks ago and the parcel still has not arrived. The tracking page has shown the same "
    "status since Monday, and nobody answers the phone. Can you tell me where it is, and whether I should cancel and order again? If it "
    "helps, the confirmation said that delivery would take three to five working days.",
    "chinese": "昨天下午，公司在上海总部召开了季度经营会议。会上，财务负责人介绍了前三个季度的收入情况，并对明年的预算提出了几点要求。"
    "与会人员一致认为，应当进一步提高研发投入，同时控制销售费用的增长。会议还讨论了新产品的发布计划。",
    "japanese": "お問い合わせありがとうございます。ご注文の商品につきまして、現在倉庫での確認作業に時間がかかっており、"
    "発送が遅れております。大変申し訳ございませんが、もう少々お待ちいただけますでしょうか。",
    "korean": "안녕하세요. 지난주에 주문한 상품이 아직 도착하지 않았습니다. 배송 조회를 해 보아도 같은 상태로만 표시되고 고객센터는 전화를 "
    "받지 않습니다. 빠른 확인 부탁드리며, 이번 주 안에 받을 수 없다면 환불을 원합니다.",
    "russian": "Здравствуйте! Две недели назад я заказал у вас кроссовки, но посылка до сих пор не пришла. На странице отслеживания с "
    "понедельника ничего не меняется, а по телефону никто не отвечает. Подскажите, пожалуйста, где находится мой заказ.",
    "arabic": "مرحبا، لقد طلبت حذاء رياضيا قبل أسبوعين ولم يصل الطرد حتى الآن. صفحة التتبع تعرض الحالة نفسها منذ يوم الاثنين ولا أحد يجيب "
    "على الهاتف. هل يمكنكم إخباري بمكان الطلب وهل يجب أن ألغيه؟",
    "german": "Guten Tag, vor zwei Wochen habe ich bei Ihnen ein Paar Laufschuhe bestellt, aber das Paket ist bis heute nicht angekommen. "
    "Die Sendungsverfolgung zeigt seit Montag denselben Status, und am Telefon erreiche ich niemanden.",
    "french": "Bonjour, j'ai commandé une paire de chaussures de course il y a deux semaines et le colis n'est toujours pas arrivé. La "
    "page de suivi affiche le même statut depuis lundi et personne ne répond au téléphone.",
    "hindi": "नमस्ते, मैंने दो सप्ताह पहले जूते मंगवाए थे लेकिन पार्सल अभी तक नहीं आया है। ट्रैकिंग पृष्ठ सोमवार से वही स्थिति दिखा रहा है और फ़ोन पर "
    "कोई जवाब नहीं देता।",
    "python": "import math\n\n\ndef mean(values: list[float]) -> float:\n    if not values:\n        raise ValueError('no values')\n"
    "    return math.fsum(values) / len(values)\n\n\nclass Window:\n    def __init__(self, size: int) -> None:\n        self.size = size\n"
    "        self.kept: list[float] = []\n\n    def add(self, value: float) -> None:\n        self.kept.append(value)\n"
    "        del self.kept[: -self.size]\n",
    "json": json.dumps([{"order_id": 10_000 + n, "status": "shipped", "address": {"city": "Berlin", "zip": "10115"}} for n in range(6)]),
    "html": "<div class='card'><h2>Running shoes</h2><p>Light and <b>comfortable</b>, for every day.</p><ul><li>Size 42</li><li>Blue"
    "</li></ul><a href='/cart'>Add to cart</a></div>" * 2,
    "csv": "date,region,units,revenue\n2024-01-05,north,1204,18320.50\n2024-01-12,south,980,14411.00\n2024-01-19,east,1533,22990.75\n",
    "markdown": "| Model | Latency (ms) | Cost |\n|---|---:|---:|\n| small | 120 | 0.4 |\n| medium | 310 | 1.2 |\n| large | 820 | 4.8 |\n\n"
    "**Question:** which row has the best ratio of latency to cost?",
    "mixed": "请将 README 里的 `max_connections` 改成 1000，并解释 why the default of 20,000 is too high for a small VPS。",
}
WORST = 0.3
MEDIAN = 0.1


@cache
def _encode() -> Encode:
    try:
        return load_vocabulary(QWEN)
    except VocabularyMissingError:
        pytest.skip("the vocabulary is an optional extra")


def _guess_and_count(text: str) -> tuple[int, int, int]:
    body = json.dumps({"model": "m", "prompt": text}, ensure_ascii=False).encode()
    parsed = parse_request(Operation.COMPLETION, body)
    assert isinstance(parsed, ParsedRequest)
    return read_features(parsed).prompt_tokens, len(_encode()(text)), parsed.prompt_tokens_bound


@pytest.mark.parametrize("kind", CORPUS)
def test_the_guess_is_near_the_count_for_each_kind_of_text(kind: str) -> None:
    """No kind of text is further off than three tenths, where the byte bound is at least twice the count."""
    guess, count, bound = _guess_and_count(CORPUS[kind])
    assert guess == pytest.approx(count, rel=WORST)
    assert abs(guess - count) * 2 < bound - count


def test_the_guess_is_within_a_tenth_in_the_middle_case_and_over_the_whole_corpus() -> None:
    """Errors of single texts go both ways, so that budgets over many requests hold."""
    pairs = [_guess_and_count(text) for text in CORPUS.values()]
    errors = sorted(abs(guess / count - 1) for guess, count, _ in pairs)
    assert errors[len(errors) // 2] < MEDIAN
    assert sum(guess for guess, _, _ in pairs) == pytest.approx(sum(count for _, count, _ in pairs), rel=0.05)
