import json
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from compaction_kit import open_table
from compaction_kit.errors import CorruptLogError
from compaction_kit.log import TransactionLog
from tests import checkpoints, handmade

# The actions at the beginning of each log from `handmade.write_log`.
FIRST = [[handmade.protocol(), handmade.metadata()]]


def lives(table: Path) -> list[tuple[str, str | None, int, int | None]]:
    names = ("path", "deletion_vector_id", "added", "removed")
    columns = TransactionLog(table).lifetimes()[1].select(names).to_pydict()
    return list(zip(*columns.values(), strict=True))


def test_live_files_tombstones_and_lifetimes_are_told_apart(tmp_path: Path) -> None:
    first, second = handmade.vector("0rJua"), handmade.vector("0rJub", 7) | {"offset": 4}
    changed = handmade.metadata({"id": "long", "b": "string"}, configuration={"k": "v"})
    table = handmade.write_log(
        tmp_path,
        [handmade.add("a%20b"), handmade.add("b"), handmade.add("c")],
        [handmade.remove("a%20b", 5), handmade.add("d")],
        # To Delta "%62" and "b" are two files: it compares paths as they are written.
        [handmade.remove("c", None), handmade.add("a%20b", 9), handmade.remove("%62")],
        [handmade.remove("b"), handmade.add("b", vector=first)],
        [handmade.remove("b", vector=first), handmade.add("b", vector=second)],
        [handmade.protocol(1, 4), changed, handmade.add("d"), handmade.remove("unknown")],
    )
    snapshots = [TransactionLog(table).snapshot(version) for version in range(6)]
    assert snapshots[1].tombstones["deletion_timestamp"].to_pylist() == [5]
    assert snapshots[2].tombstones["path"].to_pylist() == ["c", "%62"]
    assert snapshots[2].live_files["path"].to_pylist() == ["b", "d", "a%20b"]
    assert snapshots[2].live_files["size_bytes"].to_pylist() == [1_000, 1_000, 9]
    assert snapshots[4].live_files["deletion_vector_id"].to_pylist() == [None, None, "i0rJub@4"]
    assert snapshots[4].live_files["deletion_vector_cardinality"].to_pylist() == [None, None, 7]
    assert [one.protocol.min_writer_version for one in snapshots[4:]] == [2, 4]
    assert snapshots[5].metadata.column_types == {"id": "long", "b": "string"}
    assert snapshots[5].metadata.configuration == {"k": "v"}
    # A file may come back; a vector ends the lifetime without it; adding a live file again changes nothing.
    assert lives(table) == [
        *[("a b", None, 0, 1), ("b", None, 0, 3), ("c", None, 0, 2), ("d", None, 1, None)],
        *[("a b", None, 2, None), ("b", "i0rJua", 3, 4), ("b", "i0rJub@4", 4, None)],
    ]


def test_a_lifetime_ends_in_another_partition_and_with_a_remove_in_the_commit(tmp_path: Path) -> None:
    """The log lacks its first commit, and its last commit sets a schema that can't be read."""
    columns = handmade.metadata(dict.fromkeys("ipq", "string"), ["p", "q"])
    one, same, other = (
        handmade.add("a", partition={"p": p, "q": q}) for p, q in ((None, "x"), ("", "x"), ("x", None))
    )
    commits = [[columns, one], [same], [other], [handmade.remove("a"), other]]
    commits.append([{"metaData": {"schemaString": "{"}}])
    table = handmade.write_log(tmp_path, *commits)
    checkpoints.write_classic(table, 0, checkpoints.replay([[handmade.protocol()], commits[0]]))
    handmade.remove_commits(table, 0)
    assert lives(table) == [("a", None, 0, 2), ("a", None, 2, 3), ("a", None, 3, None)]


COUNTS: dict[str | None, int | None] = {
    '{"numRecords":5,"tightBounds":true}': 5,
    '{"numRecords": 0}': 0,
    '{ "minValues" : {}, "numRecords" : 7 }': 7,
    f'{{"numRecords":{2**63 - 1}}}': 2**63 - 1,
    **dict.fromkeys([None, "", "{", "[1]", "{}", '{"numRecords":null}', '{"numRecords":"5"}']),
    **dict.fromkeys(f'{{"numRecords":{number}}}' for number in ("true", "5.0", -1, 2**63, "9" * 5_000)),
    '{"x":' + "[" * 100_000 + "]" * 100_000 + ',"numRecords":5}': None,
}


@pytest.mark.parametrize("has_checkpoint", [False, True], ids=["commit", "checkpoint"])
def test_an_impossible_count_of_records_is_none(tmp_path: Path, has_checkpoint: bool) -> None:
    adds = [{"add": handmade.add(f"{i:02}")["add"] | {"stats": text}} for i, text in enumerate(COUNTS)]
    table = handmade.write_log(tmp_path, adds)
    if has_checkpoint:
        checkpoints.write_classic(table, 0, checkpoints.replay([*FIRST, adds]), "text")
        handmade.commit_path(table, 0).unlink()
    files = open_table(table).files()
    assert files.to_arrow().sort_by("path")["num_records"].to_pylist() == list(COUNTS.values())
    # Stats that can't be read have no bounds either.
    assert files.overlap("id").num_unknown == len(COUNTS)


def rewrite_adds(checkpoint: Path, **columns: pa.Array | None) -> None:
    """Replace fields of a checkpoint's adds, or drop them for None; timestamps are INT96, as Spark's are."""
    table = pq.read_table(checkpoint)
    adds = table["add"].combine_chunks()
    fields = {field.name: adds.field(field.name) for field in adds.type} | columns
    kept = {name: values for name, values in fields.items() if values is not None}
    written = pa.StructArray.from_arrays([*kept.values()], [*kept], mask=adds.is_null())
    position = table.column_names.index("add")
    pq.write_table(
        table.set_column(position, "add", written), checkpoint, use_deprecated_int96_timestamps=True
    )


def test_a_checkpoint_may_lack_every_optional_field(tmp_path: Path) -> None:
    adds = [handmade.add("a"), handmade.add("b")]
    table = handmade.write_log(tmp_path, adds)
    (file,) = checkpoints.write_classic(table, 0, checkpoints.replay([*FIRST, adds]))
    rewrite_adds(file, stats=None, tags=None, deletionVector=None)
    handmade.commit_path(table, 0).unlink()
    snapshot, files = TransactionLog(table).snapshot(), open_table(table).files()
    assert snapshot.num_records.to_pylist() == snapshot.stats.to_pylist() == [None, None]
    for read in (snapshot.clustering_tags, snapshot.removal_fields):
        assert {value for row in read.to_pylist() for value in row.values()} == {None}
    assert files.to_arrow()["num_records"].null_count == files.overlap("id").num_unknown == 2


def test_parsed_stats_may_have_any_time_and_decimals(tmp_path: Path) -> None:
    columns = {"d": "date", "t": "timestamp", "n": "decimal(9,2)"}
    schema, adds = handmade.metadata(columns), [handmade.add("a")]
    table = handmade.write_log(tmp_path, [schema, *adds])
    (file,) = checkpoints.write_classic(table, 0, checkpoints.replay([[*FIRST[0], schema], adds]), "parsed")
    moment = datetime(9999, 12, 31, 1, 2, 3, tzinfo=UTC)
    low, high = (
        pa.StructArray.from_arrays(
            [
                pa.array([days] * 3, pa.date32()),
                pa.array([time] * 3, pa.timestamp("us", "UTC")),
                pa.array([Decimal("1.50")] * 3),
            ],
            list(columns),
        )
        for days, time in ((0, datetime(1, 1, 2, tzinfo=UTC)), (4_000_000, moment))
    )
    parsed = pa.StructArray.from_arrays(
        [pa.array([10] * 3), low, high], ["numRecords", "minValues", "maxValues"]
    )
    rewrite_adds(file, stats_parsed=parsed)
    handmade.commit_path(table, 0).unlink()
    (text,) = TransactionLog(table).snapshot().stats.to_pylist()
    stats = json.loads(text)
    assert text.count('"n": 1.50}') == 2
    assert (stats["minValues"]["d"], stats["maxValues"]["d"]) == ("1970-01-01", "12921-08-18")
    times = [datetime.fromisoformat(stats[name]["t"]).replace(tzinfo=UTC) for name in stats if name[0] == "m"]
    assert times == [datetime(1, 1, 2, tzinfo=UTC), moment]
    assert open_table(table).files().overlap("t").max == 1
    assert text in TransactionLog(table).actions(0, checkpoint=True)["stats"].to_pylist()


def test_a_table_that_was_created_again_is_to_be_read_again(tmp_path: Path) -> None:
    table = handmade.write_log(tmp_path, [handmade.add("a"), handmade.add("b")])
    files = open_table(table).files()
    handmade.write_commit(table, 0, [*FIRST[0], handmade.add("a")])
    with pytest.raises(CorruptLogError, match=r"when version 0 was read: read the table again, or"):
        files.overlap("id")
    assert open_table(table).files().to_arrow()["path"].to_pylist() == ["a"]
