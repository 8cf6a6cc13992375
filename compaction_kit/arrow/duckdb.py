"""Compare the rows of files by DuckDB, which opens small files many times as fast as Spark does.

It can say that content is the same. Where it can't read files as Spark does, or finds a difference, Spark
reads them all and has the last word (see `proof.compare`).
"""

import importlib.util
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from compaction_kit.arrow.job import FILE_COST, balanced
from compaction_kit.arrow.refusals import data_schema, legacy_setting, runs_in_driver
from compaction_kit.arrow.worker import Chunk, Content, read_content
from compaction_kit.compat import has_jvm
from compaction_kit.errors import UnsupportedTableError
from compaction_kit.execute.failures import NotCompared, reason_of
from compaction_kit.execute.jobs import run_cancellable
from compaction_kit.execute.work import Adds, no_progress
from compaction_kit.log.paths import canonical_paths, is_remote, is_unreadable, places
from compaction_kit.log.snapshot import Snapshot
from compaction_kit.storage import Store
from compaction_kit.verify import Fingerprint

READER = "DuckDB"
# Files that a task asks DuckDB for at once: it plans each query anew, and progress goes by them.
_MOST_FILES, _MOST_BYTES = 500, 64 << 20


def compare_quickly(
    spark: SparkSession,
    snapshot: Snapshot,
    gone: Adds,
    new: Adds,
    watch: Callable[[float], None] = no_progress,
) -> Fingerprint:
    """Compare the rows of two sets of files, in each partition for itself.

    Args:
        spark: The session.
        snapshot: Of the table, for its columns.
        gone: Add actions of the files of one set, live or not.
        new: Of the other.
        watch: Called with the share that is done; what it raises cancels the comparison.

    Returns:
        The fingerprint of both.

    Raises:
        NotCompared: They can't be read so, or they differ by this reading.
        WorkCancelled: It was cancelled.
    """
    schema = _readable_schema(spark, snapshot)
    store = snapshot.store
    groups: dict[tuple[Any, ...], int] = {}
    chunks = [chunk for side, adds in enumerate((gone, new)) for chunk in _chunks(store, side, adds, groups)]
    found = _read(spark, store, chunks, schema, watch)
    sides: list[dict[int, Fingerprint]] = [defaultdict(lambda: Fingerprint(0, (0, 0))) for _ in range(2)]
    for content in found:
        if content.failure:
            raise NotCompared(content.failure)
        hash_sums = content.first, content.second
        sides[content.side][content.group] += Fingerprint(content.num_rows, hash_sums, (READER,))
    before, after = sides
    if dict(before) != dict(after):
        raise NotCompared("DuckDB reads other rows")
    return sum(after.values(), Fingerprint(0, (0, 0), (READER,)))


def _readable_schema(spark: SparkSession, snapshot: Snapshot) -> bytes:
    """The columns of the data files, by physical names, serialized; NotCompared if Spark has to read."""
    if not has_jvm(spark):
        raise NotCompared("Spark Connect runs no other reader")
    if runs_in_driver(spark) and importlib.util.find_spec("duckdb") is None:
        raise NotCompared("duckdb isn't installed")
    store, metadata = snapshot.store, snapshot.metadata
    if not store.is_local and store.filesystem is None:
        raise NotCompared(f"executors can't reach {store.root} by pyarrow")
    if metadata.is_mapped_by_id:
        raise NotCompared("columns are found by their field ids")
    setting = legacy_setting(spark)
    if setting is not None:
        raise NotCompared(setting)
    try:
        schema = data_schema(metadata, with_partition_columns=False)
    except UnsupportedTableError as error:
        raise NotCompared(str(error).rstrip(".")) from error
    if not schema.names:
        raise NotCompared("the table has no column besides those it is partitioned by")
    serialized: bytes = schema.serialize().to_pybytes()
    return serialized


def _chunks(store: Store, side: int, adds: Adds, groups: dict[tuple[Any, ...], int]) -> Iterator[Chunk]:
    """The files of one side in chunks; numbers the partitions that are new in `groups`."""
    actions = [action["add"] for action in adds]
    if any(action.get("deletionVector") for action in actions):
        raise NotCompared("a file has a deletion vector")
    paths = canonical_paths(pa.array([action["path"] for action in actions], pa.string()))
    found = places(paths, store)
    if pc.any(is_unreadable(paths)).as_py() or pc.any(is_remote(found)).as_py():
        raise NotCompared("a file has a path that Delta can't open, or is elsewhere")
    files: list[tuple[int, str, int]] = []
    size_bytes = 0
    for action, place in zip(actions, found.to_pylist(), strict=True):
        # For Delta "" is null.
        values = {name: value or None for name, value in (action.get("partitionValues") or {}).items()}
        group = groups.setdefault(tuple(sorted(values.items())), len(groups))
        files.append((group, store.place(place), int(action["size"])))
        size_bytes += files[-1][2]
        if len(files) == _MOST_FILES or size_bytes >= _MOST_BYTES:
            yield Chunk(side, files)
            files, size_bytes = [], 0
    if files:
        yield Chunk(side, files)


def _read(
    spark: SparkSession, store: Store, chunks: Sequence[Chunk], schema: bytes, watch: Callable[[float], None]
) -> list[Content]:
    if not chunks:
        return []
    context = spark.sparkContext
    done = context.accumulator(0)
    costs = np.array([chunk.size_bytes + FILE_COST * len(chunk.files) for chunk in chunks])
    groups = balanced(costs, context.defaultParallelism)
    tasks = [[tuple(chunks[i]) for i in group] for group in groups]
    # Credentials go with the code: Spark lays data down in a file on its way.
    files = store.filesystem
    reading = context.parallelize(tasks, len(tasks)).flatMap(
        lambda task: read_content(task, schema, done.add, files)
    )
    total = max(sum(chunk.size_bytes for chunk in chunks), 1)
    try:
        found = run_cancellable(spark, reading.collect, lambda: watch(done.value / total), is_final=False)
    except (PySparkException, Py4JError) as error:
        raise NotCompared(f"executors can't run DuckDB: {reason_of(error)}") from error
    return [Content(*content) for content in found]
