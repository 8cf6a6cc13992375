"""The plan of a vacuum: what it would delete and why, and which versions can no longer be read."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import pyarrow.compute as pc
from matplotlib.figure import Figure

from compaction_kit import plots
from compaction_kit.handle import Handle
from compaction_kit.history.readable import YES
from compaction_kit.records import Plan
from compaction_kit.retention import hours
from compaction_kit.text import as_html_table, format_count, format_list, format_size
from compaction_kit.times import show_time
from compaction_kit.vacuum.cost import Preview, ranges, spent_versions, with_cost
from compaction_kit.vacuum.decide import FULL, NEEDED, decide
from compaction_kit.vacuum.result import VacuumResult
from compaction_kit.vacuum.run import run_vacuum

_REASONS = {
    "tombstone": "that older versions need",
    "change data": "of the change data feed",
    "orphan": "that no version in the log needs",
}


@dataclass(frozen=True, repr=False)
class VacuumPlan(Preview, Plan):
    """What VACUUM would delete at a time, and what that costs; only `run()` deletes.

    See `decide.Deletion` for what is deleted and kept: `files`, `directories`, `kept`, `storage`.
    See `cost.Preview` for the cost: `versions`, `versions_lost`, `blocked_versions_lost`,
    `content_survives_as`, `content_survives_by`, `content_claimed_as`, `warnings`.
    """

    def run(
        self, parallel_delete: bool | None = None, progress: bool | Callable[[Any], None] | None = None
    ) -> VacuumResult:
        """Delete the planned files and nothing else, by Delta's VACUUM USING INVENTORY.

        Delta checks each file again against the log. No setting of the session is weakened: with the
        retention check on, no file younger than the table's retention is deleted.

        Args:
            parallel_delete: Whether Spark's tasks delete the files, instead of the driver, one file at a
                time. None for the session's setting (spark.databricks.delta.vacuum.parallelDelete.enabled;
                by default the driver).
            progress: True for a progress bar, or a callable that takes a `VacuumProgress`; an exception
                that it raises cancels the run.

        Returns:
            What was deleted, what wasn't, and which versions can no longer be read.

        Raises:
            InvalidArgumentError: The plan is for a time in the future, or an argument can't be used.
            StalePlanError: The table, or a file of the plan, has changed since the plan was made.
            ReadOnlyTableError: The table's log can't be written to.
            RunFailedError: Spark or Delta failed; the message says what was deleted.
            RunCancelled: It was cancelled; the message says what was deleted.
        """
        return run_vacuum(self, parallel_delete, progress)

    def explain(self) -> str:
        """Explain the cost, what would be deleted and what kept, one sentence per line."""
        day, kept_hours = show_time(self.at), hours(self.retention)
        kept = f"files removed less than {kept_hours} hours before are kept"
        if self.is_empty:
            lines = [f"VACUUM on {day} would delete nothing: {kept}."]
        else:
            lines = [
                *self._costs(),
                f"VACUUM on {day} would delete {self._deleted()}; {kept}.",
                self._folders(),
            ]
            lines.append(
                f"A query or write that began more than {kept_hours} hours before and still runs may need "
                "these files."
            )
        if self.keep_versions:
            lines.append(self._kept_versions())
        if self.retention > self.table_retention and self.handle.ignores_retain:
            lines.append(
                "Delta since 4.1 ignores RETAIN and would keep removed files for "
                f"{hours(self.table_retention)} hours, the table property; run() keeps them for {kept_hours}."
            )
        return "\n".join(line for line in (*lines, *self.warnings) if line)

    def facts(self) -> dict[str, str]:
        """Return the plan for people: name and value."""
        lost = self.versions_lost
        return {
            "vacuum": f"of version {self.version}, on {show_time(self.at)}",
            "versions lost": f"{len(lost):,}: {ranges(lost)}" if lost else "none",
            "deletes": f"{format_count(self.num_files, 'file')}, {format_size(self.size_bytes)}",
            "keeps": f"files removed less than {hours(self.retention)} hours before",
        }

    def parts(self) -> tuple[object, ...]:
        """Return the sentences, a table of what is kept, and the figure."""
        kept = [
            (row["reason"], f"{row['num_files']:,}", format_size(row["size_bytes"]))
            for row in self.kept.to_pylist()
        ]
        table = [as_html_table(("reason to keep", "files", "bytes"), kept)] if kept else []
        return self.explain(), *table, self.plot()

    def plot(self) -> Figure:
        """Draw the storage now and after, and which versions can be read now and after."""
        now = self.versions["readable"].to_pylist().count(YES)
        spent = spent_versions(self.versions_lost, self.content_survives_as, now)
        title = f"VACUUM would cost {spent} and free {format_size(self.size_bytes)}"
        return plots.vacuum(
            self.storage, self.versions, "VACUUM would delete nothing" if self.is_empty else title
        )

    def _costs(self) -> list[str]:
        lost, blocked = self.versions_lost, self.blocked_versions_lost
        known, claimed = self.content_survives_as, self.content_claimed_as
        sentences = ["No version that can be read now would be lost."]
        if lost:
            number = format_count(len(lost), "version")
            sentences = [f"{number} that can be read now would be lost: {ranges(lost)}."]
        if known:
            pairs = [
                f"{version} as {other} ({self.content_survives_by[version]})"
                for version, other in known.items()
            ]
            sentences.append(f"The same content can still be read as another version: {format_list(pairs)}.")
        if claimed:
            claims = [f"{version} as {other}" for version, other in claimed.items()]
            version, other = next(iter(claimed.items()))
            sentences.append(
                f"Their writers claim that other versions have the same content: {format_list(claims)}; "
                f"nothing proves it, so compare them first with diff({version}, {other}, verify=True)."
            )
        lines = [" ".join(sentences)]
        if blocked:
            number = format_count(len(blocked), "version")
            lines.append(
                f"{number} that Delta's guard refuses already, as older than the retention, would lose "
                f"files: {ranges(blocked)}."
            )
        return lines

    def _deleted(self) -> str:
        reasons = self.files["reason"].to_pylist()
        known = [reason for reason in _REASONS if reason in reasons]
        counts = [f"{reasons.count(reason):,} {_REASONS[reason]}" for reason in known]
        files = f"{format_count(self.num_files, 'file')} ({format_size(self.size_bytes)})"
        return f"{files}: {', '.join(counts)}" if counts else files

    def _folders(self) -> str:
        number, has_folders = len(self.empty_directories), pc.match_substring(self.files["path"], "/")
        empty = f"{format_count(number, 'empty folder')} would be deleted too." if number else ""
        later = "Folders that this empties are kept until the next VACUUM."
        return f"{empty} {later if pc.any(has_folders).as_py() else ''}".strip()

    def _kept_versions(self) -> str:
        several = len(self.keep_versions) > 1
        which = f"All files of version{'s' * several} {ranges(self.keep_versions)} are kept"
        kept = next((row for row in self.kept.to_pylist() if row["reason"] == NEEDED), None)
        if kept is None:
            return f"{which}; a plain VACUUM would keep them too."
        files = f"{format_count(kept['num_files'], 'file')} ({format_size(kept['size_bytes'])})"
        return (
            f"{which}; a plain VACUUM would delete {files} of them. Commits are kept only for the retention "
            "of the log."
        )


def plan_vacuum(
    handle: Handle,
    retention: str | None = None,
    keep_versions: Sequence[int] | None = None,
    mode: str = FULL,
    at: datetime | str | None = None,
    verify: bool = False,
) -> VacuumPlan:
    """Plan VACUUM by the rules of VacuumCommand.gc.

    VACUUM deletes each file that is older than the retention, not live, and without a tombstone younger
    than the retention. Hidden files and folders are kept. See `Table.plan_vacuum` for the arguments and
    errors.

    Examples:
        >>> vacuum = ck.open_table("data/flights").plan_vacuum(at="2100-01-01")
        >>> vacuum.explain()
        'VACUUM on 2100-01-01 00:00+00:00 would delete nothing: files removed less than 168 hours before ...'
        >>> vacuum.kept.select(["reason", "num_files"]).to_pylist()
        [{'reason': 'hidden, such as the log', 'num_files': ...}, {'reason': 'live', 'num_files': 1095}]
        >>> vacuum.files.schema
        path: string
        size_bytes: int64
        reason: string
        since_version: int64
        removed_at: timestamp[ms, tz=UTC]
        modification_time: timestamp[ms, tz=UTC]
    """
    deletion, state = decide(handle, retention, keep_versions, mode, handle.instant(at))
    return VacuumPlan(**vars(with_cost(deletion, state, verify)))
