"""Files that are far larger in memory, with a bound on each Python worker; and very many files."""

import random
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import Row, SparkSession
from pyspark.sql import functions as sf

from compaction_kit import datasets, errors, open_table
from tests import handmade
from tests.arrow.worker.test_decoding import MOST, repeated
from tests.knocks.oracle import Before, Case, Outcome, Rows, Wrong, judge, judge_result

_ARRAY = {"type": "array", "elementType": "integer", "containsNull": True}


def _lists(length: int, count: int) -> pa.Array:
    one = pa.array(np.zeros(length, dtype=np.int32))
    return pa.chunked_array([pa.ListArray.from_arrays(pa.array([0, length], pa.int32()), one)] * count)


def _column(draw: random.Random) -> tuple[Any, Any]:
    """Return a Delta type, and values of that type that take few bytes in a file and many in memory."""
    ways: list[Callable[[], tuple[Any, Any]]] = [
        lambda: ("long", pa.array(np.full(draw.choice([2_000_000, 8_000_000]), draw.randrange(9)))),
        lambda: (
            "string",
            repeated(pa.array(["x" * draw.choice([2_000, 20_000])]), draw.choice([5_000, 15_000])),
        ),
        lambda: ("binary", repeated(pa.array([bytes(10_000)] * 2, pa.binary()), 15_000)),
        lambda: (_ARRAY, _lists(draw.choice([100_000, 1_000_000]), 24)),
    ]
    return draw.choice(ways)()


def _write(draw: random.Random, table: Path) -> int:
    """Write a table of such files; return how many times as large they are in memory."""
    kind, values = _column(draw)
    rows = pa.table({"a": values})
    table.mkdir()
    adds, size = [], 0
    pq.write_table(
        rows, table / "f0.parquet", compression=draw.choice(["snappy", "zstd"]), store_schema=False
    )
    for i in range(draw.choice([4, 12])):
        file = table / f"f{i}.parquet"
        if i:
            file.write_bytes((table / "f0.parquet").read_bytes())
        size = file.stat().st_size
        adds.append(handmade.add(file.name, size, records=len(rows)))
    handmade.write_log(table, [handmade.protocol(), handmade.metadata({"a": kind}), *adds])
    decoded = rows.cast(pa.schema([("a", pq.read_schema(table / "f0.parquet").field("a").type)])).nbytes
    return decoded // size


def _content(spark: SparkSession, table: Path) -> Rows:
    """Return a table's number of rows, and the sum of the hashes of its rows."""
    read = spark.read.format("delta").load(str(table))
    hashed = sf.xxhash64(*read.columns).cast("decimal(38,0)")
    rows: list[Row] = read.agg(sf.count("*"), sf.sum(hashed)).collect()
    return Rows(map(str, rows))


@contextmanager
def _watched() -> Iterator[list[int]]:
    """Yield a list to which the memory of the JVM's Python workers is appended, as seen from outside."""
    over, seen = threading.Event(), [0]

    def look() -> None:
        while not over.wait(0.02):
            for folder in Path("/proc").glob("[0-9]*"):
                with suppress(OSError, IndexError, ValueError):
                    if "pyspark.daemon" in (folder / "cmdline").read_text():
                        status = (folder / "status").read_text()
                        seen.append(int(status.split("VmRSS:")[1].split()[0]) << 10)

    thread = threading.Thread(target=look)
    thread.start()
    try:
        yield seen
    finally:
        over.set()
        thread.join()


def play(case: Case) -> Outcome:
    table = case.folder / "table"
    times = _write(case.draw, table)
    before = Before.of(table, _content(case.spark, table))
    with _watched() as seen:
        try:
            found: Any = open_table(table, case.spark).plan_compaction().run()
        except errors.CompactionKitError as error:
            found = error
    if (most := max(seen)) > MOST:
        raise Wrong(f"a worker took {most:,} bytes for files that are {times} times as large in memory")
    before.check(_content(case.spark, table), before.rows)
    return judge(found, before)


def play_many(case: Case) -> Outcome:
    """Plan, compact and prove a hundred thousand files in a thousand partitions."""
    table = Path(datasets.shaped_table(case.folder / "table", partitions=1_000, files=100, rows=2))
    before = Before.of(table, _content(case.spark, table))
    result = open_table(table, case.spark).plan_compaction().run(strategy="arrow")
    if (result.num_files_removed, result.num_files_added) != (100_000, 1_000):
        raise Wrong(result.summary())
    before.check(_content(case.spark, table), before.rows)
    return judge_result(result)
