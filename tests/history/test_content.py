import json
import re
import time
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from compaction_kit import errors, open_table
from compaction_kit.execute.failures import ContentDiffers
from compaction_kit.execute.jobs import WorkCancelled
from compaction_kit.execute.proof import compare
from compaction_kit.execute.work import Recorder, Run
from compaction_kit.handle import Handle
from compaction_kit.history import content, diff_versions
from compaction_kit.storage import LocalStore
from tests import checkpoints, handmade
from tests.ageing import age
from tests.chance import examples
from tests.conftest import CopyOf, SetConf
from tests.handmade import add, metadata, remove, unchanged, write_log
from tests.refusals import refused


@pytest.fixture(scope="module")
def claims(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Overwrites, with dataChange=false in versions 1, 3 and 4: version 1 drops 100 of 1,000 rows, 2 puts
    them back, 3 changes a row, and 4 writes the same rows to one file.
    """
    table, now = tmp_path_factory.mktemp("claims") / "table", int(time.time() * 1_000)
    commits, live = list[list[handmade.Action]](), list[handmade.Action]()
    for start, end, num_files in ((0, 1_000, 2), (0, 900, 1), (0, 1_000, 2), (1, 1_001, 2), (1, 1_001, 1)):
        gone = [remove(one["add"]["path"], now) for one in live]
        parts = np.array_split(np.arange(start, end), num_files)
        live = [
            handmade.write_data(table, f"{len(commits)}-{ids[0]}", pa.table({"id": ids})) for ids in parts
        ]
        says = unchanged if len(commits) in (1, 3, 4) else dict
        commits.append(list(map(says, [*gone, *live])))
    return write_log(table, *commits)


def test_a_claim_to_change_no_data_proves_nothing_and_reading_the_rows_does(
    spark: SparkSession, copy_of: CopyOf, claims: Path, confs: SetConf
) -> None:
    confs("spark.sql.files.ignoreMissingFiles", "true")
    table = open_table(copy_of(claims), spark)
    assert table.versions()["same_content_by"].to_pylist() == [None] * 5
    proofs = [table.diff(end - 1, end, verify=True).same_content_by for end in range(1, 5)]
    assert proofs == [None, None, None, "proved"]
    unknown = "not known to be the same; verify=True compares the rows"
    for end, by_log, by_rows in (
        (1, "different: 100 rows fewer", "different: other rows"),
        (2, unknown, "the same: proved"),
    ):
        for verify, words in ((False, by_log), (True, by_rows)):
            diff = table.diff(0, end, verify=verify)
            assert diff.facts()["content"] == words
            assert diff.same_content == words.startswith("the same")
    assert table.diff(1, 0).difference == "100 rows more"
    assert table.versions()["records_change"].to_pylist() == [1_000, -100, 100, 0, 0]
    # A vacuum doesn't take such a commit for a copy of the deleted content.
    age(table.path, 1)
    later = datetime.now(UTC) + timedelta(days=6, minutes=1)
    vacuum = table.plan_vacuum(at=later)
    assert (vacuum.versions_lost, vacuum.content_survives_as) == ([0, 1, 2, 3], {})
    assert "same content can still be read" not in vacuum.explain()
    # They still differ after a later version has dropped the column.
    handmade.write_commit(table.path, 5, [metadata({"note": "string"})])
    assert table.diff(2, 3, verify=True).same_content_by is None
    refused(
        partial(table.diff(3, 4).paths, "nope"), errors.InvalidArgumentError, 'change="nope" is no change'
    )
    # Versions whose files are gone are not compared.
    for path in table.diff(3, 4).paths("removed"):
        (table.path / path).unlink()
    refused(partial(table.diff, 3, 4, verify=True), errors.InvalidArgumentError, "3 and 4 can't be compared")
    assert table.diff(4, 5, verify=True).facts()["content"] == "different: other columns"


def test_a_file_in_another_partition_is_not_proved_the_same(spark: SparkSession, tmp_path: Path) -> None:
    one = handmade.write_data(tmp_path, "a", pa.table({"id": [0]}), {"p": "1"})["add"]
    other = unchanged({"add": one | {"partitionValues": {"p": "2"}}})
    first = [metadata({"id": "long", "p": "string"}, ["p"]), {"add": one}]
    # Here p is a column in the file, not a partition column.
    whole = handmade.write_data(tmp_path, "b", pa.table({"id": [0], "p": ["1"]}))
    unpartitioned = [metadata({"id": "long", "p": "string"}), remove("a"), whole]
    null = [first[0], remove("b"), handmade.write_data(tmp_path, "c", pa.table({"id": [0]}))]
    write_log(tmp_path, first, [other], [{"commitInfo": {}}], unpartitioned, null)
    table = open_table(tmp_path, spark)
    assert [table.diff(*pair, verify=True).same_content_by for pair in ((0, 3), (3, 4))] == ["proved", None]
    diff = table.diff(0, 1, verify=True)
    assert (diff.same_content_by, diff.difference) == (None, "other rows")
    assert table.diff(1, 2, verify=True).same_content_by == "identical files"
    # The log alone doesn't show that they are the same either.
    assert table.versions()["same_content_as"].to_pylist() == [None, 2, 1, None, None]
    by = [open_table(tmp_path).diff(0, version).same_content_by for version in (0, 1, 2)]
    assert by == ["identical files", None, None]


@pytest.mark.spark
def test_columns_that_are_found_by_their_ids_are_compared(
    spark: SparkSession, tmp_path: Path, confs: SetConf
) -> None:
    # Delta turns the setting on when it plans a read itself, and leaves it on.
    confs("spark.sql.parquet.fieldId.read.enabled", "false")
    known = {"delta.columnMapping.id": 1, "delta.columnMapping.physicalName": "col-1"}
    mapped = metadata(configuration={"delta.columnMapping.mode": "id"}, of_columns=known)
    field = pa.schema([pa.field("x", pa.int64(), metadata={"PARQUET:field_id": "1"})])
    one, other = (handmade.write_data(tmp_path, f"{n}", pa.table({"x": [n]}, field)) for n in (1, 2))
    write_log(tmp_path, [handmade.protocol(2, 5), mapped, one], [unchanged(remove("1")), unchanged(other)])
    table = open_table(tmp_path, spark)
    assert table.diff(0, 1, verify=True).same_content_by is None
    seen, size = list[int](), one["add"]["size"]
    plan = Mock(bytes_removed=size, num_bins=1)
    record = Recorder(lambda progress: seen.append(progress.bytes_compared), plan, verify=True)
    with pytest.raises(ContentDiffers, match=r": 1 row, .* in 1 file to be .*, 2 rows, .* in 2 to "):
        compare(Run(table.handle, plan, record, verify=True), [one], [other, one])
    assert (size // 2 in seen, record.bytes_compared) == (True, size)
    record = Recorder(lambda progress: 1 // (not progress.bytes_compared), plan, verify=True)
    with pytest.raises(WorkCancelled):
        compare(Run(table.handle, plan, record, verify=True), [one], [one])


def test_a_comment_or_a_default_is_no_other_column(tmp_path: Path) -> None:
    nested = handmade.struct_of({"s": handmade.struct_of({"n": "long"})})
    column, inner = nested["fields"][0], nested["fields"][0]["type"]["fields"][0]
    heads = [metadata({}), metadata({})]
    heads[0]["metaData"]["schemaString"] = json.dumps(nested)
    column["metadata"] = inner["metadata"] = {"comment": "the key"}
    inner["metadata"] |= {"CURRENT_DEFAULT": "0", "delta.identity.highWaterMark": 7}
    inner["nullable"] = False
    heads[1]["metaData"]["schemaString"] = json.dumps(nested)
    table = open_table(write_log(tmp_path, [heads[0], add("a")], [heads[1]]))
    for verify in (False, True):
        diff = table.diff(0, 1, verify=verify)
        assert (diff.same_content_by, diff.difference) == ("identical files", None)
    assert table.versions()["same_content_as"].to_pylist() == [1, 0]


@pytest.mark.spark
def test_a_column_with_another_name_in_the_files_is_compared_by_its_values(
    spark: SparkSession, tmp_path: Path
) -> None:
    heads = [metadata(configuration={"delta.columnMapping.mode": "none"})]
    for name in ("id", "other"):
        mapped = {"delta.columnMapping.id": 1, "delta.columnMapping.physicalName": name}
        heads.append(metadata(configuration={"delta.columnMapping.mode": "name"}, of_columns=mapped))
    one = handmade.write_data(tmp_path, "a", pa.table({"id": [1]}))
    write_log(tmp_path, [handmade.protocol(2, 5), heads[0], one], *([head] for head in heads[1:]))
    table = open_table(tmp_path, spark)
    diffs = [table.diff(0, end, verify) for end in (1, 2) for verify in (False, True)]
    assert [diff.same_content for diff in diffs] == [False, True, False, False]
    assert [diff.difference for diff in diffs] == [None, None, None, "other rows"]


INFOS: dict[str, handmade.Action] = {
    "OPTIMIZE": {"operation": "OPTIMIZE"},
    "REORG": {"operation": "REORG"},
    "compaction_kit": {"operation": "WRITE", "userMetadata": "mine; compaction_kit rewrite, plan 0a1b2c3d"},
    "proved": {
        "operation": "OPTIMIZE",
        "userMetadata": "mine; compaction_kit arrow, plan 0a1b2c3d, proved 10 rows 1f -2e by DuckDB+Spark",
    },
    "WRITE": {"operation": "WRITE", "userMetadata": "mine"},
    "none": {},
}


@pytest.mark.parametrize(
    ("name", "before", "after", "grade"),
    [
        *((name, 10, 10, "row counts agree") for name in ("OPTIMIZE", "REORG", "compaction_kit")),
        *(("proved", 10, 10, "proved"), ("proved", 10, 9, None), ("proved", 9, 9, "row counts agree")),
        *((name, 10, 10, None) for name in ("WRITE", "none")),
        *(("OPTIMIZE", *counts, None) for counts in ((10, 9), (None, 10), (10, None))),
    ],
)
def test_a_commit_that_names_itself_a_rewrite_needs_row_counts_that_agree(
    tmp_path: Path, name: str, before: int | None, after: int | None, grade: str | None
) -> None:
    vector = handmade.vector("0rJua", cardinality=3)
    first = add("a", records=before and before + 3, vector=vector)
    rewrite = map(unchanged, (remove("a", vector=vector), add("b", records=after)))
    # A rewrite with the same row counts that also changes the columns.
    other = metadata({"id": "long", "c": "long"}), *map(unchanged, (remove("b"), add("c", records=after)))
    info = {"commitInfo": INFOS[name]}
    table = open_table(write_log(tmp_path, [first], [info, *rewrite], [info, *other]))
    assert table.diff(0, 1).same_content_by == grade
    assert table.versions()["same_content_by"].to_pylist() == [grade, grade, None]


def test_a_proof_stays_one_beside_a_rewrite_whose_row_counts_agree(tmp_path: Path) -> None:
    names = ("OPTIMIZE", "proved", "proved")
    rewrites = [
        [{"commitInfo": INFOS[name]}, *map(unchanged, (remove(old), add(new)))]
        for name, old, new in zip(names, "abc", "bcd", strict=True)
    ]
    table = open_table(write_log(tmp_path, [add("a")], *rewrites))
    found = {other: table.diff(3, other).same_content_by for other in range(3)}
    assert found == {0: "row counts agree", 1: "proved", 2: "proved"}
    assert table.plan_restore(1).explain().startswith("The rows stay the same: proved.")


@pytest.mark.usefixtures("spark")
def test_a_proof_stays_with_the_commit(changed: Path) -> None:
    result = open_table(changed).plan_compaction().run(strategy="arrow")
    assert open_table(changed).versions()["same_content_by"].to_pylist()[4:] == ["proved"] * 2
    (info,) = handmade.actions_of(changed, 5, "commitInfo")
    assert result.fingerprint is not None
    proof = "proved 1050 rows {:x} {:x} by DuckDB".format(*result.fingerprint.hash_sums)
    assert re.fullmatch(rf"compaction_kit arrow, plan \w+, {proof}", info["userMetadata"])


def test_ctrl_c_ends_a_comparison_in_a_sentence(
    spark: SparkSession, claims: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(content, "compare_quickly", Mock(side_effect=WorkCancelled))
    compare_rows = partial(open_table(claims, spark).diff, 3, 4, verify=True)
    refused(compare_rows, errors.RunCancelled, "Cancelled: the rows were not compared.")


@pytest.mark.usefixtures("spark")
def test_a_proof_after_the_commit_stays_with_the_open_table(changed: Path) -> None:
    table = open_table(changed)
    assert table.plan_compaction().run(strategy="optimize").verified
    for one, grade in ((table, "proved"), (open_table(changed), "row counts agree")):
        assert one.versions()["same_content_by"].to_pylist()[4:] == [grade] * 2
        assert one.plan_restore(4).explain().startswith(f"The rows stay the same: {grade}.")
    table.plan_restore(4).run()
    assert not table.plan_compaction().run(strategy="optimize", verify=False).verified
    assert table.diff(6, 7).same_content_by == "row counts agree"


# Each commit: its dataChange, its operation, and the files that are live after it.
COMMITS = st.lists(
    st.tuples(st.booleans(), st.sampled_from(sorted(INFOS)), st.sets(st.sampled_from("abcdef"), min_size=1)),
    min_size=1,
    max_size=8,
)
RECORDS = {"a": 1, "b": 1, "c": 2, "d": 2, "e": 3, "f": None}


@pytest.mark.long
@given(commits=COMMITS)
@examples(8, divided_by=5)
def test_versions_with_the_same_content_have_the_same_files_or_as_many_rows_by_trusted_operations(
    tmp_path_factory: pytest.TempPathFactory, commits: list[tuple[bool, str, set[str]]]
) -> None:
    folder = tmp_path_factory.mktemp("log")
    live: set[str] = set()
    log, states = [], []
    for changes, name, files in commits:
        actions = [remove(path) for path in sorted(live - files)]
        actions += [add(path, records=RECORDS[path]) for path in sorted(files - live)]
        log.append([{"commitInfo": INFOS[name]}, *(actions if changes else map(unchanged, actions))])
        states.append(frozenset(live := files))
    table = open_table(write_log(folder, *log))
    for one, other in product(range(len(log)), repeat=2):
        by = table.diff(one, other).same_content_by
        assert (by == "identical files") == (states[one] == states[other])
        if by and by != "identical files":
            assert total(states[one] - states[other]) == total(states[other] - states[one])
            # A proof of another number of rows doesn't count.
            assert by == "row counts agree"
            assert any(not changes and name not in ("WRITE", "none") for changes, name, _ in commits)
    for row in table.versions().to_pylist():
        other = row["same_content_as"]
        same = None if other is None else table.diff(row["version"], other).same_content_by
        assert row["same_content_by"] == same


def total(paths: frozenset[str]) -> int:
    return sum(10**9 if (number := RECORDS[path]) is None else number for path in paths)


def rows(table: Path, start: int, end: int) -> set[tuple[Any, ...]]:
    files = open_table(table).diff(start, end).files
    return {(row["path"], row["change"], row["num_records"]) for row in files.to_pylist()}


@pytest.fixture
def changed_thrice(tmp_path: Path) -> Path:
    vector = handmade.vector("0rJua", cardinality=3)
    p, q = {"p": "1"}, {"p": None}
    return write_log(
        tmp_path,
        [metadata({"id": "long", "p": "string"}, ["p"]), add("a", 10, p)],
        [add("b", 20, q, records=None)],
        [add("a", 10, p, vector=vector), remove("a")],
        [{"commitInfo": {"operation": "SET TBLPROPERTIES"}}],
    )


def test_a_diff_has_the_files_of_one_side_alone_with_their_live_rows(changed_thrice: Path) -> None:
    assert rows(changed_thrice, 0, 1) == {("b", "added", None)}
    assert rows(changed_thrice, 0, 3) == {("a", "removed", 10), ("a", "added", 7), ("b", "added", None)}
    assert rows(changed_thrice, 3, 0) == {("a", "added", 10), ("a", "removed", 7), ("b", "removed", None)}
    diff = open_table(changed_thrice).diff(0, 3)
    assert (diff.num_files_added, diff.num_files_removed) == (2, 1)
    assert (diff.bytes_added, diff.bytes_removed) == (30, 10)
    # Unknown where one file has no statistics.
    assert (diff.records_added, diff.records_removed) == (None, 10)
    assert diff.commits["data_change"].to_pylist() == [True, True, False]
    says = "3 commits apart|2 added, 1 removed|30 B added, 10 B removed|unknown added, 10 removed|1, 2|"
    assert says in "|".join(diff.facts().values())
    assert open_table(changed_thrice).diff(3, 0).commits == diff.commits
    none = open_table(changed_thrice).diff(3, 3).facts()
    assert (none["rows in them"], none["commits with dataChange=true"]) == ("0 added, 0 removed", "none")
    assert open_table(changed_thrice).versions()["records_change"].to_pylist() == [10, None, -3, 0]
    # Another version may have other partition columns.
    other = metadata({"id": "long", "q": "string"}, ["q"]), remove("b"), add("c", partition={"q": "2"})
    handmade.write_commit(changed_thrice, 4, other)
    assert open_table(changed_thrice).diff(3, 4).files.column_names[-2:] == ["partition.q", "partition.p"]
    # No commit changes data between versions of the same content.
    same = {(2, 3): True, (3, 2): True, (1, 2): False, (1, 1): True}
    assert {pair: open_table(changed_thrice).diff(*pair).same_content for pair in same} == same


@pytest.mark.parametrize("version", [-1, 4, 1.5, "1", True])
def test_a_version_out_of_range_is_refused_in_one_sentence(changed_thrice: Path, version: Any) -> None:
    opened = open_table(changed_thrice)
    for call in (opened.plan_restore, opened.files, partial(opened.diff, 0)):
        refused(partial(call, version), errors.InvalidArgumentError, f"version={errors.show_value(version)} ")


def test_a_diff_of_files_after_a_checkpoint_does_not_open_it(tmp_path: Path) -> None:
    commits = [[handmade.protocol(), metadata()], [add("a")], [add("b")], [remove("b"), add("c", records=5)]]
    table, opened = write_log(tmp_path, *commits), list[str]()
    checkpoints.write_classic(table, 1, checkpoints.replay(commits[:2]))

    class Counting(LocalStore):
        def open(self, place: str) -> pa.NativeFile:
            opened.append(place)
            return super().open(place)

    handle = Handle("counted", Counting(str(table)))
    assert (len(handle.log.snapshot(2).live), bool(opened)) == (2, True)
    opened.clear()
    diff = diff_versions(handle, 2, 3)
    assert (diff.paths("added"), diff.records_added, diff.paths("removed"), opened) == (["c"], 5, ["b"], [])
