"""Lesson 09's lab: what a reader of a manifest gets, as files are listed and deleted."""

from collections import Counter
from collections.abc import Iterable
from itertools import product
from pathlib import Path

import deltalake
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from course import labs
from course.lab import run
from course.labs.manifest import read_manifest

from compaction_kit import interop, open_table
from compaction_kit.compaction import CompactionPlan
from compaction_kit.datasets import shaped_table
from compaction_kit.table import Table
from tests import folders
from tests.course.test_labs import move
from tests.interop import manifests


def plan_of(folder: Path) -> tuple[Table, CompactionPlan]:
    """Four commits over two partitions; in each of them, one of the seven files stays."""
    table = open_table(shaped_table(folder / "table", partitions=2, files=7, rows=300, commits=3))
    plan = table.plan_compaction(min_file_size="10 KiB", max_file_size="24 KiB", batch_size="24 KiB")
    assert (plan.num_batches, plan.num_files_removed) == (4, 12)
    return table, plan


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
def test_a_reader_gets_the_rows_that_the_lab_says(tmp_path: Path) -> None:
    table, plan = plan_of(tmp_path)
    plan.run(strategy="arrow", verify=False)
    rows = pa.table({"id": range(90_000, 90_050), "value": [0.5] * 50, "part": ["p0001"] * 50})
    deltalake.write_deltalake(table.path, rows, mode="append", schema_mode="merge")
    live = {table.path / path for path in folders.live(table.path)}
    live_ids = ids_in(live)
    for vacuumed in (False, True):
        # As after VACUUM without a retention.
        for file in folders.data_files(table.path) - live if vacuumed else ():
            file.unlink()
        for generated, by_hand in product(range(5), (False, True)):
            manifests.write_manifest(table.path, plan.version + generated)
            if by_hand:
                list_all(table.path)
            groups = read_manifest(plan, generated, 50, by_hand=by_hand, vacuumed=vacuumed)
            total, old, new, gone = (groups[name].to_numpy() for name in groups.column_names[1:])
            paths = [table.path / path for path in interop.read_manifest(table)["path"].to_pylist()]
            read = ids_in(path for path in paths if path.exists())
            assert (old + new).sum() == read.total()
            assert gone.sum() == interop.check_manifest(table).num_gone
            if not gone.any():
                assert np.minimum(old, new).sum() == (read - live_ids).total()
                assert (total - np.maximum(old, new)).sum() == (live_ids - read).total()


def test_what_moves_changes_who_is_read(tmp_path: Path) -> None:
    _, plan = plan_of(tmp_path)
    lab = labs.manifest(plan, generated=2)

    def told() -> str:
        assert lab.finding is not None, lab.failure.value
        figure = lab.finding.figure
        assert str(run(lab.finding.code, {"plan": plan}).get_label()) == figure.get_label()
        return f"{figure.get_label()}. {lab.finding.sentence}"

    assert told().startswith(
        "GENERATE after 2 of 4 batches: 100 rows missed. The table has 4,300 rows, and the"
    )
    move(lab, appended=0)
    assert "each row is read once. The table has 4,200 rows, and the reader gets 4,200. 1,800 of" in told()
    move(lab, then=("by_hand",))
    assert "1,800 rows read twice" in told()
    move(lab, then=("vacuumed",), appended=5_000)
    assert "6 files of the list gone, 6,800 rows missed" in told()
    assert "A reader fails at a missing file" in told()
    move(lab, generated=4, appended=0)
    assert told().endswith("each row is read once. The table has 4,200 rows, and the reader gets 4,200.")
