"""Queries that users give: SQL, a condition or a function, applied to a table's rows."""

import re
from collections.abc import Callable
from typing import NamedTuple

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from compaction_kit.errors import InvalidArgumentError, show_value
from compaction_kit.storage import Store

Query = str | Callable[[DataFrame], DataFrame]
SPARK_ERRORS = (PySparkException, Py4JJavaError)
# Spark's message holds one of these if a data file doesn't exist.
MISSING_FILE = ("FILE_NOT_EXIST", "FileNotFoundException")

_TABLE = "{table}"
# A text or an identifier in quotes.
QUOTED = r"""'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*\"|`[^`]*`"""
_COMMENT = r"--[^\n]*|/\*.*?\*/"
_WHOLE_QUERY = re.compile(r"[\s(]*(?:select|with)\b", re.IGNORECASE)


def with_table(query: Query, store: Store, name: str) -> Query:
    """Replace a table's own names in SQL by {table}: its name, its folder's name, its path or URI."""
    if not isinstance(query, str) or _TABLE in query or not _WHOLE_QUERY.match(query):
        return query
    names = (name, store.root.rpartition("/")[2], store.root, store.uri())
    words = "|".join(re.escape(word) for word in names if word)
    own = rf"(\b(?:from|join)\s+)(?:delta\.)?`?(?:{words})`?(?![\w.`])"
    either = re.compile(rf"{QUOTED}|{_COMMENT}|{own}", re.IGNORECASE | re.DOTALL)
    return either.sub(lambda found: found[0] if found[1] is None else found[1] + _TABLE, query)


class ParsedQuery(NamedTuple):
    """A query for a table's rows; `name` is its text or its function's name."""

    name: str
    apply: Callable[[DataFrame], DataFrame]


def parse_query(spark: SparkSession, query: Query) -> ParsedQuery:
    """Return a query that applies SQL with {table}, a condition, or a function to the table's rows.

    Raises:
        InvalidArgumentError: `query` is none of these. Spark checks the query itself when it is applied.
    """
    if callable(query):
        return ParsedQuery(getattr(query, "__name__", repr(query)), query)
    if not isinstance(query, str) or not query.strip():
        raise InvalidArgumentError(
            f"query={query!r} is not a query: give SQL with {_TABLE} for the table, a condition such as "
            '"id < 3", or a function of a DataFrame.'
        )
    if _TABLE in query:
        text = query.strip().rstrip(";").replace("{", "{{").replace("}", "}}").replace("{{table}}", _TABLE)
        # A subquery can only read; spark.sql would run a DELETE at once.
        sql = f"SELECT * FROM (\n{text}\n)"
        return ParsedQuery(query, lambda rows: spark.sql(sql, table=rows))
    if _WHOLE_QUERY.match(query):
        raise InvalidArgumentError(
            f"query={show_value(query)} names neither the table nor {_TABLE}: write {_TABLE} for the table, "
            f'as in "SELECT count(*) FROM {_TABLE}".'
        )
    return ParsedQuery(query, lambda rows: rows.where(query))
