"""Rows keep their ids and their versions where a table tracks them."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from compaction_kit import open_table
from tests import folders, handmade
from tests.handmade import actions_of

pytestmark = pytest.mark.usefixtures("spark")


IDS = "_row-id-of-its-own"
VERSIONS = "_row-commit-version-of-its-own"


@pytest.fixture
def tracked(tmp_path: Path) -> Path:
    """Two partitions whose files store ids of no, some or all rows; deletion vectors delete some rows."""
    table, vector, adds = tmp_path / "table", handmade.inline_vector([3, 7]), []
    shapes = [("0", 20, []), ("0", 10, range(10)), ("1", 20, []), ("1", 10, range(0, 10, 2))]
    for number, (part, count, own) in enumerate(shapes):
        first = 20 * number
        ids = [900 - first - i if i in own else None for i in range(count)]
        versions = [0 if i in own else None for i in range(count)]
        columns = {"id": range(first, first + count), IDS: ids, VERSIONS: versions}
        rows = pa.table({name: pa.array(values, pa.int64()) for name, values in columns.items()})
        rows = rows if own else rows.select(["id"])
        action = handmade.write_data(table, f"p={part}/{number}.parquet", rows, {"p": part})
        # Rows without a stored id are numbered from here on.
        action["add"] |= {"baseRowId": first, "defaultRowCommitVersion": 1}
        adds.append({"add": action["add"] | ({"deletionVector": vector} if number % 2 else {})})
    properties = {
        "delta.enableRowTracking": "true",
        "delta.rowTracking.materializedRowIdColumnName": IDS,
        "delta.rowTracking.materializedRowCommitVersionColumnName": VERSIONS,
    }
    protocol = handmade.protocol(features=["deletionVectors"])
    protocol["protocol"]["writerFeatures"] += ["rowTracking", "domainMetadata"]
    mark = {"domain": "delta.rowTracking", "configuration": '{"rowIdHighWaterMark":999}', "removed": False}
    head = [protocol, handmade.metadata({"id": "long", "p": "string"}, ["p"], properties)]
    return handmade.write_log(table, head, [{"domainMetadata": mark}, *adds])


def ids_of(spark: SparkSession, table: Path) -> list[tuple[Any, ...]]:
    rows = spark.read.format("delta").load(str(table))
    return sorted(map(tuple, rows.select("*", "_metadata.row_id", "_metadata.row_commit_version").collect()))


def what_delta_keeps(table: Path, version: int) -> Any:
    """Return what a commit says about row ids, without the names and sizes of new files."""
    (info,) = actions_of(table, version, "commitInfo")
    keys = ("path", "baseRowId", "defaultRowCommitVersion")
    removes = sorted(str([remove[key] for key in keys]) for remove in actions_of(table, version, "remove"))
    adds = actions_of(table, version, "add")
    ids = sorted((add["baseRowId"], add["defaultRowCommitVersion"]) for add in adds)
    return info["tags"], removes, actions_of(table, version, "domainMetadata"), len(ids), ids[0]


def test_rows_keep_their_ids_and_versions(spark: SparkSession, tracked: Path) -> None:
    other = folders.copy(tracked, tracked.parent / "other")
    before = ids_of(spark, tracked)
    assert len({row[-1] for row in before}) == 2
    assert len({row[-2] for row in before}) == len(before) == 56
    result = open_table(tracked).plan_compaction().run(strategy="arrow")
    assert (result.strategy, result.refusals, result.as_planned) == ("arrow", {}, True)
    assert result.verified is True
    assert ids_of(spark, tracked) == before
    open_table(other).plan_compaction().run(strategy="optimize", verify=False)
    (version,) = result.versions
    assert what_delta_keeps(tracked, version) == what_delta_keeps(other, version)
    columns = [
        sorted(pq.read_schema(folder / add["path"]).names)
        for folder in (tracked, other)
        for add in actions_of(folder, version, "add")
    ]
    assert all(names == columns[0] for names in columns)
