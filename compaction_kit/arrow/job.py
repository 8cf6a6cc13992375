"""One Spark job that rewrites bins: large ones in several shares, whose outputs a second job joins."""

import contextlib
import itertools
import math
import uuid
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
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
# A file takes as long to open as so many bytes take to rewrite.
FILE_COST = 48 << 10
# Shares smaller than this make row groups that are too small.
LEAST_SHARE = 4 << 20

# As the log has them: by the physical name of each partition column.
PartitionValues = dict[str, str | None]


@dataclass(frozen=True)
class Bin:
    """Files that become one.

    Attributes:
        number: In the plan.
        positions: Positions of the bin's files in the plan's source, in row order.
    """

    number: int
    positions: np.ndarray


class BinJob:
    """Rewrites bins of one plan in one Spark job, and joins the shares of large ones in another."""

    def __init__(self, spark: SparkSession, store: Store, source: Files, record: Recorder):
        self._spark = spark
        self._store = store
        self._source = source
        self._record = record
        self._cores = spark.sparkContext.defaultParallelism
        metadata = source.snapshot.metadata
        self._has_partition_columns = has_partition_columns(spark, source.snapshot)
        self._schema = data_schema(metadata, self._has_partition_columns).serialize().to_pybytes()
        self._by_id = metadata.is_mapped_by_id
        self._footer = {"org.apache.spark.version": spark.version}

    @contextlib.contextmanager
    def rewritten(self, bins: Sequence[Bin]) -> Iterator[dict[int, RewriteOutput]]:
        """Rewrite bins; what is left in the result at the end is deleted, for no commit names it.

        Args:
            bins: Their numbers differ.

        Returns:
            What came of each bin, by its number; there is no output of those that were refused or failed.

        Raises:
            WorkCancelled: It was cancelled; no output is left.
            BinFailed: Another process has deleted what tasks go by.
        """
        run = str(uuid.uuid4())
        values = partition_values(self._source, np.array([bin_.positions[0] for bin_ in bins]))
        staging = staging_for(self._store, self._folders(bins, values), run)
        pending: dict[int, RewriteOutput] = {}
        try:
            with staging:
                shares = self._shares(bins, values, staging)
                written = self._rewrite(shares, staging)
                if len(written) < len(shares):
                    raise BinFailed(f"{staging.lease} was deleted, which tells tasks to stop")
                outputs, divided = self._sorted(written, staging)
                outputs += self._join(divided, {share.number: share for share in shares}, staging)
                pending |= {output.number: output for output in staging.publish(outputs)}
            yield pending
        finally:
            staging.delete_unreferenced(pending.values())

    def _shares(
        self, bins: Sequence[Bin], values: Sequence[PartitionValues], staging: Staging
    ) -> list[RewriteTask]:
        positions = np.concatenate([bin_.positions for bin_ in bins])
        ends = np.cumsum([len(bin_.positions) for bin_ in bins]).tolist()
        sizes = self._source.sizes[positions]
        costs = sizes + FILE_COST
        even = max(float(costs.sum()) / self._cores, 1.0) if staging.may_join else math.inf
        paths = map(self._store.place, self._places(positions))
        inputs = list(zip(paths, sizes.tolist(), strict=True))
        constants = self._constants(values)
        has_years = shows_years(self._source, positions)
        shares = []
        for bin_, known, start, end in zip(bins, constants, [0, *ends[:-1]], ends, strict=True):
            cuts = _cuts(sizes[start:end], costs[start:end], even)
            for part, (first, last) in enumerate(itertools.pairwise(cuts)):
                shares.append(
                    RewriteTask(
                        bin_.number,
                        part,
                        len(cuts) - 1,
                        inputs[start + first : start + last],
                        staging.output(bin_.number),
                        staging.lease,
                        self._schema,
                        known,
                        self._by_id,
                        bool(has_years[start + first : start + last].all()),
                        self._footer,
                    )
                )
        return shares

    def _places(self, positions: np.ndarray) -> list[str]:
        """Where some of the files are (see `paths.places`)."""
        found: list[str] = places(self._source.paths(positions), self._store).to_pylist()
        return found

    def _constants(self, values: Sequence[PartitionValues]) -> list[dict[str, Any]]:
        """The partition columns of each bin's output, by physical name."""
        if not self._has_partition_columns:
            return [{}] * len(values)
        metadata = self._source.snapshot.metadata
        kinds = {name: metadata.column_types[name] for name in metadata.partition_columns}
        zone = session_zone(self._spark) if "timestamp" in kinds.values() else None
        columns = [(metadata.physical_names[name], name, kind) for name, kind in kinds.items()]
        return [
            {key: typed_value(row[key], name, kind, zone) for key, name, kind in columns} for row in values
        ]

    def _folders(self, bins: Sequence[Bin], values: Sequence[PartitionValues]) -> dict[int, str]:
        """The folder of each bin's output, by the bin's number."""
        is_mapped = self._source.snapshot.metadata.is_mapped
        found = self._places(np.array([bin_.positions[0] for bin_ in bins]))
        rows = zip(bins, found, values, strict=True)
        return {bin_.number: _output_folder(place, row, is_mapped) for bin_, place, row in rows}

    def _rewrite(self, shares: list[RewriteTask], staging: Staging) -> list[RewriteOutput]:
        context, record, files = self._spark.sparkContext, self._record, staging.files
        bins_before, bytes_before = record.bins_done, record.bytes_done
        bins = context.accumulator(0.0)
        size = context.accumulator(0)

        def report(share: RewriteTask) -> None:
            bins.add(1 / share.parts)
            size.add(share.size_bytes)

        def tick() -> None:
            if size.value or staging.has_begun:
                record.rewriting(bins_before + int(bins.value + 0.001), bytes_before + size.value)
            else:
                record.preparing()

        costs = np.array([share.size_bytes + FILE_COST * len(share.inputs) for share in shares])
        groups = [[tuple(shares[i]) for i in group] for group in balanced(costs, self._cores)]
        # Credentials go with the code: Spark lays data down in a file on its way.
        tasks = context.parallelize(groups, len(groups)).flatMap(
            lambda group: rewrite_bins(group, report, files)
        )
        return run_cancellable(
            self._spark,
            lambda: [RewriteOutput(*output) for output in tasks.collect()],
            tick,
            is_final=False,
        )

    def _sorted(
        self, written: list[RewriteOutput], staging: Staging
    ) -> tuple[list[RewriteOutput], list[list[RewriteOutput]]]:
        """The outputs of bins that need no joining, and those of each bin that does, in order."""
        shares: dict[int, list[RewriteOutput]] = defaultdict(list)
        for output in sorted(written, key=lambda output: (output.number, output.part)):
            shares[output.number].append(output)
            self._record.span("rewrite", output.start, output.end, bin_id=output.number)
            self._record.peak_bytes = max(self._record.peak_bytes, output.peak_bytes)
        ready, divided = [], []
        for parts in shares.values():
            wrong = [part for part in parts if part.refusal or part.failure]
            if wrong:
                staging.discard(parts)
            if wrong or len(parts) == 1:
                ready.append((wrong or parts)[0])
            else:
                divided.append(parts)
        return ready, divided

    def _join(
        self, divided: list[list[RewriteOutput]], shares: Mapping[int, RewriteTask], staging: Staging
    ) -> list[RewriteOutput]:
        """Join outputs of shares; `shares` has one of each bin."""
        if not divided:
            return []
        tasks = []
        for parts in divided:
            inputs = [(part.path, part.size_bytes) for part in parts if part.num_rows]
            inputs = inputs or [(parts[0].path, parts[0].size_bytes)]
            tasks.append(tuple(shares[parts[0].number]._replace(part=0, parts=1, inputs=inputs)))
        joining = self._spark.sparkContext.parallelize(tasks, len(tasks)).mapPartitions(join_parts)
        found = run_cancellable(
            self._spark,
            lambda: [RewriteOutput(*output) for output in joining.collect()],
            lambda: None,
            is_final=False,
        )
        # Not by the tasks: one that is tried again needs the parts again.
        staging.discard(part for parts in divided for part in parts)
        for output in found:
            self._record.span("join", output.start, output.end, bin_id=output.number)
        return found


def _cuts(sizes: np.ndarray, costs: np.ndarray, even: float) -> list[int]:
    """The bounds of shares of a bin's files that cost about the same: positions from 0 to the end."""
    most = min(int(sizes.sum()) // LEAST_SHARE, len(sizes))
    if most < 2:
        return [0, len(sizes)]
    total = float(costs.sum())
    parts = min(round(total / even), most)
    if parts < 2 or sizes.min() >= worker.WHOLE_BYTES:
        return [0, len(sizes)]
    middles = np.cumsum(costs) - costs / 2
    inner = np.searchsorted(middles, np.arange(1, parts) * total / parts)
    return [0, *np.unique(inner[(inner > 0) & (inner < len(sizes))]).tolist(), len(sizes)]


def balanced(costs: np.ndarray, cores: int) -> list[list[int]]:
    """Shares spread over tasks, the largest first, each to the task that has the least."""
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
    """The partition values of some files, given by their positions."""
    names = source.partition_columns
    if not names:
        return [{} for _ in positions]
    rows = source.partitions.take(pa.array(positions))
    columns = [rows[f"partition.{name}"].to_pylist() for name in names]
    keys = [source.snapshot.metadata.physical_names[name] for name in names]
    return [dict(zip(keys, values, strict=True)) for values in zip(*columns, strict=True)]


def _output_folder(place: str, values: PartitionValues, is_mapped: bool) -> str:
    """The folder of a partition's file, if it is named by the partition; else the one that Delta makes."""
    parts = place.split("/")[:-1]
    if len(parts) == len(values) and all(
        part.startswith(f"{escaped(name)}=") for name, part in zip(values, parts, strict=True)
    ):
        return "/".join(parts)
    # Delta names the folders of mapped columns at random (delta.randomizeFilePrefixes).
    return "" if is_mapped else folder_of(list(values), list(values.values()))
