"""What is said of an exercise's answer; that each solution is right is shown by its notebook."""

import shutil
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import deltalake
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from course import races
from course.answers import ANSWERS
from course.check import check
from pyspark.sql import SparkSession

from compaction_kit import interop, open_table, sink_log
from compaction_kit.datasets import shaped_table
from compaction_kit.errors import InvalidArgumentError
from compaction_kit.sinklog import Policy
from compaction_kit.table import Table
from compaction_kit.text import KIB
from tests import folders
from tests.conftest import SetConf
from tests.sinklog.streams import LINE, make_log

POLICY = Policy(default_interval=3, min_batches_to_retain=2)
OPTIMIZE = "spark.databricks.delta.optimize"
IN_EIGHT_DAYS = datetime.now(UTC) + timedelta(days=8)


def said(exercise: str, answer: Any, *given: Any) -> str:
    """What is said of an answer that isn't right."""
    shown = check(exercise, answer, *given)
    assert not shown.is_right
    return repr(shown)


def means(exercise: str, meanings: Mapping[Any, str], *given: Any) -> None:
    """Assert what is said of each of some wrong answers."""
    for answer, meaning in meanings.items():
        assert meaning in said(exercise, answer, *given), answer


def test_every_exercise_of_the_course_has_a_truth() -> None:
    assert sorted(ANSWERS) == [f"{lesson:02}.{number}" for lesson in range(1, 11) for number in (1, 2, 3)]


@pytest.mark.parametrize("exercise", ANSWERS)
def test_an_exercise_without_an_answer_is_open(exercise: str) -> None:
    shown = check(exercise, None)
    assert repr(shown).startswith("Not answered yet: expected is ")
    assert not shown.is_right
    assert repr(check(exercise, 1, None)) == repr(shown)


@pytest.mark.parametrize(
    ("answer", "verdict"),
    [(4, "Right."), (np.int64(4), "Right."), (5, "Not right yet: expected is the number of a batch.")],
)
def test_an_answer_is_right_or_not_and_the_answer_isnt_shown(answer: int, verdict: str) -> None:
    shown = check("08.1", answer, POLICY)
    assert repr(shown) == verdict
    assert verdict.partition(":")[0].rstrip(".") in shown._repr_html_()
    assert 'role="status"' in shown._repr_html_()


@pytest.mark.parametrize("answer", ["4", [4], {4: 4}])
def test_an_answer_of_another_type_says_what_is_expected(answer: object) -> None:
    assert (
        said("08.1", answer, POLICY)
        == f"Not right yet: this is of type {type(answer).__name__}, and expected is the number of a batch."
    )


def test_collections_are_compared_value_by_value_and_floats_about(tmp_path: Path) -> None:
    table = open_table(shaped_table(tmp_path / "table", partitions=0, files=60, rows=2_000, commits=1))
    plan = table.plan_compaction(max_file_size=256 * KIB)
    paths = table.files().to_arrow()["path"].to_pylist()
    assert check("02.3", paths, table.files()).is_right
    assert "1 of these don't belong there, and 2 are missing" in said(
        "02.3", [*paths[2:], "b"], table.files()
    )
    assert said("02.3", [paths], table.files())
    wrong = {(): "and 60 are missing", (*paths, "c"): "1 of these don't belong there, and 0"}
    means("02.3", wrong, table.files())
    layouts = plan.compare("event_time").layouts.select(["num_files", "point_files", "range_files"])
    counts, points, right = (np.array(column)[[0, 1, 3]] for column in layouts.to_pydict().values())
    assert check("03.3", right * 1.01, plan).is_right
    assert said("03.3", right * 1.2, plan)
    assert said("03.3", right[:2], plan)
    assert said("03.3", [*map(str, right)], plan)
    wrong = {(*counts,): "these are all files", (*points,): "a single time", (*right[[0, 2, 1]],): "second"}
    means("03.3", wrong, plan)
    assert "60 files and a max_file_size of" in said("03.3", right, table.plan_compaction())


def test_what_cant_be_checked_is_a_sentence() -> None:
    sentence = said("03.2", 1, "no table", 128)
    assert sentence.startswith("Not right yet: it can't be checked with what is given ('str' object has no")


def test_an_exercise_that_isnt_there_is_refused() -> None:
    with pytest.raises(InvalidArgumentError, match=r'"11\.1" is unknown: give one of 01'):
        check("11.1", 1)


def test_01_1_wants_the_average_at_both_versions(tmp_path: Path, flights: Path) -> None:
    path = folders.copy(flights, tmp_path / "flights")
    assert "has no version 366" in said("01.1", (3.0, 3.0), open_table(path))
    deltalake.DeltaTable(path).optimize.compact()
    table = open_table(path)
    overlaps = [table.files(version=version).overlap("time_hour") for version in (365, 366)]
    right, most = ([getattr(one, name) for one in overlaps] for name in ("mean", "max"))
    assert check("01.1", right, table).is_right
    meanings = {(1_095, 3): "these are all files", (*right[::-1],): "wrong order", (*most,): "the most"}
    means("01.1", meanings, table)


def test_01_2_and_01_3_compare_with_the_version_before(tmp_path: Path, spark: SparkSession) -> None:
    made = [
        shaped_table(tmp_path / str(files), partitions=0, files=files, rows=2, commits=1)
        for files in (200, 20)
    ]
    assert "the last commit of this table is not a compaction" in said("01.2", 1.0, open_table(made[0]))
    for path in made:
        deltalake.DeltaTable(path).optimize.compact()
    table, other = map(open_table, made)
    factor = table.files(version=table.version - 1).size_bytes / table.files().size_bytes
    assert check("01.2", factor, table).is_right
    saved = table.files(version=table.version - 1).size_bytes - table.files().size_bytes
    meanings = {1 / factor: "after by bytes before", 200.0: "these are files", saved: "the bytes saved"}
    means("01.2", meanings, table)
    assert "20 files were compacted" in said("01.2", factor, other)
    reader = spark.read.format("delta")
    both = [reader.option("versionAsOf", version).load(str(table.path)) for version in (1, 2)]
    tasks = [rows.rdd.getNumPartitions() for rows in both]
    assert check("01.3", tasks, *both).is_right
    wrong = {(200, 1): "these are files", (36, 1): "128 MiB", (*tasks[::-1],): "wrong order"}
    means("01.3", wrong, *both)


def test_02_1_wants_the_hint_deleted(tmp_path: Path) -> None:
    path = shaped_table(tmp_path / "table", partitions=0, files=4, rows=2, commits=4)
    deltalake.DeltaTable(path).create_checkpoint()
    deltalake.DeltaTable(path).delete("id = 0")
    table = open_table(path)
    rows = [row for row in table.log.listing().to_pylist() if row["name"] != "_last_checkpoint"]
    needed = [row["name"] for row in rows if row["needed"]]
    assert "_last_checkpoint is still in the log" in said("02.1", needed, table)
    (tmp_path / "table" / "_delta_log" / "_last_checkpoint").unlink()
    assert check("02.1", needed, table).is_right
    whole, commits = (row["name"] for row in rows), (name for name in needed if name.endswith(".json"))
    meanings = {(*whole,): "that is the whole log", (*commits,): "continue a checkpoint"}
    means("02.1", meanings | {(): "0 of these don't belong there, and 2 are"}, table)
    first, state = table.log.actions(0), table.log.actions(table.version - 1, checkpoint=True)
    assert check("02.2", "commitInfo", first, state).is_right
    means("02.2", dict.fromkeys(("add", "protocol", "metaData"), "the checkpoint has it"), first, state)


def sales(path: Path, names: list[str]) -> Table:
    """A table of 24 files, with a column of names if there are any."""
    rng = np.random.default_rng(1)
    for _ in range(24):
        rows = {"amount": rng.random(300)} | ({"customer": rng.choice(names, 300)} if names else {})
        deltalake.write_deltalake(path, pa.table(rows), mode="append")
    return open_table(path)


def test_03_2_wants_a_compaction_after_which_something_is_left(tmp_path: Path, spark: SparkSession) -> None:
    size, rng = 128 * KIB, np.random.default_rng(1)
    plain, few, many = (
        sales(tmp_path / str(len(names)), names)
        for names in ([], ["a"], [rng.bytes(50).hex() for _ in range(300)])
    )
    assert "no column customer" in said("03.2", 1, plain, size)
    assert "never compacted" in said("03.2", 4, many, size)
    first = [table.plan_compaction(max_file_size=size) for table in (few, many)]
    for plan in first:
        plan.run(strategy="arrow", verify=False)
    assert "the names must be 300, of 100 letters each" in said("03.2", 0, few, size)
    again = many.plan_compaction(max_file_size=size)
    assert check("03.2", again.num_bins, many, size).is_right
    by_default = many.plan_compaction().num_bins
    wrong = {first[1].num_bins: "the first plan", by_default: "own thresholds", 0: "compact the table"}
    means("03.2", wrong, many, size)


def test_03_1_counts_bins_of_a_single_file_as_well(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    for rows in (2_500, 2_500, 7_500, 7_500, 7_500):
        deltalake.write_deltalake(tmp_path / "table", pa.table({"amount": rng.random(rows)}), mode="append")
    table = open_table(tmp_path / "table")
    limit = sum(sorted(table.files().to_arrow()["size_bytes"].to_pylist())[:3]) - 1
    plan = table.plan_compaction(max_file_size=limit)
    assert check("03.1", 4, plan).is_right
    meanings = {1: "a single file count as well", 5: "these are files", 3: "a file can't be cut"}
    means("03.1", meanings, plan)


def test_04_looks_at_what_was_committed(tmp_path: Path, spark: SparkSession) -> None:
    path = shaped_table(tmp_path / "table", partitions=2, files=4, rows=1_000, commits=1)
    table = open_table(path)

    def write(rows: Any, mode: str, data_change: bool) -> None:
        rows.write.format("delta").mode(mode).option("dataChange", data_change).save(path)

    ten, version = spark.read.format("delta").load(path).limit(10), table.version
    assert "no commit of this table appended rows" in said("04.1", 8_000, table.log.commits())
    assert "no overwrite with dataChange=false" in said("04.2", 8_000, table)
    assert 'no zorder_by="value"' in said("04.3", 8, table)
    write(ten, "append", data_change=False)
    assert check("04.1", 8_000, table.log.commits()).is_right
    meanings = {8_010: "these are all rows", 10: "the stream doesn't deliver", 0: "say dataChange=true"}
    means("04.1", meanings, table.log.commits())
    write(spark.read.format("delta").load(path), "overwrite", data_change=False)
    assert "all rows of the version before it" in said("04.2", 8_010, table)
    old = spark.read.format("delta").option("versionAsOf", version).load(path)
    write(old.repartition(8), "overwrite", data_change=False)
    assert check("04.2", 8_000, table).is_right
    num_files = table.files().num_files
    means("04.2", {8_010: "after the append", 10: "overwrite lost", num_files: "these are files"}, table)
    before = table.files().overlap("value").max
    table.plan_compaction(max_file_size=16 * KIB, zorder_by="value").run(verify=False)
    files = table.files()
    assert check("04.3", files.overlap("value").max, table).is_right
    meanings = {before: "before the plan", 1: "never into another one", files.num_files: "all files"}
    means("04.3", meanings, table)


def test_05_wants_the_story_and_the_table_that_are_named(tmp_path: Path, spark: SparkSession) -> None:
    story, other = (
        races.play(tmp_path, name, spark) for name in ("delete with compaction", "append with append")
    )
    assert check("05.1", "ConcurrentAppendException", story).is_right
    assert 'this is the story "append with append"' in said("05.1", "ConcurrentAppendException", other)
    wrong = ("ConcurrentDeleteReadException", "ConcurrentDeleteDeleteException")
    means("05.1", dict.fromkeys(wrong, "an earlier one of the five questions"), story)
    means("05.1", {"MetadataChangedException": "files alone"}, story)
    table = open_table(story.table)
    vacuum = table.plan_vacuum(at=IN_EIGHT_DAYS)
    assert check("05.2", "orphan", vacuum).is_right
    meanings = {"tombstone": "in no version", "ConcurrentAppendException": "why the commit was refused"}
    means("05.2", meanings | {"hello": "expected is one of the reasons"}, vacuum)
    assert "this plan takes nothing" in said("05.2", "orphan", table.plan_vacuum())
    assert "it can't be checked" in said("05.2", "hello", ["hello"])


def test_05_3_wants_everything_deleted_and_nothing_compacted(tmp_path: Path) -> None:
    paths = [shaped_table(tmp_path / name, partitions=0, files=4, rows=10, commits=1) for name in "abc"]
    logs = [open_table(path).log for path in paths]
    assert "nobody has deleted" in said("05.3", "WRITE", logs[0])
    deltalake.DeltaTable(paths[0]).delete("id < 5")
    assert "the table isn't empty" in said("05.3", "DELETE", logs[0])
    deltalake.DeltaTable(paths[1]).delete()
    assert check("05.3", "DELETE", logs[1]).is_right
    made = dict.fromkeys(("CREATE TABLE", "WRITE"), "made the table")
    means("05.3", made | {"OPTIMIZE": "committed nothing"}, logs[1])
    deltalake.DeltaTable(paths[2]).optimize.compact()
    deltalake.DeltaTable(paths[2]).delete()
    assert "the run has committed" in said("05.3", "DELETE", logs[2])
    of_another = open_table(paths[2]).plan_vacuum(at=IN_EIGHT_DAYS)
    assert "all files of this plan were in some version" in said("05.2", "tombstone", of_another)


def test_06_wants_the_delete_the_day_and_both_properties(tmp_path: Path) -> None:
    path = shaped_table(tmp_path / "table", partitions=0, files=4, commits=1)
    table = open_table(path)
    assert "takes 0 files" in said("06.1", 0.0, table.plan_vacuum(at=IN_EIGHT_DAYS), table.files())
    early = table.plan_vacuum(at=IN_EIGHT_DAYS)
    deltalake.DeltaTable(path).delete("id % 100 = 0")
    assert "has changed since" in said("06.1", 0.0, early, table.files())
    assert "takes 0 files" in said("06.1", 0.0, table.plan_vacuum(), table.files())
    gone, kept = table.plan_vacuum(at=IN_EIGHT_DAYS), table.files()
    share = gone.size_bytes / (gone.size_bytes + kept.size_bytes)
    assert check("06.1", share, gone, kept).is_right
    meanings = {0.01: "share of the rows", gone.size_bytes / kept.size_bytes: "what stays"}
    means("06.1", meanings | {float(gone.size_bytes): "these are bytes"}, gone, kept)
    first = table.files(version=1)
    means("06.2", {4: "are files", first.size_bytes: "are bytes", 0: "more than names"}, first)
    log_kept = "delta.logRetentionDuration"
    for answer in ("", log_kept):
        assert "60 days back yet" in said("06.3", answer, table.log)
    kept_for = {f"delta.{name}RetentionDuration": "interval 60 days" for name in ("log", "deletedFile")}
    deltalake.DeltaTable(path).alter.set_table_properties(kept_for)
    assert check("06.3", log_kept, table.log).is_right
    properties = {"delta.deletedFileRetentionDuration": "is in the task", log_kept[6:]: "in front"}
    means("06.3", properties | {f"spark.databricks.{log_kept}": "doesn't know this setting"}, table.log)


def test_07_1_wants_the_stream_run_with_fewer_files(tmp_path: Path) -> None:
    for batch in range(11):
        (tmp_path / str(batch)).touch()
    assert "nothing was removed" in said("07.1", [*range(11)], tmp_path)
    for batch in range(7):
        (tmp_path / str(batch)).unlink()
    assert check("07.1", [7, 8, 9, 10], tmp_path).is_right
    meanings = {(8, 9, 10): "begins one more", (*range(11),): "all batches", (10,): "needs this one"}
    means("07.1", meanings, tmp_path)


def test_07_2_wants_an_overwrite_and_the_sinks_in_order(spark: SparkSession) -> None:
    ids = spark.range(8)
    doubled = ids.union(ids.where("id < 7"))
    assert check("07.2", (7, 0), doubled, ids).is_right
    assert "no row came twice" in said("07.2", (0, 0), ids, ids)
    assert "the sink of ignoreChanges comes first" in said("07.2", (0, 7), ids, doubled)
    meanings = {(0, 7): "wrong order", (7, 7): "skips the whole commit", (15, 8): "all rows of the sinks"}
    means("07.2", meanings, doubled, ids)


def test_07_3_wants_the_batches_by_one_name(tmp_path: Path, spark: SparkSession) -> None:
    def write(name: str, ids: Mapping[int, str]) -> Table:
        for number, app_id in ids.items():
            writer = spark.range(1).write.format("delta").mode("append")
            writer.options(txnAppId=app_id, txnVersion=number).save(str(tmp_path / name))
        return open_table(tmp_path / name)

    numbered = write("one", {5: "a", 3: "a", 6: "a"})
    assert check("07.3", 2, numbered.log).is_right
    means("07.3", {3: "unless its number is larger", 1: "left out", 20: "these are rows"}, numbered.log)
    assert "batch 3 was written too" in said("07.3", 3, write("each", {5: "a", 3: "b", 6: "c"}).log)
    assert "the log has the batches [6]" in said("07.3", 1, write("last", {6: "a"}).log)


def test_08_says_which_batch_and_whose_rows(tmp_path: Path, spark: SparkSession) -> None:
    means("08.1", {2: "the first compaction is written", 3: "two are kept", 7: "compaction goes"}, POLICY)
    log, output = sink_log(make_log(tmp_path / "_spark_metadata", b0=f"v1\n{LINE}")), tmp_path / "output"
    a_year, entry = 365 * 24 * 60, log.pace.entry_bytes
    assert check("08.2", a_year * 200 * entry, log).is_right
    wrong = {a_year * 200.0: "number of entries", a_year * entry: "with one file", 288_000 * entry: "a day"}
    means("08.2", wrong, log)
    spark.range(3).repartition(3).write.json(str(output))
    paths = [*output.glob("*.json")]
    whole, some = (spark.read.schema("id INT").json([*map(str, names)]) for names in (paths, paths[:2]))
    assert "the log still lists all files" in said("08.3", (3, 3), whole, iter(paths))
    assert check("08.3", (2, 3), some, iter(paths)).is_right
    meanings = {(3, 3): "gets fewer", (2, 2): "deletes no data file", (3, 2): "wrong order"}
    means("08.3", meanings, some, paths)
    assert "other files than those of the output" in said("08.3", (3, 2), whole, paths[:2])


def test_09_wants_deletes_batches_and_codes(tmp_path: Path, spark: SparkSession, confs: SetConf) -> None:
    table = open_table(shaped_table(tmp_path / "table", partitions=2, files=4, rows=500, commits=1))
    assert "has no symlink manifest" in said("09.1", (0, 0), table)
    interop.generate_manifest(table)
    assert "delete a row after it is made" in said("09.1", (0, 0), table)
    deltalake.DeltaTable(table.path).delete("id = 7")
    assert check("09.1", (499, 500), table).is_right
    means("09.1", {(1, 0): "as a whole", (1, 1): "as a whole", (500, 499): "wrong order"}, table)
    assert "OPTIMIZE hasn't run on this table" in said("09.2", [2, 3, 4, 5], table)
    steps, whole = (
        open_table(shaped_table(tmp_path / name, partitions=2, files=4, rows=500, commits=1))
        for name in ("steps", "whole")
    )
    confs(f"{OPTIMIZE}.maxFileSize", "30000")
    spark.sql(f"OPTIMIZE delta.`{whole.path}`")
    assert "OPTIMIZE made 1 commit, not four" in said("09.2", [2], whole)
    confs(f"{OPTIMIZE}.batchSize", "1")
    spark.sql(f"OPTIMIZE delta.`{steps.path}`")
    assert check("09.2", [2, 3, 4, 5], steps).is_right
    batch = "each batch is a commit"
    meanings = {(2,): batch, (5,): batch, (1, 2, 3, 4): "of batches", (*range(6),): "made the table"}
    means("09.2", meanings, steps)
    for name in ("code=01", "code=02"):
        (tmp_path / "codes" / name).mkdir(parents=True)
        pq.write_table(pa.table({"id": [1]}), tmp_path / "codes" / name / "part.parquet")
    shutil.copytree(tmp_path / "codes", tmp_path / "numbers")
    tables = {}
    for name, by in (("numbers", "INT"), ("codes", "STRING")):
        spark.sql(f"CONVERT TO DELTA parquet.`{tmp_path}/{name}` PARTITIONED BY (code {by})")
        tables[name] = open_table(tmp_path / name)
    assert "this table has the codes as integer" in said("09.3", "int", tables["numbers"])
    assert "no column code" in said("09.3", "int", steps)
    assert check("09.3", "int", tables["codes"]).is_right
    types = {"string": "gave to CONVERT", "bigint": "a smaller type", "date": "something simpler"}
    means("09.3", types, tables["codes"])


def test_10_1_wants_a_cube_left_alone(tmp_path: Path, spark: SparkSession, confs: SetConf) -> None:
    name = f"delta.`{tmp_path}/clustered`"
    rows = "SELECT id, id % 7 AS customer FROM range(0, 900, 1, 1)"
    spark.sql(f"CREATE TABLE {name} USING delta CLUSTER BY (customer) AS {rows}")
    table = open_table(tmp_path / "clustered")
    assert "not an OPTIMIZE of a clustered table" in said("10.1", (1, 1), table)
    spark.sql(f"OPTIMIZE {name}")
    spark.sql(f"INSERT INTO {name} {rows} LIMIT 10")
    assert "not an OPTIMIZE of a clustered table" in said("10.1", (2, 0), table)
    confs(f"{OPTIMIZE}.clustering.mergeStrategy.minCubeSize.threshold", "1024")
    spark.sql(f"OPTIMIZE {name}")
    assert check("10.1", (1, 1), table).is_right
    means("10.1", {(2, 0): "cubes of 100 GiB", (0, 2): "even alone", (1, 2): "was not left alone"}, table)


def test_10_wants_the_order_by_customer(tmp_path: Path, spark: SparkSession) -> None:
    rows = {
        "time": np.datetime64("2026-03-10", "us") + np.arange(4_000) * np.timedelta64(20, "s"),
        "customer": np.arange(4_000) % 1_000,
        "shop": np.full(4_000, "airport"),
    }
    for begin in range(0, 4_000, 1_000):
        part = pa.table({name: values[begin : begin + 1_000] for name, values in rows.items()})
        deltalake.write_deltalake(tmp_path / "sales", part, mode="append", partition_by=["shop"])
    table = open_table(tmp_path / "sales")
    assert "Z-order" in said("10.3", (4, 4), table)
    plan = table.plan_compaction(max_file_size="8 KiB", zorder_by="customer")
    plan.run(verify=False)
    count = table.files().num_files
    assert check("10.3", (1, count), table).is_right
    alike = {(1, 1): "rows of all customers", (count, count): "sorted by customer"}
    means("10.3", {(count, 1): "wrong order"} | alike, table)

    def within(share: int) -> Any:
        return table.plan_compaction(max_file_size="64 KiB", budget=share * table.files().size_bytes // 100)

    everything = table.plan_compaction(max_file_size="64 KiB").gain
    right = next(share for share in range(1, 101) if 2 * within(share).gain >= everything)
    assert check("10.2", right, within, everything).is_right
    meanings = {right / 100: "in hundredths", right - 1: "less than half", right + 1: "a smaller one"}
    means("10.2", meanings, within, everything)
