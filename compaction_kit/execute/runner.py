"""Run a plan: check, compact, read back from the log what was done, prove it."""

import contextlib
import os
import re
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow.compute as pc
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from compaction_kit.errors import (
    ConflictError,
    InvalidArgumentError,
    ReadOnlyTableError,
    RunCancelled,
    RunFailedError,
    StalePlanError,
    VerificationError,
)
from compaction_kit.execute.arrow import run_arrow
from compaction_kit.execute.jobs import WorkCancelled, run_watched
from compaction_kit.execute.optimize import run_optimize
from compaction_kit.execute.progress import ProgressBar, Report, Reporter
from compaction_kit.execute.result import CompactionResult
from compaction_kit.execute.transaction import is_conflict
from compaction_kit.log import TransactionLog
from compaction_kit.plan import CompactionPlan
from compaction_kit.session import quiet_errors
from compaction_kit.verify import Fingerprint, fingerprint_version

# Each rewrites and commits, and returns why it left bins alone, by their number.
Rewrite = Callable[[SparkSession, Path, CompactionPlan, Callable[[int], None]], dict[int, str]]
STRATEGIES: dict[str, Rewrite] = {"auto": run_optimize, "optimize": run_optimize, "arrow": run_arrow}
# The share of a run that each proof takes, for the bar; the rest is the rewriting.
_PROOF_SHARE = 0.15
_NOTHING_DONE = "nothing was committed, the table is as it was"
_CAUSE = re.compile(r"^(?:Caused by)?: (?:[\w.$]+: )?(.*\S)", re.MULTILINE)


def run_plan(
    table: Path,
    log: TransactionLog,
    get_spark: Callable[[], SparkSession],
    plan: CompactionPlan,
    strategy: str = "auto",
    verify: bool = True,
    progress: bool | Report | None = None,
) -> CompactionResult:
    """Do what a plan says; see `CompactionPlan.run` for the arguments and errors."""
    if strategy not in STRATEGIES:
        raise InvalidArgumentError(f'strategy="{strategy}" is unknown: use one of {", ".join(STRATEGIES)}.')
    if strategy != "arrow" and not plan.is_optimize:
        raise InvalidArgumentError(
            f'order="{plan.order}" and budget={plan.budget} are not for OPTIMIZE, which packs all that it '
            'finds by size: run it with strategy="arrow".'
        )
    _check_version(log, plan)
    if plan.is_empty:
        return _nothing(log)
    _check_writable(table)
    bar = ProgressBar() if progress is True else None
    report = bar or (progress if callable(progress) else _silent)
    try:
        with quiet_errors():
            return _run(table, log, get_spark(), plan, verify, Reporter(report, plan.num_bins), strategy)
    finally:
        if bar is not None:
            bar.close()


def _run(
    table: Path,
    log: TransactionLog,
    spark: SparkSession,
    plan: CompactionPlan,
    verify: bool,
    report: Reporter,
    strategy: str,
) -> CompactionResult:
    share = _PROOF_SHARE if verify else 0.0
    take_fingerprint = partial(_watched_fingerprint, spark, table, report)
    # Before, and not by time travel afterwards: Delta refuses to read a version older than the
    # retention of deleted files, unless it is the latest.
    before = take_fingerprint(plan.version, "Reading the content before", 0.0, 0) if verify else None

    def watch(bins_done: int) -> None:
        fraction = share + (1 - 2 * share) * bins_done / plan.num_bins
        report(f"Rewriting bin {min(bins_done + 1, plan.num_bins)} of {plan.num_bins}", fraction, bins_done)

    _check_version(log, plan)
    try:
        refusals = STRATEGIES[strategy](spark, table, plan, watch)
    except (PySparkException, Py4JJavaError) as error:
        raise _translate(error, table, plan.version, _what_is_done(log, plan)) from error
    except (WorkCancelled, KeyboardInterrupt) as error:
        done = _what_is_done(log, plan) or _NOTHING_DONE
        raise RunCancelled(f"The run was cancelled: {done}.") from _cause(error)
    name = "arrow" if strategy == "arrow" else "optimize"
    result = _read_back(log, plan, report)
    result = replace(
        result, strategy=name, refusals=refusals, num_bins=max(result.num_bins - len(refusals), 0)
    )
    if before is not None and result.versions:
        result = _prove(result, plan, before, take_fingerprint)
    # Too late to cancel: it is done.
    with contextlib.suppress(Exception):
        report("Done", 1.0, plan.num_bins)
    return replace(result, seconds=report.seconds)


def _prove(
    result: CompactionResult,
    plan: CompactionPlan,
    before: Fingerprint,
    take_fingerprint: Callable[[int, str, float, int], Fingerprint],
) -> CompactionResult:
    """Compare the content that the commits found with the content that they left."""
    versions, done = result.versions, 1 - _PROOF_SHARE
    spans = [(version - 1, version) for version in versions]
    if versions[-1] == plan.version + len(versions):
        # Nobody else's commit came in between.
        spans = [(plan.version, versions[-1])]
    for first, last in spans:
        if first != plan.version:
            before = take_fingerprint(first, "Reading the content before", done, plan.num_bins)
        after = take_fingerprint(last, "Comparing the content after", done, plan.num_bins)
        if before != after:
            raise VerificationError(
                f"The content differs: version {first} has {before} {before.hash_sums}, "
                f"version {last} has {after} {after.hash_sums}; go back with "
                f"RESTORE to version {first} and report this."
            )
    return replace(result, verified=True, fingerprint=after)


def _watched_fingerprint(
    spark: SparkSession, table: Path, report: Reporter, version: int, step: str, fraction: float, bins: int
) -> Fingerprint:
    uncompared = "the compaction is committed, its content was not compared"
    try:
        return run_watched(
            spark,
            lambda: fingerprint_version(spark, table, version),
            lambda _: report(step, fraction, bins),
        )
    except (PySparkException, Py4JJavaError) as error:
        raise _translate(error, table, version, uncompared if bins else None) from error
    except (WorkCancelled, KeyboardInterrupt) as error:
        done = uncompared if bins else _NOTHING_DONE
        raise RunCancelled(f"The run was cancelled: {done}.") from _cause(error)


def _read_back(log: TransactionLog, plan: CompactionPlan, report: Reporter) -> CompactionResult:
    """The result as the log has it: the OPTIMIZE commits since the planned version."""
    found = _our_commits(log, plan)
    if not found:
        return replace(_nothing(log), as_planned=False, seconds=report.seconds)
    commits = [commit for commit, _ in found]
    versions = tuple(commit["version"] for commit in commits)
    added, removed, bytes_added, bytes_removed = (
        sum(commit[name] for commit in commits)
        for name in ("num_added", "num_removed", "bytes_added", "bytes_removed")
    )
    paths = set().union(*(removed_paths for _, removed_paths in found))
    return CompactionResult(
        strategy="",
        versions=versions,
        num_bins=plan.num_bins,
        num_files_added=added,
        num_files_removed=removed,
        bytes_added=bytes_added,
        bytes_removed=bytes_removed,
        seconds=report.seconds,
        verified=None,
        fingerprint=None,
        refusals={},
        as_planned=paths == set(plan.files["path"].to_pylist()) and added == plan.num_files_added,
        sizes_before=log.snapshot(versions[0] - 1).live["size_bytes"].to_numpy(),
        sizes_after=log.snapshot(versions[-1]).live["size_bytes"].to_numpy(),
    )


def _our_commits(log: TransactionLog, plan: CompactionPlan) -> list[tuple[dict[str, Any], set[str]]]:
    """OPTIMIZE commits since the planned version that took files of the plan, and the paths removed."""
    planned = set(plan.files["path"].to_pylist())
    newer = [
        (commit, _removed_paths(log, commit["version"]))
        for commit in log.commits().to_pylist()
        if commit["version"] > plan.version and commit["operation"] == "OPTIMIZE"
    ]
    return [(commit, removed) for commit, removed in newer if not planned.isdisjoint(removed)]


def _removed_paths(log: TransactionLog, version: int) -> set[str]:
    actions = log.actions(version)
    return set(actions.filter(pc.equal(actions["action"], "remove"))["path"].to_pylist())


def _what_is_done(log: TransactionLog, plan: CompactionPlan) -> str | None:
    """What the run has committed, in words; None for nothing."""
    commits = _our_commits(log, plan)
    if not commits:
        return None
    versions = ", ".join(str(commit["version"]) for commit, _ in commits)
    return f"{len(commits)} of {plan.num_batches} batches are committed, as version {versions}"


def _nothing(log: TransactionLog) -> CompactionResult:
    sizes = log.snapshot().live["size_bytes"].to_numpy()
    return CompactionResult("none", (), 0, 0, 0, 0, 0, 0.0, None, None, {}, True, sizes, sizes)


def _check_version(log: TransactionLog, plan: CompactionPlan) -> None:
    latest = log.segment().version
    if latest != plan.version:
        raise StalePlanError(
            f"The plan was made at version {plan.version} and the table is at {latest}: "
            "make a new plan; nothing was changed."
        )


def _check_writable(table: Path) -> None:
    for folder in (table, table / "_delta_log"):
        if not os.access(folder, os.W_OK | os.X_OK, effective_ids=os.access in os.supports_effective_ids):
            raise ReadOnlyTableError(
                f"The folder {folder} can't be written to: get write permission and run the plan again; "
                "nothing was changed."
            )


def _translate(error: Exception, table: Path, version: int, done: str | None = None) -> Exception:
    """One sentence of ours for what Spark or Delta raised; `done` says what is committed, if anything."""
    text = str(error)
    if is_conflict(error):
        return ConflictError(
            "Another writer changed files of the plan meanwhile, so Delta refused the commit: "
            f"make a new plan; {done or 'nothing was changed'}."
        )
    if any(sign in text for sign in ("Permission denied", "AccessDenied", "Read-only file system")):
        return ReadOnlyTableError(
            f"Spark was not allowed to write to {table}: get write permission and run the plan again."
        )
    outcome = done or f"the table stays at version {version}"
    return RunFailedError(f"Spark failed, and {outcome}: {_reason(text)}")


def _reason(text: str) -> str:
    """The line of a Java stack trace that says what was wrong: Spark's own words, else the last cause."""
    causes = _CAUSE.findall(text)
    named = [cause for cause in causes if cause.startswith("[")]
    return next(iter(named or causes[-1:] or text.strip().splitlines()), "it did not say why")


def _silent(_: object) -> None:
    """Report to nobody."""


def _cause(cancelled: BaseException) -> BaseException:
    """What the caller's own code raised to cancel, or Ctrl-C."""
    return cancelled.__cause__ or cancelled
