from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from compaction_kit import open_table
from compaction_kit.log import TransactionLog
from compaction_kit.log.snapshot import newest_actions
from tests import checkpoints, handmade

# "a%62" and "ab" are two files to Delta: it compares paths as they are written.
PATHS = st.sampled_from(["a", "a%20b", "a%62", "ab", "c%2525", "c%25", "d"])
ACTION = st.tuples(PATHS, st.sampled_from([None, "u1", "u2@4"]), st.booleans())


@given(st.lists(st.lists(ACTION, max_size=6, unique_by=lambda a: a[:2]), max_size=8))
def test_the_newest_action_on_a_file_wins(commits: list[list[tuple[str, str | None, bool]]]) -> None:
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
    first, second = handmade.vector("0rJua"), handmade.vector("0rJub", 7) | {"offset": 4}
    table = handmade.write_log(
        tmp_path,
        [handmade.add("a"), handmade.add("b"), handmade.add("c")],
        [handmade.remove("a", 5), handmade.add("d")],
        [handmade.remove("c", None), handmade.add("a", 9)],
        [handmade.remove("b"), handmade.add("b", vector=first)],
        [handmade.remove("b", vector=first), handmade.add("b", vector=second)],
    )
    log = TransactionLog(table)
    snapshots = [log.snapshot(version) for version in range(5)]
    assert [snapshot.live_files["path"].to_pylist() for snapshot in (snapshots[0], snapshots[2])] == [
        ["a", "b", "c"],
        ["b", "d", "a"],
    ]
    assert snapshots[2].live_files["size_bytes"].to_pylist() == [1_000, 1_000, 9]
    assert snapshots[1].tombstones["deletion_timestamp"].to_pylist() == [5]
    assert snapshots[2].tombstones["path"].to_pylist() == ["c"]
    assert snapshots[4].live_files["deletion_vector_id"].to_pylist() == [None, None, "i0rJub@4"]
    assert snapshots[4].live_files["deletion_vector_cardinality"].to_pylist() == [None, None, 7]
    assert snapshots[4].tombstones.select(["path", "deletion_vector_id"]).to_pylist()[1:] == [
        {"path": "b", "deletion_vector_id": None},
        {"path": "b", "deletion_vector_id": "i0rJua"},
    ]


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
