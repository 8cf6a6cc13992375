"""The figure of a forecast."""

import numpy as np
import pyarrow as pa
import pytest

from compaction_kit import plots
from compaction_kit.text import GIB


def days(schedules: dict[str, int], last: int, size: int) -> pa.Table:
    rows = []
    for schedule, every in schedules.items():
        for day in range(last + 1):
            before = (day - 1) % every + 2 if every and day else day + 1
            after = 1 if every and day % every == 0 else before
            counts = {
                "files_before": before,
                "num_files": after,
                "live_bytes": size,
                "stored_bytes": size * before,
            }
            rows.append({"schedule": schedule, "day": day, **counts})
    return pa.Table.from_pylist(rows)


@pytest.mark.parametrize("size", [0, 1, 3 * GIB])
@pytest.mark.parametrize("chosen", ["never", "every 2 days"])
def test_a_forecast_has_a_line_per_schedule_and_its_bound(size: int, chosen: str) -> None:
    schedules = {"never": 0, "every day": 1, **{f"every {n} days": n for n in (2, 3, 7, 14, 30, 90, 365)}}
    figure = plots.forecast("A full read opens 1 file now", days(schedules, 30, size), chosen, 1_234_567)
    assert figure.get_label() == "A full read opens 1 file now"
    upper, lower = figure.axes
    assert [line.get_label() for line in upper.lines] == [*schedules, "bound: 1,234,567"]
    # Of a compaction every second day, the end of the second day has both counts.
    assert np.asarray(upper.lines[2].get_ydata())[2:6].tolist() == [2, 2, 3, 1]
    assert len(lower.lines) == len(schedules)
