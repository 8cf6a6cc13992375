"""Go back to a version: what RESTORE would do, and do it."""

import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow.compute as pc
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from compaction_kit.errors import InvalidArgumentError, RunCancelled, StalePlanError
from compaction_kit.execute.commits import restore, settings
from compaction_kit.execute.failures import stale, translate
from compaction_kit.execute.jobs import WorkCancelled, run_cancellable
from compaction_kit.history.diff import ADDED, REMOVED, Diff, diff_versions
from compaction_kit.history.readable import BLOCKED, LOG_GONE, read_readability
from compaction_kit.log import TransactionLog
from compaction_kit.log.listing import whole_version
from compaction_kit.retention import GUARD, PROPERTY
from compaction_kit.session import quiet_errors
from compaction_kit.text import as_text, format_count, format_size, shown

_MOST_LISTED = 5


@dataclass(frozen=True)
class RestoreResult:
    """What a restore did, by its commit.

    Attributes:
        version: The one that it committed.
        restored: The version that the table has the content of again.
        as_planned: Whether exactly the planned files were added and removed.
        seconds: How long it took.
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
        """The outcome for people: name and value."""
        return {
            "version": f"{self.version}, with the content of {self.restored}",
            "files": f"{self.num_files_added:,} added back, {self.num_files_removed:,} removed, "
            f"{'as planned' if self.as_planned else 'NOT as planned'}",
            "bytes": f"{format_size(self.bytes_added)} added back, {format_size(self.bytes_removed)} removed",
            "seconds": f"{self.seconds:.1f}",
        }

    def _repr_html_(self) -> str:
        return shown(self.facts())

    def __repr__(self) -> str:
        return f"RestoreResult(\n{as_text(self.facts())}\n)"


@dataclass(frozen=True)
class RestorePlan:
    """What RESTORE would do to the table; nothing is changed until `run()`.

    Attributes:
        version: The version that the table is at.
        target: The version to restore.
        diff: What would be added back and removed.
        missing: The paths that the target needs, those of deletion vectors too, and that aren't on disk.
        is_blocked: Whether Delta refuses the target, for it is older than the retention of deleted files.
    """

    version: int
    target: int
    diff: Diff
    missing: tuple[str, ...]
    is_blocked: bool
    runner: Callable[["RestorePlan"], RestoreResult] = field(repr=False)

    def explain(self) -> str:
        """What would happen, a sentence a line."""
        diff = self.diff
        lines = [
            f"RESTORE to version {self.target} would add back {format_count(diff.num_files_added, 'file')} "
            f"({format_size(diff.bytes_added)}) and remove {format_count(diff.num_files_removed, 'file')} "
            f"({format_size(diff.bytes_removed)}), as version {self.version + 1}; "
            f"version {self.version} stays readable as long as its files do.",
            self._streams(),
        ]
        if self.is_blocked:
            lines.append(_blocked(self))
        if self.missing:
            lines.append(_lacking(self))
        return "\n".join(lines)

    def run(self) -> RestoreResult:
        """Restore the version, by Delta's RESTORE.

        Raises:
            StalePlanError: The table has changed since the plan was made.
            InvalidArgumentError: Files that it needs are gone, Delta's guard blocks it, or the table
                is at that version already.
            ConflictError: Another writer committed meanwhile.
            RunFailedError: Spark or Delta gave up; the message says what is committed.
            RunCancelled: Ctrl-C was pressed; the message says the same.
        """
        return self.runner(self)

    def facts(self) -> dict[str, str]:
        """The plan for people: name and value."""
        diff = self.diff
        can = "no" if self.missing or self.is_blocked else "yes"
        return {
            "restore": f"version {self.target}, from version {self.version}",
            "adds back": f"{format_count(diff.num_files_added, 'file')}, {format_size(diff.bytes_added)}",
            "removes": f"{format_count(diff.num_files_removed, 'file')}, {format_size(diff.bytes_removed)}",
            "streams": self._streams(),
            "can run": can if can == "yes" else f"no: {_lacking(self) if self.missing else _blocked(self)}",
        }

    def _streams(self) -> str:
        diff = self.diff
        if not diff.num_files_added and not diff.num_files_removed:
            return "A stream that reads the table sees nothing of it."
        again = f"gets the rows of {format_count(diff.num_files_added, 'file')} once more"
        fails = "fails at the commit unless it is set to skipChangeCommits, which skips it"
        if not diff.num_files_removed:
            return f"A stream that reads the table {again}: RESTORE adds them as new data."
        instead = again if diff.num_files_added else "goes on, though what it has passed on is not taken back"
        return f"A stream that reads the table {fails}; with ignoreChanges it {instead}."

    def _repr_html_(self) -> str:
        return shown(self.facts())

    def __repr__(self) -> str:
        return f"RestorePlan(\n{as_text(self.facts())}\n)"


def plan_restore(
    table: Path,
    log: TransactionLog,
    get_spark: Callable[[], SparkSession],
    version: int,
    guard: bool = True,
) -> RestorePlan:
    """Plan what RESTORE to a version would do now (RestoreTableCommand).

    Args:
        table: The table's folder.
        log: Its log.
        get_spark: Gives the session to run it with.
        version: The version to restore.
        guard: Whether the session has Delta's guard on.

    Raises:
        InvalidArgumentError: The version can't be read back, or is the latest.
    """
    latest = log.snapshot()
    log.segment(whole_version(version))
    if version == latest.version:
        raise InvalidArgumentError(
            f"version={version} is the latest, so there is nothing to restore: choose an earlier one."
        )
    diff = diff_versions(log, latest.version, version)
    state = read_readability(table, log, guard)
    status = state.statuses()[state.needs.versions == version]
    if LOG_GONE in status:
        raise InvalidArgumentError(
            f"version={version} can't be restored: its commit is gone from the log; choose a version that "
            "versions() calls readable."
        )
    needed = state.needs.of_version(version)
    missing = pc.unique(needed.filter(pc.is_in(needed, value_set=state.missing))).to_pylist()

    def run(plan: RestorePlan) -> RestoreResult:
        return _run(table, log, get_spark, plan, guard)

    return RestorePlan(latest.version, version, diff, tuple(sorted(missing)), BLOCKED in status, run)


def _run(
    table: Path, log: TransactionLog, get_spark: Callable[[], SparkSession], plan: RestorePlan, guard: bool
) -> RestoreResult:
    start, tag = time.monotonic(), uuid.uuid4().hex[:8]
    spark = get_spark()
    try:
        # Other runs may have held the session until now.
        with quiet_errors(), settings(spark, "restore", tag):
            _check(plan, plan_restore(table, log, get_spark, plan.target, guard))
            run_cancellable(spark, lambda: restore(spark, table, plan.target), lambda _: None)
    except (PySparkException, Py4JError) as error:
        raise translate(error, table, _outcome(log, plan, tag)) from error
    except (WorkCancelled, KeyboardInterrupt) as error:
        told = f"The restore was cancelled: {_outcome(log, plan, tag)}."
        raise RunCancelled(told) from error.__cause__ or error
    return _result(log, plan, tag, time.monotonic() - start)


def _outcome(log: TransactionLog, plan: RestorePlan, tag: str) -> str:
    commits = _commits(log, tag)
    if not commits:
        return "nothing was committed, the table is as it was"
    return f"version {commits[0]['version']} is committed, with the content of version {plan.target}"


def _commits(log: TransactionLog, tag: str) -> list[dict[str, Any]]:
    """The rows of the ledger of a restore's commits."""
    commits = log.commits()
    told = pc.fill_null(commits["user_metadata"], "")
    return commits.filter(pc.ends_with(told, tag)).to_pylist()


def _check(plan: RestorePlan, now: RestorePlan) -> None:
    """Refuse what can't be restored, and what isn't any more what the plan was made for."""
    if now.version != plan.version:
        raise stale(plan, now.version)
    if not now.diff.files.equals(plan.diff.files):
        raise StalePlanError(
            f"The table was made anew since the plan was made, and version {plan.version} is another now: "
            "make a new plan; nothing was changed."
        )
    if now.missing or now.is_blocked:
        raise InvalidArgumentError(f"{_lacking(now) if now.missing else _blocked(now)} Nothing was changed.")


def _result(log: TransactionLog, plan: RestorePlan, tag: str, seconds: float) -> RestoreResult:
    row = _commits(log, tag)[0]
    actions = log.actions(row["version"])
    as_planned = all(
        sorted(actions.filter(pc.equal(actions["action"], kind))["path"].to_pylist())
        == sorted(plan.diff.paths(change))
        for kind, change in (("add", ADDED), ("remove", REMOVED))
    )
    return RestoreResult(
        version=row["version"],
        restored=plan.target,
        num_files_added=row["num_added"],
        num_files_removed=row["num_removed"],
        bytes_added=row["bytes_added"],
        bytes_removed=row["bytes_removed"],
        as_planned=as_planned,
        seconds=seconds,
    )


def _lacking(plan: RestorePlan) -> str:
    shown = ", ".join(plan.missing[:_MOST_LISTED])
    more = len(plan.missing) - _MOST_LISTED
    rest = f" and {more:,} more" if more > 0 else ""
    return (
        f"version={plan.target} can't be restored: {format_count(len(plan.missing), 'file')} that it needs "
        f"{'is' if len(plan.missing) == 1 else 'are'} gone ({shown}{rest}); choose a version that versions() "
        "calls readable, or put the files back."
    )


def _blocked(plan: RestorePlan) -> str:
    return (
        f"version={plan.target} can't be restored: Delta blocks versions older than {PROPERTY}; choose a "
        f"later one, lengthen that, or set {GUARD} to false in the session if its files are all there."
    )
