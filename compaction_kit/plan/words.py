"""A plan in a few sentences."""

from typing import TYPE_CHECKING

import numpy as np

from compaction_kit.plan.candidates import candidates, files_with_many_deleted_rows, small_files
from compaction_kit.plan.order import INGEST, SIZE
from compaction_kit.text import format_count, format_size

if TYPE_CHECKING:
    from compaction_kit.plan.compaction import CompactionPlan


def explain(plan: "CompactionPlan") -> str:
    """What a plan does and why, step by step, a sentence a line."""
    lines = [_candidates(plan)]
    if plan.is_empty:
        return "\n".join([*lines, _why_empty(plan), *plan.warnings])
    lines += [_packing(plan), *_left_alone(plan), *_commits(plan), _outcome(plan)]
    exact = plan.exact
    if plan.is_optimize and not exact.members:
        lines.append(
            "Files of one size stand at the edge of a bin: sums are exact, and which of them goes where is "
            "as Delta's snapshot orders them."
        )
    return "\n".join([*lines, *plan.warnings])


def warnings(plan: "CompactionPlan") -> tuple[str, ...]:
    """See `CompactionPlan.warnings`."""
    lower, upper = plan.thresholds.min_file_size, plan.thresholds.max_file_size
    if plan.zorder_by or lower <= upper:
        return ()
    return (
        f"The minimum file size of {format_size(lower)} is above the maximum of {format_size(upper)}, so "
        "that every run takes up the last one's output again, and rewrites what of it fits together: lower "
        "the first or raise the second.",
    )


def _candidates(plan: "CompactionPlan") -> str:
    source, thresholds = plan.source, plan.thresholds
    scope = f" where {plan.where}" if plan.where else ""
    found = f"Version {plan.version} has {format_count(source.num_files, 'live file')}{scope}"
    if plan.zorder_by:
        return f"{found}; Z-ordering rewrites them all."
    small = small_files(source, thresholds)
    deleted = int((files_with_many_deleted_rows(source, thresholds) & ~small).sum())
    sentence = f"{found}, {int(small.sum()):,} under {format_size(thresholds.min_file_size)}"
    return f"{sentence} and {deleted:,} more with many deleted rows." if deleted else f"{sentence}."


def _why_empty(plan: "CompactionPlan") -> str:
    if plan.source.num_files == 0:
        return "No file matches, so there is nothing to do."
    if plan.packed.num_bins:
        return "No row is left in the files that share a bin, and then OPTIMIZE commits nothing."
    if plan.unbounded.num_bins:
        sizes = plan.unbounded.totals(plan.source.sizes)
        return (
            f"The smallest of {format_count(len(sizes), 'bin')} has {format_size(sizes.min())}, more than "
            f"the budget of {format_size(plan.budget or 0)}, so there is nothing to do."
        )
    if not candidates(plan.source, plan.thresholds).any():
        return "No file is under that size, so there is nothing to do."
    return "None of them has a partner in its partition to share a bin with: nothing to do."


def _packing(plan: "CompactionPlan") -> str:
    bins = format_count(plan.num_bins, "bin")
    partitions = format_count(plan.num_partitions, "partition")
    if plan.zorder_by:
        return (
            f"Each partition is a bin, {bins} in all, with its rows ordered by {', '.join(plan.zorder_by)}."
        )
    how = {SIZE: "from the smallest on", INGEST: "from the oldest on"}.get(plan.order, f"by {plan.order}")
    return (
        f"Of these, {plan.num_files_removed:,} fill {bins} of at most "
        f"{format_size(plan.thresholds.max_file_size)} in {partitions}, {how}; the fullest partition gets "
        f"{_most_bins(plan):,}."
    )


def _left_alone(plan: "CompactionPlan") -> list[str]:
    alone = _num_candidates(plan) - len(plan.unbounded.members()[0])
    over = plan.unbounded.num_bins - plan.packed.num_bins
    lines = []
    if alone:
        lines.append(f"{format_count(alone, 'file')} would be alone in a bin and so {_stay(alone)}.")
    if over:
        bins = "1 bin that gains" if over == 1 else f"{over:,} bins that gain"
        budget = format_size(plan.budget or 0)
        lines.append(f"{bins} less for each byte {_stay(over)}, for the budget is {budget}.")
    return lines


def _num_candidates(plan: "CompactionPlan") -> int:
    if plan.zorder_by:
        return plan.source.num_files
    return int(np.count_nonzero(candidates(plan.source, plan.thresholds)))


def _commits(plan: "CompactionPlan") -> list[str]:
    if plan.thresholds.batch_size is None:
        return []
    batches, size = format_count(plan.num_batches, "commit"), format_size(plan.thresholds.batch_size)
    return [f"They go into {batches} of at most {size}, smallest bins first."]


def _outcome(plan: "CompactionPlan") -> str:
    return (
        f"{format_count(plan.num_files_removed, 'file')} of {format_size(plan.bytes_removed)} become "
        f"{format_count(plan.num_files_added, 'file')} of about {format_size(plan.bytes_added)} "
        f"(predicted: {plan.size_basis})."
    )


def _most_bins(plan: "CompactionPlan") -> int:
    partition_of_bin = plan.groups[plan.packing.order[plan.packing.starts]]
    return int(np.unique(partition_of_bin, return_counts=True)[1].max())


def _stay(count: int) -> str:
    return "stays" if count == 1 else "stay"
