"""Every type of Delta, with every strategy: the rows stay the same, and stats are those of Delta."""

import functools
import json
from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from compaction_kit import open_table
from compaction_kit.execute import CompactionResult
from compaction_kit.execute.jobs import session_confs
from tests import folders
from tests.chance import nightly
from tests.handmade import actions_of
from tests.rows import texts

Compacted = tuple[Path, CompactionResult]

ZONE = "spark.sql.session.timeZone"
PLAIN = (
    "id",
    "CAST(id % 100 AS BYTE) y",
    "CAST(id * 3 AS SHORT) h",
    "CAST(id AS INT) i",
    "IF(id % 3 = 0, NULL, id / 7) f",
    "CAST(id / 3 AS FLOAT) g",
    "CAST(id / 7 AS DECIMAL(9, 3)) d9",
    "CAST(id / 7 AS DECIMAL(18, 6)) d18",
    "CAST(id * 1000000007 / 7 AS DECIMAL(38, 10)) d38",
    "CONCAT('a rather long text that stats cut off somewhere, number ', id) s",
    "IF(id < 40, NULL, CONCAT('x', id)) late",
    "CAST(CONCAT('b', id) AS BINARY) b",
    "id % 2 = 0 bool",
    "DATE_ADD(DATE'1890-01-01', CAST(id AS INT) * 300) day",
    "TIMESTAMP'2024-01-01 00:00:00.123456' + MAKE_INTERVAL(0, 0, 0, CAST(id AS INT)) t",
    "TIMESTAMP_NTZ'1900-01-01 00:00:00.000001' + MAKE_INTERVAL(0, 0, 0, CAST(id AS INT)) n",
    "NAMED_STRUCT('a', id, 'deep', NAMED_STRUCT('z', CONCAT('z', id), 'l', ARRAY(id, NULL))) st",
    "ARRAY(MAP(CONCAT('k', id), NAMED_STRUCT('v', ARRAY(id / 3, NULL), 't', DATE'2024-01-01'))) arr",
    "MAP(CONCAT('k', id), NAMED_STRUCT('v', MAP(id, NAMED_STRUCT('w', id)))) m",
    "CAST(NULL AS STRING) nothing",
    "id % 5 dropped",
    "CAST(id % 2 AS INT) p",
)
# The extreme values of each type, by column; columns that are left out are null.
LEAST = {
    "y": "CAST(-128 AS BYTE)",
    "h": "CAST(-32768 AS SHORT)",
    "i": "CAST(-2147483648 AS INT)",
    "f": "CAST('-Infinity' AS DOUBLE)",
    "g": "CAST(-0.0 AS FLOAT)",
    "d9": "CAST(-999999.999 AS DECIMAL(9, 3))",
    "d18": "CAST(-999999999999.999999 AS DECIMAL(18, 6))",
    "d38": "CAST(CONCAT('-', REPEAT('9', 28), '.', REPEAT('9', 10)) AS DECIMAL(38, 10))",
    "s": "''",
    "late": "CONCAT(REPEAT('z', 40), '🚀')",
    "b": "CAST('' AS BINARY)",
    "day": "DATE'0001-01-01'",
    "t": "TIMESTAMP'0001-01-03 00:00:00Z'",
    "n": "TIMESTAMP_NTZ'0001-01-01 00:00:00'",
    "st": "NAMED_STRUCT('a', CAST(NULL AS BIGINT), 'deep', CAST(NULL AS STRUCT<z STRING, l ARRAY<BIGINT>>))",
    "arr": "CAST(ARRAY() AS ARRAY<MAP<STRING, STRUCT<v: ARRAY<DOUBLE>, t: DATE>>>)",
    "m": "CAST(MAP() AS MAP<STRING, STRUCT<v: MAP<BIGINT, STRUCT<w: BIGINT>>>>)",
}
MOST = {
    "y": "CAST(127 AS BYTE)",
    "h": "CAST(32767 AS SHORT)",
    "i": "CAST(2147483647 AS INT)",
    "f": "CAST('NaN' AS DOUBLE)",
    "g": "CAST('Infinity' AS FLOAT)",
    "d9": "CAST(999999.999 AS DECIMAL(9, 3))",
    "d18": "CAST(999999999999.999999 AS DECIMAL(18, 6))",
    "d38": "CAST(CONCAT(REPEAT('9', 28), '.', REPEAT('9', 10)) AS DECIMAL(38, 10))",
    "s": "CONCAT(CHR(10), '日本', CHR(0))",
    "b": "UNHEX('00FF80')",
    "day": "DATE'9999-12-31'",
    "t": "TIMESTAMP'9999-12-30 23:59:59.999999Z'",
    "n": "TIMESTAMP_NTZ'9999-12-31 23:59:59.999999'",
}


def extremes(spark: SparkSession, rows: DataFrame) -> DataFrame:
    """A row of the least values, one of the greatest and one of nulls, in each partition."""
    found = rows.limit(0)
    for i, values in enumerate((LEAST, MOST, {})):
        columns = [
            f"CAST({values.get(field.name, 'NULL')} AS {field.dataType.simpleString()}) {field.name}"
            for field in rows.schema.fields[1:-1]
        ]
        some = spark.range(1_000 + 2 * i, 1_002 + 2 * i, 1, 1)
        found = found.union(some.selectExpr("id", *columns, "CAST(id % 2 AS INT) p"))
    return found.coalesce(1)


@pytest.fixture(scope="module")
def typed(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A table of many types in 12 files, with column mapping, in a time zone that the tests use too."""
    folder = tmp_path_factory.mktemp("typed") / "table"
    name = f"delta.`{folder}`"
    with session_confs(spark, {ZONE: "America/New_York"}):
        rows = spark.range(0, 80, 1, 4).selectExpr(*PLAIN)
        writer = rows.write.format("delta").partitionBy("p").option("delta.columnMapping.mode", "name")
        writer.save(str(folder))
        extremes(spark, rows).write.format("delta").mode("append").save(str(folder))
        spark.sql(f"ALTER TABLE {name} ADD COLUMN (added STRUCT<x: INT, y: ARRAY<STRING>>)")
        spark.sql(f"ALTER TABLE {name} ALTER COLUMN f FIRST")
        spark.sql(f"ALTER TABLE {name} RENAME COLUMN s TO `a text`")
        spark.sql(f"ALTER TABLE {name} DROP COLUMN dropped")
        more = spark.read.format("delta").load(str(folder)).where("id < 4")
        more = more.drop("added").selectExpr("*", "NAMED_STRUCT('x', 7, 'y', ARRAY('z')) added")
        more = more.withColumn("id", more["id"] + 2_000).coalesce(1)
        more.write.format("delta").mode("append").save(str(folder))
        yield folder


@pytest.fixture(scope="module")
def compacted(typed: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Compacted]:
    """Compacts a copy of the table by a strategy, once for all tests."""

    @functools.cache
    def compact(strategy: str) -> Compacted:
        table = folders.copy(typed, tmp_path_factory.mktemp(strategy) / "table")
        plan = open_table(table).plan_compaction()
        assert (plan.num_bins, plan.num_files_removed) == (2, 12)
        return table, plan.run(strategy=strategy)

    return compact


@pytest.mark.parametrize("strategy", ["arrow", "optimize", *nightly("rewrite")])
def test_the_rows_are_the_same(
    spark: SparkSession, typed: Path, compacted: Callable[[str], Compacted], strategy: str
) -> None:
    table, result = compacted(strategy)
    assert (result.verified, result.as_planned, result.num_files_added) == (True, True, 2)
    # No reason means that DuckDB read the files.
    assert result.proof_reason == ""
    rows = texts(spark, table)
    assert (len(rows), rows) == (80 + 6 + 4, texts(spark, typed))
    (version,) = result.versions
    actions = actions_of(table, version, "add") + actions_of(table, version, "remove")
    assert not any(action["dataChange"] for action in actions)


def test_merged_stats_are_those_that_delta_makes(compacted: Callable[[str], Compacted]) -> None:
    ours, theirs = (stats_of(*compacted(strategy)) for strategy in ("arrow", "optimize"))
    for ours_said, theirs_said in zip(ours, theirs, strict=True):
        # Most files have no stats of the column that was added later.
        assert all("added" in place for place in set(theirs_said) - set(ours_said))
        assert ours_said == {key: theirs_said[key] for key in ours_said}


def stats_of(table: Path, result: CompactionResult) -> list[dict[tuple[str, ...], Any]]:
    """The stats of the files that a run added, in the order of their partitions, flat."""
    (version,) = result.versions
    metadata = open_table(table).files().snapshot.metadata
    names = {physical: name for name, physical in metadata.physical_names.items()}
    adds = sorted(actions_of(table, version, "add"), key=lambda add: json.dumps(add["partitionValues"]))
    return [dict(leaves(json.loads(add["stats"]), names)) for add in adds]


def leaves(
    stats: dict[str, Any], names: dict[str, str], path: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], Any]]:
    for key, value in stats.items():
        place = (*path, names.get(key, key))
        if isinstance(value, dict):
            yield from leaves(value, names, place)
        else:
            # Writers write the same instant in different time zones.
            is_time = place[-1] == "t" and path != ("nullCount",)
            yield place, datetime.fromisoformat(value) if is_time else value
