"""Figures of versions: bytes, readability, and the lives of files."""

import numpy as np
import pyarrow as pa
from matplotlib.axes import Axes
from matplotlib.collections import PolyCollection
from matplotlib.patches import Rectangle

from compaction_kit import plots
from compaction_kit.history import Storage
from compaction_kit.text import MIB

VERSIONS = pa.table(
    {"version": range(5), "readable": ["log gone", "missing files", "missing files", "blocked", "yes"]}
)


def storage_of(orphaned: int = 0) -> Storage:
    live, dead, gone = [4, 5, 6], [0, 2, 1], [0, 0, 3]
    columns = {
        name: np.array(sizes) * MIB
        for name, sizes in (("live_bytes", live), ("tombstoned_bytes", dead), ("gone_bytes", gone))
    }
    return Storage(pa.table({"version": [2, 3, 4], **columns}), orphaned * MIB)


def strip_of(axis: Axes) -> list[tuple[float, float]]:
    patches = [patch for patch in axis.patches if isinstance(patch, Rectangle)]
    return [(patch.get_x(), patch.get_width()) for patch in patches]


def words_of(figure: plots.Chart) -> set[str]:
    return {text.get_text() for legend in figure.legends for text in legend.get_texts()}


def test_storage_says_what_the_latest_version_takes_and_who_can_be_read() -> None:
    figure = storage_of(7).plot(VERSIONS)
    assert figure.get_suptitle() == "6 MiB live, 1 MiB tombstoned, 3 MiB gone, 7 MiB orphaned"
    assert "yes: 1, blocked: 1, missing files: 2, log gone: 1" in str(figure.get_label())
    sizes, strip = figure.axes
    assert [bar.get_height() for bar in sizes.patches if isinstance(bar, Rectangle)] == [7 * MIB]
    # Neighbours of one kind are one.
    assert strip_of(strip) == [(-0.5, 1), (0.5, 2), (2.5, 1), (3.5, 1)]
    assert plots.to_png(figure, dpi=50).startswith(b"\x89PNG")


def test_storage_without_orphans_has_no_bar_for_them() -> None:
    figure = storage_of().plot(VERSIONS)
    assert figure.get_suptitle() == "6 MiB live, 1 MiB tombstoned, 3 MiB gone"
    assert not figure.axes[0].patches


def test_strips_of_several_states_are_on_one_scale() -> None:
    after = pa.table({"version": range(5), "readable": ["log gone"] * 5})
    figure = plots.readability({"before": VERSIONS, "after": after})
    assert figure.get_suptitle() == "Versions that can be read, before: 1, after: 0"
    assert words_of(figure) == {"yes (1 → 0)", "blocked (1 → 0)", "missing files (2 → 0)", "log gone (1 → 5)"}
    before, later = figure.axes
    assert before.get_xlim() == later.get_xlim() == (-0.5, 4.5)
    assert plots.to_png(figure, dpi=50).startswith(b"\x89PNG")


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


def boxes_of(figure: plots.Chart) -> int:
    return sum(len(one.get_paths()) for one in figure.axes[0].collections if isinstance(one, PolyCollection))


def test_each_file_is_a_bar_coloured_by_what_added_it() -> None:
    lives = lives_of(("a", 0, 1), ("b", 0, 2), ("c", 1, 2), ("d", 2, None))
    figure = plots.lifetimes(lives, HISTORY, version=1)
    assert figure.get_suptitle() == "4 files in 3 versions, 1 live now"
    assert boxes_of(figure) == 4
    assert words_of(figure) == {"written", "changed", "compacted"}
    assert plots.to_png(figure, dpi=50).startswith(b"\x89PNG")


def test_many_files_with_the_same_life_share_a_bar() -> None:
    figure = plots.lifetimes(lives_of(*((f"f{i}", i % 2, 2) for i in range(100))), HISTORY)
    assert boxes_of(figure) == 2
    assert figure.axes[0].get_ylim() == (100, 0)


def test_what_a_cleaned_up_log_begins_with_was_there_before() -> None:
    trimmed = HISTORY.slice(1)
    figure = plots.lifetimes(lives_of(("a", 1, None), ("b", 2, None)), trimmed)
    assert words_of(figure) == {"there before", "compacted"}


def test_a_table_without_files_has_a_figure_that_says_so() -> None:
    assert plots.lifetimes(lives_of(), HISTORY).get_suptitle() == "No version has a file"
