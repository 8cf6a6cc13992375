"""Some rows of a version, to look at."""

from collections.abc import Callable
from typing import Any, NamedTuple

from compaction_kit.errors import RunCancelled, RunFailedError, reason_of
from compaction_kit.execute.jobs import WorkCancelled, run_cancellable
from compaction_kit.handle import Handle
from compaction_kit.query import MISSING_FILE, SPARK_ERRORS
from compaction_kit.reads import frame_at
from compaction_kit.session import quiet_errors


class FirstRows(NamedTuple):
    """Some rows of a version, and the names of their columns."""

    version: int
    columns: list[str]
    rows: list[tuple[Any, ...]]


def first_rows(
    handle: Handle, version: int, limit: int = 20, progress: Callable[[], object] | None = None
) -> FirstRows:
    """Read some rows of a version: those that Spark finds first.

    Args:
        handle: The table.
        version: The version.
        limit: The most rows to read.
        progress: Called now and then; an exception that it raises cancels the reading.

    Raises:
        InvalidArgumentError: The version doesn't exist or Delta refuses it.
        RunFailedError: Its files can't be read.
        RunCancelled: It was cancelled.
    """
    try:
        with quiet_errors():
            rows = frame_at(handle.spark, handle.uri, version, "version").limit(limit)
            found = run_cancellable(handle.spark, rows.collect, progress or (lambda: None))
    except SPARK_ERRORS as error:
        is_gone = any(sign in str(error) for sign in MISSING_FILE)
        why = "files of it were deleted, probably by VACUUM" if is_gone else reason_of(error)
        raise RunFailedError(f"version={version} can't be read: {why}.") from None
    except WorkCancelled:
        raise RunCancelled("Cancelled: the rows were not read.") from None
    return FirstRows(version, rows.columns, [tuple(row) for row in found])
