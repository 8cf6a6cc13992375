import _thread
import json
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from compaction_kit import errors, open_table
from compaction_kit.datasets import shaped_table
from compaction_kit.execute.commits import restore
from compaction_kit.execute.delta import commit_restore
from compaction_kit.execute.work import Progress
from compaction_kit.history import restore as restoring
from compaction_kit.retention import GUARD
from tests import folders, handmade
from tests.ageing import age, age_file
from tests.chance import nightly
from tests.conftest import CopyOf, SetConf
from tests.handmade import add, remove
from tests.refusals import refused
from tests.releases import HAS_GUARD

pytestmark = pytest.mark.usefixtures("spark")


def committed(table: Path, version: int) -> list[str]:
    """Return the actions of a commit, sorted and without the fields that differ each time."""

    def constant(name: str, fields: dict[str, Any]) -> dict[str, Any]:
        left = {key: value for key, value in fields.items() if key not in ("timestamp", "txnId")}
        return {name: left | {"deletionTimestamp": 0, "userMetadata": None}}

    actions = map(json.loads, handmade.commit_path(table, version).read_text().splitlines())
    return sorted(json.dumps(constant(*one), sort_keys=True) for action in actions for one in action.items())


@pytest.mark.works("local disk", "restore")
@pytest.mark.parametrize("target", [1, *(pytest.param(one, marks=pytest.mark.nightly) for one in (0, 3))])
def test_a_restore_is_refused_while_the_guard_blocks_it_and_commits_what_delta_s_does(
    spark: SparkSession, copy_of: CopyOf, lived: Path, confs: SetConf, tmp_path: Path, target: int
) -> None:
    table = copy_of(lived)
    for version in range(target + 1):
        age_file(handmade.commit_path(table, version), 10)
    other = folders.copy(table, tmp_path / "other")
    before = folders.listing(table)
    plan = open_table(table, spark).plan_restore(target)
    if HAS_GUARD:
        assert plan.is_blocked
        refused(plan.run, errors.InvalidArgumentError, "Delta blocks versions older than")
        confs(GUARD, "false")
        plan = open_table(table, spark).plan_restore(target)
    assert folders.listing(table) == before
    result = plan.run()
    assert (result.version, result.restored, result.as_planned) == (5, target, True)
    assert (result.num_files_added, result.bytes_added) == (plan.diff.num_files_added, plan.diff.bytes_added)
    for kind, change in (("add", "added"), ("remove", "removed")):
        paths = [action["path"] for action in handmade.actions_of(table, 5, kind)]
        assert sorted(paths) == sorted(plan.diff.paths(change))
    assert open_table(table).diff(target, 5).same_content
    restore(spark, str(other), target)
    assert committed(table, 5) == committed(other, 5)
    refused(plan.run, errors.StalePlanError, "made at version 4 and the table is at 5")
    again = open_table(table, spark).plan_restore(target)
    assert (again.is_empty, again.run().version) == (True, 6)
    assert handmade.actions_of(table, 6, "add") == handmade.actions_of(table, 6, "remove") == []


@pytest.mark.parametrize("strategy", ["arrow", *nightly("optimize")])
def test_a_compaction_of_an_old_table_can_be_undone_until_vacuum_may_delete(
    spark: SparkSession, tmp_path: Path, strategy: str
) -> None:
    folder = Path(shaped_table(tmp_path / "table", partitions=0, files=4, rows=5, commits=4))
    age(folder, 20)
    table = open_table(folder, spark)
    table.plan_compaction().run(strategy)
    undo = table.plan_restore(4)
    assert not undo.is_blocked
    other = folders.copy(folder, tmp_path / "later")
    assert (undo.run().as_planned, table.files().num_files, table.diff(4, 6).same_content) == (True, 4, True)
    age(other, 10)
    assert open_table(other, spark).plan_restore(4).is_blocked is HAS_GUARD


@pytest.mark.nightly
def test_a_restore_of_a_clustered_table_with_row_ids_commits_what_delta_s_does(
    spark: SparkSession, tmp_path: Path
) -> None:
    table = tmp_path / "tracked"
    # Version 4 makes a checkpoint, 5 adds a column.
    for statement in (
        "CREATE TABLE {} (id BIGINT, p STRING) USING delta CLUSTER BY (id) TBLPROPERTIES ('delta."
        "checkpointInterval'='4', 'delta.enableRowTracking'='true', 'delta.enableDeletionVectors'='true')",
        "INSERT INTO {} SELECT id, 'ä b' FROM RANGE(0, 40, 1, 3)",
        "DELETE FROM {} WHERE id IN (3, 7)",
        "OPTIMIZE {}",
        "INSERT INTO {} VALUES (100, NULL)",
        "ALTER TABLE {} ADD COLUMN more INT",
        "OPTIMIZE {}",
    ):
        spark.sql(statement.format(f"delta.`{table}`"))
    for target in (5, 4, 2):
        one, other = (folders.copy(table, tmp_path / f"{target}{copy}") for copy in "ab")
        assert open_table(one, spark).plan_restore(target).run().as_planned
        restore(spark, str(other), target)
        assert committed(one, 7) == committed(other, 7)


def test_files_come_back_from_a_checkpoint_that_has_decimals_and_no_numbers_in_its_stats(
    spark: SparkSession, tmp_path: Path
) -> None:
    rows = "SELECT CAST(1.5 AS DECIMAL(9, 2)) d, CAST(2.5 AS DECIMAL(9, 2)) p, DOUBLE('Infinity') f"
    spark.sql(
        f"CREATE TABLE delta.`{tmp_path}` USING delta PARTITIONED BY (p) TBLPROPERTIES ('delta."
        f"checkpointInterval'='1', 'delta.checkpoint.writeStatsAsStruct'='true') AS {rows}"
    )
    spark.sql(f"INSERT INTO delta.`{tmp_path}` {rows}")
    added = [handmade.actions_of(tmp_path, version, "add")[0] for version in (0, 1)]
    handmade.write_commit(tmp_path, 2, [remove(file["path"]) for file in added])
    assert open_table(tmp_path, spark).plan_restore(1).run(progress=True).as_planned
    back = handmade.actions_of(tmp_path, 3, "add")
    assert sorted(file["stats"] for file in back) == sorted(file["stats"] for file in added)


@pytest.mark.parametrize("is_done", [False, True])
def test_an_interrupted_restore_says_what_is_committed(
    spark: SparkSession, copy_of: CopyOf, lived: Path, monkeypatch: pytest.MonkeyPatch, is_done: bool
) -> None:
    def interrupted(*args: Any) -> None:
        if is_done:
            assert commit_restore(*args)
        _thread.interrupt_main()
        time.sleep(0.5)
        raise PySparkException("cancelled")

    monkeypatch.setattr(restoring, "commit_restore", interrupted)
    table = open_table(copy_of(lived), spark)
    outcome = "version 5 is committed, with the content of version 3" if is_done else "nothing was committed"
    refused(table.plan_restore(3).run, errors.RunCancelled, f"The restore was cancelled: {outcome}")
    assert table.version == 4 + is_done
    if is_done:
        assert table.diff(3, 5).same_content


def test_a_restore_without_room_for_a_scratch_file_is_a_sentence(
    spark: SparkSession, copy_of: CopyOf, lived: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(lived / "gone"))
    table = open_table(copy_of(lived), spark)
    refused(table.plan_restore(3).run, errors.RunFailedError, "nothing was committed", "No such file")


def test_files_outside_of_the_table_come_back_as_planned(spark: SparkSession, tmp_path: Path) -> None:
    path, far = tmp_path / "table", tmp_path / "far.parquet"
    spark.range(5).coalesce(1).write.format("delta").save(str(path))
    (name,) = [add["path"] for add in handmade.actions_of(path, 0, "add")]
    (path / name).rename(far)
    commit = handmade.commit_path(path, 0)
    commit.write_text(commit.read_text().replace(f'"{name}"', f'"{far}"'))
    for checksum in (path / "_delta_log").glob("*.crc"):
        checksum.unlink()
    spark.sql(f"DELETE FROM delta.`{path}` WHERE id < 9")
    assert open_table(path, spark).plan_restore(0).run().as_planned


def test_a_commit_just_before_the_restore_is_not_undone(
    spark: SparkSession, copy_of: CopyOf, lived: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = copy_of(lived)

    def late(*args: Any) -> bool:
        spark.sql(f"DELETE FROM delta.`{table}`").collect()
        return commit_restore(*args)

    monkeypatch.setattr(restoring, "commit_restore", late)
    refused(
        open_table(table, spark).plan_restore(3).run, errors.StalePlanError, "the table is at 5: make a new"
    )
    assert open_table(table).version == 5


def test_a_commit_that_a_restore_in_sql_undoes_is_named(
    spark: SparkSession, copy_of: CopyOf, lived: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, seen = copy_of(lived), list[Progress]()
    table = open_table(path, spark)

    def late(*_: Any) -> bool:
        spark.sql(f"DELETE FROM delta.`{path}`").collect()
        return False

    monkeypatch.setattr(restoring, "commit_restore", late)
    message = "up to version 5, and this restore, version 6, undid that too", "run plan_restore(5)"
    refused(partial(table.plan_restore(3).run, seen.append), errors.ConflictError, *message)
    assert table.diff(3, 6).same_content
    assert {one.step for one in seen} == {"Restoring"}


def test_a_restore_whose_files_are_gone_lists_them_and_is_refused(
    spark: SparkSession, copy_of: CopyOf, lived: Path
) -> None:
    table = copy_of(lived)
    plan = open_table(table, spark).plan_restore(0)
    gone = plan.diff.paths("added")[0]
    (table / gone).unlink()
    again = open_table(table, spark).plan_restore(0)
    assert again.missing == (gone,)
    assert gone in again.explain()
    before = folders.listing(table)
    # The first plan checks again when it is run.
    for one in (plan, again):
        refused(one.run, errors.InvalidArgumentError, "can't be restored: 1 file that it needs is missing")
    assert folders.listing(table) == before
    # Delta doesn't check whether the files of deletion vectors exist.
    for file in table.glob("deletion_vector_*.bin"):
        file.unlink()
    missing = open_table(table, spark).plan_restore(1).missing
    assert any(path.startswith("deletion_vector_") for path in missing)


def test_a_compaction_of_columns_that_spark_would_not_name_is_undone(
    spark: SparkSession, tmp_path: Path
) -> None:
    for number in range(2):
        deltalake.write_deltalake(tmp_path, pa.table({"order date": [number]}), mode="append")
    table = open_table(tmp_path, spark)
    table.plan_compaction().run()
    assert table.plan_restore(1).run().as_planned


def test_the_latest_version_and_one_that_lost_its_commit_can_not_be_restored(changed: Path) -> None:
    plan = partial(open_table(changed).plan_restore, 4)
    refused(plan, errors.InvalidArgumentError, "version=4 is the latest")
    deltalake.DeltaTable(str(changed)).create_checkpoint()
    handmade.remove_commits(changed, *range(5))
    handmade.write_commit(changed, 5, [add("a")])
    refused(plan, errors.InvalidArgumentError, "version=4 ", "the log lacks a commit")


def test_a_plan_says_whose_commits_it_takes_back_and_what_streams_see(tmp_path: Path, lived: Path) -> None:
    for target, words in (
        (0, "s 1 (DELETE), 2 (DELETE), 4 (WRITE) did."),
        (3, " 4 (WRITE) did: 5 rows fewer."),
    ):
        assert f"would undo what version{words}" in open_table(lived).plan_restore(target).explain()
    table = open_table(handmade.write_log(tmp_path, [add("a", 1)], [remove("a")], [add("b", 1)]))
    assert "undo what versions 1, 2 did." in table.plan_restore(0).explain()
    both = "It would add back 1 file (1 B) and remove 1 file (1 B), as version 3.\nVersion 2 can be read"
    assert both in table.plan_restore(0).explain()
    assert "It would remove 1 file (1 B), as version 3.\nVersion 2" in table.plan_restore(1).explain()
    assert "fails at this commit. With" in table.plan_restore(0).explain()
    handmade.write_commit(tmp_path, 3, [remove("b")])
    explained = table.plan_restore(0).explain()
    assert "It would add back 1 file (1 B), as version 4.\nA stream" in explained
    assert "reads the rows of 1 file again" in explained
    assert "fails" not in explained
    handmade.write_commit(tmp_path, 4, [add("a", 1)])
    assert "Version 0 has the same files as version 4" in table.plan_restore(0).explain()


def test_the_numbers_of_identity_columns_are_not_set_back(tmp_path: Path) -> None:
    heads = [handmade.metadata(of_columns={"delta.identity.highWaterMark": number}) for number in (0, 1)]
    handmade.write_log(tmp_path, [heads[0], add("a")], [heads[1], add("b")])
    assert not open_table(tmp_path).plan_restore(0).changes_metadata


def test_a_restore_sets_columns_and_properties_back_and_says_so(spark: SparkSession, tmp_path: Path) -> None:
    data = handmade.write_data(tmp_path, "a", pa.table({"id": [1]}))
    more = handmade.metadata({"id": "long", "n": "string"}, configuration={"mine": "1"})
    handmade.write_log(tmp_path, [handmade.protocol(), handmade.metadata(), data], [more])
    table = open_table(tmp_path, spark)
    plan = table.plan_restore(0)
    words = "It also sets the columns and properties back to those of version 0."
    assert "RESTORE would change no file, and commit version 2." in plan.explain()
    assert (words in plan.explain().splitlines(), plan.can_run) == (True, True)
    assert plan.run().version == 2
    metadata = table.log.snapshot().metadata
    assert ([*metadata.physical_names], metadata.configuration) == (["id"], {})
    # If files differ too, the plan says both.
    handmade.write_commit(tmp_path, 3, [more, add("b")])
    lines = table.plan_restore(0).explain().splitlines()
    assert (lines[0], words in lines) == ("RESTORE to version 0 would undo what version 3 did.", True)
    assert "properties" not in table.plan_restore(1).explain()
