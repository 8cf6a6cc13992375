"""Let Delta delete the planned files, report the progress, and the record of the result."""

import contextlib
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from matplotlib.figure import Figure
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException

from compaction_kit.errors import RunCancelled
from compaction_kit.execute.failures import translate
from compaction_kit.execute.jobs import WorkCancelled, run_cancellable, session_confs
from compaction_kit.execute.work import Measured, ProgressBar
from compaction_kit.folder import WithFiles
from compaction_kit.handle import Handle
from compaction_kit.records import Result
from compaction_kit.session import quiet_errors
from compaction_kit.sql import quoted, table_name
from compaction_kit.storage import Store
from compaction_kit.text import format_count, format_list, format_seconds, format_size
from compaction_kit.vacuum.cost import draw, ranges

_PARALLEL_DELETE = "spark.databricks.delta.vacuum.parallelDelete.enabled"
_LITE = "spark.databricks.delta.vacuum.lite.enabled"
# VacuumCommand.INVENTORY_SCHEMA.
_INVENTORY = "path STRING, length BIGINT, isDir BOOLEAN, modificationTime BIGINT"
_MOST_LOOKED_AT = 1_000


@dataclass(frozen=True)
class VacuumProgress(Measured):
    """The progress of a vacuum, estimated from a sample of its files.

    `fraction` is the share of the files that were deleted, 0 to 1; `seconds` the time since the run began.
    """

    step: str
    fraction: float
    files_done: int
    num_files: int
    bytes_done: int
    size_bytes: int
    seconds: float

    def __str__(self) -> str:
        return (
            f"{self.step}, {self.files_done:,} of {format_count(self.num_files, 'file')}, "
            f"{format_size(self.bytes_done)} of {format_size(self.size_bytes)}"
        )


@dataclass(frozen=True, repr=False)
class VacuumResult(WithFiles, Result):
    """What a vacuum did.

    Attributes:
        files: The deleted files: path (string, relative to the table, decoded), size_bytes (int64).
        not_deleted: The planned files that were not deleted: path, size_bytes, why (string).
        not_planned: Paths that no longer exist and were not planned: others deleted them.
        directories: The paths of the deleted folders.
        commits: The versions that VACUUM committed, its start and its end, if it commits any.
        storage, versions, versions_lost, content_survives_as: As in the plan, but as found after the run.
        versions_lost_as_planned: Whether exactly the planned versions were lost.
    """

    files: pa.Table
    not_deleted: pa.Table
    not_planned: tuple[str, ...]
    directories: tuple[str, ...]
    commits: tuple[int, ...]
    storage: pa.Table
    versions: pa.Table
    versions_lost: list[int]
    content_survives_as: Mapping[int, int]
    versions_lost_as_planned: bool
    seconds: float

    @property
    def as_planned(self) -> bool:
        """Whether exactly the planned files were deleted and the planned versions lost."""
        return not len(self.not_deleted) and not self.not_planned and self.versions_lost_as_planned

    def facts(self) -> dict[str, str]:
        """Return the outcome for people: name and value."""
        if not self.num_files and not self.directories and not len(self.not_deleted):
            return {"outcome": "nothing to do: the plan is empty, so nothing was deleted"}
        lost = f"{len(self.versions_lost):,}: {ranges(self.versions_lost)}" if self.versions_lost else "none"
        facts = {"versions lost": lost}
        if self.content_survives_as:
            pairs = [f"{lost} as {other}" for lost, other in self.content_survives_as.items()]
            facts["of the same content"] = format_list(pairs)
        planned = ", as planned" if self.as_planned else ""
        facts["deleted"] = f"{format_count(self.num_files, 'file')}, {format_size(self.size_bytes)}{planned}"
        if self.directories:
            facts["folders"] = f"{format_count(len(self.directories), 'empty folder')} deleted"
        if len(self.not_deleted):
            rows = [f"{row['path']}: {row['why']}" for row in self.not_deleted.to_pylist()]
            facts["not deleted"] = f"{format_count(len(rows), 'file')}: {format_list(rows, 3, '; ')}"
        if self.not_planned:
            facts["not planned"] = f"{format_count(len(self.not_planned), 'file')} that others deleted"
        if self.commits:
            facts["committed"] = f"version {', '.join(map(str, self.commits))}: VACUUM's start and end"
        return facts | {"time": format_seconds(self.seconds)}

    def parts(self) -> tuple[object, ...]:
        """Return the facts and the figure."""
        return self.facts(), self.plot()

    def plot(self) -> Figure:
        """Draw the storage before and after, and which versions could be read before and after."""
        return draw(self, "lost", "freed")


@contextlib.contextmanager
def reporting(
    store: Store, files: pa.Table, progress: bool | Callable[[VacuumProgress], None] | None
) -> Iterator[Callable[..., None]]:
    """Yield a function that reports how many files are gone, by a sample; it takes the name of a step."""
    start = time.monotonic()
    bar = ProgressBar() if progress is True else None
    report = bar or (progress if callable(progress) else None)
    number, size_bytes = len(files), pc.sum(files["size_bytes"]).as_py() or 0
    sample = np.linspace(0, number - 1, min(number, _MOST_LOOKED_AT)).astype(int)
    places = files["path"].take(sample).to_pylist()

    def look(step: str | None = None) -> None:
        if report is not None:
            gone = len(places) - sum(still_there(store, places))
            share = gone / len(places) if places else 0.0
            done = round(share * number), number, round(share * size_bytes), size_bytes
            default = "Deleting" if gone else "Delta checks the files"
            report(VacuumProgress(step or default, share, *done, time.monotonic() - start))

    try:
        yield look
    finally:
        if bar is not None:
            bar.close()


def delete(
    handle: Handle,
    files: pa.Table,
    directories: list[str],
    retain: str,
    parallel_delete: bool | None,
    look: Callable[[], None],
) -> None:
    """Let Delta delete files and empty folders that the log doesn't need, by VACUUM … USING INVENTORY.

    `retain` is a RETAIN clause for a shorter retention than the table's.
    """
    spark = handle.spark
    paths = files["path"].to_pylist()
    # USING INVENTORY can't be combined with LITE, which is a setting too.
    confs = {_LITE: "false"}
    if parallel_delete is not None:
        confs[_PARALLEL_DELETE] = str(parallel_delete).lower()
    view = f"compaction_kit_{uuid.uuid4().hex}"
    name = table_name(spark, handle.uri)
    statement = f"VACUUM {name} USING INVENTORY (SELECT * FROM {quoted(view)}){retain}"
    nothing = np.zeros(len(directories), np.int64)
    inventory: dict[str, Any] = {
        # Paths as Hadoop writes them, not URL-encoded.
        "path": list(map(handle.store.uri, (*paths, *directories))),
        "length": np.append(files["size_bytes"].to_numpy(), nothing),
        "isDir": np.repeat([False, True], [len(paths), len(directories)]),
        "modificationTime": np.append(files["modification_time"].cast("int64").to_numpy(), nothing),
    }

    def outcome() -> str:
        gone = len(paths) - sum(still_there(handle.store, paths))
        deleted = f"{gone:,} of {format_count(len(paths), 'planned file')} were deleted"
        return deleted if gone else "nothing was deleted"

    try:
        with quiet_errors(), session_confs(spark, confs):
            spark.createDataFrame(pd.DataFrame(inventory), _INVENTORY).createOrReplaceTempView(view)
            run_cancellable(spark, lambda: spark.sql(statement).collect(), look)
    except (PySparkException, Py4JJavaError, OSError) as error:
        raise translate(error, handle.store.root, outcome()) from None
    except (WorkCancelled, KeyboardInterrupt):
        # Either the caller's progress raised an exception, or Ctrl-C was pressed.
        sentence = f"The vacuum was cancelled, {outcome()}: make a new plan for what is left."
        raise RunCancelled(sentence) from None
    finally:
        spark.catalog.dropTempView(view)


def still_there(store: Store, paths: list[str]) -> list[bool]:
    """Return whether each path is on disk."""
    return list(map(store.listed().is_taken, paths))
