"""The figures of a forecast and of a sink log say what they show."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from compaction_kit import plots, sink_log
from compaction_kit.sinklog.policy import Policy
from compaction_kit.text import GIB, format_size
from tests.sinklog.streams import LINE, make_log


def days(schedules: dict[str, int], last: int, size: int) -> pa.Table:
    rows = []
    for schedule, every in schedules.items():
        for day in range(last + 1):
            before = (day - 1) % every + 2 if every and day else day + 1
            after = 1 if every and day % every == 0 else before
            counts = {"files_before": before, "num_files": after}
            sizes = {"live_bytes": size, "stored_bytes": size * before}
            rows.append({"schedule": schedule, "day": day} | counts | sizes)
    return pa.Table.from_pylist(rows)


@pytest.mark.parametrize("size", [0, 1, 3 * GIB])
@pytest.mark.parametrize("chosen", ["never", "every 2 days"])
def test_a_forecast_has_a_line_per_schedule_and_its_bound(size: int, chosen: str) -> None:
    schedules = {"never": 0, "every day": 1, **{f"every {n} days": n for n in (2, 3, 7, 14, 30, 90, 365)}}
    figure = plots.forecast("A full read opens 1 file now", days(schedules, 30, size), chosen, 1_234_567)
    assert figure.get_label() == "A full read opens 1 file now"
    upper, lower = figure.axes
    assert [line.get_label() for line in upper.lines] == [*schedules, "bound: 1,234,567"]
    # With a compaction every second day, the second day has the counts before and after the compaction.
    assert np.asarray(upper.lines[2].get_ydata())[2:6].tolist() == [2, 2, 3, 1]
    assert len(lower.lines) == len(schedules)
    for most in (1.2, 15, 1e6):
        upper.set_ylim(1, most)
        names = [label.get_text() for minor in (False, True) for label in upper.get_yticklabels(minor=minor)]
        assert sum(map(bool, names)) > 1, names
        assert not any(set(name) - set("0123456789,") for name in names), names


def test_a_log_has_its_compactions_the_projected_ones_and_the_removals(tmp_path: Path) -> None:
    # 40 entries, compacted every 10 batches, two batches after the fourth compaction.
    files = {f"c{n}": "\n".join(["v1", *[LINE] * (n + 1)]) for n in (19, 29, 39)}
    files |= {f"b{n}": f"v1\n{LINE}" for n in (*range(30, 39), 40, 41)}
    policy = Policy(10, 20, Policy().cleanup_delay * 0)
    log = sink_log(make_log(tmp_path / "_spark_metadata", **files), policy=policy)
    figure = log.plot(30)
    lines: dict[object, Any] = {line.get_label(): line for line in figure.axes[0].lines}
    known, projected = lines["compaction file"], lines["projected"]
    assert known.get_xdata().tolist() == [19, 29, 39]
    assert known.get_ydata().tolist() == log.compactions["size_bytes"].to_pylist()
    assert projected.get_xdata().tolist() == [39, 49, 59, 69]
    removals = sorted(set(log.project(30).removals["batch"].to_pylist()))
    assert list(lines["cleanup removes files"].get_xdata()) == removals
    now, then = (format_size(2 + count * (len(LINE) + 1)) for count in (40, 70))
    assert "The cleanup removes" in str(figure.get_label())
    finding = f"39.compact is {now}; the one of batch 69 will be about {then}"
    assert str(figure.get_label()).startswith(finding)
    assert f"{finding}." in log.explain(30)
    assert "Growth: about 72 entries at batch 71;" in log.explain(30)


def test_a_log_without_a_compaction_is_drawn_too(tmp_path: Path) -> None:
    log = sink_log(make_log(tmp_path / "_spark_metadata", b0="v1"), policy=Policy())
    assert str(log.plot(3).get_label()) == "No compaction yet"
