"""Eight small tables with problems of real tables. Solve the cases before you read this: it has the causes.

Real statements make the damage if they still do so. Bugs that are fixed, or that are in an engine that isn't
installed, are written into the log by hand, as their reports describe them.
"""

import json
import os
import shutil
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import uuid4

import deltalake
import numpy as np
import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from compaction_kit.log.listing import LOG_FOLDER
from compaction_kit.sql import table_name, uri
from course import new_folder

_DAY = 86_400
_CREATE = "CREATE TABLE {} (id BIGINT, amount DOUBLE) USING delta TBLPROPERTIES ('{}' = 'true')"
Action = dict[str, Any]


def deliveries(folder: str | Path) -> Path:
    """Make a table of old and new files that was compacted and vacuumed.

    delta-io/delta-rs#4290, deltalake 1.2.1 to 1.5.0: a full vacuum deleted files that were written long ago,
    although a compaction had removed them just before. The installed release is later and doesn't, so the
    files are deleted by hand, and the vacuum's commits are changed to those of the older release.
    """
    path, now = new_folder(folder, "deliveries"), time.time()
    for number, days in enumerate((30, 29, 28, 27, 0.4, 0.3, 0.2)):
        _append(path, 1_000 * number)
        for file in (path / fields(path, number, "add")[0]["path"], _commit_file(path, number)):
            os.utime(file, 2 * (now - days * _DAY,))
    for number in range(2):
        # A file of a writer that was killed before its commit; a vacuum is right to delete it.
        orphan = path / f"part-00000-killed-{number}.snappy.parquet"
        shutil.copy(min(path.glob("*.parquet")), orphan)
        os.utime(orphan, 2 * (now - 10 * _DAY,))
    deltalake.DeltaTable(path).optimize.compact()
    deltalake.DeltaTable(path).vacuum(full=True, dry_run=False)
    removed = [path / remove["path"] for remove in fields(path, 7, "remove")]
    early = [file for file in removed if file.stat().st_mtime < now - 7 * _DAY]
    more = {"numFilesToDelete": len(early), "numDeletedFiles": len(early)}
    more["sizeOfDataToDelete"] = sum(file.stat().st_size for file in early)

    def older(action: Action) -> None:
        metrics = action["commitInfo"]["operationMetrics"]
        metrics |= {name: metrics[name] + count for name, count in more.items() if name in metrics}
        action["commitInfo"]["engineInfo"] = "delta-rs:py-1.5.0"

    for version in (8, 9):
        _edit(path, version, older)
    for file in early:
        file.unlink()
    return path


def revenue(folder: str | Path) -> Path:
    """Make a table that was sorted in Z-order, and appended to afterwards.

    delta-io/delta-rs#3906, deltalake 1.2: the commit of `optimize.z_order` with a target size removed files
    that no commit had added. The installed release removes the right files, so their names are changed.
    """
    path = new_folder(folder, "revenue")
    for number in range(3):
        _append(path, 1_000 * number)
    deltalake.DeltaTable(path).optimize.z_order(["amount"], target_size=10_000)

    def misnamed(action: Action) -> None:
        if remove := action.get("remove"):
            remove["path"] = f"part-00000-{uuid4()}-c000.snappy.parquet"

    _edit(path, 3, misnamed)
    _append(path, 3_000, 50)
    return path


def accounts(folder: str | Path, spark: SparkSession) -> Path:
    """Make a table with deletion vectors that was compacted.

    trinodb/trino#31253, open in September 2026: OPTIMIZE removes a file by its path, without its deletion
    vector. Here Spark's OPTIMIZE runs, and the vector is then deleted from its commit.
    """
    path, written = new_folder(folder, "accounts"), Path(tempfile.mkdtemp())
    name = table_name(spark, written)
    spark.sql(_CREATE.format(name, "delta.enableDeletionVectors"))
    spark.range(0, 300, 1, 3).selectExpr("id", "id / 7D AS amount").write.insertInto(name)
    spark.sql(f"DELETE FROM {name} WHERE id < 100 AND id % 10 = 0")
    spark.sql(f"OPTIMIZE {name}")

    def by_path_alone(action: Action) -> None:
        action.get("remove", {}).pop("deletionVector", None)
        action.get("commitInfo", {})["engineInfo"] = "Trino"

    _edit(written, 3, by_path_alone)
    # Copy to another folder, because Spark caches the commit by its path; leave the checksums out.
    shutil.copytree(written, path, ignore=shutil.ignore_patterns("*.crc"), dirs_exist_ok=True)
    shutil.rmtree(written)
    return path


def telemetry(folder: str | Path, spark: SparkSession) -> Path:
    """Make a clustered table with rows for each day, optimized each night but the last.

    delta-io/delta#4304, Delta Lake 3.3: OPTIMIZE merges new files into the cube until the cube has 100 GiB.
    Delta Lake 4.4 does so too, also on this table.
    """
    path = new_folder(folder, "telemetry")
    name = table_name(spark, path)
    spark.sql(f"CREATE TABLE {name} (id BIGINT, device INT) USING delta CLUSTER BY (device)")
    for night, rows in enumerate((8_000, 1_000, 1_000)):
        added = spark.range(10_000 * night, 10_000 * night + rows, 1, 2)
        added.selectExpr("id", "CAST(id % 50 AS INT) AS device").write.insertInto(name)
        if night < 2:
            spark.sql(f"OPTIMIZE {name}")
    return path


def clicks(folder: str | Path, spark: SparkSession) -> Path:
    """Make a table with auto compaction, to which a Spark session and a feed by deltalake write.

    delta-io/delta#4487: a session counts only the files that it has added itself, as it does here. deltalake
    has no auto compaction, whatever the table's properties say.
    """
    path = new_folder(folder, "clicks")
    name = table_name(spark, path)
    spark.sql(_CREATE.format(name, "delta.autoOptimize.autoCompact"))
    for number in range(4):
        spark.range(number, number + 1, 1, 1).selectExpr("id", "0D AS amount").write.insertInto(name)
        for part in range(16):
            _append(path, 1_000 * number + 10 * part, 10)
    return path


def archive(folder: str | Path, spark: SparkSession) -> Path:
    """Make a table of random numbers that was compacted (delta-io/delta#1153: that is how Delta works)."""
    path = new_folder(folder, "archive")
    for number in range(8):
        _append(path, 5_000 * number, 5_000)
    spark.sql(f"OPTIMIZE {table_name(spark, path)}")
    return path


def feed(folder: str | Path, spark: SparkSession) -> Path:
    """Make the tables "source" and "sink" of a stream with the option ignoreChanges.

    The source was overwritten with its own rows by an ordinary write, and Delta's documentation of the option
    says that rows that haven't changed may then be delivered again.
    """
    path = new_folder(folder, "feed")
    source = uri(path / "source")

    def overwrite() -> None:
        rows = spark.read.format("delta").load(source).repartition(1)
        rows.write.format("delta").mode("overwrite").save(source)

    copy_by_stream(path, spark, overwrite, ignoreChanges=True)
    return path


def copy_by_stream(path: Path, spark: SparkSession, change: Callable[[], object], **options: Any) -> None:
    """Copy a folder's table "source" to "sink" by a stream, and call `change` when half of it is copied."""
    source, sink, checkpoint = (uri(path / name) for name in ("source", "sink", "checkpoint"))

    def append(first: int, num_files: int = 1) -> None:
        rows = spark.range(first, first + 10 * num_files, 1, num_files)
        rows.write.format("delta").mode("append").save(source)

    def start(**trigger: Any) -> StreamingQuery:
        reader = spark.readStream.format("delta").options(maxFilesPerTrigger=3, **options)
        writer = reader.load(source).writeStream.format("delta").option("checkpointLocation", checkpoint)
        return writer.trigger(**trigger).start(sink)

    append(0, num_files=6)
    # The interval is so long that only the first batch runs, with half of the files.
    stream = start(processingTime="1 hour")
    while stream.lastProgress is None:
        stream.awaitTermination(0.02)  # type: ignore[arg-type]
    append(60)
    change()
    append(70)
    stream.stop()
    start(availableNow=True).awaitTermination()


def exports(folder: str | Path) -> Path:
    """Make the output and log of a file sink after 36 batches of 20 files, one batch a minute.

    Without a retention (SPARK-27188) such a log has no limit: each compaction copies all entries.
    """
    path, start = new_folder(folder, "exports"), time.time() - 36 * 60
    log = path / "_spark_metadata"
    log.mkdir(parents=True)
    entries: list[str] = []
    for batch in range(36):
        at, new = start + 60 * batch, []
        for number in range(20):
            file = path / f"part-{number:05}-batch-{batch:05}-c000.json"
            file.write_text('{"id": 1}\n')
            entry = {"path": uri(file), "size": 10, "isDir": False, "modificationTime": int(1_000 * at)}
            new.append(json.dumps(entry | {"blockReplication": 1, "blockSize": 2**25, "action": "add"}))
        entries += new
        compacts = batch % 10 == 9
        listed = log / f"{batch}{'.compact' if compacts else ''}"
        listed.write_text("\n".join(["v1", *(entries if compacts else new)]))
        os.utime(listed, (at, at))
    return path


def fields(path: Path, version: int, kind: str) -> list[Action]:
    """Return the actions of one kind in a commit."""
    return [action[kind] for action in _actions(path, version) if kind in action]


def _append(path: Path, first: int, count: int = 1_000) -> None:
    """Append rows by deltalake; their amounts are random, so that they can't be compressed."""
    rows = {"id": np.arange(first, first + count), "amount": np.random.default_rng(first).random(count)}
    deltalake.write_deltalake(path, pa.table(rows), mode="append")


def _commit_file(path: Path, version: int) -> Path:
    return path / LOG_FOLDER / f"{version:020d}.json"


def _actions(path: Path, version: int) -> list[Action]:
    return [json.loads(line) for line in _commit_file(path, version).read_text().splitlines()]


def _edit(path: Path, version: int, change: Callable[[Action], None]) -> None:
    """Change each action of a commit."""
    actions = _actions(path, version)
    for action in actions:
        change(action)
    _commit_file(path, version).write_text("".join(json.dumps(action) + "\n" for action in actions))
