"""A vacuum as planned."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import cached_property
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
from matplotlib.figure import Figure

from compaction_kit import plots
from compaction_kit.errors import InvalidArgumentError
from compaction_kit.text import as_html_table, format_size, shown
from compaction_kit.vacuum import words

if TYPE_CHECKING:
    from compaction_kit.vacuum.result import VacuumResult


@dataclass(frozen=True)
class VacuumPlan:
    """What VACUUM would delete at a time, and what that costs; only `run()` deletes.

    Attributes:
        version: The version that was planned; the plan runs on no other.
        table_id: The id in the table's metadata.
        mode: "FULL", by the folder, or "LITE", by the log's commits alone.
        at: When it would run.
        retention: How long removed files are kept.
        table_retention: How long the table's property says.
        keep_versions: The versions of which no file goes.
        files: One row a file that goes: path (relative to the table, decoded), size_bytes; reason
            ("tombstone": versions needed it; "change data": of the change data feed; "orphan": no
            version that the log tells of knows it); since_version (the first version that doesn't
            need it), removed_at (UTC; both null for an orphan or where the log doesn't tell any
            more), modification_time (UTC). Hadoop's own .<name>.crc beside a file goes with it.
        directories: The folders that VACUUM lists beside them: path, is_empty; it deletes those that
            are, and passes over the others.
        kept: What stays and why: reason ("live", "removed less long ago" and "written less long
            ago" than the retention, "needed by a kept version", "not among what LITE looks at",
            "a colon in its name", which no VACUUM can take, "hidden, the log among it"), num_files,
            size_bytes.
        storage: Bytes of what isn't hidden: kind ("live", "tombstoned", "orphaned"), size_bytes,
            size_bytes_after.
        versions: Every version that the log tells of: version, timestamp (UTC), readable and
            readable_after, as `Table.versions()` says it.
        versions_lost: Those that can be read now and not after. The latest is one of them if it is
            older than the retention, for VACUUM commits two versions on top of it and then Delta's
            guard refuses it. What the guard refuses merely as time goes by until `at` is not
            the vacuum's cost, and isn't counted.
        blocked_versions_lost: Those that Delta's guard refuses now, and that would lose files: with the
            guard off they can be read now and not after.
        content_survives_as: For versions lost, the version that can be read after and is known to
            have the same content.
        content_survives_by: How that is known: "identical files", "says OPTIMIZE, row counts agree",
            "equal fingerprints"; see `content.read_content`.
        content_claimed_as: For versions lost without such a one, the version that can be read after
            and that its writer claims to have the same content.
        gone_already: Paths that VACUUM LITE lists though they are gone.
        warnings: What to look at first: running streams that would lose files, versions that are
            kept and yet refused.
    """

    version: int
    table_id: str
    mode: str
    at: datetime
    retention: timedelta
    table_retention: timedelta
    keep_versions: tuple[int, ...]
    files: pa.Table
    directories: pa.Table
    kept: pa.Table
    storage: pa.Table
    versions: pa.Table
    versions_lost: list[int]
    blocked_versions_lost: list[int]
    content_survives_as: Mapping[int, int]
    content_survives_by: Mapping[int, str]
    content_claimed_as: Mapping[int, int]
    gone_already: pa.Array
    warnings: tuple[str, ...]
    runner: "Callable[..., Any] | None" = field(repr=False, compare=False, default=None)

    @cached_property
    def size_bytes(self) -> int:
        """Bytes that would be freed."""
        return pc.sum(self.files["size_bytes"]).as_py() or 0

    @property
    def num_files(self) -> int:
        """How many files would go."""
        return self.files.num_rows

    @cached_property
    def empty_directories(self) -> list[str]:
        """The folders that would go, by their paths."""
        return self.directories.filter(self.directories["is_empty"])["path"].to_pylist()

    @property
    def is_empty(self) -> bool:
        """Whether nothing would go."""
        return not self.num_files and not self.empty_directories

    def run(
        self,
        parallel_delete: bool | None = None,
        progress: "bool | Callable[[Any], None] | None" = None,
    ) -> "VacuumResult":
        """Delete what the plan shows, by Delta's VACUUM USING INVENTORY, and nothing else.

        Delta checks each file once more by the log as it is then. No setting of the session is
        weakened: with the retention check on, nothing younger than the table's retention goes.

        Args:
            parallel_delete: Whether Spark's tasks delete, or the driver, one file at a time. None: as the
                session is set (spark.databricks.delta.vacuum.parallelDelete.enabled; the driver,
                if it isn't).
            progress: True for a bar, or a callable that takes a `VacuumProgress` now and then; an
                exception that it raises cancels the run.

        Returns:
            What went, what did not, and which versions that cost.

        Raises:
            InvalidArgumentError: The plan is for a time that is yet to come, or an argument can't be used.
            StalePlanError: The table, or a file of the plan, has changed since.
            SessionError: The session has no JVM in reach.
            ReadOnlyTableError: The table's log can't be written to.
            RunFailedError: Spark or Delta gave up; the message says what is gone.
            RunCancelled: It was cancelled; the message says the same.
        """
        if self.runner is None:
            raise InvalidArgumentError("This plan belongs to no table: make one with Table.plan_vacuum().")
        return self.runner(self, parallel_delete=parallel_delete, progress=progress)

    def explain(self) -> str:
        """What it costs, what would go and what stays, in a few sentences."""
        return words.explain(self)

    def plot(self) -> Figure:
        """Draw the storage now and after, and which versions can be read now and after."""
        return plots.vacuum(self.storage, self.versions, words.finding(self))

    def _repr_html_(self) -> str:
        kept = [
            (row["reason"], f"{row['num_files']:,}", format_size(row["size_bytes"]))
            for row in self.kept.to_pylist()
        ]
        stays = [as_html_table(("what stays", "files", "bytes"), kept)] if kept else []
        return shown(self.explain(), *stays, self.plot())

    def __repr__(self) -> str:
        return f"VacuumPlan(version {self.version}: {self.num_files:,} files, {format_size(self.size_bytes)})"
