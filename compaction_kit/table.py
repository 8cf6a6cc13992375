"""The front door: open a table, and everything else is one call away."""

import warnings
from collections.abc import Sequence
from datetime import datetime
from functools import partial
from pathlib import Path

import pyarrow as pa
from pyspark.sql import SparkSession

from compaction_kit.compaction import CompactionPlan
from compaction_kit.errors import (
    InvalidArgumentError,
)
from compaction_kit.files import Files
from compaction_kit.handle import Handle, open_handle
from compaction_kit.history import (
    Diff,
    LogCleanup,
    Resolved,
    RestorePlan,
    Storage,
    diff_versions,
    plan_log_cleanup,
    plan_restore,
    read_history,
    read_storage,
    read_versions,
    resolve,
)
from compaction_kit.log import TransactionLog
from compaction_kit.plan import Planner, Thresholds
from compaction_kit.plan.predict import sampled_model
from compaction_kit.plan.thresholds import session_rules, thresholds
from compaction_kit.predicate import select_partitions
from compaction_kit.storage import local_path as local_path
from compaction_kit.text import parse_size
from compaction_kit.vacuum import VacuumPlan, plan_vacuum


def open_table(name: str | Path, spark: SparkSession | None = None) -> "Table":
    """Open a Delta table.

    Args:
        name: A path on a local disk, or catalog.schema.table.
        spark: The session to use; without one, `get_spark()` gives it when it is first needed,
            and reading the log needs none.

    Raises:
        TableNotFoundError: There is nothing by that name.
        NotADeltaTableError: It is no Delta table.
        UnsupportedTableError: It isn't on a local disk.

    Examples:
        >>> ck.open_table("data/flights")
        Table("data/flights", version 364)
    """
    return Table(open_handle(name, spark))


class Table:
    """A Delta table: what is in it, what compaction would do to it, what it was before.

    Each call looks at the table as it is then; nothing is changed but by the `run()` of a plan.
    """

    def __init__(self, handle: Handle):
        self.handle = handle

    @property
    def name(self) -> str:
        """The name that it was opened by."""
        return self.handle.name

    @property
    def path(self) -> Path:
        """Its folder, without symbolic links."""
        return self.handle.path

    @property
    def log(self) -> TransactionLog:
        """Its log."""
        return self.handle.log

    @property
    def spark(self) -> SparkSession:
        """The session that works on the table; started when first asked for."""
        return self.handle.spark

    @property
    def version(self) -> int:
        """The latest version."""
        return self.log.segment().version

    def files(
        self,
        version: int | None = None,
        where: str | None = None,
        timestamp: datetime | str | None = None,
    ) -> Files:
        """The live files of a version.

        Args:
            version: None for the latest.
            where: SQL over partition columns, such as "origin = 'JFK'"; None for all files.
            timestamp: Instead of a version, a time: the last version committed by then; `at` tells
                which. Without a zone it is in the session's, spark.sql.session.timeZone.

        Raises:
            InvalidArgumentError: The version can't be read, no version has that time, both were
                given, or the predicate can't be used.
        """
        if timestamp is not None:
            version = self.at(version, timestamp).version
        files = Files(self.log.snapshot(version))
        return files if where is None else select_partitions(self.spark, files, where)

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
    ) -> CompactionPlan:
        """Plan what OPTIMIZE would do now, or a better order or a budget; see `CompactionPlan`.

        Args:
            where: SQL over partition columns that says where to compact; None for everywhere.
            min_file_size: Files below this size are rewritten. None: as OPTIMIZE is set in the
                session (1 GiB, if it isn't), or `max_file_size` if that is less; half of
                `max_file_size` for another order than "size".
            max_file_size: The size that a bin may have. None: as OPTIMIZE is set, or
                `min_file_size` if that is more. Given both, the minimum may be above the maximum, as
                OPTIMIZE allows; the plan's `warnings` say what comes of it.
            order: In which order the files of a partition are put into bins. "size" is
                OPTIMIZE's, the smallest first. "ingest" is the oldest first, and a data column's
                name (in backticks if it is one of those two words) goes by its least value in each
                file, so that each output covers a narrow range of times or values. These two fill
                bins by the predicted size of the output, so that a second plan finds nothing left
                to do.
            budget: Bytes that may be rewritten: the bins that gain the most for each byte (see
                `packing.gains`). None for as many as there are.
            zorder_by: Columns to lay out the rows of each partition by, in Z-order, as OPTIMIZE … ZORDER BY
                does; sizes play no part then.
            batch_size: Bytes of the bins that are committed together. None: as OPTIMIZE is set
                (one commit, if it isn't).
            max_deleted_rows_ratio: The share of deleted rows above which a file is rewritten
                whatever its size. None: as OPTIMIZE is set (0.05, if it isn't).

        Raises:
            InvalidArgumentError: A size, ratio, order, column or the predicate can't be used.
            EmptyTableError: The table has no live file.
            UnsupportedTableError: The table is clustered, or has partition values that can't be
                parsed.
        """
        if not isinstance(order, str):
            raise InvalidArgumentError(f'order={order!r} is no order: choose "size", "ingest" or a column.')
        columns = _names(zorder_by)
        if columns and (order != "size" or budget is not None):
            raise InvalidArgumentError(
                f"zorder_by={', '.join(columns)} orders the rows of whole partitions: leave order and "
                "budget out."
            )
        limits = thresholds(
            self.handle.conf,
            min_file_size,
            max_file_size,
            max_deleted_rows_ratio,
            batch_size,
            even=order != "size",
        )
        return CompactionPlan.of(
            self.planner(where),
            limits,
            where,
            order,
            None if budget is None else parse_size(budget, "budget"),
            columns,
            handle=self.handle,
        )

    def planner(self, where: str | None = None) -> Planner:
        """What plans the files of the latest version again and again, with other thresholds."""
        return Planner(
            self.files(where=where),
            session_rules(self.handle.conf, self.handle.session),
            partial(sampled_model, self.handle.store),
        )

    def thresholds(
        self, min_file_size: int | str | None = None, max_file_size: int | str | None = None
    ) -> Thresholds:
        """The thresholds to plan with; see `plan_compaction`."""
        return thresholds(self.handle.conf, min_file_size, max_file_size)

    def history(self) -> pa.Table:
        """Every version that the log still tells of; see `history.read_history` for the columns."""
        return read_history(self.handle)

    def versions(self, verify: bool = False) -> pa.Table:
        """Every version that the log knows, and whether it can be read; see `history.read_versions`.

        Args:
            verify: Compare by fingerprint what was replaced by each commit that says that it changed
                no data, instead of going by what it calls itself and by row counts. All files that
                such commits added or removed are read.
        """
        return read_versions(self.handle, verify=verify)

    def at(self, version: int | None = None, timestamp: datetime | str | None = None) -> Resolved:
        """The commit that a version or a time stands for; see `history.resolve`."""
        return resolve(self.handle, version, timestamp)

    def diff(self, start: int, end: int, verify: bool = False) -> Diff:
        """What differs between two versions, by the log; see `history.diff_versions`.

        Args:
            start: A version.
            end: Another one, later or earlier.
            verify: Compare the rows as well, by the fingerprint of the files that differ, which are read.
        """
        return diff_versions(self.handle, start, end, verify)

    def plan_restore(self, version: int) -> RestorePlan:
        """Plan to go back to a version; see `history.plan_restore`. Nothing is changed until `run()`."""
        return plan_restore(self.handle, version)

    def restore(self, version: int) -> RestorePlan:
        """`plan_restore` by the name that it had."""
        warnings.warn(
            "Table.restore(version) is Table.plan_restore(version) now: call that.",
            FutureWarning,
            stacklevel=2,
        )
        return self.plan_restore(version)

    def storage(self) -> Storage:
        """The bytes that each version left, live and not; see `history.read_storage`."""
        return read_storage(self.handle)

    def plan_log_cleanup(self, at: datetime | str | None = None) -> LogCleanup:
        """What the next cleanup of the log takes; see `history.plan_log_cleanup`.

        Args:
            at: When it is; None for now. Without a zone it is in the session's.
        """
        return plan_log_cleanup(self.handle, at)

    def plan_vacuum(
        self,
        retention: str | None = None,
        keep_versions: Sequence[int] | None = None,
        mode: str = "FULL",
        at: datetime | str | None = None,
        verify: bool = False,
    ) -> VacuumPlan:
        """What VACUUM would delete, and which versions that costs; `run()` on it deletes just that.

        Args:
            retention: How long removed files are kept, such as "168 hours" or "7 days". None: as the
                table's property says, or a week. Less than that is what Delta refuses; more keeps more,
                though Delta itself has ignored RETAIN since 4.1: the plan is run file by file.
            keep_versions: Versions of which no file shall go.
            mode: "FULL" looks at the folder, "LITE" at the log's commits alone.
            at: For a preview, when VACUUM would run; None for now. Without a zone it is in the session's.
            verify: Read what versions differ in before calling the content of one that is lost the
                same as another's; see `versions`.

        Raises:
            InvalidArgumentError: An argument can't be used, a version to keep can't be read already, or
                Delta refuses such a vacuum: LITE where commits are gone, or so short a retention.
        """
        return plan_vacuum(self.handle, retention, keep_versions, mode, at, verify)

    def __repr__(self) -> str:
        return f'Table("{self.name}", version {self.version})'


def _names(columns: str | Sequence[str]) -> tuple[str, ...]:
    names = (columns,) if isinstance(columns, str) else columns
    if not isinstance(names, Sequence) or not all(isinstance(name, str) for name in names):
        raise InvalidArgumentError(f"zorder_by={columns!r} names no columns: give a name, or a list of them.")
    return tuple(names)
