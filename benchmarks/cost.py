"""Predict how long runs take on eight tables, and compare the predictions with the measured times.

    python -m benchmarks.cost [table …] [--factor 0.2] [--rounds 2]

Copies of each table are compacted by "arrow" and by OPTIMIZE, in turn and with proof, in a session in which
both have already run; round 0 has first runs of a session, each in a new process. Each run is predicted
twice: from a second of work on the table's own files, as if nothing had run on this machine yet, and from
the earlier runs of this benchmark. Prints, for run and proof together, both predicted ranges, the measured
time, and its ratio to the middle of each range; then how many ratios are within a factor of two, and how
many times are within their range. --factor makes tables of fewer files. The user's own rates are left alone.
"""

import math
import tempfile
from collections import defaultdict
from collections.abc import Callable
from itertools import chain
from multiprocessing import get_context
from pathlib import Path
from typing import Any
from unittest import mock

from pyspark.sql import SparkSession

import compaction_kit as ck
from benchmarks import compact, parser
from compaction_kit import cost, datasets
from compaction_kit.compaction import CompactionPlan
from compaction_kit.text import MIB, format_range

Make = Callable[[SparkSession, Path, float], object]
BASES = "a second of work", "runs so far"
WITHIN = 2.0
STRATEGIES = "arrow", "optimize"
# Clustered tables go to OPTIMIZE.
REFUSED = "clustered", "arrow"


def main(names: list[str], factor: float, rounds: int) -> None:
    spark = ck.get_spark()
    print(f"Spark {spark.version}, {spark.sparkContext.defaultParallelism} cores; run and proof together\n")
    print(f"| round | table | by | {' | '.join(f'{by} | times' for by in BASES)} | took |", flush=True)
    print(f"|--:|---|---|{'--:|' * (2 * len(BASES) + 1)}")
    quotients: dict[tuple[int, str], list[tuple[float, bool]]] = defaultdict(list)
    runs = [(name, strategy) for name in names for strategy in STRATEGIES if (name, strategy) != REFUSED]
    with tempfile.TemporaryDirectory(prefix="cost-") as place:
        folder = Path(place)
        for name in names:
            TABLES[name](spark, folder / name, factor)
        with get_context("spawn").Pool(1, maxtasksperchild=1) as processes:
            first = [(0, run, processes.apply(measure, (folder, *run))) for run in runs[-len(STRATEGIES) :]]
        for _, run, _ in first:
            measure(folder, *run, keep="unused")
        later = ((number, run, measure(folder, *run)) for number in range(1, rounds + 1) for run in runs)
        for number, (name, strategy), (found, took) in chain(first, later):
            row = []
            for by, (low, high) in zip(BASES, found, strict=True):
                quotient = took / math.sqrt(low * high)
                quotients[number, by].append((quotient, low <= took <= high))
                row.append(f"{format_range(low, high)} | {quotient:.2f}")
            print(f"| {number} | {name} | {strategy} | {' | '.join(row)} | {took:.1f} s |", flush=True)
    print()
    for (number, by), pairs in quotients.items():
        near = sum(1 / WITHIN <= quotient <= WITHIN for quotient, _ in pairs)
        inside = sum(is_inside for _, is_inside in pairs)
        print(f"round {number}, by {by}: {near} of {len(pairs)} within a factor of {WITHIN:.0f}, ", end="")
        print(f"{inside} in their range")


def measure(
    folder: Path, name: str, strategy: str, keep: str = "kept"
) -> tuple[list[tuple[float, float]], float]:
    """Compact a copy; return the predicted ranges and the measured seconds."""
    with compact.copied(folder / name, folder / "copy") as copy:
        plan = ck.open_table(copy, ck.get_spark()).plan_compaction()
        found = [predicted(plan, strategy, folder / kept) for kept in ("none", keep)]
        with rates_in(folder / keep):
            return found, plan.run(strategy).seconds


def predicted(plan: CompactionPlan, strategy: str, kept: Path) -> tuple[float, float]:
    with rates_in(kept):
        return cost.cost_of(plan.handle, plan, strategy).total()


def rates_in(folder: Path) -> Any:
    """Read and write the rates of runs in a folder other than the user's."""
    return mock.patch.object(cost, "cache_folder", return_value=folder)


def by_shape(
    make: Callable[[SparkSession, Path, compact.Shape], Path], partitions: int, files: int, file_bytes: int
) -> Make:
    def made(spark: SparkSession, table: Path, factor: float) -> None:
        count = max(round(files * factor), 2)
        make(spark, table, compact.Shape(partitions, count, file_bytes, MIB, (0, 0), 0, 0, make))

    return made


def wide_text(spark: SparkSession, table: Path, factor: float) -> None:
    """Write ten columns of 64 characters each, which a dictionary can't make smaller."""
    columns = [f"sha2(concat(id, ' {i}'), 256) t{i}" for i in range(10)]
    files = max(round(40 * factor), 2)
    rows = spark.range(0, 2_000 * files, 1, files).selectExpr("id", *columns)
    rows.write.format("delta").save(str(table))


def commit_a_file(_: SparkSession, table: Path, factor: float) -> None:
    count = max(round(500 * factor), 2)
    datasets.shaped_table(table, partitions=0, files=count, rows=500, commits=count)


def clustered(spark: SparkSession, table: Path, factor: float) -> None:
    files = max(round(60 * factor), 2)
    spark.sql(f"CREATE TABLE delta.`{table}` (id BIGINT, v DOUBLE, word STRING) USING delta CLUSTER BY (v)")
    rows = spark.range(0, 20_000 * files, 1, files).selectExpr(
        "id", "rand(1) v", "concat('w', id % 999) word"
    )
    rows.write.format("delta").mode("append").save(str(table))


TABLES: dict[str, Make] = {
    "tiny files": by_shape(compact.random_numbers, 0, 2_000, 2_000),
    "many partitions": by_shape(compact.random_numbers, 200, 5, 6_000),
    "wide text": wide_text,
    "row groups copied": by_shape(compact.flights, 0, 12, 14_000_000),
    "deletion vectors": by_shape(compact.marked, 0, 300, 50_000),
    "a commit a file": commit_a_file,
    "clustered": clustered,
    "flights": lambda _, table, factor: datasets.flights(table),
}


if __name__ == "__main__":
    arguments = parser(__doc__)
    arguments.add_argument("tables", nargs="*", choices=[[], *TABLES])
    arguments.add_argument("--factor", type=float, default=1.0)
    arguments.add_argument("--rounds", type=int, default=2)
    options = arguments.parse_args()
    main(options.tables or list(TABLES), options.factor, options.rounds)
