"""Find tables in a folder, in a list, or in the catalog of a Spark session."""

import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from pyspark.sql import SparkSession

from compaction_kit.active import active_spark
from compaction_kit.errors import (
    InvalidArgumentError,
    NotADeltaTableError,
    TableNotFoundError,
    UnsupportedTableError,
)
from compaction_kit.folder import walk
from compaction_kit.log.listing import LOG_FOLDER
from compaction_kit.log.reading import first_line
from compaction_kit.query import SPARK_ERRORS
from compaction_kit.session import quiet_errors
from compaction_kit.sql import full_name, identifiers, name_parts, plain_path, quoted
from compaction_kit.storage import is_folder, local_path, open_store
from compaction_kit.table import open_table

_SESSION_CATALOG = "spark_catalog"
# catalog.schema
_MOST_PARTS = 2
_FACT = re.compile(r"^(Type|Provider|Location): (.*)$", re.MULTILINE)
Where = str | Path | Iterable[str | Path]


class Places(NamedTuple):
    """The name and the location of each table; and what isn't one, each as in "sales.recent is a view"."""

    tables: list[tuple[str, str]]
    skipped: list[str]


def find_tables(root: str | Path, spark: SparkSession | None = None) -> list[str]:
    """Return the Delta tables in a folder, in a schema or in a catalog, or the folder if it is a table.

    Hidden folders, folders inside a table, and folders more than six levels down are skipped; so are views
    and tables of other formats.

    Args:
        root: A folder, as a path or URI; or a schema, catalog.schema or catalog of the session, such as
            "spark_catalog.default" or "lake.`2024-05`". What doesn't exist has no tables.
        spark: The session whose catalog is used; None for the active session, if any.

    Returns:
        The paths or names, sorted, as `open_table` takes them; each begins with `root`.

    Raises:
        UnsupportedTableError: The catalog can't list its tables.

    Examples:
        >>> ck.find_tables("data")
        ['data/flights']
    """
    session = spark or active_spark()
    if session is not None and name_parts(str(root)) and not is_folder(str(root)):
        listed = catalog_tables(session, str(root))
        return [] if listed is None else [name for name, _ in listed.tables]
    found = []
    for folder, subfolders in walk(root):
        if LOG_FOLDER in subfolders:
            found.append(folder)
            subfolders.clear()
    return sorted(found)


def places(where: Where, spark: SparkSession | None) -> tuple[str, Places]:
    """Return what to survey in words, and the tables.

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
    return "the list", Places([(str(name), str(name)) for name in names], [])


def _places_in(where: str, spark: SparkSession | None) -> Places:
    if not where.strip():
        raise InvalidArgumentError(
            f'where="{where}" is not a folder: give one, such as "." for the current folder.'
        )
    store = open_store(where)
    if store.is_folder():
        found = find_tables(local_path(where) if store.is_local else where)
        return Places([(name, name) for name in found], [])
    if store.is_taken(""):
        raise NotADeltaTableError(f"{where} is a file: name a folder that holds Delta tables.")
    listed = None if spark is None else catalog_tables(spark, where)
    if listed is not None:
        return listed
    try:
        open_table(where, spark)
    except TableNotFoundError:
        names = (
            "no Spark session is running whose catalog could have the name"
            if spark is None
            else "the session's catalog has no schema, catalog or Delta table of that name"
        )
        raise TableNotFoundError(
            f"Nothing to survey at {where}: there is no such path, and {names}; check the spelling."
        ) from None
    return Places([(where, where)], [])


def catalog_tables(spark: SparkSession, name: str) -> Places | None:
    """Return the Delta tables that the catalog lists in a schema or a whole catalog; none is opened.

    Args:
        spark: The session.
        name: schema, catalog.schema or catalog; a schema is preferred to a catalog of the same name.

    Returns:
        The tables, whose names begin with `name`, sorted; and the views and tables of other formats. None
        if no schema or catalog has that name.

    Raises:
        UnsupportedTableError: The catalog can't list its tables.
    """
    parts = name_parts(name)
    if not 1 <= len(parts) <= _MOST_PARTS:
        return None
    try:
        with quiet_errors():
            if spark.catalog.databaseExists(".".join(map(quoted, parts))):
                schemas = [parts]
            elif len(parts) == 1 and _is_catalog(spark, parts[0]):
                schemas = _schemas(spark, parts[0])
            else:
                return None
            listed = sorted(row for schema in schemas for row in _listed(spark, schema))
    except SPARK_ERRORS as error:
        reason = first_line(error)
        raise UnsupportedTableError(
            f"The tables of {name} can't be listed: {reason}; give their names or paths as a list."
        ) from None
    tables = [(table, place) for table, place, other in listed if not other]
    return Places(tables, [f"{table} is {other}" for table, _, other in listed if other])


def _is_catalog(spark: SparkSession, name: str) -> bool:
    # A catalog is listed only once it has been used.
    return name == _SESSION_CATALOG or spark.conf.get(f"spark.sql.catalog.{name}", None) is not None


def _schemas(spark: SparkSession, catalog: str) -> list[list[str]]:
    rows = spark.sql(f"SHOW SCHEMAS IN {identifiers(spark, [catalog])}").collect()
    return [[catalog, *name_parts(row[0])] for row in rows]


def _listed(spark: SparkSession, schema: Sequence[str]) -> Iterator[tuple[str, str, str]]:
    """Yield the name and location of what a schema has, and what it is if it is no Delta table."""
    for row in spark.sql(f"SHOW TABLE EXTENDED IN {identifiers(spark, schema)} LIKE '*'").collect():
        # Views of the session are listed beside those of every schema.
        if row["isTemporary"]:
            continue
        name = full_name(*schema, row["tableName"])
        # The first of each name counts: texts of users, such as comments, come later.
        facts = dict(reversed(_FACT.findall(row["information"])))
        provider = facts.get("Provider", "").lower()
        if facts.get("Type", "").endswith("VIEW"):
            yield name, "", "a view"
        elif provider != "delta":
            yield name, "", f"a {provider} table" if provider else "a table of another format"
        else:
            yield name, plain_path(facts["Location"]) if "Location" in facts else name, ""
