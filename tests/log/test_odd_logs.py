"""Logs that are odd in one place: what isn't needed is null, what Delta reads is read, the rest is named."""

import itertools
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
from compaction_kit.errors import CompactionKitError, CorruptLogError
from compaction_kit.interop import check_manifest, read_manifest
from tests import checkpoints, deltas_view, handmade
from tests.bounded import Reader

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


@pytest.mark.parametrize(
    "line",
    [
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
    ],
)
def test_a_line_that_makes_no_sense_is_refused_with_the_files_name(line: str | bytes, tmp_path: Path) -> None:
    table = write(tmp_path, line)
    with pytest.raises(CorruptLogError, match=r"00000000000000000001\.json") as caught:
        open_table(table).files()
    assert "\n" not in str(caught.value)


def test_a_log_that_begins_with_null_ends_no_process(apart: Reader, tmp_path: Path) -> None:
    table = write(tmp_path)
    handmade.commit_path(table, 0).write_text("null\n")
    handmade.write_sink_log(tmp_path / "sink", 2)
    # Written otherwise than by Spark, so that it is parsed as JSON.
    (tmp_path / "sink" / "_spark_metadata" / "1").write_text("v1\nnull\n")
    assert apart.wrong("table", table) == ([], None)
    assert apart.wrong("sink log", tmp_path / "sink") == ([], None)


@pytest.mark.parametrize(
    "schema",
    [
        "5",
        "[]",
        '{"type":"struct"}',
        '{"type":"struct","fields":[5]}',
        '{"type":"struct","fields":[{"name":"id","type":{"type":"bag"}}]}',
        '{"type":"struct","fields":[{"name":"id","type":'
        + '{"type":"array","elementType":' * 2_000
        + '"long"',
    ],
)
def test_a_schema_that_is_none_is_refused(schema: str, tmp_path: Path) -> None:
    metadata = handmade.metadata()
    metadata["metaData"]["schemaString"] = schema
    table = handmade.write_log(tmp_path, [metadata, handmade.add("a")])
    with pytest.raises(CorruptLogError, match="metaData action is damaged"):
        open_table(table).files()


@pytest.mark.parametrize("clustering", ["", "null", "5", '{"clusteringColumns":[5]}', "[" * 5_000])
def test_a_clustering_that_is_none_is_refused(clustering: str, tmp_path: Path) -> None:
    domain = {"domain": "delta.clustering", "configuration": clustering, "removed": False}
    actions = [handmade.add("a"), handmade.add("b"), {"domainMetadata": domain}]
    table = handmade.write_log(tmp_path, [handmade.protocol(), handmade.metadata(), *actions])
    with pytest.raises(CorruptLogError, match=r"^The domain delta\.clustering is damaged \(.*\.$") as caught:
        open_table(table).plan_compaction()
    assert "\n" not in str(caught.value)


def test_properties_that_make_no_sense_are_refused_in_a_short_sentence(tmp_path: Path) -> None:
    odd = ["9" * 5_000, "a\nb", "9" * 400 + " pb"]
    properties = {
        "delta.targetFileSize": lambda table: table.files().stats(),
        "delta.inCommitTimestampEnablementVersion": lambda table: table.history(),
        "delta.deletedFileRetentionDuration": lambda table: table.versions(),
    }
    for number, (name, value) in enumerate(itertools.product(properties, odd)):
        configuration = {name: value}
        configuration["delta.enableInCommitTimestamps"] = str("inCommit" in name)
        actions = [handmade.protocol(), handmade.metadata(configuration=configuration), handmade.add("a")]
        table = open_table(handmade.write_log(tmp_path / str(number), actions))
        with pytest.raises(CompactionKitError) as caught:
            properties[name](table)
        assert "\n" not in str(caught.value)
        assert len(str(caught.value)) < 400


@pytest.mark.spark
def test_metadata_without_a_schema_is_that_of_no_columns(spark: SparkSession, tmp_path: Path) -> None:
    metadata = handmade.metadata()
    del metadata["metaData"]["schemaString"]
    table = handmade.write_log(tmp_path / "table", [metadata, handmade.add("a")])
    files = open_table(table).files()
    assert files.snapshot.metadata.column_types == {}
    assert files.to_arrow()["path"].to_pylist() == list(deltas_view.live_files(spark, table)) == ["a"]


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


def test_versions_that_are_far_apart_take_no_memory(tmp_path: Path) -> None:
    table, file = with_checkpoint(tmp_path)
    file.rename(handmade.commit_path(table, 10**17, "checkpoint.parquet"))
    assert open_table(table).history()["num_files"].to_pylist() == [None, None]
    handmade.write_commit(table, 10**17, [handmade.add("d")])
    assert open_table(table).versions()["version"].to_pylist()[-1] == 10**17


def test_a_manifest_of_anything_is_read_or_refused(tmp_path: Path) -> None:
    table = write(tmp_path)
    manifest = table / "_symlink_format_manifest" / "manifest"
    manifest.parent.mkdir()
    for line in (b"file:/a\0b", b"/" + b"x" * 300, b"/" + b"y/" * 3_000):
        manifest.write_bytes(line + b"\n")
        assert read_manifest(open_table(table))["size_bytes"].to_pylist() == [None]
        assert check_manifest(open_table(table)).version is None
    manifest.write_bytes(b"\xff\n")
    with pytest.raises(CompactionKitError, match="manifest"):
        read_manifest(open_table(table))


def test_the_log_says_of_itself_what_is_json(tmp_path: Path) -> None:
    table = write(tmp_path, json.dumps({"commitInfo": {"operationMetrics": {"n": 5, "t": "x", "z": None}}}))
    assert open_table(table).log.commits()["metrics"].to_pylist()[1] == [("n", "5"), ("t", "x"), ("z", None)]
