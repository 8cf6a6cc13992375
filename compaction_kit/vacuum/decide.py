"""Decide as VACUUM does what goes, and say of every file why."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from compaction_kit.errors import InvalidArgumentError
from compaction_kit.folder import Folder, count_files, look_through
from compaction_kit.handle import Handle
from compaction_kit.history.readable import LOG_GONE, Needs, Readability, latest_by_path, read_readability
from compaction_kit.log.paths import is_within
from compaction_kit.retention import cutoff, vacuum_retention
from compaction_kit.storage import Store
from compaction_kit.text import format_count, format_list
from compaction_kit.vacuum.lite import change_data, lite_candidates, log_commits

FULL, LITE = "FULL", "LITE"
NEEDED = "needed by a kept version"
_KEPT = pa.schema([("reason", pa.string()), ("num_files", pa.int64()), ("size_bytes", pa.int64())])
_DIRECTORIES = pa.schema([("path", pa.string()), ("is_empty", pa.bool_())])
_STAMP = pa.timestamp("ms", "UTC")
_CHANGE_DATA = "_change_data/"
_NO_PATHS = pa.array([], pa.string())


@dataclass(frozen=True, repr=False)
class Deletion:
    """What VACUUM deletes, and by what that is decided.

    Attributes:
        handle: The table.
        version: The version that was planned; the plan runs on no other.
        table_id: The id in the table's metadata.
        mode: "FULL", by the folder, or "LITE", by the log's commits alone.
        at: When it runs.
        retention: How long removed files are kept.
        table_retention: How long the table's property says.
        keep_versions: The versions of which no file goes.
        files: One row a file that goes: path (string, relative to the table, decoded), size_bytes
            (int64); reason (string: "tombstone": versions needed it; "change data": of the change data
            feed; "orphan": no version that the log tells of knows it); since_version (int64, the first
            version that doesn't need it), removed_at (UTC; both null for an orphan or where the log
            doesn't tell any more), modification_time (UTC). Hadoop's own .<name>.crc beside a file goes
            with it.
        directories: The folders that VACUUM lists beside them: path (string), is_empty (bool); it
            deletes those that are, and passes over the others.
        kept: What stays and why: reason (string: "live", "removed less long ago" and "written less long
            ago" than the retention, "needed by a kept version", "not among what LITE looks at",
            "a colon in its name", which no VACUUM can take, "hidden, the log among it"), num_files,
            size_bytes (int64).
        storage: Bytes of what isn't hidden: kind (string: "live", "tombstoned", "orphaned"), size_bytes,
            size_bytes_after (int64).
        gone_already: Paths that VACUUM LITE lists though they are gone.
    """

    handle: Handle = field(repr=False, compare=False)
    version: int
    table_id: str
    mode: str
    at: datetime
    retention: timedelta
    table_retention: timedelta
    keep_versions: tuple[int, ...]
    files: pa.Table
    directories: pa.Table
    kept: pa.Table
    storage: pa.Table
    gone_already: pa.Array

    @property
    def size_bytes(self) -> int:
        """Bytes that would be freed."""
        return pc.sum(self.files["size_bytes"]).as_py() or 0

    @property
    def num_files(self) -> int:
        """How many files would go."""
        return self.files.num_rows

    @property
    def empty_directories(self) -> list[str]:
        """The folders that would go, by their paths."""
        return self.directories.filter(self.directories["is_empty"])["path"].to_pylist()

    @property
    def is_empty(self) -> bool:
        """Whether nothing would go."""
        return not self.num_files and not self.empty_directories

    @property
    def cutoff(self) -> int:
        """What was removed or written from then on stays, ms since 1970."""
        return cutoff(self.at, self.retention)


def decide(
    handle: Handle, retention: str | None, keep_versions: Sequence[int] | None, mode: str, at: datetime
) -> tuple[Deletion, Readability]:
    """What VACUUM would delete, and what decides which versions can be read; see `plan.plan_vacuum`."""
    if not isinstance(mode, str) or mode.upper() not in (FULL, LITE):
        raise InvalidArgumentError(f'mode={mode!r} is unknown: choose "FULL" or "LITE".')
    metadata = handle.log.snapshot().metadata
    chosen = vacuum_retention(metadata, retention, handle.conf)
    since, is_lite = cutoff(at, chosen), mode.upper() == LITE
    has_iceberg = "iceberg" in metadata.configuration.get("delta.universalFormat.enabledFormats", "")
    folder = look_through(handle.store, metadata.partition_columns, has_iceberg)
    state = read_readability(handle, folder.files)
    needs, keep = state.needs, _checked_versions(state, keep_versions)
    candidates = lite_candidates(handle.store, metadata, since) if is_lite else None
    wanted = pa.concat_arrays([_NO_PATHS, *map(needs.of_version, keep)])
    is_going, stays = _sort_out(handle.store, folder, needs, wanted, candidates, since)
    files = _files_table(folder.files.filter(is_going).sort_by("path"), handle.store, state)
    gone_already = _NO_PATHS
    if candidates is not None:
        known = [needs.live["path"], needs.young_tombstones(since)["path"], folder.files["path"]]
        gone_already = candidates.filter(pc.invert(_is_among(candidates, *known)))
    deletion = Deletion(
        handle=handle,
        version=needs.latest,
        table_id=needs.snapshot.metadata.id,
        mode=mode.upper(),
        at=at,
        retention=chosen,
        table_retention=state.retention,
        keep_versions=keep,
        files=files,
        directories=_DIRECTORIES.empty_table() if is_lite else _directories(folder, needs, since),
        kept=_kept_table(handle.store, folder, stays),
        storage=storage_table(folder.files, needs, files["path"]),
        gone_already=gone_already,
    )
    return deletion, state


def storage_table(on_disk: pa.Table, needs: Needs, going: pa.ChunkedArray) -> pa.Table:
    """Bytes by kind, before and after some paths are gone; see `Deletion.storage`."""
    paths, sizes = on_disk["path"].combine_chunks(), on_disk["size_bytes"]
    live = _is_among(paths, needs.live["path"])
    known = _is_among(paths, needs.files["path"], needs.tombstones["path"])
    kinds = {
        "live": live,
        "tombstoned": pc.and_not(known, live),
        "orphaned": pc.invert(pc.or_(known, live)),
    }
    stays = pc.invert(_is_among(paths, going))
    masks = ((is_kind, pc.and_(is_kind, stays)) for is_kind in kinds.values())
    now, after = zip(
        *([pc.sum(sizes.filter(mask)).as_py() or 0 for mask in pair] for pair in masks), strict=True
    )
    return pa.table({"kind": list(kinds), "size_bytes": now, "size_bytes_after": after})


def _checked_versions(state: Readability, versions: Sequence[int] | None) -> tuple[int, ...]:
    """The versions to keep, each once, in order; refused if they can't be read already."""
    if versions is None:
        return ()
    if isinstance(versions, str) or not hasattr(versions, "__iter__"):
        raise InvalidArgumentError(f"keep_versions={versions!r} is no list of versions: write it as [3, 5].")
    needs, statuses = state.needs, state.statuses()
    for version in versions:
        if isinstance(version, bool) or not hasattr(version, "__index__"):
            raise InvalidArgumentError(
                f"keep_versions has {version!r}, which is no version: give whole numbers, such as [3, 5]."
            )
        if not needs.first <= version <= needs.latest:
            raise InvalidArgumentError(
                f"keep_versions has {version}, which the log doesn't tell of: it has {needs.first} to "
                f"{needs.latest}."
            )
        missing = sorted({*needs.of_version(version).to_pylist()} & {*state.missing.to_pylist()})
        is_log_gone = statuses[version - needs.first] == LOG_GONE
        if missing or is_log_gone:
            lacking = (
                f"{format_count(len(missing), 'file')} that it needs {'is' if len(missing) == 1 else 'are'} "
                f"gone ({format_list(missing)})"
            )
            raise InvalidArgumentError(
                f"keep_versions has {version}, which can't be read already: "
                f"{'its commit is gone from the log' if is_log_gone else lacking}; leave it out."
            )
    return tuple(sorted({int(version) for version in versions}))


def _sort_out(
    store: Store, folder: Folder, needs: Needs, wanted: pa.Array, candidates: pa.Array | None, since: int
) -> tuple[pa.Array, pa.Table]:
    """Which files go, and the others with a column more: reason.

    `wanted` are the paths that versions to be kept need, `candidates` what LITE looks at.
    """
    files, paths = folder.files, folder.files["path"].combine_chunks()
    live, young = needs.live["path"], needs.young_tombstones(since)["path"]
    # The first of these that is so says why a file stays.
    reasons = {"live": _is_among(paths, live), "removed less long ago": _is_among(paths, young)}
    if candidates is None:
        is_young = pc.greater_equal(files["modification_time"], since)
        reasons["written less long ago"] = is_young.combine_chunks()
    else:
        reasons["not among what LITE looks at"] = pc.invert(_is_among(paths, candidates))
    reasons[NEEDED] = _is_among(paths, wanted)
    if folder.links:
        needed = [*live.to_pylist(), *young.to_pylist(), *wanted.to_pylist()]
        reasons |= _by_links(store, paths.to_pylist(), needed)
    # Hadoop takes what is before the colon for a scheme, and VACUUM breaks off there: at a path that
    # begins so, and at a file whose checksum it looks for (ChecksumFileSystem.getChecksumFile).
    reasons["a colon in its name"] = pc.match_substring_regex(paths, "^[^/]*:|:[^/]*$")
    masks = [mask.to_numpy(zero_copy_only=False) for mask in reasons.values()]
    numbers = np.select(masks, range(len(masks)), default=-1)
    names = pa.array(list(reasons)).take(numbers[numbers >= 0])
    return pa.array(numbers < 0), files.filter(pa.array(numbers >= 0)).append_column("reason", names)


def _by_links(store: Store, paths: list[str], needed: list[str]) -> dict[str, pa.Array]:
    """Which files VACUUM takes though a link leads to them: from elsewhere, or from a path that is needed."""
    root, kept = store.real(""), set(map(store.real, needed))
    # A link to a file is deleted itself, and what it leads to stays.
    split = [path.rpartition("/") for path in paths]
    folders = [store.real(folder) for folder, _, _ in split]
    real = [f"{folder}/{name}" for folder, (_, _, name) in zip(folders, split, strict=True)]
    outside = [not is_within(folder, root) for folder in folders]
    return {
        "outside of the table's folder, by a link": pa.array(outside, pa.bool_()),
        "needed by another path, by a link": pa.array([path in kept for path in real], pa.bool_()),
    }


def _directories(folder: Folder, needs: Needs, since: int) -> pa.Table:
    """The folders that VACUUM takes for empty, and whether they hold nothing but such folders.

    A folder counts as empty for it if no file below is older than the retention and no data file below
    is live or was removed since then (VacuumCommand.gc, steps 3 to 6). It deletes no folder that holds
    anything, and so leaves those that it empties itself to the next VACUUM.
    """
    is_old = pc.less(folder.files["modification_time"], since)
    named = (files.filter(files["is_data"]) for files in (needs.live, needs.young_tombstones(since)))
    occupied: set[str] = set()
    for files in (folder.files.filter(is_old), *named):
        inner = files["path"].filter(pc.match_substring(files["path"], "/"))
        for path in pc.unique(pc.replace_substring_regex(inner, "/[^/]*$", "")).to_pylist():
            while path and path not in occupied:
                occupied.add(path)
                path = path.rpartition("/")[0]
    listed = sorted(path for path in folder.directories if path not in occupied)
    left = dict(folder.directories)
    # Inner ones first: each that is empty is one entry less for the folder that it is in.
    for path in sorted(listed, key=lambda path: -path.count("/")):
        outer = path.rpartition("/")[0]
        if not left[path] and outer in left:
            left[outer] -= 1
    # Hadoop can't name one that begins with a colon's scheme; see `_sort_out`.
    is_empty = [not left[path] and ":" not in path.partition("/")[0] for path in listed]
    return pa.table({"path": listed, "is_empty": is_empty}, _DIRECTORIES)


def _files_table(going: pa.Table, store: Store, state: Readability) -> pa.Table:
    """See `Deletion.files`."""
    paths, needs = going["path"].combine_chunks(), state.needs
    since = latest_by_path(paths, needs.files, "removed")
    # Its tombstone may be gone, or not say when; then the commit tells.
    times = latest_by_path(paths, needs.tombstones, "time")
    times = pc.if_else(pc.equal(times, 0), None, times)
    committed = pa.array([*state.times.tolist(), None]).take(pc.subtract(since, needs.first))
    known = pc.or_(since.is_valid(), _is_among(paths, needs.tombstones["path"]))
    has_changes = pc.any(pc.starts_with(paths, _CHANGE_DATA)).as_py()
    changes = change_data(store, log_commits(store)) if has_changes else _NO_PATHS
    unknown = pc.if_else(_is_among(paths, changes), "change data", "orphan")
    return pa.table(
        {
            "path": paths,
            "size_bytes": going["size_bytes"],
            "reason": pc.if_else(known, "tombstone", unknown),
            "since_version": since,
            "removed_at": pc.coalesce(times, committed).cast(_STAMP),
            "modification_time": going["modification_time"].cast(_STAMP),
        }
    )


def _kept_table(store: Store, folder: Folder, stays: pa.Table) -> pa.Table:
    """See `Deletion.kept`."""
    groups = stays.group_by("reason").aggregate([("size_bytes", "count"), ("size_bytes", "sum")])
    groups = groups.select(["reason", "size_bytes_count", "size_bytes_sum"]).rename_columns(_KEPT.names)
    number, size_bytes = count_files(store, folder.hidden)
    hidden = [{"reason": "hidden, the log among it", "num_files": number, "size_bytes": size_bytes}]
    both = [groups.cast(_KEPT), pa.Table.from_pylist(hidden if number else [], _KEPT)]
    return pa.concat_tables(both).sort_by([("size_bytes", "descending"), ("reason", "ascending")])


def _is_among(paths: pa.Array, *others: pa.Array | pa.ChunkedArray) -> pa.Array:
    chunks = [chunk for other in others for chunk in getattr(other, "chunks", [other])]
    return pc.is_in(paths, value_set=pa.concat_arrays(chunks or [_NO_PATHS]))
