"""Figures over versions: lifetimes of files, bytes, readable versions, and what a vacuum deletes of them."""

from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from matplotlib.collections import PolyCollection
from matplotlib.patches import Rectangle

from compaction_kit import plots
from compaction_kit.history import Storage
from compaction_kit.text import MIB


def ledger_of(versions: pa.Array, num_files: pa.Array, is_compaction: pa.Array) -> pa.Table:
    """Make a history; each compaction removes 5 files, except in version 0."""
    columns = {"version": versions, "num_files": num_files, "num_small_files": num_files}
    columns["num_removed"] = pc.if_else(pc.and_(is_compaction, pc.greater(versions, 0)), 5, 0)
    columns["operation"] = pc.if_else(is_compaction, "OPTIMIZE", "WRITE")
    return pa.table(columns | {"data_change": pc.invert(is_compaction)})


@pytest.mark.parametrize(
    ("counts", "most", "last"),
    [
        ([3, 1_500, 2, 4], "1,500 live files", 4),
        ([None, 7, 2], "7 live files", 2),
        ([1, 1, 1], "1 live file", 1),
        ([], "0 live files", 0),
    ],
)
def test_the_history_figure_says_the_most_and_the_last_and_marks_compactions(
    counts: list[int | None], most: str, last: int
) -> None:
    """Versions that can't be read are left out."""
    versions = pa.array(range(len(counts)), pa.int64())
    figure = plots.history(ledger_of(versions, pa.array(counts, pa.int64()), pc.equal(versions, 2)))
    assert str(figure.get_label()) == f"Up to {most}, {last} now"
    assert [text.get_text() for text in figure.axes[0].texts] == ["OPTIMIZE\nversion 2"] * bool(counts)


def test_the_history_figure_names_as_many_compactions_as_have_room() -> None:
    versions = pa.array(range(0, 1_000, 2))
    (axis,) = plots.history(ledger_of(versions, versions, pa.array([True] * 500))).axes
    named = [int(text.get_text().rpartition(" ")[2]) for text in axis.texts]
    assert (named[0], len(named)) == (998, 5)
    assert min(newer - older for newer, older in pairwise(named)) >= 998 / 5
    # Version 0 removed nothing, so there are 499 marks; the numbers of files have two lines.
    assert len(axis.lines) == 2 + 499


OPERATIONS = {"version": [0, 1, 2], "operation": ["WRITE", "DELETE", "OPTIMIZE"]}
HISTORY = pa.table(OPERATIONS | {"num_files": [2, 2, 1]})


def lives_of(*lives: tuple[str, int, int | None]) -> pa.Table:
    schema = pa.schema({"path": pa.string(), "added": pa.int64(), "removed": pa.int64()})
    return pa.Table.from_pylist([dict(zip(schema.names, life, strict=True)) for life in lives], schema)


def legend_of(figure: plots.Chart) -> set[str]:
    return {text.get_text() for legend in figure.legends for text in legend.get_texts()}


TWICE = [*((f"{i}", 0, 1) for i in range(80)), *((f"{i}", 2, None) for i in range(80))]
LIVES = {
    "few": (0, [("a", 0, 1), ("b", 0, 2), ("c", 1, 2), ("d", 2, None)], 4, "changed, compacted, written"),
    "many": (0, [(f"f{i}", i % 2, 2) for i in range(100)], 2, "changed, written"),
    "trimmed": (1, [("a", 1, None), ("b", 2, None)], 2, "compacted, there before"),
    "alone": (0, [("a", 0, None)], 1, "written"),
    # A file that is added back keeps its row: the title and the axis count files.
    "back": (0, [("a", 0, 1), ("b", 0, None), ("c", 1, 2), ("a", 2, None)], 4, "changed, compacted, written"),
    "many back": (0, TWICE, 2, "compacted, written"),
}


@pytest.mark.parametrize(("first", "rows", "bars", "legend"), LIVES.values(), ids=LIVES)
def test_files_are_bars_coloured_by_what_added_them_and_many_with_the_same_life_share_one(
    first: int, rows: list[tuple[str, int, int | None]], bars: int, legend: str
) -> None:
    """The files with which a cleaned up log begins were there before."""
    history = HISTORY.slice(first) if len(rows) > 1 else HISTORY.slice(0, 1)
    figure = plots.lifetimes(lives_of(*rows), history, version=min(len(rows) - 1, 1))
    num_live = sum(removed is None for *_, removed in rows)
    num_files = len({path for path, *_ in rows})
    counts = f"{num_files} files in {3 - first} versions" if len(rows) > 1 else "1 file in 1 version"
    assert figure.get_suptitle() == f"{counts}, {num_live} live now"
    (axis,) = figure.axes
    assert sum(len(one.get_paths()) for one in axis.collections if isinstance(one, PolyCollection)) == bars
    assert axis.get_ylim() == (num_files, 0)
    assert ", ".join(sorted(legend_of(figure))) == legend


VERSIONS = pa.table(
    {"version": range(5), "readable": ["log gone", "missing files", "missing files", "blocked", "yes"]}
)


def test_storage_says_what_the_latest_version_takes_and_who_can_be_read() -> None:
    live, dead, gone = np.array([[4, 5, 6], [0, 2, 1], [0, 0, 3]]) * MIB
    columns = {"live_bytes": live, "tombstoned_bytes": dead, "gone_bytes": gone}
    figure = Storage(pa.table({"version": [2, 3, 4]} | columns), 7 * MIB).plot(VERSIONS)
    assert figure.get_suptitle() == "6 MiB live, 1 MiB tombstoned, 3 MiB gone, 7 MiB orphaned"
    assert "yes: 1, blocked: 1, missing files: 2, log gone: 1" in str(figure.get_label())
    sizes, strip = figure.axes
    assert [bar.get_height() for bar in sizes.patches if isinstance(bar, Rectangle)] == [7 * MIB]
    # Neighbouring versions of one kind share a box.
    boxes = [path.get_extents() for bars in strip.collections for path in bars.get_paths()]
    assert sorted((box.x0, box.width) for box in boxes) == [(-0.5, 1), (0.5, 2), (2.5, 1), (3.5, 1)]


@pytest.mark.filterwarnings("error")
def test_storage_of_one_empty_version_is_drawn() -> None:
    columns = {name: [0] for name in ("live_bytes", "tombstoned_bytes", "gone_bytes")}
    figure = Storage(pa.table({"version": [0]} | columns), 0).plot(VERSIONS[:1])
    assert figure.get_suptitle() == "0 B live, 0 B tombstoned"
    assert [label.get_text() for label in figure.axes[1].get_xticklabels()] == ["0"]


def test_the_strip_of_versions_says_how_many_can_be_read() -> None:
    figure = plots.readability(VERSIONS)
    assert figure.get_suptitle() == "1 of 5 versions can be read"
    assert legend_of(figure) == {"yes (1)", "blocked (1)", "missing files (2)", "log gone (1)"}
    assert figure.axes[0].get_xlim() == (-0.5, 4.5)


@pytest.mark.parametrize("count", [1, 2])
def test_no_tick_is_between_two_versions(count: int) -> None:
    versions = pa.table({"version": range(count), "readable": ["yes"] * count})
    lives = plots.lifetimes(lives_of(("a", 0, None)), HISTORY.slice(0, count))
    for figure in (plots.readability(versions), lives):
        axis = figure.axes[0]
        low, high = axis.get_xlim()
        ticks = [tick for tick in axis.get_xticks() if low <= tick <= high]
        assert ticks == list(range(count)), figure.get_suptitle()
    versions = pa.table({"version": range(99_990, 99_992 + count), "readable": ["yes"] * (count + 2)})
    axis = plots.readability(versions).axes[0]
    assert "99991" in [label.get_text() for label in axis.get_xticklabels()]


SIZES = {"size_bytes": [8 * MIB, 4 * MIB, 0], "size_bytes_after": [8 * MIB, MIB, 0]}
STORAGE = pa.table({"kind": ["live", "tombstoned", "orphaned"]} | SIZES)


def versions_of(readable: str, after: str) -> pa.Table:
    """Make versions from 3 on, by a letter for each: y for a version that can be read."""
    names = {"y": "yes", "b": "blocked", "m": "missing files"}
    numbers = range(3, 3 + len(readable))
    now, then = ([names[one] for one in codes] for codes in (readable, after))
    return pa.table({"version": numbers, "readable": now, "readable_after": then})


def test_a_vacuum_says_and_marks_what_is_lost_and_draws_nothing_of_what_is_not_there() -> None:
    figure = plots.vacuum(STORAGE, versions_of("byyyy", "bmyby"), "A finding")
    assert figure.get_suptitle() == "A finding"
    for words in ("4 versions can be read now, 2 after, 2 lost", "tombstoned 4 MiB now and 1 MiB after"):
        assert words in str(figure.get_label())
    upper, lower = figure.axes
    legends = [[text.get_text() for text in axis.get_legend().get_texts()] for axis in (upper, lower)]  # type: ignore[union-attr]
    assert legends == [["readable", "lost", "blocked"], ["live", "tombstoned"]]
    (lost,) = (bars for bars in upper.collections if bars.get_hatch() == "xxx")
    assert sorted(path.get_extents().x0 for path in lost.get_paths()) == [3.5, 5.5]
    assert [label.get_text() for label in lower.get_yticklabels()] == ["now", "after"]


def test_a_longer_finding_leaves_the_axes_of_a_vacuum_where_they_are() -> None:
    places = []
    for finding in ("A finding", "A finding that takes two lines " * 3):
        figure = plots.vacuum(STORAGE, versions_of("byyyy", "bmyby"), finding)
        figure.draw_without_rendering()
        places.append([axis.get_position().bounds for axis in figure.axes])
    assert places[0] == places[1]


def test_a_vacuum_of_one_version_and_of_very_many_is_drawn() -> None:
    for count in (1, 1_000):
        plots.vacuum(STORAGE.slice(0, 0), versions_of("y" * count, "y" * count), "A finding")
