"""The figures of clustered tables say what they show."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from matplotlib.patches import Rectangle

from compaction_kit import open_table, plots
from compaction_kit.plan.clustering import CUBES
from compaction_kit.text import GIB, MIB
from tests import handmade


def cubes(*rows: tuple[str | None, int, str, bool]) -> Any:
    """Return a plan's cubes from id, size in MiB, state, and whether it is rewritten; each has one file."""
    return CUBES.empty_table().from_pylist(
        [
            {"cube_id": name, "num_files": 1, "size_bytes": size * MIB, "logical_bytes": size * MIB}
            | {"state": state, "is_rewritten": is_rewritten}
            for name, size, state, is_rewritten in rows
        ],
        CUBES,
    )


def test_the_cubes_figure_says_what_is_new_what_is_rewritten_and_what_stays() -> None:
    new, partial = (None, 1, "new", True), ("a", 3, "partial cube", True)
    complete = ("b", 9, "complete cube", False)
    figure = plots.cubes(cubes(partial, new, complete), 8 * MIB)
    assert str(figure.get_label()) == "1 MiB is new, 4 MiB is rewritten, 9 MiB stays"
    for rows, finding in (((new,), "All 1 MiB is new and rewritten"), ((complete,), "All 9 MiB stays")):
        assert str(plots.cubes(cubes(*rows), MIB).get_label()) == finding
    (axis,) = figure.axes
    assert [label.get_text() for label in axis.get_yticklabels()] == ["no cube yet", "cube b", "cube a"]
    widths = [bar.get_width() for bar in axis.patches if isinstance(bar, Rectangle)]
    assert widths == [1 * MIB, 9 * MIB, 3 * MIB]
    assert [np.asarray(line.get_xdata()).tolist() for line in axis.lines] == [[8 * MIB, 8 * MIB]]
    # A limit that is far away is not drawn as a line, but named.
    (axis,) = plots.cubes(cubes(new, partial), 100 * GIB).axes
    assert not axis.lines
    assert "complete from 100 GiB →" in [text.get_text() for text in axis.texts]
    assert axis.get_xlim()[1] < 16 * MIB
    many = cubes(*((f"{i}", i + 1, "complete cube", False) for i in range(30)))
    assert "(the largest 20 of 30 are shown)" in str(plots.cubes(many, MIB).get_label())


def test_a_purge_of_a_clustered_table_draws_what_it_leaves_alone(tmp_path: Path) -> None:
    clean, marked = (handmade.write_data(tmp_path, name, pa.table({"id": [1, 2]})) for name in "cm")
    marked["add"]["deletionVector"] = handmade.vector("v")
    purge = open_table(
        handmade.write_log(tmp_path, [*handmade.clustered_by("id"), clean, marked])
    ).plan_purge()
    assert purge.cubes.select(["state", "num_files"]).to_pylist() == [
        {"state": state, "num_files": 1} for state in ("nothing to purge", "new")
    ]
    size = purge.bytes_removed
    assert str(purge.plot_cubes().get_label()) == f"{size} B is new and rewritten, {size} B stays"


def add(name: str, low: Any, high: Any, cube: str | None = None) -> handmade.Action:
    action = handmade.add(name, bounds=None if low is None else ({"a": low}, {"a": high}))
    if cube:
        action["add"]["tags"] = {"ZCUBE_ID": cube, "ZCUBE_ZORDER_BY": '["a"]'}
    return action


@pytest.mark.parametrize(
    ("kind", "values", "ticks"),
    [
        ("long", (0, 10, 1_000_000), ["0", "333,333", "666,667", "1,000,000"]),
        ("double", (0.0, 0.25, 3.0), ["0", "1", "2", "3"]),
        ("integer", (2_020, 2_021, 2_022), ["2,020", "2,021", "2,022"]),
        ("double", (-1.7e308, 0.5, 1.7e308), ["-1.7e+308", "0.5", "1.7e+308"]),
        ("string", ("a", "b", "z"), ["a", "b", "z"]),
        (
            "timestamp",
            ("2026-01-01T00:00:00.000Z", "2026-01-01T01:00:00.000Z", "2026-01-04T00:00:00.000Z"),
            [f"2026-01-0{day} 00:00" for day in (1, 2, 3, 4)],
        ),
        (
            "timestamp",
            ("0001-01-01T00:00:00.000Z", "2026-01-01T00:00:00.000Z", "9999-12-31T23:59:59.000-08:00"),
            ["0001-01-01 00:00", "3334-01-01 02:39", "6667-01-01 05:19", "…000-01-01 07:59"],
        ),
    ],
)
def test_extents_are_drawn_between_the_values_that_bound_files(
    tmp_path: Path, kind: str, values: tuple[Any, ...], ticks: list[str]
) -> None:
    low, middle, high = values
    adds = [add("x", low, middle), add("y", middle, high), add("z", None, None)]
    files = open_table(handmade.write_log(tmp_path, [handmade.metadata({"a": kind}), *adds])).files()
    figure = files.plot_extents("a")
    finding = "A value of a is in 2.5 of 3 files, on average; 1 file without bounds is not drawn"
    assert str(figure.get_label()) == finding
    (axis,) = figure.axes
    assert [label.get_text() for label in axis.get_xticklabels()] == ticks
    paths = [path.get_extents() for bars in axis.collections for path in bars.get_paths()]
    # The file without bounds has no bar; the second bar begins where the first one ends.
    assert len(paths) == 2
    width = np.ptp(axis.get_xlim())
    assert abs(paths[0].x1 - paths[1].x0) < 0.02 * width
    assert paths[1].width > 0.4 * width


@pytest.mark.filterwarnings("error")
def test_the_extent_of_one_value_is_seen(tmp_path: Path) -> None:
    adds = [add(name, *["2026-01-01T00:00:00.000Z"] * 2) for name in "xy"]
    table = handmade.write_log(tmp_path, [handmade.metadata({"a": "timestamp"}), *adds])
    (axis,) = open_table(table).files().plot_extents("a").axes
    bars = [path.get_extents() for bars in axis.collections for path in bars.get_paths()]
    assert [bar.width for bar in bars] == [np.ptp(axis.get_xlim())] * 2
    assert [label.get_text() for label in axis.get_xticklabels()] == ["2026-01-01 00:00"]


def test_extents_before_and_after_are_on_one_scale(tmp_path: Path) -> None:
    before = [add("x", 0, 50), add("y", 10, 100)]
    after = [handmade.remove("x"), handmade.remove("y"), add("v", 0, 40, "1"), add("w", 41, 120, "1")]
    columns = handmade.metadata({"a": "long"})
    table = open_table(handmade.write_log(tmp_path, [columns, *before], after))
    figure = table.files(0).plot_extents("a", table.files())
    finding = "A value of a is in 1.5 of 2 files before, in 1 of 2 files after, on average"
    assert str(figure.get_label()) == finding
    left, right = figure.axes
    assert left.get_xlim() == right.get_xlim()
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["in a cube", "in no cube yet"]


def test_extents_of_nothing_and_of_very_many_files_are_drawn(tmp_path: Path) -> None:
    columns = handmade.metadata({"a": "long"})
    table = handmade.write_log(tmp_path / "unknown", [columns, add("x", None, None)])
    figure = open_table(table).files().plot_extents("a")
    finding = "A value of a is in 1 of 1 file, on average; 1 file without bounds is not drawn"
    assert str(figure.get_label()) == finding
    assert plots.to_png(figure)
    many = [add(f"f{i}", i, i) for i in range(500)]
    figure = open_table(handmade.write_log(tmp_path / "many", [columns, *many])).files().plot_extents("a")
    assert "400 of 500 files are drawn" in [text.get_text() for text in figure.axes[0].texts]
