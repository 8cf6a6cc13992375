"""What a run will take: predicted by what earlier runs on this machine took."""

import contextlib
import json
import math
import os
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from compaction_kit.arrow.job import FILE_COST
from compaction_kit.arrow.refusals import refuse_plan
from compaction_kit.arrow.vectors import tracking_columns
from compaction_kit.arrow.worker import WHOLE_BYTES
from compaction_kit.compat import has_jvm
from compaction_kit.execute import CompactionResult
from compaction_kit.handle import Handle
from compaction_kit.log.paths import places
from compaction_kit.plan import BinPlan
from compaction_kit.plan.predict import count_rows
from compaction_kit.records import Record
from compaction_kit.session import cache_folder
from compaction_kit.text import GIB, MIB, format_count, format_files, format_range, format_size

_PROOF, _SAMPLE, _KEPT = "proof", "sample", "rates.json"
# Seconds on one core that these need by each strategy, as far as no run shows it: a session that starts, a
# first run in a session, any run, a file written, a file read, a million values decoded, a GiB read or
# written with these, a GiB copied, a request to a store. "optimize" is for all others too.
_RATES = {
    "arrow": (7, 5, 0.4, 0.0003, 0.0003, 0.04, 2, 1.2, 0.05),
    "optimize": (7, 6, 1, 0.055, 0.0004, 0.25, 5, 5, 0.05),
    "optimize, sorting": (7, 8, 2.5, 0.1, 0.0006, 0.5, 10, 10, 0.05),
    _PROOF: (0, 1, 0.2, 0, 0.0003, 0.02, 0.5, 0.3, 0.05),
    _SAMPLE: (0, 0, 0, 0, 0.0003, 0.04, 2, 0, 0.05),
}
# How far off a rate may be that nothing shows, a run from its rates, and a sample from runs, as logarithms.
_UNKNOWN, _RUNS_DIFFER, _SAMPLES_DIFFER = math.log(2), 0.25, 0.4
# Runs that are kept of each strategy, and steps in which rates are fitted to them.
_MOST_RUNS, _STEPS = 12, 20
_SAMPLE_SECONDS, _SAMPLE_FILES, _SAMPLE_BYTES = 1.0, 1_000, 16 * MIB
# Where the log has no number of rows.
_BYTES_A_VALUE = 4
# Of all tasks together on a store; the bytes of a GET to decode and to compare, and of a part of an upload.
_REQUESTS_AT_ONCE, _GET_BYTES, _BLOCK_BYTES, _PART_BYTES = 64, 32 * MIB, 8 * MIB, 10 * MIB
# What a task holds at first, and more at most to decode, and the driver, and more for each file.
_TASK_BYTES, _DECODED_BYTES, _DRIVER_BYTES, _ACTION_BYTES = 150 * MIB, 400 * MIB, 200 * MIB, 6 << 10
# In which session a strategy has run; the samples of tables.
_RAN: set[tuple[str, str]] = set()
_SAMPLES: dict[tuple[str, str], tuple[np.ndarray, float]] = {}


@dataclass(frozen=True, repr=False)
class Cost(Record):
    """What a run will take; its proof reads what it reads and what it writes.

    Attributes:
        strategy: "arrow", "optimize" (", sorting" if it sorts rows), "rewrite" or "reorg".
        files_read, files_written: Data files that the run opens, and that it adds.
        bytes_read, bytes_written: Their bytes; those written are predicted.
        requests, proof_requests: On an object store, for data files; 0 on a disk.
        seconds, proof_seconds: From and to, about two times out of three.
        memory: Bytes that the driver and all tasks hold at most, about.
        basis: What the seconds are predicted from.
        amounts: What takes time in the run and in its proof, in numbers.
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
    amounts: Sequence[np.ndarray] = field(repr=False)

    def price(self, per_gib: float = 0.0, per_hour: float = 0.0) -> tuple[float, float]:
        """Return what run and proof cost, from and to, by prices of a GiB read or written and of an hour."""
        fixed = per_gib * 2 * (self.bytes_read + self.bytes_written) / GIB
        low, high = (fixed + per_hour * seconds / 3600 for seconds in self.total())
        return low, high

    def total(self, verify: bool = True) -> tuple[float, float]:
        """Return the seconds of the run, from and to, with those of its proof if there is one."""
        low, high = np.add(self.seconds, self.proof_seconds) if verify else self.seconds
        return float(low), float(high)

    def facts(self) -> dict[str, str]:
        """Return the cost for people: names and values."""
        return {
            "reads": format_files(self.files_read, self.bytes_read),
            "writes": format_files(self.files_written, self.bytes_written, "about "),
            "takes": str(self),
            "predicted": f"for {self.strategy}, from {self.basis}",
        }

    def __str__(self) -> str:
        run, proof = (format_range(*ends) for ends in (self.seconds, self.proof_seconds))
        more = f", {self.requests:,} requests to the store and {self.proof_requests:,} for the proof"
        memory = f"about {format_size(self.memory)} of memory{more if self.requests else ''}"
        return f"about {run}, and {proof} for its proof; {memory}"


@dataclass(frozen=True)
class _Work:
    """What a run does: `largest` are the shares that the largest task has of it and of its proof."""

    strategy: str
    sums: tuple[int, int, int, int]
    is_remote: bool
    values: float
    copied: float
    largest: tuple[float, float]
    starts: tuple[bool, bool] = (False, False)
    cores: int = os.cpu_count() or 1

    def cost(self, sample: tuple[np.ndarray, float] | None = None) -> Cost:
        files_read, files_written, bytes_read, bytes_written = self.sums
        files, size_bytes, requests = files_read + files_written, bytes_read + bytes_written, (0, 0)
        if self.is_remote:
            # A HEAD, and a GET or a PUT.
            more = bytes_read // _GET_BYTES + bytes_written // _PART_BYTES
            requests = 2 * files + more, 2 * (files + size_bytes // _BLOCK_BYTES)
        # Tasks work side by side, as far as none is larger than its share.
        run, proof = (max(1 / self.cores, share) for share in self.largest)
        decoded = (1 - self.copied) * np.array([self.values / 1e6, size_bytes / GIB])
        copied, first, second = self.copied * size_bytes / GIB, *(n / _REQUESTS_AT_ONCE for n in requests)
        amounts = (
            np.array([*self.starts, 1, files_written, run * files_read, *run * decoded, copied, first]),
            np.array([*self.starts, 1, 0, proof * files, *proof * decoded * (2, 1), copied, second]),
        )
        (seconds, basis), (proved, _) = (
            _seconds(key, row, sample) for key, row in zip((self.strategy, _PROOF), amounts, strict=True)
        )
        held = _TASK_BYTES + min(_DECODED_BYTES, int(3 * (1 - self.copied) * size_bytes / self.cores))
        memory = _DRIVER_BYTES + _ACTION_BYTES * files + self.cores * held
        return Cost(self.strategy, *self.sums, *requests, seconds, proved, memory, basis, amounts)


def predict_cost(
    files_read: int,
    bytes_read: int,
    files_written: int,
    bytes_written: int,
    strategy: str = "arrow",
    remote: bool = False,
) -> Cost:
    """Predict what a compaction takes that removes and adds as many files and bytes.

    `strategy` is "arrow", "optimize", "rewrite" or "reorg"; `remote` says whether the table is on an object
    store. The session is taken to have run one before. Nothing is read but the times that runs have kept.
    """
    is_cut = strategy == "arrow" and not remote
    is_copied = is_cut and bytes_read >= WHOLE_BYTES * max(files_read, 1)
    # Files are taken to be alike.
    even = 1 / max(files_written, 1)
    shares = 0.0 if is_cut and not is_copied else even, even / 2
    sums = files_read, files_written, bytes_read, bytes_written
    return _Work(strategy, sums, remote, bytes_read / _BYTES_A_VALUE, float(is_copied), shares).cost()


def cost_of(handle: Handle, plan: BinPlan, strategy: str = "auto") -> Cost:
    """Predict what a plan's run takes; see `CompactionPlan.cost`."""
    if strategy == "auto":
        strategy = "reorg" if plan.is_purge else "optimize" if refuse_plan(handle.session, plan) else "arrow"
    strategy += ", sorting" if plan.sorts_rows and strategy == "optimize" else ""
    source, (positions, bin_ids), is_local = plan.source, plan.members, handle.store.is_local
    sizes, rows = source.sizes[positions], count_rows(source)[0][positions]
    values = np.where(np.isnan(rows), sizes / _BYTES_A_VALUE, rows * len(source.data_columns)).sum()
    least = np.full(plan.num_bins, np.inf)
    np.minimum.at(least, bin_ids, sizes)
    # As `worker.rewrite` decides, as far as the log shows it.
    may_copy = strategy == "arrow" and is_local and not tracking_columns(source.snapshot.metadata)
    copied = float(sizes[(least >= WHOLE_BYTES)[bin_ids]].sum() / max(sizes.sum(), 1)) if may_copy else 0.0
    bins = np.bincount(bin_ids, sizes + FILE_COST, plan.num_bins)
    # "arrow" cuts large bins on a disk, but not those that it copies.
    is_cut = strategy == "arrow" and is_local and not copied
    outputs = plan.outcome.bytes_added / np.maximum(plan.outcome.files_added, 1)
    total = max(plan.bytes_removed + plan.bytes_added, 1)
    shares = 0.0 if is_cut else bins.max(initial=0) / max(bins.sum(), 1), outputs.max(initial=0) / total
    sums = plan.num_files_removed, plan.num_files_added, plan.bytes_removed, plan.bytes_added
    session, more = _session(handle), dict[str, int]()
    if session:
        more["cores"] = handle.spark.sparkContext.defaultParallelism
    starts = handle.session is None, (session, strategy) not in _RAN
    work = _Work(strategy, sums, not is_local, float(values), copied, shares, starts, **more)
    is_known = copied == 1 or {strategy, _PROOF} <= _kept().keys()
    return work.cost(None if is_known or plan.is_empty else _sample(plan))


def learn(handle: Handle, cost: Cost, result: CompactionResult) -> None:
    """Keep what a run took, for later predictions, if it did what was predicted."""
    _RAN.add((_session(handle), cost.strategy))
    if result.strategy != cost.strategy.partition(",")[0] or result.conflicts or result.refusals:
        return
    kept, steps = _kept(), result.timeline.to_pylist()
    proof = sum(step["seconds"] for step in steps if step["step"] == "proof")
    took = {cost.strategy: result.seconds - proof}
    if result.verified and not result.proof_reason:
        took[_PROOF] = proof
    for (key, seconds), amounts in zip(took.items(), cost.amounts, strict=False):
        kept[key] = [*kept.get(key, []), [*amounts.tolist(), seconds]][-_MOST_RUNS:]
    # Without a cache folder nothing is learned.
    with contextlib.suppress(OSError):
        cache_folder().mkdir(parents=True, exist_ok=True)
        (cache_folder() / _KEPT).write_text(json.dumps(kept), encoding="utf-8")


def _seconds(
    key: str, amounts: np.ndarray, sample: tuple[np.ndarray, float] | None
) -> tuple[tuple[float, float], str]:
    """Return the seconds of amounts, from and to, and what they are predicted from."""
    rates, runs, noise = _RATES.get(key, _RATES["optimize"]), _kept().get(key, []), _RUNS_DIFFER
    basis = f"the last {format_count(len(runs), 'run')} on this machine" if runs else "no run yet"
    if not runs and sample is not None:
        # By the rates as they are here, a strategy takes as many times as long.
        times = np.dot(rates, sample[0]) / np.dot(_RATES[_SAMPLE], sample[0])
        basis, noise = "a second of work on its files", _SAMPLES_DIFFER
        runs = [[*sample[0], sample[1] * times]]
    # Half of what isn't known is common to all rates, as on another machine.
    covariance = _UNKNOWN**2 / 2 * (1 + np.eye(len(rates)))
    certainty, logs = np.linalg.inv(covariance), (prior := np.log(np.maximum(rates, 1e-9)))
    # Least squares of logarithms, by Gauss and Newton: rates are positive, and errors are factors.
    for _ in range(_STEPS if runs else 0):
        known, took = np.array(runs)[:, :-1], np.array(runs)[:, -1]
        parts = known * np.exp(logs)
        shares = parts / parts.sum(axis=1, keepdims=True)
        covariance = np.linalg.inv(shares.T @ shares / noise**2 + certainty)
        missing = shares.T @ np.log(took / parts.sum(axis=1)) / noise**2
        logs = logs + np.clip(covariance @ (missing - certainty @ (logs - prior)), -1, 1)
    parts = amounts * np.exp(logs)
    shares, total = parts / parts.sum(), float(parts.sum())
    factor = math.exp(math.sqrt(shares @ covariance @ shares + _RUNS_DIFFER**2))
    return (total / factor, total * factor), basis


def _sample(plan: BinPlan) -> tuple[np.ndarray, float] | None:
    """Read and write some of a plan's files in memory for a second; returns amounts and seconds."""
    source, store, start = plan.source, plan.source.snapshot.store, time.perf_counter()
    key, positions, amounts = (store.root, source.snapshot.metadata.id), plan.members[0], np.zeros(9)
    if not store.is_local:
        positions = positions[source.sizes[positions] <= _SAMPLE_BYTES]
    chosen = places(source.paths(positions[:: len(positions) // _SAMPLE_FILES + 1]), store).to_pylist()
    with contextlib.suppress(OSError, pa.ArrowException):
        for place in chosen if key not in _SAMPLES else ():
            file = pq.ParquetFile(store.open(place) if store.is_local else pa.BufferReader(store.read(place)))
            rows, sink = 0, pa.BufferOutputStream()
            with pq.ParquetWriter(sink, file.schema_arrow) as writer:
                for batch in file.iter_batches(use_threads=False):
                    writer.write_batch(batch)
                    rows += len(batch)
                    if time.perf_counter() - start > _SAMPLE_SECONDS:
                        break
            values, gib = rows * file.metadata.num_columns / 1e6, 2 * sink.tell() / GIB
            amounts += [0, 0, 0, 0, 1, values, gib, 0, 0 if store.is_local else 2]
            if time.perf_counter() - start > _SAMPLE_SECONDS:
                break
    if amounts.any():
        _SAMPLES[key] = amounts, time.perf_counter() - start
    return _SAMPLES.get(key)


def _session(handle: Handle) -> str:
    """Return the id of the session if one runs whose JVM is in reach; else ""."""
    spark = handle.session
    return str(spark.sparkContext.applicationId) if spark is not None and has_jvm(spark) else ""


def _kept() -> dict[str, list[list[float]]]:
    """Return what the last runs of each strategy took: one list a run, of amounts and seconds."""
    with contextlib.suppress(OSError, ValueError):
        kept: dict[str, list[list[float]]] = json.loads((cache_folder() / _KEPT).read_text(encoding="utf-8"))
        return kept
    return {}
