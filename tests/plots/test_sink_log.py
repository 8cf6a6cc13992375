"""The figure of a sink log says what it shows."""

import pyarrow as pa
import pytest

from compaction_kit import sink_log
from compaction_kit.sinklog.policy import Policy
from compaction_kit.text import format_size
from tests.sinklog.streams import LINE, make_log


@pytest.fixture
def log(tmp_path):
    """A log of 40 entries, compacted every 10 batches, two batches after its fourth compaction."""
    files = {f"c{n}": "\n".join(["v1", *[LINE] * (n + 1)]) for n in (19, 29, 39)}
    files |= {f"b{n}": f"v1\n{LINE}" for n in (*range(30, 39), 40, 41)}
    return sink_log(
        make_log(tmp_path / "_spark_metadata", **files), policy=Policy(10, 20, Policy().cleanup_delay * 0)
    )


def test_it_draws_each_compaction_the_projected_ones_and_the_removals(log) -> None:
    figure = log.plot(30, "1 day")
    axis = figure.axes[0]
    lines = {line.get_label(): line for line in axis.lines}
    known, projected = lines["compaction file"], lines["projected"]
    assert known.get_xdata().tolist() == [19, 29, 39]
    assert known.get_ydata().tolist() == log.compactions["size_bytes"].to_pylist()
    assert projected.get_xdata().tolist() == [39, 49, 59, 69]
    assert list(lines["cleanup removes files"].get_xdata()) == sorted(
        set(log.project(30).removals["batch"].to_pylist())
    )
    # All entries are years old.
    assert lines["with the retention"].get_ydata().tolist()[1] < known.get_ydata().tolist()[0]
    now, then = (format_size(2 + count * (len(LINE) + 1)) for count in (40, 70))
    finding = f"39.compact is {now}; at batch 69 it will be about {then}"
    assert str(figure.get_label()).startswith(finding)


def test_a_log_without_a_compaction_is_drawn_too(tmp_path) -> None:
    log = sink_log(make_log(tmp_path / "_spark_metadata", b0="v1"), policy=Policy())
    assert str(log.plot(3).get_label()) == "No compaction yet"
    assert isinstance(log.files, pa.Table)
