"""The content of given files of a table: the fingerprint of their rows, as Spark reads them.

With the session's JVM in reach, Delta reads whichever files it is given. Over Spark Connect it reads
versions: the partitions that the files are in are read as of a version in which the files are live, with its
deletion vectors and columns, and the fingerprint is taken file by file.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import SparkSession

from compaction_kit.compat import has_jvm, metadata_column
from compaction_kit.errors import UnsupportedTableError
from compaction_kit.execute.commits import Commit
from compaction_kit.execute.failures import ContentDiffers
from compaction_kit.execute.jobs import session_confs
from compaction_kit.execute.jvm import rows_of
from compaction_kit.files import Files
from compaction_kit.handle import Handle
from compaction_kit.log.paths import canonical_paths, places
from compaction_kit.predicate import partitions_predicate
from compaction_kit.retention import GUARD
from compaction_kit.verify import Fingerprint, fingerprint, fingerprints

# Add actions as the log writes them.
Adds = Sequence[Mapping[str, Any]]
# A Spark job that reads files.
Content = Callable[[], Fingerprint]
# Delta refuses versions older than the retention of deleted files, even one that was the latest a moment ago.
ANY_VERSION = {GUARD: "false"}


def readable_together(spark: SparkSession, commits: Sequence[Commit]) -> list[Sequence[Commit]]:
    """Divide commits so that what each group removed, and what it added, can be read at once.

    Over Spark Connect it must be live in one version: before a commit, or after it.
    """
    return [commits] if has_jvm(spark) else [[commit] for commit in commits]


def contents(
    handle: Handle, sets: Sequence[Adds], versions: Sequence[int] | None = None, schema: int | None = None
) -> list[Content]:
    """Return for each set of files what reads its content, with the same columns for all.

    Args:
        handle: The table.
        sets: The files; with the session's JVM in reach they need not be live.
        versions: For each set a version in which its files are live; all with the same schema.
        schema: The version whose schema is used where files need not be live; None for the latest.
    """
    if not has_jvm(handle.spark):
        assert versions is not None
        return [partial(_of_version, handle, *given) for given in zip(sets, versions, strict=True)]
    while True:
        found = [rows_of(handle.spark, handle.uri, adds, schema) for adds in sets]
        # Somebody may add a column meanwhile.
        if all(rows.schema == found[0].schema for rows in found):
            return [partial(fingerprint, rows) for rows in found]


def _of_version(handle: Handle, adds: Adds, version: int) -> Fingerprint:
    """Return the fingerprint of files that are live in a version.

    Raises:
        ContentDiffers: Spark has read no row of a file that isn't known to have none.
    """
    snapshot = handle.log.snapshot(version)
    wanted = canonical_paths(pa.array([add["add"]["path"] for add in adds], pa.string()))
    files = Files(snapshot, np.flatnonzero(pc.is_in(snapshot.live["path"], value_set=wanted)))
    rows = handle.spark.read.format("delta").option("versionAsOf", version).load(handle.uri)
    # Delta skips partitions for a predicate, and no files for their names.
    if (predicate := _predicate(handle.spark, files)) is not None:
        rows = rows.where(predicate)
    with session_confs(handle.spark, ANY_VERSION):
        found = fingerprints(rows, metadata_column(rows)["file_path"])
    # Spark has URIs, as the log may have: both stand for the same place.
    read = _places(handle, pa.array(list(found), pa.string()))
    at = pc.index_in(_places(handle, wanted), value_set=read)
    unread = set(wanted.filter(at.is_null()).to_pylist())
    if unread and (lost := unread.difference(_empty(files))):
        raise ContentDiffers(f"No row of {min(lost)} was found in version {version}")
    each = list(found.values())
    return sum((each[i] for i in at.drop_null().to_pylist()), Fingerprint(0, (0, 0)))


def _predicate(spark: SparkSession, files: Files) -> str | None:
    """Return what selects the partitions of files; None if they have none, or no predicate can."""
    if not files.partition_columns or not files.num_files:
        return None
    try:
        return partitions_predicate(spark, files, np.arange(files.num_files))
    except UnsupportedTableError:
        return None


def _places(handle: Handle, paths: pa.Array) -> pa.Array:
    return places(canonical_paths(paths), handle.store)


def _empty(files: Files) -> list[str]:
    """Return the paths of the version's files that have no rows, as the log says."""
    live = files.snapshot.live_files
    deleted = pc.fill_null(live["deletion_vector_cardinality"].combine_chunks(), 0)
    is_empty = pc.equal(files.snapshot.num_records, deleted)
    return files.snapshot.live["path"].combine_chunks().filter(is_empty).to_pylist()
