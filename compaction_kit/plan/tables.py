"""The tables that a plan shows: its files, bins and batches, and what becomes of every file."""

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from compaction_kit.plan.candidates import LARGE, reasons

if TYPE_CHECKING:
    from compaction_kit.plan.compaction import CompactionPlan

_FORMAT = 1


def files_table(plan: "CompactionPlan") -> pa.Table:
    """See `CompactionPlan.files`."""
    source = plan.source
    positions, bin_ids = plan.members
    return pa.table(
        {
            "path": source.paths(positions),
            "size_bytes": source.sizes[positions],
            "bin_id": bin_ids,
        }
    )


def bins_table(plan: "CompactionPlan") -> pa.Table:
    """See `CompactionPlan.bins`."""
    positions, bin_ids = plan.members
    table = plan.source.to_arrow().take(pa.array(positions)).append_column("bin_id", pa.array(bin_ids))
    partitions = _partition_columns(table)
    keep_null = pc.ScalarAggregateOptions(skip_nulls=False)
    grouped = table.group_by("bin_id").aggregate(
        [
            ("path", "count"),
            ("size_bytes", "sum"),
            ("num_records", "sum", keep_null),
            *((name, "min") for name in partitions),
        ]
    )
    names = ["path_count", "size_bytes_sum", "num_records_sum", *(f"{name}_min" for name in partitions)]
    bins = grouped.select(["bin_id", *names]).sort_by("bin_id")
    bins = bins.rename_columns(["bin_id", "num_files", "size_bytes", "num_records", *partitions])
    outcome = plan.outcome
    predicted = {
        "num_deletion_vectors": outcome.vectors,
        "num_files_added": outcome.files_added,
        "bytes_added": outcome.bytes_added,
        "gain": outcome.gains,
        "batch_id": outcome.batch_ids,
    }
    for name, values in predicted.items():
        bins = bins.append_column(name, pa.array(values, pa.int64()))
    return _with_rate(bins)


def partitions_table(plan: "CompactionPlan") -> pa.Table:
    """See `CompactionPlan.partitions`."""
    names = _partition_columns(plan.bins)
    sums = ("num_files", "size_bytes", "num_files_added", "bytes_added", "gain")
    # By number and not by value: values that look different may be one partition.
    numbers = plan.groups[plan.packing.order[plan.packing.starts]]
    bins = plan.bins.append_column("number", pa.array(numbers))
    grouped = bins.group_by("number").aggregate(
        [*((name, "min") for name in names), ("bin_id", "count"), *((name, "sum") for name in sums)]
    )
    kept = [*(f"{name}_min" for name in names), "bin_id_count", *(f"{name}_sum" for name in sums)]
    partitions = _with_rate(grouped.select(kept).rename_columns([*names, "num_bins", *sums]))
    return partitions.sort_by([("gain_per_byte", "descending")])


def batches_table(plan: "CompactionPlan") -> pa.Table:
    """See `CompactionPlan.batches`."""
    names = ("num_files", "size_bytes", "num_deletion_vectors", "num_files_added")
    sums = [(name, "sum") for name in names]
    grouped = plan.bins.group_by("batch_id").aggregate([("bin_id", "count"), *sums]).sort_by("batch_id")
    summed = grouped.select(["batch_id", "bin_id_count", *(f"{name}_sum" for name in names)])
    return summed.rename_columns(["batch_id", "num_bins", *names])


def steps_table(plan: "CompactionPlan") -> pa.Table:
    """See `CompactionPlan.steps`."""
    source = plan.source
    reason = np.full(source.num_files, "Z-order") if plan.zorder_by else reasons(source, plan.thresholds)
    outcome = np.where(reason == LARGE, "large", "alone").astype(object)
    outcome[plan.unbounded.members()[0]] = "over budget"
    outcome[plan.packed.members()[0]] = "no rows"
    positions, bin_ids = plan.members
    outcome[positions] = "packed"
    bin_of = np.full(source.num_files, -1)
    bin_of[positions] = bin_ids
    order = plan.planner.order(plan.order)
    files = source.to_arrow()
    kept = ["path", "size_bytes", *_partition_columns(files)]
    return pa.table(
        {
            **{name: files[name].take(pa.array(order)) for name in kept},
            "reason": reason[order],
            "outcome": outcome[order],
            "bin_id": pa.array(bin_of[order], mask=bin_of[order] < 0),
        }
    )


def as_dict(plan: "CompactionPlan") -> dict[str, Any]:
    """See `CompactionPlan.to_dict`."""
    thresholds = plan.thresholds
    return {
        "format": _FORMAT,
        "version": plan.version,
        "where": plan.where,
        "order": plan.order,
        "budget": plan.budget,
        "zorder_by": list(plan.zorder_by),
        "min_file_size": thresholds.min_file_size,
        "max_file_size": thresholds.max_file_size,
        "max_deleted_rows_ratio": thresholds.max_deleted_rows_ratio,
        "batch_size": thresholds.batch_size,
        "warnings": list(plan.warnings),
        "num_files_removed": plan.num_files_removed,
        "num_files_added": plan.num_files_added,
        "bytes_removed": plan.bytes_removed,
        "bytes_added": plan.bytes_added,
        "size_basis": plan.size_basis,
        "bins": plan.bins.to_pylist(),
        "files": plan.files.to_pylist(),
    }


def _with_rate(table: pa.Table) -> pa.Table:
    """A table with what is gained for each byte that is rewritten."""
    rate = table["gain"].to_numpy() / np.maximum(table["size_bytes"].to_numpy(), 1)
    return table.append_column("gain_per_byte", pa.array(rate, pa.float64()))


def _partition_columns(files: pa.Table) -> list[str]:
    return [name for name in files.column_names if name.startswith("partition.")]
