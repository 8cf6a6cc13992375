"""Turn a Delta table into plain Parquet: the log and the dead files are moved away, the live files stay."""

import time
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.types import StructType

from compaction_kit.errors import EmptyTableError, InvalidArgumentError, StalePlanError, UnsupportedTableError
from compaction_kit.execute.failures import translate
from compaction_kit.folder import list_folder
from compaction_kit.interop.conversion import WHAT, ConversionResult, compare, spark_reads
from compaction_kit.interop.manifest import partition_folders, read_parquet, refusal
from compaction_kit.log.listing import LOG_FOLDER
from compaction_kit.log.paths import places
from compaction_kit.records import Plan
from compaction_kit.storage import local_store, open_store
from compaction_kit.table import Table, open_table
from compaction_kit.text import format_count, format_size
from compaction_kit.verify import Fingerprint, fingerprint


@dataclass(frozen=True, repr=False)
class ParquetPlan(Plan):
    """How a Delta table would become plain Parquet; made by `plan_to_parquet`.

    `files` are the live files, which stay: path (relative to the table, decoded), size_bytes. `moved` are
    the other files; they and the log are moved to the folder `set_aside` beside the table.
    """

    table: Table
    version: int
    files: pa.Table
    moved: pa.Table
    set_aside: Path
    schema: StructType
    is_row_tracked: bool = False

    def facts(self) -> dict[str, str]:
        """Return what stays, what is moved and where: name and value."""
        kept, moved = (format_size(pc.sum(t["size_bytes"]).as_py() or 0) for t in (self.files, self.moved))
        lost = "the row IDs and commit versions of row tracking"
        facts = {
            "table": f"{self.table.path}, version {self.version}",
            "stays": f"{format_count(self.files.num_rows, 'live file')}, {kept}, as plain Parquet",
            "moved": f"the log and {format_count(self.moved.num_rows, 'dead file')}, {moved}",
            "to": f"{self.set_aside}; moving its content back makes the folder the same Delta table again",
        }
        return facts | ({"only in the log": lost} if self.is_row_tracked else {})

    def run(self) -> ConversionResult:
        """Compare the rows that Spark reads with and without the log, then move the log and the dead files.

        The log is moved last, so that the folder always holds either the table's latest version or its
        Parquet files; after a run that was killed, plan again. No other program may write during the run.

        Raises:
            StalePlanError: The table or its folder has changed since the plan was made, or during the run.
            RunFailedError, ReadOnlyTableError, RunCancelled: Spark or the disk failed, or Ctrl-C was pressed.
            VerificationError: The rows differ; nothing was moved.
        """
        table, start = self.table, time.time()
        store = local_store(table.handle.store, WHAT)
        stale = f"{table.path} has changed since the plan was made at version {self.version}: plan again."

        def check() -> None:
            if table.version != self.version or not _dead_files(table).equals(self.moved):
                raise StalePlanError(stale)

        def read_both() -> tuple[Fingerprint, Fingerprint]:
            by_log = table.spark.read.format("delta").load(store.uri())
            return fingerprint(by_log), fingerprint(read_parquet(table, self.files["path"].to_pylist()))

        check()
        proof = compare(table.spark, table.path, read_both, lambda: "nothing was moved")
        check()
        try:
            for path in self.moved["path"].to_pylist():
                store.move(path, f"{self.set_aside}/{path}")
            store.move(LOG_FOLDER, f"{self.set_aside}/{LOG_FOLDER}")
            if open_table(self.set_aside).version != self.version:
                store.move(f"{self.set_aside}/{LOG_FOLDER}", LOG_FOLDER)
                raise StalePlanError(f"{stale} Files that were moved are in {self.set_aside}.")
        except OSError as error:
            raise translate(error, str(table.path), f"some files were moved to {self.set_aside}") from None
        return ConversionResult(self, table, proof, time.time() - start, self.set_aside)


def plan_to_parquet(table: Table) -> ParquetPlan:
    """Plan to turn a Delta table into plain Parquet: its live files, in their partition folders.

    Raises:
        EmptyTableError: The table has no live file.
        UnsupportedTableError: The table is in a catalog, or its files alone don't give its rows, as with
            deletion vectors, column mapping, or files outside of their partitions' folders.
        InvalidArgumentError: The folder beside the table has a log already.

    Examples:
        >>> plan = ck.interop.plan_to_parquet(ck.open_table("data/flights"))
        >>> plan.files.num_rows, plan.moved.num_rows, plan.set_aside.name
        (1095, 0, '_flights.delta-365')
    """
    store, snapshot = local_store(table.handle.store, WHAT), table.log.snapshot()
    paths = places(snapshot.live["path"], store)
    if not len(paths):
        raise EmptyTableError(f"{table.name} has no live file, so there is nothing to read as Parquet.")
    reason = refusal(snapshot)
    if open_store(table.name) != store:
        reason = "it is registered in a catalog; drop it there, and open it by its path"
    folders = partition_folders(table.files())
    for path, folder in zip(paths.to_pylist(), folders, strict=True):
        if reason is None and (path.rpartition("/")[0] != folder or not spark_reads(path)):
            reason = f"Spark wouldn't read {path} as a file of the folder {folder!r}; rewrite the table"
    if reason is not None:
        raise UnsupportedTableError(f"{table.name} can't become plain Parquet: {reason}.")
    aside = table.path.parent / f"_{table.path.name}.delta-{table.version}"
    if local_store(aside, WHAT).is_taken(LOG_FOLDER):
        raise InvalidArgumentError(f"{aside} has a log already: move it elsewhere.")
    files = pa.table({"path": paths, "size_bytes": table.files().sizes}).sort_by("path")
    schema = StructType.fromJson(dict(snapshot.metadata.schema))
    is_tracked = snapshot.metadata.configuration.get("delta.enableRowTracking", "").lower() == "true"
    return ParquetPlan(table, snapshot.version, files, _dead_files(table), aside, schema, is_tracked)


def _dead_files(table: Table) -> pa.Table:
    found = list_folder(table.handle.store, table.files().partition_columns).select(["path", "size_bytes"])
    live = places(table.log.snapshot().live["path"], table.handle.store)
    return found.filter(pc.invert(pc.is_in(found["path"], value_set=live))).sort_by("path")
