"""From a plan's bins to one Spark job and one commit."""

import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark import cloudpickle
from pyspark.sql import SparkSession

from compaction_kit.errors import RunFailedError, StalePlanError, UnsupportedTableError
from compaction_kit.execute.arrow import bins as worker
from compaction_kit.execute.arrow.refusals import refuse_bins, refuse_table
from compaction_kit.execute.arrow.stats import merge_stats, physical_schema
from compaction_kit.execute.arrow.types import data_schema
from compaction_kit.execute.jobs import run_watched
from compaction_kit.execute.transaction import OptimizeTransaction, is_conflict
from compaction_kit.files import Files
from compaction_kit.log.paths import decode_paths
from compaction_kit.plan import CompactionPlan

# Tasks for each core: enough of them to tell progress by, and to end together.
_TASKS_PER_CORE = 8
# Executors may lack this package: the module goes with the task.
cloudpickle.register_pickle_by_value(worker)  # type: ignore[no-untyped-call]


def run_arrow(
    spark: SparkSession, table: Path, plan: CompactionPlan, watch: Callable[[int], None]
) -> dict[int, str]:
    """Rewrite a plan's bins in one Spark job, and commit them as OPTIMIZE would.

    Args:
        spark: The session.
        table: The table's folder.
        plan: What to do.
        watch: Called with the number of bins that are done; raising cancels.

    Returns:
        Why some bins were left alone, by their number.

    Raises:
        UnsupportedTableError: None of them can be rewritten so.
        StalePlanError: The table isn't at the planned version.
        RunFailedError: A file can't be read or written; nothing was committed.
    """
    reason = refuse_table(spark, plan)
    if reason is not None:
        raise _refused(reason)
    transaction = OptimizeTransaction(spark, table)
    if transaction.version != plan.version:
        raise StalePlanError(
            f"The plan was made at version {plan.version} and the table is at {transaction.version}: "
            "make a new plan; nothing was changed."
        )
    refusals = refuse_bins(plan)
    done = _rewrite(spark, _bins(spark, table, plan, refusals), plan, watch)
    written = [one for one in done if one.refusal is None and one.failure is None]
    refusals |= {one.number: one.refusal for one in done if one.refusal is not None}
    try:
        _check_failures(done, plan)
        if refusals and not written:
            raise _refused("; ".join(sorted(set(refusals.values()))))
        actions = list(_actions(plan, written))
    except BaseException:
        _discard(written)
        raise
    if any(one.num_rows for one in written):
        _commit(transaction, actions, plan, written)
    _discard([one for one in written if not one.num_rows])
    return refusals


def _commit(
    transaction: OptimizeTransaction,
    actions: list[dict[str, Any]],
    plan: CompactionPlan,
    written: list[worker.Rewritten],
) -> None:
    try:
        transaction.commit(actions, _metrics(actions), plan.where)
    except Exception as error:
        # Any other error may come after the commit: then the outputs are the table's files.
        if is_conflict(error):
            _discard(written)
        raise


def _check_failures(done: Iterable[worker.Rewritten], plan: CompactionPlan) -> None:
    for one in done:
        if one.failure is not None:
            raise RunFailedError(
                f"A bin could not be rewritten, and the table stays at version {plan.version}: {one.failure}."
            )


def _refused(reason: str) -> UnsupportedTableError:
    return UnsupportedTableError(
        f'strategy="arrow" can\'t run this plan, for {reason}: run it with strategy="optimize".'
    )


def _bins(
    spark: SparkSession, table: Path, plan: CompactionPlan, refusals: dict[int, str]
) -> list[worker.Bin]:
    schema = data_schema(plan.source.snapshot.metadata)
    serialized = schema.serialize().to_pybytes()
    footer = {"org.apache.spark.version": spark.version}
    paths = decode_paths(plan.files["path"]).to_pylist()
    bounds = _bounds(plan)
    run = uuid.uuid4()
    found = []
    for number, (start, end) in enumerate(bounds):
        if number not in refusals:
            inputs = [str(table / path) for path in paths[start:end]]
            output = str(Path(inputs[0]).parent / f"part-{number:05d}-{run}")
            found.append(worker.Bin(number, inputs, output, serialized, footer))
    return found


def _bounds(plan: CompactionPlan) -> list[tuple[int, int]]:
    """Where in the plan's files each bin begins and ends."""
    ends = np.cumsum(plan.packing.counts)
    return list(zip((ends - plan.packing.counts).tolist(), ends.tolist(), strict=True))


def _rewrite(
    spark: SparkSession, bins: Sequence[worker.Bin], plan: CompactionPlan, watch: Callable[[int], None]
) -> list[worker.Rewritten]:
    if not bins:
        return []
    context = spark.sparkContext
    sizes = plan.outcome.bytes_removed[[one.number for one in bins]]
    shares = _shares(sizes, context.defaultParallelism * _TASKS_PER_CORE)
    groups = [[tuple(bins[i]) for i in share] for share in shares]
    done: list[worker.Rewritten] = []
    try:
        tasks = context.parallelize(groups, len(groups)).flatMap(worker.rewrite_bins)
        run_watched(
            spark,
            lambda: done.extend(worker.Rewritten(*one) for one in tasks.collect()),
            lambda watched: watch(int(watched.tasks / len(groups) * len(bins))),
            is_final=False,
        )
    except BaseException:
        _discard(done)
        raise
    return done


def _shares(sizes: np.ndarray, most: int) -> list[list[int]]:
    """The bins spread over tasks, the largest first, each to the task that has the least."""
    count = min(len(sizes), most)
    loads = np.zeros(count)
    shares: list[list[int]] = [[] for _ in range(count)]
    for i in np.argsort(-sizes, kind="stable").tolist():
        task = int(loads.argmin())
        shares[task].append(i)
        # A file costs something however small it is.
        loads[task] += sizes[i] + 1
    return shares


def _actions(plan: CompactionPlan, written: Iterable[worker.Rewritten]) -> Iterator[dict[str, Any]]:
    """The add of each output that has rows, and the removes of what it replaces."""
    source = plan.source
    positions, _ = plan.members
    stats = source.snapshot.stats.take(pa.array(source.in_snapshot(positions))).to_pylist()
    schema = physical_schema(source.snapshot.metadata)
    values = _partition_values(source, positions)
    paths, sizes = plan.files["path"].to_pylist(), plan.files["size_bytes"].to_pylist()
    now = int(time.time() * 1000)
    bounds = _bounds(plan)
    for one in written:
        start, end = bounds[one.number]
        if one.num_rows:
            folder, slash, _ = paths[start].rpartition("/")
            yield {
                "add": {
                    "path": f"{folder}{slash}{Path(one.path).name}",
                    "partitionValues": values[start],
                    "size": one.size_bytes,
                    "modificationTime": one.modification_time,
                    "dataChange": False,
                    "stats": merge_stats(stats[start:end], schema, one.num_rows),
                }
            }
        for i in range(start, end):
            yield {
                "remove": {
                    "path": paths[i],
                    "deletionTimestamp": now,
                    "dataChange": False,
                    "extendedFileMetadata": True,
                    "partitionValues": values[i],
                    "size": sizes[i],
                }
            }


def _partition_values(source: Files, positions: np.ndarray) -> list[dict[str, str | None]]:
    """The partition values of some files as the log has them: by physical names."""
    physical = source.snapshot.metadata.physical_names
    columns = [
        source.partitions[f"partition.{name}"].take(pa.array(positions)).to_pylist()
        for name in source.partition_columns
    ]
    names = [physical[name] for name in source.partition_columns]
    return [dict(zip(names, values, strict=True)) for values in zip(*columns, strict=True)] or [
        {} for _ in positions
    ]


def _metrics(actions: Sequence[dict[str, Any]]) -> dict[str, int]:
    """What OPTIMIZE tells in the history (OptimizeExecutor, createMetrics)."""
    added = sorted(action["add"]["size"] for action in actions if "add" in action)
    removed = [action["remove"]["size"] for action in actions if "remove" in action]
    count = len(added)
    return {
        "numAddedFiles": count,
        "numRemovedFiles": len(removed),
        "numAddedBytes": sum(added),
        "numRemovedBytes": sum(removed),
        "minFileSize": added[0],
        "p25FileSize": added[count // 4],
        "p50FileSize": added[count // 2],
        "p75FileSize": added[count * 3 // 4],
        "maxFileSize": added[-1],
        "numDeletionVectorsRemoved": 0,
    }


def _discard(written: Iterable[worker.Rewritten]) -> None:
    for one in written:
        if one.path:
            Path(one.path).unlink(missing_ok=True)
