"""The figures of labs say what they show."""

import numpy as np
import pyarrow as pa
from course import figures


def test_the_files_of_a_log_are_drawn_as_spans_of_batches_in_rows_that_stay() -> None:
    files = pa.table(
        {
            "name": ["0", "1", "2.compact", "3"],
            "first": [0, 1, 0, 3],
            "batch": [0, 1, 2, 3],
            "state": ["removed", "stands, not needed", "a reader needs it", "a reader needs it"],
        }
    )
    figure = figures.log_files(files, 12, 4, "Two are needed")
    axis = figure.axes[0]
    drawn = [
        {str(np.round(path.get_extents().extents, 1).tolist()) for path in boxes.get_paths()}
        for boxes in axis.collections
    ]
    assert drawn == [
        {"[-0.5, 1.1, 2.5, 1.9]", "[2.5, 0.1, 3.5, 0.9]"},
        {"[0.5, 0.1, 1.5, 0.9]"},
        {"[-0.5, 0.1, 0.5, 0.9]"},
    ]
    assert [label.get_text() for label in axis.get_yticklabels()] == ["batches' own files", "2.compact"]
    assert (axis.get_xlim(), axis.get_ylim()) == ((-0.5, 11.5), (5, 0))
    assert str(figure.get_label()) == "Two are needed"


def test_rows_of_a_manifest_are_told_apart_by_where_they_are_from() -> None:
    groups = pa.table(
        {
            "name": ["batch 1", "batch 2", "batch 3", "appended"],
            "num_rows": [10, 20, 30, 5],
            "old_rows": [0, 20, 30, 0],
            "new_rows": [10, 0, 30, 0],
        }
    )
    figure = figures.manifest_rows(groups, 1, "30 twice")
    axis = figure.axes[0]
    live, compacted, again, missed = (
        [bar.get_height() for bar in container] for container in axis.containers
    )
    assert live == [10, 0, 30, 0]
    assert compacted == [0, 20, 0, 0]
    assert again == [0, 0, 30, 0]
    assert missed == [0, 0, 0, 5]
    assert np.array_equal(axis.lines[0].get_xdata(), [0.5, 0.5])
    assert str(figure.get_label()) == "30 twice"


def test_a_wait_has_a_scale_of_its_own() -> None:
    drawn = [figures.waiting({"a": (1, seconds), "b": (1, 0.0)}) for seconds in (0.0, 1.0, 1e9)]
    assert len({figure.axes[0].get_xlim() for figure in drawn}) == 1
    assert "A: 1 file, 11,574 days until open" in str(drawn[-1].get_label())
