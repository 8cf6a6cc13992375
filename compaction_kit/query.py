"""Queries that users give: SQL, a condition or a function, applied to a table's rows."""

import re
from collections.abc import Callable
from functools import partial

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from compaction_kit.errors import InvalidArgumentError
from compaction_kit.log.reading import first_line
from compaction_kit.storage import Store

Query = str | Callable[[DataFrame], DataFrame]
SPARK_ERRORS = (PySparkException, Py4JJavaError)
# Spark's message holds one of these if a data file doesn't exist.
MISSING_FILE = ("FILE_NOT_EXIST", "FileNotFoundException")

_TABLE = "{table}"
_WHOLE_QUERY = re.compile(r"[\s(]*(?:select|with)\b", re.IGNORECASE)
# From here on, Spark's messages hold only codes, positions and plans.
_CODES = re.compile(r"\.?\s*SQLSTATE:.*", re.DOTALL)
_PYTHON_ERROR = re.compile(r"^(?:: )?([\w.]+(?:Error|Exception): \S.*)$", re.MULTILINE)
# The view by which PySpark replaces {table}.
_VIEW = re.compile(r"`?_pyspark_[0-9a-f]{32}`?")


def with_table(query: Query, store: Store, name: str) -> Query:
    """Write {table} for a table's own names in SQL: its name, its folder's name, its path or URI.

    Args:
        query: A query; a condition, a function and SQL with {table} stay as they are.
        store: The table's files.
        name: The name that the table was opened with.
    """
    if not isinstance(query, str) or _TABLE in query or not _WHOLE_QUERY.match(query):
        return query
    names = (name, store.root.rpartition("/")[2], store.root, store.uri())
    words = "|".join(re.escape(word) for word in names if word)
    own = rf"\b(from|join)(\s+)(?:delta\.)?`?(?:{words})`?(?![\w.`])"
    return re.sub(own, rf"\1\2{_TABLE}", query, flags=re.IGNORECASE)


def parse_query(spark: SparkSession, query: Query) -> Callable[[DataFrame], DataFrame]:
    """Return a function that applies a query to the table's rows.

    Args:
        spark: The session that parses SQL.
        query: SQL with {table} in place of the table's name, a condition, or a function.

    Raises:
        InvalidArgumentError: It is none of these. Spark checks the query itself when the function
            is called.
    """
    if callable(query):
        return query
    if not isinstance(query, str) or not query.strip():
        raise InvalidArgumentError(
            f"query={query!r} is not a query: give SQL with {_TABLE} for the table, a condition such as "
            '"id < 3", or a function of a DataFrame.'
        )
    if _TABLE in query:
        return partial(_select, spark, query)
    if _WHOLE_QUERY.match(query):
        raise InvalidArgumentError(
            f'query="{query}" names neither the table nor {_TABLE}: write {_TABLE} for the table, as in '
            f'"SELECT count(*) FROM {_TABLE}".'
        )
    return lambda rows: rows.where(query)


def _select(spark: SparkSession, query: str, rows: DataFrame) -> DataFrame:
    text = query.strip().rstrip(";").replace("{", "{{").replace("}", "}}")
    # A subquery can only read; spark.sql would run a DELETE at once.
    return spark.sql(f"SELECT * FROM (\n{text.replace('{{table}}', _TABLE)}\n)", table=rows)


def quoted_query(query: Query) -> str:
    """Format a query for an error message."""
    return f'"{query}"' if isinstance(query, str) else name_of(query)


def name_of(query: Query) -> str:
    """Return the text of a query, or the name of its function."""
    return query if isinstance(query, str) else getattr(query, "__name__", repr(query))


def reason_of(error: Exception) -> str:
    """Return the cause of an error in one line: the message of a Python error in it, else Spark's own."""
    raised = _PYTHON_ERROR.findall(str(error))
    if raised:
        return raised[-1].rstrip(".")
    return _VIEW.sub(_TABLE, _CODES.sub("", first_line(error))).rstrip(".")
