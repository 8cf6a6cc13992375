"""The Delta tables that the catalog of a Spark session knows."""

import re
from collections.abc import Iterator

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from compaction_kit.errors import UnsupportedTableError
from compaction_kit.session import quiet_errors
from compaction_kit.sql import identifier, plain_path

_NAME = re.compile(r"\w+(\.\w+)?")
_SESSION_CATALOG = "spark_catalog"
_FACT = re.compile(r"^(Type|Provider|Location): (.*)$", re.MULTILINE)


def catalog_tables(spark: SparkSession, name: str) -> dict[str, str] | None:
    """The Delta tables of a schema or a whole catalog, by the catalog's word alone: none is opened.

    Args:
        spark: The session.
        name: schema, catalog.schema or catalog; a schema goes before a catalog of its name.

    Returns:
        Where each is, by its name, which begins with `name`, sorted; views and tables of other
        formats left out. None if neither a schema nor a catalog has that name.

    Raises:
        UnsupportedTableError: The catalog doesn't list its tables.
    """
    if not _NAME.fullmatch(name):
        return None
    try:
        with quiet_errors():
            if spark.catalog.databaseExists(name):
                schemas = [name]
            elif _is_catalog(spark, name):
                rows = spark.sql(f"SHOW SCHEMAS IN {identifier(spark, name)}").collect()
                schemas = [f"{name}.{row[0]}" for row in rows]
            else:
                return None
            return dict(sorted(pair for schema in schemas for pair in _schema_tables(spark, schema)))
    except PySparkException as error:
        reason = (error.getMessage() or "").splitlines()[0].rstrip(".")
        raise UnsupportedTableError(
            f"The tables of {name} can't be listed: {reason}; give their names or paths as a list."
        ) from error


def _is_catalog(spark: SparkSession, name: str) -> bool:
    # A catalog is listed only once it has been used.
    return name == _SESSION_CATALOG or spark.conf.get(f"spark.sql.catalog.{name}", None) is not None


def _schema_tables(spark: SparkSession, schema: str) -> Iterator[tuple[str, str]]:
    path = ".".join(identifier(spark, part) for part in schema.split("."))
    for row in spark.sql(f"SHOW TABLE EXTENDED IN {path} LIKE '*'").collect():
        # The first of each counts: what users write, such as comments, comes later.
        facts = dict(reversed(_FACT.findall(row["information"])))
        if facts.get("Type") != "VIEW" and facts.get("Provider", "").lower() == "delta":
            yield f"{schema}.{row['tableName']}", plain_path(facts["Location"])
