"""A hundred thousand files in a thousand partitions, planned, compacted and proved."""

import os
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import functions as sf

from compaction_kit import open_table
from tests import handmade
from tests.knocks.oracle import Before, Case, Outcome, Rows, Wrong, judge_result

PARTITIONS, FILES = 1_000, 100


def _write(table: Path) -> None:
    """A file for each number, linked into each partition, for what counts is how many there are."""
    table.mkdir()
    sizes, adds = [], []
    for i in range(FILES):
        one = table.parent / f"{i}.parquet"
        pq.write_table(pa.table({"id": [i, -i]}), one)
        sizes.append(one.stat().st_size)
    for partition in range(PARTITIONS):
        (table / f"p={partition}").mkdir()
        for i, size in enumerate(sizes):
            path = f"p={partition}/f{i}.parquet"
            os.link(table.parent / f"{i}.parquet", table / path)
            adds.append(handmade.add(path, size, {"p": str(partition)}, records=2))
    for i in range(FILES):
        (table.parent / f"{i}.parquet").unlink()
    head = [handmade.protocol(), handmade.metadata({"id": "long", "p": "integer"}, ["p"])]
    handmade.write_log(table, [*head, *adds])


def play(case: Case) -> Outcome:
    table = case.folder / "table"
    _write(table)
    expected = Rows(
        {str((p, i)): 1 for p in range(PARTITIONS) for i in [*range(-FILES + 1, 0), *range(1, FILES)]}
    )
    expected += Rows({str((p, 0)): 2 for p in range(PARTITIONS)})
    before = Before.of(table, expected)
    result = open_table(table, case.spark).plan_compaction().run(strategy="arrow")
    if (result.num_files_removed, result.num_files_added) != (PARTITIONS * FILES, PARTITIONS):
        raise Wrong(result.summary())
    rows = case.spark.read.format("delta").load(str(table)).groupBy("p", "id").agg(sf.count("*").alias("n"))
    found = Rows({str((row["p"], row["id"])): row["n"] for row in rows.collect()})
    before.check(found, expected)
    return judge_result(result)
