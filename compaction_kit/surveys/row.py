"""One row of a survey: a table's statistics, and what compaction would gain."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import SparkSession

from compaction_kit.errors import CompactionKitError, InvalidArgumentError
from compaction_kit.files import Files
from compaction_kit.log.reading import first_line
from compaction_kit.plan import BinPlan, Planner, SessionRules, Thresholds
from compaction_kit.plan.thresholds import session_rules, thresholds
from compaction_kit.skipping import Overlap
from compaction_kit.table import Table, open_table

ROW = pa.schema(
    [
        ("table", pa.string()),
        ("version", pa.int64()),
        ("num_files", pa.int64()),
        ("size_bytes", pa.int64()),
        ("num_small_files", pa.int64()),
        ("median_size_bytes", pa.int64()),
        ("num_partitions", pa.int64()),
        ("skew", pa.float64()),
        ("num_commits", pa.int64()),
        ("log_bytes", pa.int64()),
        ("tombstoned_bytes", pa.int64()),
        ("reclaimable_bytes", pa.int64()),
        ("overlap", pa.float64()),
        ("overlap_column", pa.string()),
        ("last_optimize", pa.timestamp("ms", "UTC")),
        ("files_removed", pa.int64()),
        ("files_added", pa.int64()),
        ("bytes_rewritten", pa.int64()),
        ("gain", pa.int64()),
        ("gain_per_byte", pa.float64()),
        ("error", pa.string()),
    ]
)
# Columns that are fields of `FileStats`.
_STATS = ROW.names[ROW.names.index("num_files") : ROW.names.index("overlap")]
Facts = dict[str, Any]


@dataclass(frozen=True)
class PlanSettings:
    """The settings with which every table of a survey is planned, read from the session once."""

    thresholds: Thresholds
    rules: SessionRules

    @classmethod
    def of(cls, spark: SparkSession | None, max_file_size: int | str | None) -> "PlanSettings":
        """Read the settings of the session, or return the defaults without one.

        Raises:
            InvalidArgumentError: `max_file_size` is not a size.
        """

        def conf(key: str) -> str | None:
            return None if spark is None else spark.conf.get(key, None)

        return cls(thresholds(conf, max_file_size=max_file_size), session_rules(conf, spark))


def survey_table(name: str, place: str, spark: SparkSession | None, settings: PlanSettings) -> Facts:
    """Return a row of `ROW`; values that can't be determined are null, and `error` says why.

    Args:
        name: The table's name in the row.
        place: Its path, or its name in the session's catalog.
        spark: The session, if there is one.
        settings: The settings to plan with.
    """
    row: Facts = dict.fromkeys(ROW.names) | {"table": name}
    try:
        table = open_table(place, spark)
        # Not kept: the snapshots would replace those of tables that the user works with.
        files = Files(table.log.snapshot(keep=False))
    except Exception as error:
        return row | {"error": _sentence(error)}
    steps: list[Callable[[], Facts]] = [
        lambda: _weights(files),
        lambda: _overlap(files),
        lambda: _last_optimize(table, files),
        lambda: _plan(files, settings),
    ]
    for step in steps:
        try:
            row |= step()
        except Exception as error:
            row["error"] = row["error"] or _sentence(error)
    return row


def _weights(files: Files) -> Facts:
    stats = files.stats()
    return {"version": files.version} | {name: getattr(stats, name) for name in _STATS}


def _overlap(files: Files) -> Facts:
    overlap = _first_overlap(files)
    return {} if overlap is None else {"overlap": overlap.mean, "overlap_column": overlap.column}


def _first_overlap(files: Files) -> Overlap | None:
    # Without bounds, the loop would parse the stats of every file for each column.
    if not pc.any(pc.match_substring(files.snapshot.stats, '"minValues"')).as_py():
        return None
    for column in files.data_columns:
        try:
            overlap = files.overlap(column)
        except InvalidArgumentError:
            continue
        if len(overlap.depths):
            return overlap
    return None


def _last_optimize(table: Table, files: Files) -> Facts:
    found = table.log.last_operation("OPTIMIZE", metadata=files.snapshot.metadata)
    return {"last_optimize": None if found is None else found[1]}


def _plan(files: Files, settings: PlanSettings) -> Facts:
    # Without an estimate from samples: a survey reads no data files.
    plan = BinPlan.of(Planner(files, settings.rules), settings.thresholds)
    return {
        "files_removed": plan.num_files_removed,
        "files_added": plan.num_files_added,
        "bytes_rewritten": plan.bytes_removed,
        "gain": plan.gain,
        "gain_per_byte": plan.gain / plan.bytes_removed if plan.bytes_removed else None,
    }


def _sentence(error: Exception) -> str:
    if isinstance(error, CompactionKitError):
        return str(error)
    return f"{type(error).__name__}: {first_line(error)}."
