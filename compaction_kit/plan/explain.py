"""Explain a plan: in a few sentences, as OPTIMIZE's metrics, and which parts of it are certain."""

import difflib
import re
from collections import Counter
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
from compaction_kit.text import format_count, format_factor, format_files, format_partition, format_size

_CERTAIN = {
    "sums": "files and bytes of each bin",
    "members": "which of equal-sized files go into which bin",
    "num_files_added": "how many files are added",
    "commits": "which of equal-sized bins go into which commit",
}
# Texts for each state of a cube: why its files stay, and which of its files are rewritten.
_CUBE_STATES = {
    NEW: ("", "without a cube"),
    PARTIAL: ("", "from {cubes} below {complete}"),
    COMPLETE: ("complete cubes, of {complete} or more, are not rewritten", ""),
    SINGLE: ("no file is new, and there is no other cube to merge", ""),
    OTHER_COLUMNS: (
        "only OPTIMIZE … FULL rewrites files of other clustering columns",
        "clustered by other columns",
    ),
    OTHER_PROVIDER: (
        "only OPTIMIZE … FULL rewrites files that another system has clustered",
        "clustered by another system",
    ),
}


def explain(plan: BinPlan) -> list[str]:
    """Say what a plan does and why, in sentences."""
    scope = f" where {plan.where}" if plan.where else ""
    found = f"Version {plan.version} has {format_count(plan.source.num_files, 'live file')}{scope}"
    if plan.planner.to_purge is not None:
        first, *lines = _explain_purge(plan, plan.planner.to_purge)
    elif plan.clustered_by:
        first, *lines = f", clustered by {', '.join(plan.clustered_by)}.", *explain_clustering(plan)
    else:
        first, *lines = _explain_packing(plan)
    return [found + first, *lines]


def _explain_packing(plan: BinPlan) -> list[str]:
    limits = plan.thresholds
    small, deleted = (int(mask.sum()) for mask in candidates(plan.source, limits))
    selected, bins = small + deleted, format_count(plan.num_bins, "bin")
    more = f" and {deleted:,} more with many deleted rows" if deleted else ""
    lines = [f", {small:,} under {format_size(limits.min_file_size)}{more}."]
    if plan.zorder_by:
        selected, lines = plan.source.num_files, ["; Z-ordering rewrites them all."]
    if plan.is_empty:
        why = why_empty(plan)
        return [*lines, f"{why[0].upper()}{why[1:]}, so there is nothing to do."]
    if plan.zorder_by:
        columns = ", ".join(plan.zorder_by)
        lines.append(
            f"All files of a partition are one bin ({bins} in total), its rows in Z-order by {columns}."
        )
    else:
        first = {SIZE: "smallest files first", INGEST: "oldest files first"}
        bins += bin_limit(plan) + _spread(plan)
        order = first.get(plan.order, f"in order of {plan.order}")
        lines.append(f"Of these, {plan.num_files_removed:,} fill {bins}, {order}.")
        if (factor := limits.max_file_size / limits.target_file_size) >= 1.05:
            times = f"about {format_factor(factor)} times"
            lines.append(f"Bins are {times} as large as the new files, because rewriting shrinks the data.")
    lines += _left_out(plan, selected)
    if limits.batch_size is not None:
        batches = (
            f"{format_count(plan.batches.num_rows, 'commit')} of at most {format_size(limits.batch_size)}"
        )
        lines.append(f"The bins go into {batches}, smallest bins first; a larger bin has its own commit.")
    before = format_files(plan.num_files_removed, plan.bytes_removed)
    become = "becomes" if plan.num_files_removed == 1 else "become"
    lines.append(f"{before} {become} {_outputs(plan)}. The size is predicted: {plan.size_basis}.")
    if not exactness(plan).members:
        lines.append(
            "Some bins end between files of equal size: the number and bytes of files in each bin are exact, "
            "but which of these files go into which bin depends on their order in Delta's snapshot."
        )
    return lines


def _left_out(plan: BinPlan, selected: int) -> list[str]:
    """Say which of the selected files aren't rewritten, and why."""
    lines = []
    if empty := len(plan.packed.members[0]) - plan.num_files_removed:
        stay, them = ("stays", "it") if empty == 1 else ("stay", "them")
        why = f"because no row is left in {them}: OPTIMIZE makes no commit without new files"
        lines.append(f"{format_count(empty, 'file')} {stay}, {why}.")
    if alone := selected - len(plan.unbounded.members[0]):
        isnt, each = ("isn't", "it") if alone == 1 else ("aren't", "each")
        files = format_count(alone, "file")
        lines.append(f"{files} {isnt} rewritten, because {each} would be alone in a bin.")
    if over := plan.unbounded.num_bins - plan.packed.num_bins:
        isnt, budget = "isn't" if over == 1 else "aren't", format_size(plan.budget or 0)
        lines.append(
            f"{format_count(over, 'bin')} {isnt} rewritten, because the budget is {budget}; bins that gain "
            "the most per byte come first."
        )
    return lines


def _spread(plan: BinPlan) -> str:
    if not plan.source.partition_columns:
        return ""
    in_each = np.unique(plan.bin_groups, return_counts=True)[1]
    spread = f" in {format_count(len(in_each), 'partition')}"
    if len(in_each) <= 1:
        return spread
    up_to = "up to " if in_each.min() < in_each.max() else ""
    return f"{spread}, {up_to}{in_each.max():,} in each"


def _outputs(plan: BinPlan) -> str:
    return format_files(plan.num_files_added, plan.bytes_added, "about ")


def _explain_purge(plan: BinPlan, to_purge: np.ndarray) -> list[str]:
    dropped = plan.dropped_columns
    lines = [f", {int(to_purge.sum()):,} with deleted rows or dropped columns."]
    if left := int((to_purge & ~plan.is_removed).sum()):
        one = left == 1
        why = f"no row is left in {'it' if one else 'them'}"
        if plan.clustered_by:
            why = f"REORG packs {'it' if one else 'them'} by cubes as OPTIMIZE does"
        lines.append(f"{left:,} of these {'stays' if one else 'stay'}, because {why}.")
    if plan.is_empty:
        return [*lines, "So there is nothing to do."]
    purged = [format_count(plan.num_deleted_rows, "deleted row")] if plan.num_deleted_rows else []
    if dropped.num_rows:
        size_bytes = pc.sum(dropped["size_bytes"]).as_py()
        purged.append(f"dropped columns in {format_files(len(dropped), size_bytes)}")
    return [
        *lines,
        f"REORG … APPLY (PURGE) rewrites {format_files(plan.num_files_removed, plan.bytes_removed)} in "
        f"{format_count(plan.num_bins, 'bin')}{bin_limit(plan)}, as {_outputs(plan)}, "
        f"without {' and '.join(purged)}.",
        "Earlier versions can still read what is purged, until VACUUM deletes the replaced files.",
        f"The size is predicted: {plan.size_basis}.",
    ]


def explain_clustering(plan: BinPlan) -> list[str]:
    """Say which cubes OPTIMIZE rewrites and why, in sentences.

    The last two say what a complete cube is and how sizes are predicted.
    """
    complete, lines, rewritten = format_size(plan.planner.rules.cubes.complete), list[str](), list[str]()
    cubes = plan.cubes.group_by(["state", "is_rewritten"]).aggregate(
        [("size_bytes", "count"), ("num_files", "sum"), ("size_bytes", "sum")]
    )
    totals = {(row["state"], row["is_rewritten"]): row for row in cubes.to_pylist()}
    for state, (why, words) in _CUBE_STATES.items():
        if why and (total := totals.get((state, False))):
            stay = "stays" if total["num_files_sum"] == 1 else "stay"
            files = format_files(total["num_files_sum"], total["size_bytes_sum"])
            lines.append(f"{files} {stay}, because {why.format(complete=complete)}.")
        if words and (total := totals.get((state, True))):
            what = words.format(cubes=format_count(total["size_bytes_count"], "cube"), complete=complete)
            files = format_files(total["num_files_sum"], total["size_bytes_sum"])
            rewritten.append(f"{files} {what}")
    if plan.is_empty:
        return [*lines, "So there is nothing to do."]
    statement = "OPTIMIZE FULL" if plan.full else "OPTIMIZE"
    new_cubes = format_count(plan.num_bins, "new cube")
    lines.append(f"{statement} sorts {' and '.join(rewritten)} into {new_cubes}, as {_outputs(plan)}.")
    new_bytes = totals[NEW, True]["size_bytes_sum"] if (NEW, True) in totals else 0
    if 0 < new_bytes < plan.bytes_removed:
        lines.append(
            f"{format_size(new_bytes)} is new and {format_size(plan.bytes_removed)} is rewritten, "
            f"{format_factor(plan.bytes_removed / new_bytes)} times as much: OPTIMIZE merges new files into "
            f"a cube until the cube has {complete}."
        )
    return [
        *lines,
        f"A cube of {complete} or more is complete ({CUBES}.threshold); plan.amplification() says what more "
        "appends cost.",
        f"The number and size of the new files are predicted: {plan.size_basis}.",
    ]


def why_empty(plan: BinPlan) -> str:
    """Say why an empty plan has no bin, as the end of a sentence."""
    if plan.source.num_files == 0:
        return f"no file matches{_suggestion(plan)}"
    if plan.packed.num_bins:
        return "all rows of the files that share a bin are deleted, and then OPTIMIZE commits nothing"
    if plan.clustered_by:
        complete, states = format_size(plan.planner.rules.cubes.complete), plan.cubes["state"].to_pylist()
        stay = (why.format(complete=complete) for state, (why, _) in _CUBE_STATES.items() if state in states)
        return ", and ".join(stay)
    if plan.unbounded.num_bins:
        positions, bin_ids = plan.unbounded.members
        smallest, number = np.bincount(bin_ids, plan.source.sizes[positions]).min(), plan.unbounded.num_bins
        which = "only bin" if number == 1 else f"smallest of {number:,} bins"
        most = format_size(plan.budget or 0)
        return f"the {which} has {format_size(smallest)}, more than the budget of {most}"
    small, deleted = candidates(plan.source, plan.thresholds)
    partitions = plan.planner.groups[small | deleted]
    under = f"under {format_size(plan.thresholds.min_file_size)}"
    under += " or with many deleted rows" if deleted.any() else ""
    if len(partitions) < 2:
        return f"only one file is {under}" if len(partitions) else f"no file is {under}"
    alone = len(np.unique(partitions)) == len(partitions)
    where = "is the only one in its partition" if alone else "would be alone in its bin"
    return f"each of the {len(partitions):,} files {under} {where}"


def _suggestion(plan: BinPlan) -> str:
    """Suggest the value that a predicate without a match may mean, such as 'JFK' for 'jfk'."""
    columns = Files(plan.source.snapshot).partitions.columns
    known = {
        value.casefold(): value for column in columns for value in pc.unique(column).to_pylist() if value
    }
    for typed in re.findall("'([^']*)'", plan.where or ""):
        near = difflib.get_close_matches(typed.casefold(), known, n=1)
        if near and known[near[0]] != typed:
            return f" (did you mean '{known[near[0]]}'?)"
    return ""


def bin_names(plan: BinPlan) -> list[str]:
    """Name each bin by its partition and its number there, such as "origin=JFK, bin 2 of 3"."""
    rows, numbers = plan.bins.select(plan.source.partitions.column_names).to_pylist(), plan.bin_groups
    total, seen, names = Counter(numbers.tolist()), Counter[int](), []
    for row, number in zip(rows, numbers.tolist(), strict=True):
        seen[number] += 1
        place = f"bin {seen[number]} of {total[number]}"
        names.append(f"{format_partition(row)}, {place}" if row else place)
    return names


def bin_limit(plan: BinPlan) -> str:
    """Return how large a bin may be, as the end of a phrase; empty for Z-order, which has no limit."""
    if plan.clustered_by:
        return f" of at most {format_size(plan.planner.rules.cubes.most)}"
    if plan.zorder_by:
        return ""
    predicted = "" if plan.order == SIZE else " with a predicted output"
    most, target = plan.thresholds.max_file_size, plan.thresholds.target_file_size
    about = f" (files of about {format_size(target)})" if most > target else ""
    alone = plan.is_purge and (plan.outcome.bytes_removed > most).any()
    return f"{predicted} of at most {format_size(most)}{about}{', or of one larger file' if alone else ''}"


@dataclass(frozen=True)
class Exactness:
    """Which parts of a plan are certain; `str()` lists them in words.

    `members` is False if OPTIMIZE ends a bin between files of equal size: these are in the snapshot's order
    (see `state_order`), which depends on the setting spark.databricks.delta.snapshotPartitions at the time
    when the session first read the table. If files become several cubes, `members` and `sums` are False.
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
    # Whether a bin of OPTIMIZE ends between files that could be swapped; ends of bins include all borders.
    edges = packing.ends[packing.ends < len(packing.order)]
    before, after = packing.order[edges - 1], packing.order[edges]
    has_ties = bool(tied_across(plan.source.sizes, plan.planner.groups, before, after).any())
    # Whether bins of equal size are in different batches.
    order = np.lexsort((outcome.batch_ids, outcome.bytes_removed))
    sizes, batches = outcome.bytes_removed[order], outcome.batch_ids[order]
    is_open = bool(plan.clustered_by) and packing.num_bins > 1
    return Exactness(
        sums=not is_open,
        members=not (is_open or (plan.is_optimize and has_ties)),
        num_files_added=not plan.sorts_rows and bool(outcome.rows_known.all()),
        commits=not bool(((sizes[1:] == sizes[:-1]) & (batches[1:] != batches[:-1])).any()),
    )


def metrics(plan: BinPlan) -> dict[str, Any]:
    """Predict OPTIMIZE's result row, as far as it can be known before the run (OptimizeStats).

    The row also counts bins of batches without rows, which aren't committed.
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
        "partitionsOptimized": len(np.unique(plan.planner.groups[positions])),
        "numBins": plan.packed.num_bins,
        "numBatches": plan.num_batches,
        "totalConsideredFiles": source.num_files,
        "totalFilesSkipped": source.num_files - len(positions),
        "deletionVectorStats": vectors if len(deleted) else None,
        **(clustering.metrics(plan.packed, plan.full) if clustering else {}),
    }
