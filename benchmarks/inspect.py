"""Read large logs with the kit, with the deltalake package, and with Delta's own cold snapshot.

    python -m benchmarks.inspect [number of adds …] [--readers "kit files" deltalake …]

The readers take turns on the same logs, each in a new process. Prints the best of several times
in seconds, ratios to the kit, and peak memory; and how long the kit takes to read the table again
after one more commit.
"""

import json
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks import measure_alone, parser, timed
from tests import handmade

NUM_COMMITS = 100
# With 33 columns of stats, more adds than this make a log of many GB.
MOST_WIDE = 1_000_000
REPEATS = 3
SEED = 0
KIT = ("kit files", "kit records")
READERS = (*KIT, "deltalake", "delta")
# Required speed-ups of the kit, without and with row counts (see KIT).
TARGETS = {"checkpoint": (5.0, 1.5), "json": (2.5, 2.0), "delta": (5.0, 5.0)}


def main(sizes: list[int], readers: list[str]) -> None:
    with tempfile.TemporaryDirectory(prefix="inspect-") as folder:
        for num_adds in sizes:
            for shape, table in make_logs(Path(folder), num_adds):
                print(f"\n{num_adds:,} adds, {shape}: {log_mib(table):,.0f} MiB of log")
                report(shape, {reader: measure(reader, table) for reader in readers})
                seconds, _ = measure_alone("inspect", "kit again", table)
                print(f"  {'kit again':<12} {seconds:7.2f} s, after one more commit", flush=True)
                shutil.rmtree(table)


def report(shape: str, measured: dict[str, tuple[float, float]]) -> None:
    for reader, (seconds, mib) in measured.items():
        line = f"  {reader:<12} {seconds:7.2f} s  {mib:7,.0f} MiB"
        if not reader.startswith("kit"):
            line += "   " + ", ".join(
                f"{seconds / measured[kit][0]:5.1f} × {kit}" for kit in KIT if kit in measured
            )
        print(line, flush=True)
    kind = "json" if shape.startswith("JSON") else "checkpoint"
    for peer in [reader for reader in measured if reader not in KIT]:
        targets = TARGETS["delta" if peer == "delta" else kind]
        for kit, target in zip(KIT, targets, strict=True):
            if kit not in measured:
                continue
            ratio = measured[peer][0] / measured[kit][0]
            if ratio < target:
                print(f"  NOT REACHED: {kit} is {ratio:.1f} times as fast as {peer}, the target is {target}")


def log_mib(table: Path) -> float:
    return sum(file.stat().st_size for file in (table / "_delta_log").iterdir()) / 2**20


def measure(reader: str, table: Path) -> tuple[float, float]:
    """Return the best seconds and the peak MiB of a reader; each run is a new process without caches."""
    # Fill the page cache, so that the first reader doesn't read from the disk either.
    for file in (table / "_delta_log").iterdir():
        file.read_bytes()
    runs = [measure_alone("inspect", reader, table) for _ in range(REPEATS)]
    return min(seconds for seconds, _ in runs), max(mib for _, mib in runs)


def measure_here(reader: str, table: str) -> None:
    readers: dict[str, tuple[Callable[[str], None], Callable[[], float]]] = {
        "kit files": (read_kit, own_peak),
        "kit records": (lambda path: read_kit(path, records=True), own_peak),
        "kit again": (read_kit, own_peak),
        "deltalake": (read_deltalake, own_peak),
        "delta": (read_delta, jvm_peak),
    }
    read, peak = readers[reader]
    # Do the imports, Spark's start and its first job now, so that they aren't measured.
    with small_log() as small:
        read(str(small))
    if reader == "kit again":
        read(table)
        append_commit(Path(table))
    print(json.dumps([timed(lambda: read(table))[0], peak()]))


@contextmanager
def small_log() -> Iterator[Path]:
    """Make a log of a few files, to warm up with."""
    with tempfile.TemporaryDirectory(prefix="inspect-") as name:
        yield make_log(Path(name) / "small", NUM_COMMITS, 3, NUM_COMMITS)


def read_kit(table: str, records: bool = False) -> None:
    import compaction_kit as ck

    files = ck.open_table(table).files()
    files.histogram()
    if records:
        files.to_arrow()


def read_deltalake(table: str) -> None:
    import deltalake

    pa.table(deltalake.DeltaTable(table).get_add_actions(flatten=True))


def read_delta(table: str) -> None:
    import compaction_kit as ck

    spark = ck.get_spark()
    delta = spark._jvm.org.apache.spark.sql.delta  # type: ignore[union-attr]
    delta.DeltaLog.clearCache()
    log = delta.DeltaLog.forTable(spark._jsparkSession, table)
    frame = log.unsafeVolatileSnapshot().allFiles().toDF()
    from pyspark.sql import DataFrame

    DataFrame(frame, spark).selectExpr(
        "path", "size", "partitionValues", "modificationTime", "get_json_object(stats, '$.numRecords')"
    ).toArrow()


def own_peak() -> float:
    return peak_of("self")


def jvm_peak() -> float:
    from pyspark import SparkContext

    return peak_of(str(SparkContext._gateway.proc.pid))  # type: ignore[union-attr]


def peak_of(process: str) -> float:
    """Return the peak MiB of a process; getrusage would include the memory of its parent process."""
    status = Path(f"/proc/{process}/status").read_text()
    return int(status.split("VmHWM:")[1].split()[0]) / 2**10


def append_commit(table: Path) -> None:
    """Append a commit that repeats the last commit's add actions under other names."""
    *_, last = sorted((table / "_delta_log").glob("*.json"))
    text = last.read_text().replace("/part-", "/more-")
    (last.parent / f"{int(last.stem) + 1:020d}.json").write_text(text)


def make_logs(folder: Path, num_adds: int) -> Iterator[tuple[str, Path]]:
    """Yield logs of a table with `num_adds` add actions in several shapes; its data files don't exist."""
    for columns in (3, 33) if num_adds <= MOST_WIDE else (3,):
        of_stats = f"{columns} columns of stats"
        yield f"JSON commits, {of_stats}", make_log(folder / "json", num_adds, columns, NUM_COMMITS)
        yield f"checkpoint and one commit, {of_stats}", make_log(folder / "checkpoint", num_adds, columns, 1)
        if columns == 3:
            yield f"checkpoint and 10 commits, {of_stats}", make_log(folder / "tail", num_adds, columns, 10)


def make_log(table: Path, num_adds: int, columns: int, tail: int) -> Path:
    """Write a log that ends with `tail` commits, after a checkpoint of the commits before, if any."""
    log = table / "_delta_log"
    log.mkdir(parents=True)
    texts = commit_texts(num_adds, columns)
    if tail < NUM_COMMITS:
        write_checkpoint(log, NUM_COMMITS - tail - 1, islice(texts, NUM_COMMITS - tail))
    for version, text in enumerate(texts, start=NUM_COMMITS - tail):
        (log / f"{version:020d}.json").write_text(text)
    return table


def commit_texts(num_adds: int, columns: int, num_commits: int = NUM_COMMITS) -> Iterator[str]:
    rng = np.random.default_rng(SEED)
    names = ["id", "v", *(f"c{i}" for i in range(columns - 3)), "d"]
    kinds = {name: "string" if name == "d" else "long" for name in names}
    head = [handmade.protocol(), handmade.metadata(kinds, ["d"])]
    values = dict.fromkeys(names[:-1], 123_456)
    bounds = json.dumps(json.dumps(values)).strip('"')
    nulls = json.dumps(json.dumps(dict.fromkeys(values, 0))).strip('"')
    per_commit = num_adds // num_commits
    sizes = rng.lognormal(14, 1.5, num_adds).astype(np.int64).tolist()
    for version in range(num_commits):
        time_ms = 1_700_000_000_000 + version * 60_000
        info = {"timestamp": time_ms, "operation": "WRITE", "operationParameters": {"mode": "Append"}}
        lines = [json.dumps({"commitInfo": info})]
        lines += [json.dumps(action) for action in head] if version == 0 else []
        for k in range(version * per_commit, (version + 1) * per_commit):
            day = f"2024-{1 + k % 12:02d}-{1 + k % 28:02d}"
            lines.append(
                f'{{"add":{{"path":"d={day}/part-{k:05d}-3346647b-f488-4860-bc44-{k:012d}.c000.snappy.parquet",'
                f'"partitionValues":{{"d":"{day}"}},"size":{sizes[k]},"modificationTime":{time_ms},"dataChange":true,'
                f'"stats":"{{\\"numRecords\\":{sizes[k] // 30},\\"minValues\\":{bounds},'
                f'\\"maxValues\\":{bounds},\\"nullCount\\":{nulls}}}"}}}}'
            )
        yield "\n".join(lines) + "\n"


def write_checkpoint(log: Path, version: int, texts: Iterable[str]) -> None:
    """Write a classic checkpoint of these commits in one file, as another engine would."""
    text_map = pa.map_(pa.string(), pa.string())
    add = pa.struct({
        "path": pa.string(), "partitionValues": text_map, "size": pa.int64(),
        "modificationTime": pa.int64(), "dataChange": pa.bool_(), "stats": pa.string(),
    })  # fmt: skip
    protocol = pa.struct([("minReaderVersion", pa.int32()), ("minWriterVersion", pa.int32())])
    form = pa.struct([("provider", pa.string()), ("options", text_map)])
    metadata = pa.struct({
        "id": pa.string(), "format": form, "schemaString": pa.string(), "configuration": text_map,
        "partitionColumns": pa.list_(pa.string()), "createdTime": pa.int64(),
    })  # fmt: skip
    remove = pa.struct([("path", pa.string()), ("deletionTimestamp", pa.int64()), ("dataChange", pa.bool_())])
    schema = pa.schema([("protocol", protocol), ("metaData", metadata), ("add", add), ("remove", remove)])
    total = 0
    with pq.ParquetWriter(log / f"{version:020d}.checkpoint.parquet", schema) as writer:
        for text in texts:
            rows = [json.loads(line) for line in text.splitlines()]
            rows = [row for row in rows if "commitInfo" not in row]
            total += len(rows)
            writer.write_table(pa.Table.from_pylist(rows, schema), row_group_size=1_000_000)
    (log / "_last_checkpoint").write_text(json.dumps({"version": version, "size": total}))


if __name__ == "__main__":
    if sys.argv[1:2] == ["--measure"]:
        measure_here(*sys.argv[2:])
    else:
        arguments = parser(__doc__)
        arguments.add_argument("sizes", type=int, nargs="*", default=[100_000, 1_000_000])
        arguments.add_argument("--readers", nargs="+", choices=READERS, default=READERS)
        options = arguments.parse_args()
        main(options.sizes, options.readers)
