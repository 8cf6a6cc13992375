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

from compaction_kit import open_table
from compaction_kit.arrow.worker import inputs
from compaction_kit.arrow.worker.columns import Refused
from compaction_kit.arrow.worker.vectors import Vector
from tests import folders, handmade
from tests.chance import nightly
from tests.handmade import Action, actions_of

pytestmark = pytest.mark.usefixtures("spark")

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
# By kind of vector: the subfolder of the table, and the storageType.
PLACES = {"stored": ("", "u"), "prefix": ("ab", "u"), "absolute": ("", "p")}


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
    """Return row numbers to delete: none, few, a range, a row group, half of the rows, or all."""
    first, end = sorted(rng.integers(0, count + 1, 2).tolist())
    ways = {
        "none": [],
        "few": sorted(rng.choice(count, min(count, 3), replace=False).tolist()),
        "range": range(first, end),
        "group": range(min(group, count)),
        "half": np.flatnonzero(rng.random(count) < 0.5).tolist(),
        "all": range(count),
    }
    return list(ways[str(rng.choice([*ways, "few"]))])


def bitmap_of(rows: Sequence[int], rng: np.random.Generator) -> tuple[bytes, int]:
    bitmap = BitMap64(rows)
    if rng.random() < 0.5:
        bitmap.run_optimize()
    return bitmap.serialize(), len(rows)


def vector_of(folder: Path, rows: Sequence[int], rng: np.random.Generator) -> Action:
    """Return a deletion vector of a random kind; in its file it may follow another one."""
    kind = str(rng.choice(["inline", "inline", "stored", *PLACES]))
    if kind == "inline":
        return handmade.inline_bitmap(*bitmap_of(rows, rng))
    others = [bitmap_of([1], rng)] * int(rng.integers(0, 2))
    return handmade.stored_vectors(folder, [*others, bitmap_of(rows, rng)], *PLACES[kind])[-1]


def nulls_of(rows: pa.Table) -> dict[str, Any]:
    """Return null counts as in stats, without those of lists."""
    flat = {"day": pc.sum(pc.is_null(pc.struct_field(rows["st"], "day"))).as_py()}
    plain = {name: rows[name].null_count for name in rows.column_names if name != "st"}
    return {**plain, "st": flat}


def marked_table(folder: Path, seed: int, most: int) -> pa.Table:
    """Write a partitioned table whose files have vectors of all kinds; one file has `most` rows.

    Returns the live rows.
    """
    rng = np.random.default_rng(seed)
    adds, live, start = list[Action](), list[pa.Table](), 0
    shapes = [("gone", 3)] * 2 + [("large", most), ("large", 900)]
    shapes += [(f"p{i}", int(rng.choice([1, 20, 1_000]))) for i in range(3) for _ in range(4)]
    for number, (part, count) in enumerate(shapes):
        rows, group = rows_from(start, count, rng), int(rng.choice([7, 400, 100_000]))
        options = {"row_group_size": group if count < 5_000 else 60_000}
        action = handmade.write_data(folder, f"p={part}/{number}.parquet", rows, {"p": part}, **options)
        deleted = list(range(count)) if part == "gone" else deleted_of(count, group, rng)
        if count > 5_000:
            # Several containers of the bitmap, of all three kinds.
            some = rng.choice(np.arange(20_000, count), 25_000, replace=False).tolist()
            deleted = sorted({*range(10_000), *some})
        if deleted:
            action["add"]["deletionVector"] = vector_of(folder, deleted, rng)
        stats = {"numRecords": count, "nullCount": nulls_of(rows), "tightBounds": not deleted}
        action["add"]["stats"] = json.dumps(stats)
        adds.append(action)
        live.append(rows.take(np.delete(np.arange(count), deleted)))
        start += count
    head = [handmade.protocol(features=["deletionVectors"]), handmade.metadata(COLUMNS, ["p"])]
    handmade.write_log(folder, [*head, *adds])
    return pa.concat_tables(live)


def rows_in(table: Path, schema: pa.Schema) -> pa.Table:
    """The rows of all live files, in the order of their ids."""
    files = [pq.ParquetFile(table / path, coerce_int96_timestamp_unit="us") for path in folders.live(table)]
    return pa.concat_tables(file.read(schema.names).cast(schema) for file in files).sort_by("id")


def by_partition(table: Path, version: int) -> dict[str, Any]:
    """Return the stats of added files by partition, without lists, and with times as instants."""

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


COUNTS = ("numAddedFiles", "numRemovedFiles", "numRemovedBytes", "numDeletionVectorsRemoved")


@pytest.mark.parametrize(("seed", "most"), [(1, 900), *nightly(*((seed, 70_000) for seed in range(2, 12)))])
def test_a_random_table_becomes_what_optimize_makes(tmp_path: Path, seed: int, most: int) -> None:
    table = tmp_path / "table"
    live = marked_table(table, seed, most)
    other = folders.copy(table, tmp_path / "other")
    plan = open_table(table).plan_compaction("p <> 'none'")
    result = plan.run(strategy="arrow")
    assert (result.strategy, result.refusals, result.as_planned) == ("arrow", {}, True)
    assert result.verified is True
    assert result.fingerprint is not None
    assert (result.fingerprint.num_rows, result.fingerprint.readers) == (len(live), ("DuckDB",))
    theirs = open_table(other).plan_compaction("p <> 'none'").run(strategy="optimize", verify=False)
    for folder in (table, other):
        assert rows_in(folder, live.schema).equals(live)
    (version,) = result.versions
    assert theirs.versions == (version,)
    assert removed(table, version) == removed(other, version)
    found = by_partition(table, version)
    assert found == by_partition(other, version)
    assert "gone" not in found
    ours, expected = (dict(one.batches["metrics"][0].as_py()) for one in (result, theirs))
    assert int(ours["numDeletionVectorsRemoved"]) == sum(plan.bins["num_deletion_vectors"].to_pylist()) > 2
    assert ours.keys() == expected.keys()
    for name in COUNTS:
        assert ours[name] == expected[name]
    histories = [open_table(folder).history().to_pylist()[version] for folder in (table, other)]
    for name in ("operation", "parameters", "isolation_level", "is_blind_append", "read_version"):
        assert histories[0][name] == histories[1][name]
    ours, expected = (dict(history["metrics"]) for history in histories)
    assert ours.keys() == expected.keys()
    assert [ours[name] for name in COUNTS] == [expected[name] for name in COUNTS]
    assert int(ours["numAddedBytes"]) == result.bytes_added
    added = [folder / add["path"] for folder in (table, other) for add in actions_of(folder, version, "add")]
    # Both outputs have the partition columns, or neither, depending on the Delta release.
    assert len({tuple(sorted(pq.read_schema(path).names)) for path in added}) == 1


def test_odd_vectors_go_to_optimize(changed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    reason = "a file has a deletion vector of an unknown format"

    def unknown(vectors: Mapping[str, Vector], *_: object) -> dict[str, bytes]:
        if vectors:
            raise Refused(reason)
        return {}

    monkeypatch.setattr(inputs, "read_vectors", unknown)
    (add, *_) = actions_of(changed, 4, "add")
    marked = {"add": add | {"deletionVector": handmade.inline_vector([0])}}
    features = handmade.protocol(features=["deletionVectors"])
    handmade.write_commit(changed, 5, [features, handmade.remove(add["path"]), marked])
    plan = open_table(changed).plan_compaction()
    (with_vector,) = plan.bins.filter(pc.greater(plan.bins["num_deletion_vectors"], 0))["bin_id"].to_pylist()
    result = plan.run(strategy="arrow")
    assert result.refusals == {with_vector: reason}
    assert (result.as_planned, result.num_bins, result.verified) == (True, 3, True)
    assert result.batches["strategy"].to_pylist() == ["arrow", "optimize"]
    assert result.batches["num_files_added"].to_pylist() == [2, 1]
    facts = result.facts()
    assert (facts["version"], "to OPTIMIZE" in facts) == ("6, 7, by arrow and optimize", True)
    assert open_table(changed).plan_compaction().is_empty
