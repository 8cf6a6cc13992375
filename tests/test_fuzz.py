"""Logs, checkpoints, sink logs and manifests, damaged at random: an answer or one sentence, in bounds.

`make test-long` looks at thousands of them.
"""

import json
import random
import shutil
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from compaction_kit.query import SPARK_ERRORS
from tests import checkpoints, deltas_view, handmade
from tests.bounded import Reader
from tests.chance import examples
from tests.interop.manifests import write_manifest
from tests.mutations import mutate
from tests.sinklog.streams import LINE, make_log

TABLES = ("commits", "classic checkpoint", "v2 checkpoint", "v2 checkpoint in JSON")
SEEDS = st.integers(0, 2**62)
SINK_LOGS = ("sink", "source")

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder for each of `TABLES` and `SINK_LOGS`."""
    folder = tmp_path_factory.mktemp("sound")
    for name in TABLES:
        _write_table(folder / name, name)
    batch, compaction = f"v1\n{LINE}", "\n".join(["v1", *[LINE] * 3])
    make_log(folder / "sink" / "_spark_metadata", b0=batch, b1=batch, c2=compaction, b3=batch)
    read = {"path": "file:///in/0", "timestamp": 1, "batchId": 0}
    batches = {f"b{number}": f"v1\n{json.dumps(read | {'batchId': number})}" for number in range(4)}
    make_log(folder / "source" / "sources" / "0", **batches)
    return folder


@pytest.fixture(scope="module")
def apart() -> Iterator[Reader]:
    """Reads in a process of its own, within bounds."""
    with closing(Reader()) as one:
        yield one


def _commits(features: list[str]) -> list[list[handmade.Action]]:
    told = {"timestamp": 1_700_000_000_000, "operation": "WRITE", "operationMetrics": {"numFiles": "1"}}
    told |= {"operationParameters": {"mode": "Append"}, "readVersion": 0, "isBlindAppend": True}
    info = {"commitInfo": told}
    in_commit = {"commitInfo": told | {"inCommitTimestamp": 1_700_000_000_500}}
    properties = {
        "delta.checkpointInterval": "10",
        "delta.deletedFileRetentionDuration": "interval 1 week",
        "delta.inCommitTimestampEnablementVersion": "3",
        "delta.logRetentionDuration": "interval 30 days",
        "delta.targetFileSize": "128m",
    }
    metadata = handmade.metadata({"id": "long", "p": "string"}, ["p"], properties)
    vector = handmade.vector("ab^-aqEH.-t@S}K{vb[*k^", 3, "u") | {"offset": 4}
    change = {"path": "_change_data/x.parquet", "partitionValues": {}, "size": 1, "dataChange": False}
    clustering = json.dumps({"clusteringColumns": []})
    domain = {"domain": "delta.clustering", "configuration": clustering, "removed": False}
    return [
        [handmade.protocol(features=features), metadata, _add("1/a"), _add("2/b")],
        [info, _add("1/c%20d"), handmade.remove("p=1/a.parquet")],
        [in_commit, _add("2/e", vector), {"txn": {"appId": "a", "version": 1}}, {"domainMetadata": domain}],
        [_add("2/f"), handmade.remove("p=2/b.parquet"), {"cdc": change}],
        [info, _add("2/g")],
    ]


def _add(name: str, vector: handmade.Action | None = None) -> handmade.Action:
    return handmade.add(f"p={name}.parquet", 5, {"p": name[0]}, vector=vector)


def _write_table(table: Path, name: str) -> None:
    commits = _commits(["v2Checkpoint", "deletionVectors"] if "v2" in name else ["deletionVectors"])
    handmade.write_log(table, *commits)
    state = checkpoints.replay(commits[:3])
    if name == "classic checkpoint":
        checkpoints.write_classic(table, 2, state, "both")
    elif "v2" in name:
        checkpoints.write_v2(table, 2, state, "text", "uuid.json" if "JSON" in name else "uuid.parquet", 2)
    log = table / "_delta_log"
    (log / "_last_checkpoint").write_text('{"version":2,"size":9}')
    (log / "_last_vacuum_info").write_text('{"latestCommitVersionOutsideOfRetentionWindow":1}')
    first = {action: fields for one in commits[0] for action, fields in one.items()}
    checksum = {"tableSizeBytes": 20, "numFiles": 4, "numMetadata": 1, "numProtocol": 1, "allFiles": []}
    checksum |= {"metadata": first["metaData"], "protocol": first["protocol"], "domainMetadata": []}
    checksum |= {"setTransactions": [{"appId": "a", "version": 1}]}
    checksum |= {"histogramOpt": {"sortedBinBoundaries": [0, 9], "fileCounts": [4, 0], "totalBytes": [20, 0]}}
    handmade.commit_path(table, 4, "crc").write_text(json.dumps(checksum))
    for file in ("1/a", "1/c d", "2/b", "2/e", "2/f", "2/g"):
        path = table / f"p={file}.parquet"
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(b"12345")
    write_manifest(table)


@contextmanager
def _damaged(folder: Path, seed: int, to: Path, inner: str = "") -> Iterator[str]:
    """Damage a copy, which is deleted afterwards; yields what was done."""
    draw, done = random.Random(seed), "as far as it goes"
    shutil.copytree(folder, to)
    try:
        # The first time nothing may be left, or nothing that Python's own parser reads.
        with suppress(IndexError, FileNotFoundError, RecursionError):
            done = "; ".join(mutate(to / inner, draw) for _ in range(draw.choice([1, 1, 1, 2])))
        yield done
    finally:
        shutil.rmtree(to, ignore_errors=True)


# With `--long` there are hundreds of examples, each of which is made again.
ANEW: dict[str, Any] = {"suppress_health_check": list(HealthCheck), "database": None}


@pytest.mark.parametrize(
    ("name", "inner"),
    [
        *((name, "_delta_log") for name in TABLES),
        (TABLES[0], ""),
        (TABLES[0], "_symlink_format_manifest"),
        *((name, "") for name in SINK_LOGS),
    ],
)
def test_what_is_damaged_is_read_or_refused_in_one_sentence(
    name: str, inner: str, sound: Path, apart: Reader, tmp_path: Path
) -> None:
    @settings(examples(1, divided_by=5), **ANEW)
    @given(seed=SEEDS)
    def check(seed: int) -> None:
        # What is read of a table is kept by its path.
        copy = tmp_path / str(seed)
        with _damaged(sound / name, seed, copy, inner) as done:
            wrong, _ = apart.wrong("sink log" if name in SINK_LOGS else "table", copy)
            assert not wrong, f"{done}\n" + "\n".join(wrong)

    check()


@pytest.mark.spark
@pytest.mark.parametrize("name", TABLES)
def test_a_damaged_log_that_both_read_has_the_files_that_delta_says(
    name: str, sound: Path, apart: Reader, spark: SparkSession, tmp_path: Path
) -> None:
    @settings(examples(1, divided_by=25), **ANEW)
    @given(seed=SEEDS)
    def check(seed: int) -> None:
        copy = tmp_path / str(seed)
        with _damaged(sound / name, seed, copy, "_delta_log") as done:
            wrong, live = apart.wrong("table", copy)
            assert not wrong, f"{done}\n" + "\n".join(wrong)
            # Delta waits for ever for what comes out of a pipe.
            if live is None or any(path.is_fifo() for path in copy.rglob("*")):
                return
            try:
                deltas = deltas_view.live_files(spark, copy)
            except SPARK_ERRORS:
                # What it refuses for the kit may not need, such as an account that a commit gives of itself.
                return
            assert {deltas_view.decoded(path): size for path, size in live} == deltas, done

    check()
