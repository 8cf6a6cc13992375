"""The table that a page lists tables and versions in."""

from typing import Any

import pytest

from compaction_kit.widgets.fields import Grid

ROWS: list[Any] = [
    [["9", 9], ["WRITE", "WRITE"], ["+10", 10]],
    [["8", 8], ["OPTIMIZE", "OPTIMIZE"], ["", None]],
    [["7", 7], ["write", "write"], ["−3", -3]],
    [["6", 6], ["DELETE", "DELETE"], ["+10", 10]],
]


def grid_of(rows: list[Any], page_size: int = 50) -> Grid:
    grid = Grid("Versions", ["version", "operation", "rows"], lambda _: None, page_size=page_size)
    grid.all_rows = rows
    return grid


def names(grid: Grid) -> list[int]:
    return [row[0][1] for row in grid.rows]


@pytest.mark.parametrize(
    ("state", "expected"),
    [
        ({}, [9, 8, 7, 6]),
        ({"order": [0, 1]}, [6, 7, 8, 9]),
        # Equal ones stay in their order, and what has no value is last.
        ({"order": [2, -1]}, [9, 6, 7, 8]),
        ({"order": [2, 1]}, [7, 9, 6, 8]),
        # Capital letters don't count.
        ({"order": [1, 1]}, [6, 8, 9, 7]),
        ({"words": "write"}, [9, 7]),
        ({"words": "DEL 6"}, [6]),
        ({"words": "6 optimize"}, []),
        ({"words": "+10"}, [9, 6]),
    ],
)
def test_rows_are_sorted_by_a_column_and_are_those_with_all_the_words(
    state: dict[str, Any], expected: list[int]
) -> None:
    grid = grid_of(ROWS)
    grid.set_state(state)
    assert (names(grid), grid.counts) == (expected, [len(expected), 4])


def test_a_page_is_in_the_browser_and_turned_to_the_row_that_is_chosen() -> None:
    rows: list[Any] = [[[str(n), n], ["WRITE", "WRITE"], ["", None]] for n in range(10_000)]
    grid = grid_of(rows, 50)
    assert (names(grid), grid.counts) == ([*range(50)], [10_000, 10_000])
    grid.set_state({"first": 50})
    assert names(grid) == [*range(50, 100)]
    grid.chosen = 9_980
    assert (grid.first, names(grid)) == (9_950, [*range(9_950, 10_000)])
    # What is found begins at its first page, and a choice that isn't among it turns no page.
    grid.set_state({"words": "77"})
    assert (grid.first, names(grid)[:2]) == (0, [77, 177])
    grid.chosen = 3
    assert grid.first == 0
    assert grid.still().count("<tr>") == 51


def test_rows_that_are_gone_are_ticked_no_more_and_the_same_rows_keep_their_page() -> None:
    grid = grid_of(ROWS, 2)
    grid.set_state({"ticked": [9, 6], "first": 2})
    grid.all_rows = [list(row) for row in ROWS]
    assert (grid.first, grid.ticked) == (2, [9, 6])
    grid.all_rows = ROWS[1:]
    assert (grid.first, grid.ticked, names(grid)) == (0, [6], [8, 7])
