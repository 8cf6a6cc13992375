"""Logs that are odd in one place: what isn't needed is null, what Delta reads is read, the rest is named."""

import json
import os
import warnings
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from compaction_kit import open_table
from compaction_kit.errors import CorruptLogError, UnsupportedTableError
from tests import checkpoints, deltas_view, folders, handmade
from tests.test_table import refused

DEEP = "[" * 3_000 + "]" * 3_000
INFOS = [
    "5",
    "[]",
    '"told"',
    '{"timestamp":"yesterday","operation":[1],"operationMetrics":[3],"operationParameters":"all"}',
    '{"inCommitTimestamp":"now","readVersion":1.5,"isBlindAppend":"no","userMetadata":{"a":1}}',
    '{"inCommitTimestamp":9223372036854775807,"operationMetrics":{"a":{"b":[]}},"engineInfo":null}',
    '{"operation":null,"userMetadata":5,"operationMetrics":{"":NaN}}',
]


def write(tmp_path: Path, *lines: str | bytes) -> Path:
    """A table of three commits, of which the second ends with these lines."""
    table = handmade.write_log(
        tmp_path / "table", [handmade.add("a")], [handmade.add("b")], [handmade.add("c")]
    )
    with handmade.commit_path(table, 1).open("ab") as file:
        for line in lines:
            file.write((line.encode() if isinstance(line, str) else line) + b"\n")
    return table


@pytest.mark.parametrize("info", INFOS)
def test_an_odd_commit_info_takes_nothing_down(info: str, tmp_path: Path) -> None:
    table = open_table(write(tmp_path, f'{{"commitInfo":{info}}}'))
    assert table.history()["num_files"].to_pylist() == [1, 2, 3]
    assert table.versions()["version"].to_pylist() == [0, 1, 2]
    assert table.diff(0, 2).num_files_added == 2
    assert table.plan_restore(0).diff.num_files_removed == 2
    assert table.plan_vacuum().versions_lost == []
    assert table.log.actions(1)["action"].to_pylist() == ["add", "commitInfo"]


NO_SENSE = [
    "null",
    "[]",
    "7",
    f'{{"metaData":{DEEP}}}',
    b'{"txn":{"appId":"\xff"}}',
    b'{"add":{"path":"\xff","size":1}}',
    '{"metaData":[]}',
    '{"metaData":{"schemaString":{}}}',
    '{"protocol":{"minReaderVersion":"1","minWriterVersion":2}}',
    '{"protocol":{"minReaderVersion":1}}',
    '{"txn":5}',
    '{"domainMetadata":{"domain":[]}}',
    '{"add":{"path":"x","size":1}}{"add":{"path":"y","size":1}}',
]
SCHEMAS = [
    "5",
    "[]",
    '{"type":"struct"}',
    '{"type":"struct","fields":[5]}',
    '{"type":"struct","fields":[{"name":"id","type":{"type":"bag"}}]}',
    '{"type":"struct","fields":[{"name":"id","type":' + '{"type":"array","elementType":' * 2_000 + '"long"',
]


@pytest.mark.parametrize(
    ("line", "words"),
    [
        *((line, f"{handmade.log_name(1)} is damaged") for line in NO_SENSE),
        *(
            (json.dumps({"metaData": {"schemaString": text}}), "metaData action is damaged")
            for text in SCHEMAS
        ),
        ('{"add":{"path":"x","size":-1}}', "the file x has -1 bytes: restore it from a backup"),
        ('{"add":{"path":"x"}}', "the file x has None bytes: restore it from a backup"),
    ],
)
def test_a_line_that_can_t_be_used_is_refused(line: str | bytes, words: str, tmp_path: Path) -> None:
    table = write(tmp_path, line)
    before = folders.listing(table)
    refused(lambda: open_table(table).files(), CorruptLogError, words)
    assert folders.listing(table) == before


@pytest.mark.parametrize(
    ("protocol", "words"),
    [
        (handmade.protocol(4, 7), "reader version 4 and this package reads up to 3: use a newer one"),
        (handmade.protocol(features=["deletionVectors", "timeToo"]), "the reader feature timeToo, which"),
    ],
)
def test_a_table_that_needs_more_is_refused(tmp_path: Path, protocol: handmade.Action, words: str) -> None:
    table = write(tmp_path, json.dumps(protocol))
    refused(lambda: open_table(table).files(), UnsupportedTableError, words)


@pytest.mark.parametrize(
    ("left", "words"),
    [
        *((share, "restore it from a backup") for share in (0.999, 0.6, 0.3)),
        *((b"\n", "is empty"), (b"null\n", "is damaged")),
    ],
)
def test_a_commit_that_is_cut_or_empty_is_named(tmp_path: Path, left: float | bytes, words: str) -> None:
    # pyarrow alone would end the process at a text that begins with null.
    table = write(tmp_path)
    file = handmade.commit_path(table, 1)
    data = file.read_bytes().rstrip()
    file.write_bytes(left if isinstance(left, bytes) else data[: int(len(data) * left)])
    refused(lambda: open_table(table).files(), CorruptLogError, file.name, words)


@pytest.mark.parametrize("name", ["protocol", "metaData"])
def test_a_log_without_a_protocol_or_metadata_is_refused(tmp_path: Path, name: str) -> None:
    have = [handmade.protocol(), handmade.metadata(), handmade.add("a")]
    handmade.write_commit(tmp_path, 0, [action for action in have if name not in action])
    refused(lambda: open_table(tmp_path).files(), CorruptLogError, f"no {name} action")


def with_checkpoint(tmp_path: Path) -> tuple[Path, Path]:
    commits: list[list[dict[str, Any]]] = [
        [handmade.protocol(), handmade.metadata(), handmade.add("a"), handmade.add("b")],
        [handmade.add("c", 7), handmade.remove("a")],
    ]
    table = handmade.write_log(tmp_path / "table", *commits)
    return table, checkpoints.write_classic(table, 1, checkpoints.replay(commits))[0]


@pytest.mark.spark
def test_a_file_that_a_checkpoint_names_twice_counts_once(spark: SparkSession, tmp_path: Path) -> None:
    table, file = with_checkpoint(tmp_path)
    rows = pq.read_table(file)
    pq.write_table(pa.concat_tables([rows, rows]), file)
    files = open_table(table).files().to_arrow()
    assert sorted(files["path"].to_pylist()) == sorted(deltas_view.live_files(spark, table)) == ["b", "c"]


@pytest.mark.spark
def test_checksums_that_are_no_such_file_are_passed_over(spark: SparkSession, tmp_path: Path) -> None:
    table = write(tmp_path)
    (table / "_delta_log" / f".{handmade.log_name(1)}.crc").write_bytes(b"something else")
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        assert open_table(table).files().num_files == len(deltas_view.live_files(spark, table)) == 3


@pytest.mark.parametrize("name", ["add", "metaData"])
def test_a_checkpoint_with_a_column_twice_is_named(name: str, tmp_path: Path) -> None:
    table, file = with_checkpoint(tmp_path)
    rows = pq.read_table(file)
    pq.write_table(rows.append_column(rows.schema.field(name), rows[name]), file)
    with pytest.raises(CorruptLogError, match=file.name):
        open_table(table).files().to_arrow()


def test_a_sidecar_that_has_shrunk_since_it_was_read_is_told(tmp_path: Path) -> None:
    commit = [handmade.protocol(features=["v2Checkpoint"]), handmade.metadata(), handmade.add("a")]
    table = handmade.write_log(tmp_path, commit)
    _, sidecar = checkpoints.write_v2(table, 0, checkpoints.replay([commit]), sidecars=1)
    files = open_table(table).files()
    pq.write_table(pq.read_table(sidecar).slice(1), sidecar)
    with pytest.raises(CorruptLogError, match=r"fewer rows than when version 0 was read from it: .*\.$"):
        files.to_arrow()


def test_odd_things_beside_the_log_are_passed_over(tmp_path: Path) -> None:
    table = write(tmp_path)
    log = table / "_delta_log"
    (log / ("9" * 20 + ".json")).touch()
    (log / os.fsdecode(b"caf\xe9")).touch()
    (log / "_last_checkpoint").mkdir()
    (log / "dangling.json").symlink_to("nowhere")
    (log / handmade.log_name(3)).symlink_to(handmade.log_name(3))
    os.mkfifo(log / handmade.log_name(4))
    os.mkfifo(log / "_last_vacuum_info")
    (table / os.fsdecode(b"caf\xe9.parquet")).touch()
    opened = open_table(table)
    assert opened.version == 2
    assert len(opened.plan_vacuum().files) == 0
    assert opened.versions()["readable"].to_pylist() == ["missing files"] * 3
