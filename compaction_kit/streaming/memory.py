"""What a driver holds of a log's entries: measured in the JVM, not guessed."""

import json
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

from pyspark.sql import SparkSession

from compaction_kit.sql import uri
from compaction_kit.streaming.names import SINK_FOLDER, Kind, file_name

# Enough for what else goes on in the JVM not to show: some tens of KiB beside some MiB.
_NUM_ENTRIES = 50_000
_COPIES = 3
_COLLECTIONS = 2


@dataclass(frozen=True)
class DriverMemory:
    """Bytes that the driver's heap holds for each entry of a log, as long as it uses the log.

    For a sink they are the file index of a DataFrame that reads the output; for a source, the
    entries that a stream takes in when it starts. What it takes to get there comes on top.

    Attributes:
        entry_bytes: Bytes for each entry.
        num_entries: How many entries it was measured with.
        line_bytes: How long their lines are on average; longer paths take more.
        java: The Java that it was measured on.
    """

    entry_bytes: float
    num_entries: int
    line_bytes: float
    java: str

    def bytes_for(self, num_entries: int) -> int:
        """What so many entries take."""
        return round(self.entry_bytes * num_entries)

    def __str__(self) -> str:
        return (
            f"{self.entry_bytes:,.0f} bytes of the driver's heap for an entry (measured: heap after garbage "
            f"collection with {self.num_entries:,} more of them, less without, on Java {self.java})"
        )


def measure_memory(spark: SparkSession, kind: Kind, lines: list[bytes]) -> DriverMemory:
    """Have Spark read a log of many such entries, and see by how much the heap grows.

    Args:
        spark: The session whose driver it is.
        kind: Whose log it is.
        lines: Entries to take as samples, as the log has them.
    """
    with tempfile.TemporaryDirectory(prefix="compaction-kit-") as scratch:
        folder = Path(scratch) / SINK_FOLDER
        folder.mkdir()
        sample = folder / file_name(0, is_compaction=True)
        many = (_renamed(lines[i % len(lines)], i) for i in range(_NUM_ENTRIES))
        sample.write_text("\n".join(["v1", *many]))
        line_bytes = sample.stat().st_size / _NUM_ENTRIES
        hold = _hold_index if kind == Kind.SINK else _hold_entries
        held = held_bytes(spark, lambda: hold(spark, folder))
    java = str(_java(spark).lang.System.getProperty("java.version"))
    return DriverMemory(held / _NUM_ENTRIES, _NUM_ENTRIES, line_bytes, java)


def _renamed(line: bytes, number: int) -> str:
    """The same entry of another file: names differ in some places, as they do from batch to batch."""
    entry = json.loads(line)
    digits = f"{number:08d}"
    entry["path"] = entry["path"][: -len(digits)] + digits
    return json.dumps(entry, separators=(",", ":"))


def _hold_index(spark: SparkSession, folder: Path) -> Any:
    return spark.read.schema("value STRING").text(uri(folder.parent))._jdf


def _hold_entries(spark: SparkSession, folder: Path) -> Any:
    streaming = spark.sparkContext._jvm.org.apache.spark.sql.execution.streaming  # type: ignore[union-attr]
    # Up to Spark 4.0 there was no package of that name.
    runtime = streaming.runtime if spark.version >= "4.1" else streaming
    return runtime.FileStreamSourceLog(1, spark._jsparkSession, uri(folder)).allFiles()


def held_bytes(spark: SparkSession, hold: Callable[[], Any]) -> float:
    """By how much the heap grows with each further thing that `hold` returns."""
    held, used = [], []
    for _ in range(_COPIES + 1):
        held.append(hold())
        used.append(_used(spark))
    for one in held:
        spark.sparkContext._gateway.detach(one)  # type: ignore[union-attr]
    # Not by how much it shrinks again: Py4J's threads let go of a value later. Not the first one's,
    # which brings classes along. And the median, as what was left over before may go meanwhile.
    return median(after - before for before, after in pairwise(used))


def _used(spark: SparkSession) -> int:
    java = _java(spark)
    for _ in range(_COLLECTIONS):
        java.lang.System.gc()
    runtime = java.lang.Runtime.getRuntime()
    return int(runtime.totalMemory() - runtime.freeMemory())


def _java(spark: SparkSession) -> Any:
    return spark.sparkContext._jvm.java  # type: ignore[union-attr]
