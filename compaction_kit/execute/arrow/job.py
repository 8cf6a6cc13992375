"""One Spark job that rewrites bins: large ones in several shares, whose outputs a second job joins."""

import contextlib
import itertools
import posixpath
import time
import uuid
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark import cloudpickle
from pyspark.sql import SparkSession

from compaction_kit.execute.arrow import worker
from compaction_kit.execute.arrow.types import data_schema, has_partition_columns
from compaction_kit.execute.arrow.worker import Rewritten, Share, join_parts, rewrite_shares
from compaction_kit.execute.jobs import run_cancellable
from compaction_kit.execute.work import Recorder
from compaction_kit.files import Files
from compaction_kit.log.metadata import Metadata
from compaction_kit.log.paths import escaped, folder_of, is_within, places
from compaction_kit.plan.partitions import typed_value
from compaction_kit.storage import Store
from compaction_kit.times import session_zone

# Tasks for each core: enough of them to end together, and, if there is much to do, to tell progress by.
_LEAST_TASKS, _MOST_TASKS = 2, 8
# What a task costs at least where it can be chosen: Spark takes a tenth of that time to start one.
_TASK_COST = 64 << 20
# A file takes as long to open as so many bytes take to rewrite.
_FILE_COST = 48 << 10
# Shares smaller than this make row groups that are too small.
_LEAST_SHARE = 4 << 20
# How long a folder is tried to be deleted that tasks may still write to.
_DELETING_SECONDS = 30
# Executors may lack this package: what they need of it goes with the task.
cloudpickle.register_pickle_by_value(worker)  # type: ignore[no-untyped-call]

# Of each partition column, as the log writes it.
PartitionValues = tuple[str | None, ...]


@dataclass(frozen=True)
class Bin:
    """Files that become one.

    Attributes:
        number: In the plan.
        positions: Of its files among those considered, in the order of their rows.
    """

    number: int
    positions: np.ndarray


class BinJob:
    """Rewrites bins of one plan."""

    def __init__(self, spark: SparkSession, store: Store, source: Files, record: Recorder):
        self._spark = spark
        self._store = store
        self._source = source
        self._record = record
        self._cores = spark.sparkContext.defaultParallelism
        metadata, protocol = source.snapshot.metadata, source.snapshot.protocol
        self._schema = data_schema(metadata, protocol).serialize().to_pybytes()
        self._has_partition_columns = has_partition_columns(metadata, protocol)
        self._by_id = metadata.is_mapped_by_id
        self._footer = {"org.apache.spark.version": spark.version}

    def run(self, bins: Sequence[Bin]) -> list[Rewritten]:
        """What came of each bin; outputs of those that were refused or failed are deleted.

        Raises:
            WorkCancelled: It was cancelled; no output is left.
        """
        run = str(uuid.uuid4())
        with _own_folder(self._store, run) as folder:
            values = self._partition_values(bins)
            shares = self._shares(bins, values, folder, run)
            return self._moved(self._joined(self._rewrite(shares)), self._folders(bins, values))

    def _shares(
        self, bins: Sequence[Bin], values: Sequence[PartitionValues], folder: str, run: str
    ) -> list[Share]:
        positions = np.concatenate([one.positions for one in bins])
        ends = np.cumsum([len(one.positions) for one in bins]).tolist()
        sizes = self._source.sizes[positions]
        costs = sizes + _FILE_COST
        even = max(float(costs.sum()) / self._cores, 1.0)
        inputs = list(zip(self._paths(positions), sizes.tolist(), strict=True))
        shares = []
        constants = self._constants(values)
        for one, known, start, end in zip(bins, constants, [0, *ends[:-1]], ends, strict=True):
            cuts = _cuts(sizes[start:end], costs[start:end], even)
            for part, (first, last) in enumerate(itertools.pairwise(cuts)):
                shares.append(
                    Share(
                        one.number,
                        part,
                        len(cuts) - 1,
                        inputs[start + first : start + last],
                        f"{folder}/part-{one.number:05d}-{run}",
                        self._schema,
                        known,
                        self._by_id,
                        self._footer,
                    )
                )
        return shares

    def _paths(self, positions: np.ndarray) -> list[str]:
        """The absolute paths of some of the files."""
        return list(map(self._store.place, places(self._source.paths(positions), self._store).to_pylist()))

    def _partition_values(self, bins: Sequence[Bin]) -> list[PartitionValues]:
        """The partition values of each bin's first file, which the log is to have of its output."""
        if not self._source.partition_columns:
            return [()] * len(bins)
        rows = self._source.partitions.take(pa.array([one.positions[0] for one in bins]))
        return list(zip(*(column.to_pylist() for column in rows.columns), strict=True))

    def _constants(self, values: Sequence[PartitionValues]) -> list[dict[str, Any]]:
        """The columns of one value that each bin's output is to have."""
        if not self._has_partition_columns:
            return [{}] * len(values)
        metadata, names = self._source.snapshot.metadata, self._source.partition_columns
        kinds = [metadata.column_types[name] for name in names]
        zone = session_zone(self._spark) if "timestamp" in kinds else None
        return [
            {
                metadata.physical_names[name]: typed_value(value, name, kind, zone)
                for value, name, kind in zip(row, names, kinds, strict=True)
            }
            for row in values
        ]

    def _folders(self, bins: Sequence[Bin], values: Sequence[PartitionValues]) -> dict[int, str]:
        """The folder of each bin's output, made if it isn't there, by the bin's number."""
        metadata = self._source.snapshot.metadata
        firsts = np.array([one.positions[0] for one in bins])
        found = places(self._source.paths(firsts), self._store).to_pylist()
        named = [output_folder(place, metadata, row) for place, row in zip(found, values, strict=True)]
        made = {folder: _made(self._store, folder) for folder in set(named)}
        return {one.number: made[folder] for one, folder in zip(bins, named, strict=True)}

    def _rewrite(self, shares: list[Share]) -> list[Rewritten]:
        context, record = self._spark.sparkContext, self._record
        bins_before, bytes_before = record.bins_done, record.bytes_done
        bins = context.accumulator(0.0)
        size = context.accumulator(0)

        def tell(share: Share) -> None:
            bins.add(1 / share.parts)
            size.add(share.size_bytes)

        costs = np.array([share.size_bytes + _FILE_COST * len(share.inputs) for share in shares])
        enough = int(costs.sum()) // _TASK_COST
        count = min(max(enough, _LEAST_TASKS * self._cores), _MOST_TASKS * self._cores)
        groups = [[tuple(shares[i]) for i in group] for group in _balanced(costs, count)]
        tasks = context.parallelize(groups, len(groups)).flatMap(lambda group: rewrite_shares(group, tell))
        return run_cancellable(
            self._spark,
            lambda: [Rewritten(*one) for one in tasks.collect()],
            lambda _: record.rewriting(bins_before + int(bins.value + 0.001), bytes_before + size.value),
            is_final=False,
        )

    def _joined(self, written: list[Rewritten]) -> list[Rewritten]:
        """One result a bin: its only share's, or that of joining them."""
        shares: dict[int, list[Rewritten]] = defaultdict(list)
        for one in sorted(written, key=lambda one: (one.number, one.part)):
            shares[one.number].append(one)
            self._record.span("rewrite", one.start, one.end, bin_id=one.number)
            self._record.memory(one.peak_bytes)
        ready, divided = [], []
        for of_bin in shares.values():
            wrong = [one for one in of_bin if one.refusal or one.failure]
            if wrong:
                discard(self._store, of_bin)
            if wrong or len(of_bin) == 1:
                ready.append((wrong or of_bin)[0])
            else:
                divided.append(of_bin)
        return ready + self._join(divided)

    def _join(self, divided: list[list[Rewritten]]) -> list[Rewritten]:
        if not divided:
            return []
        tasks = []
        for parts in divided:
            paths = [part.path for part in parts if part.num_rows] or [parts[0].path]
            stem = paths[0].rpartition("-")[0]
            tasks.append((parts[0].number, paths, stem, self._footer))
        joining = self._spark.sparkContext.parallelize(tasks, len(tasks)).mapPartitions(join_parts)
        found = run_cancellable(
            self._spark,
            lambda: [Rewritten(*one) for one in joining.collect()],
            lambda _: None,
            is_final=False,
        )
        # Not by the tasks: one that is tried again needs the parts again.
        discard(self._store, (part for parts in divided for part in parts))
        for one in found:
            self._record.span("join", one.start, one.end, bin_id=one.number)
        return found

    def _moved(self, outputs: Iterable[Rewritten], folders: Mapping[int, str]) -> list[Rewritten]:
        """Outputs moved to the folders where they are to stay, by the numbers of their bins."""
        store, moved = self._store, list[Rewritten]()
        try:
            for one in outputs:
                place = one.path and posixpath.join(folders[one.number], posixpath.basename(one.path))
                moved.append(one._replace(path=place and store.place(place)))
                if place:
                    store.move(one.path, place)
                    with contextlib.suppress(FileNotFoundError):
                        store.move(worker.checksum_path(one.path), worker.checksum_path(place))
        except BaseException:
            discard(store, moved)
            raise
        return moved


def _cuts(sizes: np.ndarray, costs: np.ndarray, even: float) -> list[int]:
    """Where a bin's files are divided into shares that cost about the same: positions from 0 to the end."""
    most = min(int(sizes.sum()) // _LEAST_SHARE, len(sizes))
    if most < 2:
        return [0, len(sizes)]
    total = float(costs.sum())
    parts = min(round(total / even), most)
    if parts < 2 or sizes.min() >= worker.WHOLE_BYTES:
        return [0, len(sizes)]
    middles = np.cumsum(costs) - costs / 2
    inner = np.searchsorted(middles, np.arange(1, parts) * total / parts)
    return [0, *np.unique(inner[(inner > 0) & (inner < len(sizes))]).tolist(), len(sizes)]


def _balanced(costs: np.ndarray, most: int) -> list[list[int]]:
    """Shares spread over tasks, the largest first, each to the task that has the least."""
    count = min(len(costs), most)
    loads = np.zeros(count)
    groups: list[list[int]] = [[] for _ in range(count)]
    for i in np.argsort(-costs, kind="stable").tolist():
        task = int(loads.argmin())
        groups[task].append(i)
        loads[task] += costs[i]
    return groups


@contextlib.contextmanager
def _own_folder(store: Store, run: str) -> Iterator[str]:
    """A folder for the outputs of one job, that is deleted with all that was not moved out of it.

    A Python worker goes on for a while when its task has been cancelled, or was tried again elsewhere.
    Into a folder that is gone it can write nothing.
    """
    folder = f"compaction-kit-{run}"
    store.make_folder(folder, exist_ok=False)
    # VACUUM deletes empty folders at once, and this file in its time if the process is killed.
    store.create(f"{folder}/in-use", b"")
    try:
        yield store.place(folder)
    finally:
        end = time.monotonic() + _DELETING_SECONDS
        while store.is_taken(folder) and time.monotonic() < end:
            # Again, where a file came between its listing and its end.
            store.delete(folder)


def output_folder(place: str, metadata: Metadata, values: Sequence[str | None]) -> str:
    """Where in its table's folder the output of a partition goes.

    Args:
        place: Of a file of the partition, wherever that is (see `paths.places`).
        metadata: The table's.
        values: Of the partition, as the log writes them.

    Returns:
        The folder of that file, if it is named by the partition; else the one that Delta would name.
    """
    columns = [metadata.physical_names[name] for name in metadata.partition_columns]
    parts = place.split("/")[:-1]
    if len(parts) == len(columns) and all(
        part.startswith(f"{escaped(name)}=") for name, part in zip(columns, parts, strict=True)
    ):
        return "/".join(parts)
    # Delta names the folders of mapped columns at random (delta.randomizeFilePrefixes).
    return "" if metadata.is_mapped else folder_of(columns, values)


def _made(store: Store, folder: str) -> str:
    """A folder of a table, made if it isn't there; the table's own, "", where a link leads out of that."""
    parts = folder.split("/")
    if not all(
        is_within(store.real("/".join(parts[:end])), store.real("")) for end in range(1, len(parts) + 1)
    ):
        return ""
    store.make_folder(folder)
    return folder


def discard(store: Store, written: Iterable[Rewritten]) -> None:
    """Delete outputs that no commit will name."""
    for one in written:
        if one.path:
            store.delete(one.path)
            store.delete(worker.checksum_path(one.path))
