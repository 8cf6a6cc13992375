"""Measure time, memory and output size of every way to compact tables of many shapes.

    python -m benchmarks.compact [table …] [--factor 0.1] [--repeats 5]

Each way runs on its own copy of the same table. The ways take turns for several rounds in one session, so
that the JVM has compiled the code of each. Ways that take more than 15 seconds run once. Times go from the
open table to the commit; they exclude the proof, except where the name says "proved". Prints the best and
the first time, ratios of the best time to the strategy "arrow", the additional memory of all processes
together, and the bytes of the outputs. --factor makes tables of fewer files.
"""

import json
import os
import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
from pyspark.sql import SparkSession

import compaction_kit as ck
from benchmarks import parser, timed
from compaction_kit.execute.jobs import session_confs
from compaction_kit.text import MIB, format_size
from tests import handmade

Way = Callable[[SparkSession, Path, int], None]

SEED = 0
BYTES_A_ROW, BYTES_A_FLIGHT = 16, 60
# Ways that take longer run only once.
LONG_SECONDS = 15.0
MOST_LARGER = 1.03
MOST_SLOWER = 1.05
# Values of OPTIMIZE's maxThreads that are measured besides the default of 15.
THREADS = 2, 60
# Each poll takes some milliseconds of CPU time away from the runs.
POLL_SECONDS = 0.1


@dataclass(frozen=True)
class Shape:
    """A table: number of partitions (0 for none), files in each, bytes in a file, and the size of bins.

    `faster` has the required speed-ups of "arrow" over stock OPTIMIZE and over deltalake; `proved` is the
    required speed-up of "arrow" with its proof over stock OPTIMIZE without proof; `proof` is the longest time
    that the proof may take, as a multiple of the run's time.
    """

    partitions: int
    files: int
    file_bytes: int
    target: int
    faster: tuple[float, float]
    proved: float
    proof: float
    make: "Callable[[SparkSession, Path, Shape], Path]"
    seed: int = SEED


@dataclass
class Runs:
    """Seconds and memory of several runs of one way, and the bytes of the table afterwards."""

    seconds: list[float] = field(default_factory=list)
    memory: list[int] = field(default_factory=list)
    size_bytes: int = 0

    @property
    def best(self) -> float:
        return min(self.seconds)


def main(names: list[str], factor: float, repeats: int) -> None:
    spark = ck.get_spark()
    print(f"{spark.sparkContext.defaultParallelism} cores")
    with tempfile.TemporaryDirectory(prefix="compact-") as folder:
        warm_up(spark, Path(folder), WAYS)
        for name in names:
            shape = replace(SHAPES[name], files=max(int(SHAPES[name].files * factor), 2))
            table = shape.make(spark, Path(folder) / name, shape)
            report(name, shape, spark, table, Path(folder) / "copy", repeats)


def warm_up(spark: SparkSession, folder: Path, ways: Mapping[str, Way]) -> None:
    """Run each way twice on a small table."""
    shape = Shape(4, 4, 2_000, MIB, (0, 0), 0, 9, random_numbers)
    measure(spark, random_numbers(spark, folder / "warm", shape), folder / "copy", MIB, 2, ways)


def report(name: str, shape: Shape, spark: SparkSession, table: Path, copy: Path, repeats: int) -> None:
    files = ck.open_table(table).files()
    print(f"\n{name}: {files.num_files:,} files, {format_size(files.size_bytes)}, ", end="")
    print(f"into bins of at most {format_size(shape.target)}", flush=True)
    found = measure(spark, table, copy, shape.target, repeats, WAYS)
    for way, runs in found.items():
        print(
            f"  {way:<35} {runs.best:7.2f} s  {runs.best / found['arrow'].best:6.1f} × arrow"
            f"  {runs.seconds[0]:7.2f} s at first"
            f"  {format_size(max(runs.memory)):>9} more memory  {format_size(runs.size_bytes):>9} out",
            flush=True,
        )
    arrow, stock, proved = found["arrow"], found["OPTIMIZE"], found["arrow, proved"]
    proof = proved.best - arrow.best
    tuned = min((way for way in found if way.startswith("OPTIMIZE")), key=lambda way: found[way].best)
    print(f"  OPTIMIZE as tuned best: {tuned}, {found[tuned].best / arrow.best:.1f} times as long as arrow")
    print(
        f"  the proof takes {proof:.2f} s on top, {proof / arrow.best:.2f} times what the run takes; ", end=""
    )
    print(f"OPTIMIZE without proof {stock.best / proved.best:.1f} times as long as run and proof")
    if proof > shape.proof * arrow.best:
        print(f"  NOT REACHED: the proof may take {shape.proof} times what the run takes")
    if stock.best < shape.proved * proved.best:
        print(f"  NOT REACHED: OPTIMIZE is to take {shape.proved} times as long as run and proof")
    for way, target in zip(("OPTIMIZE", "deltalake"), shape.faster, strict=True):
        ratio = found[way].best / arrow.best if way in found else target
        if ratio < target:
            print(f"  NOT REACHED: arrow is {ratio:.2f} times as fast as {way}, the target is {target:.2f}")
    if arrow.size_bytes > MOST_LARGER * stock.size_bytes:
        print(f"  NOT REACHED: arrow's files are {arrow.size_bytes / stock.size_bytes:.3f} times as large")
    if found["auto"].best > MOST_SLOWER * stock.best:
        print(f"  NOT REACHED: auto takes {found['auto'].best / stock.best:.2f} times as long as OPTIMIZE")


def measure(
    spark: SparkSession, table: Path, copy: Path, target: int, repeats: int, ways: Mapping[str, Way]
) -> dict[str, Runs]:
    """Run all ways in turn; return their seconds and memory, and the bytes of the live files afterwards."""
    found: dict[str, Runs] = {}
    has_vectors = ck.open_table(table).files().snapshot.has_vectors
    for _ in range(repeats):
        for way, run in ways.items():
            if way == "deltalake" and has_vectors:
                # deltalake refuses tables with deletion vectors.
                continue
            runs = found.setdefault(way, Runs())
            if runs.seconds and runs.best > LONG_SECONDS:
                continue
            with copied(table, copy) as place, peak_memory(runs.memory):
                runs.seconds.append(timed(partial(run, spark, place, target))[0])
                runs.size_bytes = ck.open_table(place).files().size_bytes
    return found


@contextmanager
def copied(table: Path, copy: Path) -> Iterator[Path]:
    place = copy / str(time.monotonic_ns())
    shutil.copytree(table, place)
    yield place
    # Empty the files instead of deleting them. Without a journal, ext4 scans all files deleted in the last
    # minutes for each file that it creates (recently_deleted), which would slow down the next run.
    for path in place.rglob("*"):
        if path.is_file():
            os.truncate(path, 0)


@contextmanager
def peak_memory(peaks: list[int]) -> Iterator[None]:
    """Append the peak growth in memory, in bytes, of this process and its descendants."""
    before, most, ended = resident(), 0, threading.Event()

    def watch() -> None:
        nonlocal most
        while not ended.wait(POLL_SECONDS):
            most = max(most, resident())

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
        peaks.append(max(most - before, 0))


def resident() -> int:
    """Return the resident bytes of this process and its descendants (Linux)."""
    parents: dict[int, int] = {}
    pages: dict[int, int] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                parents[int(entry.name)] = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
                pages[int(entry.name)] = int((entry / "statm").read_text().split()[1])
            except OSError:
                continue
    total = 0
    for process in pages:
        ancestor = process
        while ancestor not in (os.getpid(), 0):
            ancestor = parents.get(ancestor, 0)
        total += pages[process] if ancestor else 0
    return total * os.sysconf("SC_PAGE_SIZE")


OPTIMIZE = "spark.databricks.delta.optimize"


def by_kit(strategy: str, verify: bool = False) -> Way:
    def run(spark: SparkSession, table: Path, target: int) -> None:
        plan = ck.open_table(table, spark).plan_compaction(max_file_size=target)
        plan.run(strategy=strategy, verify=verify)

    return run


def by_optimize(options: dict[str, object]) -> Way:
    def run(spark: SparkSession, table: Path, target: int) -> None:
        settings = {"minFileSize": target, "maxFileSize": target, **options}
        with session_confs(spark, {f"{OPTIMIZE}.{name}": str(value) for name, value in settings.items()}):
            spark.sql(f"OPTIMIZE delta.`{table}`").collect()

    return run


def by_deltalake(spark: SparkSession, table: Path, target: int) -> None:
    import deltalake

    deltalake.DeltaTable(str(table)).optimize.compact(target_size=target)


WAYS = {
    "arrow": by_kit("arrow"),
    "arrow, proved": by_kit("arrow", verify=True),
    "OPTIMIZE": by_optimize({}),
    **{
        f"OPTIMIZE, {threads} threads{', repartitioned' * repartition}": by_optimize(
            {"maxThreads": threads, "repartition.enabled": str(repartition).lower()}
        )
        for threads in THREADS
        for repartition in (False, True)
    },
    "rewrite": by_kit("rewrite"),
    "deltalake": by_deltalake,
    "auto": by_kit("auto"),
}


def random_numbers(spark: SparkSession, table: Path, shape: Shape) -> Path:
    """Write random rows of two numbers in files of about the same size, in one commit."""
    rng = np.random.default_rng(shape.seed)
    columns = {"id": "long", "v": "double"} | ({"p": "integer"} if shape.partitions else {})
    actions = [handmade.metadata(columns, ["p"] if shape.partitions else [])]
    rows = max(shape.file_bytes // BYTES_A_ROW, 1)
    for partition in range(shape.partitions or 1):
        folder, values = (f"p={partition}/", {"p": str(partition)}) if shape.partitions else ("", {})
        for i in range(shape.files):
            ids = rng.integers(0, 2**62, rows)
            data = pa.table({"id": ids, "v": rng.random(rows)})
            name = f"{folder}part-{i:05d}.parquet"
            action = handmade.write_data(table, name, data, values, use_dictionary=False)
            stats = {"numRecords": rows, "nullCount": {"id": 0, "v": 0}}
            stats |= {"minValues": {"id": int(ids.min())}, "maxValues": {"id": int(ids.max())}}
            action["add"]["stats"] = json.dumps(stats)
            actions.append(action)
    return handmade.write_log(table, actions)


def marked(spark: SparkSession, table: Path, shape: Shape) -> Path:
    """Write `random_numbers`, and delete a fiftieth of the rows of each file by deletion vectors."""
    random_numbers(spark, table, shape)
    spark.sql(f"ALTER TABLE delta.`{table}` SET TBLPROPERTIES ('delta.enableDeletionVectors' = 'true')")
    spark.sql(f"DELETE FROM delta.`{table}` WHERE id % 50 = 0").collect()
    return table


def nested(spark: SparkSession, table: Path, shape: Shape) -> Path:
    """Write rows with INT96 timestamps and nested columns, as Spark does."""
    count = shape.partitions * shape.files * shape.file_bytes // 100
    rows = spark.range(0, count, 1, shape.files).selectExpr(
        "id",
        "TIMESTAMP'2024-01-01' + MAKE_INTERVAL(0, 0, 0, 0, 0, 0, id) t",
        "NAMED_STRUCT('word', CONCAT('word ', id % 1000), 'inner', NAMED_STRUCT('x', id / 7)) s",
        "ARRAY(id, NULL, id % 10) a",
        "MAP(CONCAT('key ', id % 5), id) m",
        f"CAST(id % {shape.partitions} AS INT) p",
    )
    with session_confs(spark, {"spark.sql.parquet.outputTimestampType": "INT96"}):
        rows.write.format("delta").partitionBy("p").save(str(table))
    return table


def flights(spark: SparkSession, table: Path, shape: Shape, first: int = 1) -> Path:
    """Write rows of 20 columns, three of them strings; the first file is `first` times as large."""
    rng = np.random.default_rng(shape.seed)
    sizes = {"carrier": 16, "tail": 4_000, "dest": 105}
    texts = {name: pa.array([f"{name}{i:03d}" for i in range(size)]) for name, size in sizes.items()}
    whole, real = [f"n{i:02d}" for i in range(12)], [f"n{i:02d}" for i in range(12, 17)]
    kinds = dict.fromkeys(whole, "long") | dict.fromkeys(real, "double") | dict.fromkeys(texts, "string")
    actions = [handmade.metadata(kinds)]
    for i in range(shape.files):
        rows = shape.file_bytes // BYTES_A_FLIGHT * (1 if i else first)
        columns: dict[str, object] = {one: rng.integers(0, 1_440, rows) for one in whole}
        columns |= {one: rng.random(rows) for one in real}
        for one, words in texts.items():
            columns[one] = words.take(pa.array(rng.integers(0, len(words), rows)))
        data, name = pa.table(columns), f"part-{i:05d}.parquet"
        actions.append(handmade.write_data(table, name, data, use_dictionary=[*whole, *texts]))
    return handmade.write_log(table, actions)


SHAPES = {
    "5,000 × 2 KB": Shape(0, 5_000, 2_000, 1024 * MIB, (2, 1 / 1.3), 1.5, 1.0, random_numbers),
    "5,000 × 20 KB": Shape(0, 5_000, 20_000, 1024 * MIB, (3, 1 / 1.3), 1.5, 1.0, random_numbers),
    "100 × 50 × 20 KB": Shape(100, 50, 20_000, 1024 * MIB, (7, 1.8), 6, 1.0, random_numbers),
    "2,000 × 5 × 6 KB": Shape(2_000, 5, 6_000, 1024 * MIB, (40, 10), 20, 1.0, random_numbers),
    "24 × 19 MB": Shape(0, 24, 19_000_000, 128 * MIB, (8, 2), 6, 0.5, random_numbers),
    "60 × 14 MB": Shape(0, 60, 14_000_000, 1024 * MIB, (30, 5), 25, 0.5, flights),
    # A table on the day after a compaction: one large file and new small files.
    "300 MB and 20 × 750 KB": Shape(
        0, 21, 750_000, 1024 * MIB, (20, 3), 15, 1.0, partial(flights, first=400)
    ),
    "1,000 × 50 KB, deleted rows": Shape(0, 1_000, 50_000, 1024 * MIB, (2, 1), 1, 9, marked),
    "INT96 and nested": Shape(20, 50, 50_000, 1024 * MIB, (0, 1 / 1.3), 1.5, 1.0, nested),
}


if __name__ == "__main__":
    arguments = parser(__doc__)
    arguments.add_argument("tables", nargs="*", choices=[[], *SHAPES])
    arguments.add_argument("--factor", type=float, default=1.0)
    arguments.add_argument("--repeats", type=int, default=5)
    options = arguments.parse_args()
    main(options.tables or list(SHAPES), options.factor, options.repeats)
