"""The figure of reads says what was found, and shows every run."""

from dataclasses import replace

import numpy as np
import pyarrow as pa

from compaction_kit import plots
from compaction_kit.reads import ReadComparison


def comparison_of(before: list[float], after: list[float], same_result: bool = True) -> ReadComparison:
    runs = [(3, i, s) for i, s in enumerate(before)] + [(4, i, s) for i, s in enumerate(after)]
    versions, repeats, seconds = zip(*runs, strict=True)
    return ReadComparison(
        query="id < 3",
        versions=(3, 4),
        seconds_before=sorted(before)[len(before) // 2],
        seconds_after=sorted(after)[len(after) // 2],
        files_before=1_095,
        files_after=3,
        bytes_before=40 << 20,
        bytes_after=38 << 20,
        runs=pa.table({"version": versions, "repeat": repeats, "seconds": seconds}),
        same_files=False,
        same_result=same_result,
    )


FASTER = comparison_of([4.0, 4.2, 4.4], [1.0, 0.9, 1.1])


def test_the_title_is_the_finding() -> None:
    figure = FASTER.plot()
    assert figure.get_suptitle() == "4.2 times as fast: 4.2 s → 1.0 s, 1,095 → 3 files"
    assert str(figure.get_label()).endswith("The query is id < 3")
    assert plots.to_png(figure, dpi=50).startswith(b"\x89PNG")


def test_every_run_is_a_point_and_medians_and_files_are_told() -> None:
    seconds, files = FASTER.plot().axes
    assert [np.shape(points.get_offsets()) for points in seconds.collections] == [(3, 2), (3, 2)]
    assert [text.get_text() for text in seconds.texts] == ["median 4.2 s", "median 1.0 s"]
    assert [text.get_text() for text in files.texts] == ["1,095 files, 40 MiB", "3 files, 38 MiB"]
    assert [label.get_text() for label in seconds.get_yticklabels()] == ["version 3", "version 4"]


def test_a_long_query_is_cut_in_the_figure_alone() -> None:
    query = "SELECT\n  count(*) " + "x" * 300
    figure = replace(FASTER, query=query).plot()
    assert figure.get_supxlabel().endswith("…")
    assert "x" * 300 in str(figure.get_label())
    assert "\n" not in str(figure.get_label())


def test_runs_that_overlap_are_no_clear_difference() -> None:
    assert comparison_of([4.0, 4.2, 4.4], [4.1, 4.3, 3.0]).finding.startswith(
        "No clear difference: 4.2 s → 4.1 s"
    )


def test_times_of_the_same_files_and_of_fewer_than_three_runs_are_no_finding() -> None:
    same = replace(FASTER, same_files=True, files_before=3)
    assert not same.is_clear
    assert same.finding.startswith("The same 3 files read at both versions")
    assert same.finding.endswith("4.2 s → 1.0 s")
    assert "No file read" in replace(same, files_before=0, files_after=0).finding
    assert comparison_of([4.0, 4.2], [1.0, 0.9]).finding.startswith("No clear difference")


def test_a_slower_read_says_so() -> None:
    slower = comparison_of([1.0, 1.1, 0.9], [2.0, 2.1, 1.9])
    assert slower.finding.startswith("2.0 times as slow: 1.0 s → 2.0 s")
    assert slower.speedup == 0.5


def test_other_rows_are_no_comparison_of_times() -> None:
    other = comparison_of([4.0] * 3, [1.0] * 3, same_result=False)
    assert "can't be compared" in other.finding
    assert "NOT the same" in other.facts()["rows that came out"]
