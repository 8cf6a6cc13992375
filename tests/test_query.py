import pytest

from compaction_kit.errors import reason_of
from compaction_kit.query import with_table
from compaction_kit.storage import open_store


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        (
            "\n[PARSE_SYNTAX_ERROR] Syntax error. SQLSTATE: 42601 (line 1, pos 4)\n\n== SQL ==",
            "[PARSE_SYNTAX_ERROR] Syntax error",
        ),
        ("Unknown table `_pyspark_0123456789abcdef0123456789abcdef`.", "Unknown table {table}"),
        (
            "\n  An exception was thrown from the Python worker:\nTraceback (most recent call last):\n"
            '  File "a.py", line 1, in f\nZeroDivisionError: division by zero\n',
            "ZeroDivisionError: division by zero",
        ),
        (
            "An error occurred while calling o1.save.\n: java.io.IOException: disk full\n\tat a.b(C.java)",
            "disk full",
        ),
        ("", "RuntimeError"),
    ],
    ids=["Spark's", "the table's stand-in", "Python's", "Java's", "none"],
)
def test_a_reason_is_one_line_of_what_spark_said(message: str, reason: str) -> None:
    assert reason_of(RuntimeError(message)) == reason


@pytest.mark.parametrize(
    ("query", "meant"),
    [
        ("SELECT * FROM flights", "SELECT * FROM {table}"),
        ("select a.id\nfrom db.flights a join `flights` b", "select a.id\nfrom {table} a join {table} b"),
        ("SELECT * FROM delta.`/lake/flights` WHERE x", "SELECT * FROM {table} WHERE x"),
        ("SELECT * FROM delta.`file:/lake/flights`", "SELECT * FROM {table}"),
        ("SELECT * FROM flights.x JOIN flights_2", "SELECT * FROM flights.x JOIN flights_2"),
        ("SELECT * FROM {table} JOIN flights", "SELECT * FROM {table} JOIN flights"),
        ("origin = 'from flights'", "origin = 'from flights'"),
    ],
)
def test_a_tables_own_name_in_sql_stands_for_the_table(query: str, meant: str) -> None:
    assert with_table(query, open_store("/lake/flights"), "db.flights") == meant
