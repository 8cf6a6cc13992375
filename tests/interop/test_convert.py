"""Parquet to Delta and back: the rows are the same, and what the conversions can't do is refused."""

import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from py4j.protocol import Py4JNetworkError
from pyspark.sql import DataFrame, SparkSession

from compaction_kit import interop, open_table
from compaction_kit.errors import (
    EmptyTableError,
    InvalidArgumentError,
    ReadOnlyTableError,
    RunCancelled,
    RunFailedError,
    StalePlanError,
    TableNotFoundError,
    UnsupportedTableError,
    VerificationError,
)
from compaction_kit.handle import Handle
from compaction_kit.interop import conversion
from compaction_kit.storage import open_store
from compaction_kit.table import Table
from compaction_kit.verify import Fingerprint, fingerprint
from tests import folders, handmade
from tests.refusals import refused
from tests.releases import since_spark

pytestmark = pytest.mark.usefixtures("spark")

ROWS = pa.table({"id": [1, 2, 3]})


def write(folder: Path, path: str, **columns: Any) -> None:
    file = folder / path
    file.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table(columns or {"id": [1]}), file)


def files_in(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def second_time(act: Callable[[DataFrame], Fingerprint]) -> Callable[[DataFrame], Fingerprint]:
    """Return a function that computes a fingerprint the first time, and calls `act` the second time."""
    acts = iter([fingerprint, act])
    return lambda rows: next(acts)(rows)


def other_rows(rows: DataFrame) -> Fingerprint:
    return fingerprint(rows) + Fingerprint(0, (1, 0))


def interrupt(_: DataFrame) -> Fingerprint:
    raise KeyboardInterrupt


def java_ends(_: DataFrame) -> Fingerprint:
    raise Py4JNetworkError


@pytest.fixture
def codes(tmp_path: Path) -> Path:
    """A folder by code and day, with a code that looks like a number, a null, and columns that came later."""
    folder = tmp_path / "codes [x]"
    write(folder, "code=01/day=2026-01-01/a.parquet", id=[1, 2])
    write(folder, "code=2/day=2026-01-02/b.parquet", id=[3], label=["x%3Ay"])
    null = pa.array([None], pa.string())
    write(folder, "code=__HIVE_DEFAULT_PARTITION__/day=2026-01-02/c.parquet", id=[4], label=null)
    write(folder, "_old/d.parquet", id=[5])
    (folder / "_SUCCESS").touch()
    return folder


@pytest.mark.works("local disk", "convert")
def test_a_folder_becomes_a_table_of_the_same_rows(spark: SparkSession, codes: Path) -> None:
    before = files_in(codes)
    assert "partitioned by    code int, day date" in interop.plan_convert(codes).explain()
    plan = interop.plan_convert(codes, "code STRING, day DATE")
    assert (plan.num_files, plan.partition_columns) == (3, ("code", "day"))
    assert plan.size_bytes == sum(len(data) for name, data in before.items() if "=" in name)
    assert plan.schema.simpleString() == "struct<id:bigint,label:string,code:string,day:date>"
    assert files_in(codes) == before

    result = plan.run()
    assert (result.table.version, result.table.files().num_files) == (0, plan.num_files)
    assert "identical: 4 rows" in repr(result)
    (action,) = handmade.actions_of(codes, 0, "metaData")
    assert action["partitionColumns"] == ["code", "day"]
    read = spark.read.format("delta").load(str(codes)).select("id", "code").collect()
    assert {tuple(row) for row in read} == {(1, "01"), (2, "01"), (3, "2"), (4, None)}
    assert {name: data for name, data in files_in(codes).items() if "_delta_log" not in name} == before
    for again in (partial(interop.plan_convert, codes), plan.run):
        refused(again, InvalidArgumentError, "is a Delta table already: open it")


def test_a_folder_by_time_becomes_a_table_of_the_same_rows(spark: SparkSession, tmp_path: Path) -> None:
    for hour in ("12%3A00%3A00", "12%3A30%3A00.5"):
        write(tmp_path, f"timestamp=2026-01-01 {hour}/a.parquet", id=[1, 2])
    plan = interop.plan_convert(tmp_path)
    assert plan.partition_schema.simpleString() == "struct<timestamp:timestamp>"
    plan.run()
    times = spark.read.format("delta").load(str(tmp_path)).selectExpr("CAST(timestamp AS STRING)").distinct()
    assert {row[0][11:] for row in times.collect()} == {"12:00:00", "12:30:00.5"}


def test_a_conversion_that_fails_leaves_the_files_and_no_log(
    codes: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(codes, "code=zz/day=2026-01-02/e.parquet")
    before = files_in(codes)
    write(codes, ".x=2/e.parquet")
    refused(interop.plan_convert(codes).run, RunFailedError, "the folder is as it was", ".x=2")
    shutil.rmtree(codes / ".x=2")
    assert files_in(codes) == before

    plan = interop.plan_convert(codes)
    assert plan.partition_schema.simpleString() == "struct<code:string,day:date>"
    write(codes, "code=zz/day=2026-01-02/f.parquet")
    refused(plan.run, StalePlanError, "have changed since the plan was made: make a new plan")
    # A log that is already written is renamed.
    plan = interop.plan_convert(codes)
    for act, kind, renamed in (
        (other_rows, VerificationError, "renamed to _delta_log_not_verified_1, and the folder is Parquet"),
        (interrupt, RunCancelled, "cancelled: the log was renamed to _delta_log_not_verified_2"),
        (java_ends, RunFailedError, "Java has ended: restart the kernel; the log was renamed to"),
    ):
        monkeypatch.setattr(conversion, "fingerprint", second_time(act))
        refused(plan.run, kind, renamed)
    assert files_in(codes).items() >= before.items()
    assert not (codes / "_delta_log").exists()


@pytest.mark.parametrize("path", [".x=2/b.parquet", "sub/b.parquet", "y=1/b.parquet"])
def test_files_that_spark_and_convert_read_differently_make_no_table(tmp_path: Path, path: str) -> None:
    write(tmp_path, "x=1/a.parquet")
    write(tmp_path, path)
    with pytest.raises((VerificationError, RunFailedError, UnsupportedTableError)):
        interop.plan_convert(tmp_path).run()
    assert not (tmp_path / "_delta_log").exists()


def test_what_cant_be_converted_is_refused(codes: Path, tmp_path: Path) -> None:
    write(tmp_path / "types", "a.parquet", id=[1])
    write(tmp_path / "types", "b.parquet", id=["x"])
    write(tmp_path / "text", "a.parquet")
    (tmp_path / "text/r.csv").write_bytes(b"a,b\n1,2\n")
    (tmp_path / "empty").mkdir()
    write(tmp_path / "plain", "a.parquet")
    write(tmp_path / "folders", "p=1/a.parquet")
    write(tmp_path / "folders", "q=1/a.parquet")
    write(tmp_path / "names", "a.parquet", **{"a b": [1]})
    write(tmp_path / "nulls", "p=__HIVE_DEFAULT_PARTITION__/a.parquet")
    for name, kind, words in (
        ("types", UnsupportedTableError, ("Spark can't read", "BIGINT", "STRING")),
        ("text", UnsupportedTableError, ("Spark can't read", "r.csv")),
        ("folders", UnsupportedTableError, ("Spark can't read", "#0: ", "#1: ")),
        ("names", UnsupportedTableError, ('no column named "a b": rename it in the files',)),
        ("nulls", UnsupportedTableError, ("VOID: give p another type, such as STRING, by partition_by",)),
        ("nothing", TableNotFoundError, ("No folder at",)),
        ("empty", EmptyTableError, ("holds no Parquet file",)),
    ):
        error = refused(partial(interop.plan_convert, tmp_path / name), kind, *words)
        assert "org.apache" not in str(error)
    for partition_by, message in (
        ("day DATE, code INT", "partition_by names day, code, but the folders are named by code, day"),
        ("INT", "partition_by names no column"),
        ("code WORD, day DATE", 'partition_by="code WORD, day DATE" can\'t be read: '),
        ("code", 'write it as "code STRING, day DATE"'),
    ):
        refused(partial(interop.plan_convert, codes, partition_by), InvalidArgumentError, message)
    with_none = partial(interop.plan_convert, tmp_path / "plain", "day DATE")
    refused(with_none, InvalidArgumentError, "names day, but the folder is not partitioned: leave")
    without_zone = partial(interop.plan_convert, codes, "code INT, day TIMESTAMP_NTZ")
    refused(without_zone, UnsupportedTableError, str(codes), "TIMESTAMP_NTZ: give day another type")


# Before Spark 4.0, a folder whose value isn't of the type is read as null, and CONVERT refuses it.
@since_spark("4.0")
def test_types_that_do_not_fit_the_folders_are_refused(codes: Path) -> None:
    types = "code DATE, day DATE"
    message = f'partition_by="{types}" doesn\'t fit the folders: '
    refused(partial(interop.plan_convert, codes, types), InvalidArgumentError, message)


def by_parts(table: Path, *more: list[handmade.Action], configuration: dict[str, str] | None = None) -> Path:
    """A table partitioned by p: "01", "a b" and null; the second file of "01" replaces the first."""
    parts = {"p=01/one": "01", "p=01/two": "01", "p=a b/x": "a b", "p=__HIVE_DEFAULT_PARTITION__/n": None}
    adds = {path: handmade.write_data(table, path, ROWS, {"p": value}) for path, value in parts.items()}
    for path, add in adds.items():
        add["add"]["path"] = path.replace(" ", "%20")
    metadata = handmade.metadata({"id": "long", "p": "string"}, ["p"], configuration)
    first = [metadata, adds["p=01/one"], adds["p=a b/x"], adds["p=__HIVE_DEFAULT_PARTITION__/n"]]
    return handmade.write_log(table, first, [handmade.remove("p=01/one"), adds["p=01/two"]], *more)


def test_a_table_becomes_parquet_with_the_same_rows_and_comes_back(
    spark: SparkSession, tmp_path: Path
) -> None:
    path = by_parts(tmp_path / "table [1]")
    (path / "p=orphan").mkdir()
    shutil.copy(path / "p=01/one", path / "p=orphan/left")
    (path / "deletion_vector_x.bin").write_bytes(b"dead")
    before = files_in(path)
    delta = fingerprint(spark.read.format("delta").load(str(path)))
    plan = interop.plan_to_parquet(open_table(path))
    assert plan.files["path"].to_pylist() == ["p=01/two", "p=__HIVE_DEFAULT_PARTITION__/n", "p=a b/x"]
    assert plan.moved["path"].to_pylist() == ["deletion_vector_x.bin", "p=01/one", "p=orphan/left"]
    assert plan.set_aside == tmp_path / "_table [1].delta-1"
    assert "the log and 3 removed files" in plan.explain()
    assert files_in(path) == before

    result = plan.run()
    assert result.fingerprint == delta
    assert sorted(files_in(path)) == plan.files["path"].to_pylist()
    pattern = str(path).replace("[", r"\[").replace("]", r"\]")
    assert fingerprint(spark.read.schema(plan.schema).parquet(pattern).select("id", "p")) == delta
    assert "identical: 9 rows, 2 hashes over every column, read by Spark, with the table's schema" in repr(
        result
    )

    shutil.copytree(plan.set_aside, path, dirs_exist_ok=True)
    assert files_in(path) == before
    assert open_table(path).version == 1
    assert spark.read.format("delta").option("versionAsOf", 0).load(str(path)).count() == 9
    again = partial(interop.plan_to_parquet, open_table(path))
    refused(again, InvalidArgumentError, "has a log already: move it elsewhere")


def test_nothing_is_moved_unless_the_rows_are_the_same_and_the_table_is_as_planned(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = by_parts(tmp_path / "t")
    before = files_in(path)
    plan = interop.plan_to_parquet(open_table(path))
    with folders.no_permission(path, path):
        refused(plan.run, ReadOnlyTableError, f"{path} can't be written to")
    assert not plan.set_aside.exists()
    for act, error in ((other_rows, VerificationError), (interrupt, RunCancelled)):
        monkeypatch.setattr(conversion, "fingerprint", second_time(act))
        refused(plan.run, error, "nothing was moved")
        assert files_in(path) == before
    monkeypatch.setattr(conversion, "fingerprint", fingerprint)

    # After a run was killed, a new plan does the rest.
    (plan.set_aside / "p=01").mkdir(parents=True)
    (path / "p=01/one").rename(plan.set_aside / "p=01/one")
    handmade.write_commit(path, 2, [handmade.write_data(path, "p=01/late", ROWS, {"p": "01"})])
    refused(plan.run, StalePlanError, "has changed since the plan was made at version 1")
    assert open_table(path).version == 2
    result = interop.plan_to_parquet(open_table(path)).run()
    assert result.fingerprint.num_rows == 12


@pytest.mark.parametrize(
    ("add", "configuration", "message"),
    [
        (None, {"delta.columnMapping.mode": "name"}, "column mapping"),
        ("file:/else/where", {}, "Spark wouldn't read /else/where as a file of the folder 'p=x'"),
        ("p=y/f", {}, "Spark wouldn't read p=y/f as a file of the folder 'p=x'"),
        ("p=x/_f", {}, "Spark wouldn't read p=x/_f"),
    ],
)
def test_a_table_whose_files_are_not_its_rows_is_refused(
    tmp_path: Path, add: str | None, configuration: dict[str, str], message: str
) -> None:
    more = [[handmade.add(add, partition={"p": "x"})]] if add else []
    table = by_parts(tmp_path / "t", *more, configuration=configuration)
    refused(partial(interop.plan_to_parquet, table), UnsupportedTableError, message)


def test_a_plan_says_that_row_ids_are_in_the_log_alone(tmp_path: Path) -> None:
    for tracked, name in ((True, "tracked"), (False, "plain")):
        configuration = {"delta.enableRowTracking": str(tracked).lower()}
        table = open_table(by_parts(tmp_path / name, configuration=configuration))
        assert ("row IDs and commit versions" in interop.plan_to_parquet(table).explain()) == tracked


def test_deletion_vectors_catalog_tables_and_empty_tables_are_refused(lived: Path, tmp_path: Path) -> None:
    named = Table(Handle("default.lived", open_store(str(lived))))
    empty = open_table(handmade.write_log(tmp_path / "empty", []))
    for table, kind, words in (
        (open_table(lived), UnsupportedTableError, "run REORG TABLE"),
        (named, UnsupportedTableError, "it is registered in a catalog"),
        (empty, EmptyTableError, ""),
    ):
        refused(partial(interop.plan_to_parquet, table), kind, words)
