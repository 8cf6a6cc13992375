"""What OPTIMIZE will say of what it did, and how far that is certain."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from compaction_kit.files import Files
from compaction_kit.plan.order import SIZE, tied_across

if TYPE_CHECKING:
    from compaction_kit.plan.compaction import CompactionPlan


@dataclass(frozen=True)
class Exactness:
    """Which parts of a plan are certain.

    Attributes:
        sums: How many files and bytes are in each bin.
        members: Which files are in each bin. Where files of one size stand at the edge of a bin,
            the plan has them as Delta's snapshot does (see `state_order`); which of them it is
            depends on the setting spark.databricks.delta.snapshotPartitions at the time when
            the session first read the table.
        num_files_added: How many files come out.
        commits: Which bins go into which commit.
    """

    sums: bool
    members: bool
    num_files_added: bool
    commits: bool

    def __str__(self) -> str:
        names = {
            "sums": "files and bytes of each bin",
            "members": "which of equal-sized files go into which bin",
            "num_files_added": "how many files come out",
            "commits": "which of equal-sized bins go into which commit",
        }
        exact = [text for name, text in names.items() if getattr(self, name)]
        open_ = [text for name, text in names.items() if not getattr(self, name)]
        return f"exact: {', '.join(exact)}" + (f"; not certain: {', '.join(open_)}" if open_ else "")


def exactness(plan: "CompactionPlan") -> Exactness:
    """How far a plan is certain."""
    return Exactness(
        sums=True,
        members=plan.order != SIZE or bool(plan.zorder_by) or not _ties_at_edges(plan),
        num_files_added=not plan.zorder_by and bool(plan.full_outcome.rows_known.all()),
        commits=plan.thresholds.batch_size is None or not _ties_between_batches(plan),
    )


def metrics(plan: "CompactionPlan") -> dict[str, Any]:
    """What OPTIMIZE's result row says, as far as it can be known before (OptimizeStats).

    It counts the bins of batches that aren't committed, too, for no row was left in them.
    """
    source, outcome = plan.source, plan.full_outcome
    positions, _ = outcome.packing.members()
    return {
        "numFilesAdded": plan.num_files_added,
        "numFilesRemoved": len(positions),
        "filesRemoved": _size_stats(source.sizes[positions]),
        "partitionsOptimized": len(np.unique(plan.groups[positions])),
        "numBins": outcome.packing.num_bins,
        "numBatches": plan.num_batches,
        "totalConsideredFiles": source.num_files,
        "totalFilesSkipped": source.num_files - len(positions),
        "deletionVectorStats": _vector_stats(source, positions),
    }


def _vector_stats(source: Files, positions: np.ndarray) -> Mapping[str, int] | None:
    if not source.snapshot.has_vectors:
        return None
    deleted = source.to_arrow()["deletion_vector_cardinality"].take(pa.array(positions)).drop_null()
    if not len(deleted):
        return None
    return {
        "numDeletionVectorsRemoved": len(deleted),
        "numDeletionVectorRowsRemoved": pc.sum(deleted).as_py(),
    }


def _size_stats(sizes: np.ndarray) -> Mapping[str, Any]:
    return {
        "min": int(sizes.min()) if len(sizes) else None,
        "max": int(sizes.max()) if len(sizes) else None,
        "avg": float(sizes.mean()) if len(sizes) else 0.0,
        "totalFiles": len(sizes),
        "totalSize": int(sizes.sum()),
    }


def _ties_at_edges(plan: "CompactionPlan") -> bool:
    """Whether a bin begins or ends between files that could change places."""
    packing, source = plan.packed, plan.source
    begins = packing.starts[packing.starts > 0]
    ends = packing.ends[packing.ends < len(packing.order)]
    edges = np.r_[begins, ends]
    before, after = packing.order[edges - 1], packing.order[edges]
    return bool(tied_across(source.sizes, plan.groups, before, after).any())


def _ties_between_batches(plan: "CompactionPlan") -> bool:
    outcome = plan.full_outcome
    order = np.lexsort((outcome.batch_ids, outcome.bytes_removed))
    sizes, batches = outcome.bytes_removed[order], outcome.batch_ids[order]
    return bool(((sizes[1:] == sizes[:-1]) & (batches[1:] != batches[:-1])).any())
