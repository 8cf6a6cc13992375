"""Compact tables of many shapes: stock OPTIMIZE, the strategy "arrow" and the deltalake package.

    python -P benchmarks/compact.py [table …] [--factor 0.1]

Every way runs on a copy of its own of the same table, in turn, in one warm session; the best of
some runs counts, from the open table to the commit. Prints seconds, ratios to arrow, and the bytes
that come out. --factor makes smaller tables.
"""

import argparse
import json
import shutil
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

import compaction_kit as ck
from compaction_kit.sizes import MIB, format_size

REPEATS = 3
SEED = 0
BYTES_A_ROW = 16


@dataclass(frozen=True)
class Shape:
    """A table: how many partitions (0 for none), files in each, bytes in a file, and the bins' size.

    `faster` is how many times as fast as stock OPTIMIZE, and as deltalake, arrow has to be.
    """

    partitions: int
    files: int
    file_bytes: int
    target: int
    faster: tuple[float, float]


SHAPES = {
    "5,000 × 2 KB": Shape(0, 5_000, 2_000, 1024 * MIB, (2, 1 / 1.3)),
    "5,000 × 20 KB": Shape(0, 5_000, 20_000, 1024 * MIB, (3, 1 / 1.3)),
    "100 × 50 × 20 KB": Shape(100, 50, 20_000, 1024 * MIB, (7, 1.8)),
    "2,000 × 5 × 6 KB": Shape(2_000, 5, 6_000, 1024 * MIB, (40, 10)),
    "24 × 19 MB": Shape(0, 24, 19_000_000, 128 * MIB, (3, 1 / 1.3)),
}


def main(names: list[str], factor: float) -> None:
    spark = ck.get_spark()
    with tempfile.TemporaryDirectory(prefix="compact-") as folder:
        warm = make_table(Path(folder) / "warm", Shape(4, 4, 2_000, MIB, (0, 0)))
        for run in WAYS.values():
            timed(run, spark, warm, Path(folder) / "copy", MIB)
        for name in names:
            shape = SHAPES[name]
            size = max(int(shape.files * factor), 2)
            table = make_table(Path(folder) / "table", Shape(**{**vars(shape), "files": size}))
            report(name, shape, spark, table, Path(folder) / "copy")
            shutil.rmtree(table)


def report(name: str, shape: Shape, spark: SparkSession, table: Path, copy: Path) -> None:
    print(f"\n{name}, bins of at most {format_size(shape.target)}", flush=True)
    seconds: dict[str, float] = {}
    for way, run in WAYS.items():
        runs = [timed(run, spark, table, copy, shape.target) for _ in range(REPEATS)]
        seconds[way], size = min(took for took, _ in runs), runs[0][1]
        ratio = seconds[way] / seconds["arrow"]
        print(
            f"  {way:<10} {seconds[way]:7.2f} s   {ratio:6.1f} × arrow   {format_size(size)} out", flush=True
        )
    for way, target in zip(("OPTIMIZE", "deltalake"), shape.faster, strict=True):
        ratio = seconds[way] / seconds["arrow"]
        if ratio < target:
            print(f"  NOT REACHED: arrow is {ratio:.1f} times as fast as {way}, the target is {target:.1f}")


def timed(
    run: Callable[[SparkSession, Path, int], None], spark: SparkSession, table: Path, copy: Path, target: int
) -> tuple[float, int]:
    """Seconds on a fresh copy, and the bytes of the files that are live then."""
    place = copy / str(time.monotonic_ns())
    shutil.copytree(table, place)
    start = time.perf_counter()
    run(spark, place, target)
    seconds = time.perf_counter() - start
    size = ck.open_table(place).files().size_bytes
    shutil.rmtree(place)
    return seconds, size


def by_arrow(spark: SparkSession, table: Path, target: int) -> None:
    plan = ck.open_table(table, spark).plan_compaction(max_file_size=target)
    plan.run(strategy="arrow", verify=False)


def by_optimize(spark: SparkSession, table: Path, target: int) -> None:
    for name in ("minFileSize", "maxFileSize"):
        spark.conf.set(f"spark.databricks.delta.optimize.{name}", target)
    spark.sql(f"OPTIMIZE delta.`{table}`").collect()
    for name in ("minFileSize", "maxFileSize"):
        spark.conf.unset(f"spark.databricks.delta.optimize.{name}")


def by_deltalake(spark: SparkSession, table: Path, target: int) -> None:
    import deltalake

    deltalake.DeltaTable(str(table)).optimize.compact(target_size=target)


WAYS = {"arrow": by_arrow, "OPTIMIZE": by_optimize, "deltalake": by_deltalake}


def make_table(table: Path, shape: Shape) -> Path:
    """Random rows of a number and a text in files of about the same size, in one commit."""
    rng = np.random.default_rng(SEED)
    (table / "_delta_log").mkdir(parents=True)
    fields = [("id", "long"), ("v", "double"), *([("p", "integer")] if shape.partitions else [])]
    schema = [{"name": name, "type": kind, "nullable": True, "metadata": {}} for name, kind in fields]
    metadata = {
        "id": "11111111-1111-1111-1111-111111111111",
        "format": {"provider": "parquet", "options": {}},
        "schemaString": json.dumps({"type": "struct", "fields": schema}),
        "partitionColumns": ["p"] if shape.partitions else [],
        "configuration": {},
    }
    lines = [{"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}}, {"metaData": metadata}]
    rows = max(shape.file_bytes // BYTES_A_ROW, 1)
    for partition in range(shape.partitions or 1):
        folder = f"p={partition}/" if shape.partitions else ""
        (table / folder).mkdir(exist_ok=True)
        for i in range(shape.files):
            name = f"{folder}part-{i:05d}.parquet"
            ids = rng.integers(0, 2**62, rows)
            pq.write_table(pa.table({"id": ids, "v": rng.random(rows)}), table / name)
            stats = {"numRecords": rows, "nullCount": {"id": 0, "v": 0}}
            stats |= {"minValues": {"id": int(ids.min())}, "maxValues": {"id": int(ids.max())}}
            add = {
                "path": name,
                "partitionValues": {"p": str(partition)} if shape.partitions else {},
                "size": (table / name).stat().st_size,
                "modificationTime": 1_700_000_000_000,
                "dataChange": True,
                "stats": json.dumps(stats),
            }
            lines.append({"add": add})
    log = table / "_delta_log" / f"{0:020d}.json"
    log.write_text("\n".join(map(json.dumps, lines)) + "\n")
    return table


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("tables", nargs="*", choices=[[], *SHAPES], default=list(SHAPES))
    parser.add_argument("--factor", type=float, default=1.0)
    options = parser.parse_args()
    main(options.tables, options.factor)
