"""Read the content of given files of a table with Spark: the fingerprint of their rows."""

from collections.abc import Callable, Sequence
from functools import partial

from compaction_kit.compat import has_jvm
from compaction_kit.execute.delta import rows_of
from compaction_kit.execute.jobs import session_confs
from compaction_kit.execute.work import Adds
from compaction_kit.handle import Handle
from compaction_kit.retention import GUARD
from compaction_kit.verify import Fingerprint, fingerprint

# A Spark job that reads files.
Content = Callable[[], Fingerprint]
# Delta refuses versions older than the retention of deleted files, even one that was the latest a moment ago.
ANY_VERSION = {GUARD: "false"}


def contents(
    handle: Handle, sets: Sequence[Adds], versions: Sequence[int], schema: int | None = None
) -> list[Content]:
    """Return jobs that read sets of files, with the same columns for all.

    Where the sets have equal content, the jobs return equal fingerprints, and only there.

    Args:
        handle: The table.
        sets: The files. With the session's JVM in reach they need not be live.
        versions: Over Spark Connect, a version for each set, whose other files are the same in all: the whole
            version is read instead.
        schema: The version whose schema is used with the JVM in reach; None for the latest.
    """
    if not has_jvm(handle.spark):
        return [partial(_of_version, handle, version) for version in versions]
    while True:
        found = [rows_of(handle.spark, handle.uri, adds, schema) for adds in sets]
        # Another writer may add a column between the calls.
        if all(rows.schema == found[0].schema for rows in found):
            return [partial(fingerprint, rows) for rows in found]


def _of_version(handle: Handle, version: int) -> Fingerprint:
    with session_confs(handle.spark, ANY_VERSION):
        return fingerprint(handle.spark.read.format("delta").option("versionAsOf", version).load(handle.uri))
