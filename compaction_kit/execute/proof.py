"""Prove that what a run's commits added is what they removed; undo them if it isn't."""

from collections.abc import Sequence

from pyspark.errors import PySparkException

from compaction_kit.errors import VerificationError
from compaction_kit.execute.commits import Commit, net_files
from compaction_kit.execute.jobs import WHOLE_FILES, Watched, run_watched, session_confs
from compaction_kit.execute.jvm import rows_of
from compaction_kit.execute.restore import restore
from compaction_kit.execute.work import Work
from compaction_kit.retention import GUARD
from compaction_kit.verify import Fingerprint, fingerprint

# Delta refuses to go back to a version older than the retention of deleted files, which are all
# there: they were live a moment ago.
ANY_VERSION = {GUARD: "false"}


def prove(work: Work, commits: Sequence[Commit]) -> Fingerprint:
    """Compare the rows of the files that commits removed and of those that they added, as Spark reads them.

    No other file is read. If they differ and nobody has committed since, the table is restored to
    the planned version.

    Returns:
        The fingerprint of both.

    Raises:
        VerificationError: They differ.
        PySparkException, WorkCancelled: They couldn't be read, or it was cancelled.
    """
    gone, new = net_files(list(commits))
    before, after = (_fingerprint(work, adds, half) for half, adds in enumerate((gone, new)))
    if before == after:
        return after
    first, last = commits[0].version - 1, commits[-1].version
    evidence = (
        f"The content differs: the {len(gone):,} files that were replaced have {before} {before.hash_sums}, "
        f"the {len(new):,} that replaced them have {after} {after.hash_sums}"
    )
    raise VerificationError(f"{evidence}; {_undo(work, first, last, len(commits))}")


def _fingerprint(work: Work, adds: list[dict[str, object]], half: int) -> Fingerprint:
    label = ("what was replaced", "what replaced it")[half]

    def watch(watched: Watched) -> None:
        work.record.proving((half + watched.tasks / max(watched.num_tasks, 1)) / 2)

    metadata = work.log.snapshot().metadata
    # Delta sees to it only where it plans the read itself.
    by_id = {"spark.sql.parquet.fieldId.read.enabled": "true"} if metadata.is_mapped_by_id else {}
    with work.record.step("proof", label), session_confs(work.spark, WHOLE_FILES | by_id):
        return run_watched(
            work.spark, lambda: fingerprint(rows_of(work.spark, work.table, adds)), watch, is_final=False
        )


def _undo(work: Work, first: int, last: int, count: int) -> str:
    """Restore the table, if that undoes the run and nothing else; what was done, in words."""
    by_hand = f"go back with RESTORE to version {first} and report this."
    latest = work.log.segment().version
    if latest != last or last - first != count:
        return f"another writer has committed too, up to version {latest}, so nothing was undone: {by_hand}"
    try:
        with session_confs(work.spark, ANY_VERSION):
            restore(work.spark, work.table, first)
    except PySparkException as error:
        return f"restoring version {first} failed ({str(error).splitlines()[0]}): {by_hand}"
    restored = work.log.segment().version
    return f"the table was restored to version {first}, as version {restored}: report this."
