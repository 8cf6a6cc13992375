"""Figures with one row per item say what was found, and have room for the longest names and numbers."""

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

from compaction_kit import plots
from compaction_kit.plan.compare import Comparison
from compaction_kit.predict_reads import ReadPrediction
from compaction_kit.reads import ReadComparison
from compaction_kit.surveys import ROW
from compaction_kit.text import GIB, MIB

NAME = "a_long_name_of_a_column_or_a_table_that_has_no_end"


@pytest.mark.parametrize("num_files", [1, 1_095, 1_234_567])
def test_layouts_and_reads_have_room_for_their_numbers(num_files: int) -> None:
    counts = {"layout": ["now", f"by {NAME}"], "num_files": [num_files, 1]}
    touched = {"point_files": [1.0, 1.0], "range_files": [float(num_files), 1.0]}
    compared = Comparison(NAME, pa.table(counts | {"bytes_rewritten": [0, GIB]} | touched))
    assert NAME in str(compared.plot().get_label())
    opened = {"files_opened": [num_files, 1], "bytes_opened": [num_files * GIB, GIB]}
    predicted = ReadPrediction(f"{NAME} = 1", 3, pa.table(counts | opened))
    assert NAME in str(predicted.plot().get_label())
    runs = [[1.0, 1.1, 1.2], [0.001, 0.001, 0.002]]
    plots.reads("a = 1", "Faster", (123_456, 123_457), runs, [num_files, 1], [num_files * GIB, None])


@pytest.mark.parametrize("num_files", [1, 12, 1_095, 1_234_567, 123_456_789])
@pytest.mark.parametrize("left", [0, 1])
def test_a_survey_has_room_for_its_names_and_numbers(num_files: int, left: int) -> None:
    compacted = {"table": f"/data/{NAME}", "num_files": num_files, "num_small_files": num_files}
    compacted |= {"files_removed": num_files, "files_added": left, "gain": num_files * GIB}
    kept = {"table": "/data/kept", "num_files": num_files, "num_small_files": 0, "files_removed": 0}
    rows = [dict.fromkeys(ROW.names) | row for row in (compacted, kept | {"files_added": 0, "gain": 0})]
    figure = plots.survey(pa.Table.from_pylist(rows, schema=ROW), "Something to gain")
    assert f"{num_files:,} → {left}" in plots.to_svg(figure)


def comparison_of(before: list[float], after: list[float], same_result: bool = True) -> ReadComparison:
    versions, repeats = [3] * len(before) + [4] * len(after), [*range(len(before)), *range(len(after))]
    runs = pa.table({"version": versions, "repeat": repeats, "seconds": before + after})
    first, last = (sorted(times)[len(times) // 2] for times in (before, after))
    sizes = 40 * MIB, 38 * MIB
    return ReadComparison("id < 3", (3, 4), first, last, 1_095, 3, *sizes, runs, False, same_result)


FASTER = comparison_of([4.0, 4.2, 4.4], [1.0, 0.9, 1.1])


def test_every_run_is_a_point_and_medians_and_files_are_written() -> None:
    figure = FASTER.plot()
    title, change = figure.get_suptitle(), "1,095 → 3 files, 40 MiB → 38 MiB, 95 % as much"
    assert title.replace("\n", " ") == f"4.2 times as fast: 4.2 s → 1.0 s, {change}"
    assert str(figure.get_label()).endswith("The query is id < 3")
    seconds, files = figure.axes
    assert [np.shape(points.get_offsets()) for points in seconds.collections] == [(3, 2), (3, 2)]
    assert [text.get_text() for text in seconds.texts] == ["median 4.2 s", "median 1.0 s"]
    assert [text.get_text() for text in files.texts] == ["1,095 files, 40 MiB", "3 files, 38 MiB"]
    assert [label.get_text() for label in seconds.get_yticklabels()] == ["version 3", "version 4"]
    # A long query is cut in the figure, but not in the label for people who can't see it.
    figure = replace(FASTER, query="SELECT\n  count(*) " + "x" * 300).plot()
    assert figure.get_supxlabel().endswith("…")
    assert str(figure.get_label()).endswith("SELECT count(*) " + "x" * 300)


SAME = replace(FASTER, same_files=True, files_before=3)


@pytest.mark.parametrize(
    ("found", "finding"),
    [
        (comparison_of([1.04, 1.05, 1.06], [1.01, 1.02, 1.03]), "About as fast: "),
        (comparison_of([4.0, 4.2, 4.4], [4.1, 4.3, 3.0]), "Timings overlap: median 4.2 s → 4.1 s"),
        (comparison_of([4.0, 4.2], [1.0, 0.9]), "Too few runs to call: median 4.2 s → 1.0 s"),
        (SAME, "The same 3 files read at both versions"),
        (replace(SAME, files_before=0, files_after=0), "No file read"),
        (comparison_of([1.0, 1.1, 0.9], [2.0, 2.1, 1.9]), "2 times as slow: 1.0 s → 2.0 s"),
        (comparison_of([4.0] * 3, [1.0] * 3, same_result=False), "can't be compared"),
    ],
    ids=["little faster", "overlap", "two runs", "same files", "no file", "slower", "other rows"],
)
def test_times_are_a_finding_only_if_they_differ_clearly_for_the_same_rows(
    found: ReadComparison, finding: str
) -> None:
    assert finding in found.finding
    assert found.is_clear is ("slow" in finding or "fast" in finding or not found.same_result)
    assert found.same_result is ("NOT the same" not in found.facts()["rows that came out"])
