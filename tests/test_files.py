import time
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import deltalake
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from compaction_kit import errors, open_table
from compaction_kit.file_stats import Histogram
from compaction_kit.skipping import measure_overlap, read_bounds
from tests import handmade
from tests.refusals import refused

DAY = 86_400_000
SIZES = st.lists(st.integers(0, 2**45), max_size=50)


@given(SIZES)
def test_a_histogram_holds_every_file_and_every_byte(sizes: list[int]) -> None:
    histogram = Histogram.of(np.array(sizes, np.int64))
    assert histogram.num_files.sum() == len(sizes)
    assert histogram.size_bytes.sum() == sum(sizes)
    assert len(histogram.edges) == len(histogram.num_files) + 1
    for i, (low, high) in enumerate(zip(histogram.edges[:-1], histogram.edges[1:], strict=True)):
        assert high == 2 * low
        inside = [size for size in sizes if low <= max(size, 1) < high]
        assert histogram.num_files[i] == len(inside)
        assert histogram.size_bytes[i] == sum(inside)


def test_files_are_what_the_deltalake_package_sees(shaped: Path) -> None:
    """The tests in tests/log compare the files of random logs with Delta's."""
    adds = pa.table(deltalake.DeltaTable(str(shaped)).get_add_actions(flatten=True))
    names = ["path", "size_bytes", "modification_time", "num_records", "partition.part"]
    expected = adds.select(names).sort_by("path").to_pylist()
    for file in expected:
        file["modification_time"] = datetime.fromtimestamp(file["modification_time"] / 1000, UTC)
    assert open_table(shaped).files().to_arrow().select(names).sort_by("path").to_pylist() == expected


def test_stats_tell_small_files_skew_and_what_the_log_costs(tmp_path: Path) -> None:
    metadata = handmade.metadata({"id": "long", "p": "string"}, ["p"])
    adds = [handmade.add(f"f{i}", i + 1, {"p": "x" if i < 9 else None}) for i in range(10)]
    table = handmade.write_log(tmp_path, [metadata, *adds], [handmade.add("g", 99, {"p": "y"})])
    files = open_table(table).files()
    stats = files.stats("5 B")
    assert (stats.num_files, stats.size_bytes, stats.small_file_size) == (11, 154, 5)
    # Small files are strictly below the size.
    assert (stats.num_small_files, stats.small_bytes) == (4, 10)
    assert (stats.num_partitions, stats.skew) == (3, 9 / (11 / 3))
    assert stats.num_commits == 2
    assert stats.log_bytes == sum(file.stat().st_size for file in (table / "_delta_log").iterdir())
    assert files.by_partition(5).to_pydict() == {
        "partition.p": ["x", "y", None],
        "num_files": [9, 1, 1],
        "size_bytes": [45, 99, 10],
        "num_small_files": [4, 0, 0],
    }
    assert [*stats.facts().values()][:6] == [
        "11 in 3 partitions; the partition with the most has 2.5 times the average",
        *("154 B", "4 files (10 B in total)", "1 B", "6 B", "99 B"),
    ]
    assert str(files.plot(5).get_label()) == "4 of 11 files are under 5 B"
    for size in ("none", 0):
        refused(partial(files.stats, size), errors.InvalidArgumentError, "small_file_size")
    refused(partial(files.overlap, "p"), errors.InvalidArgumentError, 'column="p" is not a data column')


def test_stats_keep_tombstoned_and_reclaimable_bytes_apart(tmp_path: Path) -> None:
    now = int(time.time() * 1000)
    removes = [handmade.remove("old", now - 7 * DAY), handmade.remove("young", now - 6 * DAY)]
    removes += [handmade.remove("live", now), handmade.remove("undated", None)]
    # A file has a tombstone for each of its deletion vectors.
    removes.append(handmade.remove("young", now - 8 * DAY, vector=handmade.vector("w")))
    for remove, size in zip(removes, (100, 5_000, 1, 1_000, 5_000), strict=True):
        remove["remove"]["size"] = size
    features = handmade.protocol(features=["deletionVectors"])
    again = handmade.add("live", 1, vector=handmade.vector("v"))
    table = handmade.write_log(tmp_path, [features, handmade.add("live", 1)], [*removes, again])
    stats = open_table(table).files().stats()
    assert (stats.num_tombstones, stats.tombstoned_bytes, stats.reclaimable_bytes) == (3, 6_100, 1_100)
    assert stats.facts()["tombstones"] == "3 files (6.0 KiB in total), 1.1 KiB past the retention"


def test_the_table_may_say_which_files_are_small(tmp_path: Path) -> None:
    metadata = handmade.metadata(configuration={"delta.targetFileSize": "100"})
    files = open_table(handmade.write_log(tmp_path, [metadata, handmade.add("a", 49)])).files()
    assert (files.stats().small_file_size, files.stats().num_small_files) == (50, 1)
    assert files.stats().facts()["files"] == "1 in 1 partition"


def _ranged(path: str, low: object, high: object) -> handmade.Action:
    return handmade.add(path, bounds=({"c": low}, {"c": high}))


@given(st.lists(st.tuples(st.integers(-50, 50), st.integers(0, 30)), max_size=15))
def test_overlap_counts_the_files_that_hold_each_bound(ranges: list[tuple[int, int]]) -> None:
    bounds = [(low, low + length) for low, length in ranges]
    stats = pa.array([_ranged("f", *one)["add"]["stats"] for one in bounds], pa.string())
    overlap = measure_overlap("c", read_bounds("c", "long", "c", stats))
    points = [point for one in bounds for point in one]
    counted = sorted(sum(low <= point <= high for low, high in bounds) for point in points)
    assert sorted(overlap.depths.tolist()) == counted
    assert overlap.max == max(counted, default=0)
    assert f", {np.median(counted or [0]):,.0f} in the median, " in str(overlap)


NUMBERS: list[tuple[object, object]] = [(0.5, 2.5), (2.25, 9.0), (4.0, 5.0)]
TIMES = [("01-01T00:00:00.000", "01-02T00:00:00.000"), ("01-01T23:00:00.000", "01-09T00:00:00")]
TIMES += [("01-05T00:00:00.000", "01-06T00:00:00.000")]


@pytest.mark.parametrize(
    ("kind", "bounds"),
    [
        ("string", [("a", "m"), ("k", "z"), ("n", "n")]),
        ("date", [("2024-01-01", "2024-02-01"), ("2024-01-31", "2024-03-01"), ("2024-02-15", "2024-02-16")]),
        *((kind, NUMBERS) for kind in ("float", "double", "decimal(9,2)")),
        *((kind, [(0, 3), (2, 9), (4, 5)]) for kind in ("byte", "short", "integer", "long")),
        ("timestamp", [(f"2024-{low}Z", f"2024-{high}Z") for low, high in TIMES]),
        ("timestamp_ntz", [(f"2024-{low}", f"2024-{high}") for low, high in TIMES]),
    ],
)
def test_overlap_compares_by_the_type_of_the_column(
    tmp_path: Path, kind: str, bounds: list[tuple[object, object]]
) -> None:
    adds = [_ranged(f"f{i}", *one) for i, one in enumerate(bounds)]
    adds.append(_ranged("unlike a value", bounds[0][0], 5 if kind in ("string", "date") else "NaN"))
    table = handmade.write_log(tmp_path, [handmade.metadata({"c": kind}), *adds, handmade.add("unknown")])
    overlap = open_table(table).files().overlap("c")
    assert (overlap.num_files, overlap.num_unknown, overlap.max) == (5, 2, 4)
    assert overlap.facts()["files"] == "5, 2 of them without bounds"
    assert sorted(overlap.depths.tolist()) == [3, 3, 4, 4, 4, 4]


@pytest.mark.parametrize("kind", ["long", "decimal(9,0)"])
def test_the_bounds_of_many_files_are_those_of_each_file(kind: str) -> None:
    """Stats of one file that aren't numbers change nothing for the other files."""
    lows = [number * 7_919 % 5_003 for number in range(5_000)]
    # The stats are so long that they aren't all parsed at once.
    other = f'{{"d": "{"x" * 2_000}", '
    stats = [_ranged("f", low, low + 1)["add"]["stats"].replace("{", other, 1) for low in lows]
    odd = {7: None, 2_500: "{", 2_501: _ranged("f", "?", 5)["add"]["stats"], 4_999: stats[4_999] + "\n"}
    texts = [odd.get(number, text) for number, text in enumerate(stats)]
    bounds = read_bounds("c", kind, "c", pa.array(texts, pa.string()))
    assert np.flatnonzero(~bounds.known).tolist() == [7, 2_500, 2_501]
    known = [low for number, low in enumerate(lows) if number not in (7, 2_500, 2_501)]
    assert bounds.values[bounds.lows[bounds.known]].tolist() == known
    assert bounds.values[bounds.highs[bounds.known]].tolist() == [low + 1 for low in known]
