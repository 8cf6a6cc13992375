"""The strategy "arrow": a plan's bins, batch after batch, rewritten by Spark tasks and committed by Delta."""

import contextlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import wait
from functools import partial

import numpy as np
import pyarrow.compute as pc

from compaction_kit.arrow.actions import Replaced, commit_metrics, file_actions, replace_files
from compaction_kit.arrow.job import Bin, BinJob
from compaction_kit.arrow.refusals import refuse_bins, refuse_changes, refuse_table
from compaction_kit.arrow.worker import RewriteOutput
from compaction_kit.execute.commits import as_add, settings
from compaction_kit.execute.delta import OptimizeTransaction, is_conflict
from compaction_kit.execute.failures import BinFailed, TableChanged
from compaction_kit.execute.jobs import POLL_SECONDS, in_thread
from compaction_kit.execute.proof import compare
from compaction_kit.execute.work import Run, Strategy
from compaction_kit.log.listing import LOG_FOLDER
from compaction_kit.text import format_count
from compaction_kit.verify import Fingerprint

# Conflicts after which a run gives up.
MOST_CONFLICTS = 5
_NO_CHECKSUM = {
    "spark.databricks.delta.writeChecksumFile.enabled": "false",
    "spark.databricks.delta.incremental.commit.enabled": "false",
}


class Arrow(Strategy):
    """One Spark job rewrites all bins with pyarrow; outputs are compared before Delta commits them."""

    name = "arrow"
    reason = "arrow: one Spark job rewrites all bins with pyarrow, where OPTIMIZE starts a job for each"
    runs_any_order = True

    def refuse(self, run: Run) -> str | None:
        """Return why the table's bins can't be rewritten with pyarrow; `run` finds refused bins."""
        return refuse_table(run.spark, run.plan)

    def run(self, run: Run) -> Mapping[int, str]:
        """Rewrite bins, compare the outputs, and commit them as OPTIMIZE would.

        Raises:
            TableChanged: Another writer changed the columns or how they are stored.
            BinFailed: A file can't be read or written; its batch was not committed.
            ContentDiffers: Spark reads other rows from the outputs; their batch was not committed.
            WorkCancelled: It was cancelled; its batch was not committed.
        """
        arrow = _ArrowRun(run)
        for batch in arrow.batches():
            arrow.run_batch(batch)
        return arrow.refusals


class _ArrowRun:
    """One run, with the bins that are refused on the way."""

    def __init__(self, work: Run):
        self._work = work
        self._source = work.plan.source
        self._job = BinJob(work.spark, work.store, self._source, work.record)
        self.refusals = refuse_bins(work.plan)
        packing = work.plan.packing
        self._bins = [
            Bin(number, packing.order[start:end])
            for number, (start, end) in enumerate(zip(packing.starts, packing.ends, strict=True))
        ]
        self._partition_of = work.plan.bin_groups.tolist()

    def batches(self) -> Iterator[list[Bin]]:
        batch_ids = self._work.plan.outcome.batch_ids
        for batch in np.unique(batch_ids).tolist():
            yield [self._bins[i] for i in np.flatnonzero(batch_ids == batch).tolist()]

    def _left(self, bins: Iterable[Bin]) -> list[Bin]:
        """The bins to rewrite here: OPTIMIZE gets whole partitions."""
        if not self._work.plan.is_optimize:
            return [bin_ for bin_ in bins if bin_.number not in self.refusals]
        theirs = {self._partition_of[number] for number in self.refusals}
        return [bin_ for bin_ in bins if self._partition_of[bin_.number] not in theirs]

    def run_batch(self, bins: list[Bin]) -> None:
        bins = self._live_part(self._left(bins), self._work.log.segment().version)
        while bins:
            # Delta begins while the tasks write, and stats are merged.
            meanwhile = in_thread(self._work.spark, partial(self._prepare, bins))
            # Outputs that no commit has named yet: deleted if none will.
            with self._job.rewritten(bins) as pending:
                done = list(pending.values())
                transaction, replaced = meanwhile.result()
                failure = next((output.failure for output in done if output.failure is not None), None)
                if failure is not None:
                    raise BinFailed(failure)
                self.refusals |= {
                    output.number: output.refusal for output in done if output.refusal is not None
                }
                kept = [bin_ for bin_ in self._left(bins) if pending[bin_.number].path]
                bins = self._commit(transaction, kept, replaced, pending)

    def _prepare(self, bins: list[Bin]) -> tuple[OptimizeTransaction, dict[int, Replaced]]:
        """Begin a transaction at the latest version, and make the actions of each bin's inputs."""
        transaction = OptimizeTransaction(self._work.spark, self._work.table)
        return transaction, dict(
            zip([b.number for b in bins], replace_files(self._source, bins), strict=True)
        )

    def _commit(
        self,
        transaction: OptimizeTransaction,
        bins: list[Bin],
        replaced: Mapping[int, Replaced],
        pending: dict[int, RewriteOutput],
    ) -> list[Bin]:
        """Compare and commit outputs; returns the live part of bins of which other writers took files."""
        work, lost = self._work, list[Bin]()
        proof: Fingerprint | None = None
        is_counted = False

        def picked(numbers: list[int]) -> tuple[list[Replaced], list[RewriteOutput]]:
            return [replaced[number] for number in numbers], [pending[number] for number in numbers]

        while bins:
            left = self._live_part(bins, transaction.version)
            sizes = {bin_.number: len(bin_.positions) for bin_ in left}
            whole = [bin_ for bin_ in bins if sizes.get(bin_.number) == len(bin_.positions)]
            gone = [bin_.number for bin_ in bins if sizes.get(bin_.number) != len(bin_.positions)]
            if gone and not is_counted:
                self._count_conflict(TableChanged(f"files of {format_count(len(gone), 'bin')} are gone"))
            if gone and proof is not None:
                # If all bins and these have the same content as their outputs, so have the rest. Each reader
                # has hashes of its own: if another one compared these, the rest is compared once more.
                part = self._compare(file_actions(work.store, *picked(gone)))
                proof = proof - part if {*part.readers} <= {*proof.readers} else None
            lost += [bin_ for bin_ in left if bin_.number in gone]
            bins = whole
            numbers = [bin_.number for bin_ in bins]
            if not any(pending[number].num_rows for number in numbers):
                break
            actions = file_actions(work.store, *picked(numbers))
            metrics = commit_metrics(*picked(numbers))
            if work.verify and proof is None:
                proof = self._compare(actions)
            work.record.ask(work.record.committing)
            # After an error that is no conflict the commit may have been made: then they are live files.
            named = {number: pending.pop(number) for number in numbers if pending[number].num_rows}
            try:
                # After a version without a checksum file, Delta would read the whole log to write one.
                has_one = work.store.is_taken(f"{LOG_FOLDER}/{transaction.version:020d}.crc")
                confs = {} if has_one else _NO_CHECKSUM
                with work.record.step("commit"), settings(work.spark, "arrow", work.plan.id, confs, proof):
                    self._watch(partial(transaction.commit, actions, metrics, work.plan.where))
                break
            except Exception as error:
                if not is_conflict(error):
                    raise
                pending |= named
                self._count_conflict(error)
                transaction, is_counted = OptimizeTransaction(work.spark, work.table), True
        if proof is not None:
            work.record.fingerprint += proof
        return lost

    def _watch(self, commit: Callable[[], int]) -> None:
        """Commit, and report that meanwhile; it can't be cancelled any more."""
        outcome = in_thread(self._work.spark, commit)
        try:
            while not wait([outcome], POLL_SECONDS).done:
                with contextlib.suppress(Exception):
                    self._work.record.committing()
        finally:
            # After Ctrl-C too: else the error says that nothing is committed, and a moment later it is.
            wait([outcome])
        outcome.result()

    def _compare(self, lines: Iterable[str]) -> Fingerprint:
        """Compare the rows that file actions remove and add, before they are committed."""
        actions = [json.loads(line) for line in lines]
        gone = [as_add(action["remove"]) for action in actions if "remove" in action]
        return compare(self._work, gone, [action for action in actions if "add" in action])

    def _count_conflict(self, error: Exception) -> None:
        self._work.record.conflict(error)
        if len(self._work.record.conflicts) > MOST_CONFLICTS:
            raise error

    def _live_part(self, bins: list[Bin], version: int) -> list[Bin]:
        """Return the bins with their files that are live at a version, if more than one is."""
        if version == self._work.plan.version or not bins:
            return bins
        snapshot = self._work.log.snapshot(version)
        if reason := refuse_changes(self._work.spark, self._source.snapshot, snapshot):
            raise TableChanged(reason)
        whole = snapshot.live.filter(pc.is_null(snapshot.live["deletion_vector_id"]))
        paths = self._source.paths(np.concatenate([bin_.positions for bin_ in bins]))
        is_live = pc.is_in(paths, value_set=whole["path"].combine_chunks()).to_numpy()
        parts = np.split(is_live, np.cumsum([len(bin_.positions) for bin_ in bins])[:-1])
        trimmed = [Bin(bin_.number, bin_.positions[part]) for bin_, part in zip(bins, parts, strict=True)]
        return [bin_ for bin_ in trimmed if len(bin_.positions) > 1]
