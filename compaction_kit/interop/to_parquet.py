"""Delta to Parquet: keep the live files, move everything else to another folder, and delete nothing.

The usual recipe, VACUUM with a retention of 0 hours and then deleting `_delta_log`, can't be undone. Here the
dead files and the log are moved to a folder beside the table, from which they can be put back.
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
from compaction_kit.storage import local_store, open_store
from compaction_kit.table import Table, open_table
from compaction_kit.text import format_count, format_size
from compaction_kit.verify import Fingerprint

_WHAT = "Conversion"
_ROW_IDS = "delta.rowTracking.materializedRowIdColumnName"


@dataclass(frozen=True, repr=False)
class ParquetPlan(Plan):
    """How a Delta table would become plain Parquet; made by `plan_to_parquet`.

    Attributes:
        table: The table.
        version: The version whose rows the files will hold.
        files: One row per live file, which is not moved, sorted by path: path (relative to the table,
            decoded), size_bytes.
        moved: One row per file that is moved with the log, sorted by path: path, size_bytes, reason ("dead":
            only older versions need it; "unknown": no version in the log needs it).
        set_aside: The folder to move them to; it doesn't exist yet.
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
        """The bytes of the files that are moved, without the log."""
        return pc.sum(self.moved["size_bytes"]).as_py() or 0

    def facts(self) -> dict[str, str]:
        """Return what is kept, what is moved and where: name and value."""
        size = format_size(pc.sum(self.files["size_bytes"]).as_py() or 0)
        num_unknown = pc.sum(pc.equal(self.moved["reason"], "unknown")).as_py() or 0
        unknown = f", {num_unknown:,} of them unknown to the log" if num_unknown else ""
        return {
            "table": f"{self.table.path}, version {self.version}",
            "stays": f"{format_count(self.files.num_rows, 'live file')}, {size}, as plain Parquet",
            "set aside": f"the log, and {format_count(self.moved.num_rows, 'file')} that version "
            f"{self.version} doesn't need{unknown}, {format_size(self.moved_bytes)}",
            "where": str(self.set_aside),
            "no longer there": f"{format_count(len(self.versions_lost), 'older version')}; what reads it as "
            "a Delta table, such as a stream, fails",
            "undo": "nothing is deleted, and undo() puts everything back",
        }

    def run(self) -> "ParquetResult":
        """Move the log and the dead files, and compare the rows that Spark reads before and after.

        The dead files are moved first and the log last, so that the folder always holds either the table's
        latest version or its Parquet files. No other program may write during the run. After any error
        everything is put back.

        Raises:
            StalePlanError: The table or its folder has changed since the plan was made, or during the run.
            RunFailedError, ReadOnlyTableError: Spark or the disk failed.
            RunCancelled: Ctrl-C was pressed.
            VerificationError: The rows differ.
        """
        table = self.table
        _check_set_aside(table, self.set_aside)
        if table.version != self.version or not _not_live(table).equals(self.moved):
            raise StalePlanError(
                f"The table or its folder has changed since the plan was made at version {self.version}: "
                "make a new plan; nothing was changed."
            )
        start, spark = time.time(), table.spark
        store = local_store(table.handle.store, _WHAT)
        differences: dict[str, str] = {}

        def convert() -> None:
            move_aside(self.moved["path"].to_pylist(), store, self.set_aside)
            aside = open_table(self.set_aside)
            changes = set(changed_files(store, aside).values())
            if aside.version != self.version or changes - {"changed"}:
                raise StalePlanError(
                    f"Another program wrote to {table.path} during the run: stop it and make a new plan; "
                    "everything was put back."
                )
            differences.update(_differences(self.schema, read_parquet(spark, table.handle.uri).schema))

        proof = run_verified(spark, table.path, self.schema, convert, self._undo)
        return ParquetResult(self, proof, differences, time.time() - start)

    def _undo(self) -> str:
        aside = local_store(self.set_aside, _WHAT)
        if aside.is_folder():
            restore(local_store(self.table.handle.store, _WHAT), aside)
        return "everything was put back, and the table is as it was"


@dataclass(frozen=True, repr=False)
class ParquetResult(Result):
    """The result of making a Delta table plain Parquet.

    Attributes:
        plan: The plan that was run.
        fingerprint: The fingerprint of the rows, the same before and after.
        differences: The columns that `spark.read.parquet(path)` reads differently from the table, and what it
            reads; empty if it reads the same rows. `spark.read.schema(result.schema).parquet(path)` always
            reads the same rows.
        seconds: The duration of the run, including the proof.
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
        """Turn the folder back into the Delta table, with all versions; see `put_back`."""
        return put_back(self.path, self.set_aside)

    def facts(self) -> dict[str, str]:
        """Return the folder, the proof and how to undo the run: name and value."""
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
    """Plan to turn a Delta table into plain Parquet: its live files, in their partition folders.

    Args:
        table: The table, opened by its path.
        set_aside: A new folder for the log and the files that aren't live, on the same disk and outside of
            the table. None for a folder beside the table's, such as `_flights.delta-12`, whose name Parquet
            readers skip.

    Raises:
        EmptyTableError: The table has no live file.
        UnsupportedTableError: The table is in a catalog, or its files alone don't give its rows, as with
            deletion vectors, column mapping, row tracking, files elsewhere, or folders whose names aren't
            the partition values.
        InvalidArgumentError: `set_aside` can't be used.

    Examples:
        >>> plan = ck.interop.plan_to_parquet(ck.open_table("data/flights"))
        >>> plan.files.num_rows, plan.moved.num_rows, len(plan.versions_lost)
        (1095, 0, 365)
        >>> plan.set_aside.name
        '_flights.delta-365'
        >>> plan.moved.schema
        path: string
        size_bytes: int64
        reason: string
    """
    reason = _refusal(table)
    if reason is not None:
        raise UnsupportedTableError(f"{table.name} can't become plain Parquet: {reason}.")
    files = pa.table({"path": _live_paths(table), "size_bytes": table.files().sizes}).sort_by("path")
    if not files.num_rows:
        raise EmptyTableError(f"{table.name} has no live file, so there is nothing to read as Parquet.")
    version = table.version
    local_store(table.handle.store, _WHAT)
    beside = table.path.parent / f"_{table.path.name}.delta-{version}"
    aside = beside if set_aside is None else Path(local_store(set_aside, _WHAT).root)
    _check_set_aside(table, aside)
    versions = read_needs(table.handle).versions
    schema = StructType.fromJson(dict(table.log.snapshot().metadata.schema))
    return ParquetPlan(table, version, files, _not_live(table), aside, versions[:-1].tolist(), schema)


def _live_paths(table: Table) -> pa.Array:
    return places(table.log.snapshot().live["path"], table.handle.store)


def _not_live(table: Table) -> pa.Table:
    """Make `ParquetPlan.moved`."""
    found = list_folder(table.handle.store, table.files().partition_columns).select(["path", "size_bytes"])
    moved = found.filter(pc.invert(pc.is_in(found["path"], value_set=_live_paths(table))))
    known = pc.is_in(moved["path"], value_set=read_needs(table.handle).files["path"])
    return moved.append_column("reason", pc.if_else(known, "dead", "unknown")).sort_by("path")


def _check_set_aside(table: Table, folder: Path) -> None:
    aside, parent = local_store(folder, _WHAT), local_store(folder.parent, _WHAT)
    if aside.is_taken(""):
        reason = "exists already, and may hold what an earlier run set aside: see interop.put_back, or"
    elif folder.is_relative_to(table.path):
        reason = "is within the table, and would be read with it:"
    elif not parent.is_folder():
        reason = f"can't be made, because {folder.parent} is not a folder:"
    elif not parent.may_move_to(local_store(table.handle.store, _WHAT)):
        reason = "is on another disk, to which files can't be moved without a copy:"
    else:
        return
    raise InvalidArgumentError(f"{folder} {reason} choose another with set_aside=.")


def _refusal(table: Table) -> str | None:
    """Return why the files of a table alone don't give its rows, and what to do; None if they do."""
    if open_store(table.name) != table.handle.store:
        return "it is registered as a Delta table in a catalog; drop it there, and open it by its path"
    snapshot = table.log.snapshot()
    reason = manifest_refusal(snapshot)
    if reason is not None:
        return reason
    if _ROW_IDS in snapshot.metadata.configuration:
        return "it has row tracking, which adds columns to files; copy its rows to a table without it"
    places_of = _live_paths(table)
    outside = places_of.filter(is_outside(places_of))
    if len(outside):
        count = format_count(len(outside), "live file")
        return f"{count} outside of its folder, such as {outside[0]}; copy its rows to a new table"
    paths = places_of.to_pylist()
    for path, folder in zip(paths, partition_folders(table.files().partitions).to_pylist(), strict=True):
        if path.rpartition("/")[0] != folder:
            partition = f"of the partition {folder}" if folder else "of no partition"
            return f"{path} is {partition}, but in another folder; rewrite the table"
        if not spark_reads(path):
            return f"{path} has a name that Spark skips when it reads Parquet; rewrite the table"
    missing = [path for path in paths if not table.handle.store.is_file(path)]
    if missing:
        return f"{format_count(len(missing), 'live file')} missing, such as {missing[0]}; restore it"
    return None


def _differences(schema: StructType, plain: StructType) -> dict[str, str]:
    """Make `ParquetResult.differences` from the schema that Spark infers and the table's schema."""
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
