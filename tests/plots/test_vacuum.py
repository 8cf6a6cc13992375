"""The figure of a vacuum tells what it costs and frees, in words too."""

import pyarrow as pa
import pytest

from compaction_kit import plots
from compaction_kit.text import MIB

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
