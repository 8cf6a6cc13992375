"""Plans that strategy "rewrite" runs: the rows stay the same, even if others write meanwhile."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from delta.tables import DeltaTable, IdentityGenerator
from pyspark.sql import Row, SparkSession
from pyspark.sql.functions import broadcast

from compaction_kit import datasets, errors, open_table
from compaction_kit.compaction import CompactionPlan
from compaction_kit.execute import CompactionResult, Progress, rewrite
from tests import folders, handmade
from tests.conftest import SetConf
from tests.handmade import actions_of
from tests.refusals import refused
from tests.rows import texts

pytestmark = pytest.mark.usefixtures("spark")


def assert_rewritten(table: Path, plan: CompactionPlan, result: CompactionResult, version: int) -> None:
    """Assert that one commit removed all planned files without a data change, as the result says."""
    assert (result.strategy, result.versions, result.verified) == ("rewrite", (version,), True)
    adds, removes = actions_of(table, version, "add"), actions_of(table, version, "remove")
    assert not any(action["dataChange"] for action in adds + removes)
    assert {action["path"] for action in removes} >= set(plan.files["path"].to_pylist())
    assert (result.num_files_added, result.num_files_removed) == (len(adds), len(removes))
    assert result.as_planned
    lines = handmade.commit_path(table, version).read_text().splitlines()
    assert {name for line in lines for name in json.loads(line)} <= {"commitInfo", "add", "remove"}


def just_before_delta_begins(monkeypatch: pytest.MonkeyPatch, act: Callable[[], Any]) -> None:
    """Call `act` after the rows to read are chosen and before Delta's transaction begins."""
    write = rewrite.overwrite

    def late(*arguments: Any) -> None:
        act()
        write(*arguments)

    monkeypatch.setattr(rewrite, "overwrite", late)


@pytest.fixture
def flat(tmp_path: Path) -> Path:
    """Six files without partitions, of 10 rows each."""
    adds = [handmade.write_data(tmp_path, f"f{i}.parquet", rows_from(10 * i)) for i in range(6)]
    return handmade.write_log(tmp_path, adds)


def rows_from(start: int) -> pa.Table:
    return pa.table({"id": pa.array(range(start, start + 10), pa.int64())})


ODD = ["a b", "100%", "x:y", "n/m", "k=v", "ü", "it's", 'say "so"', "a%20b", "#?&", "\\n", "${x}", "`", None]


@pytest.mark.nightly
def test_partitions_of_odd_values_are_replaced_one_by_one(spark: SparkSession, tmp_path: Path) -> None:
    """Two files in each of 14 partitions, by values of many types, some of which need escaping in SQL."""
    folder = tmp_path / "odd names: 100% [x]"
    values = spark.createDataFrame(list(enumerate(ODD)), "i int, odd string").selectExpr(
        "IF(i % 5 = 0, NULL, i % 2) n",
        "date_add(DATE'2024-02-28', i) day",
        "IF(i = 3, NULL, TIMESTAMP'2024-01-01 00:00:00.5' + MAKE_INTERVAL(0, 0, 0, i)) t",
        "CAST(i / 4 AS DECIMAL(9, 2)) e",
        "ARRAY(1.5D, DOUBLE('NaN'), NULL, DOUBLE('-Infinity'))[i % 4] d",
        "ARRAY(TRUE, FALSE, NULL)[i % 3] b",
        "odd `odd text`",
    )
    # Each of the two tasks writes one file of each partition.
    twice = spark.range(0, 2, 1, 2).crossJoin(broadcast(values))
    writer = twice.write.format("delta").option("delta.columnMapping.mode", "name")
    writer.partitionBy(*values.columns).save(str(folder))
    table, before = open_table(folder), texts(spark, folder)
    plan = table.plan_compaction(where="`odd text` IS NULL")
    assert (plan.num_files_removed, plan.num_bins) == (2, 1)
    assert plan.run(strategy="rewrite", verify=False).as_planned
    assert len(actions_of(folder, 1, "add")) == 1
    rest = table.plan_compaction()
    assert rest.num_bins == len(ODD) - 1
    assert_rewritten(folder, rest, rest.run(strategy="rewrite"), 2)
    assert table.plan_compaction().is_empty
    assert texts(spark, folder) == before


@pytest.mark.works("local disk", "rewrite")
def test_only_partitions_with_bins_are_rewritten(changed: Path) -> None:
    table = open_table(changed)
    plan = table.plan_compaction(where="part = 'p0001'")
    assert_rewritten(changed, plan, plan.run(strategy="rewrite"), 5)
    assert {add["partitionValues"]["part"] for add in actions_of(changed, 5, "add")} == {"p0001"}
    assert "predicate" in json.dumps(actions_of(changed, 5, "commitInfo"))
    rest = table.plan_compaction()
    # The output of the first run is the only file in its partition.
    assert set(rest.bins["partition.part"].to_pylist()) == {"p0000", "p0002"}
    refused(plan.run, errors.StalePlanError, "the table is at 5: make a new plan", strategy="rewrite")


@pytest.mark.parametrize("partitions", [0, 3])
@pytest.mark.nightly
def test_outputs_stay_near_the_target_size(tmp_path: Path, partitions: int) -> None:
    shape = {"partitions": partitions, "files": 15, "rows": 2_000, "commits": 3}
    folder = Path(datasets.shaped_table(tmp_path / "t", **shape, skew=1.0))
    plan = open_table(folder).plan_compaction(max_file_size="200 KiB")
    result = plan.run(strategy="rewrite", verify=False)
    sizes = [add["size"] for add in actions_of(folder, 4, "add")]
    assert max(sizes) < 1.3 * plan.thresholds.max_file_size
    assert result.num_files_added == len(sizes) < plan.num_files_removed
    assert sum(sizes) / len(sizes) > 0.5 * plan.thresholds.max_file_size


def test_rows_appended_a_moment_before_it_begins_survive(
    spark: SparkSession, flat: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    more = handmade.write_data(flat, "more.parquet", rows_from(60))
    just_before_delta_begins(monkeypatch, lambda: handmade.write_commit(flat, 1, [more]))
    plan = open_table(flat).plan_compaction()
    result = plan.run(strategy="rewrite")
    assert (result.versions, result.verified, result.as_planned) == ((2,), True, False)
    assert texts(spark, flat) == sorted(str(Row(id=i)) for i in range(70))


def test_new_numbers_of_an_identity_column_are_no_change_of_columns(
    spark: SparkSession, flat: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    head = handmade.metadata(of_columns={"delta.identity.highWaterMark": 70})
    more = handmade.write_data(flat, "more.parquet", rows_from(60))
    just_before_delta_begins(monkeypatch, lambda: handmade.write_commit(flat, 1, [head, more]))
    result = open_table(flat).plan_compaction().run(strategy="rewrite")
    assert (result.versions, result.verified) == ((2,), True)
    assert len(texts(spark, flat)) == 70


@pytest.mark.nightly
def test_rows_are_not_read_from_the_cache_of_the_session(spark: SparkSession, flat: Path) -> None:
    cached = spark.read.format("delta").load(str(flat)).cache()
    try:
        assert cached.count() == 60
        handmade.write_commit(flat, 1, [handmade.write_data(flat, "more.parquet", rows_from(60))])
        # The trap works: the session still reads from its cache.
        assert spark.read.format("delta").load(str(flat)).count() == 60
        open_table(flat).plan_compaction().run(strategy="rewrite", verify=False)
    finally:
        cached.unpersist()
    assert len(texts(spark, flat)) == 70


@pytest.mark.nightly
def test_a_column_filled_a_moment_before_it_begins_is_not_lost_in_silence(
    spark: SparkSession, flat: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def add_and_fill() -> None:
        handmade.write_commit(flat, 1, [handmade.metadata({"id": "long", "x": "integer"})])
        filled = rows_from(0).append_column("x", pa.array([7] * 10, pa.int32()))
        removes = [handmade.remove(f"f{i}.parquet") for i in range(6)]
        handmade.write_commit(flat, 2, [*removes, handmade.write_data(flat, "filled.parquet", filled)])

    just_before_delta_begins(monkeypatch, add_and_fill)
    told = "may be missing; the table was restored to version 2, as version 4: make a new plan"
    run = open_table(flat).plan_compaction().run
    refused(run, errors.VerificationError, told, strategy="rewrite", verify=False)
    assert texts(spark, flat) == sorted(str(Row(id=i, x=7)) for i in range(10))


def test_after_a_cancelled_run_settings_come_back(spark: SparkSession, changed: Path, confs: SetConf) -> None:
    disturbing = {
        "spark.databricks.delta.optimizeWrite.enabled": "true",
        "spark.databricks.delta.autoCompact.enabled": "true",
        "spark.databricks.delta.autoCompact.minNumFiles": "2",
        "spark.sql.sources.partitionOverwriteMode": "dynamic",
        "spark.sql.files.maxRecordsPerFile": "7",
        "spark.sql.files.ignoreMissingFiles": "true",
        "spark.databricks.delta.commitInfo.userMetadata": "a note",
    }
    for key, value in disturbing.items():
        confs(key, value)
    plan = open_table(changed).plan_compaction(where="part <> 'p0002'")
    seen = list[Progress]()

    def stop(progress: Progress) -> None:
        seen.append(progress)
        # The first report comes before Delta begins; only few tasks can end between two reports.
        if len(seen) == 2:
            raise KeyboardInterrupt

    refused(plan.run, errors.RunCancelled, "nothing was committed", strategy="rewrite", progress=stop)
    result = plan.run(strategy="rewrite")
    assert_rewritten(changed, plan, result, 5)
    assert (open_table(changed).version, result.num_files_added) == (5, 2)
    assert actions_of(changed, 5, "commitInfo")[0]["userMetadata"].startswith("a note; compaction_kit ")
    assert {key: spark.conf.get(key) for key in disturbing} == disturbing
    assert spark.conf.get("spark.sql.files.ignoreCorruptFiles", None) is None


@pytest.mark.nightly
def test_rewrite_keeps_table_features(spark: SparkSession, tmp_path: Path) -> None:
    """Generated columns, one of them a partition column; identity, defaults, constraints, lengths, a feed."""
    name = f"delta.`{tmp_path / 't'}`"
    # Not in SQL, which supports such columns only since Spark 4.2.
    made = DeltaTable.create(spark).location(str(tmp_path / "t")).addColumn("d", "INT")
    made = made.addColumn("t", "TIMESTAMP").addColumn("id", "BIGINT", nullable=False)
    made = made.addColumn("c", "CHAR(4)").addColumn("v", "VARCHAR(4)")
    made = made.addColumn("g", "BIGINT", generatedAlwaysAs="id * 2")
    made = made.addColumn("n", "BIGINT", generatedByDefaultAs=IdentityGenerator())
    made = made.addColumn("p", "DATE", generatedAlwaysAs="CAST(t AS DATE)").partitionedBy("p")
    made = made.property("delta.enableChangeDataFeed", "true")
    made = made.property("delta.enableInCommitTimestamps", "true")
    made.property("delta.feature.allowColumnDefaults", "supported").execute()
    spark.sql(f"ALTER TABLE {name} ALTER COLUMN d SET DEFAULT 5")
    spark.sql(f"ALTER TABLE {name} ADD CONSTRAINT positive CHECK (id > 0)")
    first, second = (f"TIMESTAMP'2024-01-0{day} 10:00:00'" for day in (1, 2))
    spark.sql(f"INSERT INTO {name} (id, t) VALUES (1, {second}), (2, {first}), (3, NULL)")
    spark.sql(f"INSERT INTO {name} (id, d, t) VALUES (4, DEFAULT, {second}), (5, NULL, NULL)")
    table = open_table(tmp_path / "t")
    before = texts(spark, table.path)
    plan = table.plan_compaction()
    assert_rewritten(table.path, plan, plan.run(strategy="rewrite"), plan.version + 1)
    assert texts(spark, table.path) == before
    feed = spark.read.format("delta").option("readChangeFeed", "true")
    assert feed.option("startingVersion", plan.version + 1).load(str(table.path)).count() == 0


def test_a_run_does_not_use_up_the_txn_version_of_the_session(
    spark: SparkSession, flat: Path, confs: SetConf
) -> None:
    for name, value in (("txnAppId", "nightly"), ("txnVersion", "7")):
        confs(f"spark.databricks.delta.write.{name}", value)
    for version in (1, 3):
        table = open_table(flat)
        result = table.plan_compaction(max_file_size="1 GiB").run(strategy="rewrite")
        assert result.versions == (version,)
        spark.range(100, 110).write.format("delta").mode("append").save(str(flat))
    # Delta leaves out the second append, because it has the same txnAppId and txnVersion.
    assert spark.read.format("delta").load(str(flat)).count() == 70


TRACKED = {
    "delta.rowTracking.materializedRowIdColumnName": "_row-id-col-1",
    "delta.rowTracking.materializedRowCommitVersionColumnName": "_row-commit-version-col-1",
}


def test_a_column_whose_values_delta_alone_gives_is_refused_before_anything_starts(flat: Path) -> None:
    always = {"start": 0, "step": 1, "allowExplicitInsert": False}
    head = handmade.metadata(of_columns={f"delta.identity.{name}": always[name] for name in always})
    protocol = handmade.protocol()
    protocol["protocol"] |= {"minWriterVersion": 7, "writerFeatures": ["identityColumns"]}
    handmade.write_commit(flat, 1, [protocol, head])
    run, words = open_table(flat).plan_compaction().run, "the values of id, GENERATED ALWAYS AS IDENTITY"
    refused(run, errors.UnsupportedTableError, words, strategy="rewrite")


@pytest.mark.parametrize(
    ("configuration", "partition", "options", "reason"),
    [
        ({}, {}, {"zorder_by": "id"}, 'only OPTIMIZE sorts rows: run it with strategy="optimize"'),
        ({"delta.enableRowTracking": "true"}, {}, {}, "row tracking and the ids of its rows would change"),
        ({}, {"s": ""}, {}, 's is "" in some files, which a write would turn into null'),
    ],
    ids=["order", "row tracking", "empty partition value"],
)
def test_tables_and_plans_that_it_would_spoil_are_refused(
    tmp_path: Path,
    configuration: dict[str, str],
    partition: dict[str, str],
    options: dict[str, Any],
    reason: str,
) -> None:
    protocol = handmade.protocol()
    protocol["protocol"] |= {"minWriterVersion": 7, "writerFeatures": ["domainMetadata", "rowTracking"]}
    metadata = handmade.metadata({"id": "long", "s": "string"}, list(partition), TRACKED | configuration)
    adds = [handmade.write_data(tmp_path, f"f{i}.parquet", rows_from(10 * i), partition) for i in range(2)]
    handmade.write_log(tmp_path, [protocol, metadata, *adds])
    plan = open_table(tmp_path).plan_compaction(**options)
    before = folders.listing(tmp_path)
    words = 'strategy="rewrite" can\'t run this ', reason
    refused(plan.run, errors.UnsupportedTableError, *words, strategy="rewrite", verify=False)
    assert folders.listing(tmp_path) == before
