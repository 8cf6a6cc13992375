"""Rewrite bins in one Spark job: large bins in several parts, which a second job joins."""

import base64
import contextlib
import itertools
import math
import uuid
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import SparkSession

from compaction_kit.arrow import worker
from compaction_kit.arrow.refusals import (
    data_schema,
    has_partition_columns,
    refuses_old_dates,
    tracking_columns,
)
from compaction_kit.arrow.staging import Staging, staging_for
from compaction_kit.arrow.stats import shows_years
from compaction_kit.arrow.worker import RewriteOutput, RewriteTask, rewrite_bins
from compaction_kit.arrow.worker.vectors import Vector
from compaction_kit.execute.failures import BinFailed
from compaction_kit.execute.jobs import run_cancellable
from compaction_kit.execute.work import Run
from compaction_kit.files import Files
from compaction_kit.log.actions import field_of
from compaction_kit.log.paths import TO_RFC1924, deletion_vector_file, folder_of, places
from compaction_kit.plan.partitions import typed_value
from compaction_kit.storage import Store
from compaction_kit.times import session_zone

# Tasks per core: enough to end at about the same time, and to show progress if there is much to do.
_LEAST_TASKS, _MOST_TASKS = 2, 8
# The least bytes for a task, if possible: starting a task takes Spark a tenth of the time to rewrite them.
_TASK_COST = 64 << 20
# Opening a file takes as long as rewriting this number of bytes.
FILE_COST = 48 << 10
# Parts smaller than this make row groups that are too small.
LEAST_PART = 4 << 20
# Spark may refuse dates before 1582, and times before 1900; from this year on never, in any time zone.
_MODERN = 1901

# Partition values as in the log, by the physical name of each partition column.
PartitionValues = dict[str, str | None]


@dataclass(frozen=True, eq=False)
class Bin:
    """A bin's number in the plan, and positions of its files in the plan's source, in row order."""

    number: int
    positions: np.ndarray


@contextlib.contextmanager
def rewritten(run: Run, bins: Sequence[Bin]) -> Iterator[dict[int, RewriteOutput]]:
    """Rewrite bins in one Spark job, and join the parts of large bins in a second job.

    Yields the output of each bin, by its number; the output of a refused or failed bin has no path. Outputs
    that are still in the dictionary at the end are deleted.

    Raises:
        WorkCancelled: The work was cancelled; no output is left.
        BinFailed: Another process has deleted the lease.
    """
    source = run.plan.source
    values = partition_values(source, np.array([bin_.positions[0] for bin_ in bins]))
    # Delta names the folders of mapped columns at random (delta.randomizeFilePrefixes).
    names = [] if source.snapshot.metadata.is_mapped else source.partition_columns
    folders = {
        bin_.number: folder_of(names, [row[name] for name in names])
        for bin_, row in zip(bins, values, strict=True)
    }
    staging = staging_for(run.store, folders, str(uuid.uuid4()))
    pending: dict[int, RewriteOutput] = {}
    try:
        with staging:
            staging.publish(_rewrite(run, _tasks(run, bins, values, staging), staging), pending)
        yield pending
    finally:
        staging.delete_unreferenced(pending.values())


def _tasks(
    run: Run, bins: Sequence[Bin], values: Sequence[PartitionValues], staging: Staging
) -> list[RewriteTask]:
    source, snapshot = run.plan.source, run.plan.source.snapshot
    tracking = tracking_columns(snapshot.metadata)
    with_columns = has_partition_columns(run.spark, snapshot)
    schema = data_schema(snapshot.metadata, with_columns, tracking)
    serialized = schema.serialize().to_pybytes()
    positions = np.concatenate([bin_.positions for bin_ in bins])
    paths, sizes = places(source.paths(positions), run.store).to_pylist(), source.sizes[positions]
    inputs = list(zip(map(run.store.place, paths), sizes.tolist(), strict=True))
    fields = row_fields(source, positions)
    vectors = [found_vector(one.get("deletionVector"), run.store) for one in fields]
    has_years, may_be_old = _calendar(run, positions)
    cores = run.spark.sparkContext.defaultParallelism if staging.may_join else 0
    even = float((sizes + FILE_COST).sum()) / cores if cores else math.inf
    tasks, end = [], 0
    for bin_, constants in zip(bins, _constants(run, values, schema), strict=True):
        start, end = end, end + len(bin_.positions)
        has_vectors = any(vectors[start:end])
        cuts = [start + cut for cut in _cuts(sizes[start:end], even, not (has_vectors or tracking))]
        for part, (first, last) in enumerate(itertools.pairwise(cuts)):
            task = RewriteTask(
                number=bin_.number,
                part=part,
                parts=len(cuts) - 1,
                inputs=inputs[first:last],
                output=staging.output(bin_.number),
                lease=staging.lease,
                schema=serialized,
                constants=constants,
                has_years=bool(has_years[first:last].all()),
                needs_version=bool(may_be_old[first:last].any()),
                footer={"org.apache.spark.version": run.spark.version},
                vectors={inputs[i][0]: vector for i in range(first, last) if (vector := vectors[i])},
                row_ids={inputs[i][0]: row_ids(fields[i], tracking) for i in range(first, last) if tracking},
            )
            tasks.append(task)
    return tasks


def _calendar(run: Run, positions: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return which files have only times of four-digit years, and which may have dates that Spark refuses."""
    has_years = shows_years(run.plan.source, positions, "timestamp", 1)
    if not refuses_old_dates(run.spark):
        return has_years, np.zeros(len(positions), bool)
    return has_years, ~shows_years(run.plan.source, positions, "date|timestamp", _MODERN)


def _constants(run: Run, values: Sequence[PartitionValues], schema: pa.Schema) -> list[dict[str, pa.Array]]:
    """Return the value of each partition column of outputs, in an array of length 1, for each bin."""
    metadata = run.plan.source.snapshot.metadata
    columns = [
        (metadata.physical_names[name], name, metadata.column_types[name])
        for name in metadata.partition_columns
        if metadata.physical_names[name] in schema.names
    ]
    zone = session_zone(run.spark) if any(kind == "timestamp" for *_, kind in columns) else None
    return [
        # On the driver, because `pa.array` imports pandas, which takes a new worker half a second.
        {
            key: pa.array([typed_value(row[key], name, kind, zone)], schema.field(key).type)
            for key, name, kind in columns
        }
        for row in values
    ]


def _rewrite(run: Run, tasks: Sequence[RewriteTask], staging: Staging) -> list[RewriteOutput]:
    """Return one output per bin; large bins are written in parts, which are joined in order."""
    parts_of: dict[int, list[RewriteOutput]] = defaultdict(list)
    for output in sorted(_run_tasks(run, tasks, staging)):
        parts_of[output.number].append(output)
    task_of = {task.number: task for task in tasks}
    ready, joins = [], []
    for number, parts in parts_of.items():
        wrong = [part for part in parts if part.refusal or part.failure]
        if wrong or len(parts) == 1:
            ready.append((wrong or parts)[0])
        else:
            inputs = [(part.path, part.size_bytes) for part in parts if part.num_rows or part is parts[0]]
            joins.append(task_of[number]._replace(part=0, inputs=inputs, vectors={}, row_ids={}, joins=True))
    for output in _run_tasks(run, joins, staging) if joins else ():
        with_nan = {name for part in parts_of[output.number] for name in part.with_nan}
        ready.append(output._replace(with_nan=frozenset(with_nan)))
    return ready


def _run_tasks(run: Run, tasks: Sequence[RewriteTask], staging: Staging) -> list[RewriteOutput]:
    """Run tasks in one Spark job, and record their progress and their spans."""
    record, files = run.record, staging.files
    bins, size = run.spark.sparkContext.accumulator(0.0), run.spark.sparkContext.accumulator(0)
    bins_before, bytes_before = record.bins_done, record.bytes_done

    def report(task: RewriteTask) -> None:
        if not task.joins:
            bins.add(1 / task.parts)
            size.add(task.size_bytes)

    def tick() -> None:
        record.rewriting(bins_before + int(bins.value + 0.001), bytes_before + size.value)

    costs = [task.size_bytes + FILE_COST * len(task.inputs) for task in tasks]
    plain = [tuple(task) for task in tasks]
    found = run_balanced(run.spark, lambda group: rewrite_bins(group, report, files), plain, costs, tick)
    if len(found) < len(tasks):
        raise BinFailed(f"{staging.lease} was deleted, so tasks have stopped")
    outputs = [RewriteOutput(*output) for output in found]
    for output in outputs:
        step = "join" if tasks[0].joins else "rewrite"
        record.span(step, output.start, output.end, bin_id=output.number)
        record.peak_bytes = max(record.peak_bytes, output.peak_bytes)
    return outputs


def _cuts(sizes: np.ndarray, even: float, is_plain: bool) -> list[int]:
    """Return the bounds of parts of a bin's files that cost about the same: positions from 0 to the end."""
    most = min(int(sizes.sum()) // LEAST_PART, len(sizes))
    costs = sizes + FILE_COST
    total = float(costs.sum())
    parts, large = min(round(total / even), most), sizes[sizes >= worker.WHOLE_BYTES].sum()
    # Bins of copied files aren't cut, because joining the parts would copy them once more.
    if parts < 2 or (2 * large >= sizes.sum() and is_plain):
        return [0, len(sizes)]
    middles = np.cumsum(costs) - costs / 2
    inner = np.searchsorted(middles, np.arange(1, parts) * total / parts)
    return [0, *np.unique(inner[(inner > 0) & (inner < len(sizes))]).tolist(), len(sizes)]


def run_balanced(
    spark: SparkSession,
    work: Callable[[Iterable[Any]], Iterator[Any]],
    items: Sequence[Any],
    costs: Sequence[int],
    tick: Callable[[], object],
) -> list[Any]:
    """Work on items in one Spark job and return all results; `tick` is called meanwhile, and may raise.

    The most costly items are assigned first, each to the task with the least work.
    """
    context = spark.sparkContext
    cores, enough = context.defaultParallelism, sum(costs) // _TASK_COST
    count = min(len(items), cores * min(max(-(-enough // cores), _LEAST_TASKS), _MOST_TASKS))
    loads = np.zeros(count)
    groups: list[list[Any]] = [[] for _ in range(count)]
    for i in np.argsort(-np.array(costs), kind="stable").tolist():
        task = int(loads.argmin())
        groups[task].append(items[i])
        loads[task] += costs[i]
    # Credentials are sent with the code, because Spark writes the data to a file on its way.
    job = context.parallelize(groups, count).flatMap(work)
    return run_cancellable(spark, job.collect, tick, is_final=False)


def partition_values(source: Files, positions: np.ndarray) -> list[PartitionValues]:
    """Return the partition values of some files, given by their positions."""
    if not source.partition_columns:
        return [{} for _ in positions]
    keys = [source.snapshot.metadata.physical_names[name] for name in source.partition_columns]
    return source.partitions.take(pa.array(positions)).rename_columns(keys).to_pylist()


def row_fields(source: Files, positions: np.ndarray) -> list[dict[str, Any]]:
    """Return the optional fields of files' add actions that their remove actions repeat.

    They are deletionVector, baseRowId and defaultRowCommitVersion.
    """
    snapshot = source.snapshot
    if not snapshot.has_vectors and "rowTracking" not in snapshot.protocol.writer_features:
        return [{}] * len(positions)
    rows = snapshot.removal_fields.take(pa.array(source.in_snapshot(positions))).to_pylist()
    found: list[dict[str, Any]] = [{} for _ in rows]
    for fields, row in zip(found, rows, strict=True):
        for name, value in row.items():
            outer, _, inner = field_of(name)[0].partition(".")
            if value is not None and inner:
                fields.setdefault(outer, {})[inner] = value
            elif value is not None:
                fields[outer] = value
    return found


def found_vector(descriptor: dict[str, Any] | None, store: Store) -> tuple[Any, ...] | None:
    """Return where a deletion vector is, or its bytes if it is inline, as a tuple of `Vector`'s fields.

    `descriptor` is as in the log (protocol, "Deletion Vector Descriptor Schema"); None without one.
    """
    if descriptor is None:
        return None
    kind, name, size = (descriptor[key] for key in ("storageType", "pathOrInlineDv", "sizeInBytes"))
    offset, cardinality = descriptor.get("offset", 0), descriptor["cardinality"]
    if place := deletion_vector_file(f"{kind}{name}@{offset}", store):
        return tuple(Vector(b"", store.place(place), offset, size, cardinality))
    inline = base64.b85decode(name.encode().translate(TO_RFC1924))[:size]
    return tuple(Vector(inline, "", offset, size, cardinality))


def row_ids(fields: dict[str, Any], tracking: Sequence[str]) -> dict[str, int]:
    """Return the defaults of a file's rows without values in the columns for row ids and commit versions."""
    return dict(zip(tracking, (fields["baseRowId"], fields["defaultRowCommitVersion"]), strict=True))
