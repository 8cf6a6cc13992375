"""Find Delta tables: in folders, in lists of paths and names, in the schemas of the session's catalogs."""

import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from pyspark.sql import SparkSession

from compaction_kit.active import active_spark
from compaction_kit.errors import InvalidArgumentError, TableNotFoundError, UnsupportedTableError, first_line
from compaction_kit.folder import walk, warn_of
from compaction_kit.log.listing import LOG_FOLDER
from compaction_kit.query import SPARK_ERRORS
from compaction_kit.session import quiet_errors
from compaction_kit.sql import full_name, identifiers, name_parts, plain_path, quoted
from compaction_kit.storage import is_folder, local_path, open_store, path_text
from compaction_kit.table import Table, open_table

_FACT = re.compile(r"^(Type|Provider|Location): (.*)$", re.MULTILINE)
Where = str | Path | Table | Iterable[str | Path | Table]


class Discovered(NamedTuple):
    """The name and the location of each table; and what was skipped, such as "sales.recent is a view"."""

    tables: list[tuple[str, str]]
    skipped: list[str]


def find_tables(root: str | Path, spark: SparkSession | None = None) -> list[str]:
    """Return the Delta tables in a folder, in a schema or in a catalog, or the folder if it is a table.

    Hidden folders, folders inside a table, and folders more than six levels down are skipped; so are views
    and tables of other formats. A warning names folders that can't be read.

    Args:
        root: A folder, as a path or URI; or a schema, catalog.schema or catalog of the session, such as
            "spark_catalog.default" or "lake.`2024-05`". A root that doesn't exist has no tables.
        spark: The session whose catalog is used; None for the active session, if any.

    Returns:
        The paths or names, sorted, as `open_table` takes them; each begins with `root`.

    Raises:
        InvalidArgumentError: `root` is neither text nor a path.
        UnsupportedTableError, StorageError: The catalog can't list its tables, or a store can't be reached.

    Examples:
        >>> ck.find_tables("data")
        ['data/flights']
    """
    found = look_for_tables(root, spark)
    warn_of(found.skipped)
    return [name for name, _ in found.tables]


def look_for_tables(root: str | Path, spark: SparkSession | None = None) -> Discovered:
    """Return the tables that `find_tables` finds, and the folders that can't be read; it doesn't warn."""
    session, name = active_spark(spark), path_text(root)
    if session is not None and name_parts(name) and not is_folder(name):
        listed = catalog_tables(session, name)
        return Discovered([] if listed is None else listed.tables, [])
    return _in_folder(name)


def discover(where: Where, spark: SparkSession | None) -> tuple[str, Discovered]:
    """Return a text that names what to survey, and the tables; see `survey` for `where` and errors."""
    is_list = isinstance(where, Iterable) and not isinstance(where, (str, bytes))
    given: Sequence[Any] = [*where] if is_list else [where]  # type: ignore[misc]
    names = [one.name if isinstance(one, Table) else one for one in given]
    for one in names:
        if not isinstance(one, (str, Path)) or not str(one).strip():
            raise InvalidArgumentError(
                f'where={one!r} is not a table: give a folder, such as ".", a schema, or a list of tables.'
            )
    if is_list:
        return "the list", Discovered([(str(one), str(one)) for one in names], [])
    name = str(names[0])
    store = open_store(name)
    if store.is_folder():
        return name, _in_folder(local_path(name) if store.is_local else name)
    listed = None if spark is None else catalog_tables(spark, name)
    if listed is not None:
        return name, listed
    try:
        open_table(name, spark)
    except TableNotFoundError:
        why = "the session's catalog has no schema, catalog or Delta table of that name; check the spelling"
        if spark is None:
            why = "no Spark session is running whose catalog could have the name; check the spelling"
        raise TableNotFoundError(f"No table at {name}: there is no such path, and {why}.") from None
    return name, Discovered([(name, name)], [])


def _in_folder(root: str | Path) -> Discovered:
    found, skipped = [], list[str]()
    for folder, subfolders in walk(root, (".", "_"), skipped):
        if LOG_FOLDER in subfolders:
            found.append((folder, folder))
            subfolders.clear()
    return Discovered(sorted(found), sorted(skipped))


def catalog_tables(spark: SparkSession, name: str) -> Discovered | None:
    """Return the Delta tables that the catalog lists in a schema or a whole catalog; none is opened.

    A schema is preferred to a catalog of the same name. None if no schema or catalog has that name.

    Raises:
        UnsupportedTableError: The catalog can't list its tables.
    """
    parts, found = name_parts(name), Discovered([], [])
    # catalog.schema
    if not 1 <= len(parts) <= 2:
        return None
    try:
        with quiet_errors():
            if spark.catalog.databaseExists(".".join(map(quoted, parts))):
                schemas = [parts]
            # A catalog is listed only once it has been used.
            elif parts == ["spark_catalog"] or (
                len(parts) == 1 and spark.conf.get(f"spark.sql.catalog.{parts[0]}", None) is not None
            ):
                rows = spark.sql(f"SHOW SCHEMAS IN {identifiers(spark, parts)}").collect()
                schemas = [[*parts, *name_parts(row[0])] for row in rows]
            else:
                return None
            for schema in schemas:
                listed = spark.sql(f"SHOW TABLE EXTENDED IN {identifiers(spark, schema)} LIKE '*'")
                for row in listed.collect():
                    # Views of the session are listed beside those of every schema.
                    if not row["isTemporary"]:
                        _add(found, full_name(*schema, row["tableName"]), row["information"])
    except SPARK_ERRORS as error:
        why = f"The tables of {name} can't be listed: {first_line(error)}; give names or paths as a list."
        raise UnsupportedTableError(why) from None
    return Discovered(sorted(found.tables), sorted(found.skipped))


def _add(found: Discovered, name: str, information: str) -> None:
    # The first type and provider count: texts of users, such as comments, come later.
    lines = _FACT.findall(information)
    facts = dict(reversed(lines))
    provider = facts.get("Provider", "").lower()
    if facts.get("Type", "").endswith("VIEW"):
        found.skipped.append(f"{name} is a view")
    elif provider == "delta":
        # A comment comes before the location, and may have such a line.
        locations = [value for key, value in lines if key == "Location"]
        found.tables.append((name, plain_path(locations[0]) if len(locations) == 1 else name))
    else:
        found.skipped.append(f"{name} is a {f'{provider} table' if provider else 'table of another format'}")
