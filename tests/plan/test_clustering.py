"""Plans of clustered tables; tests/execute/test_random_plans.py compares such plans with OPTIMIZE."""

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from compaction_kit import open_table
from compaction_kit.compaction import CompactionPlan
from compaction_kit.errors import CorruptLogError, InvalidArgumentError
from compaction_kit.execute.jobs import session_confs
from compaction_kit.plan import Planner, SessionRules, Thresholds
from compaction_kit.plan.thresholds import CubeSizes
from compaction_kit.sql import quoted
from compaction_kit.verdict import Verdict
from tests import handmade
from tests.chance import nightly
from tests.conftest import SetConf
from tests.execute.meanwhile import clustered_table
from tests.folders import data_files
from tests.refusals import refused

pytestmark = pytest.mark.spark

CUBE = "spark.databricks.delta.optimize.clustering.mergeStrategy.minCubeSize"


def test_new_rows_have_partial_cubes_rewritten(spark: SparkSession, tmp_path: Path, confs: SetConf) -> None:
    folder = clustered_table(tmp_path / "clustered")
    rows = pq.ParquetFile(min(data_files(folder))).read()
    table = open_table(folder, spark)
    table.plan_compaction().run(verify=False)
    handmade.write_commit(folder, table.version + 1, [handmade.write_data(folder, "new.parquet", rows)])
    plan = table.plan_compaction()
    cubes = plan.cubes.to_pylist()
    assert {row["state"]: row["num_files"] for row in cubes} == {"new": 1, "partial cube": 1}
    new_bytes = next(row["size_bytes"] for row in cubes if row["cube_id"] is None)
    assert plan.clustered_by == ("id", "value")
    assert f"{plan.bytes_removed / new_bytes:,.1f} times as much" in plan.explain()
    # With this threshold the cube is left alone.
    confs(f"{CUBE}.threshold", str(max(row["size_bytes"] for row in cubes)))
    assert (table.plan_compaction().num_files_removed, plan.num_files_removed) == (1, 2)
    # The plan keeps the sizes with which it was made.
    result = plan.run()
    assert (result.strategy, result.verified, result.as_planned) == ("optimize", True, True)
    assert "only OPTIMIZE sorts rows" in result.reason
    assert (result.num_files_removed, result.num_files_added) == (2, 1)
    confs(f"{CUBE}.threshold", str(10**12))
    done = open_table(folder, spark).plan_compaction()
    assert done.is_empty
    assert "no file is new, and there is no other cube to merge" in done.explain()


def test_clustered_tables_have_their_own_options(spark: SparkSession, tmp_path: Path, shaped: Path) -> None:
    table = open_table(clustered_table(tmp_path / "clustered"), spark)
    plain = open_table(shaped)
    refused: list[tuple[str, Callable[[], object]]] = [
        ("clustered by id, value, so OPTIMIZE sorts", lambda: table.plan_compaction(order="ingest")),
        ("clustered by id, value, so OPTIMIZE sorts", lambda: table.plan_compaction(budget="1 MiB")),
        ("clustered by id, value, so OPTIMIZE sorts", lambda: table.plan_compaction(zorder_by="id")),
        ("other order can be compared", table.plan_compaction().compare),
        ('min_cube_size="small"', lambda: table.plan_compaction().amplification(1, min_cube_size="small")),
        ("this table isn't clustered: leave full out", lambda: plain.plan_compaction(full=True)),
        ("this table isn't clustered", lambda: plain.plan_compaction().amplification("1 MiB")),
    ]
    for told, act in refused:
        with pytest.raises(InvalidArgumentError, match=told):
            act()
    prediction = table.plan_compaction().predict_reads("id = 3")
    assert prediction.layouts["layout"].to_pylist() == ["now"]
    assert "OPTIMIZE sorts the rows" in prediction.unpredicted


def clustered_log(table: Path, cubes: dict[str | None, list[int]], others: str = "") -> Path:
    """Write only the log of a table clustered by ü, from the sizes of each cube's files, in MiB.

    Cubes that `others` names are clustered by another column.
    """
    actions = [*handmade.clustered_by("ü"), handmade.metadata({"ü": "long"})]
    for name, sizes in cubes.items():
        for number, size in enumerate(sizes):
            action = handmade.add(f"{name}-{number}", size << 20, records=None)
            if name is not None:
                columns = '["j"]' if name in others else '["`ü`"]'
                tags = {"ZCUBE_ID": name, "ZCUBE_ZORDER_BY": columns, "ZCUBE_ZORDER_CURVE": "hilbert"}
                action["add"] |= {"tags": tags, "clusteringProvider": "liquid"}
            actions.append(action)
    return handmade.write_log(table, actions)


def plan_of(path: Path, rules: SessionRules, full: bool = False) -> CompactionPlan:
    table = open_table(path)
    return CompactionPlan.of(Planner(table.files(), rules), Thresholds(), full=full, handle=table.handle)


def test_files_of_other_columns_wait_for_full(tmp_path: Path) -> None:
    table = open_table(clustered_log(tmp_path, {None: [1, 1], "a": [5]}, others="a"))
    plan, full = table.plan_compaction(), table.plan_compaction(full=True)
    assert (plan.num_files_removed, full.num_files_removed) == (2, 3)
    full_only = "only OPTIMIZE … FULL rewrites files of other clustering columns"
    assert f"1 file (5 MiB) stays, because {full_only}" in plan.explain()
    assert "times as much" not in plan.explain()
    assert "OPTIMIZE FULL sorts 2 files (2 MiB in total) without a cube and 1 file" in full.explain()
    said = str(Verdict.of(plan.source, plan))
    assert "2 files of 3 are not clustered by `ü` yet." in said
    assert "predicted" not in said
    assert "plan.amplification()" not in said
    states = dict(zip(*plan.cubes.select(["state", "num_files"]).to_pydict().values(), strict=True))
    assert states == {"new": 2, "other columns": 1}


def test_a_table_whose_files_all_wait_for_full_says_so(tmp_path: Path) -> None:
    full = "only OPTIMIZE … FULL rewrites files of other clustering columns"
    plan = open_table(clustered_log(tmp_path / "all", {"a": [1], "b": [2]}, others="ab")).plan_compaction()
    assert f"Nothing to do, because {full}." in str(Verdict.of(plan.source, plan))
    plan = open_table(clustered_log(tmp_path / "some", {"a": [1], "b": [2]}, others="b")).plan_compaction()
    verdict = str(Verdict.of(plan.source, plan))
    assert f"no file is new, and there is no other cube to merge, and {full}." in verdict
    plan = open_table(clustered_log(tmp_path / "two", {"a": [1], "b": [2]})).plan_compaction()
    assert "No file is new, and OPTIMIZE would cluster 2 by `ü` again." in str(Verdict.of(plan.source, plan))


def test_which_files_make_a_cube_is_open_if_there_are_several(tmp_path: Path) -> None:
    """Files are in the order of the snapshot, which depends on a setting."""
    table, cubes = clustered_log(tmp_path, {None: list(range(1, 31))}), CubeSizes(100 << 20, 150 << 20)
    plans = [plan_of(table, SessionRules(snapshot_partitions=number, cubes=cubes)) for number in (50, 7)]
    assert plans[0].bins["size_bytes"] != plans[1].bins["size_bytes"]
    assert [(plan.exact.sums, plan.exact.members) for plan in plans] == [(False, False)] * 2
    one = plan_of(table, SessionRules()).exact
    assert (one.sums, one.members) == (True, True)


def test_each_cube_has_a_state_and_counts_in_what_optimize_reports(tmp_path: Path) -> None:
    def plan_cubes(cubes: dict[str | None, list[int]], full: bool = False) -> CompactionPlan:
        rules = SessionRules(cubes=CubeSizes(100 << 20, 150 << 20))
        return plan_of(clustered_log(tmp_path / f"{cubes}", cubes, others="j"), rules, full)

    mixed = {None: [1], "a": [60, 50], "b": [5], "j": [200]}
    states = ["new", "complete cube", "partial cube", "other columns"]
    assert plan_cubes(mixed).cubes["state"].to_pylist() == states
    for full, counts in {False: [3, 2, 2, 2, 1], True: [4, 1, 3, 3, 2]}.items():
        stats = plan_cubes(mixed, full).metrics["clusteringStats"].values()
        assert [one["numFiles"] if isinstance(one, dict) else one for one in stats] == counts
    (row,) = plan_cubes(mixed).amplification("1 MiB", 1).to_pylist()
    assert (row["num_complete_cubes"], row["num_partial_cubes"]) == (1, 1)
    # OPTIMIZE counts an empty bin before a file that is larger than a bin.
    assert plan_cubes({None: [200]}).metrics["numBins"] == 2
    one = plan_cubes({"a": [1]}, full=True)
    single = "no file is new, and there is no other cube to merge"
    assert f"Nothing to do, because {single}." in str(Verdict.of(one.source, one))


@pytest.mark.parametrize(("clustered", "size"), [(False, 512 << 20), (True, 75 << 30)])
def test_a_purge_packs_files_with_dropped_columns_first(tmp_path: Path, clustered: bool, size: int) -> None:
    """DeltaPurgeOperation lists them first; two files fill a bin."""
    feed = handmade.metadata({"id": "long"}, configuration={"delta.enableChangeDataFeed": "false"})
    actions = [*(handmade.clustered_by("id") if clustered else []), feed]
    for number, name in enumerate("abcd"):
        has_dropped = name in "ac"
        rows = pa.table({"id": [number]} | ({"dropped": [0]} if has_dropped else {}))
        fields = handmade.write_data(tmp_path, name, rows)["add"] | {"size": size}
        actions.append({"add": fields if has_dropped else fields | {"deletionVector": handmade.vector(name)}})
    files = open_table(handmade.write_log(tmp_path, actions)).plan_purge().files.to_pylist()
    bins = [{row["path"] for row in files if row["bin_id"] == number} for number in range(2)]
    assert bins == [{"a", "c"}, {"b", "d"}]


def test_clustering_columns_are_named_as_in_sql_and_need_the_feature(tmp_path: Path) -> None:
    protocol, domain = handmade.clustered_by("x")
    domain["domainMetadata"]["configuration"] = '{"clusteringColumns":[["d.d"],["n","x"],["a`b"],["1ä"]]}'
    types = {"d.d": "long", "n": handmade.struct_of({"x": "long"}), "a`b": "long", "1ä": "long"}
    on = ("`d.d`", "n.x", "`a``b`", "`1ä`")
    for name, first, expected in (("on", [protocol], on), ("off", [], ())):
        actions = [*first, domain, handmade.metadata(types), handmade.add("f")]
        plan = open_table(handmade.write_log(tmp_path / name, actions)).plan_compaction()
        assert plan.clustered_by == expected
        assert plan.clustering_column == ("d.d" if expected else None)
    types.pop("n")
    gone = handmade.write_log(
        tmp_path / "gone", [protocol, domain, handmade.metadata(types), handmade.add("f")]
    )
    refused(open_table(gone).plan_compaction, CorruptLogError, "dropped with its struct", "restore a version")


@pytest.mark.parametrize("name", ["a b", *nightly("x`<y", "ä", "12")])
def test_cubes_of_a_column_with_an_odd_name_are_the_table_s_own(
    spark: SparkSession, tmp_path: Path, name: str
) -> None:
    column, table = quoted(name), f"delta.`{tmp_path}`"
    options = "TBLPROPERTIES ('delta.columnMapping.mode' = 'name')"
    spark.sql(f"CREATE TABLE {table} ({column} INT) USING delta CLUSTER BY ({column}) {options}")
    for statement in (f"INSERT INTO {table} VALUES (1), (2)", f"OPTIMIZE {table}") * 2:
        spark.sql(statement).collect()
    plan = open_table(tmp_path).plan_compaction()
    assert [row["state"] for row in plan.cubes.to_pylist()] == ["single cube"]
    assert plan.clustering_column == name


def test_appends_to_a_table_below_the_cube_s_size_rewrite_all_of_it_each_time(tmp_path: Path) -> None:
    """As in delta-io/delta#4304: 1 GB appended to 40 GB."""
    plan = open_table(clustered_log(tmp_path, {"a": [1024] * 40})).plan_compaction()
    assert plan.is_empty
    now, smaller, huge = (
        plan.amplification("1 GiB", min_cube_size=size) for size in (None, "4 GiB", "1 TiB")
    )
    assert [size >> 30 for size in now["bytes_rewritten"].to_pylist()] == list(range(41, 51))
    assert now["num_partial_cubes"].to_pylist() == [1] * 10
    # The cube of 40 GiB is complete, and so is each new cube of 4 GiB.
    assert [size >> 30 for size in smaller["bytes_rewritten"].to_pylist()] == [1, 2, 3, 4] * 2 + [1, 2]
    assert smaller["num_complete_cubes"].to_pylist() == [1, 1, 1, 2, 2, 2, 2, 3, 3, 3]
    assert huge == now
    plan = open_table(clustered_log(tmp_path / "new", {None: [100] * 3, "a": [50]})).plan_compaction()
    # The plan is run before the first append.
    assert plan.amplification("50 MiB", 2)["bytes_rewritten"].to_pylist() == [400 << 20, 450 << 20]


@pytest.mark.nightly
@pytest.mark.parametrize(("appends_in_a_cube", "target"), [(2.5, 1.0), (2.5, 1.5), (4.5, 1.5)])
def test_amplification_is_what_optimize_rewrites(
    spark: SparkSession, tmp_path: Path, appends_in_a_cube: float, target: float
) -> None:
    """A cube is complete after three or five appends; never if the target size is the minimum cube size.

    All rows differ, so that sizes are predicted well, and one file too many would be noticed.
    """
    name = f"delta.`{tmp_path}`"

    def append_rows() -> None:
        rows = spark.range(0, 20_000, 1, 2).selectExpr("CAST(1e15 * RAND() AS BIGINT) k", "RAND() x")
        rows.write.format("delta").mode("append").save(str(tmp_path))

    spark.sql(f"CREATE TABLE {name} (k BIGINT, x DOUBLE) USING delta CLUSTER BY (k)")
    append_rows()
    append_bytes = open_table(tmp_path).files().size_bytes
    complete = int(appends_in_a_cube * append_bytes)
    sizes = {f"{CUBE}.threshold": str(complete), f"{CUBE}.targetCubeSize": str(int(target * complete))}
    with session_confs(spark, sizes | {"spark.databricks.delta.optimize.maxFileSize": str(append_bytes)}):
        plan = open_table(tmp_path, spark).plan_compaction()
        predicted = plan.amplification(append_bytes, 6).to_pylist()
        plan.run(verify=False)
        for row in predicted:
            append_rows()
            metrics = spark.sql(f"OPTIMIZE {name}").collect()[0]["metrics"]
            assert row["bytes_rewritten"] == pytest.approx(metrics["filesRemoved"]["totalSize"], rel=0.02)
            states = open_table(tmp_path, spark).plan_compaction().cubes["state"].to_pylist()
            num_complete = states.count("complete cube")
            assert row["num_complete_cubes"] == num_complete
            if target > 1:
                # Otherwise, how full each bin is depends on the sizes of single files.
                assert row["num_partial_cubes"] == len(states) - num_complete
