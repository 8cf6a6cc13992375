"""Delta to Parquet: the live files remain, everything else is set aside, and nothing is deleted.

The usual recipe is VACUUM with a retention of 0 hours, and then to delete `_delta_log`. Both
destroy; here dead files and log move to a folder beside the table, from which they can be put back.
"""

import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.types import StructType

from compaction_kit.errors import EmptyTableError, InvalidArgumentError, StalePlanError, UnsupportedTableError
from compaction_kit.folder import list_folder
from compaction_kit.history.readable import read_needs
from compaction_kit.interop.convert import run_verified
from compaction_kit.interop.manifest import refusal as manifest_refusal
from compaction_kit.interop.parquet_folder import partition_folders, read_parquet, spark_reads
from compaction_kit.interop.set_aside import changed_files, move_aside, put_back, restore
from compaction_kit.log.paths import is_outside, places
from compaction_kit.records import Plan, Result
from compaction_kit.storage import open_store
from compaction_kit.table import Table, open_table
from compaction_kit.text import format_count, format_size
from compaction_kit.verify import Fingerprint

_ROW_IDS = "delta.rowTracking.materializedRowIdColumnName"


@dataclass(frozen=True, repr=False)
class ParquetPlan(Plan):
    """How a Delta table would become plain Parquet; made by `plan_to_parquet`.

    Attributes:
        table: The table.
        version: The version whose rows the files will hold.
        files: One row a live file, which stays where it is, by path: path (string, relative to the table,
            decoded), size_bytes (int64).
        moved: One row a file that is set aside with the log, by path: path (string), size_bytes (int64),
            reason (string; "dead": an older version needs it; "unknown": no version in the log does).
        set_aside: The folder that they are moved to; it doesn't exist yet.
        versions_lost: The versions that can't be read without the log and the files set aside.
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
    def is_empty(self) -> bool:
        """False: a table without live files is refused."""
        return not self.files.num_rows

    @property
    def moved_bytes(self) -> int:
        """The size in bytes of the files that are set aside, without the log."""
        return pc.sum(self.moved["size_bytes"]).as_py() or 0

    def facts(self) -> dict[str, str]:
        """What stays, what is set aside and where: name and value."""
        size = format_size(pc.sum(self.files["size_bytes"]).as_py() or 0)
        num_unknown = pc.sum(pc.equal(self.moved["reason"], "unknown")).as_py() or 0
        unknown = f", {num_unknown:,} of them unknown to the log" if num_unknown else ""
        return {
            "table": f"{self.table.path}, version {self.version}",
            "stays": f"{format_count(self.files.num_rows, 'live file')}, {size}, as plain Parquet",
            "set aside": f"the log, and {format_count(self.moved.num_rows, 'file')} that version "
            f"{self.version} doesn't need{unknown}, {format_size(self.moved_bytes)}",
            "where": str(self.set_aside),
            "no longer there": f"{format_count(len(self.versions_lost), 'older version')}; whatever reads it "
            "as a Delta table, such as a stream, fails",
            "undo": "nothing is deleted, and undo() puts everything back",
        }

    def run(self) -> "ParquetResult":
        """Set the log and the dead files aside, and compare the rows that Spark reads before and after.

        The dead files are moved first and the log last, so that at every moment the folder holds either
        the table's latest version or its Parquet files. Nobody else may write meanwhile; if
        somebody has, everything is put back.

        Raises:
            StalePlanError: The table, or what is in its folder, differs from what the plan was made for.
            RunFailedError, ReadOnlyTableError: Spark or the disk failed; what was moved was put back.
            RunCancelled: Ctrl-C was pressed; what was moved was put back.
            VerificationError: The rows differ; everything was put back.
        """
        table = self.table
        _check_set_aside(table, self.set_aside)
        if table.version != self.version or not _not_live(table).equals(self.moved):
            raise StalePlanError(
                "The table, or what is in its folder, has changed since the plan was made at version "
                f"{self.version}: make a new plan; nothing was changed."
            )
        start, spark = time.time(), table.spark
        differences: dict[str, str] = {}

        def convert() -> None:
            move_aside(self.moved["path"].to_pylist(), table.handle.store, self.set_aside)
            aside = open_table(self.set_aside)
            changes = set(changed_files(table.handle.store, aside).values())
            if aside.version != self.version or changes - {"changed"}:
                raise StalePlanError(
                    f"Somebody has written to {table.path} meanwhile: stop that and make a new plan; "
                    "everything was put back."
                )
            differences.update(_differences(self.schema, read_parquet(spark, table.path).schema))

        proof = run_verified(spark, table.path, self.schema, convert, self._undo)
        return ParquetResult(self, proof, differences, time.time() - start)

    def _undo(self) -> str:
        aside = open_store(str(self.set_aside))
        if aside.is_folder():
            restore(self.table.handle.store, aside)
        return "everything was put back, and the table is as it was"


@dataclass(frozen=True, repr=False)
class ParquetResult(Result):
    """The result of making a Delta table plain Parquet.

    Attributes:
        plan: The plan that was run.
        fingerprint: That of the rows, the same before and after.
        differences: For each column that `spark.read.parquet(path)` reads otherwise than the table has it,
            what it reads; empty if such a read gives the same rows.
            `spark.read.schema(result.schema).parquet(path)` always does.
        seconds: How long the run took, with the proof.
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
        """The folder with the log and the dead files; without it the table's history is lost."""
        return self.plan.set_aside

    def undo(self) -> Table:
        """Make it the Delta table again that it was, with all versions; see `put_back`."""
        return put_back(self.path, self.set_aside)

    def facts(self) -> dict[str, str]:
        """The folder, the proof and how to undo it: name and value."""
        columns = "; ".join(f"{name} {text}" for name, text in self.differences.items())
        return {
            "folder": f"{self.path}: {format_count(self.plan.files.num_rows, 'Parquet file')}",
            "content": f"identical: {self.fingerprint}",
            **({"without a schema": f"Spark reads {columns}: give it result.schema"} if columns else {}),
            "log and dead files": f"{self.set_aside}, {format_size(self.plan.moved_bytes)} and the log; "
            "undo() puts them back, deleting the folder makes it final",
            "seconds": f"{self.seconds:.1f}",
        }


def plan_to_parquet(table: Table, set_aside: str | Path | None = None) -> ParquetPlan:
    """Plan to make a Delta table plain Parquet: its live files, in the partition folders that they are in.

    Args:
        table: The table, opened by its path.
        set_aside: The folder for the log and the files that aren't live: one that doesn't exist yet, on
            the same disk and outside of the table. None for one beside the table's, such as
            `_flights.delta-12`, whose name readers of Parquet skip.

    Raises:
        EmptyTableError: The table has no live file.
        UnsupportedTableError: Its files alone are not its rows, as with deletion vectors, column mapping,
            row tracking, files elsewhere, partition values that differ from the folders' names; or it is
            in a catalog.
        InvalidArgumentError: `set_aside` can't be used.
    """
    reason = _refusal(table)
    if reason is not None:
        raise UnsupportedTableError(f"{table.name} can't become plain Parquet: {reason}.")
    files = pa.table({"path": _live_paths(table), "size_bytes": table.files().sizes}).sort_by("path")
    if not files.num_rows:
        raise EmptyTableError(f"{table.name} has no live file, so that there is nothing to read as Parquet.")
    version = table.version
    beside = table.path.parent / f"_{table.path.name}.delta-{version}"
    aside = beside if set_aside is None else Path(open_store(str(set_aside)).root)
    _check_set_aside(table, aside)
    versions = read_needs(table.handle).versions
    schema = StructType.fromJson(dict(table.log.snapshot().metadata.schema))
    return ParquetPlan(table, version, files, _not_live(table), aside, versions[:-1].tolist(), schema)


def _live_paths(table: Table) -> pa.Array:
    return places(table.log.snapshot().live["path"], table.handle.store)


def _not_live(table: Table) -> pa.Table:
    """`ParquetPlan.moved`."""
    found = list_folder(table.handle.store, table.files().partition_columns).select(["path", "size_bytes"])
    moved = found.filter(pc.invert(pc.is_in(found["path"], value_set=_live_paths(table))))
    known = pc.is_in(moved["path"], value_set=read_needs(table.handle).files["path"])
    return moved.append_column("reason", pc.if_else(known, "dead", "unknown")).sort_by("path")


def _check_set_aside(table: Table, folder: Path) -> None:
    aside, parent = open_store(str(folder)), open_store(str(folder.parent))
    if aside.is_taken(""):
        reason = "exists already, and may hold what an earlier run has set aside: see interop.put_back, or"
    elif folder.is_relative_to(table.path):
        reason = "is within the table, and would be read with it:"
    elif not parent.is_folder():
        reason = f"can't be made, as {folder.parent} is no folder:"
    elif not parent.may_move_to(table.handle.store):
        reason = "is on another disk, to which files can't be moved without a copy:"
    else:
        return
    raise InvalidArgumentError(f"{folder} {reason} choose another with set_aside=.")


def _refusal(table: Table) -> str | None:
    """Why the files of a table alone are not its rows, and what to do."""
    if open_store(table.name) != table.handle.store:
        return "a catalog has it as a Delta table and would keep it; drop it there, and open it by its path"
    snapshot = table.log.snapshot()
    reason = manifest_refusal(snapshot)
    if reason is not None:
        return reason
    if _ROW_IDS in snapshot.metadata.configuration:
        return "it has row tracking, which adds columns of its own to files; copy its rows to a table without"
    places_of = _live_paths(table)
    outside = places_of.filter(is_outside(places_of))
    if len(outside):
        count = format_count(len(outside), "live file")
        return f"{count} outside of its folder, such as {outside[0]}; copy its rows to a new table"
    paths = places_of.to_pylist()
    for path, folder in zip(paths, partition_folders(table.files().partitions).to_pylist(), strict=True):
        if path.rpartition("/")[0] != folder:
            partition = f"of the partition {folder}" if folder else "of no partition"
            return f"{path} is {partition}, and is in another folder; rewrite the table"
        if not spark_reads(path):
            return f"{path} has a name that Spark skips when it reads Parquet; rewrite the table"
    missing = [path for path in paths if not table.handle.store.is_file(path)]
    if missing:
        return f"{format_count(len(missing), 'live file')} missing, such as {missing[0]}; restore it"
    return None


def _differences(schema: StructType, plain: StructType) -> dict[str, str]:
    """`ParquetResult.differences`, between the table's schema and the one that Spark infers."""
    inferred, own = (
        {column.name: column.dataType.simpleString() for column in each} for each in (plain, schema)
    )
    return {
        name: f"{inferred[name]} instead of {kind}"
        if name in inferred
        else "missing: not in the file whose schema Spark takes for all"
        for name, kind in own.items()
        if inferred.get(name) != kind
    }
