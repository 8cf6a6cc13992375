"""SQL uses the right table, whatever its name and wherever the session looks by default."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from compaction_kit import open_table
from compaction_kit.discovery import catalog_tables
from compaction_kit.execute.jobs import session_confs
from compaction_kit.reads import measure_reads
from compaction_kit.sql import full_name, identifier, name_parts, uri
from tests import folders
from tests.chance import nightly
from tests.conftest import SetConf

# Spark would remove the variable; Delta would read a version from the end of the name.
NAME = "t${x}`'\" %20%41é*?[a]{b,c}\\#+@v0"
TAKEN_FOR = NAME.replace("${x}", "").removesuffix("@v0")


@pytest.fixture(scope="module")
def original(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Four files from two commits, with columns id, "a${x}" and p."""
    table = tmp_path_factory.mktemp("original") / "t"
    rows = spark.range(0, 20, 1, 2).withColumns({"a${x}": F.col("id"), "p": F.lit("b")})
    options = {"delta.columnMapping.mode": "name", "delta.enableDeletionVectors": "false"}
    options |= {"delta.minReaderVersion": "2", "delta.minWriterVersion": "5"}
    for _ in range(2):
        rows.write.save(str(table), "delta", "append", "p", **options)
    return table


@pytest.fixture
def elsewhere(spark: SparkSession) -> Iterator[None]:
    """Make the session's default file system one that doesn't exist."""
    conf = spark.sparkContext._jsc.hadoopConfiguration()  # type: ignore[union-attr]
    before = conf.get("fs.defaultFS")
    conf.set("fs.defaultFS", "elsewhere://nowhere/")
    yield
    conf.set("fs.defaultFS", before)


@pytest.mark.parametrize("strategy", ["optimize", *nightly("rewrite", "arrow")])
def test_the_table_of_that_name_is_changed_and_not_its_neighbour(
    spark: SparkSession, original: Path, tmp_path: Path, confs: SetConf, elsewhere: None, strategy: str
) -> None:
    """The table is a local one, whatever the default file system is."""
    confs("spark.databricks.delta.retentionDurationCheck.enabled", "false")
    path, neighbour = (folders.copy(original, tmp_path / name) for name in (NAME, TAKEN_FOR))
    before, table = folders.listing(neighbour), open_table(path, spark)
    result = table.plan_compaction().run(strategy=strategy)
    assert (result.verified, result.versions) == (True, (2,))
    if strategy == "arrow":
        assert table.plan_restore(1).run().version == 3
        sorts = table.plan_compaction(zorder_by="a${x}")
        assert sorts.run(strategy="optimize", verify=False).versions == (4,)
        assert measure_reads(spark, path, 1, table.version, "id < 3", 1).same_result
    vacuum = table.plan_vacuum("0 hours")
    assert vacuum.run().num_files == vacuum.num_files > 0
    assert len(folders.data_files(path)) == table.files().num_files
    assert folders.listing(neighbour) == before
    assert {one.name for one in tmp_path.iterdir()} == {NAME, TAKEN_FOR}


def test_a_users_own_variables_are_replaced_as_spark_does(
    spark: SparkSession, shaped: Path, tmp_path: Path, confs: SetConf
) -> None:
    table = open_table(folders.copy(shaped, tmp_path / "t${x}"), spark)
    confs("spark.compaction_test.part", "p0001")
    plan = table.plan_compaction(where="part = '${spark.compaction_test.part}'")
    assert set(plan.bins["partition.part"].to_pylist()) == {"p0001"}
    assert plan.run(strategy="optimize").as_planned


@given(st.text("${}`:x \\'", min_size=1), st.booleans())
@example("${x}", True)
@example("${spark.sql.variable.substitute}", False)
def test_any_name_is_the_same_in_sql_with_variables_and_without(
    spark: SparkSession, name: str, substitutes: bool
) -> None:
    with session_confs(spark, {"spark.sql.variable.substitute": str(substitutes).lower()}):
        assert spark.range(1).select(F.expr(f"id AS {identifier(spark, name)}")).columns == [name]


@given(st.lists(st.text("a1_é .`${}-", min_size=1), min_size=1, max_size=3))
def test_a_name_of_odd_parts_is_split_as_it_was_joined(parts: list[str]) -> None:
    assert name_parts(full_name(*parts)) == parts


@pytest.mark.parametrize("name", ["", ".", "a.", "a..b", "`a", "``", "a/b", "my-lake.a", "a b"])
def test_what_is_no_name_has_no_parts(name: str) -> None:
    assert name_parts(name) == []


def test_a_table_of_the_catalog_is_found_where_its_folder_has_percent_signs(
    spark: SparkSession, original: Path, tmp_path: Path
) -> None:
    path = folders.copy(original, tmp_path / "a b%20c")
    spark.catalog.createTable("percent", path=uri(path), source="delta")
    try:
        assert open_table("percent", spark).path == path
        places = catalog_tables(spark, "default")
        assert places is not None
        assert ("default.percent", str(path)) in places.tables
    finally:
        spark.sql("DROP TABLE percent")
