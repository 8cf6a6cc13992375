"""Delta to Parquet and back: the rows are the same, nothing is lost, and undo is complete."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

from compaction_kit import interop, open_table
from compaction_kit.errors import (
    EmptyTableError,
    InvalidArgumentError,
    RunCancelled,
    StalePlanError,
    UnsupportedTableError,
    VerificationError,
)
from compaction_kit.handle import Handle
from compaction_kit.interop import convert
from compaction_kit.sql import table_name
from compaction_kit.storage import open_store
from compaction_kit.table import Table
from compaction_kit.verify import Fingerprint, fingerprint
from tests import handmade
from tests.folders import listing

SetConf = Callable[[str, str], None]
CopyOf = Callable[[Path], Path]
ROWS = pa.table({"id": [1, 2, 3]})
COLUMNS = {"id": "long", "p": "string"}


def files_in(folder: Path) -> dict[str, tuple[int, int]]:
    return {path: status for path, status in listing(folder).items() if (folder / path).is_file()}


def by_parts(table: Path, *more: list[handmade.Action], configuration: dict[str, str] | None = None) -> Path:
    """A table by p: "01", "a b" and null; the second file of "01" takes the first one's place."""
    parts = {"p=01/one": "01", "p=01/two": "01", "p=a b/x": "a b", "p=__HIVE_DEFAULT_PARTITION__/n": None}
    adds = {path: handmade.write_data(table, path, ROWS, {"p": value}) for path, value in parts.items()}
    for path, add in adds.items():
        add["add"]["path"] = path.replace(" ", "%20")
    metadata = handmade.metadata(COLUMNS, ["p"], configuration)
    first = [metadata, adds["p=01/one"], adds["p=a b/x"], adds["p=__HIVE_DEFAULT_PARTITION__/n"]]
    return handmade.write_log(table, first, [handmade.remove("p=01/one"), adds["p=01/two"]], *more)


@pytest.mark.spark
def test_a_table_becomes_parquet_with_the_same_rows_and_all_of_it_comes_back(
    spark: SparkSession, tmp_path: Path
) -> None:
    path = by_parts(tmp_path / "table [1]")
    (path / "p=orphan").mkdir()
    shutil.copy(path / "p=01/one", path / "p=orphan/left")
    (path / "deletion_vector_x.bin").write_bytes(b"dead")
    (path / "p=01/.one.crc").write_bytes(b"crc")
    before = files_in(path)
    delta = fingerprint(spark.read.format("delta").load(str(path)))
    plan = interop.plan_to_parquet(open_table(path))
    assert plan.files["path"].to_pylist() == ["p=01/two", "p=__HIVE_DEFAULT_PARTITION__/n", "p=a b/x"]
    moved = dict(zip(plan.moved["path"].to_pylist(), plan.moved["reason"].to_pylist(), strict=True))
    unknown = dict.fromkeys(("deletion_vector_x.bin", "p=orphan/left"), "unknown")
    assert moved == {"p=01/one": "dead"} | unknown
    assert plan.versions_lost == [0]
    assert plan.set_aside == tmp_path / "_table [1].delta-1"
    assert "3 files that version 1 doesn't need, 2 of them unknown to the log" in plan.explain()
    assert "nothing is deleted" in plan._repr_html_()
    assert files_in(path) == before

    result = plan.run()
    assert result.fingerprint == delta
    assert sorted(files_in(path)) == plan.files["path"].to_pylist()
    assert not (path / "p=orphan").exists()
    pattern = str(path).replace("[", r"\[").replace("]", r"\]")
    assert fingerprint(spark.read.schema(result.schema).parquet(pattern).select("id", "p")) == delta
    assert result.differences == {}
    assert "identical: 9 rows" in repr(result)

    table = result.undo()
    assert files_in(path) == before
    assert not plan.set_aside.exists()
    assert table.version == 1
    assert spark.read.format("delta").option("versionAsOf", 0).load(str(path)).count() == 9
    assert fingerprint(spark.read.format("delta").load(str(path))) == delta


@pytest.mark.spark
def test_the_same_files_remain_as_by_vacuum_and_deleting_the_log(
    spark: SparkSession, tmp_path: Path, confs: SetConf
) -> None:
    columns = {"id": "long", "more": "string"}
    old = handmade.write_data(tmp_path / "a", "old", ROWS)
    new = handmade.write_data(tmp_path / "a", "new", pa.table({"id": [4], "more": ["x"]}))
    gone = handmade.write_data(tmp_path / "a", "gone", ROWS)
    handmade.write_log(
        tmp_path / "a",
        [handmade.metadata(columns), old, gone],
        [handmade.remove("gone"), new],
    )
    recipe = Path(shutil.copytree(tmp_path / "a", tmp_path / "b"))
    confs("spark.databricks.delta.retentionDurationCheck.enabled", "false")
    spark.sql(f"VACUUM {table_name(spark, recipe)} RETAIN 0 HOURS").collect()
    shutil.rmtree(recipe / "_delta_log")

    result = interop.plan_to_parquet(open_table(tmp_path / "a")).run()
    assert sorted(files_in(tmp_path / "a")) == sorted(files_in(recipe)) == ["new", "old"]
    read = [fingerprint(spark.read.schema(result.schema).parquet(str(tmp_path / name))) for name in "ab"]
    assert read == [result.fingerprint] * 2


@pytest.mark.spark
def test_what_a_plain_read_makes_of_the_columns_is_reported(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "t"
    columns = {"id": "long", "more": "string", "p": "string"}
    adds = [
        handmade.write_data(path, "p=01/a", ROWS, {"p": "01"}),
        handmade.write_data(path, "p=2/b", ROWS, {"p": "2"}),
    ]
    handmade.write_log(path, [handmade.metadata(columns, ["p"]), *adds])
    result = interop.plan_to_parquet(open_table(path)).run()
    assert result.differences["p"] == "int instead of string"
    assert result.differences["more"].startswith("missing")
    assert "give it result.schema" in result._repr_html_()
    assert {row.p for row in spark.read.schema(result.schema).parquet(str(path)).collect()} == {"01", "2"}

    handmade.write_data(path, "p=2/c", ROWS)
    with pytest.raises(
        InvalidArgumentError, match=r"1 file in .* since it became Parquet, such as p=2/c \(new\)"
    ):
        result.undo()
    (path / "p=2/c").rename(path / "p=2/b")
    (path / "p=01/a").unlink()
    with pytest.raises(InvalidArgumentError, match=r"such as p=01/a \(gone\)"):
        result.undo()


@pytest.mark.spark
def test_links_and_absolute_paths_come_back(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "t"
    dead, live = (handmade.write_data(path, name, ROWS, {"p": "x"}) for name in ("p=x/dead", "p=x/live"))
    (path / "p=x/dead").rename(tmp_path / "dead")
    (path / "p=x/dead").symlink_to("../../dead")
    live["add"]["path"] = f"file:{path}/p=x/live"
    handmade.write_log(path, [handmade.metadata(COLUMNS, ["p"]), dead], [handmade.remove("p=x/dead"), live])
    (tmp_path / "elsewhere").mkdir()
    plan = interop.plan_to_parquet(open_table(path), tmp_path / "elsewhere/aside")
    before = files_in(path)
    assert plan.files["path"].to_pylist() == ["p=x/live"]
    result = plan.run()
    assert sorted(files_in(path)) == ["p=x/live"]
    result.undo()
    assert files_in(path) == before
    assert list((tmp_path / "elsewhere").iterdir()) == []


@pytest.mark.spark
def test_whatever_goes_wrong_all_is_put_back(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = by_parts(tmp_path / "t")
    before = files_in(path)
    plan = interop.plan_to_parquet(open_table(path))

    def run_with(proof: Callable[[DataFrame], Fingerprint]) -> None:
        with monkeypatch.context() as patch:
            patch.setattr(convert, "fingerprint", proof)
            plan.run()

    prints = iter([Fingerprint(9, (0, 0)), Fingerprint(9, (1, 1))])
    with pytest.raises(VerificationError, match="put back, and the table is as it was"):
        run_with(lambda rows: next(prints))
    assert files_in(path) == before

    def interrupted(rows: DataFrame) -> Fingerprint:
        if plan.set_aside.exists():
            raise KeyboardInterrupt
        return fingerprint(rows)

    with pytest.raises(RunCancelled, match="put back, and the table is as it was"):
        run_with(interrupted)
    assert files_in(path) == before

    def written_meanwhile(rows: DataFrame) -> Fingerprint:
        handmade.write_commit(path, 2, [handmade.write_data(path, "p=01/late", ROWS, {"p": "01"})])
        return fingerprint(rows)

    with pytest.raises(StalePlanError, match="everything was put back"):
        run_with(written_meanwhile)
    assert files_in(path).items() > before.items()
    assert open_table(path).version == 2
    with pytest.raises(StalePlanError, match="has changed since the plan was made at version 1"):
        plan.run()


def test_a_run_that_was_killed_is_put_back_by_hand(tmp_path: Path) -> None:
    path = by_parts(tmp_path / "t")
    before = files_in(path)
    plan = interop.plan_to_parquet(open_table(path))

    # Killed before the log was moved: the table is whole, but for its old files.
    def move(name: str) -> None:
        (plan.set_aside / name).parent.mkdir(parents=True, exist_ok=True)
        (path / name).rename(plan.set_aside / name)

    move("p=01/one")
    (plan.set_aside / "p=a b").mkdir()
    assert open_table(path).version == 1
    with pytest.raises(InvalidArgumentError, match=r"exists already.*see interop\.put_back"):
        plan.run()
    with pytest.raises(InvalidArgumentError, match="exists already"):
        interop.plan_to_parquet(open_table(path))
    interop.put_back(path, plan.set_aside)
    assert files_in(path) == before
    with pytest.raises(InvalidArgumentError, match="nothing can be put back: check the path"):
        interop.put_back(path, plan.set_aside)
    # And after it.
    for name in ("p=01/one", "_delta_log"):
        move(name)
    assert isinstance(interop.put_back(path, plan.set_aside), Table)
    assert files_in(path) == before


REFUSED: list[tuple[str, Callable[[Path], object], str]] = [
    (
        "mapping",
        lambda t: by_parts(t, configuration={"delta.columnMapping.mode": "name"}),
        "column mapping",
    ),
    (
        "row ids",
        lambda t: by_parts(t, configuration={"delta.rowTracking.materializedRowIdColumnName": "_row-id"}),
        "it has row tracking",
    ),
    (
        "outside",
        lambda t: by_parts(t, [handmade.add("file:/else/where", partition={"p": "x"})]),
        "1 live file outside",
    ),
    (
        "folder",
        lambda t: by_parts(t, [handmade.add("p=y/f", partition={"p": "x"})]),
        "p=y/f is of the partition p=x",
    ),
    (
        "hidden",
        lambda t: by_parts(t, [handmade.add("p=x/_f", partition={"p": "x"})]),
        "p=x/_f has a name that Spark",
    ),
    (
        "missing",
        lambda t: by_parts(t, [handmade.add("p=x/f", partition={"p": "x"})]),
        "1 live file missing, such",
    ),
]


@pytest.mark.parametrize(
    ("make", "message"), [case[1:] for case in REFUSED], ids=[case[0] for case in REFUSED]
)
def test_a_table_whose_files_are_not_its_rows_is_refused(
    tmp_path: Path, make: Callable[[Path], object], message: str
) -> None:
    make(tmp_path / "t")
    with pytest.raises(UnsupportedTableError) as caught:
        interop.plan_to_parquet(open_table(tmp_path / "t"))
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.spark
def test_deletion_vectors_and_catalog_tables_are_refused(spark: SparkSession, lived: Path) -> None:
    with pytest.raises(UnsupportedTableError, match=r"deletion vectors.*run REORG TABLE"):
        interop.plan_to_parquet(open_table(lived))
    with pytest.raises(UnsupportedTableError, match="a Delta table in a catalog"):
        interop.plan_to_parquet(Table(Handle("default.lived", open_store(str(lived)))))


def test_a_table_without_rows_or_a_place_for_its_log_is_refused(tmp_path: Path) -> None:
    with pytest.raises(EmptyTableError):
        interop.plan_to_parquet(open_table(handmade.write_log(tmp_path / "empty", [])))
    table = open_table(by_parts(tmp_path / "t"))
    places = {tmp_path / "t/_aside": "is within the table", tmp_path / "no/where": "is not a folder"}
    for place, message in places.items():
        with pytest.raises(InvalidArgumentError, match=message):
            interop.plan_to_parquet(table, place)
    elsewhere = Path("/dev/shm")
    if elsewhere.is_dir() and elsewhere.stat().st_dev != tmp_path.stat().st_dev:
        with pytest.raises(InvalidArgumentError, match="on another disk"):
            interop.plan_to_parquet(table, elsewhere / "aside")
    assert interop.plan_to_parquet(table, tmp_path / "aside").set_aside == tmp_path / "aside"
