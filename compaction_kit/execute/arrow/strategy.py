"""The strategy "arrow": a plan's bins, batch after batch, rewritten by Spark tasks and committed by Delta."""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial

import numpy as np
import pyarrow.compute as pc

from compaction_kit.execute.arrow.actions import Replaced, commit_metrics, file_actions, replace_files
from compaction_kit.execute.arrow.job import Bin, BinJob, discard
from compaction_kit.execute.arrow.refusals import refuse_bins, refuse_changes
from compaction_kit.execute.arrow.worker import Rewritten
from compaction_kit.execute.commits import as_add, settings
from compaction_kit.execute.failures import BinFailed, TableChanged
from compaction_kit.execute.jobs import in_thread
from compaction_kit.execute.jvm import OptimizeTransaction, is_conflict
from compaction_kit.execute.proof import compare
from compaction_kit.execute.work import Work
from compaction_kit.log.listing import LOG_FOLDER
from compaction_kit.log.snapshot import Snapshot
from compaction_kit.text import format_count
from compaction_kit.verify import Fingerprint

# How many conflicts a run bears.
MOST_CONFLICTS = 5
_NO_CHECKSUM = {
    "spark.databricks.delta.writeChecksumFile.enabled": "false",
    "spark.databricks.delta.incremental.commit.enabled": "false",
}


def run_arrow(work: Work) -> Mapping[int, str]:
    """Rewrite a plan's bins with pyarrow, prove the outputs, and commit them as OPTIMIZE would.

    Bins that can't be rewritten so are left alone, with all bins of their partitions if the plan is one
    that OPTIMIZE runs, for it packs a partition by itself.

    Args:
        work: What to do.

    Returns:
        Why some bins were not rewritten so, by their number.

    Raises:
        TableChanged: Another writer changed what columns there are, or how they are stored.
        BinFailed: A file can't be read or written; its batch was not committed.
        ContentDiffers: Spark reads other rows from the outputs; their batch was not committed.
        WorkCancelled: It was cancelled; its batch was not committed.
    """
    return _ArrowRun(work).run()


class _ArrowRun:
    """One run: which bins are refused, and what other writers took away."""

    def __init__(self, work: Work):
        self._work = work
        self._source = work.plan.source
        self._job = BinJob(work.spark, work.store, self._source, work.record)
        self._refusals = refuse_bins(work.plan)
        packing = work.plan.packing
        self._bins = [
            Bin(number, packing.order[start:end])
            for number, (start, end) in enumerate(zip(packing.starts, packing.ends, strict=True))
        ]
        self._partition_of = work.plan.bin_groups.tolist()

    def run(self) -> dict[int, str]:
        for batch in self._batches():
            self._run_batch(self._left(batch))
        return self._refusals

    def _batches(self) -> Iterator[list[Bin]]:
        batch_ids = self._work.plan.outcome.batch_ids
        for batch in np.unique(batch_ids).tolist():
            yield [self._bins[i] for i in np.flatnonzero(batch_ids == batch).tolist()]

    def _left(self, bins: Iterable[Bin]) -> list[Bin]:
        """Those that are to be rewritten here: a partition that OPTIMIZE gets, it gets whole."""
        if not self._work.plan.is_optimize:
            return [one for one in bins if one.number not in self._refusals]
        theirs = {self._partition_of[number] for number in self._refusals}
        return [one for one in bins if self._partition_of[one.number] not in theirs]

    def _run_batch(self, bins: list[Bin]) -> None:
        bins = self._live_part(bins, self._work.log.segment().version)
        while bins:
            # Delta begins while the tasks write, and stats are merged.
            meanwhile = in_thread(partial(self._prepare, bins))
            done = self._job.run(bins)
            # What no commit has named yet, and is deleted if none will.
            pending = {one.number: one for one in done}
            try:
                transaction, replaced = meanwhile.result()
                self._check_failures(done)
                self._refusals |= {one.number: one.refusal for one in done if one.refusal is not None}
                kept = [one for one in self._left(bins) if pending[one.number].path]
                bins = self._commit(transaction, kept, replaced, pending)
            finally:
                discard(self._work.store, pending.values())

    def _prepare(self, bins: list[Bin]) -> tuple[OptimizeTransaction, dict[int, Replaced]]:
        """A transaction at the latest version, and what the log will say of the files of each bin."""
        transaction = self._begin()
        replaced = replace_files(self._source, bins)
        return transaction, {one.number: files for one, files in zip(bins, replaced, strict=True)}

    def _begin(self) -> OptimizeTransaction:
        return OptimizeTransaction(self._work.spark, self._work.table)

    def _commit(
        self,
        transaction: OptimizeTransaction,
        bins: list[Bin],
        replaced: Mapping[int, Replaced],
        pending: dict[int, Rewritten],
    ) -> list[Bin]:
        """Prove and commit what is written; what is left of bins that lost files comes back."""
        work, lost = self._work, list[Bin]()
        proof: Fingerprint | None = None
        is_told = False
        while bins:
            left = self._live_part(bins, transaction.version)
            sizes = {one.number: len(one.positions) for one in left}
            whole = [one for one in bins if sizes.get(one.number) == len(one.positions)]
            gone = [one.number for one in bins if sizes.get(one.number) != len(one.positions)]
            if gone and not is_told:
                self._bear(TableChanged(f"files of {format_count(len(gone), 'bin')} are gone"))
            if gone and proof is not None:
                # What is the same of all and of these is the same of the rest.
                proof -= self._compare(self._actions(gone, replaced, pending))
            lost += [one for one in left if one.number in gone]
            bins = whole
            numbers = [one.number for one in bins]
            if not any(pending[number].num_rows for number in numbers):
                break
            actions = self._actions(numbers, replaced, pending)
            metrics = commit_metrics(*_picked(numbers, replaced, pending))
            if work.verify and proof is None:
                proof = self._compare(actions)
            # After an error that is no conflict the commit may stand: then they are the table's files.
            named = {number: pending.pop(number) for number in numbers if pending[number].num_rows}
            try:
                confs = self._checksum_confs(transaction.version)
                with work.record.step("commit"), settings(work.spark, "arrow", work.plan.id, confs):
                    transaction.commit(actions, metrics, work.plan.where)
                break
            except Exception as error:
                if not is_conflict(error):
                    raise
                pending |= named
                self._bear(error)
                transaction, is_told = self._begin(), True
        if proof is not None:
            work.record.fingerprint += proof
        return lost

    def _actions(
        self, numbers: Iterable[int], replaced: Mapping[int, Replaced], pending: Mapping[int, Rewritten]
    ) -> list[str]:
        return file_actions(self._work.store, *_picked(numbers, replaced, pending))

    def _compare(self, lines: Iterable[str]) -> Fingerprint:
        """Prove what file actions do, before they are committed."""
        actions = [json.loads(line) for line in lines]
        gone = [as_add(action["remove"]) for action in actions if "remove" in action]
        return compare(self._work, gone, [action for action in actions if "add" in action])

    def _checksum_confs(self, version: int) -> dict[str, str]:
        """A version without a checksum file is followed by one without: Delta would read the whole log."""
        has_one = self._work.store.is_taken(f"{LOG_FOLDER}/{version:020d}.crc")
        return {} if has_one else _NO_CHECKSUM

    def _bear(self, error: Exception) -> None:
        """Count a conflict; one too many ends the run."""
        self._work.record.conflict(error)
        if len(self._work.record.conflicts) > MOST_CONFLICTS:
            raise error

    def _live_part(self, bins: list[Bin], version: int) -> list[Bin]:
        """What of the bins' files is still live at a version; bins of which one file is left are none."""
        if version == self._work.plan.version or not bins:
            return bins
        snapshot = self._work.log.snapshot(version)
        reason = refuse_changes(self._source.snapshot, snapshot)
        if reason is not None:
            raise TableChanged(reason)
        live = self._are_live(snapshot, bins)
        trimmed = [Bin(one.number, one.positions[live[one.number]]) for one in bins]
        return [one for one in trimmed if len(one.positions) > 1]

    def _are_live(self, snapshot: Snapshot, bins: Sequence[Bin]) -> dict[int, np.ndarray]:
        """Whether each file of each bin is still live, and has no vector that it had not."""
        whole = snapshot.live.filter(pc.is_null(snapshot.live["deletion_vector_id"]))
        paths = self._source.paths(np.concatenate([one.positions for one in bins]))
        is_live = pc.is_in(paths, value_set=whole["path"].combine_chunks()).to_numpy()
        parts = np.split(is_live, np.cumsum([len(one.positions) for one in bins])[:-1])
        return {one.number: part for one, part in zip(bins, parts, strict=True)}

    def _check_failures(self, done: Sequence[Rewritten]) -> None:
        failure = next((one.failure for one in done if one.failure is not None), None)
        if failure is not None:
            raise BinFailed(failure)


def _picked(
    numbers: Iterable[int], replaced: Mapping[int, Replaced], pending: Mapping[int, Rewritten]
) -> tuple[list[Replaced], list[Rewritten]]:
    numbers = list(numbers)
    return [replaced[number] for number in numbers], [pending[number] for number in numbers]
