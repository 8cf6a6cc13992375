"""Figures of versions: bytes, which can be read, and what a vacuum costs and frees of both."""

import numpy as np
import pyarrow as pa
import pytest
from matplotlib.axes import Axes
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
    boxes = [path.get_extents() for bars in axis.collections for path in bars.get_paths()]
    return sorted((box.x0, box.width) for box in boxes)


def legend_of(figure: plots.Chart) -> set[str]:
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


def test_strips_of_several_states_are_on_one_scale() -> None:
    after = pa.table({"version": range(5), "readable": ["log gone"] * 5})
    figure = plots.readability({"before": VERSIONS, "after": after})
    assert figure.get_suptitle() == "Versions that can be read, before: 1, after: 0"
    assert legend_of(figure) == {
        "yes (1 → 0)",
        "blocked (1 → 0)",
        "missing files (2 → 0)",
        "log gone (1 → 5)",
    }
    before, later = figure.axes
    assert before.get_xlim() == later.get_xlim() == (-0.5, 4.5)
    assert plots.to_png(figure, dpi=50).startswith(b"\x89PNG")


STORAGE = pa.table(
    {
        "kind": ["live", "tombstoned", "orphaned"],
        "size_bytes": [8 * MIB, 4 * MIB, 0],
        "size_bytes_after": [8 * MIB, MIB, 0],
    }
)


def versions_of(readable: str, after: str) -> pa.Table:
    """Versions from 3 on: y for one that can be read."""
    names = {"y": "yes", "b": "blocked", "m": "missing files"}
    return pa.table(
        {
            "version": range(3, 3 + len(readable)),
            "readable": [names[one] for one in readable],
            "readable_after": [names[one] for one in after],
        }
    )


def test_the_words_count_versions_and_bytes() -> None:
    figure = plots.vacuum(STORAGE, versions_of("byyyy", "bmyby"), "A finding")
    assert figure.get_suptitle() == "A finding"
    assert str(figure.get_label()) == (
        "A finding. 4 versions can be read now, 2 after, 2 are lost. Stored: live 8 MiB now and 8 MiB after, "
        "tombstoned 4 MiB now and 1 MiB after, orphaned 0 B now and 0 B after"
    )


def test_lost_versions_are_marked_by_colour_and_hatch_and_nothing_is_drawn_of_what_is_not_there() -> None:
    figure = plots.vacuum(STORAGE, versions_of("yyy", "myy"), "A finding")
    upper, lower = figure.axes
    legends = [[text.get_text() for text in axis.get_legend().get_texts()] for axis in (upper, lower)]  # type: ignore[union-attr]
    assert legends == [["readable", "lost"], ["live", "tombstoned"]]
    (lost,) = (bars for bars in upper.collections if bars.get_hatch())
    (path,) = lost.get_paths()
    assert (path.get_extents().x0, path.get_extents().x1) == (2.5, 3.5)
    assert [label.get_text() for label in lower.get_yticklabels()] == ["now", "after"]


@pytest.mark.parametrize("count", [1, 1_000])
def test_any_number_of_versions_is_drawn(count: int) -> None:
    figure = plots.vacuum(STORAGE.slice(0, 0), versions_of("y" * count, "y" * count), "A finding")
    assert plots.to_png(figure, dpi=40).startswith(b"\x89PNG")
