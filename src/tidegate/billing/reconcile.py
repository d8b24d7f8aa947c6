"""A provider's figures beside ours: tokens and cost by day and model, and how far they drift apart.

The provider's export is CSV with a heading. Its columns are found by name (`COLUMNS`, letter case and punctuation aside); a day, a model
and tokens must be there, a cost may be. Days are UTC's. Model names are compared without letter case and without the vendor's part before
the last slash. What is judged are the sums of each model over all days of the export, since the days of two clocks never end together;
the days show where a drift comes from.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from decimal import Decimal, InvalidOperation
from typing import Final

import msgspec

from tidegate.billing.calls import BilledCall
from tidegate.billing.layout import csv_text, day_text, plain, ratio_text, table
from tidegate.domain.money import MICRO, money_text
from tidegate.errors import ConfigurationError

COLUMNS: Final[dict[str, tuple[str, ...]]] = {
    "day": ("date", "day", "usage_date", "start_time_iso", "start_time", "created_at", "timestamp", "日期", "消费日期", "时间"),
    "model": ("model", "model_permaslug", "model_slug", "model_name", "model_id", "snapshot_id", "模型", "模型名称"),
    "input": ("input_tokens", "prompt_tokens", "tokens_prompt", "n_context_tokens_total", "输入_token", "输入_tokens"),
    "output": ("output_tokens", "completion_tokens", "tokens_completion", "n_generated_tokens_total", "输出_token", "输出_tokens"),
    "tokens": ("total_tokens", "tokens", "用量"),
    "cost": ("cost", "cost_total", "total_cost", "cost_usd", "usage", "spend", "amount", "amount_value", "应付金额"),
}
"""What each figure is called in the exports of OpenAI, OpenRouter, DashScope and others; the first that is there counts."""
_APART = re.compile(r"\W+")
_EPOCH = re.compile(r"\d{9,13}(?:\.\d+)?")
_YEARS = range(1970, 9999)
_GROUPED = re.compile(r"[-+]?\d{1,3}(?:,\d{3})+(?:\.\d*)?")
"""Commas between thousands; a comma anywhere else is a decimal one, and leaving it out would make another number."""
_MILLISECONDS = 1e11
"""Above it a timestamp counts milliseconds."""


class Figures(msgspec.Struct, frozen=True):
    tokens: int = 0
    cost_micro: int = 0

    def plus(self, other: Figures) -> Figures:
        return Figures(self.tokens + other.tokens, self.cost_micro + other.cost_micro)


Table = dict[tuple[str, str], Figures]
"""By day and model."""


class Export(msgspec.Struct, frozen=True):
    """What a provider says. `has_cost` False: it says nothing of money."""

    figures: Table
    has_cost: bool


class Comparison(msgspec.Struct, frozen=True):
    """One day and model, or the sum of a model's days (`day` empty)."""

    day: str
    model: str
    theirs: Figures
    ours: Figures

    @property
    def tokens_ratio(self) -> float | None:
        """How much more we counted, as a share of theirs; None: they have none."""
        return _drift(self.ours.tokens, self.theirs.tokens)

    @property
    def cost_ratio(self) -> float | None:
        return _drift(self.ours.cost_micro, self.theirs.cost_micro)


class Reconciliation(msgspec.Struct, frozen=True):
    """All comparisons. `beyond`: the models that drift further than is tolerated."""

    days: tuple[Comparison, ...]
    models: tuple[Comparison, ...]
    beyond: tuple[str, ...]
    has_cost: bool
    tolerance: float


def read_export(text: str, *, name: str) -> Export:
    """Read a provider's export; `ConfigurationError` says which column or cell cannot be read."""
    rows = _Rows(text.removeprefix("\ufeff"), name)
    heading = [_APART.sub("_", cell.strip().lower()).strip("_") for cell in next(rows, [])]
    places = {
        figure: heading.index(found) for figure, names in COLUMNS.items() if (found := next((n for n in names if n in heading), None))
    }
    has_tokens = "tokens" in places or {"input", "output"} <= places.keys()
    for figure, there in (("day", "day" in places), ("model", "model" in places), ("input", has_tokens)):
        if not there:
            known = ", ".join(COLUMNS[figure])
            raise ConfigurationError(
                f"{name} has no column for the {figure}; one of these would be known: {known}. Columns are separated by commas."
            )
    figures: Table = {}
    for row in rows:
        if not any(cell.strip() for cell in row):
            continue
        cells = {figure: row[place].strip() if place < len(row) else "" for figure, place in places.items()}
        where = f"{name}, line {rows.line_num}"
        key = (_day(cells["day"], where), plain_model(cells["model"]))
        parts = [cells[part] for part in ("input", "output") if part in cells] if {"input", "output"} <= cells.keys() else [cells["tokens"]]
        tokens = sum(int(_number(part, where)) for part in parts)
        cost = _number(cells.get("cost", ""), where)
        figures[key] = figures.get(key, Figures()).plus(Figures(tokens, round(cost * MICRO)))
    return Export(figures, "cost" in places)


class _Rows:
    """The rows of a CSV file, which says where it is none."""

    def __init__(self, text: str, name: str) -> None:
        self._reader = csv.reader(io.StringIO(text))
        self._name = name

    @property
    def line_num(self) -> int:
        return self._reader.line_num

    def __iter__(self) -> Iterator[list[str]]:
        return self

    def __next__(self) -> list[str]:
        try:
            return next(self._reader)
        except csv.Error as error:
            raise ConfigurationError(f"{self._name}, line {self.line_num}: this is no CSV ({error}); export it again.") from None


def our_figures(calls: Iterable[BilledCall]) -> Table:
    """Sum our own calls up in the same way."""
    figures: Table = {}
    for call in calls:
        key = (day_text(call.at), plain_model(call.dimensions.model))
        figures[key] = figures.get(key, Figures()).plus(Figures(call.usage.total_tokens, call.amount_micro))
    return figures


def reconcile(export: Export, ours: Table, *, tolerance: float, aliases: Mapping[str, str] | None = None) -> Reconciliation:
    """Compare. `aliases` says what we call a model of theirs; only days that the export has are looked at."""
    renamed = {plain_model(theirs): plain_model(name) for theirs, name in (aliases or {}).items()}
    theirs: Table = {}
    for (day, model), figures in export.figures.items():
        key = (day, renamed.get(model, model))
        theirs[key] = theirs.get(key, Figures()).plus(figures)
    first, last = _span(theirs)
    inside = {key: figures for key, figures in ours.items() if first <= key[0] <= last}
    days = [Comparison(*key, theirs.get(key, Figures()), inside.get(key, Figures())) for key in sorted({*theirs, *inside})]
    models = [_model_sum(model, days) for model in sorted({each.model for each in days})]
    beyond = tuple(each.model for each in models if _is_beyond(each, tolerance, has_cost=export.has_cost))
    return Reconciliation(tuple(days), tuple(models), beyond, export.has_cost, tolerance)


def plain_model(name: str) -> str:
    """Give a model's name as it is compared."""
    return name.rpartition("/")[2].strip().lower()


def days_of(export: Export) -> tuple[float, float]:
    """Give the span that an export covers: seconds since the epoch, to the end of its last day. An empty one covers nothing."""
    if not export.figures:
        return 0.0, 0.0
    first, last = (datetime.fromisoformat(day).replace(tzinfo=UTC).timestamp() for day in _span(export.figures))
    return first, last + 86_400.0


def _span(figures: Table) -> tuple[str, str]:
    days = [day for day, _ in figures]
    return min(days, default=""), max(days, default="")


def _model_sum(model: str, days: Iterable[Comparison]) -> Comparison:
    theirs = ours = Figures()
    for each in days:
        if each.model == model:
            theirs, ours = theirs.plus(each.theirs), ours.plus(each.ours)
    return Comparison("", model, theirs, ours)


def _is_beyond(each: Comparison, tolerance: float, *, has_cost: bool) -> bool:
    pairs = [(each.ours.tokens, each.theirs.tokens)]
    if has_cost:
        pairs.append((each.ours.cost_micro, each.theirs.cost_micro))
    return any(abs(ours - theirs) > tolerance * abs(theirs) for ours, theirs in pairs)


def _drift(ours: int, theirs: int) -> float | None:
    return (ours - theirs) / theirs if theirs else None


def _day(text: str, where: str) -> str:
    if _EPOCH.fullmatch(text):
        at = float(text)
        return day_text(at / 1000 if at > _MILLISECONDS else at)
    try:
        at_time = datetime.fromisoformat(text.removesuffix(" UTC").replace("/", "-"))
        in_utc = at_time if at_time.tzinfo is None else at_time.astimezone(UTC)
    except (ValueError, OverflowError):
        in_utc = None
    if in_utc is None or in_utc.year not in _YEARS:
        raise ConfigurationError(f'{where}: "{text[:40]}" is not a day; write it like 2026-11-30.')
    return in_utc.strftime("%Y-%m-%d")


def _number(text: str, where: str) -> Decimal:
    plain = text.strip("$¥€ ")
    if not plain:
        return Decimal(0)
    try:
        number = Decimal(plain.replace(",", "") if _GROUPED.fullmatch(plain) else plain)
    except InvalidOperation:
        number = Decimal("NaN")
    if not number.is_finite() or abs(number) >= 10**18:
        raise ConfigurationError(f'{where}: "{text[:40]}" is not a number; write it like 1234.56 or 1,234.56.')
    return number


# ── how it looks ──────────────────────────────────────────────────────────────

_HEADING = ("day", "model", "their tokens", "our tokens", "drift", "drift %", "their cost", "our cost", "drift", "drift %")


def reconciliation_text(found: Reconciliation) -> str:
    """Write a comparison for people: days, then sums, then the judgement."""
    width = len(_HEADING) if found.has_cost else 6
    rows = [_HEADING, *(_cells(each) for each in found.days), *(_cells(each) for each in found.models)]
    judged = f"{len(found.beyond)} of {len(found.models)} models drift by more than {found.tolerance * 100:g} %"
    named = f": {plain(', '.join(found.beyond))}" if found.beyond else ""
    return f"{table([row[:width] for row in rows], left=2)}{judged}{named}\n"


def _cells(each: Comparison) -> tuple[str, ...]:
    theirs, ours = each.theirs, each.ours
    return (
        *(each.day or "all days", each.model, f"{theirs.tokens:,}", f"{ours.tokens:,}", f"{ours.tokens - theirs.tokens:+,}"),
        *(ratio_text(each.tokens_ratio), money_text(theirs.cost_micro), money_text(ours.cost_micro)),
        *(money_text(ours.cost_micro - theirs.cost_micro), ratio_text(each.cost_ratio)),
    )


def reconciliation_csv(found: Reconciliation) -> str:
    """Write the days as CSV; empty cells where there is nothing to compare with."""
    heading = ("day", "model", "their_tokens", "our_tokens", "tokens_ratio", "their_cost", "our_cost", "cost_ratio")
    rows = (
        (
            *(each.day, each.model, each.theirs.tokens, each.ours.tokens, _cell(each.tokens_ratio)),
            *(money_text(each.theirs.cost_micro), money_text(each.ours.cost_micro), _cell(each.cost_ratio)),
        )
        for each in found.days
    )
    return csv_text((heading, *rows))


def _cell(ratio: float | None) -> str:
    return "" if ratio is None else f"{ratio:.6f}"


def reconciliation_json(found: Reconciliation) -> dict[str, object]:
    """Give a comparison as JSON has it."""
    return {
        "tolerance": found.tolerance,
        "has_cost": found.has_cost,
        "beyond": found.beyond,
        "days": [_json(each) for each in found.days],
        "models": [_json(each) for each in found.models],
    }


def _json(each: Comparison) -> dict[str, object]:
    return {**msgspec.to_builtins(each), "tokens_ratio": each.tokens_ratio, "cost_ratio": each.cost_ratio}
