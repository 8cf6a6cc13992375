"""The result of a run, read from the log."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from compaction_kit import plots
from compaction_kit.errors import InvalidArgumentError
from compaction_kit.execute.commits import Commit, removed_paths
from compaction_kit.execute.work import TIMELINE, Run, Strategy
from compaction_kit.files import Files
from compaction_kit.handle import Handle
from compaction_kit.records import Record
from compaction_kit.text import format_count, format_range, format_size
from compaction_kit.verify import Fingerprint

if TYPE_CHECKING:
    from compaction_kit.query import Query
    from compaction_kit.reads import ReadComparison

_SUMS = ("num_files_removed", "num_files_added", "bytes_removed", "bytes_added")
_TEXT, _INT = pa.string(), pa.int64()
BATCHES = pa.schema(
    {"version": _INT, "strategy": _TEXT, **dict.fromkeys(_SUMS, _INT)}
    | {"seconds": pa.float64(), "conflicts": _INT, "metrics": pa.map_(_TEXT, _TEXT)}
)


@dataclass(frozen=True, repr=False)
class CompactionResult(Record):
    """The result of a run; counts and bytes are read from its commits in the log.

    Attributes:
        strategy: "arrow", "optimize", "reorg", "rewrite", or "none" if nothing was committed.
        reason: Why this strategy was used.
        sizes_before, sizes_after: Bytes of every live file at the versions before and after.
        versions: The committed versions.
        batches: One row per commit: version (int64), strategy (string), num_files_removed, num_files_added,
            bytes_removed and bytes_added (int64), seconds (double, since the previous commit), conflicts
            (int64, with other writers, before the commit), metrics (map of string to string, as the history
            has them).
        num_bins: Number of the plan's bins that were rewritten.
        seconds: Duration of the whole run, including the proof.
        predicted: The predicted seconds, from and to; None if the run did something else than predicted.
        conflicts: Conflicts with other writers, as Delta or the log describes them.
        verified: True if the content was compared and is the same, None if it wasn't compared.
        fingerprint: Fingerprint of the compared rows; its `readers` name what read them.
        proof_reason: Why Spark had to read the rows, if it did.
        refusals: Why the strategy left bins alone, by bin number; OPTIMIZE rewrote them if `batches` has the
            strategy "optimize".
        as_planned: Whether exactly the planned files were rewritten, into as many files as planned.
        peak_bytes: The most memory that a Python worker had held after rewriting; 0 without such a worker.
        timeline: One row per step, or per bin in a step: step (string: "rewrite", "join", "commit", "proof"),
            label (string), bin_id (int64, null except for pyarrow), start (double, seconds since the run
            began), seconds (double).
        reads: Measures a query at the versions before and after; None if nothing was committed.
        extents: For a clustered table, draws the values of the first clustering column in each file, before
            and after.
    """

    strategy: str
    reason: str
    sizes_before: np.ndarray
    sizes_after: np.ndarray
    versions: tuple[int, ...] = ()
    batches: pa.Table = field(default_factory=BATCHES.empty_table)
    num_bins: int = 0
    num_files_added: int = 0
    num_files_removed: int = 0
    bytes_added: int = 0
    bytes_removed: int = 0
    seconds: float = 0.0
    predicted: tuple[float, float] | None = None
    conflicts: tuple[str, ...] = ()
    verified: bool | None = None
    fingerprint: Fingerprint | None = None
    proof_reason: str = ""
    refusals: Mapping[int, str] = field(default_factory=dict)
    as_planned: bool = True
    peak_bytes: int = 0
    timeline: pa.Table = field(default_factory=TIMELINE.empty_table)
    reads: Callable[[Any, int], Any] | None = field(default=None, repr=False)
    extents: Callable[..., Any] | None = field(default=None, repr=False)

    @classmethod
    def of(
        cls, run: Run, commits: Sequence[Commit], strategy: Strategy, reason: str, refusals: Mapping[int, str]
    ) -> "CompactionResult":
        """Make the result of a run from its commits."""
        plan, record, is_proved = run.plan, run.record, run.verify and bool(commits)
        removed = removed_paths(commits)
        batches = _batches(record.start, commits, record.conflicts)
        sums = {name: sum(batches[name].to_pylist()) for name in _SUMS}
        versions = tuple(commit.version for commit in commits)
        before, after = (versions[0] - 1, versions[-1]) if versions else (plan.version, None)
        log, planned = run.log.listed(), plan.source.snapshot
        # A commit may delete log files that the version before it needs (MetadataCleanup.doLogCleanup).
        is_planned = before == planned.version or before not in log.readable_range()
        files = [Files(planned if is_planned else log.snapshot(before)), Files(log.snapshot(after))]
        column = plan.clustering_column if versions else None
        return cls(
            strategy.name if commits else "none",
            reason,
            files[0].sizes,
            files[1].sizes,
            versions,
            batches,
            plan.num_bins - plan.without(removed).num_bins,
            **sums,
            seconds=record.seconds,
            conflicts=tuple(text for _, text in record.conflicts),
            verified=True if is_proved else None,
            fingerprint=record.fingerprint if is_proved else None,
            proof_reason=record.proof_reason,
            refusals=refusals,
            as_planned=strategy.is_as_planned(plan, removed, sums["num_files_added"]),
            peak_bytes=record.peak_bytes,
            timeline=record.timeline(),
            reads=partial(_measure_reads, run.handle, before, versions[-1]) if versions else None,
            extents=partial(files[0].plot_extents, column, files[1]) if column else None,
        )

    def measure_reads(self, query: "Query", repeats: int = 5) -> "ReadComparison":
        """Run a query at the versions before and after, side by side; see `reads.measure_reads`.

        Raises:
            InvalidArgumentError: Nothing was committed, or Spark can't use the query.
        """
        if self.reads is None:
            raise InvalidArgumentError(
                "This run committed nothing, so there are no two versions to compare: run a plan that "
                "has bins."
            )
        return self.reads(query, repeats)

    @property
    def strategies(self) -> str:
        """The strategies that made the commits, such as "arrow and optimize"."""
        return " and ".join(dict.fromkeys(self.batches["strategy"].to_pylist())) or self.strategy

    def facts(self) -> dict[str, str]:
        """Return the outcome as readable text: names and values."""
        if not self.versions:
            return {"outcome": "nothing to do: the plan is empty, so nothing was committed"}
        proof = "not compared" if self.fingerprint is None else f"identical: {self.fingerprint}"
        if self.proof_reason:
            proof += f" ({self.proof_reason})"
        reasons, memory = "; ".join(sorted(set(self.refusals.values()))), format_size(self.peak_bytes)
        left = f"{format_count(len(self.refusals), 'bin')}: {reasons}" if reasons else ""
        facts = {
            "version": f"{', '.join(map(str, self.versions))}, by {self.strategies}",
            "files": f"{self.num_files_removed:,} → {self.num_files_added:,}"
            f" (the table: {len(self.sizes_before):,} → {len(self.sizes_after):,})",
            "bytes": f"{format_size(self.bytes_removed)} → {format_size(self.bytes_added)}",
            "bins": f"{self.num_bins:,}, {'as planned' if self.as_planned else 'NOT as planned'}",
            "to OPTIMIZE" if self.strategies != self.strategy else "left alone": left,
            "conflicts": f"{len(self.conflicts)} with other writers" if self.conflicts else "",
            "content": proof,
            "seconds": f"{self.seconds:.1f}"
            + (f" ({format_range(*self.predicted)} were predicted)" if self.predicted else ""),
            "memory": f"{memory} at most in a rewriting worker" if self.peak_bytes else "",
            "strategy": self.reason,
        }
        return {name: fact for name, fact in facts.items() if fact}

    def plot(self) -> "plots.Chart":
        """Draw the sizes before and after, on one scale.

        For a clustered table, also draw the values of the first clustering column in each file.
        """
        sizes = partial(plots.before_after, self.sizes_before, self.sizes_after)
        parts: list[plots.Placed] = [(plots.BEFORE_AFTER_HEIGHT, sizes)]
        if self.extents is not None:
            parts.append((plots.EXTENTS_HEIGHT, self.extents))
        return plots.stacked(parts)

    def plot_timeline(self) -> "plots.Chart":
        """Draw the timeline of the run."""
        return plots.timeline(self.timeline)

    def parts(self) -> Sequence[object]:
        """Return the facts, the sizes, and the timeline."""
        return self.facts(), self.plot(), *([self.plot_timeline()] if self.versions else [])


def _batches(start: float, commits: Sequence[Commit], conflicts: Sequence[tuple[float, str]]) -> pa.Table:
    rows, since = [], start
    for commit in commits:
        sums = (
            len(commit.removes),
            len(commit.adds),
            sum(remove.get("size") or 0 for remove in commit.removes),
            sum(add["size"] for add in commit.adds),
        )
        seconds, before = max(commit.time - since, 0.0), sum(since < t <= commit.time for t, _ in conflicts)
        row = (commit.version, commit.strategy, *sums, seconds, before, commit.metrics)
        rows.append(dict(zip(BATCHES.names, row, strict=True)))
        since = commit.time
    return pa.Table.from_pylist(rows, schema=BATCHES)


def _measure_reads(handle: Handle, before: int, after: int, query: "Query", repeats: int) -> "ReadComparison":
    from compaction_kit.query import with_table
    from compaction_kit.reads import measure_reads

    named = with_table(query, handle.store, handle.name)
    # The session of the run may have been stopped since.
    return measure_reads(handle.spark, handle.store.root, before, after, named, repeats)
