"""Compare the layouts of a table after different plans: how many files queries open."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from compaction_kit import plots
from compaction_kit.errors import InvalidArgumentError
from compaction_kit.plan.explain import why_empty
from compaction_kit.plan.order import INGEST, SIZE, column_of, layout_of, order_by
from compaction_kit.plan.packing import Packing
from compaction_kit.plan.plan import BinPlan
from compaction_kit.records import Record
from compaction_kit.skipping import Bounds, files_opened
from compaction_kit.text import as_html_table, format_factor, format_size

# A narrow range query spans this share of the values that bound the files now.
RANGE_SHARE = 0.01


@dataclass(frozen=True, repr=False)
class Comparison(Record):
    """Layouts of a table, side by side.

    Attributes:
        column: The column that queries filter by.
        layouts: One row per layout: layout (string: "now", "OPTIMIZE", "by ingestion", "by <column>", and
            "this plan" for a plan with a budget), num_files, bytes_rewritten (int64), point_files and
            range_files (double, files that a query for one value, or for a narrow range, opens on average).
    """

    column: str
    layouts: pa.Table

    def plot(self) -> "plots.Chart":
        """Draw the files that a narrow range opens in each layout."""
        opened = {row["layout"]: row["range_files"] for row in self.layouts.to_pylist()}
        best = min(opened, key=lambda name: opened[name])
        when = best if best.startswith(("now", "by ")) else f"after {best}"
        equal = [name for name in opened if format_factor(opened[name]) == format_factor(opened[best])]
        when = f"in {len(equal)} of {len(opened)} layouts" if equal[1:] else when
        how = "as many files in each layout" if len({*opened.values()}) == 1 else f"the fewest files {when}"
        finding = f"A narrow range of {self.column} opens {how}"
        return plots.layouts(finding, opened, self.facts(), "files opened")

    def facts(self) -> dict[str, str]:
        """Return how many files of each layout a narrow range opens."""
        return {
            layout: f"{opened} of {files} {'file' if files == '1' else 'files'}"
            for layout, files, _, _, opened in self._rows()
        }

    def parts(self) -> Sequence[object]:
        """Return the layouts as a table and as a figure."""
        head = ("layout", "files", "rewritten", "opened for a value", "for a narrow range")
        return as_html_table(head, self._rows()), self.plot()

    def _rows(self) -> list[list[str]]:
        rows = []
        for layout in self.layouts.to_pylist():
            opened = [format_factor(layout[name]) for name in ("point_files", "range_files")]
            cells = [layout["layout"], f"{layout['num_files']:,}", format_size(layout["bytes_rewritten"])]
            rows.append(cells + opened)
        return rows


def compare(plan: BinPlan, column: str | None = None) -> Comparison:
    """Compare the layouts now, after OPTIMIZE with the plan's thresholds, and after each order.

    Queries use the values that bound the files now: one for each value, and one for each range that spans 1 %
    of these values. A file is opened if its bounds in the stats don't exclude it; a file without bounds is
    always opened. After a rewrite, a bin's output is assumed to be one file with the bounds of all its
    inputs.

    Args:
        plan: The plan, for its files and thresholds; a plan with a budget is compared too.
        column: What queries filter by. None: the plan's order column, else the first column with bounds.

    Raises:
        InvalidArgumentError: The plan is a purge, or the table is clustered or empty, or has no such bounds.
    """
    if plan.is_purge:
        raise InvalidArgumentError(
            "A purge keeps the layout, so there is none to compare: plan a compaction."
        )
    if plan.clustered_by:
        raise InvalidArgumentError(
            f"The table is clustered by {', '.join(plan.clustered_by)}: OPTIMIZE sorts its rows, so no "
            "other order can be compared."
        )
    source = plan.source
    if not source.num_files:
        raise InvalidArgumentError(f"There is nothing to compare, because {why_empty(plan)}.")
    name = column or column_of(plan.order) or next(filter(source.has_bounds, source.data_columns), None)
    if not name or not (bounds := source.bounds(name)).known.any():
        which = f'column="{name}": it has no' if name else "column=None: no column has"
        raise InvalidArgumentError(
            f"{which} bounds in the stats of the files, so queries can't be compared; write stats first."
        )
    orders = (SIZE, INGEST, order_by(name))
    plans = {layout_of(order): plan.in_order(order) for order in orders}
    plans |= {} if plan.budget is None else {"this plan": plan}
    nothing = np.array([], np.int64)
    layouts = {"now": Packing(nothing, nothing, nothing)}
    layouts |= {layout: planned.packing for layout, planned in plans.items()}
    rows = [
        {"layout": layout, **_measured(bounds, source.sizes, packing)} for layout, packing in layouts.items()
    ]
    return Comparison(name, pa.Table.from_pylist(rows))


def _measured(bounds: Bounds, sizes: np.ndarray, packing: Packing) -> dict[str, Any]:
    values = np.sort(np.r_[bounds.lows[bounds.known], bounds.highs[bounds.known]])
    width = int(len(values) * RANGE_SHARE)
    positions, bin_ids = packing.members
    # Below, arrays hold the files that stay, then one file per bin.
    known = np.bincount(bin_ids, ~bounds.known[positions], minlength=packing.num_bins) == 0
    lows, highs = np.full(packing.num_bins, len(bounds.values)), np.full(packing.num_bins, -1)
    np.minimum.at(lows, bin_ids, bounds.lows[positions])
    np.maximum.at(highs, bin_ids, bounds.highs[positions])
    known = np.r_[np.delete(bounds.known, positions), known]
    lows = np.r_[np.delete(bounds.lows, positions), lows][known]
    highs = np.r_[np.delete(bounds.highs, positions), highs][known]
    unknown = len(known) - len(lows)
    points = files_opened(lows, highs, values, values)
    ranges = files_opened(lows, highs, values[: len(values) - width], values[width:])
    return {
        "num_files": len(known),
        "bytes_rewritten": int(sizes[positions].sum()),
        "point_files": float(points.mean() + unknown),
        "range_files": float(ranges.mean() + unknown),
    }
