"""Explain a plan: in a few sentences, as OPTIMIZE's metrics, and which parts of it are certain."""

import difflib
import re
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from compaction_kit.files import Files
from compaction_kit.plan.clustering import COMPLETE, NEW, OTHER_COLUMNS, OTHER_PROVIDER, PARTIAL, SINGLE
from compaction_kit.plan.order import INGEST, SIZE, tied_across
from compaction_kit.plan.plan import BinPlan
from compaction_kit.plan.thresholds import CUBES, candidates
from compaction_kit.text import format_count, format_files, format_size

_CERTAIN = {
    "sums": "files and bytes of each bin",
    "members": "which of equal-sized files go into which bin",
    "num_files_added": "how many files are added",
    "commits": "which of equal-sized bins go into which commit",
}


def explain(plan: BinPlan) -> list[str]:
    """Say what a plan does and why, in sentences."""
    if plan.planner.to_purge is not None:
        return _explain_purge(plan, plan.planner.to_purge)
    if plan.clustered_by:
        return explain_clustering(plan)
    small, deleted = (int(mask.sum()) for mask in candidates(plan.source, plan.thresholds))
    scope = f" where {plan.where}" if plan.where else ""
    found = f"Version {plan.version} has {format_count(plan.source.num_files, 'live file')}{scope}"
    selected = plan.source.num_files if plan.zorder_by else small + deleted
    if plan.zorder_by:
        lines = [f"{found}; Z-ordering rewrites them all."]
    else:
        more = f" and {deleted:,} more with many deleted rows" if deleted else ""
        lines = [f"{found}, {small:,} under {format_size(plan.thresholds.min_file_size)}{more}."]
    if plan.is_empty:
        why = why_empty(plan)
        return [*lines, f"{why[0].upper()}{why[1:]}, so there is nothing to do."]
    bins = format_count(plan.num_bins, "bin")
    if plan.zorder_by:
        columns = ", ".join(plan.zorder_by)
        lines.append(
            f"All files of a partition are one bin ({bins} in total), its rows in Z-order by {columns}."
        )
    else:
        spread = ""
        if plan.source.partition_columns:
            in_each = np.unique(plan.bin_groups, return_counts=True)[1]
            spread = f" in {format_count(len(in_each), 'partition')}"
            if len(in_each) > 1:
                spread += f", {'up to ' * bool(in_each.min() < in_each.max())}{in_each.max():,} in each"
        first = {SIZE: "smallest files", INGEST: "oldest files"}.get(plan.order, f"lowest {plan.order}")
        lines.append(
            f"Of these, {plan.num_files_removed:,} fill {bins}{bin_limit(plan)}{spread}, {first} first."
        )
        if (size := plan.thresholds.output_file_size) is not None:
            shrinks = f"{plan.thresholds.max_file_size / size:,.1f} times"
            lines.append(f"The data shrinks about {shrinks} when compacted, so bins are as much larger.")
    if alone := selected - len(plan.unbounded.members[0]):
        isnt, each = ("isn't", "it") if alone == 1 else ("aren't", "each")
        lines.append(
            f"{format_count(alone, 'file')} {isnt} rewritten, because {each} would be alone in a bin."
        )
    if over := plan.unbounded.num_bins - plan.packed.num_bins:
        isnt, budget = "isn't" if over == 1 else "aren't", format_size(plan.budget or 0)
        lines.append(
            f"{format_count(over, 'bin')} {isnt} rewritten, because the budget is {budget}; bins that gain "
            "the most per byte come first."
        )
    if plan.thresholds.batch_size is not None:
        batches, most = format_count(plan.num_batches, "commit"), format_size(plan.thresholds.batch_size)
        lines.append(
            f"The bins go into {batches}, smallest bins first, each of one bin or of at most {most}."
        )
    lines.append(
        f"{format_files(plan.num_files_removed, plan.bytes_removed)} "
        f"{'becomes' if plan.num_files_removed == 1 else 'become'} "
        f"{format_files(plan.num_files_added, plan.bytes_added, 'about ')}. "
        f"The size is predicted: {plan.size_basis}."
    )
    if plan.is_optimize and not exactness(plan).members:
        lines.append(
            "Some bins end between files of equal size: the number and bytes of files in each bin are exact, "
            "but which of these files go into which bin depends on their order in Delta's snapshot."
        )
    return lines


def _explain_purge(plan: BinPlan, to_purge: np.ndarray) -> list[str]:
    scope, dropped = f" where {plan.where}" if plan.where else "", plan.dropped_columns
    lines = [
        f"Version {plan.version} has {format_count(plan.source.num_files, 'live file')}{scope}, "
        f"{int(to_purge.sum()):,} with deleted rows or dropped columns."
    ]
    if left := int((to_purge & ~plan.is_removed).sum()):
        why = "REORG packs them by cubes as OPTIMIZE does" if plan.clustered_by else "no row is left in them"
        lines.append(f"{left:,} of these stay, because {why}.")
    if plan.is_empty:
        return [*lines, "So there is nothing to do."]
    purged = [format_count(plan.num_deleted_rows, "deleted row")] if plan.num_deleted_rows else []
    if dropped.num_rows:
        purged.append(
            f"dropped columns in {format_files(len(dropped), pc.sum(dropped['size_bytes']).as_py())}"
        )
    return [
        *lines,
        f"REORG … APPLY (PURGE) rewrites {format_files(plan.num_files_removed, plan.bytes_removed)} in "
        f"{format_count(plan.num_bins, 'bin')}{bin_limit(plan)}, as "
        f"{format_files(plan.num_files_added, plan.bytes_added, 'about ')}, without {' and '.join(purged)}.",
        "Earlier versions can still read what is purged, until VACUUM deletes the replaced files.",
        f"The size is predicted: {plan.size_basis}.",
    ]


def explain_clustering(plan: BinPlan) -> list[str]:
    """Say what OPTIMIZE does with a clustered table and why, in sentences."""
    rows, complete = plan.cubes.to_pylist(), format_size(plan.planner.rules.cubes.complete)
    count, columns = format_count(plan.source.num_files, "live file"), ", ".join(plan.clustered_by)
    lines = [f"Version {plan.version} has {count}, clustered by {columns}."]

    def total(state: str, is_rewritten: bool) -> tuple[int, int, int]:
        found = [row for row in rows if row["state"] == state and row["is_rewritten"] == is_rewritten]
        return len(found), sum(row["num_files"] for row in found), sum(row["size_bytes"] for row in found)

    for state, why in (
        (COMPLETE, f"complete cubes, of {complete} or more, are not rewritten"),
        (OTHER_COLUMNS, "only OPTIMIZE … FULL rewrites files of other clustering columns"),
        (OTHER_PROVIDER, "only OPTIMIZE … FULL rewrites files that another system has clustered"),
        (SINGLE, "no file is new, and all are in one cube"),
    ):
        _, num_files, size_bytes = total(state, False)
        if num_files:
            stay = "stays" if num_files == 1 else "stay"
            lines.append(f"{format_files(num_files, size_bytes)} {stay}, because {why}.")
    if plan.is_empty:
        return [*lines, "So there is nothing to do."]
    parts = []
    for state, words in (
        (NEW, "that are in no cube yet"),
        (PARTIAL, "from {cubes} below {complete}"),
        (OTHER_COLUMNS, "clustered by other columns"),
        (OTHER_PROVIDER, "clustered by another system"),
    ):
        num_cubes, num_files, size_bytes = total(state, True)
        if num_files:
            what = words.format(cubes=format_count(num_cubes, "cube"), complete=complete)
            parts.append(f"{format_files(num_files, size_bytes)} {what}")
    lines.append(
        f"OPTIMIZE{' FULL' * plan.full} sorts {' and '.join(parts)} into "
        f"{format_count(plan.num_bins, 'new cube')}, as about "
        f"{format_files(plan.num_files_added, plan.bytes_added, 'about ')}."
    )
    new_bytes = total(NEW, True)[2]
    if 0 < new_bytes < plan.bytes_removed:
        lines.append(
            f"{format_size(new_bytes)} is new and {format_size(plan.bytes_removed)} is rewritten, "
            f"{plan.bytes_removed / new_bytes:,.1f} times as much: OPTIMIZE merges new files into a cube "
            f"until the cube has {complete} ({CUBES}.threshold). plan.amplification() says what more appends "
            "cost."
        )
    return [*lines, f"The new files and their size are predicted: {plan.size_basis}."]


def warnings(plan: BinPlan) -> list[str]:
    """Say what to know before a plan is run, in sentences."""
    lower = plan.thresholds.min_file_size
    upper = plan.thresholds.output_file_size or plan.thresholds.max_file_size
    if plan.sorts_rows or lower <= upper:
        return []
    return [
        f"The minimum file size of {format_size(lower)} is above the target file size of "
        f"{format_size(upper)}, so the next run selects the files that this run adds, and rewrites those "
        "that fit into one bin: lower the minimum or raise the target."
    ]


def why_empty(plan: BinPlan) -> str:
    """Say why an empty plan has no bin, as the end of a sentence."""
    if plan.source.num_files == 0:
        return f"no file matches{_suggestion(plan)}"
    if plan.clustered_by:
        states = set(plan.cubes["state"].to_pylist())
        if states == {SINGLE}:
            return "all files are in one cube"
        if states == {COMPLETE}:
            return "all files are in complete cubes"
        return "no file is new, and no two cubes are incomplete"
    if plan.packed.num_bins:
        return "all rows of the files that share a bin are deleted, and then OPTIMIZE commits nothing"
    if plan.unbounded.num_bins:
        positions, bin_ids = plan.unbounded.members
        smallest = np.bincount(bin_ids, plan.source.sizes[positions]).min()
        return (
            f"the smallest of {format_count(plan.unbounded.num_bins, 'bin')} has {format_size(smallest)}, "
            f"more than the budget of {format_size(plan.budget or 0)}"
        )
    small, deleted = candidates(plan.source, plan.thresholds)
    partitions = plan.groups[small | deleted]
    under = f"under {format_size(plan.thresholds.min_file_size)}"
    under += " or with many deleted rows" if deleted.any() else ""
    if len(partitions) < 2:
        return f"only one file is {under}" if len(partitions) else f"no file is {under}"
    alone = len(np.unique(partitions)) == len(partitions)
    where = "is the only one in its partition" if alone else "would be alone in its bin"
    return f"each of the {len(partitions):,} files {under} {where}"


def _suggestion(plan: BinPlan) -> str:
    """Ask for the value that a predicate without a match may mean, such as 'JFK' for 'jfk'."""
    columns = Files(plan.source.snapshot).partitions.columns
    known = {
        value.casefold(): value for column in columns for value in pc.unique(column).to_pylist() if value
    }
    for typed in re.findall("'([^']*)'", plan.where or ""):
        near = difflib.get_close_matches(typed.casefold(), known, n=1)
        if near and known[near[0]] != typed:
            return f" (did you mean '{known[near[0]]}'?)"
    return ""


def bin_limit(plan: BinPlan) -> str:
    """Return how large a bin may be, as the end of a phrase; empty for Z-order, which has no limit."""
    if plan.clustered_by:
        return f" of at most {format_size(plan.planner.rules.cubes.most)}"
    if plan.zorder_by:
        return ""
    predicted = "" if plan.order == SIZE else " with a predicted output"
    output = plan.thresholds.output_file_size
    about = f" (files of about {format_size(output)})" if output is not None else ""
    return f"{predicted} of at most {format_size(plan.thresholds.max_file_size)}{about}"


@dataclass(frozen=True)
class Exactness:
    """Which parts of a plan are certain.

    Attributes:
        sums: How many files and bytes are in each bin.
        members: Which files are in each bin. Files of one size at the edge of a bin are in the order
            of Delta's snapshot (see `state_order`), which depends on the setting
            spark.databricks.delta.snapshotPartitions at the time when the session first read the table.
        num_files_added: How many files are added.
        commits: Which bins go into which commit.
    """

    sums: bool
    members: bool
    num_files_added: bool
    commits: bool

    def __str__(self) -> str:
        exact = ", ".join(text for name, text in _CERTAIN.items() if getattr(self, name))
        return f"exact: {exact}" + (f"; not certain: {', '.join(self.uncertain)}" if self.uncertain else "")

    @property
    def uncertain(self) -> list[str]:
        """The parts that aren't certain, in words."""
        return [text for name, text in _CERTAIN.items() if not getattr(self, name)]


def exactness(plan: BinPlan) -> Exactness:
    """Find which parts of a plan are certain."""
    packing, outcome = plan.packed, plan.full_outcome
    # Whether a bin begins or ends between files that could be swapped.
    edges = np.r_[packing.starts[packing.starts > 0], packing.ends[packing.ends < len(packing.order)]]
    before, after = packing.order[edges - 1], packing.order[edges]
    has_ties = bool(tied_across(plan.source.sizes, plan.groups, before, after).any())
    # Whether bins of one size are in different batches.
    order = np.lexsort((outcome.batch_ids, outcome.bytes_removed))
    sizes, batches = outcome.bytes_removed[order], outcome.batch_ids[order]
    return Exactness(
        sums=True,
        members=plan.order != SIZE or plan.sorts_rows or not has_ties,
        num_files_added=not plan.sorts_rows and bool(outcome.rows_known.all()),
        commits=not bool(((sizes[1:] == sizes[:-1]) & (batches[1:] != batches[:-1])).any()),
    )


def metrics(plan: BinPlan) -> dict[str, Any]:
    """Predict OPTIMIZE's result row, as far as it can be known before (OptimizeStats).

    It counts bins of batches without rows too, which aren't committed.
    """
    source, positions, clustering = plan.source, plan.packed.members[0], plan.planner.clustering
    sizes = source.sizes[positions]
    deleted = source.to_arrow()["deletion_vector_cardinality"].take(pa.array(positions)).drop_null()
    vectors = {
        "numDeletionVectorsRemoved": len(deleted),
        "numDeletionVectorRowsRemoved": pc.sum(deleted).as_py(),
    }
    return {
        "numFilesAdded": plan.num_files_added,
        "numFilesRemoved": len(positions),
        "filesRemoved": {
            "min": int(sizes.min()) if len(sizes) else None,
            "max": int(sizes.max()) if len(sizes) else None,
            "avg": float(sizes.mean()) if len(sizes) else 0.0,
            "totalFiles": len(sizes),
            "totalSize": int(sizes.sum()),
        },
        "partitionsOptimized": len(np.unique(plan.groups[positions])),
        "numBins": plan.packed.num_bins,
        "numBatches": plan.num_batches,
        "totalConsideredFiles": source.num_files,
        "totalFilesSkipped": source.num_files - len(positions),
        "deletionVectorStats": vectors if len(deleted) else None,
        **(clustering.metrics(plan.packed, plan.planner.rules.cubes, plan.full) if clustering else {}),
    }
