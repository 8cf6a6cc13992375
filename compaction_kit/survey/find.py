"""Find tables in a folder, in a list, or in the catalog of a Spark session."""

import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from compaction_kit.errors import (
    InvalidArgumentError,
    NotADeltaTableError,
    TableNotFoundError,
    UnsupportedTableError,
)
from compaction_kit.folder import walk
from compaction_kit.log.listing import LOG_FOLDER
from compaction_kit.log.reading import first_line
from compaction_kit.session import quiet_errors
from compaction_kit.sql import identifier, plain_path
from compaction_kit.storage import local_path, open_store
from compaction_kit.table import open_table

_NAME = re.compile(r"\w+(\.\w+)?")
_SESSION_CATALOG = "spark_catalog"
_FACT = re.compile(r"^(Type|Provider|Location): (.*)$", re.MULTILINE)
Where = str | Path | Iterable[str | Path]


def find_tables(root: str | Path) -> list[str]:
    """Return the paths of the Delta tables in a folder, or of the folder if it is a table.

    Hidden folders, folders inside a table, and folders more than six levels down are skipped.

    Args:
        root: A folder, as a path or URI; one that doesn't exist has no tables.

    Returns:
        The paths, sorted; each begins with `root`.

    Examples:
        >>> ck.find_tables("data")
        ['data/flights']
    """
    found = []
    for folder, subfolders in walk(root):
        if LOG_FOLDER in subfolders:
            found.append(folder)
            subfolders.clear()
    return sorted(found)


def places(where: Where, spark: SparkSession | None) -> tuple[str, list[tuple[str, str]]]:
    """Return what to survey in words, and the name and location of each table.

    Args:
        where: See `survey`.
        spark: The session whose catalog is used, if any.

    Raises:
        InvalidArgumentError: `where` is not a name, a path or a list of these.
        TableNotFoundError: The path or name doesn't exist.
        NotADeltaTableError: It is not a folder, schema, catalog or Delta table.
        UnsupportedTableError: The catalog can't list its tables.
    """
    if isinstance(where, (str, Path)):
        return str(where), _places_in(str(where), spark)
    names = list(where) if isinstance(where, Iterable) and not isinstance(where, bytes) else [where]
    for name in names:
        if not isinstance(name, (str, Path)) or not str(name).strip():
            raise InvalidArgumentError(
                f"where={name!r} is not a table: give a folder, a schema, or a list of paths and names."
            )
    return "the list", [(str(name), str(name)) for name in names]


def _places_in(where: str, spark: SparkSession | None) -> list[tuple[str, str]]:
    if not where.strip():
        raise InvalidArgumentError(
            f'where="{where}" is not a folder: give one, such as "." for the current folder.'
        )
    store = open_store(where)
    if store.is_folder():
        return [(name, name) for name in find_tables(local_path(where) if store.is_local else where)]
    if store.is_taken(""):
        raise NotADeltaTableError(f"{where} is a file: name a folder that holds Delta tables.")
    tables = None if spark is None else catalog_tables(spark, where)
    if tables is not None:
        return list(tables.items())
    try:
        open_table(where, spark)
    except TableNotFoundError as error:
        names = (
            "no Spark session is running whose catalog could have the name"
            if spark is None
            else "the session's catalog has no schema, catalog or Delta table of that name"
        )
        raise TableNotFoundError(
            f"Nothing to survey at {where}: there is no such path, and {names}; check the spelling."
        ) from error
    return [(where, where)]


def catalog_tables(spark: SparkSession, name: str) -> dict[str, str] | None:
    """Return the Delta tables that the catalog lists in a schema or a whole catalog; none is opened.

    Args:
        spark: The session.
        name: schema, catalog.schema or catalog; a schema is preferred to a catalog of the same name.

    Returns:
        The location of each table by its name, which begins with `name`, sorted; without views and
        tables of other formats. None if no schema or catalog has that name.

    Raises:
        UnsupportedTableError: The catalog can't list its tables.
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
        reason = first_line(error)
        raise UnsupportedTableError(
            f"The tables of {name} can't be listed: {reason}; give their names or paths as a list."
        ) from error


def _is_catalog(spark: SparkSession, name: str) -> bool:
    # A catalog is listed only once it has been used.
    return name == _SESSION_CATALOG or spark.conf.get(f"spark.sql.catalog.{name}", None) is not None


def _schema_tables(spark: SparkSession, schema: str) -> Iterator[tuple[str, str]]:
    path = ".".join(identifier(spark, part) for part in schema.split("."))
    for row in spark.sql(f"SHOW TABLE EXTENDED IN {path} LIKE '*'").collect():
        # The first of each name counts: texts of users, such as comments, come later.
        facts = dict(reversed(_FACT.findall(row["information"])))
        if facts.get("Type") != "VIEW" and facts.get("Provider", "").lower() == "delta":
            yield f"{schema}.{row['tableName']}", plain_path(facts["Location"])
