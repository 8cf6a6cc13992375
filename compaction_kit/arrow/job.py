"""One Spark job that rewrites bins: large ones in several parts, which a second job joins."""

import contextlib
import itertools
import math
import uuid
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import SparkSession

from compaction_kit.arrow import worker
from compaction_kit.arrow.refusals import data_schema, has_partition_columns, shows_years
from compaction_kit.arrow.staging import Staging, staging_for
from compaction_kit.arrow.worker import RewriteOutput, RewriteTask, join_parts, rewrite_bins
from compaction_kit.execute.failures import BinFailed
from compaction_kit.execute.jobs import run_cancellable
from compaction_kit.execute.work import Recorder
from compaction_kit.files import Files
from compaction_kit.log.paths import escaped, folder_of, places
from compaction_kit.plan.partitions import typed_value
from compaction_kit.storage import Store
from compaction_kit.times import session_zone

# Tasks for each core: enough of them to end together, and to show progress if there is much to do.
_LEAST_TASKS, _MOST_TASKS = 2, 8
# Bytes that a task rewrites at least, if possible: Spark takes a tenth of that time to start one.
_TASK_COST = 64 << 20
# A file takes as long to open as these bytes take to rewrite.
FILE_COST = 48 << 10
# Parts smaller than this make row groups that are too small.
LEAST_PART = 4 << 20

# As the log has them: by the physical name of each partition column.
PartitionValues = dict[str, str | None]


@dataclass(frozen=True)
class Bin:
    """A bin's number in the plan, and positions of its files in the plan's source, in row order."""

    number: int
    positions: np.ndarray


class BinJob:
    """Rewrites bins of one plan in one Spark job, and joins the parts of large ones in another."""

    def __init__(self, spark: SparkSession, store: Store, source: Files, record: Recorder):
        self._spark, self._store, self._source, self._record = spark, store, source, record
        self._cores = spark.sparkContext.defaultParallelism
        self._metadata = source.snapshot.metadata
        self._has_partition_columns = has_partition_columns(spark, source.snapshot)

    @contextlib.contextmanager
    def rewritten(self, bins: Sequence[Bin]) -> Iterator[dict[int, RewriteOutput]]:
        """Rewrite bins; outputs that are left in the result at the end are deleted.

        Returns:
            The output of each bin, by its number; without a path for a bin that was refused or failed.

        Raises:
            WorkCancelled: It was cancelled; no output is left.
            BinFailed: Another process has deleted the lease.
        """
        run = str(uuid.uuid4())
        values = partition_values(self._source, np.array([bin_.positions[0] for bin_ in bins]))
        positions = np.concatenate([bin_.positions for bin_ in bins])
        found: list[str] = places(self._source.paths(positions), self._store).to_pylist()
        starts = np.cumsum([0, *(len(bin_.positions) for bin_ in bins)]).tolist()
        folders = {
            bin_.number: _output_folder(found[start], row, self._metadata.is_mapped)
            for bin_, start, row in zip(bins, starts[:-1], values, strict=True)
        }
        staging = staging_for(self._store, folders, run)
        pending: dict[int, RewriteOutput] = {}
        try:
            with staging:
                tasks = self._tasks(bins, positions, found, values, staging)
                written = self._rewrite(tasks, staging)
                if len(written) < len(tasks):
                    raise BinFailed(f"{staging.lease} was deleted, so tasks have stopped")
                outputs = self._joined(written, tasks, staging)
                pending |= {output.number: output for output in staging.publish(outputs)}
            yield pending
        finally:
            staging.delete_unreferenced(pending.values())

    def _tasks(
        self,
        bins: Sequence[Bin],
        positions: np.ndarray,
        found: Sequence[str],
        values: Sequence[PartitionValues],
        staging: Staging,
    ) -> list[RewriteTask]:
        schema = data_schema(self._metadata, self._has_partition_columns).serialize().to_pybytes()
        footer = {"org.apache.spark.version": self._spark.version}
        sizes = self._source.sizes[positions]
        costs = sizes + FILE_COST
        even = max(float(costs.sum()) / self._cores, 1.0) if staging.may_join else math.inf
        inputs = list(zip(map(self._store.place, found), sizes.tolist(), strict=True))
        has_years = shows_years(self._source, positions)
        tasks = []
        start = 0
        for bin_, constants in zip(bins, self._constants(values), strict=True):
            end = start + len(bin_.positions)
            cuts = [start + cut for cut in _cuts(sizes[start:end], costs[start:end], even)]
            for part, (first, last) in enumerate(itertools.pairwise(cuts)):
                task = RewriteTask(
                    number=bin_.number,
                    part=part,
                    parts=len(cuts) - 1,
                    inputs=inputs[first:last],
                    output=staging.output(bin_.number),
                    lease=staging.lease,
                    schema=schema,
                    constants=constants,
                    by_id=self._metadata.is_mapped_by_id,
                    has_years=bool(has_years[first:last].all()),
                    footer=footer,
                )
                tasks.append(task)
            start = end
        return tasks

    def _constants(self, values: Sequence[PartitionValues]) -> list[dict[str, Any]]:
        """Return the partition columns of each bin's output, by physical name."""
        if not self._has_partition_columns:
            return [{}] * len(values)
        names = self._metadata.partition_columns
        kinds = [
            (self._metadata.physical_names[name], name, self._metadata.column_types[name]) for name in names
        ]
        zone = session_zone(self._spark) if any(kind == "timestamp" for *_, kind in kinds) else None
        return [{key: typed_value(row[key], name, kind, zone) for key, name, kind in kinds} for row in values]

    def _rewrite(self, tasks: list[RewriteTask], staging: Staging) -> list[RewriteOutput]:
        context, record, files = self._spark.sparkContext, self._record, staging.files
        bins_before, bytes_before = record.bins_done, record.bytes_done
        bins = context.accumulator(0.0)
        size = context.accumulator(0)

        def report(task: RewriteTask) -> None:
            bins.add(1 / task.parts)
            size.add(task.size_bytes)

        def tick() -> None:
            if size.value or staging.has_begun:
                record.rewriting(bins_before + int(bins.value + 0.001), bytes_before + size.value)
            else:
                record.preparing()

        costs = np.array([task.size_bytes + FILE_COST * len(task.inputs) for task in tasks])
        groups = [[tuple(tasks[i]) for i in group] for group in balanced(costs, self._cores)]
        # Credentials go with the code: Spark lays data down in a file on its way.
        job = context.parallelize(groups, len(groups)).flatMap(
            lambda group: rewrite_bins(group, report, files)
        )
        found = run_cancellable(self._spark, job.collect, tick, is_final=False)
        return [RewriteOutput(*output) for output in found]

    def _joined(
        self, written: Sequence[RewriteOutput], tasks: Sequence[RewriteTask], staging: Staging
    ) -> list[RewriteOutput]:
        """Return one output for each bin; parts of a bin are joined in order."""
        parts_of: dict[int, list[RewriteOutput]] = defaultdict(list)
        for output in sorted(written, key=lambda output: (output.number, output.part)):
            parts_of[output.number].append(output)
            self._record.span("rewrite", output.start, output.end, bin_id=output.number)
            self._record.peak_bytes = max(self._record.peak_bytes, output.peak_bytes)
        task_of = {task.number: task for task in tasks}
        ready, divided, joins = [], [], []
        for number, parts in parts_of.items():
            wrong = [part for part in parts if part.refusal or part.failure]
            if wrong:
                staging.discard(parts)
            if wrong or len(parts) == 1:
                ready.append((wrong or parts)[0])
                continue
            divided += parts
            inputs = [(part.path, part.size_bytes) for part in parts if part.num_rows or part is parts[0]]
            joins.append(tuple(task_of[number]._replace(part=0, parts=1, inputs=inputs)))
        if joins:
            job = self._spark.sparkContext.parallelize(joins, len(joins)).mapPartitions(join_parts)
            found = run_cancellable(self._spark, job.collect, lambda: None, is_final=False)
            # Not by the tasks: one that is tried again needs the parts again.
            staging.discard(divided)
            for output in (RewriteOutput(*output) for output in found):
                self._record.span("join", output.start, output.end, bin_id=output.number)
                ready.append(output)
        return ready


def _cuts(sizes: np.ndarray, costs: np.ndarray, even: float) -> list[int]:
    """Return the bounds of parts of a bin's files that cost about the same: positions from 0 to the end."""
    most = min(int(sizes.sum()) // LEAST_PART, len(sizes))
    total = float(costs.sum())
    parts = min(round(total / even), most)
    if parts < 2 or sizes.min() >= worker.WHOLE_BYTES:
        return [0, len(sizes)]
    middles = np.cumsum(costs) - costs / 2
    inner = np.searchsorted(middles, np.arange(1, parts) * total / parts)
    return [0, *np.unique(inner[(inner > 0) & (inner < len(sizes))]).tolist(), len(sizes)]


def balanced(costs: np.ndarray, cores: int) -> list[list[int]]:
    """Spread work over tasks, the largest first, each to the task that has the least."""
    enough = int(costs.sum()) // _TASK_COST
    count = min(len(costs), max(enough, _LEAST_TASKS * cores), _MOST_TASKS * cores)
    loads = np.zeros(count)
    groups: list[list[int]] = [[] for _ in range(count)]
    for i in np.argsort(-costs, kind="stable").tolist():
        task = int(loads.argmin())
        groups[task].append(i)
        loads[task] += costs[i]
    return groups


def partition_values(source: Files, positions: np.ndarray) -> list[PartitionValues]:
    """Return the partition values of some files, given by their positions."""
    names = source.partition_columns
    if not names:
        return [{} for _ in positions]
    rows = source.partitions.take(pa.array(positions))
    columns = [rows[f"partition.{name}"].to_pylist() for name in names]
    keys = [source.snapshot.metadata.physical_names[name] for name in names]
    return [dict(zip(keys, values, strict=True)) for values in zip(*columns, strict=True)]


def _output_folder(place: str, values: PartitionValues, is_mapped: bool) -> str:
    """Return the folder of a partition's file if the partition names it, else the one that Delta makes."""
    parts = place.split("/")[:-1]
    if len(parts) == len(values) and all(
        part.startswith(f"{escaped(name)}=") for name, part in zip(values, parts, strict=True)
    ):
        return "/".join(parts)
    # Delta names the folders of mapped columns at random (delta.randomizeFilePrefixes).
    return "" if is_mapped else folder_of(list(values), list(values.values()))
