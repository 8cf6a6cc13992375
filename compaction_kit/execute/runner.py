"""Run a plan: check, compact, read back from the log what was done, prove it."""

import os
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from compaction_kit.errors import (
    CompactionKitError,
    ConflictError,
    ReadOnlyTableError,
    RunCancelled,
    StalePlanError,
)
from compaction_kit.execute.arrow import NoBinFits, run_arrow
from compaction_kit.execute.choice import Choice, check_strategy, choose
from compaction_kit.execute.commits import Commit, commits_of, unnamed_files
from compaction_kit.execute.failures import BinFailed, ContentDiffers, TableChanged, stale, translate
from compaction_kit.execute.jobs import WorkCancelled, session_confs
from compaction_kit.execute.jvm import check_jvm
from compaction_kit.execute.optimize import run_optimize
from compaction_kit.execute.progress import ProgressBar, Report
from compaction_kit.execute.proof import ANY_VERSION, prove, settle, unproved
from compaction_kit.execute.result import BATCHES, CompactionResult
from compaction_kit.execute.rewrite import rewritten_paths, run_rewrite
from compaction_kit.execute.work import Options, Recorder, Work
from compaction_kit.handle import Handle
from compaction_kit.log.names import LOG_FOLDER
from compaction_kit.log.snapshot import Snapshot
from compaction_kit.plan import BinPlan
from compaction_kit.query import Query
from compaction_kit.reads import ReadComparison, measure_reads
from compaction_kit.session import quiet_errors

# Each rewrites and commits, and returns why it left bins to others, by their number.
STRATEGIES: dict[str, Callable[[Work], Mapping[int, str]]] = {
    "optimize": run_optimize,
    "rewrite": run_rewrite,
    "arrow": run_arrow,
}
_NO_JVM = "a run could be neither watched nor proved: use a session that has one; nothing was changed."
_FAILURES = (PySparkException, Py4JError, BinFailed, TableChanged, ContentDiffers, OSError)


def run_plan(
    handle: Handle,
    plan: BinPlan,
    strategy: str = "auto",
    verify: bool = True,
    progress: bool | Report | None = None,
    max_threads: int | None = None,
    repartition: bool | None = None,
) -> CompactionResult:
    """Do what a plan says; see `BinPlan.run` for the arguments and errors."""
    options = Options(max_threads, repartition)
    check_strategy(plan, strategy, options)
    left = _what_is_left(handle, plan)
    if left.is_empty:
        return CompactionResult.nothing(handle.log.snapshot().live["size_bytes"].to_numpy())
    _check_writable(handle.path)
    bar = ProgressBar() if progress is True else None
    report = bar or (progress if callable(progress) else _silent)
    try:
        with quiet_errors():
            check_jvm(handle.spark, _NO_JVM)
            record = Recorder(report, left, verify)
            work = Work(handle, left, options, record, verify, is_rest=left is not plan)
            return _run(work, strategy)
    finally:
        if bar is not None:
            bar.close()


def _run(work: Work, strategy: str) -> CompactionResult:
    since = work.log.segment().version
    choice = choose(work.spark, work.plan, strategy, work.options)
    is_written = False
    try:
        choice, refusals = _rewrite(work, choice, strategy)
        is_written = True
        commits = commits_of(work.table, work.plan.id, since)
        prove(work, unproved(work, commits))
    except BaseException as error:
        _fail(work, since, error, is_written)
        raise
    if not commits and work.record.conflicts:
        raise ConflictError(
            "Another writer changed files of every bin of the plan meanwhile: make a new plan; nothing was "
            "committed, the table is as that writer left it."
        )
    work.record.done()
    return _result(work, commits, choice, refusals)


def _rewrite(work: Work, choice: Choice, strategy: str) -> tuple[Choice, Mapping[int, str]]:
    """Rewrite and commit; by what, and why bins were left to others."""
    try:
        return choice, STRATEGIES[choice.strategy](work)
    except NoBinFits as error:
        # Some of it shows in the files alone, after the choice.
        if strategy != "auto" or not work.plan.is_optimize:
            raise
        return Choice("optimize", f"optimize, for {error.reason}"), run_optimize(work)


def _fail(work: Work, since: int, error: BaseException, is_written: bool) -> None:
    """Prove or undo what was committed, and say in a sentence what became of the table."""
    outcome, left = _what_is_done(work, since, error, is_written)
    if _is_cancelled(error):
        raise RunCancelled(f"The run was cancelled: {outcome}{left}.") from error.__cause__ or error
    if isinstance(error, _FAILURES):
        told = translate(error, work.table, outcome)
        raise (type(told)(f"{str(told).rstrip('.')}{left}.") if left else told) from error
    if not isinstance(error, CompactionKitError):
        error.add_note(f"{outcome}{left}")


def _what_is_done(work: Work, since: int, error: BaseException, is_written: bool) -> tuple[str, str]:
    """What stands of a run, and what files it left, in words."""
    if not (work.table / LOG_FOLDER).is_dir():
        return "the table's folder is gone", ""
    try:
        commits = commits_of(work.table, work.plan.id, since)
        stands = _what_stands(work, commits, error, is_written)
        return stands, unnamed_files(work.table, work.log, work.record.start)
    except CompactionKitError as unreadable:
        return f"what is committed can't be told, for the log can't be read ({unreadable})", ""


def _what_stands(work: Work, commits: Sequence[Commit], error: BaseException, is_written: bool) -> str:
    differs = isinstance(error, ContentDiffers)
    doubtful = unproved(work, commits, differs)
    if doubtful:
        undone = settle(work, doubtful, is_written or differs, _is_cancelled(error))
        if undone and len(doubtful) < len(commits):
            proved = commits[: -len(doubtful)]
            return f"version {_versions(proved)} is committed and proved, of the rest {undone}"
        if undone:
            return undone
    if not commits:
        return "nothing was committed, the table is as it was"
    if is_written or work.plan.without(_removed(commits)).is_empty:
        same = ", and its content is the same" if work.verify else ""
        return f"the compaction is committed, as version {_versions(commits)}{same}"
    return (
        f"{len(commits)} of {work.plan.num_batches} batches are committed, as version {_versions(commits)}; "
        "run the plan again to go on"
    )


def _is_cancelled(error: BaseException) -> bool:
    """Whether it is what the caller's own code raised to cancel, or Ctrl-C."""
    return isinstance(error, (WorkCancelled, KeyboardInterrupt))


def _versions(commits: Sequence[Commit]) -> str:
    return ", ".join(str(commit.version) for commit in commits)


def _removed(commits: Sequence[Commit]) -> set[str]:
    """The paths that commits remove, as the log writes them."""
    return set[str]().union(*(commit.removed_paths for commit in commits))


def _what_is_left(handle: Handle, plan: BinPlan) -> BinPlan:
    """The bins that no earlier run of the plan has done.

    Raises:
        StalePlanError: All are done, another writer has committed since the plan was made, or the
            table was made anew.
    """
    log = handle.log
    latest = log.segment().version
    if latest == plan.version:
        _check_same(plan.source.snapshot, log.snapshot(latest))
        return plan
    commits = commits_of(handle.path, plan.id, plan.version)
    if not commits:
        raise stale(plan, latest)
    done = _removed(commits)
    if done.intersection(log.snapshot(latest).live["path"].to_pylist()):
        raise StalePlanError(
            f"The plan has been run, as version {_versions(commits)}, and undone since: make a new plan; "
            "nothing was changed."
        )
    left = plan.without(done)
    if left.is_empty:
        raise StalePlanError(
            f"The plan has been run, as version {_versions(commits)}: make a new plan; nothing was changed."
        )
    return left


def _check_same(planned: Snapshot, now: Snapshot) -> None:
    """A table that was deleted and made anew, or put back from a backup, can be at the same version."""
    if now is planned:
        return
    files, wanted = _keys(now), _keys(planned)
    has_all = pc.all(pc.is_in(wanted, value_set=files)).as_py() is not False
    if now.metadata.id != planned.metadata.id or len(files) != len(wanted) or not has_all:
        raise StalePlanError(
            f"The table was made anew since the plan was made, and version {now.version} is another now: "
            "make a new plan; nothing was changed."
        )


def _keys(snapshot: Snapshot) -> pa.Array:
    """What each live file is known by: its path, and its deletion vector."""
    vectors = snapshot.live["deletion_vector_id"].combine_chunks()
    paths = snapshot.live["path"].combine_chunks()
    return pc.binary_join_element_wise(paths, vectors, "|", null_handling="replace")


def _result(
    work: Work,
    commits: Sequence[Commit],
    choice: Choice,
    refusals: Mapping[int, str],
) -> CompactionResult:
    """What was done, by the log."""
    plan, is_proved = work.plan, work.verify and bool(commits)
    removed = _removed(commits)
    added = sum(len(commit.adds) for commit in commits)
    versions = tuple(commit.version for commit in commits)
    before, after = (versions[0] - 1, versions[-1]) if versions else (plan.version, None)
    done = plan.num_bins - plan.without(removed).num_bins
    as_planned = removed == set(plan.files["path"].to_pylist()) and added == plan.num_files_added
    if choice.strategy == "rewrite":
        as_planned = removed == rewritten_paths(plan)
    return CompactionResult(
        strategy=choice.strategy if commits else "none",
        reason=choice.reason,
        versions=versions,
        batches=_batches(work, commits),
        num_bins=done,
        num_files_added=added,
        num_files_removed=sum(len(commit.removes) for commit in commits),
        bytes_added=sum(commit.bytes_added for commit in commits),
        bytes_removed=sum(commit.bytes_removed for commit in commits),
        seconds=work.record.seconds,
        conflicts=tuple(text for _, text in work.record.conflicts),
        verified=True if is_proved else None,
        fingerprint=work.record.fingerprint if is_proved else None,
        refusals=refusals,
        as_planned=as_planned,
        peak_bytes=work.record.peak_bytes,
        sizes_before=work.log.snapshot(before).live["size_bytes"].to_numpy(),
        sizes_after=work.log.snapshot(after).live["size_bytes"].to_numpy(),
        timeline=work.record.timeline(),
        reads=partial(_measure_reads, work, before, versions[-1]) if versions else None,
    )


def _batches(work: Work, commits: Sequence[Commit]) -> pa.Table:
    rows = []
    start = work.record.start
    for commit in commits:
        rows.append(
            {
                "version": commit.version,
                "strategy": commit.strategy,
                "num_files_removed": len(commit.removes),
                "num_files_added": len(commit.adds),
                "bytes_removed": commit.bytes_removed,
                "bytes_added": commit.bytes_added,
                "seconds": max(commit.time - start, 0.0),
                "conflicts": sum(start < time <= commit.time for time, _ in work.record.conflicts),
                "metrics": commit.metrics,
            }
        )
        start = commit.time
    return pa.Table.from_pylist(rows, schema=BATCHES)


def _measure_reads(work: Work, before: int, after: int, query: Query, repeats: int) -> ReadComparison:
    # The files of both are there, however old the version before is.
    with session_confs(work.spark, ANY_VERSION):
        return measure_reads(work.spark, work.table, before, after, query, repeats)


def _check_writable(table: Path) -> None:
    for folder in (table, table / LOG_FOLDER):
        if not os.access(folder, os.W_OK | os.X_OK, effective_ids=os.access in os.supports_effective_ids):
            raise ReadOnlyTableError(
                f"The folder {folder} can't be written to: get write permission and run the plan again; "
                "nothing was changed."
            )


def _silent(_: object) -> None:
    """Report to nobody."""
