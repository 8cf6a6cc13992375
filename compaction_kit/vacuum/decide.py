"""Decide as VACUUM does (VacuumCommand.gc) which files and folders are deleted; find the versions lost."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from compaction_kit.errors import InvalidArgumentError, UnsupportedTableError
from compaction_kit.handle import Handle
from compaction_kit.history.content import find_same_content
from compaction_kit.history.readable import BLOCKED, YES, FilesByVersion, latest_by_path
from compaction_kit.history.versions import read_log_expiry
from compaction_kit.log.listing import Kind
from compaction_kit.log.paths import deletion_vector_file, is_within, log_path
from compaction_kit.retention import (
    GUARD,
    IGNORE_RETAIN,
    LOG_PROPERTY,
    PROPERTY,
    cutoff,
    in_words,
    parse_retention,
)
from compaction_kit.text import format_count, format_list, parse_count
from compaction_kit.vacuum.run import ranges

NEEDED = "needed by a kept version"
TOMBSTONE, CHANGE_DATA, ORPHAN, VECTORS = "tombstone", "change data", "orphan", "deletion vectors"
_STAMP = pa.timestamp("ms", "UTC")
_NO_PATHS = pa.array([], pa.string())
_CHECK = "spark.databricks.delta.retentionDurationCheck.enabled"
_HOUR = timedelta(hours=1)
# Whether VACUUM commits its start and its end; by default only on VacuumCommandImpl.supportedFsForLogging.
_LOGGING = "spark.databricks.delta.vacuum.logging.enabled"
_LOGGED = ("wasbs", "wasbss", "abfs", "abfss", "adl", "gs", "file", "hdfs")


def vacuum_retention(handle: Handle, configured: timedelta, retention: str | None) -> timedelta:
    """Return how long VACUUM keeps removed files.

    Since 4.1 Delta ignores a retention shorter than `configured`, the table's own, but refuses 0; older
    releases refuse any shorter one (VacuumCommandImpl.checkRetentionPeriodSafety). If the session allows it,
    a shorter one is rounded up to whole hours, for RETAIN.
    """
    chosen = configured if retention is None else parse_retention(retention)
    if chosen >= configured:
        return chosen
    chosen = -(-chosen // _HOUR) * _HOUR
    if chosen and handle.goes_by(IGNORE_RETAIN):
        raise InvalidArgumentError(
            f'retention="{retention}" would be ignored: since 4.1 Delta uses the table\'s property '
            f"{PROPERTY} ({in_words(configured)}) unless RETAIN is 0; change the property, or set "
            f"{IGNORE_RETAIN} to false."
        )
    if (handle.conf(_CHECK) or "true").lower() != "false":
        raise InvalidArgumentError(
            f'retention="{retention}" is shorter than the {in_words(configured)} that the table keeps '
            f"removed files for, and Delta's check {_CHECK} refuses that: choose at least as long, or change "
            f"the table's property {PROPERTY}."
        )
    return min(chosen, configured)


def check_versions(needs: FilesByVersion, versions: Sequence[int] | None) -> tuple[int, ...]:
    """Return the versions to keep, sorted and without duplicates; refuse any that can't be read now."""
    try:
        given = sorted({parse_count(one, "version", 0) for one in (() if versions is None else versions)})
    except (TypeError, InvalidArgumentError):
        raise InvalidArgumentError(
            f"keep_versions={versions!r} is not a list of versions: give whole numbers, such as [3, 5]."
        ) from None
    in_log = needs.versions[needs.has_commit].tolist()
    for version in given:
        why = f"the latest is {needs.latest}" if version > needs.latest else "the log lacks commits for it"
        if version in in_log:
            if not (missing := needs.missing_of(version)):
                continue
            why = f"{format_count(len(missing), 'needed file')} missing ({format_list(missing)})"
        raise InvalidArgumentError(f"keep_versions={version} can't be read even now: {why}; leave it out.")
    return tuple(given)


def decide(needs: FilesByVersion, keep: Sequence[int], at: datetime, retention: timedelta) -> dict[str, Any]:
    """Return the files that a vacuum at a time deletes, and the versions lost, as fields of `VacuumPlan`.

    All files of the versions `keep` are kept, and files removed or written within the retention.

    Raises:
        UnsupportedTableError: The log names a file of the table's folder through a symbolic link.
    """
    _refuse_links(needs)
    files, young = needs.folder.files, needs.young_tombstones(at, retention)
    paths = files["path"].combine_chunks()
    old = pc.less(files["modification_time"], cutoff(at, retention)).combine_chunks()
    # The first reason that applies to a file counts.
    reasons = {
        "live, but a plain VACUUM deletes it": pc.and_(_is_among(paths, _unknown_to_vacuum(needs)), old),
        "live": _is_among(paths, needs.live.filter(needs.live["is_data"])["path"]),
        VECTORS: _is_among(paths, needs.live["path"]),
        "removed within the retention": _is_among(paths, young["path"]),
        "written within the retention": pc.invert(old),
        NEEDED: _is_among(paths, *map(needs.of_version, keep)),
        # Hadoop reads the text before a colon as a scheme, and VACUUM fails there: at a path with a colon in
        # its first part, and at a file whose checksum it looks for (ChecksumFileSystem.getChecksumFile).
        "a colon in its name": pc.match_substring_regex(paths, "^[^/]*:|:[^/]*$"),
    }
    masks = [mask.to_numpy(zero_copy_only=False) for mask in reasons.values()]
    numbers = np.select(masks, range(len(masks)), default=-1)
    names = pa.array(list(reasons)).take(numbers[numbers >= 0])
    kept = files.filter(pa.array(numbers >= 0)).append_column("reason", names).group_by("reason")
    counts = kept.aggregate([("size_bytes", "count"), ("size_bytes", "sum")])
    counts = counts.rename_columns(["reason", "num_files", "size_bytes"])
    deleted, folders = files.filter(pa.array(numbers < 0)).sort_by("path"), _empty_directories(needs, young)
    gone = deleted["path"].combine_chunks()
    return {
        "files": _deleted(deleted, needs),
        "empty_directories": folders,
        "kept": counts.sort_by([("size_bytes", "descending"), ("reason", "ascending")]),
        "storage": _storage(files, needs, gone),
        **_cost(needs, gone, keep, at, is_empty=not len(gone) and not folders),
    }


def _cost(
    needs: FilesByVersion, deleted: pa.Array, keep: Sequence[int], at: datetime, is_empty: bool
) -> dict[str, Any]:
    """Return which versions are lost by deleting paths, where their content survives, and warnings."""
    # After VACUUM's own commits, the planned version isn't the latest, and Delta's guard may refuse it.
    logs = needs.handle.conf(_LOGGING) or str(needs.handle.uri.partition(":")[0] in _LOGGED)
    commits = not is_empty and logs.lower() != "false"
    before, after = needs.statuses(), needs.statuses(deleted, superseded=commits)
    # On a later day, the guard refuses more versions, with or without VACUUM.
    is_later = at > datetime.now(UTC)
    then = needs.statuses(deleted, superseded=commits, at=at) if is_later else after
    lost = needs.versions[(before == YES) & (after != YES)].tolist()
    survives_as, survives_by = dict[int, int](), dict[int, str]()
    if lost:
        content = find_same_content(needs)
        groups = dict(zip(needs.versions.tolist(), content.groups.tolist(), strict=True))
        instead = {groups[version]: version for version in needs.versions[then == YES].tolist()}
        if commits and before[-1] == YES:
            # VACUUM's own commits have the content of the latest version.
            instead.setdefault(groups[needs.latest], needs.latest + 2)
        survives_as = {version: instead[groups[version]] for version in lost if groups[version] in instead}
        for version, other in survives_as.items():
            survives_by[version] = content.evidence(version, min(other, needs.latest)) or ""
    times = pa.array(needs.times, mask=~needs.has_commit).cast(pa.timestamp("ms", "UTC"))
    versions = {"version": needs.versions, "timestamp": times, "readable": before, "readable_after": after}
    return {
        "versions": pa.table(versions),
        "versions_lost": lost,
        "content_survives_as": survives_as,
        "content_survives_by": survives_by,
        "warning": _warning(needs, keep, then, at),
    }


def _warning(needs: FilesByVersion, keep: Sequence[int], after: np.ndarray, at: datetime) -> str:
    blocked = [version for version in keep if after[version - needs.first] == BLOCKED]
    expired = list[int]()
    cleans = needs.snapshot.metadata.configuration.get("delta.enableExpiredLogCleanup", "true")
    if keep and cleans.lower() == "true":
        log = read_log_expiry(needs.handle).filter(pc.field("kind") == Kind.COMMIT.value).to_pylist()
        expired = sorted({row["version"] for row in log if row["expires"] <= at}.intersection(keep))
    warnings = {
        f"Delta refuses kept versions older than the retention unless {GUARD} is false": blocked,
        "When Delta next writes a checkpoint, perhaps after VACUUM's own commits, it may delete commits of "
        f"kept versions older than {LOG_PROPERTY}, unless you set that to a longer time first": expired,
    }
    return " ".join(f"{warning}: {ranges(of)}." for warning, of in warnings.items() if of)


def _refuse_links(needs: FilesByVersion) -> None:
    """Refuse paths through a link into the table's folder, where VACUUM would treat the file as an orphan."""
    store = needs.snapshot.store
    if not store.is_local:
        return
    named = pa.chunked_array([*needs.files["path"].chunks, *needs.tombstones["path"].chunks], pa.string())
    for path in pc.unique(named.filter(pc.starts_with(named, "/"))).to_pylist():
        if is_within(store.real(path), store.root):
            raise UnsupportedTableError(
                f"The log names the file {path}, which leads through a symbolic link into the table's own "
                f"folder {store.root} and is not followed: rewrite the file, as by OPTIMIZE, and vacuum once "
                "the log no longer names it."
            )


def _unknown_to_vacuum(needs: FilesByVersion) -> pa.Array:
    """Return live files that Delta treats as orphans: its paths are encoded, and relative for vectors."""
    live, store = needs.snapshot.live, needs.snapshot.store
    named = pa.table([live["path"], needs.live["path"][: len(live)]], ["log", "place"])
    odd = [pair.values() for pair in named.filter(pc.field("log") != pc.field("place")).to_pylist()]
    found = [place for path, place in odd if not path.replace(":", "%3A").endswith(log_path(place))]
    ids = pc.unique(live["deletion_vector_id"].filter(pc.starts_with(live["deletion_vector_id"], "p")))
    return pa.array([*found, *(deletion_vector_file(one, store) for one in ids.to_pylist())], pa.string())


def _storage(on_disk: pa.Table, needs: FilesByVersion, deleted: pa.Array) -> pa.Table:
    paths, sizes = on_disk["path"].combine_chunks(), on_disk["size_bytes"]
    live = _is_among(paths, needs.live["path"])
    data = _is_among(paths, needs.live.filter(needs.live["is_data"])["path"])
    known = pc.or_(live, _is_among(paths, needs.files["path"], needs.tombstones["path"]))
    vectors = pc.and_not(live, data)
    kinds = {"live": data} | ({VECTORS: vectors} if pc.any(vectors).as_py() else {})
    kinds |= {"tombstoned": pc.and_not(known, live), "orphaned": pc.invert(known)}
    is_kept = pc.invert(_is_among(paths, deleted))

    def total(mask: pa.Array) -> int:
        return pc.sum(sizes.filter(mask)).as_py() or 0

    after = [total(pc.and_(mask, is_kept)) for mask in kinds.values()]
    now = [*map(total, kinds.values())]
    return pa.table({"kind": [*kinds], "size_bytes": now, "size_bytes_after": after})


def _deleted(files: pa.Table, needs: FilesByVersion) -> pa.Table:
    paths = files["path"].combine_chunks()
    since = latest_by_path(paths, needs.files, "removed")
    # Without a tombstone, or without a time in it, the time of the commit counts.
    times = latest_by_path(paths, needs.tombstones, "time")
    times = pc.if_else(pc.equal(times, 0), None, times)
    committed = pa.array([*needs.times.tolist(), None]).take(pc.subtract(since, needs.first))
    known = pc.or_(since.is_valid(), _is_among(paths, needs.tombstones["path"]))
    unknown = pc.if_else(pc.starts_with(paths, "_change_data/"), CHANGE_DATA, ORPHAN)
    return pa.table(
        {
            "path": paths,
            "size_bytes": files["size_bytes"],
            "reason": pc.if_else(known, TOMBSTONE, unknown),
            "since_version": since,
            "removed_at": pc.coalesce(times, committed).cast(_STAMP),
            "modification_time": files["modification_time"].cast(_STAMP),
        }
    )


def _empty_directories(needs: FilesByVersion, young: pa.Table) -> tuple[str, ...]:
    """Return the empty folders that no kept data file names.

    VACUUM lists other folders too. It deletes a folder of empty folders only if these are deleted first, and
    the order isn't certain (VacuumCommand.gc), so it gets only the empty ones.
    """
    occupied: set[str] = set()
    for files in (needs.live, young):
        folders = pc.replace_substring_regex(files["path"].filter(files["is_data"]), "/?[^/]*$", "")
        for path in pc.unique(folders).to_pylist():
            while path and path not in occupied:
                occupied.add(path)
                path = path.rpartition("/")[0]
    empty = {path for path, number in needs.folder.directories.items() if not number} - occupied
    # Hadoop can't name a folder with a colon in its first part.
    return tuple(sorted(path for path in empty if ":" not in path.partition("/")[0]))


def _is_among(paths: pa.Array, *others: pa.Array | pa.ChunkedArray) -> pa.Array:
    chunks = [chunk for other in others for chunk in getattr(other, "chunks", [other])]
    return pc.is_in(paths, value_set=pa.concat_arrays(chunks or [_NO_PATHS]))
