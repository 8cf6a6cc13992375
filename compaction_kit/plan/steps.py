"""What becomes of each file that a plan considers, and the names of its bins."""

from collections import Counter
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from compaction_kit.plan.clustering import CLEAN
from compaction_kit.plan.thresholds import candidates
from compaction_kit.text import format_partition

if TYPE_CHECKING:
    from compaction_kit.plan.plan import BinPlan


def packing_steps(plan: "BinPlan") -> pa.Table:
    """Return the table of `BinPlan.steps`."""
    small, deleted = candidates(plan.source, plan.thresholds)
    clustering, dropped, stays = plan.planner.clustering, plan.planner.dropped, "stays"
    if clustering is not None:
        reason = clustering.states(plan.full)
    elif dropped is not None:
        reason = np.select([deleted, dropped >= 0], ["deleted rows", "dropped columns"], CLEAN)
    elif plan.zorder_by:
        reason = np.full(len(small), "Z-order")
    else:
        reason, stays = np.select([small, deleted], ["small", "deleted rows"], "large"), "alone"
    outcome = np.where(reason == "large", "large", stays).astype(object)
    outcome[plan.unbounded.members[0]] = "over budget"
    outcome[plan.packed.members[0]] = "no rows"
    bin_of, (positions, bin_ids) = np.full(len(small), -1), plan.members
    outcome[positions], bin_of[positions] = "packed", bin_ids
    order = plan.planner.packer(plan.order).order
    columns = {
        "path": plan.source.paths(order),
        "size_bytes": plan.source.sizes[order],
        **plan.partition_values(order),
        "reason": reason[order],
        "outcome": outcome[order],
        "bin_id": pa.array(bin_of[order], mask=bin_of[order] < 0),
    }
    return pa.table(columns)


def bin_names(plan: "BinPlan") -> list[str]:
    """Name each bin by its partition and its number there, such as "origin=JFK, bin 2 of 3"."""
    rows, numbers = plan.bins.select(plan.source.partitions.column_names).to_pylist(), plan.bin_groups
    total, seen, names = Counter(numbers.tolist()), Counter[int](), []
    for row, number in zip(rows, numbers.tolist(), strict=True):
        seen[number] += 1
        place = f"bin {seen[number]} of {total[number]}"
        names.append(f"{format_partition(row)}, {place}" if row else place)
    return names
