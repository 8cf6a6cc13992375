import json
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from compaction_kit import open_table
from compaction_kit.errors import CorruptLogError, UnsupportedTableError
from compaction_kit.log import TransactionLog
from compaction_kit.log.snapshot import newest_actions
from tests import checkpoints, folders, handmade

# "a%62" and "ab" are two files to Delta: it compares paths as they are written.
PATHS = st.sampled_from(["a", "a%20b", "a%62", "ab", "c%2525", "c%25", "d"])
ACTION = st.tuples(PATHS, st.sampled_from([None, "u1", "u2@4"]), st.booleans())


@given(st.lists(st.lists(ACTION, max_size=6, unique_by=lambda a: a[:2]), max_size=8))
def test_the_newest_action_on_a_file_and_vector_wins(
    commits: list[list[tuple[str, str | None, bool]]],
) -> None:
    rows = [(version, *action) for version, actions in enumerate(commits) for action in actions]
    replayed = {(path, vector): (version, is_add) for version, path, vector, is_add in rows}
    table = pa.table(
        {
            "version": pa.array([row[0] for row in rows], pa.int64()),
            "path": pa.chunked_array([pa.array([row[1] for row in rows], pa.string())]),
            "deletion_vector_id": pa.chunked_array([pa.array([row[2] for row in rows], pa.string())]),
            "is_add": pa.array([row[3] for row in rows], pa.bool_()),
        }
    )
    newest = newest_actions(table).to_pylist()
    found = {(row["path"], row["deletion_vector_id"]): (row["version"], row["is_add"]) for row in newest}
    assert found == replayed
    assert len(newest) == len(replayed)


def test_live_files_and_tombstones_are_told_apart(tmp_path: Path) -> None:
    table = handmade.write_log(
        tmp_path,
        [handmade.add("a"), handmade.add("b"), handmade.add("c")],
        [handmade.remove("a", 5), handmade.add("d")],
        [handmade.remove("c", None), handmade.add("a", 9)],
    )
    log = TransactionLog(table)
    assert log.snapshot().live_files["path"].to_pylist() == ["b", "d", "a"]
    assert log.snapshot().live_files["size_bytes"].to_pylist() == [1_000, 1_000, 9]
    assert log.snapshot().tombstones["path"].to_pylist() == ["c"]
    assert log.snapshot(1).tombstones["deletion_timestamp"].to_pylist() == [5]
    assert log.snapshot(0).live_files["path"].to_pylist() == ["a", "b", "c"]


def test_a_new_deletion_vector_replaces_the_file_without_one(tmp_path: Path) -> None:
    first, second = handmade.vector("0rJua"), handmade.vector("0rJub", 7) | {"offset": 4}
    table = handmade.write_log(
        tmp_path,
        [handmade.add("a")],
        [handmade.remove("a"), handmade.add("a", vector=first)],
        [handmade.remove("a", vector=first), handmade.add("a", vector=second)],
    )
    snapshot = TransactionLog(table).snapshot()
    assert snapshot.live_files["deletion_vector_id"].to_pylist() == ["i0rJub@4"]
    assert snapshot.live_files["deletion_vector_cardinality"].to_pylist() == [7]
    assert set(snapshot.tombstones["deletion_vector_id"].to_pylist()) == {None, "i0rJua"}


def test_the_newest_protocol_and_metadata_count(tmp_path: Path) -> None:
    table = handmade.write_log(
        tmp_path,
        [handmade.add("a")],
        [handmade.protocol(1, 4), handmade.metadata({"id": "long", "b": "string"}, configuration={"k": "v"})],
    )
    log = TransactionLog(table)
    assert log.snapshot().protocol.min_writer_version == 4
    assert log.snapshot().metadata.column_types == {"id": "long", "b": "string"}
    assert log.snapshot().metadata.configuration == {"k": "v"}
    assert log.snapshot(0).protocol.min_writer_version == 2


def test_partition_values_keep_null_and_empty_text_apart(tmp_path: Path) -> None:
    metadata = handmade.metadata({"id": "long", "p": "string"}, ["p"])
    values: list[dict[str, str | None]] = [{"p": None}, {"p": ""}, {"p": "x"}, {}]
    adds = [handmade.add(f"f{i}", partition=value) for i, value in enumerate(values)]
    table = handmade.write_log(tmp_path, [metadata, *adds])
    live = TransactionLog(table).snapshot().live_files
    assert live["partition.p"].to_pylist() == [None, "", "x", None]


def test_column_mapping_looks_partition_values_up_by_physical_name(tmp_path: Path) -> None:
    metadata = handmade.metadata(
        {"id": "long", "new name": "string"}, ["new name"], {"delta.columnMapping.mode": "name"}
    )
    schema = json.loads(metadata["metaData"]["schemaString"])
    schema["fields"][1]["metadata"]["delta.columnMapping.physicalName"] = "col-7"
    metadata["metaData"]["schemaString"] = json.dumps(schema)
    add = handmade.add("f", partition={"col-7": "x"})
    table = handmade.write_log(tmp_path, [handmade.protocol(2, 5), metadata, add])
    assert TransactionLog(table).snapshot().live_files["partition.new name"].to_pylist() == ["x"]


COUNTS: dict[str | None, int | None] = {
    '{"numRecords":5,"tightBounds":true}': 5,
    '{"numRecords": 0}': 0,
    '{ "minValues" : {}, "numRecords" : 7 }': 7,
    f'{{"numRecords":{2**63 - 1}}}': 2**63 - 1,
    **dict.fromkeys([None, "", "{", "[1]", "{}", '{"numRecords":null}', '{"numRecords":"5"}']),
    **dict.fromkeys(f'{{"numRecords":{number}}}' for number in ("true", "5.0", -1, 2**63, "9" * 5_000)),
    '{"x":' + "[" * 3_000 + "]" * 3_000 + ',"numRecords":5}': None,
}


@pytest.mark.parametrize("has_checkpoint", [False, True], ids=["commit", "checkpoint"])
def test_a_count_of_records_that_none_can_be_is_none(tmp_path: Path, has_checkpoint: bool) -> None:
    adds = [{"add": handmade.add(f"{i:02}")["add"] | {"stats": text}} for i, text in enumerate(COUNTS)]
    first = [handmade.protocol(), handmade.metadata({"id": "long"}), *adds]
    table = handmade.write_log(tmp_path, first)
    if has_checkpoint:
        checkpoints.write_classic(table, 0, checkpoints.replay([first]), "text")
        handmade.commit_path(table, 0).unlink()
    files = open_table(table).files()
    assert files.to_arrow().sort_by("path")["num_records"].to_pylist() == list(COUNTS.values())
    # Nor are there bounds in what can't be read.
    assert files.overlap("id").num_unknown == len(COUNTS)


def _refused(table: Path, kind: type[Exception], words: str) -> None:
    before = folders.listing(table)
    with pytest.raises(kind, match=words) as caught:
        open_table(table).files()
    assert "\n" not in str(caught.value)
    assert folders.listing(table) == before


@pytest.mark.parametrize("keep", [0.999, 0.6, 0.3])
def test_a_truncated_commit_is_named(tmp_path: Path, keep: float) -> None:
    table = handmade.write_log(
        tmp_path, [handmade.add("a")], [handmade.add("b"), handmade.add("c")], [handmade.add("d")]
    )
    file = handmade.commit_path(table, 1)
    data = file.read_bytes().rstrip()
    file.write_bytes(data[: int(len(data) * keep)])
    _refused(table, CorruptLogError, f"{file.name} is damaged .*: restore it from a backup")


@pytest.mark.parametrize(("text", "words"), [(b"\n", "empty"), (b"null\n", "damaged")])
def test_a_commit_with_nothing_in_it_is_named(tmp_path: Path, text: bytes, words: str) -> None:
    # pyarrow alone would end the process at a text that begins with null.
    table = handmade.write_log(tmp_path, [handmade.add("a")])
    file = handmade.commit_path(table, 1)
    file.write_bytes(text)
    _refused(table, CorruptLogError, f"{file.name} is {words}")


@pytest.mark.parametrize("name", ["protocol", "metaData"])
def test_a_log_without_a_protocol_or_metadata_is_refused(tmp_path: Path, name: str) -> None:
    have = [handmade.protocol(), handmade.metadata(), handmade.add("a")]
    handmade.write_commit(tmp_path, 0, [action for action in have if name not in action])
    _refused(tmp_path, CorruptLogError, f"no {name} action")


@pytest.mark.parametrize("feature", ["quantumEntanglement", "timeTravelToo"])
def test_an_unknown_reader_feature_is_named(tmp_path: Path, feature: str) -> None:
    handmade.write_log(tmp_path, [handmade.protocol(features=["deletionVectors", feature])])
    _refused(tmp_path, UnsupportedTableError, f"reader feature {feature}, .*: use a newer one")


@pytest.mark.parametrize("feature", ["catalogManaged", "catalogOwned-preview"])
def test_a_table_that_its_catalog_manages_is_not_read_by_path(tmp_path: Path, feature: str) -> None:
    handmade.write_log(tmp_path, [handmade.protocol(features=[feature])])
    _refused(tmp_path, UnsupportedTableError, rf"managed by its catalog \({feature}\)")


def test_a_newer_reader_version_is_named(tmp_path: Path) -> None:
    handmade.write_log(tmp_path, [handmade.protocol(4, 7)])
    _refused(tmp_path, UnsupportedTableError, "reader version 4 and this package reads up to 3")


def test_a_checkpoint_that_is_no_parquet_file_is_named(changed: Path) -> None:
    handmade.commit_path(changed, 4, "checkpoint.parquet").write_bytes(b"PAR1 no more")
    _refused(changed, CorruptLogError, r"0004\.checkpoint\.parquet is damaged .*: restore it from a backup")


@pytest.mark.parametrize("size", [-1, None])
def test_a_size_that_no_file_has_is_refused_with_its_file(tmp_path: Path, size: int | None) -> None:
    broken = handmade.add("b")
    broken["add"]["size"] = size
    handmade.write_log(tmp_path, [handmade.add("a"), handmade.remove("c")], [broken])
    with pytest.raises(CorruptLogError, match=rf"the file b has {size} bytes: restore it from a backup"):
        open_table(tmp_path).files()
