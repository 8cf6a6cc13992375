"""Files with deletion vectors are rewritten without their deleted rows, as OPTIMIZE rewrites them."""

import json
import math
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from pyroaring import BitMap64
from pyspark.sql import SparkSession
from pyspark.sql import functions as sf

from compaction_kit import open_table
from compaction_kit.arrow.worker import inputs
from compaction_kit.arrow.worker.columns import Refused
from compaction_kit.arrow.worker.vectors import Vector
from compaction_kit.errors import RunFailedError
from tests import folders, handmade
from tests.conftest import CopyOf
from tests.handmade import Action, actions_of

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("spark")]

COLUMNS: dict[str, Any] = {
    "id": "long",
    "s": "string",
    "f": "float",
    "t": "timestamp",
    "n": "decimal(20,3)",
    "st": handmade.struct_of(
        {"day": "date", "l": {"type": "array", "elementType": "double", "containsNull": True}}
    ),
    "p": "string",
}
KINDS = ["inline", "inline", "stored", "stored", "prefix", "absolute"]


def rows_from(start: int, count: int, rng: np.random.Generator) -> pa.Table:
    """Rows with nulls, zeros, infinities and long texts, and texts that repeat."""
    ids = np.arange(start, start + count)
    texts = [None if i % 7 == 3 else f"{'ünï' * int(i % 15)}{i % 11}" for i in ids.tolist()]
    floats = rng.choice([-0.0, 0.0, 1.5, math.inf, -math.inf, -2.25], count)
    days = [None if i % 5 else datetime(1890, 1, 1) + timedelta(int(i)) for i in ids.tolist()]
    lists = [None if i % 3 else [float(i), None] for i in ids.tolist()]
    return pa.table(
        {
            "id": pa.array(ids, pa.int64()),
            "s": pa.array(texts, pa.string()),
            "f": pa.array(floats, pa.float32()),
            "t": pa.array(ids * 1_234_567_891, pa.timestamp("us", "UTC")),
            "n": pa.array([Decimal(int(i) * 7 - 999).scaleb(-3) for i in ids], pa.decimal128(20, 3)),
            "st": pa.StructArray.from_arrays(
                [pa.array(days, pa.date32()), pa.array(lists, pa.list_(pa.field("element", pa.float64())))],
                ["day", "l"],
                mask=pa.array(ids % 4 == 1),
            ),
        }
    )


def deleted_of(count: int, group: int, rng: np.random.Generator) -> list[int]:
    """Numbers of rows: none, few, a range, a row group, half of them, or all."""
    match rng.choice(["none", "few", "few", "range", "group", "half", "all"]):
        case "few":
            return sorted(rng.choice(count, min(count, 3), replace=False).tolist())
        case "range":
            first, end = sorted(rng.integers(0, count + 1, 2).tolist())
            return list(range(first, end))
        case "group":
            return list(range(min(group, count)))
        case "half":
            return np.flatnonzero(rng.random(count) < 0.5).tolist()
        case "all":
            return list(range(count))
    return []


def bitmap_of(rows: Sequence[int], rng: np.random.Generator) -> tuple[bytes, int]:
    bitmap = BitMap64(rows)
    if rng.random() < 0.5:
        bitmap.run_optimize()
    return bitmap.serialize(), len(rows)


def nulls_of(rows: pa.Table) -> dict[str, Any]:
    """Numbers of nulls as stats have them; not for lists."""
    flat = {"day": pc.sum(pc.is_null(pc.struct_field(rows["st"], "day"))).as_py()}
    plain = {name: rows[name].null_count for name in rows.column_names if name != "st"}
    return {**plain, "st": flat}


def marked_table(folder: Path, seed: int) -> list[int]:
    """Write a table of partitions whose files have vectors of all kinds; returns the ids of live rows."""
    rng = np.random.default_rng(seed)
    adds, live, start = list[Action](), list[int](), 0
    shapes = [("gone", 3)] * 2 + [("large", 70_000), ("large", 900)]
    shapes += [(f"p{i}", int(rng.choice([1, 20, 1_000]))) for i in range(3) for _ in range(4)]
    for number, (part, count) in enumerate(shapes):
        rows, group = rows_from(start, count, rng), int(rng.choice([7, 400, 100_000]))
        path = folder / f"p={part}" / f"{number}.parquet"
        path.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(rows, path, row_group_size=group if count < 5_000 else 60_000)
        deleted = list(range(count)) if part == "gone" else deleted_of(count, group, rng)
        if count > 5_000:
            # Bitmaps of all three sorts, in several containers.
            some = rng.choice(np.arange(20_000, count), 25_000, replace=False).tolist()
            deleted = sorted({*range(10_000), *some})
        relative = str(path.relative_to(folder))
        add = handmade.add(relative, path.stat().st_size, {"p": part}, count)["add"]
        if deleted:
            bitmap = bitmap_of(deleted, rng)
            match str(rng.choice(KINDS)):
                case "inline":
                    add["deletionVector"] = handmade.inline_bitmap(*bitmap)
                case kind:
                    others = [bitmap_of([1], rng)] * int(rng.integers(0, 2))
                    where = {"prefix": ("ab", "u"), "absolute": ("", "p")}.get(kind, ("", "u"))
                    *_, add["deletionVector"] = handmade.stored_vectors(folder, [*others, bitmap], *where)
        stats = {"numRecords": count, "nullCount": nulls_of(rows), "tightBounds": not deleted}
        adds.append({"add": add | {"stats": json.dumps(stats)}})
        live += np.delete(np.arange(start, start + count), deleted).tolist()
        start += count
    head = [handmade.protocol(features=["deletionVectors"]), handmade.metadata(COLUMNS, ["p"])]
    handmade.write_log(folder, [*head, *adds])
    return live


def content(spark: SparkSession, table: Path) -> list[tuple[Any, ...]]:
    rows = spark.read.format("delta").load(str(table))
    sums = sf.sum(sf.xxhash64(*rows.columns).cast("decimal(38,0)"))
    return sorted(map(tuple, rows.groupBy("p").agg(sf.count("*"), sf.sum("id"), sums).collect()))


def by_partition(table: Path, version: int) -> dict[str, Any]:
    """The stats of added files, by their partition, but for lists; times as moments."""

    def plain(stats: Any) -> Any:
        if isinstance(stats, dict):
            inner = {name: plain(value) for name, value in stats.items() if name not in ("l", "tightBounds")}
            return {name: value for name, value in inner.items() if value != {}}
        is_time = isinstance(stats, str) and "T" in stats and stats.endswith("Z")
        return datetime.fromisoformat(stats).astimezone(UTC) if is_time else stats

    adds = actions_of(table, version, "add")
    return {add["partitionValues"]["p"]: plain(json.loads(add["stats"])) for add in adds}


def removed(table: Path, version: int) -> list[Any]:
    keys = ("path", "partitionValues", "size", "deletionVector", "dataChange", "extendedFileMetadata")
    return sorted(str([action.get(key) for key in keys]) for action in actions_of(table, version, "remove"))


@pytest.mark.parametrize(
    "seed", [1, *(pytest.param(seed, marks=pytest.mark.nightly) for seed in range(2, 12))]
)
def test_a_random_table_becomes_what_optimize_makes(spark: SparkSession, tmp_path: Path, seed: int) -> None:
    table = tmp_path / "table"
    live = marked_table(table, seed)
    other = folders.copy(table, tmp_path / "other")
    before = content(spark, table)
    assert (sum(row[1] for row in before), sum(row[2] for row in before)) == (len(live), sum(live))
    plan = open_table(table).plan_compaction()
    result = plan.run(strategy="arrow")
    assert (result.strategy, result.refusals, result.as_planned) == ("arrow", {}, True)
    assert result.verified is True
    assert result.fingerprint is not None
    assert (result.fingerprint.num_rows, result.fingerprint.readers) == (len(live), ("DuckDB",))
    assert content(spark, table) == before
    theirs = open_table(other).plan_compaction().run(strategy="optimize", verify=False)
    (version,) = result.versions
    assert theirs.versions == (version,)
    assert removed(table, version) == removed(other, version)
    found = by_partition(table, version)
    assert found == by_partition(other, version)
    assert "gone" not in found
    ours, expected = (dict(one.batches["metrics"][0].as_py()) for one in (result, theirs))
    assert int(ours["numDeletionVectorsRemoved"]) == sum(plan.bins["num_deletion_vectors"].to_pylist()) > 2
    assert ours.keys() == expected.keys()
    for name in ("numAddedFiles", "numRemovedFiles", "numRemovedBytes", "numDeletionVectorsRemoved"):
        assert ours[name] == expected[name]


def test_a_damaged_vector_changes_nothing(tmp_path: Path) -> None:
    adds = [handmade.write_data(tmp_path, f"{i}.parquet", pa.table({"id": range(100)})) for i in range(2)]
    bitmap = bitmap_of([0, 50, 99], np.random.default_rng(0))
    (adds[0]["add"]["deletionVector"],) = handmade.stored_vectors(tmp_path, [bitmap])
    handmade.write_log(tmp_path, [handmade.protocol(features=["deletionVectors"]), *adds])
    (file,) = tmp_path.glob("deletion_vector_*.bin")
    data = file.read_bytes()
    file.write_bytes(data[:30] + bytes([data[30] ^ 1]) + data[31:])
    before = folders.listing(tmp_path)
    with pytest.raises(RunFailedError, match=rf"the table is as it was: .*{file.name} is damaged: the"):
        open_table(tmp_path).plan_compaction().run()
    assert folders.listing(tmp_path).keys() == before.keys()


def test_odd_vectors_go_to_optimize(copy_of: CopyOf, lived: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(vectors: Mapping[str, Vector], *_: object) -> dict[str, bytes]:
        if vectors:
            raise Refused("a file has a deletion vector of an unknown format")
        return {}

    monkeypatch.setattr(inputs, "read_vectors", unknown)
    folder = copy_of(lived)
    table = open_table(folder)
    plan = table.plan_compaction()
    has_vectors = pc.greater(plan.bins["num_deletion_vectors"], 0)
    with_vector = plan.bins.filter(has_vectors)["bin_id"].to_pylist()
    assert (len(with_vector), plan.num_bins) == (1, 2)
    result = plan.run(strategy="arrow")
    reason = "a file has a deletion vector of an unknown format"
    assert result.refusals == dict.fromkeys(with_vector, reason)
    assert (result.as_planned, result.num_bins, result.verified) == (True, 2, True)
    assert result.batches["strategy"].to_pylist() == ["arrow", "optimize"]
    assert result.batches["num_files_added"].to_pylist() == [1, 1]
    assert "to OPTIMIZE" in result.summary()
    assert table.plan_compaction().is_empty
