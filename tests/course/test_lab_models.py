"""The models of lessons 08 and 09; tests/sinklog/test_policy.py shows that Spark does as projected."""

import os
from collections import Counter
from collections.abc import Iterable
from datetime import timedelta
from itertools import product
from pathlib import Path

import deltalake
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from course import labs
from course.labs.manifest import read_manifest
from course.labs.sink_log import NEEDED, REMOVED, log_files

from compaction_kit import interop, open_table, sink_log
from compaction_kit.compaction import CompactionPlan
from compaction_kit.datasets import shaped_table
from compaction_kit.sinklog.policy import Policy
from compaction_kit.times import millis
from tests import folders
from tests.course.test_labs import follow
from tests.interop import manifests
from tests.sinklog.streams import make_log, names_after


@pytest.mark.parametrize(("interval", "retained", "delay"), [(3, 2, 0), (4, 5, 0), (3, 2, 7)])
def test_files_are_left_as_a_projection_says(
    tmp_path: Path, interval: int, retained: int, delay: int
) -> None:
    policy = Policy(interval, retained, timedelta(minutes=delay))
    folder = make_log(tmp_path / "_spark_metadata", b0="v1")
    # The first of the batches to come is written when the log is read.
    began = millis(sink_log(folder).read_at) / 1_000 - 60
    os.utime(folder / "0", (began, began))
    log = sink_log(folder, policy=policy)
    projected = log.project(30, seconds_between=60)
    for batch in range(1, 30):
        states = {row["name"]: row["state"] for row in log_files(policy, batch).to_pylist()}
        left = [name for name, state in states.items() if state != REMOVED]
        assert left == names_after(log, projected, batch), batch
        last = max(done for done in range(-1, batch + 1) if (done + 1) % interval == 0)
        needed = [*([f"{last}.compact"] if last >= 0 else []), *map(str, range(last + 1, batch + 1))]
        assert [name for name, state in states.items() if state == NEEDED] == needed, batch
    assert REMOVED in states.values()


@pytest.fixture
def plan(tmp_path: Path) -> CompactionPlan:
    """Four batches over two partitions; in each of them, one of the seven files stays."""
    table = open_table(shaped_table(tmp_path / "table", partitions=2, files=7, rows=300, commits=3))
    made = table.plan_compaction(min_file_size="10 KiB", max_file_size="24 KiB", batch_size="24 KiB")
    assert (made.num_batches, made.num_files_removed) == (4, 12)
    return made


def ids_in(paths: Iterable[Path]) -> Counter[int]:
    return Counter(row for path in paths for row in pq.ParquetFile(path).read(["id"])["id"].to_pylist())


def list_all(table: Path) -> None:
    """Add the live files that a manifest doesn't list, by hand."""
    listed = interop.read_manifest(open_table(table))["path"].to_pylist()
    for path in folders.live(table).difference(listed):
        lines = (table / "_symlink_format_manifest" / path).parent / "manifest"
        lines.write_text(f"{lines.read_text()}file:{table}/{path}\n")


@pytest.mark.spark
@pytest.mark.usefixtures("spark")
def test_a_reader_gets_the_rows_that_the_lab_says(tmp_path: Path, plan: CompactionPlan) -> None:
    plan.run(strategy="arrow", verify=False)
    path = tmp_path / "table"
    rows = pa.table({"id": range(90_000, 90_050), "value": [0.5] * 50, "part": ["p0001"] * 50})
    deltalake.write_deltalake(path, rows, mode="append", schema_mode="merge")
    live = {path / name for name in folders.live(path)}
    live_ids = ids_in(live)
    for vacuumed in (False, True):
        # As after VACUUM without a retention.
        for file in folders.data_files(path) - live if vacuumed else ():
            file.unlink()
        for generated, by_hand in product(range(5), (False, True)):
            manifests.write_manifest(path, plan.version + generated)
            if by_hand:
                list_all(path)
            groups = read_manifest(plan, generated, 50, by_hand=by_hand, vacuumed=vacuumed)
            total, old, new, gone = (groups[name].to_numpy() for name in groups.column_names[1:])
            table = open_table(path)
            listed = [path / name for name in interop.read_manifest(table)["path"].to_pylist()]
            read = ids_in(file for file in listed if file.exists())
            assert (old + new).sum() == read.total()
            assert gone.sum() == interop.check_manifest(table).num_gone
            if not gone.any():
                assert np.minimum(old, new).sum() == (read - live_ids).total()
                assert (total - np.maximum(old, new)).sum() == (live_ids - read).total()


def test_what_moves_changes_who_is_read(plan: CompactionPlan) -> None:
    follow(
        labs.manifest(plan),
        ({"generated": 2}, "GENERATE after 2 of 4 batches: 100 rows missed", "The table has 4,300 rows, and"),
        ({"appended": 0}, "each row is read once", "has 4,200 rows, and the reader gets 4,200. 1,800 of"),
        ({"then": ("by_hand",)}, "1,800 rows read twice"),
        ({"then": ("vacuumed",)}, "A reader fails at a missing file"),
        ({"appended": 5_000}, "6 files of the list gone, 6,800 rows missed"),
        ({"generated": 4, "appended": 0}, "the reader gets 4,200. GENERATE after 4", "each row is read once"),
        names={"plan": plan},
    )
