"""How tables, columns and values are named to Spark."""

import re
from pathlib import Path

from pyspark.sql import SparkSession

# What a session's settings may read otherwise: quotes, escapes, ${variables}, line ends.
_TOUCHY = re.compile(r"['\\$\x00-\x1f]")
# What Spark takes for a pattern (SparkHadoopUtil.isGlobPath).
_PATTERN = re.compile(r"[{}\[\]*?\\]")
_SUBSTITUTES = "spark.sql.variable.substitute"
_DOLLAR = "spark.compaction_kit.dollar"


def uri(path: Path) -> str:
    """The URI of a path, as Hadoop's Path takes it: nothing is encoded.

    A path alone would be looked for on the session's default file system (fs.defaultFS).
    """
    return f"file:{path.absolute()}"


def plain_path(name: str) -> str:
    """The path in a URI as Spark tells it, which isn't encoded; one on another file system stays as it is."""
    return "/" + name.removeprefix("file:").lstrip("/") if name.startswith("file:") else name


def pattern(path: Path) -> str:
    """The URI of a path for Spark's readers of files, which take it for a pattern."""
    return _PATTERN.sub(r"\\\g<0>", uri(path))


def quoted(name: str) -> str:
    """A name as a `Column` takes it, whatever characters are in it; in SQL text it is `identifier`."""
    return "`" + name.replace("`", "``") + "`"


def identifier(spark: SparkSession, name: str) -> str:
    """A name as the session's SQL takes it, whatever characters are in it.

    Spark replaces ${x} by the value of the setting x before it parses SQL, within quotes too
    (VariableSubstitution), and has no escape for it. So the dollar sign comes from a setting of our own.
    """
    if "${" in name and (spark.conf.get(_SUBSTITUTES, None) or "true").lower() == "true":
        spark.conf.set(_DOLLAR, "$")
        name = name.replace("${", f"${{{_DOLLAR}}}{{")
    return quoted(name)


def table_name(spark: SparkSession, table: Path, kind: str = "delta") -> str:
    """The name of the table in a folder, in the session's SQL."""
    return f"{kind}.{identifier(spark, uri(table))}"


def literal(text: str, kind: str) -> str:
    """A value of a type, from its text; it means the same whatever the session's settings are.

    Args:
        text: The value as the log writes partition values.
        kind: A Delta type, such as "date".
    """
    value = f"CAST(X'{text.encode().hex()}' AS STRING)" if _TOUCHY.search(text) else f"'{text}'"
    return value if kind == "string" else f"CAST({value} AS {kind})"
