"""Lesson 09's lab: what a reader of a manifest gets, as Delta, GENERATE and VACUUM leave it."""

from collections import Counter
from pathlib import Path

import deltalake
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from course import labs
from course.lab import run
from course.labs.manifest import read_manifest
from pyspark.sql import SparkSession

from compaction_kit import interop, open_table
from compaction_kit.compaction import CompactionPlan
from compaction_kit.datasets import shaped_table
from compaction_kit.errors import RunCancelled
from compaction_kit.execute import Progress
from compaction_kit.sql import table_name
from compaction_kit.table import Table
from tests import folders
from tests.conftest import SetConf
from tests.interop import manifests


def plan_small(table: Table) -> CompactionPlan:
    """Plan the files that no run has compacted yet."""
    return table.plan_compaction(min_file_size="10 KiB", max_file_size="24 KiB", batch_size="24 KiB")


def plan_of(folder: Path) -> tuple[Table, CompactionPlan]:
    """Four commits over two partitions; in each of them, one of the seven files stays."""
    table = open_table(shaped_table(folder / "table", partitions=2, files=7, rows=300, commits=3))
    plan = plan_small(table)
    assert (plan.num_batches, plan.num_files_removed) == (4, 12)
    return table, plan


def ids_in(paths: list[Path]) -> Counter[int]:
    return Counter(row for path in paths for row in pq.ParquetFile(path).read(["id"])["id"].to_pylist())


def run_batches(table: Table, plan: CompactionPlan, number: int) -> None:
    """Commit some of a plan's batches."""

    def stop(_: Progress) -> None:
        if table.version >= plan.version + number:
            raise InterruptedError

    with pytest.raises(RunCancelled):
        plan.run(strategy="arrow", progress=stop, verify=False)
    assert table.version == plan.version + number


@pytest.mark.spark
@pytest.mark.parametrize(
    "generated", [2, *(pytest.param(number, marks=pytest.mark.nightly) for number in (0, 4))]
)
def test_a_reader_gets_the_rows_that_the_lab_says(
    spark: SparkSession, tmp_path: Path, confs: SetConf, generated: int
) -> None:
    table, plan = plan_of(tmp_path)
    if 0 < generated < 4:
        run_batches(table, plan, generated)
    if generated < 4:
        interop.generate_manifest(table)
    plan_small(table).run(strategy="arrow", verify=False)
    if generated == 4:
        interop.generate_manifest(table)
    rows = pa.table({"id": range(90_000, 90_050), "value": [0.5] * 50, "part": ["p0001"] * 50})
    deltalake.write_deltalake(table.path, rows, mode="append", schema_mode="merge")

    def compare(**later: bool) -> None:
        """The rows that are read, of files that are there."""
        reading, check = read_manifest(plan, generated, 50, **later), interop.check_manifest(table)
        assert reading.num_gone == check.num_gone
        paths = [table.path / path for path in interop.read_manifest(table)["path"].to_pylist()]
        there = [path for path in paths if path.exists()]
        read = ids_in(there)
        assert reading.num_rows == read.total()
        if not check.num_gone:
            live = ids_in([table.path / path for path in folders.live(table.path)])
            assert (reading.twice, reading.missed) == ((read - live).total(), (live - read).total())

    compare()
    listed = interop.read_manifest(table)["path"].to_pylist()
    for path in folders.live(table.path).difference(listed):
        lines = (table.path / "_symlink_format_manifest" / path).parent / "manifest"
        lines.write_text(f"{lines.read_text()}file:{table.path}/{path}\n")
    compare(by_hand=True)
    confs("spark.databricks.delta.retentionDurationCheck.enabled", "false")
    spark.sql(f"VACUUM {table_name(spark, table.path)} RETAIN 0 HOURS").collect()
    compare(by_hand=True, vacuumed=True)
    manifests.write_manifest(table.path, plan.version + generated)
    compare(vacuumed=True)


def test_what_moves_changes_who_is_read(tmp_path: Path) -> None:
    _, plan = plan_of(tmp_path)
    lab = labs.manifest(plan, generated=2)

    def told() -> str:
        assert lab.finding is not None, lab.failure.value
        figure = lab.finding.figure
        assert str(run(lab.as_code(), {"plan": plan}).get_label()) == figure.get_label()
        return f"{figure.get_label()}. {lab.finding.sentence}"

    assert told().startswith(
        "GENERATE after 2 of 4 batches: 100 rows missed. The table has 4,300 rows, and the"
    )
    lab.move(appended=0)
    assert "each row is read once. The table has 4,200 rows, and the reader gets 4,200. 1,800 of" in told()
    lab.move(then=("by_hand",))
    assert "1,800 rows read twice" in told()
    lab.move(then=("vacuumed",), appended=5_000)
    assert "6 files of the list gone, 6,800 rows missed" in told()
    assert "A reader fails at a missing file" in told()
    lab.move(generated=4, appended=0)
    assert told().endswith("each row is read once. The table has 4,200 rows, and the reader gets 4,200.")
