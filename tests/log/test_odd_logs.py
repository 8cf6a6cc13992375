"""Logs with one odd part: unneeded fields become null, what Delta can read is read, the rest is an error.

tests/test_fuzz.py damages logs in every way.
"""

import json
import os
import time
import warnings
from pathlib import Path

import pytest

from compaction_kit import open_table
from compaction_kit.errors import CorruptLogError, UnsupportedTableError
from tests import checkpoints, handmade
from tests.conftest import CopyOf
from tests.refusals import refused

DEEP = "[" * 3_000 + "]" * 3_000
INFOS = [
    "told",
    {"timestamp": "yesterday", "operation": [1], "operationMetrics": [3], "operationParameters": "all"},
    {"inCommitTimestamp": "now", "readVersion": 1.5, "isBlindAppend": "no", "userMetadata": {"a": 1}},
    {"inCommitTimestamp": 2**63 - 1, "operationMetrics": {"": float("nan")}, "engineInfo": None},
]


def write(tmp_path: Path, *lines: str | bytes) -> Path:
    """Write a table of three commits; the second one ends with these lines."""
    table = handmade.write_log(tmp_path / "table", *([handmade.add(name)] for name in "abc"))
    with handmade.commit_path(table, 1).open("ab") as file:
        for line in lines:
            file.write((line.encode() if isinstance(line, str) else line) + b"\n")
    return table


def test_an_odd_commit_info_takes_nothing_down(tmp_path: Path) -> None:
    first, *rest = ({"commitInfo": info} for info in INFOS)
    table = open_table(handmade.write_log(tmp_path, [handmade.add("a"), first], *([one] for one in rest)))
    latest = len(INFOS) - 1
    assert table.history()["num_files"].to_pylist() == [1] * len(INFOS)
    assert table.versions()["version"].to_pylist() == list(range(len(INFOS)))
    assert table.diff(0, latest).same_content
    assert table.plan_restore(0).is_empty
    assert table.plan_vacuum().versions_lost == []
    assert table.log.actions(latest)["action"].to_pylist() == ["commitInfo"]
    assert table.auto_compaction().num_in_log == 0


def test_an_action_that_is_null_is_none(tmp_path: Path) -> None:
    """Some writers put the names of all actions on each line, with null for most of them."""
    every = dict.fromkeys(("add", "remove", "metaData", "protocol", "commitInfo"))
    commits = [[handmade.add("a"), handmade.add("b")], [handmade.add("c")], [handmade.remove("c")]]
    plain, nulls = tmp_path / "plain", tmp_path / "nulls"
    handmade.write_log(plain, *commits)
    for version in range(3):
        lines = handmade.commit_path(plain, version).read_text().splitlines()
        handmade.write_commit(nulls, version, [every | json.loads(line) for line in lines])
        ages = (time.time() - (9 - 3 * version) * 86_400,) * 2
        for table in (plain, nulls):
            os.utime(handmade.commit_path(table, version), ages)
    expected, found = open_table(plain), open_table(nulls)
    assert found.log.actions(0).equals(expected.log.actions(0))
    assert found.auto_compaction().to_dict() == expected.auto_compaction().to_dict()
    assert found.forecast().arrivals.equals(expected.forecast().arrivals)


NO_SENSE = [
    "null",
    "[]",
    "7",
    f'{{"metaData":{DEEP}}}',
    b'{"txn":{"appId":"\xff"}}',
    b'{"add":{"path":"\xff","size":1}}',
    '{"metaData":{"schemaString":{}}}',
    '{"protocol":{"minReaderVersion":"1","minWriterVersion":2}}',
    '{"protocol":{"minReaderVersion":1}}',
    '{"domainMetadata":{"domain":[]}}',
    '{"add":{"path":"x","size":1}}{"add":{"path":"y","size":1}}',
]
SCHEMAS = [
    "5",
    '{"type":"struct"}',
    '{"type":"struct","fields":[{"name":"id","type":{"type":"bag"}}]}',
    '{"type":"struct","fields":[{"name":"id","type":' + '{"type":"array","elementType":' * 2_000 + '"long"',
]


@pytest.mark.parametrize(
    ("line", "words"),
    [
        *((line, f"{handmade.log_name(1)} is damaged") for line in NO_SENSE),
        *((json.dumps({"metaData": {"schemaString": text}}), "metaData action is damag") for text in SCHEMAS),
        ('{"add":{"path":"x","size":-1}}', "the file x has -1 bytes: restore it from a backup"),
        ('{"add":{"path":"x"}}', "the file x has None bytes: restore it from a backup"),
    ],
)
def test_a_line_that_can_t_be_used_is_refused(line: str | bytes, words: str, tmp_path: Path) -> None:
    refused(open_table(write(tmp_path, line)).files, CorruptLogError, words)


def test_a_table_that_needs_more_is_refused(tmp_path: Path) -> None:
    for number, (protocol, words) in enumerate(
        [
            (handmade.protocol(4, 7), "reader version 4 and this package reads up to 3: use a newer one"),
            (handmade.protocol(features=["deletionVectors", "timeToo"]), "the reader feature timeToo, which"),
        ]
    ):
        table = open_table(write(tmp_path / str(number), json.dumps(protocol)))
        refused(table.files, UnsupportedTableError, words)


@pytest.mark.parametrize(
    ("left", "words"),
    [
        *((share, "restore it from a backup") for share in (0.999, 0.6, 0.3)),
        # Without a check, pyarrow would end the process on a text that begins with null.
        *((b"\n", "is empty"), (b"null\n", "is damaged")),
        (b'{"add":{"path":"a"\n"size":1}}', "is damaged"),
        (b'{"remove":{"path":"a"}}, {"remove":{"path":"b"}}', "is damaged"),
    ],
)
def test_a_commit_that_is_cut_empty_or_no_lines_of_json_is_named(
    tmp_path: Path, left: float | bytes, words: str
) -> None:
    table = open_table(write(tmp_path))
    file = handmade.commit_path(table.path, 1)
    data = file.read_bytes().rstrip()
    file.write_bytes(left if isinstance(left, bytes) else data[: int(len(data) * left)])
    refused(table.files, CorruptLogError, file.name, words)
    if words != "is empty":
        refused(lambda: table.log.actions(1), CorruptLogError, f"{file.name} is damaged")


@pytest.mark.parametrize("name", ["protocol", "metaData"])
def test_a_log_without_a_protocol_or_metadata_is_refused(tmp_path: Path, name: str) -> None:
    have = [handmade.protocol(), handmade.metadata(), handmade.add("a")]
    handmade.write_commit(tmp_path, 0, [action for action in have if name not in action])
    refused(open_table(tmp_path).files, CorruptLogError, f"no {name} action")


@pytest.mark.spark
def test_a_commit_that_differs_from_its_checksums_is_named(lived: Path, copy_of: CopyOf) -> None:
    table = open_table(copy_of(lived))
    file = handmade.commit_path(table.path, 4)
    file.write_bytes(file.read_bytes().replace(b'"WRITE"', b'"WROTE"'))
    refused(table.files, CorruptLogError, f"{file.name} is damaged (it differs from its checksums")


@pytest.mark.parametrize(("sidecars", "share"), [(0, 0.999), (0, 0.001), (1, 0.5), (1, "gone")])
def test_a_checkpoint_that_is_cut_or_lacks_a_sidecar_is_named(
    tmp_path: Path, sidecars: int, share: float | str
) -> None:
    commits = [[handmade.protocol(features=["v2Checkpoint"]), handmade.metadata(), handmade.add("a")]]
    handmade.write_log(tmp_path, *commits)
    *_, file = checkpoints.write_v2(tmp_path, 0, checkpoints.replay(commits), "text", "parquet", sidecars)
    data = file.read_bytes()
    if isinstance(share, float):
        file.write_bytes(data[: int(len(data) * share)])
    else:
        file.unlink()
    refused(open_table(tmp_path).files, CorruptLogError, file.name)


def test_odd_things_beside_the_log_are_passed_over(tmp_path: Path) -> None:
    table = write(tmp_path)
    log = table / "_delta_log"
    for name in ("12", "0" * 21, f"{3:020d}.80a083e8-7026-4e79-81be-64bd76c43a11"):
        (log / f"{name}.json").touch()
    (log / os.fsdecode(b"caf\xe9")).touch()
    (log / "_last_checkpoint").mkdir()
    (log / "dangling.json").symlink_to("nowhere")
    (log / f".{handmade.log_name(1)}.crc").write_bytes(b"no checksums")
    (log / handmade.log_name(3)).symlink_to(handmade.log_name(3))
    (table / os.fsdecode(b"caf\xe9.parquet")).touch()
    opened = open_table(table)
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        assert (opened.version, opened.files().num_files) == (2, 3)
    assert len(opened.plan_vacuum().files) == 0
    assert opened.versions()["readable"].to_pylist() == ["missing files"] * 3
