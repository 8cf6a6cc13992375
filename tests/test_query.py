import pytest

from compaction_kit.query import reason_of


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
            "java.io.IOException: disk full",
        ),
        ("", "RuntimeError"),
    ],
    ids=["Spark's", "the table's stand-in", "Python's", "Java's", "none"],
)
def test_a_reason_is_one_line_of_what_spark_said(message: str, reason: str) -> None:
    assert reason_of(RuntimeError(message)) == reason
