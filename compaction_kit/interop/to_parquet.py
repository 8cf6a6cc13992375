"""Delta to Parquet: the live files remain, all else is set aside, and nothing is deleted.

The usual recipe is VACUUM with a retention of 0 hours, and then to delete `_delta_log`. Both
destroy; here dead files and log move to a folder beside the table's, from which they can be put back.
"""

import os
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame
from pyspark.sql.types import StructType

from compaction_kit.errors import InvalidArgumentError, StalePlanError, VerificationError
from compaction_kit.execute.failures import translate
from compaction_kit.execute.jobs import WHOLE_FILES, session_confs
from compaction_kit.folder import list_folder
from compaction_kit.history.readable import read_needs
from compaction_kit.interop.as_parquet import check_as_parquet, differences, live_paths
from compaction_kit.interop.parquet_read import read_parquet
from compaction_kit.interop.set_aside import move_aside, put_back, restore
from compaction_kit.query import SPARK_ERRORS
from compaction_kit.session import quiet_errors
from compaction_kit.sql import quoted, uri
from compaction_kit.table import Table, local_path, open_table
from compaction_kit.text import as_text, format_count, format_size, shown
from compaction_kit.verify import Fingerprint, fingerprint


@dataclass(frozen=True)
class ParquetPlan:
    """What would become of a Delta table as Parquet; made by `plan_to_parquet`.

    Attributes:
        table: The table.
        version: The version whose rows the files will hold.
        files: One row a live file, which stays where it is, by path: path (relative to the table,
            as on disk), size_bytes.
        moved: One row a file that is set aside with the log, by path: path, size_bytes, reason
            ("dead": an older version needs it; "unknown": no version that the log tells of does).
        set_aside: The folder that they go to; it doesn't exist yet.
        versions_lost: The versions that only the log and the files set aside tell of.
        schema: The table's columns.
    """

    table: Table
    version: int
    files: pa.Table
    moved: pa.Table
    set_aside: Path
    versions_lost: list[int]
    schema: StructType

    @property
    def moved_bytes(self) -> int:
        """The bytes of the files that are set aside, without the log's."""
        return pc.sum(self.moved["size_bytes"]).as_py() or 0

    def facts(self) -> dict[str, str]:
        """The plan for people: name and value."""
        size = format_size(pc.sum(self.files["size_bytes"]).as_py() or 0)
        dead = pc.sum(pc.equal(self.moved["reason"], "dead")).as_py() or 0
        unknown = self.moved.num_rows - dead
        strange = f", {unknown:,} of them unknown to the log" if unknown else ""
        return {
            "table": f"{self.table.path}, version {self.version}",
            "stays": f"{format_count(self.files.num_rows, 'live file')}, {size}, as plain Parquet",
            "set aside": f"the log, and {format_count(self.moved.num_rows, 'file')} that version "
            f"{self.version} doesn't need{strange}, {format_size(self.moved_bytes)}",
            "where": str(self.set_aside),
            "no longer there": f"{format_count(len(self.versions_lost), 'older version')}; whoever knows it "
            "as a Delta table, such as a stream, fails",
            "undo": "nothing is deleted, and undo() puts all of it back",
        }

    def explain(self) -> str:
        """What stays, what is set aside and where, in a few lines."""
        return as_text(self.facts())

    def run(self) -> "ParquetResult":
        """Set the log and the dead files aside, and compare the rows that Spark reads before and after.

        The dead files go first and the log last, so that at every moment the folder holds either
        the table's latest version or its Parquet files. Nobody else may write meanwhile; if
        somebody has, all is put back.

        Raises:
            StalePlanError: The table, or what is in its folder, isn't what the plan was made for.
            RunFailedError, ReadOnlyTableError: Spark or the disk gave up; what was moved was put back.
            VerificationError: The rows differ; all was put back.
        """
        table = self.table
        _check_set_aside(table, self.set_aside)
        if table.version != self.version or not _not_live(table).equals(self.moved):
            raise StalePlanError(
                "The table, or what is in its folder, has changed since the plan was made at version "
                f"{self.version}: make a new plan; nothing was changed."
            )
        start, spark = time.time(), table.spark
        try:
            with quiet_errors(), session_confs(spark, WHOLE_FILES):
                before = fingerprint(self._columns(spark.read.format("delta").load(uri(table.path))))
                move_aside(self.moved["path"].to_pylist(), table.path, self.set_aside)
                self._check_alone()
                after = fingerprint(self._columns(read_parquet(spark, table.path, self.schema)))
                plain = read_parquet(spark, table.path).schema
        except BaseException as error:
            outcome = self._restore()
            if isinstance(error, (*SPARK_ERRORS, OSError)):
                raise translate(error, table.path, outcome) from error
            raise
        if before != after:
            raise VerificationError(
                f"The content differs: the table has {before} {before.hash_sums}, its Parquet files have "
                f"{after} {after.hash_sums}; {self._restore()}."
            )
        return ParquetResult(self, after, differences(self.schema, plain), time.time() - start)

    def _columns(self, rows: DataFrame) -> DataFrame:
        return rows.select(*(quoted(name) for name in self.schema.names))

    def _check_alone(self) -> None:
        """Whether nobody has committed, or written a file, before the log was moved."""
        aside = open_table(self.set_aside)
        found = list_folder(self.table.path, aside.files().partition_columns)["path"].to_pylist()
        if aside.version != self.version or sorted(found) != self.files["path"].to_pylist():
            raise StalePlanError(
                f"Somebody has written to {self.table.path} meanwhile: stop that and make a new plan; all "
                "was put back."
            )

    def _restore(self) -> str:
        """Put back what was moved; what became of the table, in words."""
        if self.set_aside.exists():
            restore(self.table.path, self.set_aside)
        return "all was put back, and the table is as it was"

    def _repr_html_(self) -> str:
        return shown(self.facts())

    def __repr__(self) -> str:
        return f"ParquetPlan({self.files.num_rows:,} files stay, {self.moved.num_rows:,} are set aside)"


@dataclass(frozen=True)
class ParquetResult:
    """What became of a Delta table as Parquet.

    Attributes:
        plan: What was done.
        fingerprint: That of the rows, the same before and after.
        differences: What `spark.read.parquet(path)` makes of columns if it isn't told their types,
            where that isn't the table's type; nothing if such a read gives the same rows.
            `spark.read.schema(result.schema).parquet(path)` always does.
        seconds: The whole run, proof included.
    """

    plan: ParquetPlan
    fingerprint: Fingerprint
    differences: Mapping[str, str]
    seconds: float

    @property
    def path(self) -> Path:
        """The folder of Parquet files."""
        return self.plan.table.path

    @property
    def schema(self) -> StructType:
        """The columns that the table had."""
        return self.plan.schema

    @property
    def set_aside(self) -> Path:
        """Where the log and the dead files are; when you are sure, delete it, and the history with it."""
        return self.plan.set_aside

    def undo(self) -> Table:
        """Make it the Delta table again that it was, with all versions; see `put_back`."""
        return put_back(self.path, self.set_aside)

    def facts(self) -> dict[str, str]:
        """The outcome for people: name and value."""
        told = "; ".join(f"{name} {text}" for name, text in self.differences.items())
        return {
            "folder": f"{self.path}: {format_count(self.plan.files.num_rows, 'Parquet file')}",
            "content": f"identical: {self.fingerprint}",
            **({"without a schema": f"Spark reads {told}: give it result.schema"} if told else {}),
            "log and dead files": f"{self.set_aside}, {format_size(self.plan.moved_bytes)} and the log; "
            "undo() puts them back, deleting the folder makes it final",
            "seconds": f"{self.seconds:.1f}",
        }

    def _repr_html_(self) -> str:
        return shown(self.facts())

    def __repr__(self) -> str:
        return f"ParquetResult(\n{as_text(self.facts())}\n)"


def plan_to_parquet(table: Table, set_aside: str | Path | None = None) -> ParquetPlan:
    """Plan to make a Delta table plain Parquet: its live files, in the partition folders that they are in.

    Args:
        table: The table, opened by its path.
        set_aside: Where the log and the files that aren't live go: a folder that doesn't exist yet, on
            the same disk and outside of the table. None for one beside the table's, such as
            `_flights.delta-12`, whose name readers of Parquet pass over.

    Raises:
        EmptyTableError: The table has no live file.
        UnsupportedTableError: Its files alone are not its rows, as with deletion vectors, column mapping,
            row tracking, files elsewhere, partition values that the folders don't tell; or a catalog
            knows it.
        InvalidArgumentError: `set_aside` can't be used.
    """
    check_as_parquet(table)
    version = table.version
    chosen = table.path.parent / f"_{table.path.name}.delta-{version}"
    aside = chosen if set_aside is None else local_path(str(set_aside)).resolve()
    _check_set_aside(table, aside)
    live = pa.table({"path": live_paths(table), "size_bytes": table.files().sizes}).sort_by("path")
    versions = read_needs(table.handle).versions
    schema = StructType.fromJson(dict(table.log.snapshot().metadata.schema))
    return ParquetPlan(table, version, live, _not_live(table), aside, versions[:-1].tolist(), schema)


def _not_live(table: Table) -> pa.Table:
    """`ParquetPlan.moved`."""
    found = list_folder(table.path, table.files().partition_columns).select(["path", "size_bytes"])
    moved = found.filter(pc.invert(pc.is_in(found["path"], value_set=live_paths(table))))
    known = pc.is_in(moved["path"], value_set=read_needs(table.handle).files["path"])
    return moved.append_column("reason", pc.if_else(known, "dead", "unknown")).sort_by("path")


def _check_set_aside(table: Table, folder: Path) -> None:
    advice = "choose another with set_aside="
    if folder.exists():
        raise InvalidArgumentError(
            f"{folder} exists already, and may hold what an earlier run has set aside: see interop.put_back, "
            f"or {advice}."
        )
    if folder.is_relative_to(table.path):
        raise InvalidArgumentError(f"{folder} is within the table, and would be read with it: {advice}.")
    if not folder.parent.is_dir():
        raise InvalidArgumentError(f"{folder} can't be made, as {folder.parent} is no folder: {advice}.")
    if os.stat(folder.parent).st_dev != os.stat(table.path).st_dev:
        raise InvalidArgumentError(
            f"{folder} is on another disk, to which nothing can be moved at once: {advice}."
        )
