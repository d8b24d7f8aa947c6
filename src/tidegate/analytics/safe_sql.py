"""Decides which SQL of people may be run: one question about our own tables, and nothing that reads or writes elsewhere.

Everything is refused that is not known to be harmless. The statement is parsed, and only what was understood is written anew and run, so
that no comment, quoting or odd syntax means one thing here and another to ClickHouse. Invariants of what is let through:

* it is one SELECT, WITH … SELECT, a union of them, or EXPLAIN of one;
* tables are ours or named by its WITH, never functions, never of another database; none named by its WITH is called like one of ours;
* functions are among `FUNCTIONS` and their like, wherever they stand and however they are quoted;
* every plain name is a column of ours or was given in the statement itself, and is not where ClickHouse would call a function of that name:
  `arrayMap(file, ['/etc/passwd'])` reads files;
* it has no SETTINGS, FORMAT, INTO OUTFILE and no parameters.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from difflib import get_close_matches
from itertools import pairwise
from typing import Final, NoReturn

from sqlglot import exp, parse
from sqlglot.dialects.clickhouse import ClickHouse
from sqlglot.errors import ParseError, TokenError
from sqlglot.tokenizer_core import TokenType

from tidegate.analytics.schema import BODIES, BY_NAME, DATABASE
from tidegate.errors import InvalidParameter

LONGEST: Final = 20_000
"""Characters of a statement: what a person writes is far shorter, and the parser is not quick."""
DEEPEST: Final = 60
"""Brackets within brackets: beyond what a person reads, and before the parser's own stack ends."""

_HARMLESS: Final = """
    abs age and any anyHeavy anyLast array assumeNotNull avg avgWeighted bar between bitAnd bitOr bitShiftLeft bitShiftRight bitXor
    case cast ceil ceiling char_length cityHash64 coalesce concat concatWithSeparator corr count covarPop covarSamp cutQueryString
    dateDiff dateName dateTrunc date_add date_diff date_sub date_trunc denseRank dense_rank divide domain e empty endsWith entropy
    equals exp exp10 exp2 extract extractAll first_value floor formatDateTime formatReadableQuantity formatReadableSize
    formatReadableTimeDelta fromUnixTimestamp fromUnixTimestamp64Milli greater greaterOrEquals greatest grouping groupArray
    groupArrayLast groupArraySample groupArraySorted groupUniqArray has hasAll hasAny hasToken hex histogram identity if ifNotFinite
    ifNull initcap intDiv intDivOrZero interval intHash32 intHash64 ilike isFinite isInfinite isNaN isNotNull isNull isZeroOrNull
    kurtPop kurtSamp lag lagInFrame last_value lcase lead leadInFrame least left leftPad length lengthUTF8 less lessOrEquals like ln
    locate log log10 log1p log2 lower lowerUTF8 map mapContains mapContainsKey mapFilter mapFromArrays mapKeys mapSort mapValues match
    max max2 median min min2 minus mod modulo multiIf multiSearchAny multiply negate not notEmpty notEquals notLike now now64
    nth_value ntile nullIf or percentRank percent_rank pi plus position positionCaseInsensitive pow power range rank regexpExtract
    replace replaceAll replaceOne replaceRegexpAll replaceRegexpOne reverse right rightPad round roundBankers roundDown roundToExp2
    row_number rowNumberInAllBlocks rtrim runningDifference sign simpleLinearRegression sipHash64 skewPop skewSamp sparkbar
    splitByChar splitByString sqrt startsWith stddevPop stddevSamp substr substring substringUTF8 sum sumCount sumKahan sumMap
    timeSlot timeSlots today tokens topK topKWeighted transform trim trimBoth trimLeft trimRight trunc truncate tuple tupleElement
    ucase uniq uniqCombined uniqCombined64 uniqExact uniqHLL12 upper upperUTF8 varPop varSamp width_bucket windowFunnel xor xxHash64
    yesterday argMax argMin deltaSum quantileBFloat16 exponentialMovingAverage boundingRatio
    quantile quantiles quantileExact quantileTDigest countIf sumIf avgIf toString toDate toDateTime toStartOfMinute toStartOfHour
    arrayMap arrayFilter arrayJoin arrayExists arrayStringConcat
"""
FUNCTIONS: Final = frozenset(_HARMLESS.split())
"""All compute from what they are given. Added to them are the families of `_FAMILIES`."""
_COMBINATORS: Final = "(?:If|Array|Map|Distinct|OrNull|OrDefault|ForEach|Resample|ArgMin|ArgMax)*"
_AGGREGATES: Final = (
    "(?:count|sum|avg|min|max|any|anyLast|uniq|uniqExact|uniqCombined|argMin|argMax|groupArray|groupUniqArray|topK|stddevPop|stddevSamp|"
    "varPop|varSamp|median|medianExact|medianTDigest|"
    "quantiles?(?:Exact|ExactLow|ExactHigh|ExactInclusive|ExactExclusive|ExactWeighted|TDigest|TDigestWeighted|Timing|BFloat16|"
    "Deterministic|DD|GK|Interpolated|InterpolatedWeighted|TimingWeighted)?)"
)
_FAMILIES: Final = re.compile(
    f"{_AGGREGATES}{_COMBINATORS}|array(?!Reduce)[A-Z]\\w*|to(?:Start|Last)Of[A-Z]\\w*|toRelative[A-Z]\\w*Num|toInterval[A-Z][a-z]+|"
    "to(?:U?Int|Float)(?:8|16|32|64)(?:OrNull|OrZero|OrDefault)?|to(?:Date|DateTime|DateTime32|DateTime64)(?:OrNull|OrZero|OrDefault)?|"
    "to(?:Decimal(?:32|64)|String|Bool|Nullable|Hour|Minute|Second|Month|Year|Quarter|DayOfWeek|DayOfMonth|DayOfYear|ISOWeek|Monday|"
    "UnixTimestamp|UnixTimestamp64Milli|Timezone|TypeName|YYYYMM|YYYYMMDD|LowCardinality)|(?:add|subtract)[A-Z][a-z]+s"
)
_TYPES: Final = {"Nullable", "Array", "Map", "Tuple", "Decimal", "Decimal32", "Decimal64", "DateTime", "DateTime64", "FixedString"}
_KEYWORDS: Final = """
    FILTER ALL ALIAS AND ANY AS ASC BETWEEN BY CASE CUBE DESC DISTINCT ELSE END EXCEPT EXISTS FROM GLOBAL HAVING ILIKE IN INNER INTERSECT
    INTERVAL JOIN LEFT LIKE LIMIT NOT OFFSET ON OR OVER PARTITION PREWHERE QUALIFY REPLACE RIGHT ROLLUP ROWS SELECT SETS THEN UNION
    USING WHEN WHERE WITH WINDOW
"""
_SYNTAX: Final = frozenset(_KEYWORDS.split())
"""What may stand before a bracket without being a function."""

_KINDS: Final = """
    Add Alias Aliases And AnonymousAggFunc Anonymous Array Between Binary BitwiseAnd BitwiseOr BitwiseXor Boolean Bracket Case Cast
    Column CombinedAggFunc CombinedParameterizedAgg CTE DataType DataTypeParam Distinct Div Dot DPipe Filter EQ Escape Except Exists
    Fetch Final From GT GTE Group Cube Rollup GroupingSets Having Identifier If ILike In IntDiv Intersect Interval Is Join LT LTE
    Lambda Like Limit Literal Mod Mul NEQ Neg Not Null Offset Or Order Ordered ParameterizedAgg Paren PreWhere Qualify RegexpLike
    Select Star Sub Subquery Table TableAlias Tuple Union Var Where Window WindowSpec With WithFill Kwarg PropertyEQ Slice
    TsOrDsToDate
"""
_NODES: Final = frozenset(_KINDS.split())
"""Kinds of syntax that are let through; all functions are looked at by name besides."""
_EXPLAIN: Final = re.compile(r"\s*EXPLAIN(?:\s+(PLAN|PIPELINE|SYNTAX|ESTIMATE|QUERY\s+TREE))?\s+(?=SELECT\b|WITH\b|\()", re.IGNORECASE)
_COLUMNS: Final = frozenset(column.name for table in BY_NAME.values() for column in table.columns)
_REFUSED_CLAUSES: Final = {"settings": "SETTINGS", "format": "FORMAT", "into": "INTO", "sample": "SAMPLE", "locks": "FOR UPDATE"}
_ALTERNATIVES: Final = {
    "show": "`tidegate query columns` lists tables and columns.",
    "describe": "`tidegate query columns` lists tables and columns.",
    "desc": "`tidegate query columns` lists tables and columns.",
    "exists": "`tidegate query columns` lists tables and columns.",
}


def checked(sql: str, *, bodies: bool = False) -> str:
    """Give the statement to run for a person's SQL; `InvalidParameter` that says what to write instead. `bodies` may be read if told so."""
    if not sql.isascii() and sql != sql.encode("utf-8", "replace").decode():
        raise InvalidParameter("The statement has characters that are none: half of a pair, or bytes that are not UTF-8.", param="sql")
    explain = _EXPLAIN.match(sql)
    shift = explain.end() if explain else 0
    try:
        tree = _parsed(sql[shift:], sql, shift=shift)
        check = _Check(sql, tree, bodies=bodies, shift=shift)
        check.syntax()
        check.tables()
        check.names()
        written: str = tree.sql(dialect=ClickHouse, comments=False)
    except RecursionError as error:
        raise InvalidParameter("The statement is nested too deep. Split it by WITH.", param="sql") from error
    check.functions(written)
    return f"EXPLAIN {' '.join((explain[1] or 'PLAN').upper().split())} {written}" if explain else written


class _Check:
    """One statement under examination."""

    def __init__(self, sql: str, tree: exp.Expr, *, bodies: bool, shift: int) -> None:
        self._sql = sql
        self._tree = tree
        self._bodies = bodies
        self._shift = shift
        self._own = {cte.alias for cte in tree.find_all(exp.CTE)}

    def syntax(self) -> None:
        for node in self._tree.walk():
            kind = type(node).__name__
            if isinstance(node, exp.Placeholder | exp.Parameter):
                self._refuse("Parameters in braces cannot be given here. Write the value itself.", node)
            if kind not in _NODES and not isinstance(node, exp.Func):
                self._refuse(f"{_words(kind)} is not among what may be asked here. Write it with plain SELECTs.", node)
            if isinstance(node, exp.Lambda) and node.find(exp.Query) is not None:  # names in it would be anybody's guess
                self._refuse("A lambda cannot hold a SELECT. Put it into a WITH.", node)
            for clause, word in _REFUSED_CLAUSES.items():
                if node.args.get(clause) and not isinstance(node, exp.Func):
                    self._refuse(f"{word} may not be said here. Leave it out; --format, --max-rows and --deadline are options.", node)

    def tables(self) -> None:
        for name in sorted(self._own & BY_NAME.keys()):
            self._refuse(f"WITH gives the name {name!r}, which is a table's. Choose another name.")
        for table in self._tree.find_all(exp.Table):
            self._table(table.this, table.text("db"), table.text("catalog"))
        for node in self._tree.find_all(exp.In):
            field = node.args.get("field")
            single = node.expressions[0] if len(node.expressions) == 1 else None
            for operand in (each.unnest() for each in (field, single) if each is not None):
                if isinstance(operand, exp.Column):  # ClickHouse takes a name here for a table
                    self._table(operand.this, operand.text("table"), operand.text("db"))
                elif isinstance(operand, exp.Identifier | exp.Dot):  # a parameter of a lambda
                    self._refuse("After IN write a list in round brackets, or a SELECT.", node)

    def names(self) -> None:
        given = self._own | {
            identifier.name
            for node in self._tree.find_all(exp.Alias, exp.Aliases, exp.TableAlias, exp.Lambda, exp.Window, exp.Join)
            for identifier in _given_by(node)
        }
        for column in self._tree.find_all(exp.Column):
            first = column.parts[0].name if len(column.parts) > 1 else ""
            if isinstance(column.this, exp.Star) or first in _COLUMNS | given | BY_NAME.keys():
                continue
            if first or column.name not in _COLUMNS | given:
                self._unknown("column", first or column.name, _COLUMNS | given, column.parts[0])
            if column.name not in _COLUMNS and _may_mean_a_function(column):
                sentence = f"{column.name!r} could be taken for a function here. Write the table before it, like t.{column.name}."
                self._refuse(sentence, column)
        for node in self._tree.find_all(exp.Join):
            for identifier in node.args.get("using") or ():
                if identifier.name not in _COLUMNS | given:
                    self._unknown("column", identifier.name, _COLUMNS | given, identifier)

    def functions(self, written: str) -> None:
        """Look at whatever stands before an opening bracket in what will be run, as ClickHouse would."""
        tokens = ClickHouse().tokenize(written)
        for token, following in pairwise(tokens):
            if following.token_type is not TokenType.L_PAREN or not re.fullmatch(r"\w.*", token.text, re.DOTALL):
                continue
            quoted = token.token_type is TokenType.IDENTIFIER
            if token.token_type in (TokenType.STRING, TokenType.NUMBER) or (not quoted and token.text.upper().split()[-1] in _SYNTAX):
                continue
            if not is_allowed_function(token.text) and token.text not in _TYPES:
                self._unknown("function", token.text, FUNCTIONS)

    def _table(self, name: exp.Expr, database: str, catalog: str) -> None:
        if not isinstance(name, exp.Identifier):
            called = getattr(name, "name", "") or type(name).__name__
            self._refuse(f"{called}() is no table of records. Tables are {_listed()}; nothing else can be read.", name)
        if catalog or database not in {"", DATABASE}:
            self._refuse(f"{database}.{name.name} is none of our tables. They are {_listed()}, without a database before them.", name)
        if name.name == BODIES.name and not self._bodies:
            self._refuse("What was asked and answered (`bodies`) may be read by an administrator only.", name)
        if name.name not in BY_NAME and (database or name.name not in self._own):
            self._unknown("table", name.name, set(BY_NAME) | self._own, name)

    def _unknown(self, kind: str, name: str, known: frozenset[str] | set[str], node: exp.Expr | None = None) -> NoReturn:
        near = get_close_matches(name, known, n=1) or get_close_matches(name.lower(), known, n=1)
        advice = f"Did you mean {near[0]}?" if near else "`tidegate query columns` lists tables and columns."
        self._refuse(f"There is no {kind} {name!r} to use here. {advice}", node)

    def _refuse(self, sentence: str, node: exp.Expr | None = None) -> NoReturn:
        raise InvalidParameter(_placed(sentence, self._sql, _start(node), self._shift), param="sql")


def is_allowed_function(name: str) -> bool:
    """Say whether a function is among those that only compute; ClickHouse knows some names in either case."""
    return name in FUNCTIONS or name.lower() in FUNCTIONS or _FAMILIES.fullmatch(name) is not None


def _parsed(sql: str, whole: str, *, shift: int) -> exp.Expr:
    if len(sql) > LONGEST or _depth(sql) > DEEPEST:
        raise InvalidParameter(f"The statement is longer than {LONGEST:,} characters or nested more than {DEEPEST} deep.", param="sql")
    word = re.match(r"\s*(\w*)", sql)
    first = word[1].lower() if word else ""
    try:
        trees = parse(sql, dialect=ClickHouse) if first in {"select", "with", ""} else []
    except ParseError as error:
        raise InvalidParameter(_syntax(sql, whole, error, shift=shift), param="sql") from error
    except TokenError as error:
        raise InvalidParameter("A quote or a comment is opened and not closed.", param="sql") from error
    if len(trees) > 1:
        raise InvalidParameter("There is more than one statement. Ask one at a time, without a semicolon between.", param="sql")
    tree = trees[0] if trees else None
    while isinstance(tree, exp.Subquery) and not any(value for name, value in tree.args.items() if name != "this"):
        tree = tree.this
    if not isinstance(tree, exp.Select | exp.SetOperation):
        advice = _ALTERNATIVES.get(first, "Write SELECT …, or the name of a question; `tidegate query` lists them.")
        raise InvalidParameter(f"Only questions can be asked: one SELECT, WITH … SELECT, or EXPLAIN of one. {advice}", param="sql")
    return tree


def _depth(sql: str) -> int:
    """Give an upper bound of how deep brackets are nested; those within strings count too."""
    deepest = depth = 0
    for character in sql:
        depth += (character in "([{") - (character in ")]}")
        deepest = max(deepest, depth)
    return deepest


def _syntax(sql: str, whole: str, error: ParseError, *, shift: int) -> str:
    """Say where the parser stopped. It tells of what is around, which is as long as the statement where that is short."""
    found = error.errors[0]
    before, there = found.get("start_context") or "", found.get("highlight") or ""
    at = sql.find(before + there)
    return _placed(f"The statement cannot be read at {there!r}.", whole, at + len(before) if at >= 0 else None, shift)


def _placed(sentence: str, sql: str, at: int | None, shift: int) -> str:
    """Add where that is: the line of the statement, and a mark below."""
    if at is None:
        return sentence
    at += shift
    begin = sql.rfind("\n", 0, at) + 1
    end = sql.find("\n", at)
    line = sql[begin : end if end >= 0 else len(sql)]
    cut = max(0, at - begin - 60)
    place = f"line {sql.count(chr(10), 0, at) + 1}, column {at - begin + 1}"
    return f"{sentence} ({place})\n  {line[cut : cut + 120]}\n  {' ' * (at - begin - cut)}^"


def _start(node: exp.Expr | None) -> int | None:
    if node is None:
        return None
    starts = [each.meta["start"] for each in node.walk() if "start" in each.meta]
    return min(starts) if starts else None


def _may_mean_a_function(column: exp.Column) -> bool:
    """Say whether ClickHouse may call a function of this name, since one is due here; the parser tells parameters of lambdas apart.

    That it is the name of something elsewhere in the statement does not keep it from that.
    """
    outer = column.parent
    while isinstance(outer, exp.Paren | exp.Alias):
        outer = outer.parent
    return isinstance(outer, exp.Func) and re.match("array|map", outer.sql(dialect=ClickHouse), re.IGNORECASE) is not None


def _given_by(node: exp.Expr) -> Iterator[exp.Expr]:
    """Give the identifiers that this part of a statement gives a meaning to."""
    if isinstance(node, exp.Lambda):
        yield from (each for each in node.expressions)
    elif isinstance(node, exp.TableAlias):
        yield from (*((node.this,) if node.this is not None else ()), *(node.args.get("columns") or ()))
    elif isinstance(node, exp.Aliases):
        yield from node.expressions
    elif isinstance(node.args.get("alias"), exp.Identifier):
        yield node.args["alias"]


def _listed() -> str:
    return ", ".join(name for name in BY_NAME if name != BODIES.name)


def _words(kind: str) -> str:
    return " ".join(re.findall(r"[A-Z]+(?![a-z])|[A-Z][a-z]+", kind)).upper()
