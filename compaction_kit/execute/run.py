"""Run a plan: check, compact, read back from the log what was done, prove it."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import pyarrow.compute as pc
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from compaction_kit.arrow.refusals import refuse_bins, refuse_table
from compaction_kit.arrow.strategy import run_arrow
from compaction_kit.errors import (
    CompactionKitError,
    ConflictError,
    InvalidArgumentError,
    ReadOnlyTableError,
    RunCancelled,
    StalePlanError,
    UnsupportedTableError,
)
from compaction_kit.execute.commits import Commit, commits_of, removed_paths, told_others, unnamed_files
from compaction_kit.execute.failures import BinFailed, ContentDiffers, TableChanged, stale, translate
from compaction_kit.execute.jobs import WorkCancelled
from compaction_kit.execute.jvm import is_conflict
from compaction_kit.execute.optimize import run_optimize
from compaction_kit.execute.proof import prove, settle, unproved
from compaction_kit.execute.result import CompactionResult
from compaction_kit.execute.rewrite import run_rewrite
from compaction_kit.execute.work import ProgressBar, Recorder, Report, Work, nobody
from compaction_kit.handle import Handle
from compaction_kit.log.listing import LOG_FOLDER
from compaction_kit.log.reconcile import file_keys
from compaction_kit.log.snapshot import Snapshot
from compaction_kit.plan import BinPlan
from compaction_kit.session import quiet_errors
from compaction_kit.storage import Store

STRATEGIES = ("auto", "optimize", "rewrite", "arrow")
_FAILURES = (PySparkException, Py4JError, BinFailed, TableChanged, ContentDiffers, OSError)


class Choice(NamedTuple):
    """A strategy, and why it is that one."""

    strategy: str
    reason: str


def run_plan(
    handle: Handle,
    plan: BinPlan,
    strategy: str = "auto",
    verify: bool = True,
    progress: bool | Report | None = None,
    max_threads: int | None = None,
    repartition: bool | None = None,
) -> CompactionResult:
    """Do what a plan says; see `CompactionPlan.run` for the arguments and errors."""
    given = {"max_threads": max_threads, "repartition": repartition}
    options = {name: value for name, value in given.items() if value is not None}
    _check_strategy(plan, strategy, options)
    _check_fresh(handle, plan)
    if plan.is_empty:
        return CompactionResult.nothing(handle.log.snapshot().live["size_bytes"].to_numpy())
    _check_writable(handle.store)
    handle.warn_of_commit_risk()
    bar = ProgressBar() if progress is True else None
    report = bar or (progress if callable(progress) else nobody)
    try:
        with quiet_errors():
            return _run(Work(handle, plan, options, Recorder(report, plan, verify), verify), strategy)
    finally:
        if bar is not None:
            bar.close()


def _check_strategy(plan: BinPlan, strategy: str, options: Mapping[str, Any]) -> None:
    if strategy not in STRATEGIES:
        raise InvalidArgumentError(f'strategy="{strategy}" is unknown: use one of {", ".join(STRATEGIES)}.')
    if strategy not in ("auto", "arrow") and not plan.is_optimize:
        raise InvalidArgumentError(
            f'order="{plan.order}" and budget={plan.budget} are not for Delta\'s own strategies, which take '
            'all files that they find, by size: run it with strategy="arrow".'
        )
    if options and strategy in ("rewrite", "arrow"):
        names = " and ".join(f"{name}={value}" for name, value in options.items())
        raise InvalidArgumentError(f'{names} is for OPTIMIZE: leave it out, or run with strategy="optimize".')
    if options.get("max_threads", 1) < 1:
        raise InvalidArgumentError(f"max_threads={options['max_threads']} is too few: give 1 or more.")


def _run(work: Work, strategy: str) -> CompactionResult:
    since = work.log.segment().version
    choice = _choose(work, strategy)
    is_written = False
    try:
        work.record.ask(work.record.preparing)
        choice, refusals = _rewrite(work, strategy, choice)
        is_written = True
        commits = commits_of(work.store, work.plan.id, since)
        prove(work, unproved(work, commits))
    except BaseException as error:
        _fail(work, since, error, is_written)
        raise
    if not commits and work.record.conflicts:
        raise ConflictError(
            f"{told_others(work.store, work.plan, since)}, some of every bin: make a new plan; nothing was "
            "committed, the table is as they left it."
        )
    work.record.done()
    return CompactionResult.of(work, commits, choice.strategy, choice.reason, refusals)


def _rewrite(work: Work, strategy: str, choice: Choice) -> tuple[Choice, Mapping[int, str]]:
    """Rewrite and commit; returns what did it, and the bins that pyarrow left alone, with the reasons."""
    plan = work.plan
    if choice.strategy != "arrow":
        (run_optimize if choice.strategy == "optimize" else run_rewrite)(work)
        return choice, {}
    refusals = run_arrow(work)
    if refusals and len(refusals) == plan.num_bins:
        # Some reasons show in the files alone, after the choice.
        choice = _instead_of_arrow(work, strategy, _joined(refusals))
        run_optimize(work)
        return choice, {}
    if refusals and plan.is_optimize:
        run_optimize(work, set(plan.bin_groups[list(refusals)].tolist()))
    return choice, refusals


def _choose(work: Work, strategy: str) -> Choice:
    """Decide what "auto" is: arrow where it can rewrite most of the bytes, else OPTIMIZE."""
    plan = work.plan
    if strategy in ("optimize", "rewrite"):
        return Choice(strategy, "as asked for")
    if strategy == "auto" and work.options:
        return Choice("optimize", "optimize, because options of OPTIMIZE were given")
    reason = refuse_table(work.spark, plan)
    if reason is not None:
        return _instead_of_arrow(work, strategy, reason)
    if strategy == "arrow":
        return Choice(strategy, "as asked for")
    if not plan.is_optimize:
        return Choice("arrow", "arrow, which alone runs another order or a budget")
    refusals = refuse_bins(plan)
    left = sum(int(plan.outcome.bytes_removed[number]) for number in refusals)
    if 2 * left > plan.bytes_removed:
        return Choice("optimize", f"optimize, because {_joined(refusals)}")
    return Choice(
        "arrow",
        "arrow: one Spark job rewrites all bins with pyarrow, where OPTIMIZE starts a job for each",
    )


def _joined(refusals: Mapping[int, str]) -> str:
    return "; ".join(sorted(set(refusals.values())))


def _instead_of_arrow(work: Work, strategy: str, reason: str) -> Choice:
    """OPTIMIZE, if the caller left the choice to us, and if it runs such a plan; else an error."""
    plan = work.plan
    if strategy == "auto" and plan.is_optimize:
        return Choice("optimize", f"optimize, because {reason}")
    other = 'run it with strategy="optimize"'
    if not plan.is_optimize:
        other = f'make one with order="size" and no budget, and {other}'
    raise UnsupportedTableError(f'strategy="arrow" can\'t run this plan, because {reason}: {other}.')


def _fail(work: Work, since: int, error: BaseException, is_written: bool) -> None:
    """Prove or undo what was committed, and raise an error that says what became of the table."""
    outcome, left = _outcome(work, since, error, is_written)
    if _is_cancelled(error):
        raise RunCancelled(f"The run was cancelled: {outcome}{left}.") from None
    if isinstance(error, _FAILURES):
        has_others = is_conflict(error) or isinstance(error, TableChanged)
        others = told_others(work.store, work.plan, since) if has_others else ""
        ours = translate(error, work.store.root, outcome, others)
        raise (type(ours)(f"{str(ours).rstrip('.')}{left}.") if left else ours) from None
    if not isinstance(error, CompactionKitError):
        error.add_note(f"{outcome}{left}")


def _outcome(work: Work, since: int, error: BaseException, is_written: bool) -> tuple[str, str]:
    """What is committed of a run, and the files that it left, as parts of a sentence."""
    if not work.store.is_folder(LOG_FOLDER):
        return "the table's folder is gone", ""
    try:
        commits = commits_of(work.store, work.plan.id, since)
        outcome = _committed(work, commits, error, is_written)
        return outcome, unnamed_files(work.store, work.log, work.record.start)
    except CompactionKitError as unreadable:
        return f"it is unknown what is committed, because the log can't be read ({unreadable})", ""


def _committed(work: Work, commits: Sequence[Commit], error: BaseException, is_written: bool) -> str:
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
    if is_written or work.plan.without(removed_paths(commits)).is_empty:
        same = ", and its content is the same" if work.verify else ""
        return f"the compaction is committed, as version {_versions(commits)}{same}"
    return (
        f"{len(commits)} of {work.plan.num_batches} batches are committed, as version {_versions(commits)}; "
        "make a new plan for the rest"
    )


def _is_cancelled(error: BaseException) -> bool:
    """Whether it is what the caller's own code raised to cancel, or Ctrl-C."""
    return isinstance(error, (WorkCancelled, KeyboardInterrupt))


def _versions(commits: Sequence[Commit]) -> str:
    return ", ".join(str(commit.version) for commit in commits)


def _check_fresh(handle: Handle, plan: BinPlan) -> None:
    """Refuse a plan if the table has another version, or another state at the same version."""
    log = handle.log
    latest = log.segment().version
    if latest != plan.version:
        raise stale(plan, latest)
    _check_same(plan.source.snapshot, log.snapshot(latest))


def _check_same(planned: Snapshot, now: Snapshot) -> None:
    """A table that was deleted and made anew, or put back from a backup, can be at the same version."""
    if now is planned:
        return
    files, wanted = file_keys(now.live), file_keys(planned.live)
    has_all = pc.all(pc.is_in(wanted, value_set=files)).as_py() is not False
    if now.metadata.id != planned.metadata.id or len(files) != len(wanted) or not has_all:
        raise StalePlanError(
            f"The table was made anew since the plan was made, and version {now.version} is another now: "
            "make a new plan; nothing was changed."
        )


def _check_writable(store: Store) -> None:
    for folder in ("", LOG_FOLDER):
        if not store.may_write(folder):
            raise ReadOnlyTableError(
                f"The folder {store.place(folder)} can't be written to: get write permission and run the "
                "plan again; nothing was changed."
            )
