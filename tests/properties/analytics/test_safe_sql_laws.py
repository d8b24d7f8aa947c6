"""Laws of the SQL that people may run: nothing can be hidden in a statement, and what is let through is let through again."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.analytics.safe_sql import checked
from tidegate.errors import InvalidParameter

SPACES = st.sampled_from((" ", "\n", "\t", " /* a */ ", " /* ) */ ", "\n-- '\n"))
NAMES = st.sampled_from(("feature", "tenant", "status", "duration_s", "request_id"))
LITERALS = st.sampled_from(("1", "'a'", "'it''s'", "0.5", "NULL"))
EXPRESSIONS = st.recursive(
    NAMES | LITERALS,
    lambda inner: st.one_of(
        st.tuples(inner, inner).map(lambda pair: f"({pair[0]} = {pair[1]})"),
        inner.map(lambda each: f"toString({each})"),
        st.tuples(inner, inner).map(lambda pair: f"if({pair[0]} = {pair[1]}, {pair[0]}, {pair[1]})"),
        inner.map(lambda each: f"arrayExists(x -> x = {each}, ['a'])"),
        inner.map(lambda each: f"CASE WHEN {each} = 1 THEN 2 ELSE 3 END"),
    ),
    max_leaves=6,
)
FRAMES = st.sampled_from(
    (
        "SELECT {0} FROM requests",
        "SELECT feature FROM requests WHERE {0} = 1",
        "SELECT feature FROM requests PREWHERE {0} = 1",
        "SELECT count() FROM requests GROUP BY {0}",
        "SELECT count() FROM requests GROUP BY feature HAVING {0} = 1",
        "SELECT feature FROM requests ORDER BY {0}",
        "SELECT feature FROM requests AS a JOIN attempts AS b ON {0} = 1",
        "SELECT * FROM (SELECT {0} AS y FROM requests)",
        "WITH x AS (SELECT {0} AS y FROM requests) SELECT * FROM x",
        "WITH {0} AS y SELECT y FROM requests",
        "SELECT 1 FROM requests UNION ALL SELECT {0} FROM attempts",
        "SELECT feature IN ({0}, 2) FROM requests",
        "SELECT feature IN (SELECT {0} FROM attempts) FROM requests",
        "SELECT sum(status) OVER (PARTITION BY {0}) FROM requests",
        "SELECT countIf({0} = 1) FROM requests",
        "SELECT arrayMap(x -> {0}, [1]) FROM requests",
        "EXPLAIN SELECT {0} FROM requests",
    )
)
HIDDEN = st.sampled_from(
    (
        "(SELECT 1 FROM{0}system.one)",
        "(SELECT * FROM{0}file('x'))",
        "(SELECT * FROM{0}url('x'))",
        "(SELECT 1 FROM requests JOIN{0}remote('a', 'b') AS r ON 1)",
        "(SELECT body FROM{0}bodies)",
        "(1 IN{0}system.users)",
        "(1 GLOBAL IN{0}(system.users))",
        "file{0}('x')",
        "`file`{0}('x')",
        "\"file\"{0}('x')",
        "arrayMap({0}file, ['x'])",
        "dictGet{0}('a', 'b', 1)",
        "(SELECT 1{0}SETTINGS max_threads = 1)",
        "sleep{0}(1)",
        "nosuch{0}",
        "{{a:String}}{0}",
    )
)


@given(FRAMES, EXPRESSIONS)
def test_harmless_statements_are_let_through_and_stay_as_they_are(frame: str, expression: str) -> None:
    """What is written anew means the same to the next reader: once more, and nothing changes."""
    written = checked(frame.format(expression))
    assert written == checked(written)


@given(FRAMES, HIDDEN, SPACES, st.sampled_from(("{0}", "toString({0})", "({0})", "if(1 = 1, {0}, 2)", "CASE WHEN {0} = 1 THEN 2 END")))
def test_nothing_can_be_hidden(frame: str, hidden: str, space: str, around: str) -> None:
    """In no place of a statement, with no space, comment or quoting."""
    sql = frame.format(around.format(hidden.format(space)))
    with pytest.raises(InvalidParameter):
        checked(sql)


@given(st.text(max_size=80))
def test_any_text_is_refused_or_let_through_in_order(text: str) -> None:
    """Nothing else comes of it: no error of the parser's own."""
    for frame in ("{0}", "SELECT {0}", "SELECT feature FROM requests WHERE {0}"):
        with suppress(InvalidParameter):
            checked(frame.replace("{0}", text))
