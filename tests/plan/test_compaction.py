"""Plans from logs written by hand; tests/execute compares plans with OPTIMIZE."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from compaction_kit.compaction import CompactionPlan
from compaction_kit.files import Files
from compaction_kit.handle import Handle
from compaction_kit.log import TransactionLog
from compaction_kit.plan import Planner, Thresholds
from compaction_kit.plan.explain import bin_names
from compaction_kit.plan.thresholds import thresholds
from tests import handmade

MIB = 1024 * 1024


def files_of(table: Path, *actions: handmade.Action, **columns: str) -> Files:
    """Return the files of a table with these actions, partitioned by `columns` (name=type)."""
    metadata = handmade.metadata({"id": "long", **columns}, list(columns))
    return Files(TransactionLog(handmade.write_log(table, [metadata, *actions])).snapshot())


def planned(files: Files, limits: Thresholds) -> CompactionPlan:
    return CompactionPlan.of(Planner(files), limits, handle=Handle("table", files.snapshot.store))


def plan_of(files: Files, minimum: int = 100, maximum: int = 100, ratio: float = 0.05) -> CompactionPlan:
    return planned(files, Thresholds(minimum, maximum, ratio))


def members(plan: CompactionPlan) -> list[list[str]]:
    rows = plan.files.to_pylist()
    return [[row["path"] for row in rows if row["bin_id"] == bin_id] for bin_id in range(plan.num_bins)]


def test_bins_and_files_have_the_documented_columns_and_are_of_one_partition(tmp_path: Path) -> None:
    found = [("x", 10, "1", 3), ("z", 20, "2", None), ("y", 20, "1", 4), ("w", 30, "2", 4), ("v", 30, "3", 4)]
    adds = [
        handmade.add(path, size, {"p": p, "q": None if p == "1" else "b"}, records)
        for path, size, p, records in found
    ]
    plan = plan_of(files_of(tmp_path, *adds, p="integer", q="string"))
    assert plan.bins.to_pydict() == {
        "bin_id": [0, 1],
        "num_files": [2, 2],
        "size_bytes": [30, 50],
        "num_records": [7, None],
        "partition.p": ["1", "2"],
        "partition.q": [None, "b"],
        "num_deletion_vectors": [0, 0],
        "num_files_added": [1, 1],
        "bytes_added": [30, 50],
        "gain": [4 * MIB, 4 * MIB],
        "batch_id": [0, 0],
    }
    assert plan.files.to_pydict() == {
        "path": ["x", "y", "z", "w"],
        "size_bytes": [10, 20, 20, 30],
        "bin_id": [0, 0, 1, 1],
    }
    assert (plan.num_bins, plan.num_partitions, plan.bytes_removed) == (2, 2, 80)
    assert (plan.num_files_removed, plan.num_files_added, plan.num_files_after) == (4, 2, 3)
    assert sorted(plan.sizes_after) == [30, 30, 50]


def test_min_file_size_is_exclusive_and_max_file_size_is_inclusive(tmp_path: Path) -> None:
    files = files_of(tmp_path, *(handmade.add(f"f{size}", size) for size in (40, 60, 99, 100, 101)))
    assert members(plan_of(files, 100, 100)) == [["f40", "f60"]]
    assert members(plan_of(files, 101, 199)) == [["f40", "f60", "f99"]]
    assert members(plan_of(files, 101, 198)) == [["f40", "f60"]]
    assert members(plan_of(files, 61, 1_000)) == [["f40", "f60"]]


@pytest.mark.parametrize(
    ("records", "deleted", "ratio", "chosen"),
    [
        (100, 5, 0.05, True),  # in doubles 1 - 95/100 is above 0.05
        (100, 4, 0.05, False),
        (100, 10, 0.1, False),
        (100, 11, 0.1, True),
        (100, 50, 0.5, False),
        (None, 1, 0.99, True),  # a vector and no statistics
    ],
)
def test_large_files_with_many_deleted_rows_are_rewritten(
    tmp_path: Path, records: int | None, deleted: int, ratio: float, chosen: bool
) -> None:
    adds = [
        handmade.add(name, size, records=records, vector=handmade.vector(f"0rJu{name}", deleted))
        for name, size in (("a", 500), ("b", 501))
    ]
    files = files_of(tmp_path, *adds, handmade.add("c", 502, records=100))
    expected = [["a", "b"]] if chosen else []
    assert members(plan_of(files, 100, 10_000, ratio)) == expected


@pytest.mark.parametrize(("records", "is_exact"), [(3, True), (None, False)])
def test_files_that_are_not_counted_are_taken_to_have_rows(
    tmp_path: Path, records: int | None, is_exact: bool
) -> None:
    """The number of outputs is uncertain if no file of a bin has a row count."""
    uncounted = handmade.add("b", 10, records=None, vector=handmade.vector("0rJua", 9))
    plan = plan_of(files_of(tmp_path, handmade.add("a", 10, records=records), uncounted))
    assert (plan.num_bins, plan.num_files_added, plan.exact.num_files_added) == (1, 1, is_exact)


@pytest.mark.parametrize(
    ("sizes", "sentence"),
    [
        ([500, 600], "No file is under 100 B, so there is nothing to do."),
        ([10, 500], "Only one file is under 100 B, so there is nothing to do."),
        ([60, 61], "Each of the 2 files under 100 B would be alone in its bin"),
        ([10, 20, 80, 90, 10], "\n3 files (40 B in total) become 1 file (about 40 B)."),
        ([60, 61, 40, 30], "2 files aren't rewritten, because each would be alone in a bin."),
    ],
    ids=str,
)
def test_a_plan_explains_itself(tmp_path: Path, sizes: list[int], sentence: str) -> None:
    plan = plan_of(files_of(tmp_path, *(handmade.add(f"f{i}", size) for i, size in enumerate(sizes))))
    assert sentence in plan.explain()
    assert sentence in plan.summary()


def test_bins_are_named_by_their_partitions_with_null_as_in_sql(tmp_path: Path) -> None:
    partitions = [{"p": p, "q.r": "1"} for p in (None, "", "None", "b", "b")]
    adds = [handmade.add(f"{i}{j}", 40 + j, p) for i, p in enumerate(partitions) for j in range(2)]
    plan = plan_of(files_of(tmp_path, *adds, **{"p": "string", "q.r": "integer"}))
    assert "5 bins of at most 100 B in 4 partitions, up to 2 in each, smallest" in plan.explain()
    assert bin_names(plan) == [
        *["p IS NULL, q.r=1, bin 1 of 1"] * 2,
        "p=None, q.r=1, bin 1 of 1",
        *[f"p=b, q.r=1, bin {number} of 2" for number in (1, 2)],
    ]


def test_a_plan_draws_itself_and_can_be_stored_as_json(tmp_path: Path) -> None:
    plan = plan_of(files_of(tmp_path, handmade.add("a", 10), handmade.add("b", 20)))
    label = "2 → 1 file, 30 B → about 30 B. 2 files in 1 bin of at most 100 B"
    assert f'aria-label="{label}"' in plan._repr_html_()
    stored = json.loads(json.dumps(plan.to_dict()))
    assert (stored["version"], stored["order"], stored["budget"]) == (0, "size", None)
    assert (stored["files"], stored["bins"]) == (plan.files.to_pylist(), plan.bins.to_pylist())


def test_every_file_has_a_reason_and_an_outcome(tmp_path: Path) -> None:
    files = files_of(
        tmp_path,
        handmade.add("large", 500),
        handmade.add("much deleted", 501, vector=handmade.vector("0rJua", 9)),
        handmade.add("b", 20),
        handmade.add("a", 10),
        handmade.add("nearly", 99),
    )
    plan = plan_of(files)
    steps = plan.steps.to_pylist()
    assert [(row["path"], row["reason"], row["outcome"], row["bin_id"]) for row in steps] == [
        ("a", "small", "packed", 0),
        ("b", "small", "packed", 0),
        ("nearly", "small", "alone", None),
        ("large", "large", "large", None),
        ("much deleted", "deleted rows", "alone", None),
    ]
    assert ", 3 under 100 B and 1 more with many deleted rows.\n" in plan.explain()
    assert "2 files aren't rewritten, because each would be alone" in plan.explain()


def test_ties_inside_a_bin_leave_nothing_open_and_ties_at_its_edge_do(tmp_path: Path) -> None:
    inside = plan_of(files_of(tmp_path / "in", *(handmade.add(name, 40) for name in "ab"))).exact
    assert inside.members
    assert "not certain" not in str(inside)
    edge = plan_of(files_of(tmp_path / "edge", *(handmade.add(name, 40) for name in "abcd")))
    exact = edge.exact
    assert (edge.num_bins, exact.members) == (2, False)
    assert (exact.sums, exact.num_files_added, exact.commits) == (True, True, True)
    assert "not certain: which of equal-sized files go into which bin" in str(exact)


def test_a_batch_that_leaves_no_row_is_not_committed_and_a_bin_beside_others_adds_no_file(
    tmp_path: Path,
) -> None:
    no_rows = [handmade.add("a", 10, {"p": "1"}, records=0)]
    no_rows.append(handmade.add("b", 10, {"p": "1"}, vector=handmade.vector("0rJua", 10)))
    plan = plan_of(files_of(tmp_path / "alone", *no_rows, p="integer"))
    assert plan.is_empty
    assert "All rows of the files that share a bin are deleted" in plan.explain()
    assert {row["outcome"] for row in plan.steps.to_pylist()} == {"no rows"}
    assert (plan.num_files_removed, plan.num_files_added, plan.num_files_after) == (0, 0, 2)
    # OPTIMIZE's result row counts these files nevertheless.
    counts = [plan.metrics[name] for name in ("numBins", "numFilesRemoved", "numFilesAdded")]
    assert counts == [1, 2, 0]
    rows = (handmade.add(name, 10, {"p": "2"}) for name in "cd")
    files = files_of(tmp_path / "beside", *no_rows, *rows, p="integer")
    plan = plan_of(files)
    assert (plan.num_bins, plan.num_files_removed, plan.num_files_added) == (2, 4, 1)
    plan = planned(files, replace(plan.thresholds, batch_size=20))
    assert (plan.num_bins, plan.batches.num_rows, plan.num_batches) == (1, 1, 2)
    assert "2 files stay, because no row is left in them" in plan.explain()
    assert "into 1 commit of at most 20 B" in plan.explain()


def test_outputs_are_split_at_the_maximum_of_rows_that_spark_writes(tmp_path: Path) -> None:
    files = files_of(tmp_path, handmade.add("a", 10, records=70), handmade.add("b", 20, records=80))
    plan = planned(files, Thresholds(100, 100, max_records_per_file=40))
    assert (plan.num_bins, plan.num_files_added, len(plan.sizes_after)) == (1, 4, 4)
    assert plan.gain == 0
    # For Spark 0 or less means no limit.
    limits = thresholds({"spark.sql.files.maxRecordsPerFile": "-1"}.get)
    assert planned(files, limits).num_files_added == 1
    files = files_of(tmp_path / "3", *(handmade.add(name, 10, records=50) for name in "abc"))
    assert planned(files, Thresholds(100, 100, max_records_per_file=80)).gain == 4 * MIB


def test_batches_take_the_smallest_bins_first_and_equal_ones_are_said_to_be_open(tmp_path: Path) -> None:
    sizes = {"x": (30, 31), "y": (10, 11), "z": (20, 21)}
    adds = [handmade.add(f"{p}{size}", size, {"p": p}) for p, pair in sizes.items() for size in pair]
    files = files_of(tmp_path / "different", *adds, p="string")
    plan = planned(files, Thresholds(100, 100, batch_size=62))
    assert plan.bins["batch_id"].to_pylist() == [1, 0, 0]
    assert plan.batches.to_pydict() == {
        "batch_id": [0, 1],
        "num_bins": [2, 1],
        "num_files": [4, 2],
        "size_bytes": [62, 61],
        "num_deletion_vectors": [0, 0],
        "num_files_added": [2, 1],
    }
    assert (
        "into 2 commits of at most 62 B, smallest bins first; a larger bin has its own commit."
        in plan.explain()
    )
    assert (plan.num_batches, plan.exact.commits) == (2, True)
    equal = [handmade.add(f"{p}{i}", 10 + i, {"p": p}) for p in "xy" for i in range(2)]
    files = files_of(tmp_path / "equal", *equal, p="string")
    plan = planned(files, Thresholds(100, 100, batch_size=25))
    assert (plan.num_batches, plan.exact.commits) == (2, False)
