"""The files that VACUUM LITE considers: remove actions and change data of commits, instead of the folder."""

import json
from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from compaction_kit.errors import CorruptLogError, InvalidArgumentError
from compaction_kit.history.readable import with_vectors
from compaction_kit.log.actions import CORE, column, file_actions
from compaction_kit.log.commit_times import commit_times
from compaction_kit.log.json_source import JsonSource, commit_blocks
from compaction_kit.log.listing import LOG_FOLDER, Kind, LogFile, list_log
from compaction_kit.log.metadata import Metadata
from compaction_kit.log.paths import canonical_paths, is_outside, places
from compaction_kit.log.reading import lines_of, read_log_file, reading
from compaction_kit.storage import Store

_INFO = "_last_vacuum_info"
_LAST_READ = "latestCommitVersionOutsideOfRetentionWindow"
_NOTHING = pa.array([], pa.string())


def lite_candidates(store: Store, metadata: Metadata, cutoff: int) -> pa.Array:
    """Return the files that VACUUM LITE considers (VacuumCommand.getFilesFromDeltaLog).

    These are the files that commits before the cutoff removed, and the change data of these commits. LITE
    continues after the last commit that the LITE before has read, if there was no FULL in between.

    Args:
        store: The table's files.
        metadata: The metadata of the latest version.
        cutoff: When the retention begins, in ms since 1970.

    Returns:
        Their paths, relative to the table; the files may no longer exist.

    Raises:
        InvalidArgumentError: Commits that it would read were deleted, so that Delta refuses LITE.
    """
    commits, last = log_commits(store), last_commit(store, metadata, cutoff)
    if last is None:
        return _NOTHING
    earliest, done = commits[0].version or 0, _last_vacuumed(store)
    if earliest and (done is None or done < earliest):
        since = "since the table's first" if done is None else f"after version {done}, which it read last,"
        raise InvalidArgumentError(
            f'mode="LITE" reads every commit {since} and the log begins at version {earliest}, so that Delta '
            'refuses it: use mode="FULL".'
        )
    first = earliest if done is None else min(commits[-1].version or 0, done + 1)
    within = [file for file in commits if first <= (file.version or 0) <= last]
    if not within:
        return _NOTHING
    removes = [_removed(store, block) for block in commit_blocks(within)]
    # Of a file that was removed several times, the last time counts.
    latest = pa.concat_tables(removes).group_by("path").aggregate([("time", "max")])
    removed = latest.filter(pc.less(latest["time_max"], cutoff))["path"].combine_chunks()
    candidates = pc.unique(pa.concat_arrays([removed, change_data(store, within)]))
    return candidates.filter(pc.invert(is_outside(candidates)))


def last_commit(store: Store, metadata: Metadata, time: int) -> int | None:
    """Return the last version committed up to a time (ms since 1970); None if all are later."""
    commits = log_commits(store)
    times = commit_times(store, commits, metadata)
    position = int(np.searchsorted(times, time, side="right")) - 1
    return None if position < 0 else commits[position].version


def log_commits(store: Store) -> list[LogFile]:
    """Return the commits in the log."""
    return [file for file in list_log(store) if file.kind is Kind.COMMIT]


def change_data(store: Store, commits: Sequence[LogFile]) -> pa.Array:
    """Return the change data files of commits, relative to the table."""
    paths: list[str] = []
    store.prepare(file.place for file in commits)
    for file in commits:
        text = read_log_file(store, file)
        if b'"cdc"' in text:
            with reading(file.name):
                actions = (json.loads(line) for line in lines_of(text) if b'"cdc"' in line)
                paths += [action["cdc"]["path"] for action in actions if action.get("cdc")]
    return places(canonical_paths(pa.array(paths, pa.string())), store)


def _removed(store: Store, commits: list[LogFile]) -> pa.Table:
    """Return the files and deletion vector files that commits remove, and when: path, time."""
    raw = JsonSource(store, commits).rows([*CORE, "deletion_timestamp"])
    actions = file_actions(raw, 0)
    removes = actions.filter(pc.invert(actions["is_add"]))
    times = column(raw, "remove", "deletion_timestamp").take(removes["row"].combine_chunks())
    files = pa.table({"path": places(removes["path"], store), "time": pc.fill_null(times, 0)})
    return with_vectors(files, removes["deletion_vector_id"], store)


def _last_vacuumed(store: Store) -> int | None:
    """Return the last commit that VACUUM LITE has read; None if there is none, or a FULL came after it."""
    place = f"{LOG_FOLDER}/{_INFO}"
    try:
        # As in Delta, a damaged file counts as missing.
        with reading(_INFO):
            return int(json.loads(store.read(place))[_LAST_READ]) if store.is_file(place) else None
    except CorruptLogError:
        return None
