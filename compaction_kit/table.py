"""The front door: open a table, and everything else is one call away."""

import re
from collections.abc import Sequence
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from compaction_kit.errors import (
    InvalidArgumentError,
    NotADeltaTableError,
    TableNotFoundError,
    UnsupportedTableError,
)
from compaction_kit.execute import run_plan
from compaction_kit.files import Files
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
from compaction_kit.history.content import Compare, compare_versions, comparer
from compaction_kit.log import TransactionLog
from compaction_kit.log.names import LOG_FOLDER, list_log
from compaction_kit.log.text import first_line
from compaction_kit.plan import CompactionPlan, Planner, Thresholds
from compaction_kit.predicate import select_partitions
from compaction_kit.retention import GUARD
from compaction_kit.sample import sampled_model
from compaction_kit.session import active_spark, get_spark
from compaction_kit.settings import session_rules, thresholds
from compaction_kit.sql import plain_path
from compaction_kit.text import parse_size
from compaction_kit.times import now, to_instant
from compaction_kit.vacuum import Session as VacuumSession
from compaction_kit.vacuum import (
    Stream,
    VacuumPlan,
    VacuumResult,
    plan_vacuum,
    run_vacuum,
    running_streams,
)

_MOST_SHOWN = 200
_CATALOG_NAME = re.compile(r"\w+(\.\w+){0,2}")


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
    """
    path = _resolve(str(name), spark or active_spark())
    if not path.exists():
        raise TableNotFoundError(f"No table at {name}: the path does not exist; check the spelling.")
    if not (path / LOG_FOLDER).is_dir():
        raise NotADeltaTableError(
            f"{name} is not a Delta table: it has no {LOG_FOLDER} folder; name the folder that holds one."
        )
    if not list_log(path):
        raise NotADeltaTableError(f"{name} is not a Delta table: its {LOG_FOLDER} folder is empty.")
    return Table(str(name), path.resolve(), spark)


class Table:
    """A Delta table: what is in it, what compaction would do to it, what it was before.

    Each call looks at the table as it is then; nothing is changed but by the `run()` of a plan.
    """

    def __init__(self, name: str, path: Path, spark: SparkSession | None = None):
        self.name = name
        self.path = path
        self.log = TransactionLog(path)
        self._spark = spark

    @property
    def spark(self) -> SparkSession:
        """The session that works on the table; started when first asked for."""
        if self._spark is None:
            self._spark = get_spark()
        return self._spark

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
                `benefit.gains`). None for as many as there are.
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
            self._conf, min_file_size, max_file_size, max_deleted_rows_ratio, batch_size, even=order != "size"
        )
        return self.planner(where).plan(
            limits,
            where,
            self.runner,
            order=order,
            budget=None if budget is None else parse_size(budget, "budget"),
            zorder_by=columns,
        )

    def planner(self, where: str | None = None) -> Planner:
        """What plans the files of the latest version again and again, with other thresholds."""
        return Planner(
            self.files(where=where),
            session_rules(self._conf, self._session),
            partial(sampled_model, self.path),
        )

    def thresholds(
        self, min_file_size: int | str | None = None, max_file_size: int | str | None = None
    ) -> Thresholds:
        """The thresholds to plan with; see `plan_compaction`."""
        return thresholds(self._conf, min_file_size, max_file_size)

    def runner(self, plan: CompactionPlan, **options: Any) -> Any:
        """Run one of this table's plans; `CompactionPlan.run` calls it."""
        return run_plan(self.path, self.log, lambda: self.spark, plan, **options)

    def history(self) -> pa.Table:
        """Every version that the log still tells of; see `history.read_history` for the columns."""
        return read_history(self.log)

    def versions(self, verify: bool = False) -> pa.Table:
        """Every version that the log knows, and whether it can be read; see `history.read_versions`.

        Args:
            verify: Compare by fingerprint what was replaced by each commit that says that it changed
                no data, instead of going by what it calls itself and by row counts. All files that
                such commits added or removed are read.
        """
        return read_versions(self.path, self.log, guard=self._has_guard, compare=self._comparer(verify))

    def at(self, version: int | None = None, timestamp: datetime | str | None = None) -> Resolved:
        """The commit that a version or a time stands for; see `history.resolve`."""
        return resolve(self.log, version, timestamp, self._spark)

    def diff(self, start: int, end: int, verify: bool = False) -> Diff:
        """What differs between two versions, by the log; see `history.diff_versions`.

        Args:
            start: A version.
            end: Another one, later or earlier.
            verify: Compare the rows as well, by the fingerprint of the files that differ, which are read.
        """
        compare = partial(compare_versions, self.spark, self.path, self.log) if verify else None
        return diff_versions(self.log, start, end, compare)

    def restore(self, version: int) -> RestorePlan:
        """Plan to go back to a version; see `history.plan_restore`. Nothing is changed until `run()`."""
        return plan_restore(self.path, self.log, lambda: self.spark, version, self._has_guard)

    def storage(self) -> Storage:
        """The bytes that each version left, live and not; see `history.read_storage`."""
        return read_storage(self.path, self.log)

    def plan_log_cleanup(self, at: datetime | str | None = None) -> LogCleanup:
        """What the next cleanup of the log takes; see `history.plan_log_cleanup`.

        Args:
            at: When it is; None for now. Without a zone it is in the session's.
        """
        return plan_log_cleanup(self.path, self.log, self._instant(at))

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
                table's property says, or a week. Less than that is what Delta refuses.
            keep_versions: Versions of which no file shall go.
            mode: "FULL" looks at the folder, "LITE" at the log's commits alone.
            at: For a preview, when VACUUM would run; None for now. Without a zone it is in the session's.
            verify: Read what versions differ in before calling the content of one that is lost the
                same as another's; see `versions`.

        Raises:
            InvalidArgumentError: An argument can't be used, or Delta refuses such a vacuum.
        """
        session = VacuumSession(self._conf, self._has_guard, self._streams)
        return plan_vacuum(
            self.path,
            self.log,
            session,
            retention,
            keep_versions,
            mode,
            self._instant(at),
            self.vacuum_runner,
            self._comparer(verify),
        )

    def vacuum_runner(self, plan: VacuumPlan, **options: Any) -> VacuumResult:
        """Run one of this table's plans; `VacuumPlan.run` calls it."""
        return run_vacuum(self.path, self.log, lambda: self.spark, plan, self._has_guard, **options)

    def _instant(self, at: datetime | str | None) -> datetime:
        return now(self._spark) if at is None else to_instant(at, "at", self._spark)

    def _comparer(self, verify: bool) -> Compare | None:
        return comparer(self.spark, self.path, self.log) if verify else None

    def _streams(self, table_id: str) -> list[Stream]:
        return running_streams(self._session, self.path, table_id)

    @property
    def _session(self) -> SparkSession | None:
        return self._spark or active_spark()

    @property
    def _has_guard(self) -> bool:
        return (self._conf(GUARD) or "true").lower() == "true"

    def _conf(self, key: str) -> str | None:
        return None if self._session is None else self._session.conf.get(key, None)

    def __reduce__(self) -> tuple[type["Table"], tuple[str, Path]]:
        """Pickled, it is its name and its path: whoever loads it has another session."""
        return Table, (self.name, self.path)

    def __repr__(self) -> str:
        return f'Table("{self.name}", version {self.version})'


def _names(columns: str | Sequence[str]) -> tuple[str, ...]:
    names = (columns,) if isinstance(columns, str) else columns
    if not isinstance(names, Sequence) or not all(isinstance(name, str) for name in names):
        raise InvalidArgumentError(f"zorder_by={columns!r} names no columns: give a name, or a list of them.")
    return tuple(names)


def local_path(name: str) -> Path:
    """The path that a path or a URI stands for.

    Raises:
        UnsupportedTableError: It isn't on a local disk.
        TableNotFoundError: Nothing can be at such a path, or nobody may look there.
    """
    path = _path_of(name)
    try:
        path.stat()
    except (FileNotFoundError, NotADirectoryError):
        pass
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or first_line(error)
        raise TableNotFoundError(f"No table at {name[:_MOST_SHOWN]!r}: {reason}; check the path.") from error
    return path


def _path_of(name: str) -> Path:
    if name.startswith("file:"):
        return Path(unquote(name.removeprefix("file:").removeprefix("//")))
    scheme, separator, _ = name.partition("://")
    if separator:
        raise UnsupportedTableError(
            f"{name} is on {scheme}, and only local disks are read: copy the table here."
        )
    return Path(name)


def _resolve(name: str, spark: SparkSession | None) -> Path:
    path = local_path(name)
    if spark is not None and _CATALOG_NAME.fullmatch(name) and not path.exists():
        try:
            location = spark.sql(f"DESCRIBE DETAIL {name}").collect()[0]["location"]
        except PySparkException as error:
            raise TableNotFoundError(
                f"No table {name}: there is no such path, and the session's catalog has no such Delta table."
            ) from error
        return local_path(plain_path(location))
    return path
