"""Lesson 10's lab: what a budget of bytes buys, and what the order of packing does to queries."""

from compaction_kit.lessons.lab import Choice, Finding, Lab, Steps, run_keeping
from compaction_kit.plan.order import INGEST, SIZE, order_by
from compaction_kit.table import Table
from compaction_kit.text import format_count, format_size

_SHARES = (0.05, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0)


def budget(table: Table, column: str, max_file_size: int | str, share: float = 0.2) -> Lab:
    """Show what a compaction within a budget rewrites and saves, and how many files queries touch then.

    Args:
        table: A table; it is not compacted.
        column: The column of which queries ask for a narrow range, and by which files can be packed.
        max_file_size: The target file size, bytes or text such as "128 KiB".
        share: The budget to begin with, as a share of the table's bytes, such as 0.2.

    Raises:
        InvalidArgumentError: There is no such column, or the slider has no such share.
    """
    orders = {"size, as OPTIMIZE": SIZE, "time of writing": INGEST, column: order_by(column)}
    everything = {
        order: table.plan_compaction(max_file_size=max_file_size, order=order) for order in orders.values()
    }
    size_bytes = table.files().size_bytes

    def finding(share: float, order: str) -> Finding:
        budget = int(share * size_bytes)
        code = f"""\
plan = table.plan_compaction(max_file_size={max_file_size!r}, order={order!r}, budget={budget})
plan.compare({column!r}).plot()"""
        plan, figure = run_keeping("plan", code, table=table)
        now, *_, then = plan.compare(column).layouts.to_pylist()
        gain = plan.gain / max(everything[order].gain, 1)
        sentence = (
            f"{format_size(plan.bytes_removed)} rewritten in {format_count(plan.num_bins, 'bin')}, which "
            f"saves {gain:.0%} of what all bins of this order would save readers: {now['num_files']:,} "
            f"files become {then['num_files']:,}. A narrow range of {column} touches "
            f"{then['range_files']:.1f} of them on average; now it is {now['range_files']:.1f}."
        )
        return Finding(sentence, figure, code)

    return Lab(
        finding,
        share=Steps(
            "Budget", _SHARES, share, lambda part: f"{part:.0%}, {format_size(int(part * size_bytes))}"
        ),
        order=Choice("Pack by", orders, SIZE),
    )
