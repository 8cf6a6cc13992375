"""Quote tables, columns and values for Spark's SQL and readers."""

import re
from collections.abc import Iterable
from pathlib import Path

from pyspark.sql import SparkSession

# Characters that a session's settings may change in a literal: quotes, escapes, ${variables}, line ends.
_TOUCHY = re.compile(r"['\\$\x00-\x1f]")
# Characters of glob patterns (SparkHadoopUtil.isGlobPath).
_PATTERN = re.compile(r"[{}\[\]*?\\]")
_PART = r"(?:\w+|`(?:[^`]|``)+`)"
_NAME = re.compile(rf"{_PART}(?:\.{_PART})*")
_SUBSTITUTES = "spark.sql.variable.substitute"
_DOLLAR = "spark.compaction_kit.dollar"


def uri(path: Path) -> str:
    """Return the URI of a local path for Hadoop's Path, not percent-encoded; see `LocalStore.uri`."""
    return f"file:{path.absolute()}"


def plain_path(name: str) -> str:
    """Return the path in an unencoded URI of Spark; a URI of another file system is unchanged."""
    return "/" + name.removeprefix("file:").lstrip("/") if name.startswith("file:") else name


def pattern(uri: str) -> str:
    """Return a URI for Spark's file readers, which read it as a glob pattern."""
    return _PATTERN.sub(r"\\\g<0>", uri)


def quoted(name: str) -> str:
    """Quote a name for a `Column`, whatever characters it has; for SQL text use `identifier`."""
    return "`" + name.replace("`", "``") + "`"


def identifier(spark: SparkSession, name: str) -> str:
    """Quote a name for the session's SQL, whatever characters it has.

    Spark replaces ${x} by the value of the setting x before it parses SQL, even in quotes
    (VariableSubstitution), and has no escape for this. So the dollar sign comes from a setting of the kit.
    """
    if "${" in name and (spark.conf.get(_SUBSTITUTES, None) or "true").lower() == "true":
        spark.conf.set(_DOLLAR, "$")
        name = name.replace("${", f"${{{_DOLLAR}}}{{")
    return quoted(name)


def name_parts(name: str) -> list[str]:
    """Split a name of the catalog, such as "lake.`2024-05`.orders", at its dots; [] if it can't be one."""
    parts = re.findall(_PART, name) if _NAME.fullmatch(name) else []
    return [part[1:-1].replace("``", "`") if part[0] == "`" else part for part in parts]


def full_name(*parts: str) -> str:
    """Join parts to a name that `name_parts` splits, with backticks if a part needs them."""
    return ".".join(part if re.fullmatch(r"\w+", part) else quoted(part) for part in parts)


def identifiers(spark: SparkSession, parts: Iterable[str]) -> str:
    """Quote a name of several parts for the session's SQL; see `identifier`."""
    return ".".join(identifier(spark, part) for part in parts)


def table_name(spark: SparkSession, table: str | Path, kind: str = "delta") -> str:
    """Return the name, in the session's SQL, of the table in a folder, given by its URI or local path."""
    return f"{kind}.{identifier(spark, uri(table) if isinstance(table, Path) else table)}"


def literal(text: str, kind: str) -> str:
    """Write a partition value of the log as SQL of a Delta type, independent of the session's settings."""
    value = f"CAST(X'{text.encode().hex()}' AS STRING)" if _TOUCHY.search(text) else f"'{text}'"
    return value if kind == "string" else f"CAST({value} AS {sql_type(kind)})"


def sql_type(kind: str) -> str:
    """Return the name of a Delta type in SQL, where "timestamp" may be the type without a zone."""
    return "timestamp_ltz" if kind == "timestamp" else kind
