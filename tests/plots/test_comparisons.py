"""Figures with a row a thing have room for the longest names and numbers; conftest looks at their texts."""

import pyarrow as pa
import pytest

from compaction_kit import plots
from compaction_kit.surveys import ROW
from compaction_kit.text import GIB

NAME = "a_long_name_of_a_column_or_a_table_that_has_no_end"


@pytest.mark.parametrize("num_files", [1, 1_095, 1_234_567])
def test_layouts_and_reads_have_room_for_their_numbers(num_files: int) -> None:
    layouts = pa.table(
        {
            "layout": ["now", f"by {NAME}"],
            "num_files": [num_files, 1],
            "range_files": [float(num_files), None],
            "files_opened": [num_files, 1],
            "bytes_opened": [num_files * GIB, GIB],
        }
    )
    assert "unknown" in str(plots.layouts(layouts, NAME).get_label())
    assert NAME in str(plots.predicted_reads(f"{NAME} = 1", layouts, "Fewer files").get_label())
    runs = [[1.0, 1.1, 1.2], [0.001, 0.001, 0.002]]
    plots.reads("a = 1", "Faster", (123_456, 123_457), runs, [num_files, 1], [num_files * GIB, None])


@pytest.mark.parametrize("num_files", [1, 12, 1_095, 1_234_567, 123_456_789])
@pytest.mark.parametrize("left", [0, 1])
def test_a_survey_has_room_for_its_names_and_numbers(num_files: int, left: int) -> None:
    compacted = {"table": f"/data/{NAME}", "num_files": num_files, "num_small_files": num_files}
    compacted |= {"files_removed": num_files, "files_added": left, "gain": num_files * GIB}
    kept = {"table": "/data/kept", "num_files": 1, "num_small_files": 0, "files_removed": 0, "files_added": 0}
    rows = [dict.fromkeys(ROW.names) | row for row in (compacted, kept | {"gain": 0})]
    figure = plots.survey(pa.Table.from_pylist(rows, schema=ROW), "Something to gain")
    assert f"{num_files:,} → {left}" in plots.to_svg(figure)
