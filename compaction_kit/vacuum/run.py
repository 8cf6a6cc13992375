"""Run the plan of a vacuum: check it, let Delta delete exactly its files, and measure the result."""

import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from compaction_kit.errors import InvalidArgumentError, RunCancelled, StalePlanError
from compaction_kit.execute.failures import translate
from compaction_kit.execute.jobs import WorkCancelled, run_cancellable, session_confs
from compaction_kit.execute.work import Measured, ProgressBar
from compaction_kit.folder import Folder, look_through
from compaction_kit.history.readable import read_readability
from compaction_kit.retention import hours
from compaction_kit.session import quiet_errors
from compaction_kit.sql import quoted, table_name
from compaction_kit.text import format_count, format_list, format_size
from compaction_kit.times import show_time
from compaction_kit.vacuum.cost import Preview
from compaction_kit.vacuum.result import VacuumResult, measure, still_there

_PARALLEL_DELETE = "spark.databricks.delta.vacuum.parallelDelete.enabled"
_LITE = "spark.databricks.delta.vacuum.lite.enabled"
# VacuumCommand.INVENTORY_SCHEMA.
_INVENTORY = "path STRING, length BIGINT, isDir BOOLEAN, modificationTime BIGINT"
_MOST_LOOKED_AT = 1_000


@dataclass(frozen=True)
class VacuumProgress(Measured):
    """The progress of a vacuum, estimated from a sample of its files.

    Attributes:
        step: The current step.
        fraction: The share of the files that were deleted, 0 to 1.
        files_done: The number of files deleted, out of `num_files`.
        bytes_done: The bytes deleted, out of `size_bytes`.
        seconds: The time since the run began.
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


def run_vacuum(
    plan: Preview,
    parallel_delete: bool | None = None,
    progress: bool | Callable[[VacuumProgress], None] | None = None,
) -> VacuumResult:
    """Run a plan; see `VacuumPlan.run` for the arguments and errors."""
    start = time.monotonic()
    if parallel_delete not in (None, True, False):
        raise InvalidArgumentError(f"parallel_delete={parallel_delete!r} is neither True, False nor None.")
    if plan.at > datetime.now(UTC):
        raise InvalidArgumentError(
            f"The plan is a preview for {show_time(plan.at)}, which is in the future: run it then, or "
            "make a plan without at; nothing was deleted."
        )
    on_disk = _check_fresh(plan)
    before = read_readability(plan.handle, on_disk)
    plan.handle.warn_of_commit_risk()
    bar = ProgressBar() if progress is True else None
    report = bar or (progress if callable(progress) else None)
    sample = np.linspace(0, plan.num_files - 1, min(plan.num_files, _MOST_LOOKED_AT)).astype(int)
    places = plan.files["path"].take(sample).to_pylist()

    def look(step: str | None = None) -> None:
        if report is not None:
            report(_progress(plan, places, step, time.monotonic() - start))

    try:
        if not plan.is_empty:
            with quiet_errors():
                _delete(plan, plan.handle.spark, parallel_delete, look)
        look("Comparing")
        return measure(plan, on_disk, before, time.monotonic() - start)
    finally:
        if bar is not None:
            bar.close()


def _check_fresh(plan: Preview) -> pa.Table:
    """Refuse a plan whose table, files or folders have changed; return the files in the folder."""
    snapshot = plan.handle.log.snapshot()
    if snapshot.version != plan.version:
        raise _stale(f"The plan was made at version {plan.version} and the table is at {snapshot.version}")
    if snapshot.metadata.id != plan.table_id:
        raise _stale(
            f"The table was created again since the plan was made, with another version {plan.version}"
        )
    folder = look_through(plan.handle.store, snapshot.metadata.partition_columns)
    planned = plan.files["path"]
    rows = pc.index_in(planned, value_set=folder.files["path"])
    gone = planned.filter(rows.is_null())
    if len(gone):
        raise _stale(f"{_named(gone)} missing since the plan was made")
    now = folder.files.take(rows)
    same_time = pc.equal(plan.files["modification_time"].cast(pa.int64()), now["modification_time"])
    same = pc.and_(same_time, pc.equal(plan.files["size_bytes"], now["size_bytes"]))
    changed = planned.filter(pc.invert(same))
    if len(changed):
        raise _stale(f"{_named(changed)} not the same as when the plan was made")
    _check_directories(plan, folder)
    return folder.files


def _check_directories(plan: Preview, folder: Folder) -> None:
    left = {path: folder.directories.get(path) for path in plan.empty_directories}
    for path in plan.empty_directories:
        outer = path.rpartition("/")[0]
        held = left.get(outer)
        if held:
            left[outer] = held - 1
    for path, entries in left.items():
        if entries is None:
            raise _stale(f"The folder {path} is missing since the plan was made")
        if entries:
            raise _stale(f"The folder {path} is no longer empty")


def _named(paths: pa.ChunkedArray) -> str:
    """Count files and name the first paths, followed by "is" or "are"."""
    number = format_count(len(paths), "planned file")
    return f"{number} ({format_list(paths.to_pylist())}) {'is' if len(paths) == 1 else 'are'}"


def _stale(what: str) -> StalePlanError:
    return StalePlanError(f"{what}: make a new plan; nothing was deleted.")


def _delete(
    plan: Preview, spark: SparkSession, parallel_delete: bool | None, look: Callable[[], None]
) -> None:
    """Let Delta delete the planned files, by VACUUM … USING INVENTORY.

    Delta deletes the files of an inventory that the log doesn't need and that are older than the table's
    retention. A shorter retention needs RETAIN, which Delta refuses while its retention check is on.
    """
    # USING INVENTORY can't be combined with LITE, which is a setting too.
    confs = {_LITE: "false"}
    if parallel_delete is not None:
        confs[_PARALLEL_DELETE] = str(parallel_delete).lower()
    view = f"compaction_kit_{uuid.uuid4().hex}"
    name = table_name(spark, plan.handle.uri)
    retain = f" RETAIN {hours(plan.retention)} HOURS" if plan.retention < plan.table_retention else ""
    statement = f"VACUUM {name} USING INVENTORY (SELECT * FROM {quoted(view)}){retain}"
    try:
        with session_confs(spark, confs):
            spark.createDataFrame(_inventory(plan), _INVENTORY).createOrReplaceTempView(view)
            run_cancellable(spark, lambda: spark.sql(statement).collect(), look)
    except (PySparkException, Py4JJavaError, OSError) as error:
        raise translate(error, plan.handle.store.root, _outcome(plan)) from None
    except (WorkCancelled, KeyboardInterrupt):
        # Either the caller's progress raised an exception, or Ctrl-C was pressed.
        sentence = f"The vacuum was cancelled, {_outcome(plan)}: make a new plan for what is left."
        raise RunCancelled(sentence) from None
    finally:
        spark.catalog.dropTempView(view)


def _inventory(plan: Preview) -> pd.DataFrame:
    paths, folders = plan.files["path"].to_pylist(), plan.empty_directories
    times = plan.files["modification_time"].cast("int64").to_numpy()
    nothing = np.zeros(len(folders), np.int64)
    return pd.DataFrame(
        {
            # Paths as Hadoop writes them, not URL-encoded.
            "path": list(map(plan.handle.store.uri, (*paths, *folders))),
            "length": np.append(plan.files["size_bytes"].to_numpy(), nothing),
            "isDir": np.repeat([False, True], [len(paths), len(folders)]),
            "modificationTime": np.append(times, nothing),
        }
    )


def _outcome(plan: Preview) -> str:
    left = sum(still_there(plan))
    if left == plan.num_files:
        return "nothing was deleted"
    return f"{plan.num_files - left:,} of {format_count(plan.num_files, 'planned file')} were deleted"


def _progress(plan: Preview, places: list[str], step: str | None, seconds: float) -> VacuumProgress:
    store = plan.handle.store.listed()
    gone = sum(not store.is_taken(place) for place in places)
    share = gone / len(places) if places else 0.0
    files_done, bytes_done = round(share * plan.num_files), round(share * plan.size_bytes)
    step = step or ("Deleting" if gone else "Delta checks the files")
    return VacuumProgress(step, share, files_done, plan.num_files, bytes_done, plan.size_bytes, seconds)
