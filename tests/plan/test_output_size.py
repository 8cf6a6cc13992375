"""Plans by the size of added files."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from compaction_kit import datasets, open_table
from compaction_kit.errors import InvalidArgumentError
from compaction_kit.text import parse_size
from tests.conftest import CopyOf
from tests.handmade import actions_of

Make = Callable[[Path], object]


def shaped(partitions: int, files: int, rows: int, skew: float) -> Make:
    return lambda folder: datasets.shaped_table(
        folder, partitions=partitions, files=files, rows=rows, skew=skew, commits=4
    )


# A table that shrinks 3.9 times, one that hardly shrinks, then more of both.
BY_DAY = [(shaped(1, 500, 20, 0), "64 KiB"), (shaped(4, 50, 300, 0.5), "64 KiB")]
BY_NIGHT = [
    (shaped(1, 200, 50, 0), "24 KiB"),
    (shaped(1, 200, 50, 0), "64 KiB"),
    (shaped(3, 60, 500, 1.0), "64 KiB"),
    (shaped(3, 60, 500, 1.0), "512 KiB"),
    (shaped(5, 40, 2_000, 2.0), "512 KiB"),
    (shaped(2, 300, 5_000, 1.0), "512 KiB"),
]


def compact_twice(folder: Path, size: str) -> None:
    plan = open_table(folder).plan_compaction(output_file_size=size)
    result = plan.run(strategy="arrow", verify=False)
    assert result.as_planned
    again = open_table(folder).plan_compaction(output_file_size=size)
    assert again.is_empty, again.explain()
    sizes = np.array([action["size"] for action in actions_of(folder, result.versions[0], "add")])
    # Not larger, and at least half as large, except the last bin of each partition.
    limit = parse_size(size)
    assert sizes.max() < 1.1 * limit
    assert np.sum(sizes < limit / 2) <= plan.num_partitions


@pytest.mark.spark
@pytest.mark.parametrize(
    ("make", "size"), [*BY_DAY, *(pytest.param(*shape, marks=pytest.mark.nightly) for shape in BY_NIGHT)]
)
def test_a_second_plan_finds_nothing_to_do(make: Make, size: str, tmp_path: Path) -> None:
    make(tmp_path / "table")
    compact_twice(tmp_path / "table", size)


@pytest.mark.spark
@pytest.mark.nightly
@pytest.mark.parametrize("size", ["1 MiB", "256 KiB", "100 KiB"])
def test_a_second_plan_finds_nothing_to_do_on_the_flights(copy_of: CopyOf, flights: Path, size: str) -> None:
    compact_twice(copy_of(flights), size)


def test_a_bin_is_larger_by_as_much_as_the_data_shrinks(flights: Path) -> None:
    table = open_table(flights)
    plan = table.plan_compaction(output_file_size="512 KiB")
    limits = plan.thresholds
    assert limits.output_file_size == 2 * limits.min_file_size == 512 * 1024
    assert 3 < limits.max_file_size / (512 * 1024) < 3.6
    assert "bins of at most 1.7 MiB (files of about 512 KiB)" in plan.explain()
    assert "shrinks about 3.3 times" in plan.explain()
    # Half of the bins are full: all but the last one of each partition, and rounding.
    assert 0.8 * 512 * 1024 < np.median(plan.bins["bytes_added"].to_numpy()) <= 512 * 1024
    by_bin = table.plan_compaction(max_file_size="512 KiB")
    assert by_bin.num_files_added >= 3 * plan.num_files_added
    # OPTIMIZE takes these sizes for the same bins.
    same = table.plan_compaction(min_file_size="256 KiB", max_file_size=limits.max_file_size)
    assert same.files.equals(plan.files)


def test_where_no_bin_is_full_and_in_another_order_it_is_the_target_size(flights: Path) -> None:
    table = open_table(flights)
    for order, size in (("size", "128 MiB"), ("ingest", "512 KiB")):
        plan = table.plan_compaction(output_file_size=size, order=order)
        assert (plan.thresholds.max_file_size, plan.thresholds.output_file_size) == (parse_size(size), None)
        assert "shrinks" not in plan.explain()


def test_a_bin_is_limited_by_one_size(flights: Path) -> None:
    with pytest.raises(InvalidArgumentError, match="give one of them"):
        open_table(flights).plan_compaction(output_file_size="1 MiB", max_file_size="2 MiB")
    with pytest.raises(InvalidArgumentError, match="output_file_size"):
        open_table(flights).plan_compaction(output_file_size="big")
