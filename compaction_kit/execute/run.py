"""Run a plan: check it, let a strategy rewrite and commit, read from the log what was done, prove it."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import pyarrow.compute as pc
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from compaction_kit.errors import (
    CompactionKitError,
    ConflictError,
    InvalidArgumentError,
    ReadOnlyTableError,
    RunCancelled,
    StalePlanError,
    UnsupportedTableError,
)
from compaction_kit.execute.commits import Commit, commits_of, other_commits, removed_paths, unnamed_files
from compaction_kit.execute.delta import is_conflict
from compaction_kit.execute.failures import BinFailed, ContentDiffers, TableChanged, stale, translate
from compaction_kit.execute.jobs import WorkCancelled
from compaction_kit.execute.proof import prove, prove_or_undo, unproved
from compaction_kit.execute.result import CompactionResult
from compaction_kit.execute.work import ProgressBar, ProofReader, Recorder, Report, Run, Strategy, no_progress
from compaction_kit.handle import Handle
from compaction_kit.log.listing import LOG_FOLDER
from compaction_kit.log.snapshot import file_keys
from compaction_kit.plan import BinPlan
from compaction_kit.session import quiet_errors

AUTO = "auto"
_FAILURES = (PySparkException, Py4JError, BinFailed, TableChanged, ContentDiffers, OSError)
# What the caller's own code raises to cancel, or Ctrl-C.
_CANCELLED = (WorkCancelled, KeyboardInterrupt)


def run_plan(
    handle: Handle,
    plan: BinPlan,
    strategies: Sequence[Strategy],
    readers: Sequence[ProofReader] = (),
    strategy: str = AUTO,
    verify: bool = True,
    progress: bool | Report | None = None,
) -> CompactionResult:
    """Run a plan; see `CompactionPlan.run` for the other arguments and the errors.

    Args:
        handle: The table.
        plan: What to do.
        strategies: "auto" is the first that can run the plan. What it leaves alone, the next one gets.
        readers: Proof readers, in the order in which they are tried before Spark.
        strategy: "auto", or a name.
        verify: Whether to compare the content.
        progress: True for a bar, or a callable.
    """
    offered = _offered(plan, strategies, strategy)
    _check_fresh(handle, plan)
    if plan.is_empty:
        return CompactionResult.nothing(handle.log.snapshot().live["size_bytes"].to_numpy())
    for folder in ("", LOG_FOLDER):
        if not handle.store.may_write(folder):
            raise ReadOnlyTableError(
                f"The folder {handle.store.place(folder)} can't be written to: get write permission and run "
                "the plan again; nothing was changed."
            )
    handle.warn_of_commit_risk()
    bar = ProgressBar() if progress is True else None
    report = bar or (progress if callable(progress) else no_progress)
    run = Run(handle, plan, Recorder(report, plan, verify), verify, tuple(readers))
    try:
        with quiet_errors():
            return _run(run, offered, is_asked=strategy != AUTO)
    finally:
        if bar is not None:
            bar.close()


def _offered(plan: BinPlan, strategies: Sequence[Strategy], name: str) -> list[Strategy]:
    """Return the strategies to try in turn; the one that is asked for comes first."""
    names = [AUTO, *(each.name for each in strategies)]
    if name not in names:
        raise InvalidArgumentError(f'strategy="{name}" is unknown: use one of {", ".join(names)}.')
    able = [each for each in strategies if plan.is_optimize or each.runs_any_order]
    if name == AUTO:
        return able
    asked = strategies[names.index(name) - 1]
    if asked not in able:
        raise InvalidArgumentError(
            f'order="{plan.order}" and budget={plan.budget} are not for strategy="{name}", with which Delta '
            f'takes all files that it finds, by size: run it with strategy="{able[0].name}".'
        )
    return [asked, *(each for each in able if names.index(each.name) > names.index(name))]


def _run(run: Run, offered: Sequence[Strategy], is_asked: bool) -> CompactionResult:
    since = run.log.segment().version
    is_written = False
    try:
        run.record.ask(run.record.preparing)
        chosen, reason, refusals = _rewrite(run, offered, is_asked)
        is_written = True
        commits = commits_of(run.store, run.plan.id, since)
        prove(run, unproved(run, commits))
    except BaseException as error:
        _fail(run, since, error, is_written)
        raise
    if not commits and run.record.conflicts:
        raise ConflictError(
            f"{other_commits(run.store, run.plan, since)}, some of every bin: make a new plan; nothing was "
            "committed, the table is as they left it."
        )
    run.record.done()
    return CompactionResult.of(run, commits, chosen, reason, refusals)


def _rewrite(
    run: Run, offered: Sequence[Strategy], is_asked: bool
) -> tuple[Strategy, str, Mapping[int, str]]:
    """Rewrite and commit by the first strategy that can; the next one does what it leaves alone.

    Returns:
        What did it, why that one, and the bins that it left alone, with the reasons.
    """
    plan, refused = run.plan, ""
    for number, strategy in enumerate(offered):
        why = strategy.refuse(run)
        # Reasons for single bins show in the plan or in the files.
        left = {} if why else strategy.run(run)
        if left and len(left) == plan.num_bins:
            why = "; ".join(sorted(set(left.values())))
        refused = refused or why or ""
        if why and is_asked:
            break
        if why:
            continue
        if left and plan.is_optimize:
            rest = replace(run, partitions=frozenset(plan.bin_groups[list(left)].tolist()))
            next(each for each in offered[number + 1 :] if each.refuse(rest) is None).run(rest)
        reason = f"{strategy.name}, because {refused}" if refused else strategy.reason
        return strategy, "as asked for" if is_asked else reason, left
    other = f'run it with strategy="{[*(each.name for each in offered), "optimize"][1]}"'
    advice = other if plan.is_optimize else 'make one with order="size" and no budget'
    raise UnsupportedTableError(
        f'strategy="{offered[0].name}" can\'t run this plan, because {refused}: {advice}.'
    )


def _fail(run: Run, since: int, error: BaseException, is_written: bool) -> None:
    """Prove or undo what was committed, and raise an error that says what became of the table."""
    outcome, left = _outcome(run, since, error, is_written)
    if isinstance(error, _CANCELLED):
        raise RunCancelled(f"The run was cancelled: {outcome}{left}.") from None
    if isinstance(error, _FAILURES):
        has_others = is_conflict(error) or isinstance(error, TableChanged)
        others = other_commits(run.store, run.plan, since) if has_others else ""
        ours = translate(error, run.store.root, outcome, others)
        raise (type(ours)(f"{str(ours).rstrip('.')}{left}.") if left else ours) from None
    if not isinstance(error, CompactionKitError):
        error.add_note(f"{outcome}{left}")


def _outcome(run: Run, since: int, error: BaseException, is_written: bool) -> tuple[str, str]:
    """Return what is committed of a run that failed, and the files that it left, as parts of a sentence."""
    if not run.store.is_folder(LOG_FOLDER):
        return "the table's folder is gone", ""
    try:
        outcome = _committed(run, commits_of(run.store, run.plan.id, since), error, is_written)
        return outcome, unnamed_files(run.store, run.log, run.record.start)
    except CompactionKitError as unreadable:
        return f"it is unknown what is committed, because the log can't be read ({unreadable})", ""


def _committed(run: Run, commits: Sequence[Commit], error: BaseException, is_written: bool) -> str:
    differs = isinstance(error, ContentDiffers)
    doubtful = unproved(run, commits, differs)
    has_failed, is_cancelled = is_written or differs, isinstance(error, _CANCELLED)
    undone = prove_or_undo(run, doubtful, has_failed, is_cancelled) if doubtful else ""
    if undone and len(doubtful) < len(commits):
        proved = commits[: -len(doubtful)]
        return f"version {_versions(proved)} is committed and proved, of the rest {undone}"
    if undone:
        return undone
    if not commits:
        return "nothing was committed, the table is as it was"
    if is_written or run.plan.without(removed_paths(commits)).is_empty:
        same = ", and its content is the same" if run.verify else ""
        return f"the compaction is committed, as version {_versions(commits)}{same}"
    return (
        f"{len(commits)} of {run.plan.num_batches} batches are committed, as version {_versions(commits)}; "
        "make a new plan for the rest"
    )


def _versions(commits: Sequence[Commit]) -> str:
    return ", ".join(str(commit.version) for commit in commits)


def _check_fresh(handle: Handle, plan: BinPlan) -> None:
    """Refuse a plan if the table has another version, or was replaced and has the same version again."""
    latest = handle.log.segment().version
    if latest != plan.version:
        raise stale(plan, latest)
    planned, now = plan.source.snapshot, handle.log.snapshot(latest)
    if now is planned:
        return
    files, wanted = file_keys(now.live), file_keys(planned.live)
    has_all = pc.all(pc.is_in(wanted, value_set=files)).as_py() is not False
    if now.metadata.id != planned.metadata.id or len(files) != len(wanted) or not has_all:
        raise StalePlanError(
            f"The table was made anew since the plan was made, and version {now.version} is another now: "
            "make a new plan; nothing was changed."
        )
