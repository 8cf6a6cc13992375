"""Run a plan: check it, let a strategy rewrite and commit, read the commits from the log, prove them."""

from collections.abc import Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import replace

from compaction_kit import errors
from compaction_kit.execute.commits import Commit, commits_of, other_commits, removed_paths, unnamed_files
from compaction_kit.execute.delta import is_conflict
from compaction_kit.execute.failures import (
    SPARK_FAILURES,
    BinFailed,
    ContentDiffers,
    TableChanged,
    check_writable,
    translate,
)
from compaction_kit.execute.jobs import WorkCancelled
from compaction_kit.execute.proof import prove, prove_or_undo, unproved
from compaction_kit.execute.result import CompactionResult
from compaction_kit.execute.work import ProgressBar, ProofReader, Recorder, Report, Run, Strategy, no_progress
from compaction_kit.handle import Handle
from compaction_kit.log.listing import LOG_FOLDER
from compaction_kit.log.snapshot import file_keys, without
from compaction_kit.plan import BinPlan
from compaction_kit.session import quiet_errors
from compaction_kit.text import format_count

AUTO = "auto"
_FAILURES = (*SPARK_FAILURES, BinFailed, TableChanged, ContentDiffers, OSError)
# Exceptions that cancel a run: by the caller's own code, or by Ctrl-C.
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
    """Run a plan; see `CompactionPlan.run` for the other arguments, the result and the errors.

    "auto" is the first of `strategies` that can run the plan; bins that it leaves alone go to the next one.
    `readers` compare the content in this order; Spark is the last.
    """
    able, asked = _choices(plan, strategies, strategy)
    _check_fresh(handle, plan)
    if plan.is_empty:
        sizes = handle.log.snapshot().live["size_bytes"].to_numpy()
        return CompactionResult("none", "the plan is empty", sizes, sizes)
    check_writable(handle.store, "", LOG_FOLDER)
    handle.warn_of_commit_risk()
    with quiet_errors(), ExitStack() as stack:
        bar = stack.enter_context(closing(ProgressBar())) if progress is True else progress
        report = bar if callable(bar) else no_progress
        return _run(Run(handle, plan, Recorder(report, plan, verify), verify, tuple(readers)), able, asked)


def _choices(
    plan: BinPlan, strategies: Sequence[Strategy], strategy: str
) -> tuple[list[Strategy], Strategy | None]:
    """Return the strategies that can run such plans, and the strategy that the caller named."""
    named = {each.name: each for each in strategies}
    if strategy not in [AUTO, *named]:
        raise errors.InvalidArgumentError(
            f'strategy="{strategy}" is unknown: use one of {", ".join([AUTO, *named])}.'
        )
    able = [each for each in strategies if plan.is_optimize or each.runs_any_order]
    asked = named.get(strategy)
    if asked is not None and asked not in able:
        raise errors.InvalidArgumentError(
            f'strategy="{strategy}" packs all files by size and can\'t run a plan with order="{plan.order}" '
            f'and budget={plan.budget}: run it with strategy="{able[0].name}".'
        )
    return able, asked


def _run(run: Run, able: Sequence[Strategy], asked: Strategy | None) -> CompactionResult:
    since, is_written = run.log.segment().version, False
    try:
        run.record.report_or_cancel(run.record.preparing)
        chosen, reason, refusals = _rewrite(run, able, asked)
        is_written = True
        commits = commits_of(run.store, run.id, since)
        prove(run, unproved(run, commits))
    except BaseException as error:
        _fail(run, since, error, is_written)
        raise
    if not commits and run.record.conflicts:
        others = other_commits(run.store, run.id, run.plan, since)
        why = f"{others}, at least one of each bin"
        left = unnamed_files(run.store, run.log, run.record.start)
        raise errors.ConflictError(f"{why}: make a new plan; nothing was committed{left}.")
    if not commits:
        bins = format_count(run.plan.num_bins, "bin")
        why = f"{chosen.name} rewrote nothing of {bins}"
        raise errors.RunFailedError(f"{why}: report this; nothing was committed.")
    run.record.done()
    return CompactionResult.of(run, commits, chosen, reason, refusals)


def _rewrite(
    run: Run, able: Sequence[Strategy], asked: Strategy | None
) -> tuple[Strategy, str, Mapping[int, str]]:
    """Rewrite and commit with the first strategy that can; the next one gets the bins that it leaves alone.

    Returns the strategy, why it was chosen, and the bins that it left alone, with the reasons.
    """
    plan, refused = run.plan, ""
    for strategy in able if asked is None else [asked]:
        why = strategy.refuse(run)
        # `run` finds the reasons for single bins, in the plan or in the files.
        left = {} if why else strategy.run(run)
        partitions = frozenset(plan.bin_groups[list(left)].tolist()) if plan.is_optimize else frozenset()
        if left and (len(left) == plan.num_bins or partitions.issuperset(plan.bin_groups.tolist())):
            # The strategy has committed nothing, unless it found the reasons after its first batch.
            done = commits_of(run.store, run.id, plan.version)
            why = None if done else "; ".join(sorted(set(left.values())))
        refused = refused or why or ""
        if why:
            continue
        if left and plan.is_optimize:
            rest = replace(run, partitions=partitions)
            for other in able[able.index(strategy) + 1 :]:
                if other.refuse(rest) is None:
                    other.run(rest)
                    break
        reason = f"{strategy.name}, because {refused}" if refused else strategy.reason
        return strategy, "as asked for" if asked else reason, left
    first = asked or able[0]
    others = [each.name for each in able if each is not first and each.refuse(run) is None]
    advice = f'run it with strategy="{others[0]}"' if others else 'make one with order="size" and no budget'
    why = f'strategy="{first.name}" can\'t run this plan, because {refused}: {advice}.'
    raise errors.UnsupportedTableError(why)


def _fail(run: Run, since: int, error: BaseException, is_written: bool) -> None:
    """Prove or undo what was committed, and raise an error that says what became of the table."""
    left = ""
    try:
        if run.store.is_folder(LOG_FOLDER):
            outcome = _committed(run, commits_of(run.store, run.id, since), error, is_written)
            left = unnamed_files(run.store, run.log, run.record.start)
        else:
            outcome = "the table's folder is gone"
    except errors.CompactionKitError as unreadable:
        outcome = f"it is unknown what is committed, because the log can't be read ({unreadable})"
    if isinstance(error, _CANCELLED):
        raise errors.RunCancelled(f"The run was cancelled: {outcome}{left}.") from None
    if isinstance(error, _FAILURES):
        has_others = is_conflict(error) or isinstance(error, TableChanged)
        others = other_commits(run.store, run.id, run.plan, since) if has_others else ""
        ours = translate(error, run.store.root, outcome, others)
        raise (type(ours)(f"{str(ours).rstrip('.')}{left}.") if left else ours) from None
    if not isinstance(error, errors.CompactionKitError):
        error.add_note(f"{outcome}{left}")


def _committed(run: Run, commits: Sequence[Commit], error: BaseException, is_written: bool) -> str:
    """Prove or undo the commits of a run that failed; returns the outcome, as part of a sentence."""
    differs = isinstance(error, ContentDiffers)
    doubtful = unproved(run, commits, differs)
    proof_began, is_cancelled = is_written or differs, isinstance(error, _CANCELLED)
    undone = prove_or_undo(run, doubtful, proof_began, is_cancelled) if doubtful else ""
    if undone and len(doubtful) < len(commits):
        proved = commits[: -len(doubtful)]
        return f"version {_versions(proved)} is committed and proved; {undone}"
    if undone:
        return undone
    if not commits:
        return "nothing was committed, the table is as it was"
    num_bins = run.plan.num_bins
    done = num_bins - run.plan.without(removed_paths(commits)).num_bins
    if is_written or done == num_bins:
        same = ", and its content is the same" if run.verify else ""
        return f"the compaction is committed, as version {_versions(commits)}{same}"
    bins = f"{done:,} of {format_count(num_bins, 'bin')} {'is' if done == 1 else 'are'}"
    return f"{bins} committed, as version {_versions(commits)}; make a new plan for the rest"


def _versions(commits: Sequence[Commit]) -> str:
    return ", ".join(str(commit.version) for commit in commits)


def _check_fresh(handle: Handle, plan: BinPlan) -> None:
    """Refuse a plan if the table has another version, or was replaced and has the same version again."""
    if (latest := handle.log.segment().version) != plan.version:
        raise errors.StalePlanError.at(plan.version, latest)
    planned, now = plan.source.snapshot, handle.log.snapshot(latest)
    if now is planned:
        return
    is_like = now.metadata.id == planned.metadata.id and len(now.live) == len(planned.live)
    if not is_like or len(without(planned.live, file_keys(now.live))):
        raise errors.StalePlanError.at(plan.version, latest)
