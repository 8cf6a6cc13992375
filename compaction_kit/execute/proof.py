"""Prove that files that replace others hold the same rows; undo commits that aren't proved.

DuckDB reads them where it can (see `arrow.duckdb`). Where it can't, or finds a difference, Spark does.

The strategy "arrow" compares before it commits, so that nothing has to be undone. OPTIMIZE and
an overwrite write and commit in one go, and are compared afterwards:

- If it differs, can't be read, or the comparison is cancelled, the table is restored to the version
  before. A cancelled comparison is done after all where another writer has committed since, for
  RESTORE would undo that too.
- Batches that are committed when a run fails or is cancelled are compared before the run ends, as
  that takes less than doing them again; Ctrl-C during that restores the version before them.
- Where RESTORE can't be (the session has died, files are gone, another writer has committed), the
  error says which version isn't proved, and what to do.
"""

import time
from collections.abc import Sequence
from concurrent.futures import wait
from functools import partial

from compaction_kit.arrow.duckdb import READER, NotCompared, compare_quickly
from compaction_kit.execute.commits import Commit, has_tag, net_files, restore, settings
from compaction_kit.execute.contents import ANY_VERSION, Adds, Content, contents, readable_together
from compaction_kit.execute.failures import ContentDiffers, reason_of
from compaction_kit.execute.jobs import (
    WHOLE_FILES,
    Watched,
    in_thread,
    run_watched,
    session_confs,
)
from compaction_kit.execute.work import Work
from compaction_kit.verify import Fingerprint

# The strategy that compares before it commits.
_PROVED = "arrow"


def compare(work: Work, gone: Adds, new: Adds, versions: Sequence[int] | None = None) -> Fingerprint:
    """Compare the rows of replaced files and of those that replace them.

    Args:
        work: The table and the session.
        gone: Add actions of the files that are replaced, live or not.
        new: Of those that replace them, committed or not.
        versions: In which both are live; needed over Spark Connect.

    Returns:
        The fingerprint of both.

    Raises:
        ContentDiffers: They differ.
        PySparkException, WorkCancelled: They can't be read, or it was cancelled.
    """
    size_bytes = sum(int(action["add"]["size"]) for action in gone)
    snapshot, start = work.log.snapshot(), time.time()
    # Else a comparison of few files is over before it is seen, or can be cancelled.
    work.record.ask(partial(work.record.comparing, 0))
    try:
        found = compare_quickly(
            work.spark, snapshot, gone, new, lambda share: work.record.comparing(size_bytes * share)
        )
        work.record.span("proof", start, time.time(), f"both sides, by {READER}")
        work.record.bytes_compared += size_bytes
        return found
    except NotCompared as reason:
        work.record.proof_reason = str(reason)
    # Delta sets it only where it plans the read itself.
    by_id = {"spark.sql.parquet.fieldId.read.enabled": "true"} if snapshot.metadata.is_mapped_by_id else {}
    with session_confs(work.spark, WHOLE_FILES | by_id):
        before, after = (
            _fingerprint(work, content, size_bytes, half)
            for half, content in enumerate(contents(work.handle, (gone, new), versions))
        )
    work.record.bytes_compared += size_bytes
    if before == after:
        return after
    raise ContentDiffers(
        f"The content differs: the {len(gone):,} files to be replaced have {before} {before.hash_sums}, "
        f"the {len(new):,} to replace them have {after} {after.hash_sums}"
    )


def _fingerprint(work: Work, content: Content, size_bytes: int, half: int) -> Fingerprint:
    def watch(watched: Watched) -> None:
        work.record.comparing(size_bytes * (half + watched.tasks / max(watched.num_tasks, 1)) / 2)

    with work.record.step("proof", ("what was replaced", "what replaced it")[half]):
        return run_watched(work.spark, content, watch, is_final=False)


def unproved(work: Work, commits: Sequence[Commit], differs: bool = False) -> list[Commit]:
    """The commits of a run whose content is still to be compared, or is known to differ."""
    return [commit for commit in commits if commit.strategy != _PROVED and (work.verify or differs)]


def prove(work: Work, commits: Sequence[Commit]) -> None:
    """Compare what commits removed and what they added; see `compare`."""
    for group in readable_together(work.spark, commits) if commits else ():
        versions = group[0].version - 1, group[-1].version
        work.record.fingerprint += compare(work, *net_files(group), versions)


def settle(work: Work, commits: Sequence[Commit], is_begun: bool, is_cancelled: bool) -> str:
    """Prove commits after all when a run fails or is cancelled, or undo them.

    Args:
        work: The table and the session.
        commits: The last of the run, those that aren't proved.
        is_begun: Whether the proof was begun and not finished.
        is_cancelled: Whether it was cancelled.

    Returns:
        What became of them and why; "" if they are proved.
    """
    others = _others(work, commits)
    if not is_begun or (is_cancelled and others):
        try:
            work.record.mute()
            prove(work, commits)
            return ""
        except BaseException as error:
            return f"{_undo(work, commits)}, because its content was not proved ({reason_of(error)})"
    return _undo(work, commits)


def _others(work: Work, commits: Sequence[Commit]) -> str:
    """What RESTORE would undo beside some commits, as a sentence; "" for nothing."""
    first, last = commits[0].version - 1, commits[-1].version
    latest = work.log.segment().version
    if latest == last and last - first == len(commits):
        return ""
    return f"another writer has committed too, up to version {latest}"


def _undo(work: Work, commits: Sequence[Commit]) -> str:
    """Restore the table, if that undoes these commits and nothing else; returns what was done."""
    first, versions = commits[0].version - 1, ", ".join(str(commit.version) for commit in commits)
    others = _others(work, commits)
    by_hand = (
        f"version {versions} is committed and not proved: go back with RESTORE to version {first}, or "
        "compare the two by compaction_kit.verify.fingerprint"
    )
    if others:
        return f"{others}, so nothing was undone: {by_hand}"

    outcome = in_thread(work.spark, partial(_go_back, work, first, commits[-1].version))
    while not outcome.done():
        try:
            wait([outcome])
        except KeyboardInterrupt:
            # To undo half is worse than nothing, and it takes but a moment.
            continue
    error = outcome.exception()
    if error is not None:
        return f"restoring version {first} failed ({reason_of(error)}): {by_hand}"
    undone, restored = outcome.result()
    if undone > commits[-1].version:
        return (
            f"another writer has committed too, up to version {undone}, as the table was restored to version "
            f"{first}, so version {restored} has put that back: {by_hand}"
        )
    return f"the table was restored to version {first}, as version {restored}"


def _go_back(work: Work, version: int, last: int) -> tuple[int, int]:
    """Restore a version, and bring back what others have committed in between.

    RESTORE undoes whatever is there when it begins, which may be later than anybody has looked.

    Args:
        work: The table and the session.
        version: To go back to.
        last: The latest version that may be undone.

    Returns:
        The latest version that was undone, later than `last` if it was brought back; and the version now.
    """
    restored, undone = _restored(work, version)
    return undone, restored if undone == last else _restored(work, undone)[0]


def _restored(work: Work, version: int) -> tuple[int, int]:
    """Restore a version; returns the commit's version, and the one that it has undone."""
    since = work.log.segment().version
    with settings(work.spark, "undo", work.plan.id, ANY_VERSION):
        restore(work.spark, work.table, version)
    commits = work.log.commits().select(["version", "read_version", "operation", "user_metadata"]).to_pylist()
    return next(
        (commit["version"], commit["read_version"])
        for commit in reversed(commits)
        if commit["version"] > since and commit["operation"] == "RESTORE" and has_tag(commit["user_metadata"])
    )
