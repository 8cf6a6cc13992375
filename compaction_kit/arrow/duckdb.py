"""Compare the rows of files many times as fast as Spark: copied row groups as bytes, others by DuckDB.

If DuckDB can't read files as Spark does, or finds a difference, Spark reads all files and decides (see
`proof.compare`).
"""

import importlib.util
from collections import defaultdict
from collections.abc import Callable
from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import SparkSession

from compaction_kit.arrow.copied import BytesComparison, DataFile
from compaction_kit.arrow.job import FILE_COST, found_vector, run_balanced
from compaction_kit.arrow.refusals import data_schema, is_far, legacy_setting, runs_in_driver
from compaction_kit.arrow.worker import Content, read_content
from compaction_kit.compat import has_jvm
from compaction_kit.errors import UnsupportedTableError, reason_of
from compaction_kit.execute.failures import SPARK_FAILURES, NotCompared
from compaction_kit.execute.jobs import run_cancellable
from compaction_kit.execute.work import Adds, no_progress
from compaction_kit.log.paths import canonical_paths, is_remote, is_unreadable, places
from compaction_kit.log.snapshot import Snapshot
from compaction_kit.storage import Store
from compaction_kit.verify import BYTES, Fingerprint

READER = "DuckDB"
# The most files in one query of a task: DuckDB plans each query, and progress is reported after each.
_MOST_FILES, _MOST_BYTES = 500, 64 << 20


def compare_quickly(
    spark: SparkSession,
    snapshot: Snapshot,
    gone: Adds,
    new: Adds,
    watch: Callable[[float], None] = no_progress,
    checks_types: bool = False,
) -> Fingerprint:
    """Compare the rows of two sets of files, separately for each partition: a `ProofReader`.

    `checks_types` says whether files may have columns of other types, because no run has read them.

    Raises:
        NotCompared: The files can't be read in this way, or a difference was found.
        WorkCancelled: `watch` raised.
    """
    if not has_jvm(spark):
        raise NotCompared("Spark Connect runs no other reader")
    if setting := legacy_setting(spark):
        raise NotCompared(setting)
    partitions: dict[tuple[Any, ...], int] = {}
    store = snapshot.store
    files = [_files(store, adds, partitions) for adds in (gone, new)]
    proved = Fingerprint(0, (0, 0))
    if store.is_local:
        proved, files = _compare_bytes(spark, files, watch)
    if not any(files):
        return proved
    sides: list[dict[int, Fingerprint]] = [defaultdict(lambda: Fingerprint(0, (0, 0))) for _ in range(2)]
    for content in _read(spark, snapshot, files, watch, checks_types):
        if content.failure:
            raise NotCompared(content.failure)
        hash_sums = content.first, content.second
        sides[content.side][content.partition] += Fingerprint(content.num_rows, hash_sums, (READER,))
    before, after = map(dict, sides)
    if before != after:
        raise NotCompared("DuckDB reads other rows")
    return sum(after.values(), proved + Fingerprint(0, (0, 0), (READER,)))


def _files(store: Store, adds: Adds, partitions: dict[tuple[Any, ...], int]) -> list[DataFile]:
    """Return the locations of files; adds numbers of new partitions to `partitions`."""
    actions = [action["add"] for action in adds]
    paths = canonical_paths(pa.array([action["path"] for action in actions], pa.string()))
    found = places(paths, store)
    if pc.any(is_unreadable(paths)).as_py() or pc.any(is_remote(found)).as_py():
        raise NotCompared("a file has a path that Delta can't open, or is elsewhere")
    vectors = [action.get("deletionVector") for action in actions]
    if any(one and is_far(one["storageType"] + one["pathOrInlineDv"], store) for one in vectors):
        raise NotCompared("a deletion vector is elsewhere")
    files = []
    for action, place, vector in zip(actions, found.to_pylist(), vectors, strict=True):
        # Delta reads "" as null, and nulls may be left out.
        values = sorted(one for one in (action.get("partitionValues") or {}).items() if one[1])
        partition = partitions.setdefault(tuple(values), len(partitions))
        size_bytes = int(action["size"])
        files.append(DataFile(partition, store.place(place), size_bytes, found_vector(vector, store)))
    return files


def _compare_bytes(
    spark: SparkSession, files: list[list[DataFile]], watch: Callable[[float], None]
) -> tuple[Fingerprint, list[list[DataFile]]]:
    """Compare copied row groups; returns their fingerprint, and the rest of both sides."""
    comparison = BytesComparison()
    total = max(sum(file.size_bytes for file in files[0]), 1)

    def tick() -> None:
        try:
            watch(comparison.bytes_done / total)
        except BaseException:
            comparison.stopped.set()
            raise

    left = run_cancellable(spark, lambda: comparison.run(*files), tick, is_final=False)
    # These rows were compared as bytes, without hashes.
    readers = (BYTES,) if comparison.num_rows else ()
    return Fingerprint(comparison.num_rows, (0, 0), readers), list(left)


def _read(
    spark: SparkSession,
    snapshot: Snapshot,
    sides: list[list[DataFile]],
    watch: Callable[[float], None],
    checks_types: bool,
) -> list[Content]:
    """Let tasks read files with DuckDB, many small files at once."""
    if runs_in_driver(spark) and importlib.util.find_spec("duckdb") is None:
        raise NotCompared("duckdb isn't installed")
    store, metadata = snapshot.store, snapshot.metadata
    if not store.is_local and store.filesystem is None:
        raise NotCompared(f"executors can't reach {store.root} by pyarrow")
    if metadata.is_mapped_by_id:
        raise NotCompared("columns are found by their field ids")
    try:
        schema = data_schema(metadata, with_partition_columns=False)
    except UnsupportedTableError as error:
        raise NotCompared(str(error).rstrip(".")) from error
    chunks: list[tuple[int, list[tuple[Any, ...]]]] = []
    sizes: list[int] = []
    for side, files in enumerate(sides):
        for i, file in enumerate(files):
            # A part of a file is read by a separate query.
            is_part = file.ranges or (i and files[i - 1].ranges)
            if is_part or i == 0 or len(chunks[-1][1]) == _MOST_FILES or sizes[-1] >= _MOST_BYTES:
                chunks.append((side, []))
                sizes.append(0)
            # Plain tuples, because executors may lack this package.
            chunks[-1][1].append(tuple(file))
            sizes[-1] += file.size_bytes
    costs = [size + FILE_COST * len(files) for size, (_, files) in zip(sizes, chunks, strict=True)]
    columns, filesystem = schema.serialize().to_pybytes(), store.filesystem
    done, total = spark.sparkContext.accumulator(0), max(sum(sizes), 1)

    try:
        read = partial(
            read_content, schema=columns, report=done.add, files=filesystem, checks_types=checks_types
        )
        found = run_balanced(spark, read, chunks, costs, lambda: watch(done.value / total))
    except SPARK_FAILURES as error:
        raise NotCompared(f"executors can't run DuckDB: {reason_of(error)}") from error
    return [Content(*content) for content in found]
