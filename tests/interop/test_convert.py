"""Parquet to Delta: what the plan says is what CONVERT does, and what it can't do is refused."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, SparkSession

from compaction_kit import interop
from compaction_kit.errors import (
    EmptyTableError,
    InvalidArgumentError,
    RunCancelled,
    RunFailedError,
    StalePlanError,
    TableNotFoundError,
    UnsupportedTableError,
    VerificationError,
)
from compaction_kit.interop import convert
from compaction_kit.verify import Fingerprint, fingerprint
from tests import handmade

pytestmark = pytest.mark.spark


def write(folder: Path, path: str, **columns: Any) -> None:
    file = folder / path
    file.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table(columns or {"id": [1]}), file)


def files_in(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.fixture
def codes(tmp_path: Path) -> Path:
    """A folder by code and day, with a code that looks like a number, a null, and columns that came later."""
    folder = tmp_path / "codes [x]"
    write(folder, "code=01/day=2026-01-01/a.parquet", id=[1, 2])
    write(folder, "code=2/day=2026-01-02/b.parquet", id=[3], label=["x%3Ay"])
    write(
        folder,
        "code=__HIVE_DEFAULT_PARTITION__/day=2026-01-02/c.parquet",
        id=[4],
        label=pa.array([None], pa.string()),
    )
    write(folder, "_old/d.parquet", id=[5])
    (folder / "_SUCCESS").touch()
    return folder


@pytest.mark.works("local disk", "convert")
def test_a_folder_becomes_a_table_of_the_same_rows(spark: SparkSession, codes: Path) -> None:
    before = files_in(codes)
    inferred = interop.plan_convert(codes)
    assert "partitioned by    code int, day date" in inferred.explain()
    plan = interop.plan_convert(codes, "code STRING, day DATE")
    assert (plan.num_files, plan.num_schemas, plan.num_hidden) == (3, 2, 2)
    assert plan.size_bytes == sum(len(data) for name, data in before.items() if "=" in name)
    assert plan.files["partition.code"].to_pylist() == ["01", "2", None]
    assert plan.schema.simpleString() == "struct<id:bigint,label:string,code:string,day:date>"
    assert "2 hidden files left out" in plan._repr_html_()
    assert files_in(codes) == before

    result = plan.run()
    assert result.table.version == 0
    assert result.fingerprint.num_rows == 4
    assert "identical: 4 rows" in repr(result)
    assert result.table.files().num_files == plan.num_files
    (action,) = handmade.actions_of(codes, 0, "metaData")
    assert action["partitionColumns"] == ["code", "day"]
    read = spark.read.format("delta").load(str(codes)).select("id", "code").collect()
    assert {tuple(row) for row in read} == {(1, "01"), (2, "01"), (3, "2"), (4, None)}
    # The files are as they were; only a log came.
    assert {name: data for name, data in files_in(codes).items() if "_delta_log" not in name} == before
    with pytest.raises(InvalidArgumentError, match="is a Delta table already: open it"):
        interop.plan_convert(codes)
    with pytest.raises(InvalidArgumentError, match="is a Delta table already"):
        plan.run()


def test_a_conversion_that_fails_leaves_the_folder_as_it_was(
    spark: SparkSession, codes: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(codes, "code=zz/day=2026-01-02/e.parquet")
    before = files_in(codes)
    plan = interop.plan_convert(codes, "code INT, day DATE")
    with pytest.raises(RunFailedError, match=r"the folder is as it was: .*`?zz`?") as caught:
        plan.run()
    assert "\n" not in str(caught.value)
    assert files_in(codes) == before
    assert not (codes / "_delta_log").exists()

    plan = interop.plan_convert(codes)
    assert plan.partition_schema.simpleString() == "struct<code:string,day:date>"
    write(codes, "code=zz/day=2026-01-02/f.parquet")
    with pytest.raises(StalePlanError, match="have changed since the plan was made: make a new plan"):
        plan.run()
    # Each time, also where an earlier log has been set aside already.
    for name in ("_delta_log_not_verified", "_delta_log_not_verified_1"):
        monkeypatch.setattr(convert, "fingerprint", differing())
        with pytest.raises(
            VerificationError, match=f"set aside as {name}, and the folder is Parquet as it was"
        ):
            interop.plan_convert(codes).run()
        assert not (codes / "_delta_log").exists()
    assert (
        spark.read.schema("id long").parquet(str(codes).replace("[", r"\[").replace("]", r"\]")).count() == 6
    )


def differing() -> Callable[[DataFrame], Fingerprint]:
    """A fingerprint that is another one the second time."""
    prints = iter([Fingerprint(4, (0, 0)), Fingerprint(5, (1, 1))])
    return lambda rows: next(prints)


def test_files_that_java_does_not_find_are_left_out(spark: SparkSession, tmp_path: Path) -> None:
    write(tmp_path, "a.parquet")
    (tmp_path / "b.parquet").symlink_to(tmp_path / "gone")
    (tmp_path / os.fsdecode(b"\xff.parquet")).write_bytes((tmp_path / "a.parquet").read_bytes())
    plan = interop.plan_convert(tmp_path)
    assert (plan.files["path"].to_pylist(), plan.num_hidden) == (["a.parquet"], 0)
    assert plan.run().fingerprint.num_rows == 1


def test_a_conversion_that_is_not_proved_is_taken_back(
    spark: SparkSession, codes: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = files_in(codes)
    seen: list[Fingerprint] = []

    def interrupted(rows: DataFrame) -> Fingerprint:
        if seen:
            raise KeyboardInterrupt
        seen.append(fingerprint(rows))
        return seen[0]

    monkeypatch.setattr(convert, "fingerprint", interrupted)
    with pytest.raises(RunCancelled, match="cancelled: the log was set aside as _delta_log_not_verified"):
        interop.plan_convert(codes).run()
    assert files_in(codes).items() >= before.items()
    assert not (codes / "_delta_log").exists()


def make(folder: Path, *paths: str) -> None:
    for path in paths:
        write(folder, path)


@pytest.mark.parametrize(
    ("paths", "message"),
    [
        (["a.parquet", "sub/b.parquet"], "The folder sub isn't named column=value"),
        (
            ["x=1/a.parquet", "y=1/b.parquet"],
            'The folders "x=1" and "y=1" have different partition columns',
        ),
        (["a.parquet", "x=1/b.parquet"], 'The folders "" and "x=1" have different partition columns'),
        (["x=/a.parquet"], "The folder x= isn't named column=value"),
        (["a.parquet", ".x=1/b.parquet"], "CONVERT reads it and Spark skips it"),
        (["a.parquet", "_x=1.parquet"], "Spark reads it and CONVERT skips it"),
        (["a.parquet", "b._COPYING_"], "CONVERT reads it and Spark skips it"),
        (["a.parquet", "_spark_metadata/0"], "is the output of a stream, and its _spark_metadata says"),
    ],
)
def test_what_convert_and_spark_would_read_differently_is_refused(
    tmp_path: Path, paths: list[str], message: str
) -> None:
    make(tmp_path, *paths)
    with pytest.raises(UnsupportedTableError) as caught:
        interop.plan_convert(tmp_path)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("content", [b"", b"a,b\n1,2\n"])
def test_what_is_no_parquet_is_refused_by_name(tmp_path: Path, content: bytes) -> None:
    make(tmp_path, "a.parquet")
    (tmp_path / "r.csv").write_bytes(content)
    with pytest.raises(UnsupportedTableError, match=r"1 file in .* can't be read as Parquet, such as r\.csv"):
        interop.plan_convert(tmp_path)


def test_columns_that_do_not_go_together_are_named(spark: SparkSession, tmp_path: Path) -> None:
    write(tmp_path / "types", "a.parquet", id=[1])
    write(tmp_path / "types", "b.parquet", id=["x"])
    with pytest.raises(
        UnsupportedTableError, match=r"id is int64 in a.parquet and string in b.parquet; rewrite"
    ):
        interop.plan_convert(tmp_path / "types")
    write(tmp_path / "names", "a.parquet", **{"two words": [1]})
    with pytest.raises(UnsupportedTableError, match='The column "two words" has a character in its name'):
        interop.plan_convert(tmp_path / "names")


@pytest.mark.parametrize(
    ("partition_by", "message"),
    [
        ("day DATE, code INT", "partition_by names day, code, but the folders are named by code, day"),
        ("code INT", "the folders are named by code, day: give these, in this order"),
        ("INT", "partition_by names no column"),
        ("code WORD, day DATE", 'partition_by="code WORD, day DATE" can\'t be read: '),
    ],
)
def test_other_partition_columns_than_the_folders_are_refused(
    spark: SparkSession, codes: Path, partition_by: str, message: str
) -> None:
    with pytest.raises(InvalidArgumentError) as caught:
        interop.plan_convert(codes, partition_by)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_folder_that_is_missing_or_empty_is_refused(tmp_path: Path) -> None:
    with pytest.raises(TableNotFoundError, match="No folder at"):
        interop.plan_convert(tmp_path / "nothing")
    (tmp_path / "_SUCCESS").touch()
    with pytest.raises(EmptyTableError, match="holds no Parquet file"):
        interop.plan_convert(tmp_path)
