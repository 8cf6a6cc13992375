import re
import shutil
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from compaction_kit import errors, find_tables, open_table, survey
from compaction_kit.compaction import CompactionPlan
from compaction_kit.plan import Planner
from compaction_kit.surveys import Survey
from compaction_kit.text import MIB
from tests import folders, handmade
from tests.conftest import SetConf
from tests.refusals import refused


def test_tables_are_found_at_any_depth_and_none_in_a_table(tmp_path: Path) -> None:
    for name in ("b", "a/x", "a/y/z", "b/inside", ".trash/t", "_old/t", "1/2/3/4/5/t", "1/2/3/4/5/6/t"):
        (tmp_path / name / "_delta_log").mkdir(parents=True)
    (tmp_path / "c").mkdir()
    names = ("1/2/3/4/5/t", "a/x", "a/y/z", "b")
    assert find_tables(tmp_path) == [str(tmp_path / name) for name in names]
    assert find_tables(str(tmp_path / "b")) == [str(tmp_path / "b")]
    assert find_tables(tmp_path / "nothing") == []
    for root in (None, names):
        refused(partial(find_tables, root), errors.InvalidArgumentError, "is no path")  # type: ignore[arg-type]


def in_mib(*sizes: int) -> list[handmade.Action]:
    """Return files without statistics, so that a bin's output is predicted to be as large as its input."""
    return [handmade.add(f"f{i}", size * MIB, records=None) for i, size in enumerate(sizes)]


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    """Five tables that can be surveyed, one of them empty, and three that can't."""
    root = tmp_path / "lake"
    handmade.write_log(root / "none", in_mib(1200, 1300))
    handmade.write_log(root / "few", in_mib(1, 2, 500))
    handmade.write_log(root / "many", in_mib(*[20] * 8))
    handmade.write_log(root / "also few", in_mib(3, 4, 600))
    handmade.write_log(root / "empty", [])
    handmade.write_log(root / "bad/clustered", [*handmade.clustered_by("gone"), *in_mib(1, 1)])
    handmade.write_log(root / "bad/newer", [handmade.protocol(features=["fancy"]), *in_mib(1, 1)])
    handmade.write_log(root / "bad/damaged", in_mib(1, 1), [handmade.add("b")])
    handmade.commit_path(root / "bad/damaged", 1).write_text('{"add":')
    return root


@pytest.mark.works("local disk", "survey")
def test_a_row_tells_the_files_and_the_plan(lake: Path) -> None:
    found = survey(lake)
    log_bytes = handmade.commit_path(lake / "few", 0).stat().st_size
    expected = {"table": str(lake / "few"), "version": 0, "num_files": 3, "size_bytes": 503 * MIB}
    expected |= {"num_small_files": 2, "median_size_bytes": 2 * MIB, "num_partitions": 1, "skew": 1.0}
    expected |= {"num_commits": 1, "log_bytes": log_bytes, "tombstoned_bytes": 0, "reclaimable_bytes": 0}
    expected |= {"files_removed": 3, "files_added": 1, "bytes_rewritten": 503 * MIB}
    expected |= {"gain": 8 * MIB, "gain_per_byte": 8 / 503}
    expected |= dict.fromkeys(("overlap", "overlap_column", "last_optimize", "error"))
    rows = {row["table"]: row for row in found.to_arrow().to_pylist()}
    assert rows[str(lake / "few")] == expected
    plan = ("files_removed", "files_added", "bytes_rewritten", "gain", "gain_per_byte")
    assert [rows[str(lake / "none")][name] for name in plan] == [0, 0, 0, 0, None]
    schema = found.to_arrow().schema
    assert schema == survey([]).to_arrow().schema
    assert all(name in (Survey.to_arrow.__doc__ or "") for name in schema.names)


def plan_by_log(table: Path, max_file_size: str | None = None) -> CompactionPlan:
    """Return the plan from the log alone, without reading data files."""
    opened = open_table(table)
    limits = opened.thresholds(max_file_size=max_file_size)
    return CompactionPlan.of(Planner(opened.files()), limits, handle=opened.handle)


def test_tables_are_ranked_by_gain_and_errors_come_last_with_what_is_known(lake: Path) -> None:
    found = survey(lake)
    rows = {row["table"].removeprefix(f"{lake}/"): row for row in found.to_arrow().to_pylist()}
    gains = {"many": 7 * 4 * MIB, "also few": 2 * 4 * MIB, "few": 2 * 4 * MIB, "empty": 0, "none": 0}
    failed = {
        "bad/clustered": (2, "The domain delta.clustering is damaged"),
        "bad/damaged": (None, f"The log file {handmade.log_name(1)} is damaged"),
        "bad/newer": (None, "the reader feature fancy"),
    }
    assert [*rows] == [*gains, *failed]
    assert {name: row["gain"] for name, row in rows.items()} == gains | dict.fromkeys(failed)
    for name, (num_files, words) in failed.items():
        assert rows[name]["num_files"] == num_files
        assert re.fullmatch(rf".*{re.escape(words)}.*\.", rows[name]["error"])
    finding = "After compaction, a full read of 5 tables would open 11 fewer files, 82 % of them in 2 tables"
    assert repr(found) == f"Survey({finding})"
    lines = [" ".join(line.split()) for line in found.summary().splitlines()]
    assert lines[:2] == [f"{finding}.", f"{lake}/many 8 → 1 file 0 % small"]
    assert f"{lake}/empty 0 → 0 files nothing to do" in lines
    assert lines[6].startswith(f"{lake}/bad/clustered: The domain delta.clustering is damaged")
    assert "would open as many files as now." in survey(lake / "none").summary()
    (row,) = survey(lake / "few").rows.to_pylist()
    split = pa.Table.from_pylist([row | {"files_added": 20}], found.rows.schema)
    assert "would open 17 more files." in Survey("x", split).summary()
    assert survey(lake / "bad/newer").summary().startswith("1 table can't be surveyed.")
    assert found.to_pandas()["gain"].max() == 28 * MIB
    # The page has the table, the errors and the figure.
    page = found._repr_html_()
    for text in ("503 MiB", "67 %", "Small: under 16 MiB"):
        assert text in page
    # Shown bytes are sizes of files, without the bytes that opening a file counts as.
    assert "28 MiB" not in page
    assert page.index("<table>") < page.index("delta.clustering is damaged") < page.index('<svg role="img"')
    assert "10 more tables" in survey([lake / "few"] * 60)._repr_html_()


@pytest.mark.usefixtures("spark")  # Spark reads HDFS.
def test_paths_that_lead_nowhere_are_rows_too(lake: Path, tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    says: dict[str | Path, str] = {
        tmp_path / "vanished": "does not exist",
        "hdfs://127.0.0.1:1/t": "check the endpoint and network",
        tmp_path / "folder": "no _delta_log folder",
        "x" * 5_000: "^No table at 'xxx.*x': File name too long",
    }
    found = survey([*says, open_table(lake / "many")]).to_arrow()
    assert found["table"].to_pylist() == [str(name) for name in [lake / "many", *says]]
    fine, *told = found["error"].to_pylist()
    assert fine is None
    assert all(re.search(words, error) for words, error in zip(says.values(), told, strict=True)), told


def test_many_tables_at_once_are_what_they_are_one_by_one(lake: Path) -> None:
    calls, names = list[tuple[int, int, str]](), find_tables(lake) * 3
    together = survey(names, progress=lambda *call: calls.append(call)).to_arrow()
    assert survey(names, progress=5).to_arrow().equals(together)  # type: ignore[arg-type]
    assert [call[:2] for call in calls] == [(done, 24) for done in range(1, 25)]
    assert sorted(name for _, _, name in calls) == sorted(names)
    one_by_one = pa.concat_tables([survey([name]).to_arrow() for name in names])
    assert together.sort_by("table") == one_by_one.sort_by("table")
    assert len(survey(f"file://{lake}/also%20few")) == 1
    assert len(survey(lake.glob("*few"))) == 2


def test_overlap_is_by_the_first_column_whose_stats_have_bounds(tmp_path: Path) -> None:
    columns = {"flag": "boolean", "note": "string", "day": "date", "id": "long"}
    metadata = handmade.metadata(columns | {"p": "string"}, ["p"])
    adds = []
    for days in (("01", "10"), ("05", "15"), ("20", "25")):
        low, high = ({"id": 1, "day": f"2024-01-{day}"} for day in days)
        adds.append(handmade.add(days[0], partition={"p": "x"}, bounds=(low, high)))
    (row,) = survey(handmade.write_log(tmp_path, [metadata, *adds])).to_arrow().to_pylist()
    assert row["overlap_column"] == "day"
    assert row["overlap"] == pytest.approx((1 + 2 + 2 + 1 + 1 + 1) / 6)


def test_what_names_nothing_is_refused(lake: Path) -> None:
    for where in ("", None, 5, ["t", ""], b"t"):
        refused(partial(survey, where), errors.InvalidArgumentError, "where=")  # type: ignore[arg-type]
    refused(partial(survey, lake, max_file_size="12 parsecs"), errors.InvalidArgumentError, '"12 parsecs"')
    refused(partial(survey, "hdfs://127.0.0.1:1/lake"), errors.StorageError, "check the endpoint and network")
    refused(partial(survey, lake / "no such"), errors.TableNotFoundError, "no such", "check the spelling")
    refused(partial(survey, handmade.commit_path(lake / "many", 0)), errors.NotADeltaTableError, "has no")


def test_folders_that_cant_be_read_are_named(lake: Path) -> None:
    closed = lake / "closed"
    handmade.write_log(closed / "t", in_mib(1, 2))
    closed.chmod(0)
    try:
        with folders.no_permission(lake):
            found = survey(lake)
            with pytest.warns(UserWarning, match=f"{closed} can't be read"):
                find_tables(lake)
    finally:
        closed.chmod(0o755)
    assert found.skipped == (f"{closed} can't be read",)
    assert (len(found), len(survey(lake))) == (8, 9)


def test_a_survey_of_nothing_says_so(tmp_path: Path) -> None:
    for where, name in (([], "the list"), (tmp_path, tmp_path)):
        found, says = survey(where), f"There is no Delta table in {name}"
        assert (len(found), found.summary(), found.plot().get_label()) == (0, f"{says}.", says)
        assert says in found._repr_html_()


@pytest.fixture(scope="module")
def schema(spark: SparkSession, shaped: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A schema with two Delta tables, one of which is gone, a Parquet table and a view."""
    folder = tmp_path_factory.mktemp("schema")
    gone = folders.copy(shaped, folder / "gone")
    spark.sql(f"CREATE SCHEMA kit_survey LOCATION '{folder}/warehouse'")
    spark.sql(
        f"CREATE TABLE kit_survey.shaped USING delta LOCATION '{shaped}' COMMENT 'at\nLocation: {gone}'"
    )
    spark.sql(f"CREATE TABLE kit_survey.gone USING delta LOCATION '{gone}'")
    spark.sql("CREATE TABLE kit_survey.plain (provider LONG) USING parquet COMMENT 'is no\nProvider: delta'")
    spark.sql("CREATE VIEW kit_survey.seen AS SELECT * FROM kit_survey.shaped")
    spark.sql("CREATE TEMP VIEW kit_survey_passing AS SELECT 1")
    shutil.rmtree(gone)
    yield "kit_survey"
    spark.sql("DROP SCHEMA kit_survey CASCADE")
    spark.catalog.dropTempView("kit_survey_passing")


def test_a_schema_and_its_tables_are_surveyed_by_name(shaped: Path, schema: str) -> None:
    for name in (schema, f"spark_catalog.{schema}"):
        surveyed = survey(name)
        sentences = (f"{name}.plain is a parquet table", f"{name}.seen is a view")
        assert surveyed.skipped == sentences
        assert surveyed.summary().splitlines()[-1] == f"Skipped 2: {', '.join(sentences)}."
        found = surveyed.to_arrow()
        assert found["table"].to_pylist() == [f"{name}.shaped", f"{name}.gone"]
        fine, error = found["error"].to_pylist()
        assert (fine, "does not exist" in error) == (None, True)
        assert found["gain"][0].as_py() == plan_by_log(shaped).gain
    assert find_tables(name) == [f"{name}.gone", f"{name}.shaped"]
    assert {f"{name}.shaped", f"{name}.gone"} <= set(find_tables("spark_catalog"))
    name = f"{schema}.shaped"
    listed = survey([name, f"{schema}.no_such", shaped]).to_arrow()
    assert listed["table"].to_pylist() == [name, str(shaped), f"{schema}.no_such"]
    assert "no such Delta table" in listed["error"][2].as_py()
    assert survey(name).to_arrow() == listed.slice(0, 1)
    for nothing in ("no_such_thing", "no_such.schema", "no.such.table"):
        words = "no schema, catalog or Delta table"
        refused(partial(survey, nothing), errors.TableNotFoundError, nothing, words)
    refused(partial(survey, f"{schema}.plain"), errors.NotADeltaTableError, "not a Delta table")


@pytest.mark.parametrize("max_file_size", [None, "14 KB"])
def test_a_path_is_surveyed_without_a_job_and_as_the_session_plans_it(
    spark: SparkSession,
    shaped: Path,
    confs: SetConf,
    monkeypatch: pytest.MonkeyPatch,
    max_file_size: str | None,
) -> None:
    monkeypatch.chdir(shaped.parent)
    assert find_tables("table") == ["table"]
    for bound in ("min", "max"):
        confs(f"spark.databricks.delta.optimize.{bound}FileSize", "12000")
    before, jobs = folders.listing(shaped), spark.sparkContext.statusTracker().getJobIdsForGroup()
    (row,) = survey("table", max_file_size=max_file_size).to_arrow().to_pylist()
    assert spark.sparkContext.statusTracker().getJobIdsForGroup() == jobs
    assert folders.listing(shaped) == before
    plan, files = plan_by_log(shaped, max_file_size), open_table(shaped).files()
    assert plan.num_bins > 3
    assert row["files_removed"] == plan.num_files_removed > 0
    assert (row["files_added"], row["bytes_rewritten"]) == (plan.num_files_added, plan.bytes_removed)
    assert (row["gain"], row["gain_per_byte"]) == (plan.gain, plan.gain / plan.bytes_removed)
    for name in ("num_small_files", "skew", "log_bytes", "tombstoned_bytes", "num_commits"):
        assert row[name] == getattr(files.stats(), name)
    assert (row["overlap_column"], row["overlap"]) == ("id", files.overlap("id").mean)


def test_the_last_optimize_is_that_of_the_history(tmp_path: Path) -> None:
    optimize = {"commitInfo": {"operation": "OPTIMIZE", "timestamp": 1_700_000_000_000}}
    handmade.write_log(tmp_path, in_mib(1), [optimize, *map(handmade.unchanged, in_mib(1))], in_mib(1, 2))
    (row,) = survey(tmp_path).to_arrow().to_pylist()
    assert row["last_optimize"] == open_table(tmp_path).history()["timestamp"][1].as_py()
