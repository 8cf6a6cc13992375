"""Write one stream in four ways: compacted by the kit at the end, or with properties against small files.

    python -m benchmarks.streams [--batches 30] [--files 4] [--partitions 4] [--min-files 50]

A stream reads a Delta table, some files per micro-batch, and writes a partitioned one. Without either
property it writes one file per task, partition and batch; the kit compacts them at the end. With
delta.autoOptimize.autoCompact, Delta runs OPTIMIZE after the first batch, and then whenever a partition
has enough small files (autoCompact.minNumFiles: --min-files). With delta.autoOptimize.optimizeWrite, each
batch is shuffled before it is written. Prints the number of files at the end, all bytes written (and their
ratio to the plain stream's bytes, the write amplification), versions, seconds of the stream and of the
compaction, and ratios to the plain stream. All ways run in one warm session; counts come from the log.
"""

import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import pyarrow.compute as pc
from pyspark.sql import SparkSession

import compaction_kit as ck
from benchmarks import parser
from compaction_kit.sql import table_name
from compaction_kit.text import format_size

ROWS_A_FILE = 2_000
WAYS = {
    "plain, then the kit": (),
    "autoCompact": ("autoCompact",),
    "optimizeWrite": ("optimizeWrite",),
    "both": ("autoCompact", "optimizeWrite"),
}


@dataclass(frozen=True)
class Outcome:
    """Files, bytes, versions and seconds of one way to write the stream."""

    num_files: int
    bytes_streamed: int
    bytes_written: int
    num_versions: int
    stream_seconds: float
    compaction_seconds: float = 0.0


def main(num_batches: int, files_a_batch: int, num_partitions: int, min_files: int) -> None:
    spark = ck.get_spark()
    spark.conf.set("spark.databricks.delta.autoCompact.minNumFiles", str(min_files))
    print(f"{spark.sparkContext.defaultParallelism} cores, {num_batches} batches of {files_a_batch} files")
    with tempfile.TemporaryDirectory(prefix="streams-") as name:
        folder = Path(name)
        warm, source = folder / "warm", folder / "source"
        make_source(spark, warm, 2 * files_a_batch, num_partitions)
        make_source(spark, source, num_batches * files_a_batch, num_partitions)
        for way in ("plain, then the kit", "both"):
            write(spark, warm, folder / f"warm {way}", way, files_a_batch)
        found = {way: write(spark, source, folder / way, way, files_a_batch) for way in WAYS}
    report(found)


def make_source(spark: SparkSession, table: Path, num_files: int, num_partitions: int) -> None:
    """Write a table in which each file has rows of all partitions of the sink."""
    rows = spark.range(0, num_files * ROWS_A_FILE, 1, num_files)
    rows = rows.selectExpr("id", "rand(0) AS value", f"id % {num_partitions} AS p")
    rows.write.format("delta").save(str(table))


def write(spark: SparkSession, source: Path, folder: Path, way: str, files_a_batch: int) -> Outcome:
    """Write the stream in one way, and compact with the kit if no property is set."""
    properties = WAYS[way]
    sink = folder / "sink"
    states = {name: str(name in properties).lower() for name in WAYS["both"]}
    settings = ", ".join(f"'delta.autoOptimize.{name}' = '{state}'" for name, state in states.items())
    spark.sql(
        f"CREATE TABLE {table_name(spark, sink)} (id BIGINT, value DOUBLE, p BIGINT) USING delta "
        f"PARTITIONED BY (p) TBLPROPERTIES ({settings})"
    )
    rows = spark.readStream.format("delta").option("maxFilesPerTrigger", files_a_batch).load(str(source))
    writer = rows.writeStream.format("delta").option("checkpointLocation", str(folder / "checkpoint"))
    start = time.perf_counter()
    writer.trigger(availableNow=True).start(str(sink)).awaitTermination()
    streamed = time.perf_counter()
    table = ck.open_table(sink, spark)
    if not properties:
        table.plan_compaction().run(verify=False)
    ended = time.perf_counter()
    commits = table.log.commits()
    by_stream = commits.filter(pc.equal(commits["operation"], "STREAMING UPDATE"))
    return Outcome(
        table.files().num_files,
        pc.sum(by_stream["bytes_added"]).as_py(),
        pc.sum(commits["bytes_added"]).as_py(),
        table.version,
        streamed - start,
        0.0 if properties else ended - streamed,
    )


def report(found: dict[str, Outcome]) -> None:
    plain = found["plain, then the kit"]
    whole = plain.stream_seconds + plain.compaction_seconds
    for way, outcome in found.items():
        seconds = outcome.stream_seconds + outcome.compaction_seconds
        print(
            f"  {way:<20} {outcome.num_files:>5} files  {format_size(outcome.bytes_written):>9} written,"
            f" {outcome.bytes_written / plain.bytes_streamed:4.2f} × plain"
            f"  {outcome.num_versions:>4} versions  stream {outcome.stream_seconds:6.1f} s"
            f" ({outcome.stream_seconds / plain.stream_seconds:4.2f} × plain)"
            f"  compaction {outcome.compaction_seconds:4.1f} s  in all {seconds / whole:4.2f} × the kit"
        )


if __name__ == "__main__":
    arguments = parser(__doc__)
    arguments.add_argument("--batches", type=int, default=30)
    arguments.add_argument("--files", type=int, default=4)
    arguments.add_argument("--partitions", type=int, default=4)
    arguments.add_argument("--min-files", type=int, default=50)
    options = arguments.parse_args()
    main(options.batches, options.files, options.partitions, options.min_files)
