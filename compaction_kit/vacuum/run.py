"""Let Delta delete the planned files, and report progress and result."""

import contextlib
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from compaction_kit.compat import create_frame
from compaction_kit.errors import RunCancelled
from compaction_kit.execute.failures import SPARK_FAILURES, translate
from compaction_kit.execute.jobs import WorkCancelled, own_session, run_cancellable
from compaction_kit.execute.work import Progress, ProgressBar
from compaction_kit.folder import WithFiles
from compaction_kit.handle import Handle
from compaction_kit.records import Record
from compaction_kit.session import quiet_errors
from compaction_kit.sql import table_name
from compaction_kit.storage import Store
from compaction_kit.text import format_count, format_list, format_seconds, format_size

_LITE = "spark.databricks.delta.vacuum.lite.enabled"
_MOST_LOOKED_AT, _MOST_NAMED = 1_000, 5


@dataclass(frozen=True, repr=False)
class VacuumResult(WithFiles, Record):
    """The result of a vacuum.

    Attributes:
        files: The deleted files: path (string, relative to the table, decoded), size_bytes (int64).
        not_deleted: The planned files that were not deleted: path, size_bytes, why (string).
        directories: The paths of the deleted folders.
        commits: The versions that VACUUM committed, its start and its end, if it commits any.
        versions_lost: The versions that could be read before the run and can't after it.
        as_planned: Whether exactly the planned files were deleted and the planned versions lost.
    """

    files: pa.Table
    not_deleted: pa.Table
    directories: tuple[str, ...]
    commits: tuple[int, ...]
    versions_lost: list[int]
    as_planned: bool
    seconds: float

    def facts(self) -> dict[str, str]:
        """Return the outcome as readable text: names and values."""
        if not self.num_files and not self.directories and not len(self.not_deleted):
            return {"outcome": "nothing to do: the plan is empty, so nothing was deleted"}
        lost, planned = self.versions_lost, "as planned" if self.as_planned else "NOT as planned"
        rows = [f"{row['path']}: {row['why']}" for row in self.not_deleted.to_pylist()]
        facts = {
            "versions lost": f"{len(lost):,}: {ranges(lost)}" if lost else "none",
            "deleted": f"{format_count(self.num_files, 'file')}, {format_size(self.size_bytes)}, {planned}",
        }
        if self.directories:
            facts["folders"] = f"{format_count(len(self.directories), 'empty folder')} deleted"
        if rows:
            facts["not deleted"] = f"{format_count(len(rows), 'file')}: {format_list(rows, 3, '; ')}"
        if self.commits:
            facts["committed"] = f"versions {ranges(self.commits)}: VACUUM's start and end"
        return facts | {"time": format_seconds(self.seconds)}


@contextlib.contextmanager
def reporting(
    store: Store, files: pa.Table, progress: bool | Callable[[Progress], None] | None
) -> Iterator[Callable[[], None]]:
    """Yield a function that reports how many files are gone, estimated from a sample."""
    start, number = time.monotonic(), len(files)
    sample = np.linspace(0, number - 1, min(number, _MOST_LOOKED_AT)).astype(int)
    places = files["path"].take(sample).to_pylist()
    with contextlib.ExitStack() as stack:
        bar = stack.enter_context(contextlib.closing(ProgressBar())) if progress is True else progress

        def look() -> None:
            if callable(bar):
                gone = still_there(store, places).count(False)
                share = gone / len(places) if places else 1.0
                step = f"Deleted {round(share * number):,} of {format_count(number, 'file')}"
                step = step if gone else "Delta checks the files"
                bar(Progress(step, share, 0, 0, time.monotonic() - start))

        yield look


@quiet_errors()
def delete(
    handle: Handle, files: pa.Table, directories: Sequence[str], retain: str, look: Callable[[], None]
) -> None:
    """Let Delta delete files and empty folders that the log doesn't need, by VACUUM … USING INVENTORY.

    `retain` is a RETAIN clause for a shorter retention than the table's.
    """
    paths, view = files["path"].to_pylist(), f"compaction_kit_{uuid.uuid4().hex}"
    nothing = np.zeros(len(directories), np.int64)
    # VacuumCommand.INVENTORY_SCHEMA.
    inventory = {
        # Paths as Hadoop writes them, not URL-encoded.
        "path": list(map(handle.store.uri, (*paths, *directories))),
        "length": np.append(files["size_bytes"].to_numpy(), nothing),
        "isDir": np.repeat([False, True], [len(paths), len(directories)]),
        "modificationTime": np.append(files["modification_time"].cast("int64").to_numpy(), nothing),
    }

    def outcome() -> str:
        gone = still_there(handle.store, paths).count(False)
        deleted = f"{gone:,} of {format_count(len(paths), 'planned file')} were deleted"
        return deleted if gone else "nothing was deleted"

    try:
        # With the LITE setting, Delta would record commits that later LITE vacuums leave out.
        with own_session(handle.spark, {_LITE: "false"}) as spark:
            table = table_name(spark, handle.uri)

            def work() -> None:
                create_frame(spark, pa.table(inventory)).createOrReplaceTempView(view)
                try:
                    spark.sql(f"VACUUM {table} USING INVENTORY (SELECT * FROM {view}){retain}").collect()
                finally:
                    spark.catalog.dropTempView(view)

            run_cancellable(spark, work, look)
    except (*SPARK_FAILURES, OSError) as error:
        raise translate(error, handle.store.root, outcome()) from None
    except (WorkCancelled, KeyboardInterrupt):
        # Either the caller's progress raised an exception, or Ctrl-C was pressed.
        sentence = f"The vacuum was cancelled, {outcome()}: make a new plan for what is left."
        raise RunCancelled(sentence) from None


def ranges(versions: Sequence[int]) -> str:
    """Write versions as ranges, such as "0 to 3, 7", and count those after the first five ranges."""
    array = np.array(versions)
    runs = np.split(array, np.flatnonzero(np.diff(array) != 1) + 1)
    shown = [f"{run[0]}" if len(run) == 1 else f"{run[0]} to {run[-1]}" for run in runs[:_MOST_NAMED]]
    more = sum(map(len, runs[_MOST_NAMED:]))
    return ", ".join(shown) + (f" and {more:,} more" if more else "")


def still_there(store: Store, paths: list[str]) -> list[bool]:
    """Return whether each path is on disk."""
    return [status is not None for status in map(store.listed().status, paths)]
