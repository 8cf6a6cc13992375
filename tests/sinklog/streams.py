"""Handmade logs, real streams from files to files, and the files of their logs."""

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from compaction_kit.compat import java_class
from compaction_kit.execute.jobs import session_confs
from compaction_kit.sinklog import SinkLog
from compaction_kit.sinklog.policy import Kind, Policy, setting
from compaction_kit.sinklog.projection import Projection
from tests.conftest import QUICK_STREAMS
from tests.releases import streaming_class

ENTRY = {
    "path": "file:///out/part-0.parquet",
    "size": 78,
    "isDir": False,
    "modificationTime": 1_587_218_155_000,
    "blockReplication": 1,
    "blockSize": 33_554_432,
    "action": "add",
}
LINE = json.dumps(ENTRY, separators=(",", ":"))


def make_log(folder: Path, **files: str | bytes) -> Path:
    """Write a log of files named b0, b1, c9 …: b is for batches, c for compactions."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        path = folder / (name[1:] + (".compact" if name[0] == "c" else ""))
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return folder


@dataclass
class Stream:
    """A stream that reads one JSON file a batch, of one row each, and writes Parquet files."""

    spark: SparkSession
    root: Path
    num_batches: int = 0

    @property
    def output(self) -> Path:
        return self.root / "output"

    @property
    def checkpoint(self) -> Path:
        return self.root / "checkpoint"

    def run(self, num_batches: int, **options: str) -> None:
        """Run `num_batches` more batches."""
        source = self.root / "input"
        source.mkdir(exist_ok=True)
        for i in range(self.num_batches, self.num_batches + num_batches):
            file = source / f"{i:04d}.json"
            file.write_text(json.dumps({"id": i}) + "\n")
            # The stream reads the files in the order of their times.
            os.utime(file, (1_000_000_000 + i, 1_000_000_000 + i))
        self.num_batches += num_batches
        reader = self.spark.readStream.schema("id INT").option("maxFilesPerTrigger", 1)
        writer = reader.json(str(source)).writeStream.format("parquet").options(**options)
        writer = writer.option("checkpointLocation", str(self.checkpoint)).trigger(availableNow=True)
        with session_confs(self.spark, QUICK_STREAMS):
            writer.start(str(self.output)).awaitTermination()

    @property
    def folders(self) -> dict[Kind, Path]:
        return {Kind.SINK: self.output / "_spark_metadata", Kind.SOURCE: self.checkpoint / "sources" / "0"}


@contextmanager
def policies(spark: SparkSession, by_kind: Mapping[Kind, Policy]) -> Iterator[None]:
    """Set a session so that its logs have these policies."""
    confs = dict(QUICK_STREAMS)
    for kind, policy in by_kind.items():
        confs[setting(kind, "compactInterval")] = str(policy.default_interval)
        confs[setting(kind, "cleanupDelay")] = f"{int(policy.cleanup_delay.total_seconds() * 1000)}ms"
        confs[setting(kind, "deletion")] = str(policy.deletion).lower()
        confs["spark.sql.streaming.minBatchesToRetain"] = str(policy.min_batches_to_retain)
    with session_confs(spark, confs):
        yield


def by_batch(name: str) -> int:
    return int(name.split(".")[0])


def names_in(folder: Path) -> list[str]:
    """The files of a log, hidden ones left out, sorted by batch."""
    return sorted((path.name for path in folder.iterdir() if not path.name.startswith(".")), key=by_batch)


def names_after(log: SinkLog, projection: Projection, batch: int) -> list[str]:
    """The files of a log after a projected batch, sorted by batch."""
    done = [row for row in projection.batches.to_pylist() if row["batch"] <= batch]
    assert done[-1]["batch"] == batch
    names = {file.name for file in log.listed}
    names |= {f"{row['batch']}{'.compact' * (row['kind'] == 'compaction')}" for row in done}
    names -= {row["name"] for row in projection.removals.to_pylist() if row["batch"] <= batch}
    return sorted(names, key=by_batch)


class SparkLog:
    """Spark's own class for a log, which can add batches without a stream."""

    def __init__(self, spark: SparkSession, folder: Path, kind: Kind):
        jvm: Any = spark._jvm
        gateway: Any = spark.sparkContext._gateway
        session, nothing = spark._jsparkSession, jvm.scala.Option.empty()
        self._kind = kind
        self._new_array = gateway.new_array
        if kind == Kind.SINK:
            log = java_class(spark, streaming_class("sinks", "FileStreamSinkLog"))
            self._log = log(1, session, str(folder), nothing)
            self._class = java_class(spark, streaming_class("sinks", "SinkFileStatus"))
        else:
            log = java_class(spark, streaming_class("runtime", "FileStreamSourceLog"))
            self._log = log(1, session, str(folder))
            self._class = java_class(spark, streaming_class("runtime", "FileStreamSource$FileEntry"))

    def read(self) -> None:
        """Read all entries, as a reader of a sink's output or a starting stream does."""
        self._log.allFiles()

    def add(self, batch: int) -> None:
        path, time = f"file:///data/part-{batch:05d}.parquet", 1_700_000_000_000 + batch
        entries = self._new_array(self._class, 1)
        entries[0] = (
            self._class(path, 100, False, time, 1, 1 << 25, "add")
            if self._kind == Kind.SINK
            else self._class(path, time, batch)
        )
        self._log.add(batch, entries)
