"""Manifests that Delta itself writes, and what is read through them."""

from collections.abc import Callable
from pathlib import Path

import deltalake
import pyarrow as pa
import pytest
from pyspark.errors import UnsupportedOperationException
from pyspark.sql import SparkSession

from compaction_kit import interop, open_table
from compaction_kit.compat import create_frame
from compaction_kit.errors import RunCancelled, RunFailedError, UnsupportedTableError
from compaction_kit.execute import Progress
from compaction_kit.sql import table_name
from compaction_kit.table import Table
from compaction_kit.verify import Fingerprint, fingerprint
from tests import folders
from tests.interop import manifests

pytestmark = pytest.mark.spark

CopyOf = Callable[[Path], Path]
ODD = ["a b", "x:y", "ü", "a%20b", "[#?]{y}", None]
GENERATE = "GENERATE symlink_format_manifest FOR TABLE"


def rows_of(table: Table) -> Fingerprint:
    return fingerprint(table.spark.read.format("delta").load(str(table.path)))


def rows_through(table: Table) -> Fingerprint:
    return fingerprint(interop.read_through_manifest(table))


def live(table: Table) -> list[str]:
    return table.files().to_arrow()["path"].to_pylist()


def run_first_batch(table: Table, batch_size: str) -> Callable[[], object]:
    """Run a plan of several commits up to the first; what is returned does the rest."""
    plan = table.plan_compaction(batch_size=batch_size)
    assert plan.num_batches > 2

    def stop(_: Progress) -> None:
        if table.version > plan.version:
            raise InterruptedError

    with pytest.raises(RunCancelled, match=r"1 of \d batches are committed"):
        plan.run(strategy="arrow", progress=stop)
    return lambda: table.plan_compaction(batch_size=batch_size).run(strategy="arrow", verify=False)


def test_odd_and_null_partitions_are_listed_and_read_as_delta_does(
    spark: SparkSession, tmp_path: Path
) -> None:
    path = tmp_path / "odd [1] table"
    rows = [(i, value) for i, value in enumerate(ODD)]
    # From Arrow, so that no Python worker has to start.
    frame = create_frame(spark, pa.table({"id": range(len(ODD)), "p": ODD}))
    frame.coalesce(1).write.format("delta").partitionBy("p").save(str(path))
    table = open_table(path)
    interop.generate_manifest(table)
    by_delta = manifests.read(path)
    found = interop.check_manifest(table)
    assert found.matches
    assert found.partitions.num_rows == len(ODD)
    read = interop.read_through_manifest(table)
    assert {(row.id, row.p) for row in read.collect()} == set(rows)
    # The tests' own manifests are as Delta's.
    manifests.write_manifest(path)
    assert manifests.read(path) == by_delta


def test_a_manifest_between_two_batches_freezes_a_version_until_its_files_are_deleted(
    spark: SparkSession, changed: Path
) -> None:
    table = open_table(changed)
    before = rows_of(table)
    go_on = run_first_batch(table, "1 B")
    interop.generate_manifest(table)
    between = table.version
    assert interop.check_manifest(table).matches
    go_on()
    assert table.version > between

    frozen = interop.check_manifest(table)
    assert (frozen.version, frozen.latest, frozen.kept) == (between, table.version, False)
    assert (frozen.matches, frozen.same_rows, frozen.num_gone) == (False, True, 0)
    assert frozen.count("listed, not live") > frozen.count("live, not listed") > 0
    assert f"version {between}, and the table is at version {table.version}" in frozen.explain()
    # Old files, the same rows: the bug doesn't show yet.
    assert rows_through(table) == before

    # As VACUUM does.
    for path in folders.data_files(changed) - set(map(changed.joinpath, live(table))):
        path.unlink()
    broken = interop.check_manifest(table)
    assert broken.num_gone == broken.count("listed, not live") == frozen.count("listed, not live")
    assert not broken.same_rows
    with pytest.raises(RunFailedError, match=f"{broken.num_gone} listed files missing"):
        interop.read_through_manifest(table)

    interop.generate_manifest(table)
    assert interop.check_manifest(table).matches


@pytest.mark.works("local disk", "manifests")
def test_a_kept_manifest_follows_every_batch_of_optimize(spark: SparkSession, changed: Path) -> None:
    table = open_table(changed)
    manifests.write_manifest(changed, 1)
    interop.keep_manifest(table)
    # The property alone would have left the partitions that no commit touches as they were.
    assert interop.check_manifest(table).matches
    plan = table.plan_compaction(where="part <> 'p0002'", batch_size="1 B")
    result = plan.run(strategy="optimize", verify=False)
    assert len(result.versions) == plan.num_batches == 2
    found = interop.check_manifest(table)
    assert found.matches
    assert found.kept
    interop.keep_manifest(table, False)
    assert not interop.check_manifest(table).kept


def test_what_is_frozen_between_batches_misses_what_is_written_later(
    spark: SparkSession, tmp_path: Path
) -> None:
    def append(start: int) -> None:
        rows = pa.table({"id": range(start, start + 10)})
        deltalake.write_deltalake(tmp_path / "t", rows, mode="append")

    for start in (0, 10, 20):
        append(start)
    table = open_table(tmp_path / "t")
    interop.generate_manifest(table)
    append(30)
    deltalake.DeltaTable(tmp_path / "t").delete("id = 3")
    found = interop.check_manifest(table)
    assert (found.version, found.damage.twice) == (2, 0)
    # 10 appended, and 9 of the file that is now another; the 10 of the old one are still read.
    assert (found.damage.missed, found.damage.outdated) == (19, 10)
    read = {row.id for row in interop.read_through_manifest(table).collect()}
    assert read == set(range(30))


def test_deletion_vectors_are_refused_as_delta_refuses_them(spark: SparkSession, lived: Path) -> None:
    table = open_table(lived)
    with pytest.raises(UnsupportedOperationException, match="GENERATE_WITH_DELETION_VECTORS"):
        spark.sql(f"{GENERATE} {table_name(spark, lived)}")
    for act in (interop.generate_manifest, interop.keep_manifest):
        with pytest.raises(
            UnsupportedTableError, match=r"deletion vectors.*run REORG TABLE … APPLY"
        ) as caught:
            act(table)
        assert "\n" not in str(caught.value)


def test_column_mapping_is_refused_before_later_commits_fail_on_it(
    spark: SparkSession, tmp_path: Path
) -> None:
    name = table_name(spark, tmp_path)
    spark.sql(
        f"CREATE TABLE {name} (id LONG) USING delta TBLPROPERTIES ('delta.columnMapping.mode' = 'name')"
    )
    table = open_table(tmp_path)
    for act in (interop.generate_manifest, interop.keep_manifest):
        with pytest.raises(UnsupportedTableError, match="has column mapping"):
            act(table)
    # What Delta itself does: takes the property, commits, and fails after that.
    spark.sql(f"ALTER TABLE {name} SET TBLPROPERTIES ('{interop.manifest.PROPERTY}' = 'true')")
    with pytest.raises(UnsupportedOperationException, match="MANIFEST_GENERATION_WITH_COLUMN_MAPPING"):
        spark.range(3).write.format("delta").mode("append").save(str(tmp_path))
    assert table.version == 2
    assert table.files().num_files > 0
