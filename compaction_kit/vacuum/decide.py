"""Decide as VACUUM does which files are deleted, and give the reason for each file."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from compaction_kit.errors import InvalidArgumentError
from compaction_kit.folder import Folder, count_files, look_through
from compaction_kit.handle import Handle
from compaction_kit.history.readable import LOG_GONE, Needs, Readability, latest_by_path, read_readability
from compaction_kit.log.listing import Kind, list_log
from compaction_kit.log.paths import canonical_paths, places
from compaction_kit.log.reading import lines_of, read_log_file, reading
from compaction_kit.retention import cutoff, vacuum_retention
from compaction_kit.storage import Store
from compaction_kit.text import format_count, format_list

FULL = "FULL"
NEEDED = "needed by a kept version"
_KEPT = pa.schema([("reason", pa.string()), ("num_files", pa.int64()), ("size_bytes", pa.int64())])
_DIRECTORIES = pa.schema([("path", pa.string()), ("is_empty", pa.bool_())])
_STAMP = pa.timestamp("ms", "UTC")
_CHANGE_DATA = "_change_data/"
_NO_PATHS = pa.array([], pa.string())


@dataclass(frozen=True, repr=False)
class Deletion:
    """What VACUUM deletes, and the inputs of that decision.

    Attributes:
        handle: The table.
        version: The version that the plan was made at; the plan runs at no other.
        table_id: The id in the table's metadata.
        at: The time of the vacuum.
        retention: How long removed files are kept.
        table_retention: How long the table property keeps them.
        keep_versions: The versions whose files are all kept.
        files: One row per file to delete: path (relative to the table, decoded), size_bytes, reason
            ("tombstone": versions needed it; "change data": of the change data feed; "orphan": no version
            in the log needs it), since_version (the first version that doesn't need it), removed_at (both
            null for an orphan, or if the log no longer has them), modification_time. Hadoop's checksum
            file .<name>.crc is deleted with its file.
        directories: The folders that VACUUM lists as well: path (string), is_empty (bool); it deletes the
            empty ones and skips the others.
        kept: The number and bytes of kept files by reason: "live", "removed within the retention", "written
            within the retention", "needed by a kept version", "a colon in its name" (VACUUM can't delete
            such a file), "hidden, such as the log".
        storage: The bytes of files that aren't hidden, before and after, by kind: "live", "tombstoned",
            "orphaned".
    """

    handle: Handle = field(repr=False, compare=False)
    version: int
    table_id: str
    at: datetime
    retention: timedelta
    table_retention: timedelta
    keep_versions: tuple[int, ...]
    files: pa.Table
    directories: pa.Table
    kept: pa.Table
    storage: pa.Table

    @property
    def size_bytes(self) -> int:
        """The bytes that would be freed."""
        return pc.sum(self.files["size_bytes"]).as_py() or 0

    @property
    def num_files(self) -> int:
        """The number of files that would be deleted."""
        return self.files.num_rows

    @property
    def empty_directories(self) -> list[str]:
        """The paths of the folders that would be deleted."""
        return self.directories.filter(self.directories["is_empty"])["path"].to_pylist()

    @property
    def is_empty(self) -> bool:
        """Whether nothing would be deleted."""
        return not self.num_files and not self.empty_directories

    @property
    def cutoff(self) -> int:
        """The time (ms since 1970) from which removed and written files are kept."""
        return cutoff(self.at, self.retention)


def decide(
    handle: Handle, retention: str | None, keep_versions: Sequence[int] | None, mode: str, at: datetime
) -> tuple[Deletion, Readability]:
    """Return what VACUUM would delete, and the state of the versions; see `plan.plan_vacuum`."""
    if not isinstance(mode, str) or mode.upper() != FULL:
        raise InvalidArgumentError(
            f'mode={mode!r} is not planned here: use mode="FULL", or run VACUUM … LITE in SQL.'
        )
    metadata = handle.log.snapshot().metadata
    chosen = vacuum_retention(metadata, retention, handle.conf, handle.ignores_retain)
    since = cutoff(at, chosen)
    has_iceberg = "iceberg" in metadata.configuration.get("delta.universalFormat.enabledFormats", "")
    folder = look_through(handle.store, metadata.partition_columns, has_iceberg)
    state = read_readability(handle, folder.files)
    needs, keep = state.needs, _checked_versions(state, keep_versions)
    wanted = pa.concat_arrays([_NO_PATHS, *map(needs.of_version, keep)])
    is_deleted, kept = _split(folder, needs, wanted, since)
    files = _files_table(folder.files.filter(is_deleted).sort_by("path"), handle.store, state)
    deletion = Deletion(
        handle=handle,
        version=needs.latest,
        table_id=needs.snapshot.metadata.id,
        at=at,
        retention=chosen,
        table_retention=state.retention,
        keep_versions=keep,
        files=files,
        directories=_directories(folder, needs, since),
        kept=_kept_table(handle.store, folder, kept),
        storage=storage_table(folder.files, needs, files["path"]),
    )
    return deletion, state


def storage_table(on_disk: pa.Table, needs: Needs, deleted: pa.ChunkedArray) -> pa.Table:
    """Make `Deletion.storage`: the bytes by kind, before and after paths are deleted."""
    paths, sizes = on_disk["path"].combine_chunks(), on_disk["size_bytes"]
    live = _is_among(paths, needs.live["path"])
    known = _is_among(paths, needs.files["path"], needs.tombstones["path"])
    kinds = {
        "live": live,
        "tombstoned": pc.and_not(known, live),
        "orphaned": pc.invert(pc.or_(known, live)),
    }
    is_kept = pc.invert(_is_among(paths, deleted))
    masks = ((is_kind, pc.and_(is_kind, is_kept)) for is_kind in kinds.values())
    now, after = zip(
        *([pc.sum(sizes.filter(mask)).as_py() or 0 for mask in pair] for pair in masks), strict=True
    )
    return pa.table({"kind": list(kinds), "size_bytes": now, "size_bytes_after": after})


def _checked_versions(state: Readability, versions: Sequence[int] | None) -> tuple[int, ...]:
    """Return the versions to keep, sorted and each once; refuse any that can't be read now."""
    if versions is None:
        return ()
    if isinstance(versions, str) or not hasattr(versions, "__iter__"):
        raise InvalidArgumentError(
            f"keep_versions={versions!r} is not a list of versions: write it as [3, 5]."
        )
    needs, statuses = state.needs, state.statuses()
    for version in versions:
        if isinstance(version, bool) or not hasattr(version, "__index__"):
            raise InvalidArgumentError(
                f"keep_versions has {version!r}, which is not a version: give whole numbers, such as [3, 5]."
            )
        if not needs.first <= version <= needs.latest:
            raise InvalidArgumentError(
                f"keep_versions has {version}, which is not in the log: choose from {needs.first} to "
                f"{needs.latest}."
            )
        missing = sorted({*needs.of_version(version).to_pylist()} & {*state.missing.to_pylist()})
        is_log_gone = statuses[version - needs.first] == LOG_GONE
        if missing or is_log_gone:
            lacking = (
                f"{format_count(len(missing), 'file')} that it needs {'is' if len(missing) == 1 else 'are'} "
                f"missing ({format_list(missing)})"
            )
            raise InvalidArgumentError(
                f"keep_versions has {version}, which can't be read even now: "
                f"{'the log lacks a commit that it needs' if is_log_gone else lacking}; leave it out."
            )
    return tuple(sorted({int(version) for version in versions}))


def _split(folder: Folder, needs: Needs, wanted: pa.Array, since: int) -> tuple[pa.Array, pa.Table]:
    """Return which files are deleted (bool), and the other files with their reason.

    `wanted` are the paths that the versions to keep need.
    """
    files, paths = folder.files, folder.files["path"].combine_chunks()
    live, young = needs.live["path"], needs.young_tombstones(since)["path"]
    # The first reason that applies to a file counts.
    reasons = {
        "live": _is_among(paths, live),
        "removed within the retention": _is_among(paths, young),
        "written within the retention": pc.greater_equal(files["modification_time"], since).combine_chunks(),
        NEEDED: _is_among(paths, wanted),
    }
    # Hadoop reads the text before a colon as a scheme, and VACUUM fails there: at a path with a colon in its
    # first part, and at a file whose checksum it looks for (ChecksumFileSystem.getChecksumFile).
    reasons["a colon in its name"] = pc.match_substring_regex(paths, "^[^/]*:|:[^/]*$")
    masks = [mask.to_numpy(zero_copy_only=False) for mask in reasons.values()]
    numbers = np.select(masks, range(len(masks)), default=-1)
    names = pa.array(list(reasons)).take(numbers[numbers >= 0])
    return pa.array(numbers < 0), files.filter(pa.array(numbers >= 0)).append_column("reason", names)


def _directories(folder: Folder, needs: Needs, since: int) -> pa.Table:
    """Return the folders that VACUUM lists as empty, and whether they hold nothing but such folders.

    VACUUM lists a folder as empty if no file below is older than the retention and no data file below is
    live or was removed within the retention (VacuumCommand.gc, steps 3 to 6). It deletes only folders that
    hold nothing, and so leaves those that it empties itself to the next VACUUM.
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
    # Inner folders first: each empty folder is one entry less in its parent.
    for path in sorted(listed, key=lambda path: -path.count("/")):
        outer = path.rpartition("/")[0]
        if not left[path] and outer in left:
            left[outer] -= 1
    # Hadoop can't name a folder with a colon in its first part; see `_split`.
    is_empty = [not left[path] and ":" not in path.partition("/")[0] for path in listed]
    return pa.table({"path": listed, "is_empty": is_empty}, _DIRECTORIES)


def _files_table(deleted: pa.Table, store: Store, state: Readability) -> pa.Table:
    """Make `Deletion.files`."""
    paths, needs = deleted["path"].combine_chunks(), state.needs
    since = latest_by_path(paths, needs.files, "removed")
    # Without a tombstone, or without a time in it, the time of the commit counts.
    times = latest_by_path(paths, needs.tombstones, "time")
    times = pc.if_else(pc.equal(times, 0), None, times)
    committed = pa.array([*state.times.tolist(), None]).take(pc.subtract(since, needs.first))
    known = pc.or_(since.is_valid(), _is_among(paths, needs.tombstones["path"]))
    has_changes = pc.any(pc.starts_with(paths, _CHANGE_DATA)).as_py()
    changes = _change_data_files(store) if has_changes else _NO_PATHS
    unknown = pc.if_else(_is_among(paths, changes), "change data", "orphan")
    return pa.table(
        {
            "path": paths,
            "size_bytes": deleted["size_bytes"],
            "reason": pc.if_else(known, "tombstone", unknown),
            "since_version": since,
            "removed_at": pc.coalesce(times, committed).cast(_STAMP),
            "modification_time": deleted["modification_time"].cast(_STAMP),
        }
    )


def _change_data_files(store: Store) -> pa.Array:
    """Return the change data files that commits in the log name, relative to the table."""
    commits = [file for file in list_log(store) if file.kind is Kind.COMMIT]
    paths: list[str] = []
    for file, text in zip(commits, store.at_once(partial(read_log_file, store), commits), strict=True):
        if b'"cdc"' in text:
            with reading(file.name):
                actions = (json.loads(line) for line in lines_of(text) if b'"cdc"' in line)
                paths += [action["cdc"]["path"] for action in actions if action.get("cdc")]
    return places(canonical_paths(pa.array(paths, pa.string())), store)


def _kept_table(store: Store, folder: Folder, kept: pa.Table) -> pa.Table:
    """Make `Deletion.kept`."""
    groups = kept.group_by("reason").aggregate([("size_bytes", "count"), ("size_bytes", "sum")])
    groups = groups.select(["reason", "size_bytes_count", "size_bytes_sum"]).rename_columns(_KEPT.names)
    number, size_bytes = count_files(store, folder.hidden)
    hidden = [{"reason": "hidden, such as the log", "num_files": number, "size_bytes": size_bytes}]
    both = [groups.cast(_KEPT), pa.Table.from_pylist(hidden if number else [], _KEPT)]
    return pa.concat_tables(both).sort_by([("size_bytes", "descending"), ("reason", "ascending")])


def _is_among(paths: pa.Array, *others: pa.Array | pa.ChunkedArray) -> pa.Array:
    chunks = [chunk for other in others for chunk in getattr(other, "chunks", [other])]
    return pc.is_in(paths, value_set=pa.concat_arrays(chunks or [_NO_PATHS]))
