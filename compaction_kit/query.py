"""A query as a person gives it: what it makes of a table's rows, and what is wrong with it."""

import re
from collections.abc import Callable
from functools import partial

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from compaction_kit.errors import InvalidArgumentError
from compaction_kit.log.reading import first_line

Query = str | Callable[[DataFrame], DataFrame]
SPARK_ERRORS = (PySparkException, Py4JJavaError)
# One of these is in Spark's message where a data file is gone.
MISSING_FILE = ("FILE_NOT_EXIST", "FileNotFoundException")

_TABLE = "{table}"
_WHOLE_QUERY = re.compile(r"[\s(]*(?:select|with)\b", re.IGNORECASE)
# Where Spark's messages turn from what is wrong to codes, positions and plans.
_CODES = re.compile(r"\.?\s*SQLSTATE:.*", re.DOTALL)
_PYTHON_ERROR = re.compile(r"^(?:: )?([\w.]+(?:Error|Exception): \S.*)$", re.MULTILINE)
# What PySpark calls the table that stands for {table}.
_VIEW = re.compile(r"`?_pyspark_[0-9a-f]{32}`?")


def parse_query(spark: SparkSession, query: Query) -> Callable[[DataFrame], DataFrame]:
    """What makes a query's rows from the table's.

    Args:
        spark: Parses SQL.
        query: SQL with {table} where the table's name goes, a condition, or a function.

    Raises:
        InvalidArgumentError: It is none of these; whether Spark takes it shows when it is called.
    """
    if callable(query):
        return query
    if not isinstance(query, str) or not query.strip():
        raise InvalidArgumentError(
            f"query={query!r} is no query: give SQL with {_TABLE} for the table, a condition such as "
            '"id < 3", or a function of a DataFrame.'
        )
    if _TABLE in query:
        return partial(_select, spark, query)
    if _WHOLE_QUERY.match(query):
        raise InvalidArgumentError(
            f'query="{query}" doesn\'t say where the table goes: write {_TABLE} for its name, as in '
            f'"SELECT count(*) FROM {_TABLE}".'
        )
    return lambda rows: rows.where(query)


def _select(spark: SparkSession, query: str, rows: DataFrame) -> DataFrame:
    text = query.strip().rstrip(";").replace("{", "{{").replace("}", "}}")
    # As a subquery, so that nothing but a query is parsed: a DELETE would be run right away.
    return spark.sql(f"SELECT * FROM (\n{text.replace('{{table}}', _TABLE)}\n)", table=rows)


def quoted_query(query: Query) -> str:
    """The query as an error's sentence quotes it."""
    return f'"{query}"' if isinstance(query, str) else name_of(query)


def name_of(query: Query) -> str:
    """The query's text, or the name of the function."""
    return query if isinstance(query, str) else getattr(query, "__name__", repr(query))


def reason_of(error: Exception) -> str:
    """What was wrong, in a line: of an error in a Python function its own words, else Spark's."""
    raised = _PYTHON_ERROR.findall(str(error))
    if raised:
        return raised[-1].rstrip(".")
    return _VIEW.sub(_TABLE, _CODES.sub("", first_line(error))).rstrip(".")
