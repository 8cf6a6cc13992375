"""Plans by the size of added files."""

from pathlib import Path

import numpy as np
import pytest

from compaction_kit import datasets, open_table
from compaction_kit.errors import InvalidArgumentError
from compaction_kit.text import parse_size
from tests.handmade import actions_of


@pytest.mark.spark
@pytest.mark.parametrize(
    ("partitions", "files", "rows", "skew", "size"),
    [
        # A table that shrinks 3.9 times, and one that hardly shrinks.
        (1, 500, 20, 0.0, "64 KiB"),
        (4, 50, 300, 0.5, "64 KiB"),
        pytest.param(2, 300, 5_000, 1.0, "512 KiB", marks=pytest.mark.nightly),
    ],
)
def test_a_second_plan_finds_nothing_to_do(
    partitions: int, files: int, rows: int, skew: float, size: str, tmp_path: Path
) -> None:
    folder = tmp_path / "table"
    datasets.shaped_table(folder, partitions=partitions, files=files, rows=rows, skew=skew, commits=4)
    plan = open_table(folder).plan_compaction(output_file_size=size)
    result = plan.run(strategy="arrow", verify=False)
    assert result.as_planned
    again = open_table(folder).plan_compaction(output_file_size=size)
    assert again.is_empty, again.explain()
    sizes = np.array([action["size"] for action in actions_of(folder, result.versions[0], "add")])
    # No output is much larger, and only the last of each partition is smaller than half.
    limit = parse_size(size)
    assert sizes.max() < 1.1 * limit
    assert np.sum(sizes < limit / 2) <= plan.num_partitions


def test_a_bin_is_larger_by_as_much_as_the_data_shrinks(flights: Path) -> None:
    table = open_table(flights)
    plan = table.plan_compaction(output_file_size="512 KiB")
    limits = plan.thresholds
    assert limits.output_file_size == 2 * limits.min_file_size == 512 * 1024
    assert 3 < limits.max_file_size / (512 * 1024) < 3.6
    assert "bins of at most 1.7 MiB (files of about 512 KiB)" in plan.explain()
    assert "Bins are about 3.3 times as large as the new files" in plan.explain()
    # The median bin is nearly full; only the last bin of each partition isn't.
    assert 0.8 * 512 * 1024 < np.median(plan.bins["bytes_added"].to_numpy()) <= 512 * 1024
    by_bin = table.plan_compaction(max_file_size="512 KiB")
    assert by_bin.num_files_added >= 3 * plan.num_files_added
    # With these two sizes, OPTIMIZE makes the same bins.
    same = table.plan_compaction(min_file_size="256 KiB", max_file_size=limits.max_file_size)
    assert same.files.equals(plan.files)


def test_max_file_size_is_the_target_if_no_bin_is_full_or_in_another_order(flights: Path) -> None:
    table = open_table(flights)
    for order, size in (("size", "128 MiB"), ("ingest", "512 KiB")):
        limits = table.plan_compaction(output_file_size=size, order=order).thresholds
        assert limits.max_file_size == limits.output_file_size == parse_size(size)
    # Other layouts don't depend on the order of the plan.
    plans = [table.plan_compaction(output_file_size="512 KiB", order=order) for order in ("size", "ingest")]
    first, second = (plan.compare("distance").layouts for plan in plans)
    assert first.equals(second)
    assert plans[1].in_order("size").thresholds == plans[0].thresholds != plans[1].thresholds
    with pytest.raises(InvalidArgumentError, match="give one of them"):
        table.plan_compaction(output_file_size="1 MiB", max_file_size="2 MiB")
    with pytest.raises(InvalidArgumentError, match="output_file_size"):
        table.plan_compaction(output_file_size="big")
