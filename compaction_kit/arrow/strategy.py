"""The strategy "arrow": a plan's bins, batch after batch, rewritten by Spark tasks and committed by Delta.

`rewritten` runs the tasks of a batch and publishes their outputs, `compare` proves them, and an
`OptimizeTransaction` commits. Bins that lost files to other writers are left out; their remaining files are
rewritten next.
"""

import contextlib
import json
import time
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Future, wait
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from compaction_kit.arrow.job import Bin, PartitionValues, partition_values, rewritten, row_fields
from compaction_kit.arrow.refusals import refuse_bins, refuse_changes, refuse_table
from compaction_kit.arrow.stats import MergedStats, data_leaves, footer_stats, indexed_leaves, merge_stats
from compaction_kit.arrow.worker import RewriteOutput
from compaction_kit.execute.commits import as_add, commits_of, settings
from compaction_kit.execute.delta import OptimizeTransaction, is_conflict
from compaction_kit.execute.failures import BinFailed, TableChanged
from compaction_kit.execute.jobs import POLL_SECONDS, in_thread
from compaction_kit.execute.proof import compare
from compaction_kit.execute.work import Run, Strategy
from compaction_kit.files import Files
from compaction_kit.log.listing import LOG_FOLDER
from compaction_kit.log.paths import log_path
from compaction_kit.log.snapshot import file_keys
from compaction_kit.storage import Store
from compaction_kit.text import format_count
from compaction_kit.verify import Fingerprint

# A run gives up after this number of conflicts.
MOST_CONFLICTS = 5
_NO_CHECKSUM = {
    "spark.databricks.delta.writeChecksumFile.enabled": "false",
    "spark.databricks.delta.incremental.commit.enabled": "false",
}


class Arrow(Strategy):
    """Spark jobs rewrite many bins each with pyarrow; outputs are compared before Delta commits them."""

    name = "arrow"
    reason = "arrow: a Spark job rewrites many bins with pyarrow, where OPTIMIZE starts a job for each"
    runs_any_order = True

    def refuse(self, run: Run) -> str | None:
        """Return why the table's bins can't be rewritten with pyarrow; `run` finds refused bins."""
        return refuse_table(run.spark, run.plan)

    def run(self, run: Run) -> Mapping[int, str]:
        """Rewrite bins, compare the outputs, and commit them as OPTIMIZE would: see `Strategy.run`.

        Raises:
            TableChanged, BinFailed, ContentDiffers, WorkCancelled: The current batch was not committed.
        """
        arrow, packing, batch_ids = _ArrowRun(run), run.plan.packing, run.plan.outcome.batch_ids
        for batch in np.unique(batch_ids).tolist():
            numbers = np.flatnonzero(batch_ids == batch).tolist()
            arrow.run_batch([Bin(i, packing.order[packing.starts[i] : packing.ends[i]]) for i in numbers])
        return arrow.refusals


@dataclass(frozen=True)
class _Inputs:
    """The parts of a bin's actions that its inputs determine: parts of the add, and `removes` in JSON.

    Without JSON, thousands of objects would keep Python's garbage collector busy.
    """

    partition_values: PartitionValues
    stats: MergedStats
    sizes: list[int]
    removes: list[str]
    num_vectors: int


class _Done(NamedTuple):
    """A bin's inputs, its output, and the output's stats as JSON."""

    inputs: _Inputs
    output: RewriteOutput
    stats: str


_Pending = dict[int, RewriteOutput]


class _ArrowRun:
    """One run, with the bins that it refuses."""

    def __init__(self, run: Run):
        self._run = run
        self.refusals = refuse_bins(run.plan)
        self._partition_of = run.plan.bin_groups.tolist()

    def run_batch(self, bins: list[Bin]) -> None:
        run = self._run
        bins = self._live_part(self._left(bins), run.log.segment().version)
        while bins:
            # While the tasks write, Delta's transaction begins and stats are merged.
            meanwhile = in_thread(run.spark, partial(self._prepare, bins))
            # Outputs that no commit has named yet; those still in `pending` at the end are deleted.
            with rewritten(run, bins) as pending:
                transaction, inputs = meanwhile.result()
                for output in pending.values():
                    if output.failure is not None:
                        raise BinFailed(output.failure)
                    if output.refusal is not None:
                        self.refusals[output.number] = output.refusal
                kept = [bin_ for bin_ in self._left(bins) if pending[bin_.number].path]
                pairs = [(inputs[bin_.number], pending[bin_.number]) for bin_ in kept]
                finished = run.store.at_once(partial(_finished, run.store), pairs)
                done = {one.output.number: one for one in finished}
                bins = self._commit(transaction, kept, done, pending)

    def _left(self, bins: Iterable[Bin]) -> list[Bin]:
        """Return the bins to rewrite here: OPTIMIZE gets whole partitions."""
        if not self._run.plan.is_optimize:
            return [bin_ for bin_ in bins if bin_.number not in self.refusals]
        theirs = {self._partition_of[number] for number in self.refusals}
        return [bin_ for bin_ in bins if self._partition_of[bin_.number] not in theirs]

    def _live_part(self, bins: list[Bin], version: int) -> list[Bin]:
        """Return bins with only their files that are live at a version, without bins of fewer than two.

        Bins that lost no file are the same objects.
        """
        run, source = self._run, self._run.plan.source
        if version == run.plan.version or not bins:
            return bins
        snapshot = run.log.snapshot(version)
        if reason := refuse_changes(run.spark, source.snapshot, snapshot):
            raise TableChanged(reason)
        now, planned = file_keys(snapshot.live), file_keys(source.snapshot.live)
        is_live = pc.is_in(planned, value_set=now).to_numpy(zero_copy_only=False)
        live = [is_live[source.in_snapshot(bin_.positions)] for bin_ in bins]
        trimmed = [
            bin_ if part.all() else Bin(bin_.number, bin_.positions[part])
            for bin_, part in zip(bins, live, strict=True)
        ]
        return [bin_ for bin_ in trimmed if len(bin_.positions) > 1]

    def _prepare(self, bins: list[Bin]) -> tuple[OptimizeTransaction, dict[int, _Inputs]]:
        """Begin a transaction at the latest version, and make the actions of each bin's inputs."""
        transaction = OptimizeTransaction(self._run.spark, self._run.table)
        return transaction, _inputs(self._run.plan.source, bins)

    def _commit(
        self, transaction: OptimizeTransaction, bins: list[Bin], done: Mapping[int, _Done], pending: _Pending
    ) -> list[Bin]:
        """Compare and commit outputs; returns the live part of bins that lost files to other writers."""
        run, lost, is_counted = self._run, list[Bin](), False
        proof: Fingerprint | None = None
        while bins:
            live, before = self._live_part(bins, transaction.version), set(bins)
            gone = [done[bin_.number] for bin_ in before.difference(live)]
            lost += [bin_ for bin_ in live if bin_ not in before]
            bins = [bin_ for bin_ in live if bin_ in before]
            if gone and not is_counted:
                self._count_conflict(TableChanged(f"files of {format_count(len(gone), 'bin')} are gone"))
            if gone and proof is not None:
                proof = self._without(proof, gone)
            kept = [done[bin_.number] for bin_ in bins]
            named = {one.output.number: one.output for one in kept if one.output.num_rows}
            if not named:
                break
            actions = _file_actions(run.store, kept)
            if run.verify and proof is None:
                proof = self._compare(actions)
            run.record.report_or_cancel(run.record.committing)
            # After an error other than a conflict, the commit may exist: the outputs may be live files.
            for number in named:
                del pending[number]
            try:
                self._commit_actions(transaction, actions, _metrics(kept), proof)
                break
            except Exception as error:
                if not is_conflict(error):
                    raise
                pending |= named
                self._count_conflict(error)
                transaction, is_counted = OptimizeTransaction(run.spark, run.table), True
        if proof is not None:
            run.record.fingerprint += proof
        return lost

    def _without(self, proof: Fingerprint, gone: Sequence[_Done]) -> Fingerprint | None:
        """Compare the bins whose files are gone, and subtract them from the proof of all bins.

        Returns None if another reader has compared them, because each reader has its own hashes.
        """
        part = self._compare(_file_actions(self._run.store, gone))
        return proof - part if {*part.readers} <= {*proof.readers} else None

    def _is_committed(self, actions: Iterable[str], version: int) -> bool:
        """Return whether these actions are committed: if an answer is lost, Delta conflicts with itself."""
        commits = commits_of(self._run.store, self._run.id, version)
        added = {add["path"] for commit in commits for add in commit.adds}
        return any(json.loads(line).get("add", {}).get("path") in added for line in actions)

    def _commit_actions(
        self,
        transaction: OptimizeTransaction,
        actions: Sequence[str],
        metrics: Mapping[str, int],
        proof: Fingerprint | None,
    ) -> None:
        """Commit, and report progress meanwhile; the commit can't be cancelled."""
        run = self._run
        # After a version without a checksum file, Delta would read the whole log to write one.
        has_one = run.store.is_file(f"{LOG_FOLDER}/{transaction.version:020d}.crc")
        confs = {} if has_one else _NO_CHECKSUM
        with run.record.step("commit"), settings(run.spark, "arrow", run.id, confs, proof) as spark:
            commit = partial(transaction.commit, spark, actions, metrics, run.plan.where)
            outcome = Future[Any]()
            try:
                in_thread(spark, commit, outcome)
                while not wait([outcome], POLL_SECONDS).done:
                    with contextlib.suppress(Exception):
                        run.record.committing()
            finally:
                # After Ctrl-C too, or the error could say that nothing is committed just before it is.
                if not outcome.cancel():
                    wait([outcome])
            error = outcome.exception()
            if error and not (is_conflict(error) and self._is_committed(actions, transaction.version)):
                raise error

    def _compare(self, lines: Iterable[str]) -> Fingerprint:
        """Compare the rows that file actions remove and add, before they are committed."""
        # Parsing all lines at once takes half the time.
        actions = json.loads(f"[{','.join(lines)}]")
        gone = [as_add(action["remove"]) for action in actions if "remove" in action]
        return compare(self._run, gone, [action for action in actions if "add" in action])

    def _count_conflict(self, error: Exception) -> None:
        self._run.record.conflict(error)
        if len(self._run.record.conflicts) > MOST_CONFLICTS:
            raise error


def _inputs(source: Files, bins: Sequence[Bin]) -> dict[int, _Inputs]:
    """Make the parts of actions that depend on bins' inputs, by the number of the bin.

    The inputs' deletion time is now, before they are rewritten, as in OPTIMIZE (OptimizeExecutor,
    operationTimestamp).
    """
    leaves, by_default = data_leaves(source.snapshot.metadata), indexed_leaves(source.snapshot.metadata)
    positions = np.concatenate([bin_.positions for bin_ in bins])
    stats = source.snapshot.stats.take(pa.array(source.in_snapshot(positions))).to_pylist()
    sizes, values = source.sizes[positions].tolist(), partition_values(source, positions)
    same = {"deletionTimestamp": int(time.time() * 1000), "dataChange": False, "extendedFileMetadata": True}
    paths, fields = source.paths(positions).to_pylist(), row_fields(source, positions)
    removes = [
        json.dumps({"remove": {"path": path, **same, "partitionValues": row, "size": size_bytes, **more}})
        for path, row, size_bytes, more in zip(paths, values, sizes, fields, strict=True)
    ]
    found, end = {}, 0
    for bin_ in bins:
        start, end = end, end + len(bin_.positions)
        merged = merge_stats(stats[start:end], leaves, by_default=by_default)
        own = sizes[start:end]
        num_vectors = sum("deletionVector" in one for one in fields[start:end])
        found[bin_.number] = _Inputs(values[start], merged, own, removes[start:end], num_vectors)
    return found


def _finished(store: Store, pair: tuple[_Inputs, RewriteOutput]) -> _Done:
    inputs, output = pair
    read = partial(footer_stats, store, output.path.removeprefix(f"{store.root}/"))
    stats = inputs.stats.of(output.num_rows, read, output.with_nan) if output.num_rows else ""
    return _Done(inputs, output, stats)


def _file_actions(store: Store, done: Iterable[_Done]) -> list[str]:
    """Return the add of each bin's output, if the output has rows, and the removes of its inputs, in JSON."""
    actions: list[str] = []
    for inputs, output, stats in done:
        if output.num_rows:
            add = {
                "path": log_path(output.path.removeprefix(f"{store.root}/")),
                "partitionValues": inputs.partition_values,
                "size": output.size_bytes,
                "modificationTime": output.modification_time,
                "dataChange": False,
                "stats": stats,
            }
            actions.append(json.dumps({"add": add}))
        actions += inputs.removes
    return actions


def _metrics(done: Sequence[_Done]) -> dict[str, int]:
    """Return OPTIMIZE's metrics for the history (OptimizeExecutor, createMetrics)."""
    added = sorted(one.output.size_bytes for one in done if one.output.num_rows)
    removed = [size_bytes for one in done for size_bytes in one.inputs.sizes]
    count = len(added)
    return {
        "numAddedFiles": count,
        "numRemovedFiles": len(removed),
        "numAddedBytes": sum(added),
        "numRemovedBytes": sum(removed),
        "minFileSize": added[0],
        "p25FileSize": added[count // 4],
        "p50FileSize": added[count // 2],
        "p75FileSize": added[count * 3 // 4],
        "maxFileSize": added[-1],
        "numDeletionVectorsRemoved": sum(one.inputs.num_vectors for one in done),
    }
