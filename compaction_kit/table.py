"""Open a Delta table; its methods read it and plan changes to it."""

from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import datetime
from functools import partial
from pathlib import Path

import pyarrow as pa
from pyspark.sql import SparkSession

from compaction_kit.compaction import CompactionPlan
from compaction_kit.errors import InvalidArgumentError, UnsupportedTableError, show_value
from compaction_kit.files import Files
from compaction_kit.forecast import Forecast, forecast
from compaction_kit.handle import Handle, open_handle
from compaction_kit.history import (
    Diff,
    Resolved,
    RestorePlan,
    Storage,
    diff_versions,
    plan_restore,
    read_history,
    read_log_expiry,
    read_storage,
    read_versions,
    resolve,
)
from compaction_kit.log import TransactionLog
from compaction_kit.plan import Planner, Thresholds
from compaction_kit.plan.auto import AutoCompaction, replay
from compaction_kit.plan.predict import SizeModel, dropped_columns
from compaction_kit.plan.thresholds import session_rules, thresholds
from compaction_kit.predicate import select_partitions
from compaction_kit.storage import local_store
from compaction_kit.text import parse_count, parse_size
from compaction_kit.vacuum import VacuumPlan, plan_vacuum


def open_table(name: "str | Path | Table", spark: SparkSession | None = None) -> "Table":
    """Open a Delta table; a `Table` is returned unchanged.

    Args:
        name: A path on a local disk, a URI such as "s3a://bucket/table" or "hdfs://host/table", or
            catalog.schema.table. Object stores are reached with the session's Hadoop settings or, without a
            session, those of the environment; other URIs start a session if there is none.
        spark: The session to use. None: that of `get_spark()`, when one is needed; the log needs none.

    Raises:
        InvalidArgumentError: `name` is neither text nor a path, or `spark` is not a session.
        TableNotFoundError: The path or name doesn't exist.
        NotADeltaTableError: The path is not a Delta table.
        UnsupportedTableError: The table is catalog-managed (feature catalogManaged).
        StorageError: The storage can't be reached, or refuses access.

    Examples:
        >>> ck.open_table("data/flights")
        Table("data/flights", version 365)
    """
    return name if isinstance(name, Table) else Table(open_handle(name, spark))


class Table:
    """A Delta table: its files, its history, and plans to change it; made by `open_table`.

    Each call reads the table as it is at that time, and raises CorruptLogError if the log is damaged,
    TableNotFoundError if it was deleted, StorageError if it can't be reached, SessionError if no session can
    be started, and UnsupportedTableError if it needs a feature that the kit doesn't know, or a call that
    lists its folder finds a symbolic link. Only the `run()` of a plan changes it.
    """

    def __init__(self, handle: Handle):
        self.handle = handle

    @property
    def name(self) -> str:
        """The path or name that the table was opened with."""
        return self.handle.name

    @property
    def path(self) -> Path:
        """The table's folder on a local disk, without symbolic links.

        Raises:
            UnsupportedTableError: The table isn't on a local disk; see `location`.
        """
        return Path(local_store(self.handle.store, "A path as pathlib has it").root)

    @property
    def location(self) -> str:
        """The table's folder in the form for Spark's readers and SQL, such as "s3a://bucket/table"."""
        return self.handle.uri

    @property
    def log(self) -> TransactionLog:
        """The table's transaction log.

        Examples:
            >>> ck.open_table("data/flights").log.actions(12)["action"].to_pylist()
            ['commitInfo', 'add', 'add', 'add']
        """
        return self.handle.log

    @property
    def spark(self) -> SparkSession:
        """The session that works on the table; started when it is first used."""
        return self.handle.spark

    @property
    def version(self) -> int:
        """The latest version."""
        return self.log.segment().version

    def files(self, version: int | None = None, where: str | None = None) -> Files:
        """Return the live files of a version, from the log alone; only `where` needs Spark.

        Args:
            version: The version; None for the latest. `at` returns the version of a time.
            where: SQL condition on partition columns, such as "origin = 'JFK'"; None for all files.

        Raises:
            InvalidArgumentError: The version can't be read, or the predicate can't be used.

        Examples:
            >>> table = ck.open_table("data/flights")
            >>> table.files(version=100).num_files
            300
            >>> table.files(where="origin = 'JFK'").num_files
            365
        """
        files = Files(self.log.snapshot(version))
        return files if where is None else select_partitions(self.handle, files, where)

    def plan_compaction(
        self,
        where: str | None = None,
        min_file_size: int | str | None = None,
        max_file_size: int | str | None = None,
        order: str = "size",
        budget: int | str | None = None,
        zorder_by: str | Sequence[str] = (),
        batch_size: int | str | None = None,
        max_deleted_rows_ratio: float | None = None,
        full: bool = False,
        output_file_size: int | str | None = None,
    ) -> CompactionPlan:
        """Plan what OPTIMIZE would do now, or a compaction in another order or within a budget.

        Sizes are bytes, or text such as "128 MiB". A clustered table is planned by its cubes: OPTIMIZE sorts
        new files, and cubes that are not complete, into new cubes, whatever the size of a file.

        Args:
            where: SQL condition on partition columns; None for all.
            min_file_size: Files below this size are rewritten. None: OPTIMIZE's setting in the session
                (default 1 GiB), or `max_file_size` if that is less; with another order than "size", half of
                `max_file_size`; with `output_file_size`, half of `output_file_size`.
            max_file_size: The largest size of a bin (target file size). None: OPTIMIZE's setting in the
                session (default 1 GiB), or `min_file_size` if that is more. If both are given, the minimum
                may be above the maximum, as for OPTIMIZE; the plan's `warnings` explain the effect.
            order: The order in which the files of a partition are put into bins: "size" (the smallest
                first, as OPTIMIZE), "ingest" (the oldest first), or the name of a data column (the least
                minimum first; put a column named "size" or "ingest" in backticks). The last two give outputs
                with narrow ranges, and fill bins by the predicted size of the output.
            budget: Bytes that may be rewritten; selects the bins with the highest gain per byte (see
                `packing.gains`). None for all bins.
            zorder_by: Data columns: the rows of each partition are sorted by them in Z-order, as OPTIMIZE …
                ZORDER BY does. All files of a partition are rewritten then, whatever their size.
            batch_size: Bytes of the bins that are committed together. None: OPTIMIZE's setting in the
                session (default: all bins in one commit).
            max_deleted_rows_ratio: Files with a larger share of deleted rows are rewritten, whatever
                their size. None: OPTIMIZE's setting in the session (default 0.05).
            full: Also recluster files with other clustering columns, as OPTIMIZE … FULL does.
            output_file_size: The size of added files, instead of `max_file_size`, which is the size of a bin
                before it is rewritten: small files take less space once they are together. The model that
                predicts `bytes_added` computes a bin's size from it, so that a second plan finds nothing to
                do.

        Raises:
            InvalidArgumentError: A size, ratio, order, column or the predicate can't be used, or `where`,
                `order`, `budget` or `zorder_by` is given for a clustered table, or `full` for another one.
            EmptyTableError: The table has no live file.
            UnsupportedTableError: The table has partition values that can't be parsed.

        Examples:
            >>> plan = ck.open_table("data/flights").plan_compaction(max_file_size="128 MiB")
            >>> plan.num_files_removed, plan.num_bins, plan.num_files_added
            (1095, 3, 3)
            >>> plan.bins.select(["bin_id", "partition.origin", "num_files"]).to_pylist()[0]
            {'bin_id': 0, 'partition.origin': 'EWR', 'num_files': 365}
        """
        if not isinstance(order, str):
            raise InvalidArgumentError(f'order={order!r} is no order: choose "size", "ingest" or a column.')
        is_list = isinstance(zorder_by, Iterable | None) and not isinstance(zorder_by, str)
        columns = tuple(() if zorder_by is None else zorder_by) if is_list else (str(zorder_by),)
        if columns and (order != "size" or budget is not None):
            raise InvalidArgumentError(
                f"zorder_by={show_value(zorder_by)} sorts whole partitions: leave out order and budget."
            )
        if output_file_size is not None:
            if max_file_size is not None:
                raise InvalidArgumentError(
                    f"output_file_size={show_value(output_file_size)} and max_file_size="
                    f"{show_value(max_file_size)} both limit a bin: give one of them."
                )
            max_file_size = parse_size(output_file_size, "output_file_size")
        sizes, even = (min_file_size, max_file_size), order != "size" or output_file_size is not None
        limits = thresholds(self.handle.conf, *sizes, max_deleted_rows_ratio, batch_size, even)
        most = None if budget is None else parse_size(budget, "budget")
        planner = self.planner(where)
        if planner.clustering is not None and (where or order != "size" or budget is not None or columns):
            raise InvalidArgumentError(
                f"The table is clustered by {', '.join(planner.clustering.columns)}, so OPTIMIZE sorts its "
                "rows and picks files by cubes: leave out where, order, budget and zorder_by."
            )
        if full and planner.clustering is None:
            raise InvalidArgumentError("full=True is useless, as this table isn't clustered: leave full out.")
        if output_file_size is not None:
            limits = planner.for_outputs(limits, order)
        return CompactionPlan.of(planner, limits, where, order, most, columns, full, handle=self.handle)

    def plan_purge(self, where: str | None = None) -> CompactionPlan:
        """Plan REORG TABLE … APPLY (PURGE): rewrite files without their deleted rows and dropped columns.

        OPTIMIZE rewrites a file with a deletion vector only if it is small or more than 5 % of its rows are
        deleted; a purge rewrites all such files. The footers of all files are read if they may have dropped
        columns; for REORG, these include columns that UPDATE and MERGE write for a change data feed.

        Args:
            where: SQL condition on partition columns, as for `plan_compaction`.

        Raises:
            InvalidArgumentError: The predicate can't be used.
            EmptyTableError: The table has no live file.
            UnsupportedTableError: As for `plan_compaction`, or files outside of the table's folder may have
                dropped columns.
            StorageError: A footer can't be read.

        Examples:
            >>> purge = ck.open_table("data/flights").plan_purge()
            >>> purge.num_files_removed, purge.num_deleted_rows, purge.dropped_columns.num_rows
            (0, 0, 0)
        """
        limits = replace(thresholds(self.handle.conf), min_file_size=0, max_deleted_rows_ratio=0)
        return CompactionPlan.of(self.planner(where, for_purge=True), limits, where, handle=self.handle)

    def planner(self, where: str | None = None, for_purge: bool = False) -> Planner:
        """Return a planner, which plans the latest version's files repeatedly with different thresholds."""
        rules, files = session_rules(self.handle.conf, self.handle.session), self.files(where=where)
        dropped = dropped_columns(self.handle.store, files) if for_purge else None
        return Planner(files, rules, partial(SizeModel.sampled, self.handle.store), dropped)

    def thresholds(
        self,
        min_file_size: int | str | None = None,
        max_file_size: int | str | None = None,
        order: str = "size",
    ) -> Thresholds:
        """Return the thresholds of a plan; see `plan_compaction`."""
        return thresholds(self.handle.conf, min_file_size, max_file_size, even=order != "size")

    def auto_compaction(self, since: int = 0) -> AutoCompaction:
        """Replay the log: at which commits would Delta's auto compaction fire, and what would it rewrite?

        The settings are those of the session now; the table's properties are those of each commit. If auto
        compaction is off, the replay shows what it would do. Delta counts the files that the session itself
        adds and removes, so the replay treats all commits as commits of one session. In a table with column
        mapping, auto compaction compacts all partitions when it fires in one. After a commit to more than 128
        partitions Delta picks some of them at random; the replay takes all.

        Args:
            since: The first commit of the session that writes; Delta counts no earlier file. The replay
                begins later if the log lacks the version before.

        Raises:
            InvalidArgumentError: There is no such commit.
            UnsupportedTableError: The table is clustered.

        Examples:
            >>> ck.open_table("data/flights").auto_compaction().fired.num_rows
            24
        """
        return replay(self.log.listed(), self.handle.conf, parse_count(since, "since", 0))

    def forecast(
        self,
        days: int = 30,
        max_files: int | None = None,
        vacuum_days: int = 7,
        min_file_size: int | str | None = None,
        max_file_size: int | str | None = None,
    ) -> Forecast:
        """Forecast files and bytes without compaction, and for several intervals between compactions.

        The last days in the log are repeated (whole days, at most 28; whole weeks if there is one): the files
        of commits that changed data and removed no file, without the log's first. Partition values that begin
        with a date, such as 2026-01-31, go on with the days. The first compaction and vacuum are today; all
        come at the end of a day. Bins are OPTIMIZE's, and each becomes one file of the predicted size.

        Args:
            days: How many days, ten years at most.
            max_files: The most files that a full read may open. None: twice as many as a compaction leaves
                today, but at least 100.
            vacuum_days: Days between vacuums with the table's retention; without compaction there are none.
            min_file_size: See `plan_compaction`.
            max_file_size: See `plan_compaction`.

        Raises:
            InvalidArgumentError: A number or size can't be used.
            EmptyTableError: The table has no live file.
            UnsupportedTableError: The table is clustered, or VACUUM can't be planned.
        """
        parse_count(days, "days", most=3_650)
        parse_count(vacuum_days, "vacuum_days")
        parse_count(1 if max_files is None else max_files, "max_files")
        limits, table = self.thresholds(min_file_size, max_file_size), Table(self.handle.listed())
        planner = table.planner()
        if planner.clustering is not None:
            raise UnsupportedTableError(
                f"A forecast packs files by size, and the table is clustered by "
                f"{', '.join(planner.clustering.columns)}: see plan_compaction().amplification()."
            )
        return forecast(table.handle, planner, limits, days, max_files, vacuum_days)

    def history(self) -> pa.Table:
        """Return one row per commit in the log; see `history.read_history`."""
        return read_history(self.handle)

    def versions(self) -> pa.Table:
        """Return one row per version, and whether it can be read; see `history.read_versions`."""
        return read_versions(self.handle)

    def at(self, timestamp: datetime | str) -> Resolved:
        """Return the last commit at or before a time; see `history.resolve`."""
        return resolve(self.handle, timestamp)

    def diff(self, start: int, end: int, verify: bool = False) -> Diff:
        """Return what differs between two versions; see `history.diff_versions`."""
        return diff_versions(self.handle, start, end, verify)

    def plan_restore(self, version: int) -> RestorePlan:
        """Plan to restore a version; see `history.plan_restore`."""
        return plan_restore(self.handle, version)

    def storage(self) -> Storage:
        """Return the bytes of live and removed files at each version; see `history.read_storage`."""
        return read_storage(self.handle)

    def log_expiry(self, at: datetime | str | None = None) -> pa.Table:
        """Return which files of the log a cleanup deletes; see `history.read_log_expiry`."""
        return read_log_expiry(self.handle, at)

    def plan_vacuum(
        self,
        retention: str | None = None,
        keep_versions: Sequence[int] | None = None,
        mode: str = "FULL",
        at: datetime | str | None = None,
    ) -> VacuumPlan:
        """Plan what VACUUM would delete, and show which versions can't be read after it.

        Args:
            retention: How long removed files are kept, such as "168 hours" or "7 days". None: the
                table's property delta.deletedFileRetentionDuration, or a week. Delta refuses a shorter
                retention, or ignores it (since 4.1). A longer one keeps more files, if the log has their
                removes: `run()` gives Delta a list of files (VACUUM … USING INVENTORY).
            keep_versions: Versions of which no file is deleted.
            mode: "FULL"; run VACUUM … LITE in SQL.
            at: The time of VACUUM, for a preview; None for now. Without a zone, it is in the session's zone.

        Raises:
            InvalidArgumentError: An argument can't be used, a version to keep can't be read any more,
                or Delta refuses or ignores a retention as short as this.
            UnsupportedTableError: Files of the table are reached through a symbolic link.

        Examples:
            >>> vacuum = ck.open_table("data/flights").plan_vacuum(retention="7 days")
            >>> vacuum.num_files, vacuum.versions_lost
            (0, [])
        """
        return plan_vacuum(self.handle, retention, keep_versions, mode, at)

    def __repr__(self) -> str:
        with suppress(Exception):
            return f"Table({show_value(self.name)}, version {self.version})"
        return f"Table({show_value(self.name)}, which can't be read)"


# Copy the docstrings with their columns and errors, so that help() shows them.
for _method, _function in (
    (Table.history, read_history),
    (Table.versions, read_versions),
    (Table.at, resolve),
    (Table.diff, diff_versions),
    (Table.plan_restore, plan_restore),
    (Table.storage, read_storage),
    (Table.log_expiry, read_log_expiry),
):
    _method.__doc__ = _function.__doc__
