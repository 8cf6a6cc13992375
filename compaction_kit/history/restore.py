"""Plan and run RESTORE to an earlier version."""

import json
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import SparkSession

from compaction_kit.compat import has_jvm
from compaction_kit.errors import (
    CompactionKitError,
    ConflictError,
    InvalidArgumentError,
    RunCancelled,
    StalePlanError,
)
from compaction_kit.execute.commits import Commit, commits_of, restore, restored
from compaction_kit.execute.delta import commit_restore
from compaction_kit.execute.failures import SPARK_FAILURES, translate
from compaction_kit.execute.jobs import WorkCancelled, run_cancellable
from compaction_kit.execute.proof import ANY_VERSION
from compaction_kit.execute.work import Progress
from compaction_kit.handle import Handle
from compaction_kit.history.diff import ADDED, OTHER_COLUMNS, REMOVED, Diff, diff_versions
from compaction_kit.history.readable import BLOCKED, LOG_GONE, FilesByVersion, read_files_by_version
from compaction_kit.log.paths import canonical_paths
from compaction_kit.log.protocol import HIGH_WATER_MARK, columns_of
from compaction_kit.log.snapshot import file_keys, without
from compaction_kit.records import Plan, Record
from compaction_kit.retention import GUARD, PROPERTY
from compaction_kit.session import quiet_errors
from compaction_kit.text import (
    format_count,
    format_files,
    format_list,
    format_size,
    joined_lines,
    parse_count,
)

# RESTORE joins the files of two versions; for fewer files than this, reading them here is faster.
_MANY_FILES = 100_000
# The fields of an add action that RESTORE's remove action repeats (AddFile.removeWithTimestamp).
_REPEATED = (
    *("path", "partitionValues", "size", "tags", "deletionVector"),
    *("baseRowId", "defaultRowCommitVersion", "stats"),
)


@dataclass(frozen=True, repr=False)
class RestoreResult(Record):
    """The result of a restore: its commit `version` has the content of the earlier version `restored`.

    `as_planned` says whether exactly the planned files were added and removed.
    """

    version: int
    restored: int
    num_files_added: int
    num_files_removed: int
    bytes_added: int
    bytes_removed: int
    as_planned: bool
    seconds: float

    def facts(self) -> dict[str, str]:
        """Return the outcome as readable text: names and values."""
        return {
            "version": f"{self.version}, with the content of {self.restored}",
            "files": f"{self.num_files_added:,} added back, {self.num_files_removed:,} removed, "
            f"{'as planned' if self.as_planned else 'NOT as planned'}",
            "bytes": f"{format_size(self.bytes_added)} added back, {format_size(self.bytes_removed)} removed",
            "seconds": f"{self.seconds:.1f}",
        }


@dataclass(frozen=True, repr=False)
class RestorePlan(Plan):
    """What RESTORE would do to the table; only `run()` changes it.

    Attributes:
        handle: The table.
        version: The latest version.
        target: The version to restore.
        diff: The files that would be added back and removed.
        missing: The paths of data files and deletion vectors that the target needs and that aren't on disk.
        is_blocked: Whether the target is older than the retention of deleted files, so that Delta refuses it.
            False if it has the same rows and VACUUM keeps its files, as in the undo of a compaction.
        changes_metadata: Whether columns or properties differ, which RESTORE also sets back.
    """

    handle: Handle = field(repr=False, compare=False)
    version: int
    target: int
    diff: Diff
    missing: tuple[str, ...]
    is_blocked: bool
    changes_metadata: bool

    @property
    def is_empty(self) -> bool:
        """Whether both versions have the same files; even then `run()` commits a version."""
        return not len(self.diff.files)

    @property
    def can_run(self) -> bool:
        """Whether all files are there and Delta doesn't refuse; if not, `explain()` says why."""
        return self._obstacle() is None

    def explain(self) -> str:
        """Explain what would happen, one sentence per line: first which other commits it undoes."""
        diff, changes, until = self.diff, list[str](), None
        if diff.num_files_added:
            changes.append(f"add back {format_files(diff.num_files_added, diff.bytes_added)}")
        if diff.num_files_removed:
            changes.append(f"remove {format_files(diff.num_files_removed, diff.bytes_removed)}")
            until = f"Version {self.version} can be read until VACUUM deletes its files."
        start = f"RESTORE to version {self.target}" if diff.same_content else "It"
        does = f"{start} would {' and '.join(changes)}, as version {self.version + 1}."
        lines = [self._rows(), does, until, self._streams()]
        if self.is_empty:
            lines = [
                f"Version {self.target} has the same files as version {self.version}: RESTORE would change "
                f"no file, and commit version {self.version + 1}."
            ]
        if self.changes_metadata:
            lines.append(f"It also sets the columns and properties back to those of version {self.target}.")
        return joined_lines([*lines, self._obstacle()])

    @quiet_errors()
    def run(self, progress: bool | Callable[[Progress], object] | None = None) -> RestoreResult:
        """Restore the version by Delta's RESTORE.

        Args:
            progress: A callable that takes a `Progress` whose fraction is 0; an exception that it raises
                cancels the run. True shows no bar.

        Raises:
            StalePlanError: The table has changed since the plan was made.
            InvalidArgumentError: Files that the version needs are missing, or Delta's guard blocks it.
            ConflictError: Another writer committed at the same time; the message says what was committed.
            RunFailedError, RunCancelled: The message says what was committed.
        """
        start, tag, handle = time.monotonic(), uuid.uuid4().hex[:8], self.handle
        handle.warn_of_commit_risk()

        def look() -> None:
            if callable(progress):
                progress(Progress("Restoring", 0.0, 0, 0, time.monotonic() - start))

        def commit(spark: SparkSession) -> None:
            _check(self)
            run_cancellable(spark, lambda: _commit(self, spark), look)

        try:
            # `_check` applies the guard: the undo of a compaction does no harm, however old the version is.
            done = restored(handle, "restore", tag, ANY_VERSION, commit)
        except (*SPARK_FAILURES, OSError) as error:
            if isinstance(error, CompactionKitError):
                raise
            raise translate(error, handle.store.root, _outcome(self, tag)) from None
        except (WorkCancelled, KeyboardInterrupt):
            raise RunCancelled(f"The restore was cancelled: {_outcome(self, tag)}.") from None
        if (undone := done.read_version) != self.version:
            raise ConflictError(
                f"Another writer committed meanwhile, up to version {undone}, and this restore, version "
                f"{done.version}, undid that too: to bring it back, run plan_restore({undone})."
            )
        return _result(self, done, time.monotonic() - start)

    summary = explain

    def _rows(self) -> str:
        if self.diff.same_content:
            return f"The rows stay the same: {self.diff.same_content_by}."
        commits = self.diff.commits.filter(self.diff.commits["data_change"]).to_pylist()
        named = [(str(commit["version"]), commit["operation"]) for commit in commits]
        undone = format_list([f"{version} ({by})" if by else version for version, by in named])
        versions = "version" if len(commits) == 1 else "versions"
        which = f"what {versions} {undone} did" if commits else "commits that say they change no data"
        # The last line names other columns, which commits without changed data may have made.
        more = f": {self.diff.difference}" if self.diff.difference not in (None, OTHER_COLUMNS) else ""
        return f"RESTORE to version {self.target} would undo {which}{more}."

    def _streams(self) -> str:
        again = f"reads the rows of {format_count(self.diff.num_files_added, 'file')} again"
        if not self.diff.num_files_removed:
            return f"A stream that reads the table {again}: RESTORE adds them as new data."
        instead = again if self.diff.num_files_added else "continues"
        return (
            "A stream that reads the table fails at this commit. With the option skipChangeCommits it skips "
            f"the commit, with ignoreChanges it {instead}; rows that it has delivered stay delivered."
        )

    def _obstacle(self) -> str | None:
        if self.missing:
            number, are = format_count(len(self.missing), "file"), "is" if len(self.missing) == 1 else "are"
            return (
                f"version={self.target} can't be restored: {number} that it needs {are} missing "
                f"({format_list(self.missing)}); choose a version that can be read, or put the files back."
            )
        if self.is_blocked:
            return (
                f"version={self.target} can't be restored: Delta blocks versions older than {PROPERTY}; "
                f"choose a later version, increase that property, or, as all files of the version exist, set "
                f"{GUARD} to false in the session."
            )
        return None


def plan_restore(handle: Handle, version: int) -> RestorePlan:
    """Plan RESTORE to a version (RestoreTableCommand).

    Raises:
        InvalidArgumentError: The version can't be read from the log, or is the latest.

    Examples:
        >>> plan = ck.open_table("data/flights").plan_restore(7)
        >>> print(plan.explain())
        RESTORE to version 7 would undo what versions 8 (WRITE), 9 (WRITE), ...
        It would remove 1,074 files (... in total), as version 366.
        Version 365 can be read until VACUUM deletes its files.
        A stream that reads the table fails at this commit. With the option skipChangeCommits it skips ...
    """
    now = handle.listed()
    latest = now.log.snapshot().version
    now.log.segment(parse_count(version, "version", 0))
    if version == latest:
        raise InvalidArgumentError(
            f"version={version} is the latest, so there is nothing to restore: choose an earlier one."
        )
    diff = diff_versions(now, latest, version)
    needs = read_files_by_version(now)
    status = needs.statuses()[needs.versions == version]
    if version < needs.first or LOG_GONE in status:
        raise InvalidArgumentError(
            f"version={version} can't be restored: the log lacks a commit that it needs; choose a version "
            "that can be read."
        )
    metadata = (now.log.snapshot(one).metadata for one in (latest, version))
    # RESTORE keeps the high-water marks of identity columns (IdentityColumn, RestoreTableCommand).
    new, old = (replace(one, id="", schema=columns_of(one.schema, [HIGH_WATER_MARK])) for one in metadata)
    return RestorePlan(
        handle,
        latest,
        version,
        diff,
        tuple(needs.missing_of(version)),
        is_blocked=BLOCKED in status and not (diff.same_content and _is_kept_by_vacuum(needs, version)),
        changes_metadata=new != old,
    )


def _is_kept_by_vacuum(needs: FilesByVersion, version: int) -> bool:
    """Return whether a version's files are live, or were removed within the table's retention."""
    young = needs.young_tombstones(datetime.now(UTC), needs.retention)["path"]
    kept = pa.chunked_array([*young.chunks, *needs.live["path"].chunks], pa.string())
    return pc.all(pc.is_in(needs.of_version(version), value_set=kept)).as_py() is not False


def _check(plan: RestorePlan) -> None:
    now = plan_restore(plan.handle, plan.target)
    if now.version != plan.version or not now.diff.files.equals(plan.diff.files):
        raise StalePlanError.at(plan.version, now.version)
    if obstacle := now._obstacle():
        raise InvalidArgumentError(f"{obstacle} Nothing was changed.")


def _commit(plan: RestorePlan, spark: SparkSession) -> None:
    """Commit what RESTORE commits, without its joins if both versions have the same metadata."""
    handle = plan.handle
    old, new = map(handle.log.listed().snapshot, (plan.target, plan.version))
    if has_jvm(spark) and len(old.live) + len(new.live) < _MANY_FILES:
        sides = (old, new), (new, old)
        adds, gone = (one.adds(without(one.live, file_keys(other.live))) for one, other in sides)
        removed: dict[str, Any] = {"deletionTimestamp": int(time.time() * 1000), "dataChange": True}
        removed["extendedFileMetadata"] = True
        metrics = {
            "numRestoredFiles": len(adds),
            "restoredFilesSize": plan.diff.bytes_added,
            "numRemovedFiles": len(gone),
            "removedFilesSize": plan.diff.bytes_removed,
            "numOfFilesAfterRestore": len(old.live),
            "tableSizeAfterRestore": pc.sum(old.live["size_bytes"]).as_py() or 0,
        }
        # Stats that a checkpoint has only as structs can't be repeated here: only Delta can write them as
        # text.
        kept = *_REPEATED, "modificationTime", "clusteringProvider"
        actions = [{"add": {name: add.get(name) for name in kept} | {"dataChange": True}} for add in adds]
        actions += [{"remove": removed | {name: add.get(name) for name in _REPEATED}} for add in gone]
        is_text = not any("stats_parsed" in add and "stats" not in add for add in adds + gone)
        versions = plan.version, plan.target
        if is_text and commit_restore(spark, handle.uri, versions, map(json.dumps, actions), metrics):
            return
    restore(spark, handle.uri, plan.target)


def _outcome(plan: RestorePlan, tag: str) -> str:
    commits = commits_of(plan.handle.store, tag, plan.version)
    if not commits:
        return "nothing was committed, the table is as it was"
    return f"version {commits[0].version} is committed, with the content of version {plan.target}"


def _result(plan: RestorePlan, commit: Commit, seconds: float) -> RestoreResult:
    as_planned = all(
        sorted(canonical_paths(pa.array([file["path"] for file in files], pa.string())).to_pylist())
        == sorted(plan.diff.paths(change))
        for files, change in ((commit.adds, ADDED), (commit.removes, REMOVED))
    )
    return RestoreResult(
        version=commit.version,
        restored=plan.target,
        num_files_added=len(commit.adds),
        num_files_removed=len(commit.removes),
        bytes_added=sum(add["size"] for add in commit.adds),
        bytes_removed=sum(remove.get("size") or 0 for remove in commit.removes),
        as_planned=as_planned,
        seconds=seconds,
    )
