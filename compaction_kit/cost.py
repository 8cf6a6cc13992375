"""Predict the time and memory of a run from earlier runs on this machine."""

import contextlib
import json
import math
import os
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from compaction_kit.arrow.job import FILE_COST
from compaction_kit.arrow.refusals import refuse_table
from compaction_kit.arrow.worker import COPIED_SHARE, WHOLE_BYTES
from compaction_kit.compat import has_jvm
from compaction_kit.errors import DAMAGE, CompactionKitError
from compaction_kit.execute import CompactionResult
from compaction_kit.handle import Handle
from compaction_kit.log.paths import places
from compaction_kit.plan import BinPlan
from compaction_kit.plan.predict import count_rows
from compaction_kit.records import Record
from compaction_kit.session import cache_folder, keep
from compaction_kit.text import GIB, MIB, format_count, format_range, format_size, parse_number


class _Amounts(NamedTuple):
    """The amounts that take time in a run, its proof or a sample."""

    sessions: float = 0
    first_runs: float = 0
    runs: float = 0
    files_written: float = 0
    # Columns of all files; a footer takes as long as three columns.
    columns: float = 0
    # Millions of values that are decoded, GiB read or written with these, and GiB that are copied.
    values: float = 0
    gib: float = 0
    copied: float = 0
    requests: float = 0


# Keys of `_RATES`, and the file with the amounts and times of earlier runs.
_PROOF, _SAMPLE, _KEPT = "proof", "sample", "rates.json"
# Seconds per unit of each amount on one core, without earlier runs; by `benchmarks` compact and cost.
_RATES = {
    "arrow": _Amounts(5, 4, 0.3, 0.00045, 0.00002, 0.015, 0.5, 0.33, 0.05),
    "optimize": _Amounts(5, 10, 0.8, 0.07, 0.00006, 0.12, 3, 3, 0.05),
    "optimize, sorting": _Amounts(5, 12, 2, 0.1, 0.00008, 0.25, 5, 5, 0.05),
    "rewrite": _Amounts(5, 10, 1, 0.012, 0.00006, 0.12, 3, 3, 0.05),
    _PROOF: _Amounts(0, 0.6, 0.2, 0, 0.00004, 0.01, 0.3, 0.1, 0.05),
    _SAMPLE: _Amounts(0, 0, 0, 0, 0.00004, 0.02, 1, 0, 0.05),
}
# Errors, as logarithms: of the built-in rates on another machine, among similar runs, of a sample.
_UNKNOWN, _RUNS_DIFFER, _SAMPLES_DIFFER = math.log(2), 0.25, 0.4
# Runs kept per strategy, seconds and files of a sample, and the bytes per value and columns per file where
# these are unknown.
_MOST_RUNS, _SAMPLE_SECONDS, _SAMPLE_FILES, _BYTES_A_VALUE, _COLUMNS = 12, 1.0, 1_000, 4, 7
# Requests of all tasks at once; bytes of a GET for decoding and for comparing, and of an upload's part.
_REQUESTS_AT_ONCE, _GET_BYTES, _BLOCK_BYTES, _PART_BYTES = 64, 32 * MIB, 8 * MIB, 10 * MIB
# Memory of a task at first, and the most that decoding adds; of the driver at first, and for each file.
# On the second line: Java's memory for each output that Spark writes, up to the heap.
_TASK_BYTES, _DECODED_BYTES, _DRIVER_BYTES, _ACTION_BYTES = 150 * MIB, 400 * MIB, 200 * MIB, 6 << 10
_OUTPUT_BYTES, _HEAP_BYTES = 40 * MIB, 4 * GIB
# A sample's amounts, in the order of `_Amounts`, and its seconds; sampled once per table.
_Sample = tuple[np.ndarray, float]
_SAMPLES: dict[tuple[str, str], _Sample] = {}
# Strategies that have run in this process, and the share that is new in Spark's ones after only arrow ran.
RAN: set[str] = set()
_AFTER_ARROW = 0.5
_LEARNING = threading.Lock()


@dataclass(frozen=True, repr=False)
class Cost(Record):
    """The predicted cost of a run; its proof reads the files that the run reads and writes.

    Attributes:
        strategy: "arrow", "optimize" (", sorting" if it sorts rows), "rewrite" or "reorg".
        files_read, files_written, bytes_read, bytes_written: Of data files; bytes written are predicted.
        requests, proof_requests: Approximate requests for data files on an object store; 0 on a disk.
        seconds, proof_seconds: A range, from and to, that is right for about two of three runs.
        memory: The approximate most bytes that the driver and all tasks hold.
        basis: The data from which the seconds are predicted.
        amounts: The amounts that take time in the run and in its proof, in the order of `_Amounts`.
    """

    strategy: str
    files_read: int
    files_written: int
    bytes_read: int
    bytes_written: int
    requests: int
    proof_requests: int
    seconds: tuple[float, float]
    proof_seconds: tuple[float, float]
    memory: int
    basis: str
    amounts: Sequence[Sequence[float]] = field(repr=False)

    def total(self, verify: bool = True) -> tuple[float, float]:
        """Return the seconds of the run, from and to, with those of its proof if there is one."""
        low, high = np.add(self.seconds, self.proof_seconds) if verify else self.seconds
        return float(low), float(high)

    def price(self, per_gib: float = 0.0, per_hour: float = 0.0) -> tuple[float, float]:
        """Return the price of run and proof, from and to, by prices per GiB read or written and per hour."""
        per_gib, per_hour = parse_number(per_gib, "per_gib"), parse_number(per_hour, "per_hour")
        (low, high), gib = self.total(), 2 * (self.bytes_read + self.bytes_written) / GIB
        return per_gib * gib + per_hour * low / 3600, per_gib * gib + per_hour * high / 3600

    def facts(self) -> dict[str, str]:
        """Return the cost as readable text: names and values."""
        both = f"{format_size(self.bytes_read)} → about {format_size(self.bytes_written)}"
        return {"bytes": both, "takes": str(self), "predicted from": self.basis}

    def in_words(self, verify: bool = True) -> str:
        """Return the cost of the run, and of its proof if there is one, as text."""
        if not self.files_read:
            return "no time, as there is nothing to do"
        text = f"about {format_range(*self.seconds)}"
        text += f", and {format_range(*self.proof_seconds)} for its proof" if verify else ""
        asked = f", about {self.requests:,} requests to the store" if self.requests else ""
        asked += f" and {self.proof_requests:,} for the proof" if asked and verify else ""
        return f"{text}; about {format_size(self.memory)} of memory{asked}"

    __str__ = in_words


@dataclass(frozen=True)
class _Work:
    """Earlier runs, and the properties of a run besides its files and bytes.

    `copied` is the share of the bytes in row groups that are copied unchanged, `largest` the share of the
    largest bin. `new_session` says whether Spark starts, `first_run` which share of the code is new to Java.
    """

    kept: dict[str, list[list[float]]]
    values: float
    columns: int
    copied: float
    largest: float
    new_session: bool = False
    first_run: float = 0
    batches: int = 1
    cores: int = os.cpu_count() or 1
    sample: _Sample | None = None


def predict_cost(
    files_read: int,
    bytes_read: int,
    files_written: int,
    bytes_written: int,
    strategy: str = "arrow",
    remote: bool = False,
) -> Cost:
    """Predict the cost of a compaction from its numbers of files and bytes, for files of equal size.

    Only the kept times of runs are read, and a running session is assumed. `strategy` is "arrow", "optimize",
    "rewrite" or "reorg"; `remote` says whether the table is on an object store.
    """
    is_copied = strategy == "arrow" and not remote and bytes_read >= WHOLE_BYTES * files_read
    work = _Work(_kept(), bytes_read / _BYTES_A_VALUE, _COLUMNS, float(is_copied), 1 / max(files_written, 1))
    return _predict((files_read, bytes_read, files_written, bytes_written), strategy, remote, work)


def cost_of(handle: Handle, plan: BinPlan, strategy: str = "auto", may_read: bool = True) -> Cost:
    """Predict the cost of a plan's run, with a sample of files if it may read; see `CompactionPlan.cost`."""
    if strategy == "auto":
        refused = refuse_table(handle.session, plan, False)
        strategy = "reorg" if plan.is_purge else "optimize" if refused else "arrow"
    if plan.sorts_rows and strategy == "optimize":
        strategy = "optimize, sorting"
    source, (positions, bin_ids), is_local = plan.source, plan.members, handle.store.is_local
    sizes, rows = source.sizes[positions], count_rows(source)[0][positions]
    columns, spark = len(source.data_columns), handle.session
    bins = np.bincount(bin_ids, sizes + FILE_COST, plan.num_bins)
    # As `worker.rewrite` decides, as far as the log shows it.
    may_copy = strategy == "arrow" and is_local and not source.snapshot.metadata.tracks_rows
    large = np.where(may_copy & (sizes >= WHOLE_BYTES), sizes, 0)
    both, copied = (np.bincount(bin_ids, one, plan.num_bins) for one in (sizes, large))
    kept = _kept()
    is_known = plan.is_empty or {strategy, _PROOF} <= kept.keys()
    work = _Work(
        kept,
        values=float(np.where(np.isnan(rows), sizes / _BYTES_A_VALUE, rows * columns).sum()),
        columns=columns,
        copied=float(copied[copied >= COPIED_SHARE * both].sum() / max(sizes.sum(), 1)),
        largest=float(bins.max(initial=0) / max(bins.sum(), 1)),
        new_session=spark is None,
        first_run=_new_share(strategy),
        batches=max(plan.num_batches, 1),
        cores=spark.sparkContext.defaultParallelism if spark and has_jvm(spark) else os.cpu_count() or 1,
        sample=None if is_known else _sample(plan, may_read),
    )
    sums = plan.num_files_removed, plan.bytes_removed, plan.num_files_added, plan.bytes_added
    found = _predict(sums, strategy, not is_local, work)
    nothing = (0.0, 0.0)
    return replace(found, seconds=nothing, proof_seconds=nothing, memory=0) if plan.is_empty else found


def _new_share(strategy: str) -> float:
    """Return the share of a strategy's code that this process's Java has not run yet."""
    if strategy in RAN or RAN - {"arrow"}:
        return 0
    return _AFTER_ARROW if RAN else 1


def _predict(sums: tuple[int, int, int, int], strategy: str, remote: bool, work: _Work) -> Cost:
    files_read, bytes_read, files_written, bytes_written = sums
    files, size_bytes = files_read + files_written, bytes_read + bytes_written
    # A HEAD, and a GET or a PUT; Hadoop's S3A sends two more requests for a file that it writes.
    more = bytes_read // _GET_BYTES + bytes_written // _PART_BYTES + 2 * files_written * (strategy != "arrow")
    requests = (2 * files + more, 2 * (files + size_bytes // _BLOCK_BYTES)) if remote else (0, 0)
    # Tasks run in parallel: on a disk "arrow" cuts bins, except bins that it copies.
    is_cut = strategy == "arrow" and not remote and not work.copied
    run, proof = max(1 / work.cores, 0 if is_cut else work.largest), max(1 / work.cores, work.largest / 2)
    columns, values = work.columns + 3, (1 - work.copied) * work.values / 1e6
    gib, copied = (1 - work.copied) * size_bytes / GIB, work.copied * size_bytes / GIB
    both = _Amounts(work.new_session, work.first_run, copied=copied)
    of_run = both._replace(
        runs=work.batches,
        files_written=files_written,
        columns=run * files_read * columns,
        values=run * values,
        gib=run * gib,
        requests=requests[0] / _REQUESTS_AT_ONCE,
    )
    of_proof = both._replace(
        # "arrow" proves each batch before its commit.
        runs=work.batches if strategy == "arrow" else 1,
        columns=proof * files * columns,
        values=proof * 2 * values,
        gib=proof * gib,
        requests=requests[1] / _REQUESTS_AT_ONCE,
    )
    seconds, basis = _seconds(strategy, of_run, work)
    proof_seconds, _ = _seconds(_PROOF, of_proof, work)
    held = min(_DECODED_BYTES, int(3 * (1 - work.copied) * size_bytes / work.cores))
    written = 0 if strategy == "arrow" else min(_OUTPUT_BYTES * files_written, _HEAP_BYTES)
    memory = _DRIVER_BYTES + _ACTION_BYTES * files + work.cores * (_TASK_BYTES + held) + written
    done = files_read, files_written, bytes_read, bytes_written
    return Cost(strategy, *done, *requests, seconds, proof_seconds, memory, basis, (of_run, of_proof))


def learn(cost: Cost, result: CompactionResult) -> CompactionResult:
    """Keep the time of a run that did what was predicted; returns the result with the prediction."""
    if result.strategy != cost.strategy.partition(",")[0]:
        return result
    RAN.add(cost.strategy)
    if result.conflicts or result.refusals or result.num_files_removed != cost.files_read:
        return result
    steps = result.timeline.to_pylist()
    proof = sum(step["seconds"] for step in steps if step["step"] == "proof")
    is_quick = result.verified and not result.proof_reason
    took = {cost.strategy: result.seconds - proof} | ({_PROOF: proof} if is_quick else {})
    # Without a cache folder nothing is learned.
    with _LEARNING, contextlib.suppress(OSError):
        kept = _kept()
        for (key, seconds), amounts in zip(took.items(), cost.amounts, strict=False):
            if seconds > 0:
                kept[key] = [*kept.get(key, []), [*map(float, amounts), seconds]][-_MOST_RUNS:]
        keep(cache_folder() / _KEPT, json.dumps(kept))
    return replace(result, predicted=cost.total(bool(result.verified)))


def _seconds(key: str, amounts: _Amounts, work: _Work) -> tuple[tuple[float, float], str]:
    """Return the seconds of amounts, from and to, and the basis of the prediction."""
    rates = np.array(_RATES.get(key, _RATES["optimize"]))
    parts = np.array(amounts) * rates
    expected = float(parts.sum())
    basis, slower, certainty = "built-in rates", np.zeros(0), np.zeros(0)
    runs = np.array(work.kept.get(key, []))
    if len(runs):
        basis = f"the last {format_count(len(runs), 'run').removeprefix('1 ')} on this machine"
        parts_of_runs = runs[:, :-1] * rates
        expected_of_runs = parts_of_runs.sum(axis=1)
        # Factors between runs and the built-in rates, as logarithms, because errors are factors.
        slower = np.log(runs[:, -1] / expected_of_runs)
        # A run counts more if more of its time went into the same parts.
        shares_of_runs = parts_of_runs / expected_of_runs[:, np.newaxis]
        alike = np.minimum(shares_of_runs, parts / expected).sum(axis=1)
        certainty = (alike / _RUNS_DIFFER) ** 2
    elif work.sample is not None:
        basis = "a second of work"
        done, spent = work.sample
        slower = np.log([spent / np.dot(_RATES[_SAMPLE], done)])
        certainty = np.array([1 / _SAMPLES_DIFFER**2])
    # The built-in rates count as one more measurement.
    total = 1 / _UNKNOWN**2 + certainty.sum()
    middle = expected * math.exp(certainty @ slower / total)
    factor = math.exp(math.sqrt(1 / total + _RUNS_DIFFER**2))
    return (middle / factor, middle * factor), basis


def _sample(plan: BinPlan, may_read: bool) -> _Sample | None:
    """Read and write the first rows of some of a plan's files in memory, for a second."""
    source, store, end = plan.source, plan.source.snapshot.store, time.perf_counter() + _SAMPLE_SECONDS
    # On a disk, only this thread's own time counts, as others may be busy; on a store, waiting counts too.
    clock = time.thread_time if store.is_local else time.perf_counter
    key, start, done = (store.root, source.snapshot.metadata.id), clock(), np.array(_Amounts(), float)
    positions = plan.members[0][:: plan.num_files_removed // _SAMPLE_FILES + 1]
    chosen = places(source.paths(positions), store).to_pylist()
    with contextlib.suppress(OSError, pa.ArrowException, CompactionKitError):
        for place in chosen if may_read and key not in _SAMPLES else ():
            file, sink = pq.ParquetFile(store.open(place), pre_buffer=True), pa.BufferOutputStream()
            rows = pa.Table.from_batches(islice(file.iter_batches(use_threads=False), 1), file.schema_arrow)
            pq.write_table(rows, sink)
            values, gib = rows.num_rows * rows.num_columns / 1e6, 2 * sink.tell() / GIB
            requests = 0 if store.is_local else 3
            done += _Amounts(columns=rows.num_columns + 3, values=values, gib=gib, requests=requests)
            _SAMPLES[key] = done, clock() - start
            if time.perf_counter() > end:
                break
    return _SAMPLES.get(key)


def _kept() -> dict[str, list[list[float]]]:
    """Return the amounts and seconds of each strategy's last runs: one list per run."""
    with contextlib.suppress(OSError, *DAMAGE):
        kept = json.loads((cache_folder() / _KEPT).read_text(encoding="utf-8"))
        for runs in kept.values():
            table = np.array(runs)
            is_valid = np.isfinite(table).all() and (table >= 0).all() and (table[:, -1] > 0).all()
            if not is_valid or table.shape[1] != len(_Amounts._fields) + 1:
                return {}
        return dict(kept)
    return {}
