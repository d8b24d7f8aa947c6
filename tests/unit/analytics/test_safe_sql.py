"""Which SQL of people is run, and what is said of the rest."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from benchmarks.records import Traffic, fill

from tidegate.adapters.analytics.chdb_store import ChdbStore
from tidegate.analytics.asking import QueryRequest
from tidegate.analytics.safe_sql import FUNCTIONS, LONGEST, checked, is_allowed_function
from tidegate.errors import InvalidParameter

NOW = 1_793_780_000.0
ALLOWED = (
    "SELECT quantile(0.99)(duration_s) AS p FROM requests WHERE started_at < now() + INTERVAL 1 HOUR GROUP BY feature ORDER BY p LIMIT 5",
    "SELECT a, count() FROM requests ARRAY JOIN mapKeys(context) AS a GROUP BY a ORDER BY a",
    "SELECT feature, tenant FROM requests ORDER BY feature, tenant, offset LIMIT 1 BY feature",
    "SELECT toDate(started_at) = today() ? 1 : 2 AS x FROM requests ORDER BY offset",
    "SELECT r.feature, s.value FROM requests r ASOF JOIN samples s ON r.replica = s.replica AND r.started_at >= s.at ORDER BY r.offset",
    "SELECT feature FROM tidegate.requests PREWHERE status = 200 ORDER BY offset",
    "SELECT toStartOfMinute(started_at) AS m, count() FROM requests GROUP BY m ORDER BY m WITH FILL STEP 60",
    "WITH 1 AS x, (SELECT max(duration_s) FROM requests) AS y SELECT x, y",
    "WITH slow AS (SELECT * FROM requests WHERE duration_s > 1) SELECT tenant, count() FROM slow GROUP BY tenant ORDER BY tenant",
    "SELECT sum(duration_s) OVER (PARTITION BY feature ORDER BY offset) AS total FROM requests ORDER BY offset",
    "SELECT * EXCEPT (node, context) FROM requests ORDER BY offset LIMIT 2",
    "SELECT requests.feature, context['feature'], toString(arrayMap(x -> upper(x), mapKeys(context))) FROM requests",
    "SELECT countIf(status >= 500) / count(), uniqExact(user), toString(topK(3)(tenant)), quantileIf(0.5)(ttft_s, stream) FROM requests",
    "SELECT 'it''s \\' \\\\ \\n', 'a;b', '-- no comment' -- a comment; with a semicolon\n",
    "SELECT count() FROM requests WHERE request_id IN (SELECT request_id FROM attempts WHERE result <> 'ok') AND tenant IN ('a', 'b')",
    "SELECT * FROM (SELECT feature, count() AS n FROM requests GROUP BY feature) WHERE n > 3 ORDER BY feature",
    "SELECT count() FROM requests UNION ALL SELECT count() FROM attempts ORDER BY 1",
    "(SELECT count() FROM requests)",
    "SELECT count() FROM requests AS r INNER JOIN attempts AS a USING (request_id)",
    "SELECT CAST(status AS String), status::UInt8, -status, dateDiff('second', started_at, started_at + 5) FROM requests ORDER BY offset;",
    "SELECT feature, count() FROM requests GROUP BY feature WITH ROLLUP ORDER BY feature",
    "SELECT feature, count() FROM requests GROUP BY GROUPING SETS ((feature), ()) ORDER BY feature",
    "SELECT extract(hour FROM started_at), date_trunc('hour', started_at), trim(user), substring(user, 1, 3) FROM requests ORDER BY offset",
    "SELECT if(stream, 1, 2), CASE WHEN stream THEN 'a' ELSE 'b' END, status BETWEEN 1 AND 2, user IS NULL FROM requests ORDER BY offset",
    "SELECT arrayMap(x -> arrayConcat(x, ['b']), [['a']])[1][1], 7 IN (7, 8), (1, 2).1",
    "SELECT count(*) FROM requests WHERE 'a' IN ('a')",
    "SELECT feature || tenant AS x, min(user) FILTER (WHERE status = 200) FROM requests GROUP BY x ORDER BY x",
    "SELECT x FROM (SELECT ['a', 'b'] AS x) ARRAY JOIN x",
    "SELECT row_number() OVER w AS n FROM requests WINDOW w AS (PARTITION BY feature ORDER BY offset) ORDER BY n, offset",
    "EXPLAIN SELECT count() FROM requests",
    "explain  query tree SELECT 1",
)
ATTACKS = (
    "SELECT * FROM file('/etc/passwd', 'LineAsString')",
    "SELECT * FROM url('http://127.0.0.1/x', 'RawBLOB')",
    "SELECT * FROM remote('127.0.0.1', 'system.one')",
    "SELECT * FROM s3('http://x/y')",
    "SELECT * FROM executable('id', 'TSV', 'a String')",
    "SELECT * FROM numbers(10)",
    "SELECT * FROM merge('system', '.*')",
    "SELECT * FROM view(SELECT 1)",
    "SELECT * FROM clusterAllReplicas('default', system.one)",
    "SELECT * FROM `file`('/etc/passwd')",
    "SELECT * FROM requests JOIN remote('a', 'b') AS r ON 1",
    "SELECT * FROM requests, url('http://x')",
    "SELECT * FROM requests WHERE feature IN (SELECT * FROM s3('x'))",
    "SELECT * FROM requests WHERE EXISTS(SELECT 1 FROM url('x'))",
    "SELECT (SELECT * FROM executable('x', 'TSV', 'a String'))",
    "SELECT 1 LIMIT (SELECT 1 FROM system.one)",
    "SELECT 1 ORDER BY (SELECT 1 FROM system.one)",
    "SELECT count() FROM requests HAVING (SELECT 1 FROM system.one) = 1",
    "SELECT sum(1) OVER (PARTITION BY file('x')) FROM requests",
    "WITH x AS (SELECT * FROM url('x')) SELECT * FROM x",
    "WITH (SELECT * FROM url('x')) AS x SELECT x",
    "SELECT 1 UNION ALL SELECT 2 FROM system.one",
    "EXPLAIN SELECT * FROM url('http://x')",
    "EXPLAIN PLAN header = 1 SELECT 1",
    "EXPLAIN AST INSERT INTO requests SELECT 1",
    "EXPLAIN EXPLAIN SELECT 1",
    "SELECT * FROM (EXPLAIN SELECT 1)",
    "SELECT * FROM system.tables",
    "SELECT * FROM `system`.`tables`",
    "SELECT * FROM `system.tables`",
    "SELECT * FROM a.system.tables",
    "SELECT * FROM information_schema.tables",
    "SELECT 'a' IN system.users",
    "SELECT 'a' IN (system.users)",
    "SELECT 'a' IN ((system.users))",
    "SELECT 'a' NOT IN system.users",
    "SELECT 'a' GLOBAL IN system.users",
    "SELECT 'a' IN (system.users) FROM requests AS system",
    "SELECT in('a', system.users)",
    "SELECT `in`('a', bodies)",
    "SELECT 1 IN bodies",
    "SELECT * FROM bodies",
    "SELECT * FROM tidegate.bodies",
    "SELECT * FROM requests JOIN bodies USING (request_id)",
    "WITH bodies AS (SELECT 1) SELECT * FROM bodies",
    "SELECT * FROM bodies WHERE 1 IN (WITH bodies AS (SELECT 1) SELECT * FROM bodies)",
    "SELECT file('/etc/passwd')",
    "SELECT `file`('/etc/passwd')",
    "SELECT \"file\"  ('/etc/passwd')",
    "SELECT file/**/('/etc/passwd')",
    "SELECT FILE('/etc/passwd')",
    "SELECT arrayMap(file, ['/etc/passwd'])",
    "SELECT arrayMap(`file`, ['/etc/passwd'])",
    "SELECT arrayMap((file), ['x']) FROM (SELECT 1) AS file",
    "SELECT (SELECT 1 AS file), arrayMap(file, ['/etc/passwd'])",
    "WITH file AS (SELECT 1) SELECT arrayMap(file, ['/etc/passwd'])",
    "SELECT arrayMap(file, ['/etc/passwd']) FROM (SELECT 1) AS file",
    "SELECT arrayMap((file AS a), ['/etc/passwd']) FROM (SELECT 1) AS file",
    "SELECT arrayMap(file -> 1, [1]), arrayMap(file, ['/etc/passwd'])",
    "SELECT arrayMap(x -> arrayMap(file, [x]), ['/etc/passwd']), 1 AS file",
    "SELECT arrayMap(x -> file(x), ['/etc/passwd'])",
    "SELECT arrayMap(file -> (SELECT arrayMap(file, ['x'])), [1])",
    "SELECT arrayMap(bodies -> 1 IN bodies, [1])",
    "SELECT arrayMap(bodies -> 1 IN (bodies), [1])",
    "SELECT arrayMap(system -> 1 IN system.users, [1])",
    "SELECT arrayReduce('sum', [1])",
    "SELECT * APPLY(file) FROM requests",
    "SELECT * APPLY file FROM requests",
    "SELECT COLUMNS('.*') APPLY(file) FROM requests",
    "SELECT * REPLACE(file('x') AS node) FROM requests",
    "SELECT * FROM requests ARRAY JOIN file('x') AS y",
    "SELECT dictGet('a', 'b', 1)",
    "SELECT joinGet('a', 'b', 1)",
    "SELECT hasColumnInTable('a', 'b', 'c')",
    "SELECT getSetting('x'), hostName(), currentUser(), sleep(3)",
    "SELECT currentUser",
    "SELECT current_user",
    "SELECT @@version",
    "SELECT {a:Identifier}",
    "SELECT * FROM {a:Identifier}",
    "SELECT ? FROM requests",
    "SELECT 1 SETTINGS max_execution_time = 0",
    "SELECT 1 FORMAT JSON",
    "SELECT * FROM (SELECT 1 SETTINGS max_threads = 1)",
    "(SELECT 1) LIMIT 1",
    "SELECT 1 INTO OUTFILE '/tmp/x'",
    "SELECT 1 INTO OUTFILE '/tmp/x' TRUNCATE FORMAT TSV",
    "SELECT 1; SELECT 2",
    "SELECT 1; DROP TABLE requests",
    "SELECT 1 /* ; */ ; /* */ DROP TABLE requests",
    "SELECT count() FROM requests SAMPLE 0.1",
    "SELECT * FROM (VALUES (1))",
    "SELECT * FROM requests WHERE status = ANY(SELECT 1)",
    "INSERT INTO requests SELECT 1",
    "DROP TABLE requests",
    "SET max_execution_time = 0",
    "USE system",
    "SYSTEM FLUSH LOGS",
    "SHOW TABLES",
    "DESCRIBE TABLE requests",
    "DESC requests",
    "EXISTS TABLE requests",
    "CREATE TABLE x (a Int) ENGINE = Memory",
    "/* SELECT */ DROP TABLE requests",
    "FROM requests SELECT 1",
    "",
    ";",
)


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ChdbStore]:
    made = ChdbStore(tmp_path_factory.mktemp("analytics"), keep_days=3650)
    made.create_tables()
    fill(made, Traffic(rows=2000, until=NOW, span_s=60.0))
    yield made
    made.close()


@pytest.mark.parametrize("sql", ALLOWED)
def test_a_question_is_answered_as_it_was_meant(sql: str, store: ChdbStore) -> None:
    """What is run gives the same rows as what was written, and is let through again."""
    written = checked(sql)
    expected = store.query(QueryRequest(sql.replace("explain  query tree", "EXPLAIN QUERY TREE"), max_rows=50))
    assert ("", expected.rows) == ((found := store.query(QueryRequest(written, max_rows=50))).error, found.rows)
    assert written == checked(written)


@pytest.mark.parametrize("sql", ATTACKS)
def test_everything_else_is_refused(sql: str) -> None:
    """Whatever reads or writes elsewhere, or could."""
    with pytest.raises(InvalidParameter):
        checked(sql)


@pytest.mark.parametrize(
    ("sql", "said"),
    [
        ("SELECT\n durations FROM requests", "Did you mean duration_s? (line 2, column 2)\n   durations FROM requests\n   ^"),
        (
            "EXPLAIN SELECT tenat FROM requests",
            "Did you mean tenant? (line 1, column 16)\n  EXPLAIN SELECT tenat FROM requests\n                 ^",
        ),
        ("SELECT count() FROM request", "Did you mean requests?"),
        ("SELECT quantilee(0.5)(duration_s) FROM requests", "Did you mean quantile"),
        ("SELECT zzzzzz FROM requests", "`tidegate query columns` lists"),
        ("SELECT 1 FROM requests JOIN attempts USING (reqest_id)", "Did you mean request_id?"),
        ("SELECT feature FROM requests WHERE", "cannot be read at 'WHERE'"),
        ("SELECT 1 +", "column 10)\n  SELECT 1 +\n           ^"),
        ("SELECT 'abc", "opened and not closed"),
        ("SELECT 1; SELECT 2", "more than one statement"),
        ("SHOW TABLES", "`tidegate query columns` lists"),
        ("DROP TABLE requests", "Only questions can be asked"),
        ("SELECT 1 FORMAT JSON", "--format"),
        ("SELECT * FROM bodies", "administrator"),
        ("SELECT * FROM file('x')", "file() is no table of records"),
        ("SELECT * FROM system.one", "system.one is none of our tables"),
        ("WITH attempts AS (SELECT 1) SELECT * FROM attempts", "Choose another name"),
        ("SELECT {a:String}", "Parameters in braces"),
        ("SELECT arrayMap(f, [1]) FROM (SELECT 1) AS f", "like t.f"),
        ("SELECT " + "1 + " * LONGEST + "1", "longer than"),
        ("SELECT " + "(" * 100, "nested more than"),
        ("SELECT " + "NOT " * 4000 + "1", "nested too deep"),
        ("SELECT NULL <=> 1", "NULL SAFE EQ is not among"),
        ("SELECT DISTINCT ON (a) x FROM y PIVOT (1)", "cannot be read"),
    ],
)
def test_a_refusal_says_what_to_do(sql: str, said: str) -> None:
    """What is wrong, where, and what to write instead."""
    with pytest.raises(InvalidParameter) as refused:
        checked(sql)
    assert said in refused.value.message


def test_an_administrator_may_read_bodies() -> None:
    """Where the caller says so."""
    assert "SELECT body FROM bodies" == checked("SELECT body FROM bodies", bodies=True)


def test_allowed_functions_exist_and_read_nothing(store: ChdbStore) -> None:
    """Each is ClickHouse's (or standard SQL that becomes one), and none that reads files, other tables, settings or the network."""
    names = {row[0] for row in store.query(QueryRequest("SELECT name FROM system.functions", max_rows=5000)).rows}
    dangerous = """
        file dictGet dictHas joinGet hasColumnInTable getSetting getServerSetting getMacro hostName fqdn sleep sleepEachRow currentUser
        currentDatabase throwIf arrayReduce initializeAggregation catboostEvaluate version filesystemAvailable addressToSymbol in globalIn
        evalMLMethod getClientHTTPHeader serverUUID tcpPort
    """
    assert [] == [name for name in dangerous.split() if is_allowed_function(name)]
    lower = {str(name).lower() for name in names}
    syntax = {"case", "interval", "between", "extract", "date_trunc", "date_add", "date_sub", "median", "trunc", "first_value", "nth_value"}
    syntax |= {"summap", "grouping", "multi", "null"}  # the last two are multiIf and nullIf, shortened
    named = {name.removesuffix("If") for name in FUNCTIONS}
    assert [] == sorted(name for name in named if name.lower() not in lower | syntax)


def test_half_an_emoji_is_refused() -> None:
    """No store can be sent it."""
    with pytest.raises(InvalidParameter, match="not UTF-8"):
        checked("SELECT '\ud83d'")
