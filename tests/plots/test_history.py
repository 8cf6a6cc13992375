"""Figures of a table's past: the files of each version, and their lives."""

import pyarrow as pa
from matplotlib.collections import PolyCollection

from compaction_kit import plots


def ledger(counts: list[int | None]) -> pa.Table:
    return pa.table(
        {
            "version": pa.array(range(len(counts)), pa.int64()),
            "num_files": pa.array(counts, pa.int64()),
            "num_small_files": pa.array(counts, pa.int64()),
            "data_change": pa.array([i != 2 for i in range(len(counts))], pa.bool_()),
            "num_removed": [5 * (i == 2) for i in range(len(counts))],
            "operation": ["OPTIMIZE" if i == 2 else "WRITE" for i in range(len(counts))],
        }
    )


def test_the_history_figure_says_the_most_and_the_last_and_marks_compactions() -> None:
    figure = plots.history(ledger([3, 1_500, 2, 4]))
    assert str(figure.get_label()) == "Up to 1,500 live files, 4 now"
    assert [text.get_text() for text in figure.axes[0].texts] == ["OPTIMIZE\nversion 2"]


def test_the_history_figure_leaves_out_versions_that_can_t_be_read() -> None:
    assert str(plots.history(ledger([None, 7, 2])).get_label()) == "Up to 7 live files, 2 now"
    assert str(plots.history(ledger([])).get_label()) == "Up to 0 live files, 0 now"


HISTORY = pa.table(
    {
        "version": [0, 1, 2],
        "operation": ["WRITE", "DELETE", "OPTIMIZE"],
        "num_files": pa.array([2, 2, 1], pa.int64()),
    }
)


def lives_of(*lives: tuple[str, int, int | None]) -> pa.Table:
    paths, added, removed = zip(*lives, strict=True) if lives else ([], [], [])
    return pa.table(
        {
            "path": pa.array(paths, pa.string()),
            "added": pa.array(added, pa.int64()),
            "removed": pa.array(removed, pa.int64()),
        }
    )


def legend_of(figure: plots.Chart) -> set[str]:
    return {text.get_text() for legend in figure.legends for text in legend.get_texts()}


def boxes_of(figure: plots.Chart) -> int:
    return sum(len(one.get_paths()) for one in figure.axes[0].collections if isinstance(one, PolyCollection))


def test_each_file_is_a_bar_coloured_by_what_added_it() -> None:
    lives = lives_of(("a", 0, 1), ("b", 0, 2), ("c", 1, 2), ("d", 2, None))
    figure = plots.lifetimes(lives, HISTORY, version=1)
    assert figure.get_suptitle() == "4 files in 3 versions, 1 live now"
    assert boxes_of(figure) == 4
    assert legend_of(figure) == {"written", "changed", "compacted"}
    assert plots.to_png(figure, dpi=50).startswith(b"\x89PNG")


def test_many_files_with_the_same_life_share_a_bar() -> None:
    figure = plots.lifetimes(lives_of(*((f"f{i}", i % 2, 2) for i in range(100))), HISTORY)
    assert boxes_of(figure) == 2
    assert figure.axes[0].get_ylim() == (100, 0)


def test_what_a_cleaned_up_log_begins_with_was_there_before() -> None:
    trimmed = HISTORY.slice(1)
    figure = plots.lifetimes(lives_of(("a", 1, None), ("b", 2, None)), trimmed)
    assert legend_of(figure) == {"there before", "compacted"}
