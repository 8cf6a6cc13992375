"""Labs of bins: how files are packed into bins, and what a budget of bytes saves."""

from typing import Any

import pyarrow as pa

from compaction_kit.plan.order import INGEST, SIZE, order_by
from compaction_kit.table import Table
from compaction_kit.text import KIB, format_count, format_size
from course.figures import held_before
from course.lab import Choice, Finding, Lab, Steps, run

_SIZES = tuple(2**power * KIB for power in range(2, 11))
_SHARES = (0.05, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0)


def packing(table: Table, where: str | None = None, size: int = 128 * KIB) -> Lab:
    """Show how OPTIMIZE packs one file after another, and how the two thresholds change the result.

    Use a table with few files, or a condition on its partitions that selects few. Both thresholds begin at
    `size` bytes, which is a power of two from 4 KiB to 1 MiB.
    """
    num_files = table.files(where=where).num_files

    def finding(min_file_size: int, max_file_size: int, num_seen: int) -> Finding:
        code = f"""\
from course import figures

plan = table.plan_compaction(
    where={where!r}, min_file_size={min_file_size}, max_file_size={max_file_size}
)
figures.packing(plan.steps, plan.thresholds.max_file_size, num_seen={num_seen})"""
        names: dict[str, Any] = {"table": table}
        figure = run(code, names)
        plan = names["plan"]
        sentence = (
            f"{_step(plan.steps, max_file_size, num_seen)} In the end: "
            f"{format_count(plan.num_bins, 'bin')}, {format_size(plan.bytes_removed)} rewritten, "
            f"{format_count(plan.num_files_after, 'file')} after."
        )
        return Finding(sentence, figure, code)

    return Lab(
        finding,
        min_file_size=Steps("Minimum file size", _SIZES, size, format_size),
        max_file_size=Steps("Target file size", _SIZES, size, format_size),
        num_seen=Steps("Files looked at", range(num_files + 1), min(3, num_files)),
    )


def _step(steps: pa.Table, max_file_size: int, num_seen: int) -> str:
    """Describe what the packer does with the last of the first `num_seen` files."""
    if not num_seen:
        return "No file has been looked at."
    sizes, outcomes, held = steps["size_bytes"].to_pylist(), steps["outcome"].to_pylist(), held_before(steps)
    last = num_seen - 1
    name = f"File {num_seen} has {format_size(sizes[last])}"
    if outcomes[last] == "large":
        return f"{name}: it is not small, and stays."
    if held[last]:
        return f"{name}: with the {format_size(held[last])} in the bin it fits."
    if not last or outcomes[last - 1] == "large":
        return f"{name}: it opens the first bin."
    closed = held[last - 1] + sizes[last - 1]
    if closed + sizes[last] <= max_file_size:
        return f"{name}: it is of another partition, and opens another bin."
    return (
        f"{name}: with the {format_size(closed)} in the bin, that would be more than "
        f"{format_size(max_file_size)}. The bin is closed, and a new one begins."
    )


def budget(table: Table, column: str, max_file_size: int | str) -> Lab:
    """Show what a compaction within a budget rewrites and saves, and how many files queries open afterwards.

    Queries ask for a narrow range of a column; files can be packed by that column too. Nothing is compacted.
    """
    orders = {"size, as OPTIMIZE": SIZE, "time of writing": INGEST, column: order_by(column)}
    whole = {one: table.plan_compaction(max_file_size=max_file_size, order=one) for one in orders.values()}
    size_bytes = table.files().size_bytes

    def finding(share: float, order: str) -> Finding:
        budget = int(share * size_bytes)
        code = f"""\
plan = table.plan_compaction(max_file_size={max_file_size!r}, order={order!r}, budget={budget})
plan.compare({column!r}).plot()"""
        names: dict[str, Any] = {"table": table}
        figure = run(code, names)
        plan = names["plan"]
        now, *_, then = plan.compare(column).layouts.to_pylist()
        gain = plan.gain / max(whole[order].gain, 1)
        sentence = (
            f"{format_size(plan.bytes_removed)} rewritten in {format_count(plan.num_bins, 'bin')}: "
            f"{gain:.0%} of the gain of all bins in this order. {now['num_files']:,} files become "
            f"{then['num_files']:,}. A query for a narrow range of {column} opens {then['range_files']:.1f} "
            f"of them on average; now it opens {now['range_files']:.1f}."
        )
        return Finding(sentence, figure, code)

    shares = Steps("Budget", _SHARES, 0.2, lambda share: f"{share:.0%}, {format_size(share * size_bytes)}")
    return Lab(finding, share=shares, order=Choice("Pack by", orders, SIZE))
