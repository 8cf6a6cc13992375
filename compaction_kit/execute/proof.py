"""Prove that new files hold the same rows as the files that they replace; undo commits without proof.

A strategy may compare before it commits. OPTIMIZE and an overwrite commit at once and are compared
afterwards.
"""

import contextlib
import time
from collections.abc import Callable, Sequence
from concurrent.futures import wait
from functools import partial

from pyspark.sql import SparkSession

from compaction_kit.compat import has_jvm
from compaction_kit.errors import reason_of
from compaction_kit.execute.commits import Commit, net_files, restore, restored
from compaction_kit.execute.delta import rows_of
from compaction_kit.execute.failures import ContentDiffers, NotCompared
from compaction_kit.execute.jobs import (
    WHOLE_FILES,
    Watched,
    in_thread,
    own_session,
    run_watched,
    session_confs,
)
from compaction_kit.execute.work import Adds, Run, no_progress
from compaction_kit.log.protocol import Metadata
from compaction_kit.retention import GUARD
from compaction_kit.text import format_count
from compaction_kit.verify import Fingerprint, fingerprint

# Delta refuses versions older than the retention of deleted files, even one that was the latest a moment ago.
ANY_VERSION = {GUARD: "false"}


def compare(run: Run, gone: Adds, new: Adds, versions: Sequence[int] = ()) -> Fingerprint:
    """Compare the rows of replaced files and of the files that replace them; returns the fingerprint.

    Proof readers compare first; if none finds equal content, Spark reads both sides and decides. Files need
    not be live or committed; over Spark Connect, `versions` are those before and after the commit.

    Raises:
        ContentDiffers: The rows differ.
        PySparkException, WorkCancelled: Files can't be read, or the comparison was cancelled.
    """
    record, snapshot, start = run.record, run.log.snapshot(), time.time()
    size_bytes = sum(int(action["add"]["size"]) for action in gone)
    # Report once at the start, so that a comparison of few files is shown and can be cancelled too.
    record.report_or_cancel(partial(record.comparing, 0))
    for reader in run.readers:
        try:
            found = reader(run.spark, snapshot, gone, new, lambda share: record.comparing(size_bytes * share))
        except NotCompared as reason:
            record.proof_reason = str(reason)
            continue
        record.span("proof", start, time.time(), f"both sides, by {' and '.join(found.readers)}")
        record.bytes_compared += size_bytes
        return found
    sides: list[Fingerprint] = []

    def watch(watched: Watched) -> None:
        record.comparing(size_bytes * (len(sides) + watched.tasks / max(watched.num_tasks, 1)) / 2)

    with reading_every_row(run.spark, snapshot.metadata) as spark:
        for content in contents(spark, run.table, (gone, new), versions):
            with record.step("proof", "what replaced it" if sides else "what was replaced"):
                sides.append(run_watched(spark, content, watch, is_final=False))
    record.bytes_compared += size_bytes
    before, after = sides
    if before == after:
        return after
    files = format_count(len(gone), "file")
    raise ContentDiffers(
        f"The content differs: {before} {before.hash_sums} in {files} to be replaced, "
        f"{after} {after.hash_sums} in {len(new):,} to replace them"
    )


def unproved(run: Run, commits: Sequence[Commit], differs: bool = False) -> list[Commit]:
    """Return the commits whose content is still to be compared, or is known to differ."""
    return [commit for commit in commits if not commit.is_proved and (run.verify or differs)]


def prove(run: Run, commits: Sequence[Commit]) -> None:
    """Compare the rows that commits removed and added; see `compare`."""
    # Over Spark Connect whole versions are read, so each commit is compared by itself.
    for group in [commits] if has_jvm(run.spark) and commits else [[commit] for commit in commits]:
        versions = group[0].version - 1, group[-1].version
        run.record.fingerprint += compare(run, *net_files(group), versions)
    # A proof of several commits at once says nothing about the versions between them.
    if len(commits) == 1:
        run.handle.proved.add(run.id)


def prove_or_undo(run: Run, commits: Sequence[Commit], proof_began: bool, is_cancelled: bool) -> str:
    """Prove the unproved commits of a run that ended early, or undo them.

    If the proof failed or was cancelled after it began, the commits are undone. A cancelled proof is
    repeated if RESTORE would undo another writer's commit too. Returns the outcome and the reason, as a part
    of a sentence; "" if the commits are proved.
    """
    if proof_began and not (is_cancelled and _latest_by_others(run, commits)):
        return _undo(run, commits)
    try:
        # From here on, the run can't be cancelled.
        run.record.report = no_progress
        prove(run, commits)
        return ""
    except BaseException as error:
        return f"the content was not proved ({reason_of(error)}); {_undo(run, commits)}"


def _latest_by_others(run: Run, commits: Sequence[Commit]) -> int | None:
    """Return the latest version if another writer has committed since the first of these commits."""
    latest = run.log.segment().version
    return None if latest == commits[0].version + len(commits) - 1 else latest


def _undo(run: Run, commits: Sequence[Commit]) -> str:
    """Restore the table, if that undoes these commits and nothing else; returns what was done."""
    before, last = commits[0].version - 1, commits[-1].version
    numbers = ", ".join(str(commit.version) for commit in commits)
    versions = f"versions {numbers} are" if commits[1:] else f"version {numbers} is"
    by_hand = (
        f"{versions} committed and not proved: go back with RESTORE to version {before}, or compare both by "
        f"table.diff({before}, {last}, verify=True)"
    )
    latest = _latest_by_others(run, commits)
    if latest is not None:
        return f"another writer has committed too, up to version {latest}, so nothing was undone: {by_hand}"
    outcome = in_thread(run.spark, partial(_go_back, run, before, last))
    while not outcome.done():
        # Ctrl-C is ignored: half an undo is worse than none, and RESTORE doesn't take long.
        with contextlib.suppress(KeyboardInterrupt):
            wait([outcome])
    error = outcome.exception()
    if error is not None:
        return f"restoring version {before} failed ({reason_of(error)}): {by_hand}"
    undone, restored = outcome.result()
    if undone > last:
        return (
            f"another writer has committed too, up to version {undone}, while the table was restored to "
            f"version {before}, so version {restored} brings that back: {by_hand}"
        )
    return f"the table was restored to version {before}, as version {restored}"


def _go_back(run: Run, version: int, last: int) -> tuple[int, int]:
    """Restore a version; if this has undone a commit after `last`, restore that commit.

    Returns the latest version that was undone, and the new version.
    """

    def back_to(version: int) -> Commit:
        back = partial(restore, table=run.table, version=version)
        return restored(run.handle, "undo", run.id, ANY_VERSION, back)

    done = back_to(version)
    undone = done.read_version
    return undone, (done if undone == last else back_to(undone)).version


def reading_every_row(
    spark: SparkSession, metadata: Metadata
) -> contextlib.AbstractContextManager[SparkSession]:
    """Yield a session that reads every row of a table's files, or fails; see `contents` and `own_session`."""
    # Delta sets this only for reads that it plans itself.
    by_id = {"spark.sql.parquet.fieldId.read.enabled": "true"} if metadata.is_mapped_by_id else {}
    return own_session(spark, WHOLE_FILES | by_id)


def contents(
    spark: SparkSession, table: str, sets: Sequence[Adds], versions: Sequence[int], schema: int | None = None
) -> list[Callable[[], Fingerprint]]:
    """Return jobs that compute the fingerprint of each set of files, with the same columns for all sets.

    If the session's JVM can be reached, the files need not be live; they are read with the columns of the
    version `schema`, or of the latest. Over Spark Connect all files of each of `versions` are read; their
    other files are the same.
    """
    if not has_jvm(spark):
        return [partial(_of_version, spark, table, version) for version in versions]
    while True:
        # In a thread, because `rows_of` makes the session active in its thread.
        calls = (partial(rows_of, spark, table, adds, schema) for adds in sets)
        found = [in_thread(spark, call).result() for call in calls]
        # Another writer may add a column between the calls.
        if all(rows.schema == found[0].schema for rows in found):
            return [partial(fingerprint, rows) for rows in found]


def _of_version(spark: SparkSession, table: str, version: int) -> Fingerprint:
    with session_confs(spark, ANY_VERSION):
        return fingerprint(spark.read.format("delta").option("versionAsOf", version).load(table))
