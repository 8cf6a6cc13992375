"""When files outlive the retention, so that VACUUM may take them, and commits theirs."""

from datetime import timedelta
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from compaction_kit.history.needs import Needs, file_names, vector_paths
from compaction_kit.log.paths import places
from compaction_kit.log.snapshot import Snapshot

NEVER = np.iinfo(np.int64).max
_DAY_MILLIS = 86_400_000
_LONGEST = timedelta(days=7_000 * 365)


def first_expiry(
    table: Path, snapshot: Snapshot, needs: Needs, on_disk: pa.Table, retention: timedelta
) -> np.ndarray:
    """When VACUUM may delete the first of the files that each version needs.

    Args:
        table: The table's folder.
        snapshot: The latest.
        needs: Which files each version needs.
        on_disk: What `list_folder` found.
        retention: How long the table keeps removed files.

    Returns:
        For each of `needs.versions`, int64, ms since 1970; `NEVER` if the latest version needs them all.
    """
    expiry = _file_expiry(table, snapshot, needs.files["path"], on_disk, retention)
    first = np.full(len(needs.versions), NEVER)
    spans = pa.table({"added": needs.files["added"], "removed": needs.files["removed"], "at": expiry})
    soonest = spans.group_by(["added", "removed"]).aggregate([("at", "min")])
    columns = (soonest[name].to_pylist() for name in ("added", "removed", "at_min"))
    for added, removed, at in zip(*columns, strict=True):
        span = slice(added - needs.first, removed - needs.first)
        first[span] = np.minimum(first[span], at)
    return first


def log_expiry(modified: np.ndarray, retention: timedelta) -> np.ndarray:
    """When a cleanup of the log may take a file of it: it goes by days of UTC (MetadataCleanup.truncateDay).

    Args:
        modified: The files' times, ms since 1970.
        retention: How long the table keeps its log.
    """
    return -(-modified // _DAY_MILLIS) * _DAY_MILLIS + to_millis(retention)


def to_millis(length: timedelta) -> int:
    """A length of time in ms, of 7,000 years at most: a later time than 9999 has no datetime."""
    return min(length, _LONGEST) // timedelta(milliseconds=1)


def _file_expiry(
    table: Path, snapshot: Snapshot, paths: pa.ChunkedArray, on_disk: pa.Table, retention: timedelta
) -> np.ndarray:
    """When VACUUM may delete each path: it keeps what is live, in a young tombstone or young itself."""
    unique = pc.unique(paths)
    live = pc.is_in(unique, value_set=file_names(snapshot.live, table))
    removed = _latest_times(unique, *_tombstones(snapshot, table))
    modified = _latest_times(unique, on_disk["path"], on_disk["modification_time"])
    # What isn't listed is elsewhere or hidden, and VACUUM doesn't look there.
    stays = pc.or_(live, pc.is_null(modified))
    times = pc.add(pc.max_element_wise(removed, modified), to_millis(retention))
    expiry = pc.if_else(stays, NEVER, times)
    return expiry.take(pc.index_in(paths, value_set=unique)).to_numpy()


def _tombstones(snapshot: Snapshot, table: Path) -> tuple[pa.ChunkedArray, pa.ChunkedArray]:
    """Each file that a tombstone names, its vector's as well, and when it was removed."""
    dead = snapshot.tombstones
    times = pc.fill_null(dead["deletion_timestamp"], 0)
    vectors = vector_paths(dead["deletion_vector_id"], table)
    paths = [places(dead["path"], table), vectors.drop_null()]
    return (
        pa.chunked_array(paths, pa.string()),
        pa.chunked_array([*times.chunks, *times.filter(vectors.is_valid()).chunks], pa.int64()),
    )


def _latest_times(unique: pa.Array, paths: pa.ChunkedArray, times: pa.ChunkedArray) -> pa.Array:
    """The latest of the times of each path; null for none."""
    latest = pa.table({"path": paths, "at": times}).group_by("path").aggregate([("at", "max")])
    return latest["at_max"].combine_chunks().take(pc.index_in(unique, value_set=latest["path"]))
